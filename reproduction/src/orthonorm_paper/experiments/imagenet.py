"""Four networks on ImageNet (table 4)."""

from __future__ import annotations

from functools import partial

from orthonorm_paper.records.run import Run
from orthonorm_paper.records.schedules import Exponential, Schedule, Steps

from .experiment import Experiment

MODELS = {
    "alexnet": "AlexNet with batch normalisation",
    "inception-imagenet": "BN-Inception",
    "resnet34": "ResNet-34",
    "preresnet34": "pre-activation ResNet-34",
}


def imagenet(model: str) -> list[Run]:
    """Plain and OLM; which convolutions are replaced depends on the network."""
    # 0.1 * 100^(-e/50), e from 1.
    return _runs(_name(model), "imagenet", model, Exponential(0.01, 50, ahead=1))


def colour(model: str) -> list[Run]:
    """The same with random colours of the training images, as the public ResNet implementation has them."""
    return _runs(f"{_name(model)}-colour", "imagenet-colour", model, Exponential(0.01, 50, ahead=1))


def steps(model: str) -> list[Run]:
    """The same with the learning rate divided by ten after 20 and 40 epochs, which the paper says is slightly worse."""
    return _runs(f"{_name(model)}-steps", "imagenet", model, Steps((20, 40), 0.1))


def _runs(name: str, dataset: str, model: str, schedule: Schedule) -> list[Run]:
    return [
        Run(
            experiment=name,
            dataset=dataset,
            model=model,
            method=method,
            momentum=0.9,
            nesterov=True,
            weight_decay=1e-4,
            lr=0.1,
            schedule=schedule,
            epochs=50,
            batch_size=64,
        )
        for method in ("plain", "OLM")
    ]


def _name(model: str) -> str:
    return f"imagenet-{model.removesuffix('-imagenet')}"


ENTRIES = tuple(
    Experiment(
        f"{_name(model)}{ending}",
        f"{words} on ImageNet{added}",
        f"ImageNet 2012, 50 epochs, batch 64, learning rate 0.1 to 0.001, 1 seed{added}",
        partial(runs, model),
        shows=f"Table 4{told}",
        size="full",
    )
    for ending, runs, added, told in (
        ("", imagenet, "", ""),
        ("-colour", colour, ", colour jitter and lighting", " (colours)"),
        ("-steps", steps, ", learning rate in steps", " (steps)"),
    )
    for model, words in MODELS.items()
)
