"""Write the page "What works with what" from the results of the model list: `python tools/what_works.py`.

python tools/what_works.py [RESULTS [PAGE]]    # docs/model_list.json and docs/what-works.md
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HEAD = """# What works with what

This page is written by `python tools/what_works.py` from `docs/model_list.json`, which
`python tools/model_list.py` measures. Do not edit it by hand.

Each architecture was made with random weights and 10 classes, converted with
`orthogonalize_(model, OLMConfig(group_size={group_size}))` and `renormalize_(model, norm=1.0)`, trained
five steps of Adam at 2e-4 on one batch of small synthetic images (or tokens), and folded. A tick in the last column
means that at least 80% of the entries of its Linear and Conv weights were converted, the loss fell, every weight was
orthogonal to 5e-5, the folded model gave the same output to 1e-4 (relative, evaluation mode, an output that is not
zero), and classes, keys and shapes were those of the plain model again. `renormalize_` comes first since a layer whose
`V` is small has a large effective learning rate, with Adam `lr / |V|`. This is a smoke test of the conversion, on one
batch, and says nothing about how well a model trains.

Measured with {versions}: {passed} of {count} pass.

| from | architecture | converted | layers | left plain | completed | loss, first to last | folding | |
|---|---|---|---|---|---|---|---|---|
"""

TAIL = """
*converted*: share of the entries of all Linear and Conv weights. *layers*: converted of all. *left plain*: how many and
why; the default filter leaves them out. *completed*: layers that start from zero or dependent rows (zero-initialised
heads and residual branches), which conversion completes by fixed directions, with a warning. *folding*: largest
relative difference of the output before and after.
"""


def row(result: dict[str, Any]) -> str:
    """Return one line of the table."""
    if "losses" not in result:
        return f"| {result['source']} | {result['name']} | | | | | | | {'; '.join(result['failures'])} |"
    left = ", ".join(f"{count} {reason}" for reason, count in sorted(result["left_out"].items()))
    cells = [
        result["source"],
        result["name"],
        f"{result['converted_share']:.1%}",
        f"{result['converted_layers']} of {result['layers']}",
        left or "none",
        str(result["completed"] or "none"),
        f"{result['losses'][0]:.2f} to {result['losses'][-1]:.2f}",
        f"{result['fold_difference']:.0e}" if result["fold_difference"] else "0",
        "; ".join(result["failures"]) or "✓",
    ]
    return f"| {' | '.join(cells)} |"


def page(found: dict[str, Any]) -> str:
    """Return the whole page."""
    models = found["models"]
    head = HEAD.format(
        group_size=found["group_size"],
        versions=", ".join(f"{name} {version}" for name, version in found["versions"].items()),
        passed=sum(not result["failures"] for result in models),
        count=len(models),
    )
    return head + "\n".join(map(row, models)) + "\n" + TAIL


def main(arguments: Sequence[str]) -> int:
    """Read the results and write the page."""
    defaults = [Path("docs/model_list.json"), Path("docs/what-works.md")]
    source, target = [*map(Path, arguments), *defaults[len(arguments) :]]
    target.write_text(page(json.loads(source.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
