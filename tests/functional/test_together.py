"""Many weights mapped at once give what each gives by itself, and so do their gradients."""

import pytest
import torch
from torch import Tensor

from orthonorm.functional._many_weights import Rows, orthonormalize_together
from orthonorm.functional._orthonormalize import orthonormalize_groups


def network(method: str, dtype: torch.dtype = torch.float64) -> list[Rows]:
    """Weights of equal and of different shapes, of one and of several runs of groups, centred and not."""

    def rows(*shape: int, sizes: tuple[int, ...], center: bool = True) -> Rows:
        return Rows(torch.randn(*shape, dtype=dtype).requires_grad_(), sizes, center, method)

    return [
        rows(1, 8, 12, sizes=(4, 4)),
        rows(1, 8, 12, sizes=(4, 4)),
        rows(2, 9, 20, sizes=(4, 5)),
        rows(1, 4, 30, sizes=(4,)),
        rows(1, 4, 30, sizes=(4,), center=False),
        rows(3, 5, 12, sizes=(5,)),
    ]


def test_results_and_gradients_are_those_of_weight_by_weight(method: str):
    weights = network(method)
    alone = [orthonormalize_groups(V, sizes, center=center, method=m) for V, sizes, center, m, _ in weights]
    together = orthonormalize_together(weights)
    Gs = [torch.randn_like(W) for W in alone]
    Vs = [weight.V for weight in weights]
    for got, expected in zip(together, alone, strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-13)
    for got, expected in zip(torch.autograd.grad(together, Vs, Gs), torch.autograd.grad(alone, Vs, Gs), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-11)


def test_types_are_kept_apart():
    mixed = [network("eigh", dtype)[0] for dtype in (torch.float32, torch.float64, torch.float32)]
    for weight, W in zip(mixed, orthonormalize_together(mixed), strict=True):
        assert W.dtype == weight.V.dtype
        torch.testing.assert_close(W, orthonormalize_groups(*weight[:2], center=True, method="eigh"), rtol=0, atol=1e-5)


def test_more_than_a_block_and_more_than_is_joined(method: str):
    # The first batch is gone through in blocks; the two others are too large to be joined, and equal.
    Vs = [torch.randn(12, 16, 5000), torch.randn(9, 16, 7000), torch.randn(9, 16, 7000)]
    weights = [Rows(V.requires_grad_(), (16,), True, method) for V in Vs]
    together = orthonormalize_together(weights)
    for V, W in zip(Vs, together, strict=True):
        torch.testing.assert_close(W, orthonormalize_groups(V, (16,), center=True, method=method), rtol=0, atol=1e-5)
        torch.testing.assert_close(W @ W.mT, torch.eye(16).expand(len(W), 16, 16), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_second_derivatives_reach_every_weight():
    weights = network("eigh")[:4]
    coefficients = [torch.randn_like(weight.V) for weight in weights]

    def penalty(*Vs: Tensor) -> Tensor:
        rows = [weight._replace(V=V) for weight, V in zip(weights, Vs, strict=True)]
        loss = sum((c * W.sin()).sum() for c, W in zip(coefficients, orthonormalize_together(rows), strict=True))
        grads = torch.autograd.grad(loss, Vs, create_graph=True)  # type: ignore[arg-type]
        return sum((g**2).sum() for g in grads)  # type: ignore[return-value]

    Vs = [weight.V for weight in weights]
    assert torch.autograd.gradcheck(penalty, Vs)


def test_a_gradient_of_some_weights_only():
    weights = network("eigh")
    together = orthonormalize_together(weights)
    alone = orthonormalize_groups(weights[3].V, (4,), center=True, method="eigh")
    (expected,) = torch.autograd.grad(alone.sin().sum(), weights[3].V)
    (got,) = torch.autograd.grad(together[3].sin().sum(), weights[3].V)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def test_empty_weights_and_none_at_all():
    assert orthonormalize_together([]) == []
    empty = Rows(torch.zeros(1, 0, 5), (), True, "eigh"), Rows(torch.zeros(0, 4, 5), (4,), True, "eigh")
    (a, b, c) = orthonormalize_together([*empty, network("eigh")[0]])
    assert (a.shape, b.shape) == ((1, 0, 5), (0, 4, 5))
    torch.testing.assert_close(c[:, :4] @ c[:, :4].mT, torch.eye(4, dtype=c.dtype)[None], rtol=0, atol=1e-12)


@pytest.mark.parametrize("center", [True, False])
def test_a_batch_of_gradients_of_some_weights_only_is_a_loop(center: bool):
    Vs = [torch.randn(1, 3, d, dtype=torch.float64, requires_grad=True) for d in (6, 5)]

    def both(*Vs: Tensor) -> list[Tensor]:
        return orthonormalize_together([Rows(V, (3,), center, "eigh") for V in Vs])

    # Batches of gradients are checked for one result at a time: the other's is missing.
    assert torch.autograd.gradcheck(lambda *Vs: tuple(both(*Vs)), Vs, check_batched_grad=True)
    Ws = both(*Vs)
    batch = torch.randn(4, 1, 3, 6, dtype=torch.float64)
    got = torch.autograd.grad(Ws[0], Vs, batch, is_grads_batched=True, retain_graph=True)
    expected = torch.stack([torch.autograd.grad(Ws[0], Vs[0], G, retain_graph=True)[0] for G in batch])
    torch.testing.assert_close(got[0], expected, rtol=0, atol=1e-12)
    assert not got[1].any()
