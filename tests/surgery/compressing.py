"""Fusing, pruning and sparsifying, which are for a folded model and say so."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

import orthonorm as on
from orthogonal_layers import free
from surgery.rows import Row, affected, layer_of, weight_from

__all__ = ["COMPRESSION", "FOLD", "OURS", "TORCHS", "deprecated"]

FOLD = "fold first: `plain = orthonorm.fold(model)`"


@contextmanager
def deprecated() -> Iterator[None]:
    """torch.ao.quantization warns of its end, and of options of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def norm_of(layer: nn.Module, kind: type) -> Any:
    """A batch normalization with statistics, in evaluation mode."""
    norm = kind(4).double()
    with torch.no_grad():
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2.0)
    layer.eval()
    return norm.eval()


def fused_linear() -> None:
    layer, x = layer_of(), torch.randn(3, 8).double()
    norm = norm_of(layer, nn.BatchNorm1d)
    torch.testing.assert_close(fuse_linear_bn_eval(on.fold(layer), norm)(x), norm(layer(x)))  # type: ignore[arg-type]


def convolution() -> Any:
    return on.orthogonal_weight_norm(nn.Conv2d(3, 4, 3).double(), scale="learned")


def fused_convolution() -> None:
    layer, x = convolution(), torch.randn(2, 3, 5, 5).double()
    norm = norm_of(layer, nn.BatchNorm2d)
    torch.testing.assert_close(fuse_conv_bn_eval(on.fold(layer), norm)(x), norm(layer(x)))  # type: ignore[type-var]


def fuse_modules(layer: nn.Module) -> object:
    model = nn.Sequential(layer, norm_of(layer, nn.BatchNorm2d)).eval()
    with deprecated():
        return torch.ao.quantization.fuse_modules(model, [["0", "1"]])


def fused_modules() -> None:
    layer, x = convolution(), torch.randn(2, 3, 5, 5).double()
    model = nn.Sequential(layer, norm_of(layer, nn.BatchNorm2d)).eval()
    with deprecated():
        fused = torch.ao.quantization.fuse_modules(on.fold(model), [["0", "1"]])
    torch.testing.assert_close(fused(x), model(x))  # type: ignore[operator]


def pruned() -> None:
    layer = layer_of()
    plain = on.fold(layer)
    prune.l1_unstructured(plain, "weight", amount=0.5)
    W = weight_from(*(value.detach() for value in affected(layer)))
    kept = W.abs() >= W.abs().flatten().kthvalue(17).values
    torch.testing.assert_close(plain.weight, torch.where(kept, W, 0))


def pruned_V() -> None:
    layer = layer_of(None)
    prune.l1_unstructured(layer.parametrizations.weight, "original", amount=0.25)
    V = free(layer).detach()
    assert int((V == 0).sum()) == 8
    torch.testing.assert_close(layer.weight, weight_from(V))
    assert int((layer.weight == 0).sum()) == 0


class Mask(nn.Module):
    """A mask as a parametrization behind ours."""

    def __init__(self, kept: Tensor) -> None:
        super().__init__()
        self.kept = kept

    def forward(self, W: Tensor) -> Tensor:
        return torch.where(self.kept, W, 0)


def masked() -> None:
    layer, kept = layer_of(), torch.rand(4, 8) > 0.5
    torch.nn.utils.parametrize.register_parametrization(layer, "weight", Mask(kept))
    W = weight_from(*(value.detach() for value in affected(layer)))
    torch.testing.assert_close(layer.weight, torch.where(kept, W, 0))
    layer.weight.sum().backward()
    assert "Mask" in on.inspect(layer).note


def sparsifier() -> Any:
    from torch.ao.pruning.sparsifier.weight_norm_sparsifier import WeightNormSparsifier

    return WeightNormSparsifier(sparsity_level=1.0, sparse_block_shape=(1, 4), zeros_per_block=2)


def sparsify(layer: Any) -> None:
    tool, model = sparsifier(), nn.Sequential(layer)
    tool.prepare(model, config=[{"tensor_fqn": "0.weight"}])
    tool.step()


def sparsified() -> None:
    layer: Any = on.fold(layer_of())
    W, model, tool = layer.weight.detach().clone(), nn.Sequential(layer), sparsifier()
    tool.prepare(model, config=[{"tensor_fqn": "0.weight"}])
    tool.step()
    tool.squash_mask()
    zero = layer.weight == 0
    assert bool((zero.view(4, 2, 4).sum(-1) == 2).all())
    torch.testing.assert_close(layer.weight.detach(), torch.where(zero, 0, W))


OURS: dict[str, Any] = {"raises": ValueError, "names": ("weight of ", "orthonorm.fold_"), "cure": FOLD}
TORCHS: dict[str, Any] = {"by": "torch", "cure": FOLD}
COMPRESSION = (
    Row(
        "`fuse_linear_bn_eval(layer, norm)`",
        "",
        fused_linear,
        act=lambda layer: fuse_linear_bn_eval(layer.eval(), norm_of(layer, nn.BatchNorm1d)),
        **OURS,
    ),
    Row(
        "`fuse_conv_bn_eval(layer, norm)`",
        "",
        fused_convolution,
        act=lambda _: fuse_conv_bn_eval(layer := convolution().eval(), norm_of(layer, nn.BatchNorm2d)),
        **OURS,
    ),
    Row(
        "`torch.ao.quantization.fuse_modules` on a converted convolution",
        "",
        fused_modules,
        act=lambda _: fuse_modules(convolution()),
        **OURS,
    ),
    Row(
        "`torch.ao.quantization.fuse_modules` on `OrthogonalConv2d`",
        "",
        fused_modules,
        act=lambda _: fuse_modules(on.OrthogonalConv2d(3, 4, 3).double()),
        raises=AssertionError,
        names=("did not find fuser method", "OrthogonalConv2d"),
        **TORCHS,
    ),
    Row(
        '`prune.l1_unstructured(layer, "weight", ...)` and its relatives',
        "",
        pruned,
        act=lambda layer: prune.l1_unstructured(layer, "weight", amount=0.5),
        raises=ValueError,
        names=("weight of Linear", "weight_orig", "orthonorm.fold_"),
        cure=FOLD,
    ),
    Row(
        '`prune.l1_unstructured(layer.parametrizations.weight, "original", ...)`',
        "entries of `V` are zero, and those of `W` are not",
        pruned_V,
        cure=FOLD,
    ),
    Row(
        "a mask as a parametrization registered behind ours",
        "trains with the masked `W`, which is no longer orthogonal; `inspect` names it",
        masked,
    ),
    Row(
        "`torch.ao.pruning.WeightNormSparsifier`",
        "at its first step",
        sparsified,
        act=sparsify,
        raises=AttributeError,
        names=("OrthogonalWeightNorm", "mask"),
        intact=False,
        **TORCHS,
    ),
)
