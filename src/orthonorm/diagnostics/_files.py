"""The table of `inspect` for a file of weights, without the model."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from orthonorm.convert import OrthogonalConfig
from orthonorm.convert._layer_rules import Target
from orthonorm.functional._orthogonality import orthogonality_errors
from orthonorm.functional._precision import in_float64, row_norms
from orthonorm.functional._rows import as_rows
from orthonorm.parametrizations import OrthogonalWeightNorm

from ._inspection import Inspection, LayerReport, report_weight

__all__ = ["inspect_file", "owners_in_file", "read_tensors"]

_MARK = ".parametrizations."


def inspect_file(
    path: str | Path, config: OrthogonalConfig | None = None, *, filter_fn: Callable[[str], bool] | None = None
) -> Inspection:
    """Return the table of `inspect` for a checkpoint: one row for each orthogonal weight, or for each matrix.

    A checkpoint of a converted model holds V and the scale, and its rows say what the model computes from them. In one
    of a plain or folded model every tensor of two or more dimensions gets a row, whose error is that of the tensor
    itself: small where it is orthogonal. A file does not say how rows were grouped, so that is asked for; gates of
    recurrent layers are known from the shapes of their weights. The kernel of a transposed or grouped convolution is
    taken as it lies, `(first dimension, rest)`, and a table's padding row as any other, unless a learned scale, which
    has one entry a row, tells that a kernel is transposed or that a row of zeros is padding.

    Args:
        path: a `.safetensors` file, or one that `torch.load` reads (`weights_only=True`: no code in it is run). A
            dictionary with an entry `state_dict`, `model` or `model_state_dict` is looked into.
        config: how the model was converted; the default is `OrthogonalConfig()`.
        filter_fn: whether to look at a weight, by its key in the plain model's `state_dict`; None for all.

    Returns:
        The reports, which print as a table.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file holds no tensor to look at, or is not of these kinds; if a learned scale does not fit V.
        ImportError: if the file is `.safetensors` and that package is missing.

    Example:
        >>> import tempfile, torch, orthonorm as on
        >>> with tempfile.NamedTemporaryFile(suffix=".pt") as file:
        ...     torch.save(torch.nn.Sequential(on.OrthogonalLinear(8, 4)).state_dict(), file.name)
        ...     on.inspect_file(file.name).layers[0].groups
        '1 group of 4 rows'

    Source: `orthonorm.inspect`.
    """
    tensors = read_tensors(path)
    config = OrthogonalConfig() if config is None else config
    keep = (lambda _: True) if filter_fn is None else filter_fn
    keys, free = _weights(path, tensors)
    row, note = _free_row if free else _plain_row, _assumed(config)
    if not free:
        note += "\nno V is in the file, so it is a plain or folded model's: every matrix has a row, a classifier's too"
    rows = [row(plain, key, tensors, config) for plain, key in keys.items() if keep(plain)]
    if not rows:
        raise ValueError(
            f"{path}: the filter keeps none of its {len(keys)} weights, which are {', '.join([*keys][:3])} ..."
        )
    return Inspection(tuple(rows), note)


def _assumed(config: OrthogonalConfig) -> str:
    """Return what is taken for granted about how the model was converted, in words."""
    most = "as many rows a group as each weight allows" if config.group_size is None else f"{config.group_size} rows"
    words = [most if config.group_size is None else f"at most {most} a group", config.grouping]
    words += ["centred" if config.center else "not centred"]
    words += [] if config.blocks is None else [f"blocks {config.blocks}"]
    return f"assumed, as a file does not say it: {', '.join(words)}; other options, other groups and errors"


def owners_in_file(
    path: str | Path, config: OrthogonalConfig | None = None
) -> list[tuple[str, OrthogonalWeightNorm, Tensor]]:
    """Return `(key, parametrization, tensor)` of each weight of a file that `inspect_file` would give a row.

    Raises:
        FileNotFoundError, ValueError, ImportError: as `inspect_file`.
    """
    tensors = read_tensors(path)
    config = OrthogonalConfig() if config is None else config
    keys, _ = _weights(path, tensors)
    return [(plain, _owner(plain, tensors[key], config, tensors), tensors[key]) for plain, key in keys.items()]


def _weights(path: str | Path, tensors: dict[str, Tensor]) -> tuple[dict[str, str], bool]:
    """Return the keys of a file's weights by their plain names, and whether they are Vs: every V, or else every matrix.

    Raises:
        ValueError: if there is neither.
    """
    if free := {plain: key for key in tensors if (plain := _plain_key(key))}:
        return free, True
    if matrices := {key: key for key, W in tensors.items() if _is_matrix(W)}:
        return matrices, False
    raise ValueError(
        f"{path} holds no matrix: {len(tensors)} tensors, none a dense one of real floating numbers in two or more "
        "dimensions, of more than two numbers a row."
    )


def _is_matrix(W: Tensor) -> bool:
    return W.ndim > 1 and W.is_floating_point() and W.layout is torch.strided and len(W) > 0 and W[0].numel() > 2


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Return the tensors of a `.safetensors` file or of a state_dict saved by `torch.save`, on the CPU.

    Raises:
        FileNotFoundError, ValueError: as `inspect_file`.
        ImportError: if the file is `.safetensors` and that package is missing.
    """
    path = Path(path)
    if path.is_dir():
        names = sorted(
            found.name for found in path.iterdir() if found.suffix in {".safetensors", ".pt", ".pth", ".ckpt"}
        )
        inside = f"it holds {', '.join(names[:3])}" if names else "it holds none of weights by its name"
        raise FileNotFoundError(f"{path} is a folder: give a file of weights in it, .safetensors or .pt; {inside}.")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}.")
    found = _read_safetensors(path) if path.suffix == ".safetensors" else _read_pt(path)
    # torch neither promotes float8 nor sums it, so nothing trains in it.
    return {key: W.float() if W.is_floating_point() and W.itemsize == 1 else W for key, W in found.items()}


def _read_pt(path: Path) -> dict[str, Tensor]:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(_why_unreadable(path, error)) from error
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping):
        raise ValueError(f"{path} holds a {type(found).__name__}, not a state_dict of names and tensors.")
    return {str(key): value for key, value in found.items() if isinstance(value, Tensor)}


def _why_unreadable(path: Path, error: Exception) -> str:
    needed = re.search(r"GLOBAL ([\w.]+)", str(error))
    if needed is None:
        reason = f"{path} cannot be read as weights ({type(error).__name__})"
    else:
        reason = f"{path} needs {needed[1]} to be read, and so holds more than weights"
    return (
        f"{reason}. Expected a .safetensors file or a state_dict saved by torch.save; a pickled model is not read, "
        "since loading it runs its code: save its state_dict."
    )


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise ImportError("reading .safetensors needs its package: pip install safetensors") from error
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole .safetensors file ({error}).") from error


def _owner(
    key: str, V: Tensor, config: OrthogonalConfig, tensors: dict[str, Tensor], scale: Tensor | None = None
) -> OrthogonalWeightNorm:
    """Return the parametrization that a tensor of this name would have: gates and fused projections by their names."""
    name = key.rpartition(".")[2]
    layout = _layout(key, V, scale)
    d = as_rows(V, groups=layout.get("groups", 1), transposed=layout.get("transposed", False)).shape[-1]
    target = Target(name)
    if name.startswith("weight_hh") and (gates := _gates(key, tensors)):
        target = Target(name, {"center": False, "group_size": None}, blocks=gates)
    elif name.startswith("weight_ih"):
        target = Target(name, blocks=_gates(key, tensors), input_weight=True)
    elif name == "in_proj_weight":
        target = Target(name, blocks=3)
    options = replace(config.options_for(target, d), scale=None if scale is None else "learned")
    owner = OrthogonalWeightNorm(V, options, **layout, label=key)
    if scale is not None:
        with torch.no_grad():
            owner.scale.copy_(scale.flatten())  # type: ignore[union-attr]
    return owner


def _gates(key: str, tensors: dict[str, Tensor]) -> int | None:
    """Return how many gates a recurrent layer has, by the shapes of its weights; None where they do not say."""
    prefix, _, name = key.rpartition("weight_")  # weight_ih_l0_reverse, or weight_ih of a cell
    shapes = {_plain_key(other) or other: tensor.shape for other, tensor in tensors.items()}
    recurrent, projection = (shapes.get(f"{prefix}weight_{kind}{name[2:]}") for kind in ("hh", "hr"))
    if recurrent is None:
        return None
    rows, size = recurrent[0], (projection or recurrent)[1]
    return rows // size if size and rows % size == 0 else None


def _layout(key: str, V: Tensor, scale: Tensor | None) -> dict[str, Any]:
    """Return how the rows of V lie, where a scale of one entry a row tells: transposed, or with a padding row."""
    entries = len(V) if scale is None else scale.numel()
    if entries == len(V):
        return {}
    zero = V.flatten(1).any(1).logical_not().nonzero().flatten().tolist()
    if V.ndim == 2 and entries == len(V) - 1 and len(zero) == 1:
        return {"constant_row": zero[0]}
    groups = entries // max(1, V.shape[1])
    if V.ndim > 2 and groups > 0 and entries == groups * V.shape[1] and len(V) % groups == 0:
        return {"groups": groups, "transposed": True}
    raise ValueError(
        f"{key} has a scale of {entries} entries for a V of shape {tuple(V.shape)}, which fits neither its rows, nor "
        "those of a transposed kernel, nor a table with one padding row of zeros. Leave it out by a filter, or load "
        "the model and call inspect on it."
    )


def _plain_key(key: str) -> str:
    """Return the plain model's name of a V, "" for a tensor that is none."""
    prefix, mark, rest = f".{key}".rpartition(_MARK)
    is_free = mark and rest.endswith(".original")
    return f"{prefix}.{rest.removesuffix('.original')}".strip(".") if is_free else ""


def _check_values(key: str, V: Tensor) -> None:
    """Refuse a tensor without values, whose shape a plan can still be made of."""
    if V.is_meta:
        raise ValueError(
            f"{key} was saved from the meta device, which holds no values. Materialise the model (to_empty), load its "
            "weights and save it again."
        )


def _free_row(plain: str, key: str, tensors: dict[str, Tensor], config: OrthogonalConfig) -> LayerReport:
    _check_values(plain, tensors[key])
    scale = tensors.get(key.removesuffix("original") + "0.scale")
    owner = _owner(plain, tensors[key], config, tensors, scale)
    return report_weight(plain, owner, tensors[key])


def _plain_row(_: str, key: str, tensors: dict[str, Tensor], config: OrthogonalConfig) -> LayerReport:
    """Return a row whose error is that of the tensor's own rows, each divided by its norm, as before a scale."""
    W = tensors[key]
    _check_values(key, W)
    owner = _owner(key, W, config, tensors)
    rows = in_float64(owner.rows(W))
    norms = row_norms(rows).unsqueeze(-1)
    unit = rows / torch.where(norms > 0, norms, 1.0)  # a zero row stays one, an error of 1
    error = float(orthogonality_errors(unit, owner.sizes).amax())
    return replace(report_weight(key, owner, W), error=error, scale=f"{norms.min():.3g} to {norms.max():.3g}")
