"""What a step spends on orthogonal weights besides time: operator calls, and bytes saved for the backward."""

from collections.abc import Callable
from contextlib import nullcontext
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from orthonorm.convert import OrthogonalConfig, orthogonalize_
from orthonorm.diagnostics._inspection import orthogonality_error
from orthonorm.parametrizations import cached

from .networks import Network, available
from .timing import machine

__all__ = ["OperatorCalls", "SavedBytes", "bench_counts", "peak_bytes"]


class OperatorCalls(TorchDispatchMode):
    """Counts the calls of operators inside, views included."""

    def __init__(self) -> None:
        super().__init__()
        self.count: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count one call and make it."""
        self.count += 1
        return func(*args, **(kwargs or {}))


class SavedBytes(torch.autograd.graph.saved_tensors_hooks):
    """Counts the bytes of memory that autograd keeps for the backward, each piece of memory once."""

    def __init__(self) -> None:
        self.storages: dict[int, int] = {}
        super().__init__(self._pack, lambda tensor: tensor)

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self.storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    def __enter__(self) -> "SavedBytes":  # type: ignore[override]
        """Count what is saved from here on."""
        super().__enter__()
        return self

    @property
    def total(self) -> int:
        """Bytes so far."""
        return sum(self.storages.values())


def peak_bytes(run: Callable[[], object], device: torch.device) -> int:
    """Return how many bytes more than before are allocated at once while `run` goes on."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        return torch.cuda.max_memory_allocated(device) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as recorded:
        run()
    # Not `recorded.events()`, which puts what an operator frees at the operator's start.
    raw = recorded.profiler.kineto_results.events()  # type: ignore[union-attr]
    changes = [event.nbytes() for event in sorted(raw, key=lambda e: e.start_ns()) if event.name() == "[memory]"]  # type: ignore[attr-defined]
    return max(accumulate(changes), default=0)


def bench_counts(*, device: str = "cpu", rounds: int = 1) -> dict[str, Any]:
    """Return the calls and saved bytes of computing all orthogonal weights and their gradients, each way."""
    where = torch.device(device)
    rows = [row for label, network in _smallest().items() for row in _rows(label, network, where)]
    return {"benchmark": "counts", "machine": machine(where), "rounds": rounds, "rows": rows}


def _smallest() -> dict[str, Network]:
    """Return one entry for each network: calls and bytes do not depend on the batch."""
    return {
        label: network for label, network in available().items() if network.rounds == Network._field_defaults["rounds"]
    }


def _rows(label: str, network: Network, device: torch.device) -> list[dict[str, Any]]:
    model = orthogonalize_(network.make(), OrthogonalConfig(group_size=network.group)).to(device)
    layers = [module for module in model.modules() if hasattr(module, "parametrizations")]
    weights = sum(W.numel() * W.element_size() for W in _weights(layers))
    error = max(orthogonality_error(model).values())
    found = {
        name: (*_count(layers, model, together), peak_bytes(lambda: _both_ways(layers, model, together), device))  # noqa: B023
        for name, together in (("layer by layer", False), ("together", True))
    }
    return [
        {
            "network": label,
            "weights": sum(len(layer.parametrizations) for layer in layers),  # type: ignore[arg-type]
            "computed": name,
            "operator calls": calls,
            "times layer by layer": calls / found["layer by layer"][0],
            "saved bytes / bytes of the weights": saved / weights,
            "peak bytes / bytes of the weights": peak / weights,
            "error": error,
        }
        for name, (calls, saved, peak) in found.items()
    ]


def _count(layers: list[nn.Module], model: nn.Module, together: bool) -> tuple[int, int]:
    with SavedBytes() as saved, OperatorCalls() as forward:
        Ws = _compute(layers, model, together)
    Gs = [torch.ones_like(W) for W in Ws]
    with OperatorCalls() as backward:
        torch.autograd.backward(Ws, Gs)
    return forward.count + backward.count, saved.total


def _both_ways(layers: list[nn.Module], model: nn.Module, together: bool) -> None:
    """Compute all weights and their gradients, from a start without gradients."""
    model.zero_grad()
    Ws = _compute(layers, model, together)
    torch.autograd.backward(Ws, [torch.ones_like(W) for W in Ws])


def _compute(layers: list[nn.Module], model: nn.Module, together: bool) -> list[Tensor]:
    with cached(model) if together else nullcontext():
        return _weights(layers)


def _weights(layers: list[nn.Module]) -> list[Tensor]:
    return [getattr(layer, name) for layer in layers for name in layer.parametrizations]  # type: ignore[operator, union-attr]
