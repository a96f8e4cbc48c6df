"""Count what of real architectures becomes orthogonal, what stays plain and why: `docs/model_shares.json`, in a minute.

    python tools/model_shares.py [--only WORD ...] [--output docs/model_shares.json]

The architectures are those of `model_list.py`, made on the meta device: no weight is computed. The shares are of all
parameters of a model, so that what the conversion leaves plain cannot hide.
"""

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

import orthonorm as on
from model_list import Case, cases

# How the reasons of a plan are grouped, by how they begin; what no line names is grouped as other parameters.
REASONS = {
    "output layer": "output layer",
    "depthwise": "depthwise convolutions",
    "fewer than 3": "fewer than 3 inputs per row",
    "recurrent": "recurrent weights",
    "embedding": "embeddings",
}
OTHER = "other parameters"
VECTORS = "vectors"


def make(case: Case) -> nn.Module:
    """Return the model on the meta device, or on the CPU where its constructor looks at values."""
    try:
        with torch.device("meta"):
            return case.make()
    except NotImplementedError:
        return case.make()


def count(model: nn.Module) -> dict[str, Any]:
    """Return the parameters of a model: all, those that become orthogonal, and the others by the reason."""
    plan = on.conversion_plan(model)
    if plan.refused:
        raise ValueError(f"{plan.refused[0].name}: {plan.refused[0].why}")
    left: Counter[str] = Counter()
    for weight in plan.left:
        if not weight.tied_to:
            left[next((text for start, text in REASONS.items() if weight.why.startswith(start)), OTHER)] += weight.numel
    parameters = sum(parameter.numel() for parameter in model.parameters())
    vectors = parameters - plan.entries()
    return {
        "parameters": parameters,
        "orthogonal": plan.entries("converted"),
        "layers": len(plan.converted),
        "left": dict(left.most_common()) | ({VECTORS: vectors} if vectors else {}),
    }


def main(arguments: Sequence[str]) -> int:
    """Count all architectures and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], help="only architectures whose name contains one of the words")
    parser.add_argument("--output", type=Path, default=Path("docs/model_shares.json"))
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    chosen = [c for c in cases() if not options.only or any(w in f"{c.source}/{c.name}" for w in options.only)]
    found = [{"source": case.source, "name": case.name} | count(make(case)) for case in chosen]
    versions = {name: __import__(name).__version__ for name in ("torch", "timm", "torchvision", "transformers")}
    options.output.write_text(json.dumps({"versions": versions, "models": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
