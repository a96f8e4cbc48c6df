"""A WGAN whose critic is orthogonal, with and without a gradient penalty: `python examples/wgan_gp.py`.

The data are scikit-learn's 1,797 real digits (8 x 8 pixels): 1,000 to train, 797 held out. The penalty of WGAN-GP is a
loss on a gradient, so its own gradient goes through the map of every layer twice: eager mode is exact there. A critic
whose layers are each one group of orthonormal rows, with ReLU between them, is 1-Lipschitz by construction, so the
third critic does without the penalty. Judged by the sliced Wasserstein distance to the digits that were held out.
"""

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import orthonorm as on

NOISE, PIXELS, WIDTH = 16, 64, 64
CRITICS: dict[str, tuple[bool, float]] = {  # orthogonal or not, and the weight of the penalty
    "plain, with penalty": (False, 10.0),
    "orthogonal, with penalty": (True, 10.0),
    "orthogonal, no penalty": (True, 0.0),
}


def digits() -> tuple[Tensor, Tensor]:
    """Return the digits to train on and those held out, pixels from -1 to 1."""
    images = torch.from_numpy(load_digits().data).float() / 8 - 1  # type: ignore[attr-defined]
    images = images[torch.randperm(1797, generator=torch.Generator().manual_seed(0))]
    return images[:1000], images[1000:]


def make_critic(orthogonal: bool) -> nn.Module:
    """Return three hidden layers and one output; orthogonal: every layer one group, the last one a unit row."""
    hidden = [part for width in (PIXELS, WIDTH, WIDTH) for part in (nn.Linear(width, WIDTH), nn.ReLU())]
    critic = nn.Sequential(*hidden, nn.Linear(WIDTH, 1))
    if not orthogonal:
        return critic
    return on.orthogonalize_(
        critic, on.OrthogonalConfig(initial="weight"), filter_fn=lambda module, _: isinstance(module, nn.Linear)
    )


def gradient_norms(critic: nn.Module, x: Tensor, *, graph: bool) -> Tensor:
    """Return |d critic / d x| of each sample; with `graph`, to be differentiated once more."""
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(critic(x).sum(), x, create_graph=graph)
    return gradient.norm(dim=1)


def sliced_distance(a: Tensor, b: Tensor, directions: int = 256) -> float:
    """Return the mean over random directions of the Wasserstein distance of two sets of one size, projected."""
    lines = nn.functional.normalize(torch.randn(directions, PIXELS, generator=torch.Generator().manual_seed(1)))
    return float(((a @ lines.T).sort(0).values - (b @ lines.T).sort(0).values).abs().mean())


def train(critic: nn.Module, penalty: float, steps: int, seed: int) -> tuple[nn.Module, list[float]]:
    """Return the generator, and the largest gradient norm of the critic between real and made after each step."""
    torch.manual_seed(seed)
    real, _ = digits()
    generator = nn.Sequential(
        nn.Linear(NOISE, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, PIXELS), nn.Tanh()
    )
    adam: Callable[..., torch.optim.Optimizer] = torch.optim.Adam
    sides = [adam(side.parameters(), lr=1e-3, betas=(0.5, 0.9)) for side in (critic, generator)]
    largest = []
    for _ in range(steps):
        for _ in range(5):
            x = real[torch.randint(len(real), (64,))]
            with torch.no_grad():
                made = generator(torch.randn(64, NOISE))
            between = torch.lerp(x, made, torch.rand(64, 1))
            loss = critic(made).mean() - critic(x).mean()
            if penalty:
                loss = loss + penalty * (gradient_norms(critic, between, graph=True) - 1).square().mean()
            sides[0].zero_grad()
            loss.backward()
            sides[0].step()
        sides[1].zero_grad()
        (-critic(generator(torch.randn(64, NOISE))).mean()).backward()
        sides[1].step()
        largest.append(float(gradient_norms(critic, between, graph=False).max()))
    return generator, largest


def compare(steps: int, seeds: Sequence[int]) -> tuple[dict[str, dict[str, float]], dict[str, Tensor]]:
    """Return the figures of each critic, and samples of the first seed."""
    real, held_out = digits()
    figures, samples = {"as near as the training digits": {"distance": sliced_distance(real[:797], held_out)}}, {}
    for name, (orthogonal, penalty) in CRITICS.items():
        distances, largest = [], []
        for seed in seeds:
            torch.manual_seed(seed)
            generator, norms = train(make_critic(orthogonal), penalty, steps, seed)
            with torch.no_grad():
                made = generator(torch.randn(797, NOISE, generator=torch.Generator().manual_seed(2)))
            samples.setdefault(name, made[:24])
            distances.append(sliced_distance(made, held_out))
            largest.append(max(norms[len(norms) // 2 :]))
        spread = statistics.stdev(distances) if len(distances) > 1 else 0.0
        figures[name] = {"distance": statistics.mean(distances), "spread": spread, "largest gradient": max(largest)}
    return figures, samples | {"real": held_out[:24]}


def draw(samples: dict[str, Tensor], path: Path) -> None:
    """Write a row of digits for each critic, and one of real ones."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3), layout="constrained")
    for axes, (name, images) in zip(figure.subplots(len(samples)), samples.items(), strict=True):
        axes.imshow(images.view(-1, 8, 8).movedim(0, 1).reshape(8, -1).numpy(), cmap="gray_r", vmin=-1, vmax=1)
        axes.set_title(name, fontsize=10)
        axes.set_axis_off()
    figure.savefig(path, dpi=110)


def main(steps: int = 300, seeds: Sequence[int] = range(3), out: Path = Path("docs/gallery")) -> None:
    """Train, print the table, and write the picture and the figures."""
    figures, samples = compare(steps, seeds)
    draw(samples, out / "wgan-gp.png")
    head = {"data": "scikit-learn digits", "steps": steps, "seeds": list(seeds), "torch": torch.__version__}
    (out / "wgan-gp.json").write_text(json.dumps(head | {"critics": figures}, indent=1) + "\n")
    for name, row in figures.items():
        print(name, {key: f"{value:.3g}" for key, value in row.items()})


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
