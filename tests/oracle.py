"""The paper's Algorithms 1 and 2, line by line in float64, poles included: what the library is compared with.

Matrices are written as in the paper: `V` is n x d, `D` holds eigenvectors in columns, `c` is the vector of row means.
Nothing of the library is used here.
"""

import torch
from torch import Tensor


def forward(V: Tensor, *, center: bool = True) -> Tensor:
    """Algorithm 1, lines 3 to 5: W = D Lambda^{-1/2} D^T (V - c 1_d^T) of one group."""
    return _parts(V, center)[-1]


def backward(V: Tensor, dL_dW: Tensor, *, center: bool = True) -> Tensor:
    """Algorithm 2, line 4: dL/dV from dL/dW by the displayed equations, with K_ij = 1 / (sigma_i - sigma_j)."""
    V_C, sigma, D, W = _parts(V, center)
    n, d = V.shape
    Lambda = torch.diag(sigma)
    one_d = V.new_ones(d, 1)
    K = 1 / (sigma[:, None] - sigma[None, :])
    K[range(n), range(n)] = 0
    dL_dLambda = -0.5 * D.T @ dL_dW @ W.T @ D @ Lambda.inverse()
    dL_dD = D @ Lambda.sqrt() @ D.T @ W @ dL_dW.T @ D @ _inverse_sqrt(Lambda) + dL_dW @ W.T @ D
    dL_dSigma = D @ (K.T * (D.T @ dL_dD) + torch.diag(dL_dLambda.diagonal())) @ D.T
    symmetrized = (dL_dSigma.T + dL_dSigma) / 2
    dL_dV = D @ _inverse_sqrt(Lambda) @ D.T @ dL_dW + 2 * symmetrized @ V_C
    if not center:
        return dL_dV
    dL_dc = -one_d.T @ dL_dW.T @ D @ _inverse_sqrt(Lambda) @ D.T - 2 * one_d.T @ V_C.T @ symmetrized
    return dL_dV + dL_dc.T @ one_d.T / d


def grouped(function, sizes: tuple[int, ...], *matrices: Tensor, center: bool = True) -> Tensor:
    """Apply `forward` or `backward` to each group of rows by itself."""
    parts = zip(*(X.split(list(sizes)) for X in matrices), strict=True)
    return torch.cat([function(*part, center=center) for part in parts])


def polar_factor(V: Tensor) -> Tensor:
    """The orthonormal matrix nearest to V, from its singular vectors: U R^T of V = U S R^T."""
    U, _, Rt = torch.linalg.svd(V, full_matrices=False)
    return U @ Rt


def gradient_of_polar(V: Tensor, G: Tensor, *, center: bool) -> Tensor:
    """dL/dV from dL/dW = G by the singular value decomposition V = U S R^T, in float64.

    Within the rows of R^T an antisymmetric part is divided by sums of singular values; outside of them all is, by one.
    """
    size = V.abs().amax((-2, -1), keepdim=True).clamp_min(1e-300)
    X = V / size
    U, S, Rt = torch.linalg.svd(X - X.mean(-1, keepdim=True) if center else X, full_matrices=False)
    GR = G @ Rt.mT
    M = U.mT @ GR
    inside = (M - M.mT) / (S.unsqueeze(-1) + S.unsqueeze(-2)) @ Rt
    result = U @ (inside + U.mT @ (G - GR @ Rt) / S.unsqueeze(-1)) / size
    return result - result.mean(-1, keepdim=True) if center else result


def _parts(V: Tensor, center: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    assert V.dtype == torch.float64
    d = V.shape[1]
    one_d = V.new_ones(d, 1)
    c = V @ one_d / d if center else torch.zeros_like(V[:, :1])
    V_C = V - c @ one_d.T
    sigma, D = torch.linalg.eigh(V_C @ V_C.T)
    return V_C, sigma, D, D @ _inverse_sqrt(torch.diag(sigma)) @ D.T @ V_C


def _inverse_sqrt(Lambda: Tensor) -> Tensor:
    return torch.diag(Lambda.diagonal().rsqrt())
