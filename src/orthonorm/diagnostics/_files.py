"""The table of `inspect` for a file of weights, without the model."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from orthonorm.convert import OrthogonalConfig
from orthonorm.functional._orthogonality import orthogonality_errors
from orthonorm.functional._precision import in_float64, row_norms
from orthonorm.parametrizations import OrthogonalWeightNorm
from orthonorm.parametrizations._saved_options import saved_rows

from ._file_layouts import Layout, build_owner, plain_key, possible_layouts, saved_layout, saved_owner
from ._file_tensors import Contents, read_file
from ._inspection import Inspection, LayerReport, report_weight
from ._singular_values import largest_singular_value

__all__ = ["inspect_file", "owners_in_file"]


_READ_AS = {
    "convolution": "a convolution's",
    "transposed": "a transposed convolution's",
    "stack": "stacks of matrices (E, n, d)",
    "transposed stack": "stacks of matrices stored with their inputs first, (E, d, n)",
}


class _Row(NamedTuple):
    report: LayerReport
    origin: str
    """Where its options come from: `"file"` or `"config"`."""
    layout: str
    """`"told"`, or a key of `_READ_AS` where the file leaves it open."""


def inspect_file(
    path: str | Path, config: OrthogonalConfig | None = None, *, filter_fn: Callable[[str], bool] | None = None
) -> Inspection:
    """Return the table of `inspect` for a checkpoint: one row for each orthogonal weight, or for each matrix.

    A checkpoint of a converted model holds V and the scale, and its rows say what the model computes from them. A file
    of `torch.save` also remembers groups, centring, layout and fixed scale, which are used.

    A file of another kind (safetensors) does not, and its weights are taken as `config` says. The gates of recurrent
    layers are known from the shapes of their weights. A transposed kernel, or a table's padding row, is known where a
    learned scale or a bias shows it, since these have one entry an output. A kernel that remains open is read as a
    convolution's and named below the table. A tensor of three dimensions that is not named `weight` is no kernel: it
    is read as a stack of matrices.

    In a checkpoint of a plain or folded model every tensor of two or more dimensions gets a row, whose error is that of
    the tensor itself: small where it is orthogonal. A kernel that may be transposed is read in the way that has the
    smaller error. Nothing says the groups of a convolution: it is read as one of a single group.

    Args:
        path: a `.safetensors` file, or one that `torch.load` reads (`weights_only=True`: no code in it is run). A
            dictionary with an entry `state_dict`, `model` or `model_state_dict` is looked into.
        config: how the weights were converted of which the file remembers nothing; the default is `OrthogonalConfig()`.
        filter_fn: whether to look at a weight, by its key in the plain model's `state_dict`; None for all.

    Returns:
        The reports, which print as a table.

    Raises:
        TypeError: if `path` is no path.
        FileNotFoundError: if there is no such file.
        ValueError: if the file holds no tensor to look at, or is not of these kinds; if a learned scale, or what the
            file remembers, does not fit V.
        ImportError: if the file is `.safetensors` and that package is missing.

    Examples:
        >>> import tempfile, torch, orthonorm as on
        >>> with tempfile.NamedTemporaryFile(suffix=".pt") as file:
        ...     torch.save(torch.nn.Sequential(on.OrthogonalLinear(8, 4, group_size=2)).state_dict(), file.name)
        ...     on.inspect_file(file.name).layers[0].groups
        (2, 2)
    """
    contents = read_file(path)
    config = OrthogonalConfig() if config is None else config
    keep = (lambda _: True) if filter_fn is None else filter_fn
    keys, free = _weights(path, contents.tensors)
    row = _free_row if free else _plain_row
    rows = [row(plain, key, contents, config) for plain, key in keys.items() if keep(plain)]
    if not rows:
        raise ValueError(
            f"{path}: the filter keeps none of its {len(keys)} weights, which are {', '.join([*keys][:3])} ..."
        )
    return Inspection(tuple(row.report for row in rows), "\n".join(_notes(rows, config, free)))


def _notes(rows: list[_Row], config: OrthogonalConfig, free: bool) -> list[str]:
    """Return what is to be known about the table, one line each."""
    lines = []
    if any(row.origin == "file" for row in rows):
        lines.append("groups, centring and fixed scales are those that the file holds")
    if any(row.origin == "config" for row in rows):
        lines.append(_assumed(config))
    for layout, words in _READ_AS.items():
        if names := [row.report.weight for row in rows if row.layout == layout]:
            lines.append(f"the file does not say which, so read as {words}: {', '.join(names)}")
    if free:
        lines.append("the file holds V: error and norm(W) are those of the W that is computed from V here")
    else:
        lines.append(
            "no V is in the file, so it is a plain or folded model's: every matrix has a row, a classifier's too"
        )
    return lines


def _assumed(config: OrthogonalConfig) -> str:
    """Return what is taken for granted about how the model was converted, in words."""
    most = "as many rows per group as each weight allows" if config.group_size is None else f"{config.group_size} rows"
    words = [most if config.group_size is None else f"at most {most} a group", config.grouping]
    words += ["centred" if config.center else "not centred"]
    words += [] if config.blocks is None else [f"blocks {config.blocks}"]
    return f"assumed, as the file does not say it: {', '.join(words)}; other options, other groups and errors"


def owners_in_file(
    path: str | Path, config: OrthogonalConfig, *, remembered: bool = False
) -> list[tuple[str, OrthogonalWeightNorm, Tensor]]:
    """Return `(key, parametrization, tensor)` of each weight of a file that `inspect_file` would give a row.

    The groups are those that `config` asks for; with `remembered` those of the file, where it holds them.

    Raises:
        FileNotFoundError, ValueError, ImportError: as `inspect_file`.
    """
    contents = read_file(path)
    found, first = [], {}
    for plain, key in _weights(path, contents.tensors)[0].items():
        V, saved = contents.tensors[key], saved_rows(contents.metadata, key)
        # A parameter that layers share is read as two tensors of one memory.
        V = first.setdefault((V.untyped_storage().data_ptr(), V.storage_offset(), V.shape, V.stride()), V)
        if saved and remembered:
            owner = saved_owner(plain, V, saved, None)
        else:
            layout = saved_layout(saved) if saved else possible_layouts(plain, V, contents.tensors, None)[0]
            owner = build_owner(plain, V, config, contents.tensors, layout)
        found.append((plain, owner, V))
    return found


def _weights(path: str | Path, tensors: dict[str, Tensor]) -> tuple[dict[str, str], bool]:
    """Return the keys of a file's weights by their plain names, and whether they are Vs: every V, or else every matrix.

    Raises:
        ValueError: if there is neither.
    """
    if free := {plain: key for key in tensors if (plain := plain_key(key))}:
        return free, True
    if matrices := {key: key for key, W in tensors.items() if _is_matrix(W)}:
        return matrices, False
    raise ValueError(
        f"{path} holds no matrix: {len(tensors)} tensors, none a dense one of real floating numbers in two or more "
        "dimensions, of more than two numbers a row."
    )


def _is_matrix(W: Tensor) -> bool:
    return W.ndim > 1 and W.is_floating_point() and W.layout is torch.strided and len(W) > 0 and W[0].numel() > 2


def _check_values(key: str, V: Tensor) -> None:
    """Refuse a tensor without values, whose shape a plan can still be made of."""
    if V.is_meta:
        raise ValueError(
            f"{key} was saved from the meta device, which holds no values. Materialise the model (to_empty), load its "
            "weights and save it again."
        )


def _free_row(plain: str, key: str, contents: Contents, config: OrthogonalConfig) -> _Row:
    V, tensors = contents.tensors[key], contents.tensors
    _check_values(plain, V)
    scale = tensors.get(key.removesuffix("original") + "0.scale")
    if saved := saved_rows(contents.metadata, key):
        return _Row(report_weight(plain, saved_owner(plain, V, saved, scale), V), "file", "told")
    first, *others = possible_layouts(plain, V, tensors, scale)
    report = report_weight(plain, build_owner(plain, V, config, tensors, first, scale), V)
    return _Row(report, "config", ("stack" if "stacked" in first else "convolution") if others else "told")


def _plain_row(_: str, key: str, contents: Contents, config: OrthogonalConfig) -> _Row:
    """Return the row of a tensor that is a weight itself, in the layout that makes the better one of it."""
    W = contents.tensors[key]
    _check_values(key, W)
    layouts = possible_layouts(key, W, contents.tensors, None)
    reports = [_plain_report(key, W, config, contents.tensors, layout) for layout in layouts]
    best = min(range(len(reports)), key=lambda i: reports[i].error)  # the first where all are NaN
    if "stacked" in layouts[best]:
        return _Row(reports[best], "config", "transposed stack" if best else "stack")
    return _Row(reports[best], "config", "transposed" if best else "told")


def _plain_report(
    key: str, W: Tensor, config: OrthogonalConfig, tensors: dict[str, Tensor], layout: Layout
) -> LayerReport:
    """Return a report whose error is that of the tensor's own rows, each divided by its norm, as before a scale."""
    owner = build_owner(key, W, config, tensors, layout)
    rows = in_float64(owner.rows(W))
    norms = row_norms(rows).unsqueeze(-1)
    unit = rows / torch.where(norms > 0, norms, 1.0)  # a zero row stays one, an error of 1
    error = float(orthogonality_errors(unit, owner.sizes).amax())
    w_norm = max(largest_singular_value(matrix) for matrix in rows)
    scale = (float(norms.min()), float(norms.max()))
    return replace(report_weight(key, owner, W), error=error, w_norm=w_norm, scale=scale)
