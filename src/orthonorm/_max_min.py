"""An activation that keeps the norm of every gradient, for networks of a known Lipschitz constant."""

from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["MaxMin"]


class MaxMin(nn.Module):
    r"""Sort each pair of neighbouring channels: the larger goes first.

    $$(x_{2i}, x_{2i+1}) \mapsto (\max(x_{2i}, x_{2i+1}), \min(x_{2i}, x_{2i+1}))$$

    Its derivative is a permutation, so its Lipschitz constant is 1 and no gradient shrinks, whereas ReLU drops about
    half of it. It is known as GroupSort of size 2, too.

    Args:
        dim: the dimension of the channels, whose size is even: 1 for (batch, channels, ...).

    Raises:
        ValueError: from the call, if the number of channels is odd.

    Examples:
        >>> import torch, orthonorm as on
        >>> on.MaxMin()(torch.tensor([[1.0, 3.0, 2.0, -1.0]]))
        tensor([[ 3.,  1.,  2., -1.]])

    Source: C. Anil, J. Lucas and R. Grosse, "Sorting Out Lipschitz Function Approximation" (2019).
    """

    def __init__(self, dim: int = 1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return x with its pairs sorted."""
        channels = x.shape[self.dim]
        if channels % 2:
            raise ValueError(
                f"MaxMin sorts pairs of channels, so their number must be even; got {channels} in dimension {self.dim} "
                f"of the shape {tuple(x.shape)}. Use a layer of an even number of outputs before it."
            )
        dim = self.dim % x.ndim
        return x.unflatten(dim, (channels // 2, 2)).sort(dim + 1, descending=True).values.flatten(dim, dim + 1)

    def extra_repr(self) -> str:
        """Return the dimension, for `repr`."""
        return f"dim={self.dim}"
