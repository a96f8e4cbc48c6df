"""Print how much longer `import orthonorm` takes than `import torch`: the median of five fresh processes.

    python tools/import_time.py

Measured by `python -X importtime`: what the package and all that it brings beyond torch takes.
"""

import re
import statistics
import subprocess
import sys

PROCESSES = 5
LIMIT = 0.15


def beyond_torch() -> float:
    """Seconds of one fresh process for `import orthonorm` less those of torch inside it."""
    command = [sys.executable, "-X", "importtime", "-c", "import orthonorm"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    lines = re.findall(r"^import time: .*\| +(\d+) \| *(torch|orthonorm)$", done.stderr, re.MULTILINE)
    times = {name: int(microseconds) for microseconds, name in lines}
    return (times["orthonorm"] - times["torch"]) / 1e6


def main() -> int:
    seconds = [beyond_torch() for _ in range(PROCESSES)]
    median = statistics.median(seconds)
    print(f"import orthonorm beyond torch: {median:.3f} s (median of {', '.join(f'{s:.3f}' for s in seconds)})")
    if median > LIMIT:
        print(f"more than the {LIMIT} s that are promised", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
