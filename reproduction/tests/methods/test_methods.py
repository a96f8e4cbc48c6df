"""The table of methods: each does in one step what the paper's formula says."""

import math

import pytest
import torch
from torch import Tensor, nn

import orthonorm as on
from orthonorm_paper.exceptions import UserError
from orthonorm_paper.methods.table import METHODS, OptimizerSettings, hidden_layers, method
from orthonorm_paper.methods.variance_transformation import VarianceOrthogonal, register_variance_
from orthonorm_paper.models import build_model

LR = 0.3
RIEMANNIAN = ("EI+QR", "CI+QR", "CayT", "QR")
RELEASED = tuple(f"{label}-released" for label in RIEMANNIAN)
PENALTIES = ("penalty-0.01", "penalty-0.1")
# Those for recurrent weights: reproduction/tests/experiments/test_sequences.py.
LABELS = [label for label in METHODS if not label.startswith("recurrent")]


# Methods that keep no weight orthonormal; WN's rows have a learned norm.
FREE = ("plain", "plain-he", "plain-orthogonal", "WN", "WN-row-norms", *PENALTIES)


def network(label: str, **arguments: int | float) -> nn.Module:
    depth = 4 if label == "OLM-L4" else 3
    plain = build_model(
        "mlp",
        {"hidden_layers": depth, "width": 10, **arguments},
        shape=(1, 4, 6),
        classes=5,
        start=METHODS[label].start,
        seed=1,
    )
    return METHODS[label].convert(plain.double())


def step(label: str, settings: OptimizerSettings) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Hidden weights before and after one step on a batch, and their gradients."""
    model = network(label)
    optimizer = METHODS[label].make_optimizer(model, settings)
    weights = [layer.weight for layer in hidden_layers(model)]
    before = [weight.detach().clone() for weight in weights]
    random = torch.Generator().manual_seed(2)
    images = torch.randn(32, 1, 4, 6, generator=random, dtype=torch.float64)
    loss = nn.functional.cross_entropy(model(images), torch.arange(32) % 5)
    loss.backward()
    gradients = [weight.grad.clone() for weight in weights if weight.grad is not None]
    optimizer.step()
    return before, [weight.detach().clone() for weight in weights], gradients


def positive_q(rows: Tensor) -> Tensor:
    """Q of the QR decomposition of the transpose with a positive diagonal of R, by Gram-Schmidt."""
    found: list[Tensor] = []
    for row in rows:
        for other in found:
            row = row - (row @ other) * other
        found.append(row / row.norm())
    return torch.stack(found)


def ei_qr(w: Tensor, g: Tensor) -> Tensor:
    """The gradient of the Euclidean metric (for rows), then QR."""
    return positive_q(w - LR * (g - 0.5 * (g @ w.mT @ w + w @ g.mT @ w)))


def ci_qr(w: Tensor, g: Tensor) -> Tensor:
    """The gradient of the canonical metric (for rows), then QR."""
    return positive_q(w - LR * (g - w @ g.mT @ w))


def cayley(w: Tensor, g: Tensor) -> Tensor:
    """(I + lr/2 A)^{-1} (I - lr/2 A) on columns, A = G W^T - W G^T (errata 5), d x d and solved whole."""
    x, gradient = w.mT, g.mT
    a = gradient @ x.mT - x @ gradient.mT
    eye = torch.eye(len(a), dtype=a.dtype)
    return torch.linalg.solve(eye + LR / 2 * a, (eye - LR / 2 * a) @ x).mT


def qr(w: Tensor, g: Tensor) -> Tensor:
    """A plain step, then QR."""
    return positive_q(w - LR * g)


@pytest.mark.parametrize(
    ("label", "formula"),
    [("EI+QR", ei_qr), ("CI+QR", ci_qr), ("CayT", cayley), ("QR", qr)],
    ids=RIEMANNIAN,
)
def test_a_riemannian_label_is_the_metric_that_it_names(label: str, formula):
    before, after, gradients = step(label, OptimizerSettings("sgd", LR))
    assert len(before) == len(gradients) == 3
    for w, moved, g in zip(before, after, gradients, strict=True):
        torch.testing.assert_close(moved, formula(w, g), rtol=0, atol=1e-9)
        assert float((moved - w).norm()) > 1e-4


@pytest.mark.parametrize("label", RIEMANNIAN)
def test_a_riemannian_method_starts_at_the_orthonormal_matrix_nearest_to_the_plain_start(label: str):
    plain = build_model("mlp", {"hidden_layers": 3, "width": 10}, shape=(1, 4, 6), classes=5, start="paper", seed=1)
    for layer, original in zip(hidden_layers(network(label)), hidden_layers(plain), strict=True):
        u, _, vh = torch.linalg.svd(original.weight.detach().double(), full_matrices=False)
        torch.testing.assert_close(layer.weight.detach(), u @ vh, rtol=0, atol=1e-9)


@pytest.mark.parametrize("label", RIEMANNIAN)
def test_the_classifier_and_the_biases_take_a_plain_step(label: str):
    model = network(label)
    optimizer = METHODS[label].make_optimizer(model, OptimizerSettings("sgd", LR))
    classifier = list(model.modules())[-1]
    assert isinstance(classifier, nn.Linear)
    before = classifier.weight.detach().clone(), classifier.bias.detach().clone()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    torch.testing.assert_close(classifier.weight.detach(), before[0] - LR)
    torch.testing.assert_close(classifier.bias.detach(), before[1] - LR)


@pytest.mark.parametrize("label", [label for label in LABELS if label not in (*FREE, *RELEASED)])
def test_a_method_measures_its_own_error_and_sees_a_broken_weight(label: str):
    model = network(label)
    assert METHODS[label].error(model) < 1e-5
    if label in RIEMANNIAN:
        with torch.no_grad():
            hidden_layers(model)[0].weight.mul_(1.1)
        assert METHODS[label].error(model) == pytest.approx(0.21, abs=1e-9)


@pytest.mark.parametrize("label", ["plain", "plain-he", "plain-orthogonal"])
def test_plain_stays_plain_and_says_how_far_from_orthonormal_it_is(label: str):
    model = network(label)
    worst = 0.0
    for layer in hidden_layers(model):
        gram = layer.weight.detach() @ layer.weight.detach().mT
        worst = max(worst, float((gram - torch.eye(len(gram))).abs().max()))
    assert METHODS[label].error(model) == pytest.approx(worst, rel=1e-9)
    assert not any("parametrizations" in name for name, _ in model.named_modules())


@pytest.mark.parametrize(
    ("label", "groups"),
    [("OLM", [[10], [9, 1], [9, 1]]), ("OLM-balanced", [[10], [5, 5], [5, 5]]), ("OLM-uncentred", [[10], [10], [10]])],
)
def test_olm_has_the_groups_that_its_label_says(label: str, groups: list[list[int]]):
    for layer, sizes in zip(hidden_layers(network(label)), groups, strict=True):
        w = layer.weight.detach()
        for group in w.split(sizes):
            torch.testing.assert_close(group @ group.mT, torch.eye(len(group), dtype=w.dtype), rtol=0, atol=1e-9)
        # Not one group more: rows of different groups are not orthogonal.
        gram = (w @ w.mT - torch.eye(10, dtype=w.dtype)).abs()
        assert (float(gram.max()) > 1e-3) is (len(sizes) > 1)
        centred = float(w.sum(1).abs().max()) < 1e-9
        assert centred is (label != "OLM-uncentred")


def test_every_method_keeps_the_classifier_plain():
    for label in LABELS:
        classifier = [m for m in network(label).modules() if isinstance(m, nn.Linear)][-1]
        assert "weight" in dict(classifier.named_parameters(recurse=False)), label


def p_var(v: Tensor) -> Tensor:
    """Lambda^{-1/2} D^T (V - mean) from the singular value decomposition, up to signs."""
    centred = v - v.mean(1, keepdim=True)
    return torch.linalg.svd(centred, full_matrices=False).Vh.flip(0)


def test_p_var_is_the_paper_s_formula_group_by_group():
    v = torch.randn(7, 5, dtype=torch.float64)
    w = VarianceOrthogonal(256)(v)
    # Limit d - 1 = 4 rows: groups of 4 and 3.
    for group, rows in zip(w.split(4), v.split(4), strict=True):
        torch.testing.assert_close(group.abs(), p_var(rows).abs(), rtol=0, atol=1e-9)
        torch.testing.assert_close(group @ group.mT, torch.eye(len(group), dtype=w.dtype), rtol=0, atol=1e-9)


def test_p_var_s_gradient_is_autograd_s():
    v = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    # The signs of the eigenvectors cancel in the square.
    assert torch.autograd.gradcheck(lambda x: VarianceOrthogonal(3)(x).square(), v)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_p_var_of_a_broken_v_is_nan_in_that_group_and_never_raises(bad: float):
    v = torch.randn(7, 5)
    v[1, 2] = bad
    w = VarianceOrthogonal(256)(v)
    assert w[:4].isnan().all()
    assert w[4:].isfinite().all()


def test_p_var_keeps_v_and_its_place_in_the_state():
    layer = nn.Linear(6, 3)
    v = layer.weight.detach().clone()
    register_variance_(layer, "weight", 256)
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    assert torch.equal(layer.state_dict()["parametrizations.weight.original"], v)


@pytest.mark.parametrize(
    "label", [label for label in LABELS if label not in (*PENALTIES, *RELEASED, "torch-orthogonal")]
)
def test_weight_decay_reaches_the_classifier_and_no_orthogonal_weight(label: str):
    model = network(label)
    settings = OptimizerSettings("sgd", LR, weight_decay=0.5)
    optimizer = METHODS[label].make_optimizer(model, settings)
    classifier = [m for m in model.modules() if isinstance(m, nn.Linear)][-1]
    weights = [layer.weight.detach().clone() for layer in hidden_layers(model)]
    before = classifier.weight.detach().clone()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.testing.assert_close(classifier.weight.detach(), before * (1 - LR * 0.5))
    replaced = {"OLM-L1": 1, "OLM-L2": 2}.get(label, len(weights))
    for number, (layer, weight) in enumerate(zip(hidden_layers(model), weights, strict=True)):
        # A learned scale is a parameter like any other.
        decayed = label in (*FREE, "OLM-scale", "OLM-scale-row-norms") or number >= replaced
        expected = weight * (1 - LR * 0.5) if decayed else weight
        torch.testing.assert_close(layer.weight.detach().abs(), expected.abs(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("label", ["WN", "WN-unit", "OLM", "OLM-scale"])
def test_the_free_matrices_decay_as_the_authors_do(label: str):
    model = network(label)
    optimizer = METHODS[label].make_optimizer(model, OptimizerSettings("sgd", LR, weight_decay=0.5))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for parameter, value in zip(model.parameters(), before, strict=True):
        torch.testing.assert_close(parameter.detach(), value * (1 - LR * 0.5))


def test_a_method_means_on_a_network_what_the_table_of_replacements_says():
    vgg = build_model("vgg", {"width": 0.125}, shape=(3, 32, 32), classes=5, start="paper", seed=0)
    converted = method("OLM-L2", "vgg").convert(vgg)
    assert list(on.orthogonality_error(converted)) == ["0.weight", "2.weight"]
    pie = build_model("pie-mlp", {"width": 12}, shape=(1, 4, 4), classes=5, start="paper", seed=0)
    chosen = method("OLM", "pie-mlp", {"group_size": 4, "center": False})
    rows = next(
        layer.weight.detach().double() for layer in chosen.convert(pie).modules() if isinstance(layer, nn.Linear)
    )
    gram = rows @ rows.mT
    torch.testing.assert_close(gram[4:8, 4:8], torch.eye(4, dtype=torch.float64), rtol=0, atol=1e-5)
    assert float(gram[:4, 4:8].abs().max()) > 1e-3
    assert float(rows.sum(1).abs().min()) > 1e-3


@pytest.mark.parametrize(
    ("label", "arguments", "message"),
    [
        ("plain", {"group_size": 4}, r"method plain takes no arguments; got {'group_size': 4}"),
        ("WN", {"group_size": 4}, "method WN takes layers; got group_size = 4"),
        ("OLM", {"group_size": 0}, "group_size of a method must be a whole number of rows >= 1; got 0"),
        ("OLM", {"center": 1}, "center of a method must be true or false; got 1"),
        ("OLM", {"layers": "1x1"}, "layers of a method must be one of hidden, all, convolutions, 3x3; got '1x1'"),
        ("OLM", {"grouping": "tail"}, "method OLM takes group_size, center, layers; got grouping = 'tail'"),
    ],
)
def test_a_wrong_argument_of_a_method_says_what_it_takes(label: str, arguments: dict, message: str):
    with pytest.raises(UserError, match=message):
        method(label, "vgg", arguments)


def test_adam_and_momentum_are_what_they_are_in_torch():
    model = network("plain")
    adam = METHODS["plain"].make_optimizer(model, OptimizerSettings("adam", 0.01))
    assert isinstance(adam, torch.optim.Adam)
    sgd = METHODS["OLM"].make_optimizer(network("OLM"), OptimizerSettings("sgd", 0.1, momentum=0.9, nesterov=True))
    assert isinstance(sgd, torch.optim.SGD)
    assert [(g["lr"], g["momentum"], g["nesterov"]) for g in sgd.param_groups] == [(0.1, 0.9, True)] * 2


def test_wrong_uses_say_what_is_right():
    with pytest.raises(UserError, match=r"method must be one of plain, .*; got 'SGD'"):
        method("SGD")
    with pytest.raises(UserError, match="run with sgd; got optimizer 'adam'"):
        METHODS["QR"].make_optimizer(network("QR"), OptimizerSettings("adam", 0.1))
    with pytest.raises(UserError, match="30 rows in 24 dimensions cannot be"):
        network("CayT", width=30)


@pytest.mark.parametrize(
    ("start", "deviation"), [("paper", 1 / math.sqrt(3 * 400)), ("he", math.sqrt(2 / 400)), ("orthogonal", None)]
)
def test_a_start_has_the_size_that_its_name_says(start: str, deviation: float | None):
    model = build_model("mlp", {"hidden_layers": 1, "width": 300}, shape=(1, 20, 20), classes=5, start=start, seed=0)
    layer = hidden_layers(model)[0]
    w = layer.weight.detach()
    if deviation is None:
        torch.testing.assert_close(w @ w.mT, 2 * torch.eye(300), rtol=0, atol=1e-5)
    else:
        assert float(w.std()) == pytest.approx(deviation, rel=0.02)
    assert layer.bias is not None
    bias = float(layer.bias.detach().abs().max())
    if start == "paper":
        assert float(w.abs().max()) <= 1 / 20
        assert 0 < bias <= 1 / 20
    else:
        assert bias == 0


def test_a_start_is_a_function_of_the_seed():
    def first(seed: int) -> Tensor:
        torch.rand(1)
        model = build_model("mlp", {}, shape=(1, 4, 4), classes=5, start="he", seed=seed)
        return next(model.parameters()).detach()

    assert torch.equal(first(0), first(0))
    assert not torch.equal(first(0), first(1))


@pytest.mark.parametrize(
    ("name", "arguments", "start", "message"),
    [
        ("resnet", {}, "he", "model must be one of mlp, .*; got 'resnet'"),
        ("mlp", {"depth": 4}, "he", "unexpected keyword argument 'depth'"),
        ("mlp", {}, "zero", "start must be one of paper, he, orthogonal; got 'zero'"),
        ("mlp", {"hidden_layers": 0}, "he", "got 0 and 100"),
        ("mlp", {"dropout": 1.0}, "he", r"probability in \[0, 1\); got 1.0"),
    ],
)
def test_a_wrong_model_says_what_was_got(name: str, arguments: dict, start: str, message: str):
    with pytest.raises(UserError, match=message):
        build_model(name, arguments, shape=(1, 4, 4), classes=5, start=start, seed=0)


def test_the_labels_are_the_library_s_metrics_of_the_same_name():
    optimizers = {
        label: METHODS[label].make_optimizer(network(label), OptimizerSettings("sgd", LR)) for label in RIEMANNIAN
    }
    assert all(isinstance(optimizer, on.StiefelSGD) for optimizer in optimizers.values())
    metrics = {label: optimizer.param_groups[0]["metric"] for label, optimizer in optimizers.items()}
    assert metrics == {"EI+QR": "euclidean", "CI+QR": "canonical", "CayT": "canonical", "QR": None}
