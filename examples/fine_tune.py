"""Take a network trained without orthogonality, convert it, fine-tune it, and compare: `python examples/fine_tune.py`.

The data are scikit-learn's 1,797 real digits (8 x 8 pixels): 1,000 to train, 797 to test. The network is trained
plainly for ten epochs. From there three copies go on for five epochs at the same rate: the plain one, one converted
without a scale, and one converted with a scale, which starts at the norms of the trained rows.
"""

import copy
import statistics
from collections.abc import Sequence

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import orthonorm as on

Data = tuple[Tensor, Tensor]


def digits() -> tuple[Data, Data]:
    """Return the training and the test set."""
    found = load_digits()
    order = torch.randperm(1797, generator=torch.Generator().manual_seed(0))
    x = torch.from_numpy(found.data).float()[order] / 16  # type: ignore[attr-defined]
    y = torch.from_numpy(found.target)[order]  # type: ignore[attr-defined]
    return (x[:1000], y[:1000]), (x[1000:], y[1000:])


def train(model: nn.Module, data: Data, epochs: int, seed: int) -> None:
    """Train with momentum, batches of 50."""
    optimizer = torch.optim.SGD(on.param_groups(model), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for batch in torch.randperm(len(data[0]), generator=generator).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(data[0][batch]), data[1][batch]).backward()
            optimizer.step()


def error(model: nn.Module, data: Data) -> float:
    """Return the share of wrong answers in per cent."""
    with torch.no_grad():
        return 100 * float((model(data[0]).argmax(1) != data[1]).float().mean())


def compare(seed: int) -> dict[str, tuple[float, float]]:
    """Return the test error of each copy where it starts and after fine-tuning."""
    torch.manual_seed(seed)
    training, test = digits()
    layers = [part for width in (64, 64, 64) for part in (nn.Linear(width, 64), nn.ReLU())]
    trained = nn.Sequential(*layers, nn.Linear(64, 10))
    train(trained, training, 10, seed)
    copies = {"plain": copy.deepcopy(trained)}
    for name, scale in (("orthogonal", None), ("orthogonal, with scale", "row_norms")):
        config = on.OrthogonalConfig(center=True, scale=scale, initial="weight")
        copies[name] = on.orthogonalize_(copy.deepcopy(trained), config)
    found = {}
    for name, model in copies.items():
        before = error(model, test)
        train(model, training, 5, seed + 100)
        found[name] = before, error(on.fold_(model), test)
    return found


def main(seeds: Sequence[int] = range(5)) -> None:
    """Print the table, the mean over the seeds."""
    runs = [compare(seed) for seed in seeds]
    print(f"| test error in %, mean of {len(runs)} seeds | as converted | after five more epochs |\n|---|---|---|")
    for name in runs[0]:
        before, after = (statistics.mean(run[name][i] for run in runs) for i in (0, 1))
        print(f"| {name} | {before:.1f} | {after:.1f} |")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
