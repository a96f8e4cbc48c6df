"""A whole training step: plain, with torch's weight_norm, and with orthogonal weights."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from orthonorm.convert import OrthogonalConfig, conversion_plan, orthogonalize_
from orthonorm.diagnostics._inspection import orthogonality_error
from orthonorm.functional._groups import runs_of_equal_size
from orthonorm.parametrizations import register_cached

from .networks import Network, available
from .peers import EighAutograd
from .timing import interleaved_medians, machine
from .transform import products_and_roots

__all__ = ["bench_steps"]

_TOGETHER = "orthonorm, register_cached"


def bench_steps(*, device: str = "cpu", rounds: int = 21) -> dict[str, Any]:
    """Return the seconds of a step of SGD with momentum and their ratio to the plain network's."""
    where = torch.device(device)
    rows = [row for label, network in available().items() for row in _rows(label, network, where, rounds)]
    return {"benchmark": "steps", "machine": machine(where), "rounds": rounds, "rows": rows}


def _rows(label: str, network: Network, device: torch.device, rounds: int) -> list[dict[str, Any]]:
    models = {
        "plain": network.make(),
        "weight_norm": _weight_norm_(network.make()),
        "batched eigh, autograd": _eigh_autograd_(network.make(), network.group or 64),
        "orthonorm": orthogonalize_(network.make(), OrthogonalConfig(group_size=network.group)),
        _TOGETHER: orthogonalize_(network.make(), OrthogonalConfig(group_size=network.group)),
    }
    register_cached(models[_TOGETHER])
    steps: dict[str, Callable[[], object]] = {
        name: _step(model.to(device), network, device) for name, model in models.items()
    }
    steps["alone"] = products_and_roots([X for module in models["orthonorm"].modules() for X in _groups(module)])
    medians = interleaved_medians(steps, device=device, rounds=min(rounds, network.rounds), warmup=1)
    return [
        {
            "network": label,
            "weights": name,
            "milliseconds": medians[name] * 1e3,
            "times plain": medians[name] / medians["plain"],
            "with products and roots alone": 1 + medians["alone"] / medians["plain"] if name == _TOGETHER else None,
            "error after the steps": _error(model) if name.startswith("orthonorm") else None,
        }
        for (name, model) in models.items()
    ]


def _groups(module: nn.Module) -> list[Tensor]:
    """Return the groups of rows of a module's orthogonal weights, those of one size as one batch."""
    found = []
    for parts in getattr(module, "parametrizations", {}).values():
        rows = parts[0].rows(parts.original.detach())
        runs = runs_of_equal_size(parts[0].sizes)
        pieces = rows.split([size * count for size, count in runs], dim=1)
        found += [piece.reshape(-1, size, rows.shape[-1]) for piece, (size, _) in zip(pieces, runs, strict=True)]
    return found


def _weight_norm_(model: nn.Module) -> nn.Module:
    for module in list(model.modules()):
        if isinstance(module, nn.Conv2d | nn.Linear):
            parametrizations.weight_norm(module)
    return model


def _eigh_autograd_(model: nn.Module, group: int) -> nn.Module:
    """Give the weights that a conversion takes the lines that a user would write."""
    for weight in conversion_plan(model).converted:
        owner, _, name = weight.name.rpartition(".")
        parametrize.register_parametrization(model.get_submodule(owner), name, EighAutograd(group))
    return model


def _step(model: nn.Module, network: Network, device: torch.device) -> Callable[[], None]:
    x, y = network.batch(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def _error(model: nn.Module) -> float:
    return max(orthogonality_error(model).values())
