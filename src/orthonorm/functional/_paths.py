"""In which dtype and in how many passes the transformation is computed: by weight, device, option and values."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ._forward_float32 import transform_by_products, transform_by_values
from ._forward_float64 import transform_in_float64
from ._methods import choose_method, is_traced
from ._precision import check_precision, products_are_reduced, working_dtype

__all__ = ["PATHS", "Path", "choose_path"]


class Path(NamedTuple):
    """One way to compute the transformation: the forward pass, and the method whose solvers its derivatives use."""

    transform: Callable[[Sequence[Tensor], bool], tuple[Tensor, ...]]
    """(batches, center) -> P, two tensors of the method, each W"""
    method: str


def _float64_by_eigh(Vs: Sequence[Tensor], center: bool) -> tuple[Tensor, ...]:
    return transform_in_float64(Vs, center, "eigh")


def _float64_by_newton(Vs: Sequence[Tensor], center: bool) -> tuple[Tensor, ...]:
    return transform_in_float64(Vs, center, "newton")


def _float32_by_values(Vs: Sequence[Tensor], center: bool) -> tuple[Tensor, ...]:
    found = transform_by_values(Vs, center)
    return _float64_by_eigh(Vs, center) if found is None else found


PATHS: dict[str, Path] = {
    "float64 by eigh": Path(_float64_by_eigh, "eigh"),
    "float64 by newton": Path(_float64_by_newton, "newton"),
    "float32 by values": Path(_float32_by_values, "eigh"),
    "float32 by products": Path(transform_by_products, "newton"),
}


def choose_path(V: Tensor, method: str, precision: str) -> str:
    """Return the table's key for a weight.

    Raises:
        ValueError: if the method or the precision is not known, or the device has no float64 and it is asked for.
    """
    check_precision(precision, V.device)
    chosen = choose_method(method, V.device)
    if working_dtype(V) != torch.float64:
        return "float32 by products"
    if V.dtype == torch.float64 or precision == "float64":
        return f"float64 by {chosen}"
    traced = is_traced()
    if traced and method == "auto":
        chosen = "newton"
    if chosen == "newton":
        # What is traced cannot change the setting of products.
        return "float64 by newton" if traced and products_are_reduced() else "float32 by products"
    return "float32 by values" if V.device.type == "cpu" and not traced else "float64 by eigh"
