"""The Riemannian methods as released (errata 10), and the neighbours of the ablations, against formulas by hand."""

import copy

import pytest
import torch
from torch import Tensor, nn

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.methods.table import METHODS, OptimizerSettings, hidden_layers, method
from orthonorm_paper.models import build_model

LR = 0.3
SGD = OptimizerSettings("sgd", LR)


def network(label: str) -> nn.Module:
    arguments = {"hidden_layers": 3, "width": 10}
    plain = build_model("mlp", arguments, shape=(1, 4, 6), classes=5, start=METHODS[label].start, seed=1)
    return METHODS[label].convert(plain.double())


def positive_q(rows: Tensor) -> Tensor:
    """Q of the QR decomposition of the transpose, the diagonal of R positive."""
    q, r = torch.linalg.qr(rows.mT)
    return (q * r.diagonal().sign()).mT


def cayley(w: Tensor, g: Tensor) -> Tensor:
    x, gradient = w.mT, g.mT
    a = gradient @ x.mT - x @ gradient.mT
    eye = torch.eye(len(a), dtype=a.dtype)
    return torch.linalg.solve(eye + LR / 2 * a, (eye - LR / 2 * a) @ x).mT


FORMULAS = {
    "EI+QR": lambda w, g: positive_q(w - LR * (g - 0.5 * (g @ w.mT @ w + w @ g.mT @ w))),
    "CI+QR": lambda w, g: positive_q(w - LR * (g - w @ g.mT @ w)),
    "QR": lambda w, g: positive_q(w - LR * g),
    "CayT": cayley,
}


def step_(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> list[Tensor]:
    """One step on a batch; the gradients of the hidden weights."""
    optimizer.zero_grad()
    images = torch.randn(32, 1, 4, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    nn.functional.cross_entropy(model(images), torch.arange(32) % 5).backward()
    leaves = [layer.weight for layer in hidden_layers(model) if layer.weight.is_leaf]
    gradients = [weight.grad.clone() for weight in leaves if weight.grad is not None]
    optimizer.step()
    return gradients


@pytest.mark.parametrize("rule", FORMULAS)
def test_a_released_method_steps_along_the_sum_of_all_gradients_at_the_first_learning_rate(rule: str):
    model = network(f"{rule}-released")
    optimizer = METHODS[f"{rule}-released"].make_optimizer(model, SGD)
    rules = [rule, *(["EI+QR"] * 2 if rule == "CayT" else [rule] * 2)]
    sums: list[Tensor] = [torch.zeros_like(layer.weight) for layer in hidden_layers(model)]
    for number in range(3):
        before = [layer.weight.detach().clone() for layer in hidden_layers(model)]
        gradients = step_(model, optimizer, number)
        sums = [total + gradient for total, gradient in zip(sums, gradients, strict=True)]
        for layer, w, total, own in zip(hidden_layers(model), before, sums, rules, strict=True):
            torch.testing.assert_close(layer.weight.detach(), FORMULAS[own](w, total), rtol=0, atol=1e-8)
        for group in optimizer.param_groups:
            group["lr"] = LR / 2


@pytest.mark.parametrize("rule", FORMULAS)
def test_a_released_weight_starts_where_it_was_drawn_but_for_the_first_of_cayt(rule: str):
    drawn = hidden_layers(network("plain"))
    found = hidden_layers(network(f"{rule}-released"))
    if rule == "CayT":
        u, _, vh = torch.linalg.svd(drawn[0].weight.detach(), full_matrices=False)
        torch.testing.assert_close(found[0].weight.detach(), u @ vh, rtol=0, atol=1e-9)
        assert found[0].bias is not None
        assert not found[0].bias.any()
        drawn, found = drawn[1:], found[1:]
    assert all(torch.equal(a.weight, b.weight) for a, b in zip(drawn, found, strict=True))


def test_biases_and_the_classifier_take_a_plain_step_at_the_learning_rate_of_the_schedule():
    model = network("QR-released")
    optimizer = METHODS["QR-released"].make_optimizer(model, SGD)
    classifier = list(model.modules())[-1]
    assert isinstance(classifier, nn.Linear)
    for lr in (LR, LR / 2):
        for group in optimizer.param_groups:
            group["lr"] = lr
        before = classifier.weight.detach().clone()
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        torch.testing.assert_close(classifier.weight.detach(), before - lr)


def test_the_sums_are_saved_and_loaded():
    model = network("EI+QR-released")
    optimizer = METHODS["EI+QR-released"].make_optimizer(model, SGD)
    step_(model, optimizer, 0)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    saved = copy.deepcopy(optimizer.state_dict())
    step_(model, optimizer, 1)
    other = network("EI+QR-released")
    other.load_state_dict(state)
    again = METHODS["EI+QR-released"].make_optimizer(other, SGD)
    again.load_state_dict(saved)
    step_(other, again, 1)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_released_methods_say_what_they_run_with():
    with pytest.raises(UserError, match="plain sgd"):
        METHODS["QR-released"].make_optimizer(network("QR-released"), OptimizerSettings("sgd", LR, momentum=0.9))


@pytest.mark.parametrize("strength", [0.01, 0.1])
def test_a_penalty_adds_its_gradient_to_a_step_that_runs_backward_itself(strength: float):
    label = f"penalty-{strength:g}"
    model, free = network(label), network(label)
    gradients = step_(free, torch.optim.SGD(free.parameters(), LR), 0)
    before = [layer.weight.detach().clone() for layer in hidden_layers(model)]
    optimizer = METHODS[label].make_optimizer(model, SGD)
    images = torch.randn(32, 1, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), torch.arange(32) % 5)
        loss.backward()
        return loss

    optimizer.step(closure)  # type: ignore[call-overload, arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    for layer, w, g in zip(hidden_layers(model), before, gradients, strict=True):
        # d/dW |W W^T - I|_F^2 = 4 (W W^T - I) W
        penalty = 4 * (w @ w.mT - torch.eye(len(w), dtype=w.dtype)) @ w
        torch.testing.assert_close(layer.weight.detach(), w - LR * (g + strength * penalty), rtol=0, atol=1e-9)


def test_a_kept_norm_is_that_of_the_start_after_steps():
    chosen = method("orthonorm", "mlp", {"keep_norm": True})
    plain = build_model("mlp", {"hidden_layers": 3, "width": 10}, shape=(1, 4, 6), classes=5, start="paper", seed=1)
    model = chosen.convert(plain.double())
    optimizer = chosen.make_optimizer(model, SGD)
    norms = [p.detach().norm() for name, p in model.named_parameters() if name.endswith("original")]
    for number in range(3):
        step_(model, optimizer, number)
    after = [p.detach().norm() for name, p in model.named_parameters() if name.endswith("original")]
    torch.testing.assert_close(torch.stack(after), torch.stack(norms), rtol=1e-9, atol=0)
