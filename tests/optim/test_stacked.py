"""A stack of matrices in a group with `stacked=True`: each is stepped as it would be by itself."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import orthonorm as on
from orthonorm.functional import haar

from .problems import OPTIMIZERS, bound, noise, off_manifold, on_manifold

SHAPES: dict[str, tuple[tuple[int, ...], int | None]] = {
    "wide": ((4, 3, 5), None),
    "square": ((3, 4, 4), None),
    "tall": ((4, 7, 3), None),
    "grouped": ((2, 6, 5), 4),
    "tall and grouped": ((2, 7, 3), 3),
}


def stack(shape: tuple[int, ...], group_size: int | None) -> nn.Parameter:
    members = [on_manifold(shape[1:], group_size, seed=i).detach() for i in range(shape[0])]
    return nn.Parameter(torch.stack(members))


def train(cls: Any, options: dict[str, Any], weights: list[nn.Parameter], gradients: list[list[Tensor]]) -> Any:
    optimizer = cls(weights, lr=0.1, **options)
    for grads in gradients:
        for weight, grad in zip(weights, grads, strict=True):
            weight.grad = grad
        optimizer.step()
    return optimizer


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_stack_is_stepped_as_its_matrices_are(name: str, case: str):
    shape, group_size = SHAPES[case]
    (cls, options), W = OPTIMIZERS[name], stack(*SHAPES[case])
    parts = [nn.Parameter(part.clone()) for part in W.detach()]
    grads = [noise(shape, seed) for seed in range(3)]
    options = options | {"group_size": group_size}
    train(cls, options, parts, [[*grad.unbind(0)] for grad in grads])
    optimizer = train(cls, options | {"stacked": True}, [W], [[grad] for grad in grads])
    torch.testing.assert_close(W.detach(), torch.stack([part.detach() for part in parts]), rtol=0, atol=1e-12)
    assert max(off_manifold(part, group_size) for part in W.detach()) < bound(cls, 1e-12)
    assert on.orthogonality_error(optimizer)["0.0"] < bound(cls, 1e-12)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_stack_resumes_from_its_state(name: str):
    (cls, options), shape = OPTIMIZERS[name], (4, 3, 5)
    W = stack(shape, None)
    grads = [[noise(shape, seed)] for seed in range(4)]
    first = train(cls, options | {"stacked": True}, [W], grads[:2])
    again = nn.Parameter(W.detach().clone())
    second = cls([again], lr=0.1, stacked=True, **options)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for weight, optimizer in ((W, first), (again, second)):
        for (grad,) in grads[2:]:
            weight.grad = grad
            optimizer.step()
    assert torch.equal(W, again)


def test_a_stack_off_the_manifold_is_moved_matrix_by_matrix():
    W = nn.Parameter(torch.randn(3, 4, 6).double())
    X = W.detach().clone()
    with pytest.warns(UserWarning, match="moved 1 of 1 weights"):
        on.StiefelSGD([W], lr=0.1, stacked=True)
    for part, nearest in zip(X, W.detach(), strict=True):
        U, _, Rt = torch.linalg.svd(part, full_matrices=False)
        torch.testing.assert_close(nearest, U @ Rt)


def test_a_group_says_for_itself_that_it_holds_stacks():
    W, kernel = stack((4, 3, 5), None), on_manifold((4, 2, 3))
    optimizer = on.StiefelSGD([{"params": [W], "stacked": True}, {"params": [kernel]}], lr=0.1)
    assert list(on.orthogonality_error(optimizer)) == ["0.0", "1.0"]
    assert max(on.orthogonality_error(optimizer).values()) < 1e-12


@pytest.mark.usefixtures("unenforced")
def test_a_stack_has_three_dimensions():
    with pytest.raises(ValueError, match=r"\(E, n, d\).*\(3, 5\).*stacked=False"):
        on.StiefelSGD([on_manifold((3, 5))], lr=0.1, stacked=True)
    with pytest.raises(TypeError, match="stacked must be True or False; got 1"):
        on.StiefelSGD([on_manifold((3, 5))], lr=0.1, stacked=1)


def test_a_stack_that_is_known_by_its_name_must_be_said_to_be_one():
    experts, convolution = nn.Module(), nn.Conv1d(2, 4, 3, bias=False).double()
    experts.up = stack((4, 3, 5), None)
    with pytest.raises(ValueError, match=r"up .*\(4, 3, 5\).*stacked=True"):
        on.StiefelSGD(experts.named_parameters(), lr=0.1)
    on.StiefelSGD(experts.named_parameters(), lr=0.1, stacked=True)
    with torch.no_grad():
        convolution.weight.copy_(haar(4, 6, dtype=torch.float64).view(4, 2, 3))
    on.StiefelSGD(convolution.named_parameters(), lr=0.1)
