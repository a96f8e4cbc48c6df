"""Convert real architectures, train them five steps, fold them: the list, and what came of it as JSON.

`model_shares.py` counts what of each becomes orthogonal, in a minute; this takes half an hour.

    python tools/model_list.py [--only WORD ...] [--output docs/model_list.json]

One variant of each family of timm, of torchvision's classifiers, and two transformers models from small configurations,
with random weights and small synthetic images. A model is taken as it comes: the default filter, groups of 64 rows as
in the paper's experiments, and `renormalize_(model, norm=1.0)` so that one learning rate suits every initialization.
Training is Adam on one batch.
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import orthonorm as on
from model_list_names import TIMM, TORCHVISION

CLASSES = 10
BATCH = 4
STEPS = 5
LEARNING_RATE = 2e-4
CONFIG = on.OLMConfig(group_size=64)


@dataclass(frozen=True)
class Case:
    """One architecture: how to make it, and what to feed it."""

    name: str
    source: str
    make: Callable[[], nn.Module]
    batch: Callable[[], dict[str, Tensor] | Tensor]
    targets: Callable[[], Tensor]


@dataclass(frozen=True)
class Result:
    """What was measured on one architecture."""

    name: str
    source: str
    completed: int
    """Layers whose weight had lost directions at the start (zero-initialised): completed, with a warning."""
    losses: list[float]
    """Training loss before each of the steps and after the last, on one batch."""
    error: float
    """Largest orthogonality error after training."""
    fold_difference: float
    """Largest difference of the outputs before and after folding, relative to the largest output."""
    output_size: float
    """Largest output in absolute value."""
    kept_types: bool
    """Whether every module has its class, and the state_dict its keys and shapes, again after folding."""
    seconds: float

    @property
    def failures(self) -> list[str]:
        """What of the promises does not hold, in words."""
        checks = {
            "the loss did not fall": self.losses[-1] < self.losses[0],
            "not orthogonal": self.error < 5e-5,
            "folding changed the output": self.fold_difference <= 1e-4,
            "zero output": self.output_size > 0,
            "folding changed types or keys": self.kept_types,
        }
        return [text for text, holds in checks.items() if not holds]


def logits_of(output: Any) -> Tensor:
    """Return the logits of a model's output: a tensor, a tuple of heads, or an object of transformers."""
    output = getattr(output, "logits", output)
    while not isinstance(output, Tensor):
        output = output[0]
    return output


def run(model: nn.Module, batch: dict[str, Tensor] | Tensor) -> Tensor:
    return logits_of(model(**batch) if isinstance(batch, dict) else model(batch))


def loss_of(model: nn.Module, batch: dict[str, Tensor] | Tensor, targets: Tensor) -> Tensor:
    logits = run(model, batch)
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


def train(model: nn.Module, case: Case) -> list[float]:
    """Take the steps on one batch and return the loss before each and after the last."""
    batch, targets = case.batch(), case.targets()
    optimizer = torch.optim.Adam(on.param_groups(model), lr=LEARNING_RATE)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, batch, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        losses.append(loss_of(model, batch, targets).item())
    return losses


def signature(model: nn.Module) -> tuple[list[type], list[tuple[str, torch.Size]]]:
    """Return the types of all modules, and the keys and shapes of the state_dict in their order."""
    return [type(module) for module in model.modules()], [(k, v.shape) for k, v in model.state_dict().items()]


def measure(case: Case) -> Result:
    """Make, convert, train and fold one architecture."""
    start = time.perf_counter()
    torch.manual_seed(0)
    model = case.make()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    before = signature(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        on.orthogonalize_(model, CONFIG)
    on.renormalize_(model, norm=1.0)
    losses = train(model, case)
    model.eval()
    with torch.no_grad():
        output = run(model, case.batch())
        error = max(on.orthogonality_error(model).values())
        folded = run(on.fold_(model), case.batch())
    return Result(
        name=case.name,
        source=case.source,
        completed=sum("directions" in str(warning.message) for warning in caught),
        losses=losses,
        error=error,
        fold_difference=float((folded - output).abs().amax() / output.abs().amax()),
        output_size=float(output.abs().amax()),
        kept_types=signature(model) == before,
        seconds=time.perf_counter() - start,
    )


def images(size: int) -> Tensor:
    return torch.randn(BATCH, 3, size, size, generator=torch.Generator().manual_seed(1))


def classes() -> Tensor:
    return torch.arange(BATCH) % CLASSES


def _size(entry: str) -> tuple[str, int, bool]:
    name, _, size = entry.rstrip("*").partition(":")
    return name, int(size or 64), entry.endswith("*")


def make_timm(name: str, **size: Any) -> nn.Module:
    import timm

    return timm.create_model(name, pretrained=False, num_classes=CLASSES, **size)


def make_torchvision(name: str, **size: Any) -> nn.Module:
    from torchvision import models

    options: dict[str, Any] = (
        {"aux_logits": False, "init_weights": True} if name in {"googlenet", "inception_v3"} else {}
    )
    return models.get_model(name, weights=None, num_classes=CLASSES, **options, **size)


TOKENS = 50


def make_bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    config = cast(Any, BertConfig)(
        vocab_size=TOKENS, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
        num_labels=CLASSES,
    )  # fmt: skip
    return BertForSequenceClassification(config)


def make_llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=TOKENS, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=96,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def tokens() -> dict[str, Tensor]:
    ids = torch.randint(TOKENS, (BATCH, 12), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def next_tokens() -> Tensor:
    return tokens()["input_ids"].roll(-1, 1)


def cases() -> list[Case]:
    """Return the whole list."""
    found = []
    for source, names, make in (("timm", TIMM, make_timm), ("torchvision", TORCHVISION, make_torchvision)):
        for name, size, told in map(_size, names):
            key = "img_size" if source == "timm" else "image_size"
            made = partial(make, name, **({key: size} if told else {}))
            found.append(Case(name, source, made, partial(images, size), classes))
    return [
        *found,
        Case("bert", "transformers", make_bert, tokens, classes),
        Case("llama", "transformers", make_llama, tokens, next_tokens),
    ]


def measure_safely(case: Case) -> dict[str, Any]:
    """Return the result as what JSON holds; an exception is a failure with its text."""
    try:
        result = measure(case)
    except Exception as error:  # one architecture must not hide the others
        return {"name": case.name, "source": case.source, "failures": [f"{type(error).__name__}: {error}"]}
    return asdict(result) | {"failures": result.failures}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--only", nargs="*", default=[], help="only architectures whose name contains one of these words"
    )
    parser.add_argument("--output", type=Path, default=Path("docs/model_list.json"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    chosen = [c for c in cases() if not options.only or any(w in f"{c.source}/{c.name}" for w in options.only)]
    results = []
    for case in chosen:
        results.append(found := measure_safely(case))
        verdict = "; ".join(found["failures"]) or f"{found['seconds']:.1f} s"
        print(f"{case.source}/{case.name}: {verdict}", flush=True)
    versions = {name: __import__(name).__version__ for name in ("torch", "timm", "torchvision", "transformers")}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    head = {"commit": commit, "versions": versions, "group_size": CONFIG.group_size}
    options.output.write_text(json.dumps(head | {"models": results}, indent=1))
    return int(any(found["failures"] for found in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
