"""Tensor parallel linear layers with an orthogonal weight: rows or columns of it on each rank."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.nn.utils import parametrize

from orthonorm.functional._groups import group_sizes
from orthonorm.functional._orthonormalize import orthonormalize_groups
from orthonorm.parametrizations import OrthogonalWeightNorm
from orthonorm.parametrizations._orthogonal_weights import unconstrained

from ._collectives import sum_gradient
from ._columns import orthonormalize_columns
from ._row_transfers import rows_per_rank
from ._shared_weights import check_group, refuse_columns

__all__ = ["ParallelWeightNorm", "tensor_parallel_"]

_STYLES = ("colwise", "rowwise")


def tensor_parallel_(model: nn.Module, mesh: DeviceMesh, styles: Mapping[str, str]) -> nn.Module:
    """Spread orthogonal linear layers over ranks, as torch's ColwiseParallel and RowwiseParallel do plain ones.

    With `"colwise"` a rank has some outputs, which are rows of W. It transforms the groups that it holds, without any
    exchange. The layer takes whole inputs and returns its part of the outputs.

    With `"rowwise"` a rank has some inputs, which are columns of W. The ranks sum the Gram matrices of the groups,
    compute each inverse square root once and keep their columns of W. The layer takes a part of the inputs and returns
    whole outputs.

    V, the bias and a learned scale become DTensors, so build the optimizer afterwards.

    Args:
        model: a converted model, whose values are those of the mesh's first rank.
        mesh: one dimension.
        styles: `"colwise"` or `"rowwise"` by the name of the layer in the model.

    Returns:
        The model.

    Raises:
        TypeError: if a named module is no Linear with an orthogonal weight, or `mesh` no DeviceMesh.
        ValueError: if a border between ranks cuts a group of rows (the message says which sizes avoid it), or a name or
            style is not known. Also if the mesh has more than one dimension, or no process group is initialised.

    Examples:
        >>> import tempfile, torch, torch.distributed as dist, orthonorm as on
        >>> from torch.distributed.device_mesh import init_device_mesh
        >>> from orthonorm.distributed import tensor_parallel_
        >>> with tempfile.TemporaryDirectory() as folder:  # one process: torchrun gives each of several its rank
        ...     dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=0, world_size=1)
        ...     model = torch.nn.Sequential(on.OrthogonalLinear(8, 4), torch.nn.ReLU(), on.OrthogonalLinear(4, 3))
        ...     model = tensor_parallel_(model, init_device_mesh("cpu", (1,)), {"0": "colwise", "2": "rowwise"})
        ...     print(model(torch.ones(5, 8)).shape)
        ...     dist.destroy_process_group()
        torch.Size([5, 3])

    Source: Shoeybi et al., Megatron-LM, 2019, for the two styles; Note [columns over ranks] for the second's weight.
    """
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"mesh must be a DeviceMesh; got {type(mesh).__name__}. Call init_device_mesh(device, (R,)).")
    if mesh.ndim != 1:
        raise ValueError(f"tensor_parallel_ takes a mesh of one dimension, as in mesh['tp']; got one of {mesh.ndim}.")
    check_group("tensor_parallel_", mesh.get_group())
    layers = {name: _find(model, name, style) for name, style in styles.items()}
    for name, style in styles.items():
        if style == "colwise":
            _check_borders(name, layers[name], mesh.size())
    for name, style in styles.items():
        _spread(layers[name], mesh, style)
    return model


def _find(model: nn.Module, name: str, style: str) -> nn.Linear:
    if style not in _STYLES:
        raise ValueError(f"{name}: a style must be one of {', '.join(map(repr, _STYLES))}; got {style!r}.")
    try:
        layer = model.get_submodule(name)
    except AttributeError:
        raise ValueError(
            f"this {type(model).__name__} has no module {name!r}. Give names as model.named_modules() has them."
        ) from None
    if not isinstance(layer, nn.Linear) or not parametrize.is_parametrized(layer, "weight"):
        raise TypeError(
            f"{name} is a {type(layer).__name__} without an orthogonal weight. Give Linear layers that orthogonalize_ "
            "has converted; plain ones go to torch's parallelize_module."
        )
    refuse_columns(f"{name}.weight", _owner(layer))
    return layer


def _owner(layer: nn.Linear) -> OrthogonalWeightNorm:
    return layer.parametrizations.weight[0]  # type: ignore[union-attr, return-value]


def _check_borders(name: str, layer: nn.Linear, ranks: int) -> None:
    """Raise a ValueError where a border between two ranks' rows cuts a group, with what avoids it."""
    owner, (n, d) = _owner(layer), unconstrained(layer, "weight").shape
    held = rows_per_rank(n, ranks)
    if _whole(owner.sizes, held):
        return
    fitting = [
        size for size in range(min(held, owner.limit), 0, -1)
        if _whole(group_sizes(n, d, group_size=size, center=owner.center), held)
    ]  # fmt: skip
    blocks = f"blocks={ranks} (groups that no border cuts, of any size), or " if n % ranks == 0 else ""
    raise ValueError(
        f"{name}: {ranks} ranks hold {held} of its {n} rows each, and a border cuts one of its groups "
        f"({owner.describe_groups()}), which must be whole to be orthonormal. Convert it with {blocks}"
        f"group_size={', '.join(map(str, fitting[:3]))}, make it rowwise, or use fewer ranks."
    )


def _whole(sizes: tuple[int, ...], held: int) -> bool:
    ends = {sum(sizes[:i]) for i in range(len(sizes) + 1)}
    return all(border in ends for border in range(held, sum(sizes), held))


def _spread(layer: nn.Linear, mesh: DeviceMesh, style: str) -> None:
    owner, V = _owner(layer), unconstrained(layer, "weight")
    rows = [Shard(0)] if style == "colwise" else [Replicate()]
    owner.__class__ = ParallelWeightNorm
    layer.parametrizations.weight.original = _distributed(V, mesh, rows if style == "colwise" else [Shard(1)])  # type: ignore[union-attr]
    if layer.bias is not None:
        layer.bias = _distributed(layer.bias, mesh, rows)
    if isinstance(owner.scale, nn.Parameter):
        owner.scale = _distributed(owner.scale, mesh, rows)
    inside = [Replicate()] if style == "colwise" else [Shard(-1)]
    outside = [Shard(-1)] if style == "colwise" else [Replicate()]

    def take(_: nn.Module, inputs: tuple[Tensor, ...], mesh: DeviceMesh) -> DTensor:
        x = inputs[0]
        if isinstance(x, DTensor):
            return x.redistribute(placements=inside)
        shape = torch.Size((*x.shape[:-1], layer.in_features))
        return DTensor.from_local(
            x, mesh, inside, run_check=False, shape=shape, stride=torch.empty(shape, device="meta").stride()
        )

    def give(_: nn.Module, output: DTensor, __: DeviceMesh) -> Tensor:
        return output.redistribute(placements=outside).to_local()

    distribute_module(layer, mesh, input_fn=take, output_fn=give)  # type: ignore[arg-type]


def _distributed(parameter: Tensor, mesh: DeviceMesh, placements: list) -> nn.Parameter:
    spread = distribute_tensor(parameter.detach(), mesh, placements)
    return nn.Parameter(spread, requires_grad=parameter.requires_grad)


class ParallelWeightNorm(OrthogonalWeightNorm):
    """An `OrthogonalWeightNorm` of a DTensor V: each rank computes its rows, or its columns, of W."""

    def _weight(self, V: Tensor) -> Tensor:
        assert isinstance(V, DTensor)
        local, (placement,) = V.to_local(grad_placements=V.placements), V.placements
        if placement == Shard(0):
            W = orthonormalize_groups(
                local, self._held_sizes(V), center=self.center, method=self.method, precision=self.precision
            )
        else:
            group = V.device_mesh.get_group()
            W = orthonormalize_columns(local, self.sizes, group, d=V.shape[1], center=self.center, method=self.method)
        if isinstance(self.scale, DTensor):
            scale = self.scale.to_local(grad_placements=self.scale.placements)
            W = W * (scale if placement == Shard(0) else sum_gradient(scale, V.device_mesh.get_group())).unsqueeze(-1)
        elif self.scale is not None:
            W = W * self.scale
        return DTensor.from_local(W, V.device_mesh, V.placements, run_check=False, shape=V.shape, stride=V.stride())

    def _held_sizes(self, V: DTensor) -> tuple[int, ...]:
        """Return the sizes of the groups that this rank holds, all of them whole."""
        held = rows_per_rank(V.shape[0], V.device_mesh.size())
        first = V.device_mesh.get_local_rank() * held
        starts = [sum(self.sizes[:i]) for i in range(len(self.sizes))]
        return tuple(size for start, size in zip(starts, self.sizes, strict=True) if first <= start < first + held)
