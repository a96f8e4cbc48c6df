"""What the rules for `torch.vmap` and forward mode share."""

from torch import Tensor
from torch._C import _functorch  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]

__all__ = ["batch_first", "refuse_nested_forward_mode"]


def refuse_nested_forward_mode() -> None:
    """Raise in a forward-mode rule that runs inside another forward mode.

    There torch takes the tensors that an `autograd.Function` saved for constants, and drops their derivative.

    Raises:
        RuntimeError: in `jvp` of `jvp` or `jacfwd` of `jacfwd`.
    """
    levels = _functorch.get_interpreter_stack() or []
    if sum(level.key() == _functorch.TransformType.Jvp for level in levels) > 1:
        raise RuntimeError(
            "forward mode over forward mode (jvp of jvp, jacfwd of jacfwd) is not supported: torch drops a term of it. "
            "Take forward over reverse (torch.func.hessian, jvp of grad) or reverse over either."
        )


def batch_first(x: Tensor, dim: int | None, size: int) -> Tensor:
    """Return `x` with the mapped dimension in front, repeated `size` times where it is not mapped."""
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
