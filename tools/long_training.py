"""Twenty thousand steps of orthogonal networks, and what becomes of W and V: `make long-training`.

    python tools/long_training.py [STEPS FOLDER]    # 20000 steps into docs/long-training

A network of three orthogonal hidden layers learns scikit-learn's 1,797 real digits (8 x 8 pixels; 1,000 to train), far
beyond the point at which it has learned them. Decay reaches V on purpose, which `param_groups` would not let it do.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import orthonorm as on

HERE = Path(__file__).resolve().parent
POINTS = 40


@dataclass(frozen=True)
class Case:
    """How one network is trained."""

    optimizer: Callable[..., torch.optim.Optimizer]
    half: bool = False
    renormalize_every: int | None = None


sgd = torch.optim.SGD
CASES = {
    "SGD with momentum, weight decay 5e-4": Case(partial(sgd, lr=0.1, momentum=0.9, weight_decay=5e-4)),
    "the same under bfloat16 autocast": Case(partial(sgd, lr=0.1, momentum=0.9, weight_decay=5e-4), half=True),
    "AdamW, weight decay 0.01": Case(partial(torch.optim.AdamW, lr=1e-3, weight_decay=0.01)),
    "SGD at a learning rate of 1.2 (at 2 it learns nothing)": Case(partial(sgd, lr=1.2)),
    "SGD, weight decay 0.01": Case(partial(sgd, lr=0.5, weight_decay=0.01)),
    "the same, renormalized every 1,000 steps": Case(partial(sgd, lr=0.5, weight_decay=0.01), renormalize_every=1000),
}


@dataclass(frozen=True)
class Point:
    """What is measured after a number of steps."""

    step: int
    loss: float
    error: float
    """Largest |W W^T - I|."""
    condition: float
    """Largest condition number of a group of V."""
    smallest: float
    """Smallest root mean square norm of the rows of a V."""
    largest: float


def digits() -> tuple[Tensor, Tensor]:
    """Return 1,000 digits and their classes."""
    found = load_digits()
    x = torch.from_numpy(found.data).float() / 16  # type: ignore[attr-defined]
    return x[:1000], torch.from_numpy(found.target)[:1000]  # type: ignore[attr-defined]


def network(seed: int) -> nn.Module:
    """Return three orthogonal hidden layers of 32 ReLU units, a plain classifier after them."""
    torch.manual_seed(seed)
    layers = [part for width in (64, 32, 32) for part in (nn.Linear(width, 32), nn.ReLU())]
    return on.orthogonalize_(nn.Sequential(*layers, nn.Linear(32, 10)), on.OLMConfig(group_size=16))


def measure(model: nn.Module, step: int, loss: float) -> Point:
    """Return what has become of a network."""
    layers = on.inspect(model).layers
    norms = [layer.v_norm for layer in layers]
    error = max(on.orthogonality_error(model).values())
    return Point(step, loss, error, max(layer.condition_number for layer in layers), min(norms), max(norms))


def train(case: Case, steps: int, seed: int = 0) -> list[Point]:
    """Return what is measured along the way."""
    x, y = digits()
    model = network(seed)
    optimizer = case.optimizer(model.parameters())
    generator = torch.Generator().manual_seed(seed)
    points, total = [measure(model, 0, float("nan"))], 0.0
    every = max(1, steps // POINTS)
    for step in range(1, steps + 1):
        batch = torch.randint(len(x), (64,), generator=generator)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=case.half):
            loss = nn.functional.cross_entropy(model(x[batch]).float(), y[batch])
        loss.backward()
        optimizer.step()
        total += float(loss.detach())
        if case.renormalize_every and step % case.renormalize_every == 0:
            on.renormalize_(model, norm=1.0)
        if step % every == 0:
            points.append(measure(model, step, total / every))
            total = 0.0
    return points


def draw(curves: dict[str, list[Point]], path: Path) -> None:
    """Write loss, error, condition number and norm over the steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6.5), layout="constrained")
    panels = {
        "loss": "training loss",
        "error": "largest |W W^T - I|",
        "condition": "condition number of V",
        "smallest": "smallest norm of V",
    }
    grid = figure.subplots(2, 2)
    for axes, (name, title) in zip(grid.flat, panels.items(), strict=True):
        for label, points in curves.items():
            axes.plot([p.step for p in points[1:]], [getattr(p, name) for p in points[1:]], label=label)
        axes.set(title=title, yscale="log", xlabel="steps")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9)
    figure.savefig(path, dpi=75)


def table(curves: dict[str, list[Point]]) -> str:
    """Return the figures of each case as a Markdown table."""
    lines = [
        "| training | loss at the end | largest error | condition number at the start, the end "
        "| norm of V, least and most |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, points in curves.items():
        least, most = min(p.smallest for p in points), max(p.largest for p in points)
        cells = [
            f"{points[-1].loss:.1e}",
            f"{max(p.error for p in points):.1e}",
            f"{points[0].condition:.1f}, {points[-1].condition:.1f}",
            f"{least:.2g} to {most:.2g}",
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(steps: int = 20_000, folder: Path = HERE.parent / "docs/long-training") -> None:
    """Train every case and write figures and picture."""
    torch.set_num_threads(1)
    curves = {}
    for name, case in CASES.items():
        curves[name] = train(case, steps)
        print(name, curves[name][-1], flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    head = {"data": "scikit-learn digits, 1,000", "steps": steps, "seed": 0, "torch": torch.__version__}
    found = {name: [list(vars(point).values()) for point in points] for name, points in curves.items()}
    text = json.dumps(head | {"columns": list(Point.__annotations__), "curves": found})
    (folder / "curves.json").write_text(text.replace("], [", "],\n [").replace("NaN", "null") + "\n")
    draw(curves, folder / "curves.png")
    print(table(curves))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        main(int(sys.argv[1]), Path(sys.argv[2]))
    else:
        main()
