"""What 4 to 64 layers make of a signal and of its gradient, before any training: `python examples/propagation.py`.

The batch is synthetic: white, its mean exactly zero and its covariance exactly I. Theorem 1 holds for linear layers
whose square weight is one group without centring: covariance and gradient norm pass unchanged, at any depth. Behind
tanh and ReLU nothing is promised; the picture shows what becomes of each start, with rows of norm 1 and of norm sqrt 2.
"""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

import orthonorm as on

WIDTH, SAMPLES, DEPTHS = 64, 256, (4, 8, 16, 32, 64)
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"linear": nn.Identity, "tanh": nn.Tanh, "ReLU": nn.ReLU}
# Color and width of the line: where lines lie on each other, the thin ones on top leave the thick ones visible.
STARTS = {
    "uniform": ("C7", 2),
    "He": ("C1", 2),
    "orthogonal initialization": ("C2", 7),
    "weight_norm": ("C8", 4),
    "OLM": ("C3", 2),
    "OLM uncentred": ("C0", 1.5),
}
Figures = dict[str, dict[str, dict[int, dict[str, float]]]]


def white_batch() -> Tensor:
    """Return samples of mean zero and covariance I, to round-off."""
    seed = torch.cat([torch.ones(SAMPLES, 1), torch.randn(SAMPLES, WIDTH)], 1).double()
    return math.sqrt(SAMPLES - 1) * torch.linalg.qr(seed)[0][:, 1:]


def make_layer(start: str, scale: float) -> nn.Module:
    """Return a square layer without bias, whose rows have the norm `scale` where the start leaves that open."""
    layer = nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.float64)  # "uniform": in +-1/sqrt(d), as in the paper
    if start == "He":
        nn.init.kaiming_normal_(layer.weight)
    elif start == "weight_norm":
        nn.utils.parametrizations.weight_norm(layer)
        nn.init.constant_(layer.parametrizations.weight.original0, scale)  # type: ignore[arg-type, union-attr]
    elif start == "orthogonal initialization":
        nn.init.orthogonal_(layer.weight, gain=scale)
    elif start == "OLM uncentred":  # one group of 64 rows, and an orthogonal initialization stays what it is
        nn.init.orthogonal_(layer.weight)
        on.orthogonal_weight_norm(layer, scale=scale, initial="weight")
    elif start == "OLM":  # centred, so a group holds at most 63 rows: two groups of 32
        on.orthogonal_weight_norm(layer, center=True, scale=scale, initial="weight")
    return layer


def measure(network: nn.Sequential, x: Tensor) -> dict[str, float]:
    """Return |output| / |x|, |dL/dx| / |dL/d output|, and how far the last layer's covariance is from I."""
    x = x.clone().requires_grad_()
    output = network(x)
    at_output = torch.randn_like(output)
    (at_input,) = torch.autograd.grad(output, x, at_output)
    last = on.signal_propagation(network[-2], network[:-2](x))[0]
    return {
        "forward": float(output.detach().norm() / x.detach().norm()),
        "gradient": float(at_input.norm() / at_output.norm()),
        "covariance": float((last.covariance - 1).abs().max()),
    }


def run(start: str, scale: float, activation: str, depth: int, steps: int, seed: int) -> dict[str, float]:
    """Return the measurements of one network after some steps of SGD towards random targets."""
    torch.manual_seed(seed)
    x, target = white_batch(), torch.randn(SAMPLES, WIDTH).double()
    layers = (part for _ in range(depth) for part in (make_layer(start, scale), ACTIVATIONS[activation]()))
    network = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        (network(x) - target).square().sum(1).mean().backward()
        optimizer.step()
    return measure(network, x)


def compare(steps: int, seeds: Sequence[int], depths: Sequence[int]) -> Figures:
    """Return the geometric means over the seeds, by activation, start and depth."""

    def mean(start: str, scale: float, activation: str, depth: int, steps: int = 0) -> dict[str, float]:
        rows = [run(start, scale, activation, depth, steps, seed) for seed in seeds]
        return {key: math.exp(sum(math.log(row[key]) for row in rows) / len(rows)) for key in rows[0]}

    figures: Figures = {activation: {} for activation in ACTIVATIONS}
    for activation, found in figures.items():
        for start in STARTS:
            found[start] = {depth: mean(start, 1.0, activation, depth) for depth in depths}
            if activation != "linear" and start not in ("uniform", "He"):
                found[f"{start}, √2"] = {depth: mean(start, math.sqrt(2), activation, depth) for depth in depths}
    trained = ("orthogonal initialization", "OLM uncentred")
    deepest = max(depths)
    figures["linear, trained"] = {start: {deepest: mean(start, 1.0, "linear", deepest, steps)} for start in trained}
    return figures


def draw(figures: Figures, path: Path) -> None:
    """Write two panels for each activation: the signal (for linear layers its covariance) and the gradient."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 7.6), layout="constrained")
    titles = {"covariance": "|cov(s) - I|", "forward": "|output| / |x|", "gradient": "|dL/dx| / |dL/d output|"}
    for pair, activation in zip(grid := figure.subplots(3, 2, sharex=True), ACTIVATIONS, strict=True):
        for axes, quantity in zip(
            pair, ("covariance" if activation == "linear" else "forward", "gradient"), strict=True
        ):
            for name, points in figures[activation].items():
                color, width = STARTS[name.removesuffix(", √2")]
                values = [point[quantity] for point in points.values()]
                axes.plot(list(points), values, "--" if "√2" in name else "-", color=color, lw=width, label=name)
            axes.set(xscale="log", yscale="log", title=f"{activation}: {titles[quantity]}")
    for axes in grid[-1]:
        axes.set_xlabel("layers")
        axes.set_xticks(ticks := list(figures["ReLU"]["OLM"]), [str(tick) for tick in ticks], minor=False)
        axes.minorticks_off()
    figure.legend(*grid[-1][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    figure.savefig(path, dpi=90, pil_kwargs={"optimize": True})


def main(
    steps: int = 20, seeds: Sequence[int] = range(3), out: Path = Path("docs/gallery"), depths: Sequence[int] = DEPTHS
) -> None:
    """Measure, print the deepest networks, and write the picture and the figures."""
    figures = compare(steps, seeds, depths)
    draw(figures, out / "propagation.png")
    head = {"data": "white noise, synthetic", "steps": steps, "seeds": list(seeds), "torch": torch.__version__}
    (out / "propagation.json").write_text(json.dumps(head | {"figures": figures}, indent=1) + "\n")
    for activation, found in figures.items():
        for name, points in found.items():
            print(f"{activation}, {name}", {key: f"{value:.2g}" for key, value in points[max(depths)].items()})


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
