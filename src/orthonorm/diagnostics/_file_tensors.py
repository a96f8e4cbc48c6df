"""Files of weights as people have them, read without running code."""

import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["Contents", "read_file"]


class Contents(NamedTuple):
    """What a file of weights holds."""

    tensors: dict[str, Tensor]
    """On the CPU, by their keys."""
    metadata: Mapping[str, Any]
    """What torch saves beside the tensors of a `state_dict`, by the module's name; empty where there is nothing."""


def read_file(path: str | Path) -> Contents:
    """Return what a `.safetensors` file or a state_dict saved by `torch.save` holds.

    Raises:
        TypeError: if `path` is no path.
        FileNotFoundError: if there is no such file.
        ValueError: if the file is not of these kinds.
        ImportError: if the file is `.safetensors` and that package is missing.
    """
    if not isinstance(path, str | PathLike):
        raise TypeError(f"path must be that of a file; got {type(path).__name__}. For a module call orthonorm.inspect.")
    path = Path(path)
    if path.is_dir():
        names = sorted(
            found.name for found in path.iterdir() if found.suffix in {".safetensors", ".pt", ".pth", ".ckpt"}
        )
        inside = f"it holds {', '.join(names[:3])}" if names else "it contains no file with one of these endings"
        raise FileNotFoundError(
            f"{path} must be a file of weights; got a folder. Give a file in it, .safetensors or .pt; {inside}."
        )
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}.")
    found, metadata = (_read_safetensors(path), {}) if path.suffix == ".safetensors" else _read_pt(path)
    # torch neither promotes float8 nor sums it, so nothing trains in it.
    tensors = {key: W.float() if W.is_floating_point() and W.itemsize == 1 else W for key, W in found.items()}
    return Contents(tensors, metadata)


def _read_pt(path: Path) -> tuple[dict[str, Tensor], Mapping[str, Any]]:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(_why_unreadable(path, error)) from error
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping):
        raise ValueError(
            f"{path} must hold a state_dict of names and tensors; got an object of type {type(found).__name__}. Save "
            "model.state_dict()."
        )
    metadata = getattr(found, "_metadata", None)
    tensors = {str(key): value for key, value in found.items() if isinstance(value, Tensor)}
    if not tensors and any(isinstance(value, Mapping) for value in found.values()):
        raise ValueError(
            f"{path} must hold a state_dict, alone or under the key state_dict, model_state_dict or model; got the "
            f"keys {', '.join(map(str, found))}. Save model.state_dict() under one of these."
        )
    return tensors, metadata if isinstance(metadata, Mapping) else {}


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
        raise ImportError("reading .safetensors needs its package. Install it with pip install safetensors.") from error
    try:
        # Copied, since the rounding of float32 products depends on where in memory a tensor begins.
        return {key: tensor.clone() for key, tensor in load_file(path).items()}
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole .safetensors file ({error}).") from error
