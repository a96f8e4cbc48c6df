"""What a campaign counts: the cases of each property, and the worst error that it saw."""

import json
import math
import platform
import time
from pathlib import Path

import hypothesis
import torch

import orthonorm as on


class Figures:
    """Cases and worst errors, property by property; `expect` is the assertion of a campaign."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.properties: dict[str, dict[str, float]] = {}

    def case(self, name: str) -> None:
        """Count a case of the property."""
        entry = self.properties.setdefault(name, {"cases": 0, "checks": 0, "share": 0.0})
        entry["cases"] += 1

    def expect(self, name: str, error: float, limit: float) -> None:
        """Assert that an error is within its limit, and keep the largest share of a limit that was needed."""
        assert error <= limit, f"{name}: {error:.3e} > {limit:.3e}"
        entry = self.properties[name]
        entry["checks"] += 1
        entry["share"] = max(entry["share"], error / limit)

    def worst(self, name: str, key: str, error: float) -> None:
        """Keep the largest value of a figure that a table shows."""
        entry = self.properties[name]
        entry[key] = max(entry.get(key, 0.0), error)

    def write(self, file: Path) -> None:
        def short(x: float) -> float:
            return float(f"{x:.2e}") if isinstance(x, float) and math.isfinite(x) else x

        content = {
            "profile": hypothesis.settings.get_current_profile_name(),
            "versions": {
                "orthonorm": on.__version__,
                "torch": torch.__version__.partition("+")[0],
                "hypothesis": hypothesis.__version__,
                "python": platform.python_version(),
            },
            "machine": platform.machine(),
            "seconds": round(time.monotonic() - self.start),
            "properties": {
                name: {key: short(value) for key, value in entry.items()} for name, entry in self.properties.items()
            },
        }
        file.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")
