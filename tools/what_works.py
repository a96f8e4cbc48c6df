"""Write the page "What works with what" from the counts and results of the model list: `python tools/what_works.py`.

python tools/what_works.py    # from docs/model_shares.json and docs/model_list.json to docs/what-works.md
"""

import json
import sys
from math import ceil, floor
from pathlib import Path
from typing import Any

HEAD = """# What works with what

Look your architecture up here before you convert it: what of it becomes orthogonal, what stays plain and why, and
whether it trains and folds. For your own model, `print(on.conversion_plan(model))` shows the same, weight by weight.

This page is written by `python tools/what_works.py` from `docs/model_shares.json` and `docs/model_list.json`, which
`python tools/model_shares.py` and `python tools/model_list.py` measure. Do not edit it by hand.

## What becomes orthogonal

The shares are of *all* parameters of a model with 10 classes, converted with `orthogonalize_(model)`. What is
orthogonal is rounded down, and what is left plain up. *weights* is the number of weights that become orthogonal. What
is left has one of these reasons.

- *output layer*: what the model names (`get_classifier`, `get_output_embeddings`), or the last layer as registered.
- *depthwise convolutions* and layers of *fewer than 3 inputs per row*, which have nothing to gain.
- *recurrent weights* and *embeddings*, which a filter can choose:
  `on.orthogonalize_(model, filter_fn=lambda module, name: isinstance(module, torch.nn.LSTM))`.
- *other parameters*, which belong to no layer type that the conversion knows: position embeddings, class tokens.
- *vectors*: biases, the weights of normalization layers and scales, for which orthogonal has no meaning.

The two models of transformers are small configurations, in which embeddings weigh much. Counted with {versions}.

| from | architecture | orthogonal | weights | left plain |
|---|---|---|---|---|
"""

CHECK = """
## Training and folding

Each architecture was made with random weights and 10 classes, converted with
`orthogonalize_(model, OLMConfig(group_size={group_size}))`, its `V` set to rows of norm 1, trained five steps of Adam
at 2e-4 on one batch of small synthetic images (or tokens), and folded. A tick means that the loss fell, every weight
was orthogonal to 5e-5, the folded model gave the same output to 1e-4 (relative, evaluation mode, an output that is not
zero), and classes, keys and shapes were those of the plain model again. This is a smoke test of the conversion, on one
batch, and says nothing about how well a model trains.

Measured at commit {commit}, with the layers that it converted by default, and with {versions}: {passed} of {count}
pass.

*completed*: layers that start from zero or dependent rows (zero-initialised heads and residual branches), which
conversion completes by fixed directions, with a warning. *folding*: largest relative difference of the output before
and after.

| from | architecture | completed | loss, first to last | folding | |
|---|---|---|---|---|---|
"""


def share(part: int, whole: int) -> str:
    """Return what is orthogonal in percent, rounded down, so that 100% is all."""
    return f"{floor(1000 * part / whole) / 10:.1f}%"


def rest(part: int, whole: int) -> str:
    """Return what is left plain in percent, rounded up, so that nothing is none."""
    return f"{ceil(1000 * part / whole) / 10:.1f}%"


def row_of_shares(counted: dict[str, Any]) -> str:
    """Return one line of the table of shares."""
    whole = counted["parameters"]
    left = ", ".join(f"{reason} {rest(count, whole)}" for reason, count in counted["left"].items())
    cells = [counted["source"], counted["name"], share(counted["orthogonal"], whole), str(counted["layers"]), left]
    return f"| {' | '.join(cells)} |"


def row_of_checks(result: dict[str, Any]) -> str:
    """Return one line of the table of training and folding."""
    if "losses" not in result:
        return f"| {result['source']} | {result['name']} | | | | {'; '.join(result['failures'])} |"
    cells = [
        result["source"],
        result["name"],
        str(result["completed"] or "none"),
        f"{result['losses'][0]:.2f} to {result['losses'][-1]:.2f}",
        f"{result['fold_difference']:.0e}" if result["fold_difference"] else "0",
        "; ".join(result["failures"]) or "✓",
    ]
    return f"| {' | '.join(cells)} |"


def page(shares: dict[str, Any], checks: dict[str, Any]) -> str:
    """Return the whole page."""
    models = checks["models"]
    head = HEAD.format(versions=_versions(shares))
    check = CHECK.format(
        group_size=checks["group_size"],
        commit=checks["commit"],
        versions=_versions(checks),
        passed=sum(not result["failures"] for result in models),
        count=len(models),
    )
    tables = ["\n".join(map(row_of_shares, shares["models"])), "\n".join(map(row_of_checks, models))]
    return f"{head}{tables[0]}\n{check}{tables[1]}\n"


def _versions(found: dict[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in found["versions"].items())


def main(docs: Path = Path("docs")) -> int:
    """Read the results and write the page."""
    shares, checks = (json.loads((docs / name).read_text()) for name in ("model_shares.json", "model_list.json"))
    (docs / "what-works.md").write_text(page(shares, checks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
