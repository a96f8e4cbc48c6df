"""Four networks on ImageNet (table 4)."""

from __future__ import annotations

from collections.abc import Callable

from orthonorm_paper.records.run import Run
from orthonorm_paper.records.schedules import Exponential

from .experiment import Experiment

MODELS = {
    "alexnet": "AlexNet with batch normalisation",
    "inception-imagenet": "BN-Inception",
    "resnet34": "ResNet-34",
    "preresnet34": "pre-activation ResNet-34",
}


def imagenet(model: str) -> list[Run]:
    """Plain and OLM; which convolutions are replaced depends on the network."""
    return [
        Run(
            experiment=_name(model),
            dataset="imagenet",
            model=model,
            method=method,
            momentum=0.9,
            nesterov=True,
            weight_decay=1e-4,
            lr=0.1,
            # 0.1 * 100^(-e/50), e from 1.
            schedule=Exponential(0.01, 50, ahead=1),
            epochs=50,
            batch_size=64,
        )
        for method in ("plain", "OLM")
    ]


def _name(model: str) -> str:
    return f"imagenet-{model.removesuffix('-imagenet')}"


def _runs_of(model: str) -> Callable[[], list[Run]]:
    return lambda: imagenet(model)


ENTRIES = tuple(
    Experiment(
        _name(model),
        f"{words} on ImageNet",
        "ImageNet 2012, 50 epochs, batch 64, rate 0.1 to 0.001, 1 seed",
        _runs_of(model),
        shows="Table 4",
        size="full",
    )
    for model, words in MODELS.items()
)
