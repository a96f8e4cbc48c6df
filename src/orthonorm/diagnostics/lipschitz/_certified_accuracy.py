"""The share of answers that no small change of the input can turn wrong."""

import math
from numbers import Real

from jaxtyping import Float, Integer
from torch import Tensor

from orthonorm.functional._precision import in_float64
from orthonorm.functional.norms._norm_bounds import rounded_up

__all__ = ["certified_accuracy"]

# Note [the radius of a certificate]
# The difference of two outputs of an L-Lipschitz map is a product with e_i - e_j, of norm sqrt 2, so it changes by at
# most sqrt(2) L r where the input changes by r. An answer stays where its margin is larger than that.


def certified_accuracy(
    logits: Float[Tensor, "batch classes"], labels: Integer[Tensor, " batch"], radius: float | int, bound: float | int
) -> float:
    r"""Return the share of samples whose right answer no change of the input by at most `radius` can alter.

    $$\frac1N \#\big\{ i : f_{y_i}(x_i) - \max_{j \ne y_i} f_j(x_i) > \sqrt2 \, L \, r \big\}$$

    Args:
        logits: what the model, in evaluation mode, returns for the samples.
        labels: the right classes.
        radius: r, in the Euclidean norm of the model's inputs; 0 gives the accuracy.
        bound: L, a bound of the model's Lipschitz constant, as `lipschitz_bound(model).bound`.

    Returns:
        The share, from 0 to 1. A logit or a bound of NaN certifies nothing.

    Raises:
        TypeError: if `radius` or `bound` is no number, as `lipschitz_bound(model)` without its `.bound`.
        ValueError: if `radius` or `bound` is negative, there are no samples or fewer than two classes, or the labels
            are not one class for each sample.

    Examples:
        >>> import torch, orthonorm as on
        >>> logits, labels = torch.tensor([[3.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0, 0])
        >>> [round(on.certified_accuracy(logits, labels, radius, bound=1.0), 2) for radius in (0.0, 1.0, 3.0)]
        [0.67, 0.33, 0.0]

    Source: Y. Tsuzuku, I. Sato and M. Sugiyama, "Lipschitz-Margin Training" (2018).
    """
    for name, value in (("radius", radius), ("bound", bound)):
        if not isinstance(value, Real):
            raise TypeError(f"{name} must be a number; got {type(value).__name__}. Pass lipschitz_bound(model).bound.")
        if value < 0:
            raise ValueError(f"{name} must not be negative; got {value}. Pass the number that you mean.")
    if logits.ndim != 2 or logits.shape[0] < 1 or logits.shape[1] < 2:
        raise ValueError(f"logits must be those of a sample and two classes at least; got {tuple(logits.shape)}.")
    if labels.shape != logits.shape[:1] or labels.is_floating_point():
        raise ValueError(
            f"labels must be one class for each of the {len(logits)} samples, as integers; got {labels.dtype} of shape "
            f"{tuple(labels.shape)}. Pass labels.argmax(1) where they are one-hot."
        )
    if not 0 <= int(labels.min()) <= int(labels.max()) < logits.shape[1]:
        raise ValueError(
            f"labels must be from 0 to {logits.shape[1] - 1}; got {int(labels.min())} to {int(labels.max())}."
        )
    values, labels = in_float64(logits.detach()), labels.long().unsqueeze(1)
    right = values.gather(1, labels.to(values.device)).squeeze(1)
    others = values.scatter(1, labels.to(values.device), -math.inf).amax(1)
    needed = rounded_up(rounded_up(rounded_up(math.sqrt(2)) * bound) * radius) if radius * bound else radius * bound
    return float((right - others > needed).double().mean())
