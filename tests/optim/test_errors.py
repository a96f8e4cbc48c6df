"""A user's mistake is told at once: rule, value, cure."""

from inspect import unwrap
from typing import Any, cast

import pytest
import torch
from torch import nn

from optim.problems import on_manifold, weight, with_sparse_gradient
from orthonorm.functional import (
    check_metric,
    check_retraction,
    check_tangent,
    haar,
    inner,
    matrix_layout,
    project,
    project_tangent,
    retract_qr,
    riemannian_gradient,
    soft_orthogonality,
)
from orthonorm.layers import OrthogonalLinear
from orthonorm.optim import Landing, StiefelAdam, StiefelMuon, StiefelSGD


def sgd(weight=None, **options):
    """An optimizer over one good weight, or the given one."""
    return StiefelSGD([on_manifold((3, 5)) if weight is None else weight], **options)


def group(**options):
    """An optimizer over one group with the given options."""
    return StiefelSGD([{"params": [on_manifold((3, 5))], **options}])


def landing(**options):
    """A Landing over one good weight."""
    return Landing([on_manifold((3, 5))], **options)


def muon(**options):
    """A StiefelMuon over one good weight."""
    return StiefelMuon([on_manifold((3, 5))], **options)


def named(module, name):
    """An optimizer over one parameter of a module, given with its name."""
    return StiefelSGD([(name, dict(module.named_parameters())[name])])


W = haar(3, 5, dtype=torch.float64)
# A call, its exception, and a pattern of the message. `unwrap` where the types that tests enforce
# would answer before the library does.
CASES = {
    "pair": (
        lambda: sgd(retraction="cayley"),
        ValueError,
        r"'euclidean', 'cayley'\)\.\n  \('euclidean', 'qr'\): W <- qf",
    ),
    "pair of a group": (
        lambda: StiefelAdam([{"params": [weight()], "metric": None, "retraction": "cayley"}]),
        ValueError,
        r"None, 'cayley'",
    ),
    "metric": (lambda: sgd(metric="riemannian"), ValueError, "'riemannian', 'qr'"),
    "decay in a group": (
        lambda: StiefelSGD([{"params": [weight()], "weight_decay": 0.1}]),
        ValueError,
        "weight_decay=0.1 in a group on the manifold would do nothing.*manifold=False",
    ),
    "decay for nobody": (lambda: sgd(weight_decay=0.1), ValueError, "weight_decay=0.1 would do nothing"),
    "negative rate": (lambda: sgd(lr=-1.0), ValueError, "lr must be 0 or more; got -1.0"),
    "rate is NaN": (lambda: sgd(lr=float("nan")), ValueError, "lr must be 0 or more; got nan"),
    "rates": (lambda: sgd(lr=torch.ones(2)), ValueError, r"one element.*got the shape \(2,\)"),
    "momentum": (lambda: sgd(momentum=-0.5), ValueError, "momentum must be 0 or more; got -0.5"),
    "nesterov": (lambda: sgd(nesterov=True), ValueError, "momentum must be above 0.*nesterov.*got 0"),
    "betas": (lambda: StiefelAdam([weight()], betas=(0.9, 1.0)), ValueError, r"in \[0, 1\); got \(0.9, 1.0\)"),
    "eps": (lambda: StiefelAdam([weight()], eps=-1.0), ValueError, "eps must be 0 or more; got -1.0"),
    "no attraction": (lambda: landing(attraction=0.0), ValueError, "attraction must be above 0; got 0"),
    "attraction as text": (lambda: landing(attraction="1"), TypeError, "attraction must be a number; got '1'"),
    "eps of one": (lambda: landing(eps=1.0), ValueError, "eps must be from 0.001 to below 1; got 1.0.*StiefelSGD"),
    "eps of nothing": (lambda: landing(eps=0.0), ValueError, "eps must be from 0.001 to below 1; got 0.0"),
    "retraction of Landing": (
        lambda: Landing([{"params": [weight()], "retraction": "qr"}]),
        ValueError,
        "no option 'retraction'",
    ),
    "nesterov of Landing": (lambda: landing(nesterov=True), ValueError, "momentum must be above 0.*nesterov.*got 0"),
    "decay in a group of Landing": (
        lambda: Landing([{"params": [weight()], "weight_decay": 0.1}]),
        ValueError,
        "weight_decay=0.1 in a group on the manifold would do nothing.*manifold=False",
    ),
    "tolerance": (lambda: muon(tolerance=1e-4), ValueError, "tolerance must be from 0.001 to 1; got 0.0001"),
    "tolerance as text": (lambda: muon(tolerance="1"), TypeError, "tolerance must be a number; got '1'"),
    "retraction of Muon": (
        lambda: muon(retraction="exp"),
        ValueError,
        r"retraction must be one of \['cayley', 'polar', 'qr'\]; got 'exp'",
    ),
    "metric of Muon": (
        lambda: StiefelMuon([{"params": [weight()], "metric": "canonical"}]),
        ValueError,
        "no option 'metric'",
    ),
    "momentum of Muon": (lambda: muon(momentum=-0.5), ValueError, "momentum must be 0 or more; got -0.5"),
    "half precision for Landing": (
        lambda: Landing([weight(dtype=torch.bfloat16)]),
        TypeError,
        "got torch.bfloat16",
    ),
    "complex for Muon": (lambda: StiefelMuon([weight(dtype=torch.complex64)]), TypeError, "complex64"),
    "sparse for Landing": (
        lambda: with_sparse_gradient(Landing)[0].step(),
        TypeError,
        "on the manifold needs a dense gradient",
    ),
    "sparse for Muon": (
        lambda: with_sparse_gradient(StiefelMuon)[0].step(),
        TypeError,
        "on the manifold needs a dense gradient",
    ),
    "rate as text": (lambda: sgd(lr="0.1"), TypeError, "lr must be a number; got '0.1'"),
    "rate is true": (lambda: sgd(lr=True), TypeError, "lr must be a number; got True"),
    "decay as text": (lambda: sgd(weight_decay="0"), TypeError, "weight_decay must be a number; got '0'"),
    "momentum as text": (lambda: sgd(momentum="0.9"), TypeError, "momentum must be a number; got '0.9'"),
    "one beta": (
        lambda: StiefelAdam([weight()], betas=cast(Any, 0.9)),
        TypeError,
        "betas must be two numbers.*got 0.9",
    ),
    "three betas": (
        lambda: StiefelAdam([nn.Parameter(W.clone())], betas=cast(Any, (0.9, 0.99, 0.999))),
        ValueError,
        r"betas must be two numbers.*got \(0.9, 0.99, 0.999\)",
    ),
    "betas as text": (
        lambda: StiefelAdam([weight()], betas=cast(Any, ("0.9", 0.9))),
        TypeError,
        r"betas\[0\] must be a number; got '0.9'",
    ),
    "misspelled option": (
        lambda: group(manifol=False),
        ValueError,
        "no option 'manifol', which would do nothing; did you mean 'manifold'.*The options are lr, momentum",
    ),
    "an underscore too many": (lambda: group(manifold_=False), ValueError, "'manifold_'.*did you mean 'manifold'"),
    "initials": (
        lambda: group(manifold=False, wd=0.1),
        ValueError,
        "no option 'wd'.*did you mean 'weight_decay'",
    ),
    "initials in an added group": (
        lambda: sgd().add_param_group({"params": [weight((4,))], "manifold": False, "wd": 0.1}),
        ValueError,
        "no option 'wd'.*did you mean 'weight_decay'",
    ),
    "a name of nothing": (lambda: group(orthogonal=False), ValueError, r"no option 'orthogonal'.*options are lr, mom"),
    "an option of torch's that would do nothing": (lambda: group(maximize=True), ValueError, "no option 'maximize'"),
    "an option of another optimizer": (
        lambda: StiefelAdam([{"params": [weight()], "momentum": 0.9}]),
        ValueError,
        "no option 'momentum'",
    ),
    "option cut short": (lambda: group(group=2), ValueError, "did you mean 'group_size'"),
    "misspelled option of Adam": (
        lambda: StiefelAdam([{"params": [weight()], "beta": (0.9, 0.9)}]),
        ValueError,
        "did you mean 'betas'",
    ),
    "unconstrained parameter": (
        lambda: named(OrthogonalLinear(5, 3, bias=False), "parametrizations.weight.original"),
        ValueError,
        r"parametrizations.weight.original is the unconstrained parameter.*SGD\(orthonorm.param_groups",
    ),
    "manifold": (lambda: group(manifold=1), TypeError, "manifold must be True or False; got 1"),
    "group size": (lambda: sgd(group_size=0), ValueError, "group_size must be at least 1.*got 0"),
    "bias": (
        lambda: sgd(weight((4,))),
        ValueError,
        r"got the shape \(4,\)\. Put biases and scales in a parameter group with manifold=False",
    ),
    "complex": (lambda: sgd(weight(dtype=torch.complex64)), TypeError, "not complex.*complex64"),
    "bfloat16": (
        lambda: sgd(weight(dtype=torch.bfloat16)),
        TypeError,
        "got torch.bfloat16.*Keep the parameter in float32",
    ),
    "float16": (lambda: sgd(weight(dtype=torch.float16)), TypeError, "got torch.float16"),
    "NaN": (
        lambda: sgd(weight(value=torch.nan)),
        ValueError,
        r"weight of shape \(3, 5\) has entries that are not finite",
    ),
    "lazy": (lambda: sgd(nn.LazyLinear(3).weight), ValueError, "lazy parameter has no shape yet.*[Rr]un one forward"),
    "sparse": (
        lambda: with_sparse_gradient(StiefelSGD)[0].step(),
        TypeError,
        "on the manifold needs a dense gradient; got torch.sparse_coo.*sparse=False or set manifold=False",
    ),
    "sparse with decay": (
        lambda: with_sparse_gradient(StiefelSGD, manifold=False, weight_decay=0.1)[0].step(),
        TypeError,
        "weight decay needs a dense gradient.*or set weight_decay=0",
    ),
    "sparse for Adam": (
        lambda: with_sparse_gradient(StiefelAdam)[0].step(),
        TypeError,
        "StiefelAdam needs a dense gradient; got torch.sparse_coo.*torch.optim.SparseAdam",
    ),
    "sparse for Adam off the manifold": (
        lambda: with_sparse_gradient(StiefelAdam, manifold=False)[0].step(),
        TypeError,
        "StiefelAdam needs a dense gradient; got torch.sparse_coo.*torch.optim.SparseAdam",
    ),
    "tall": (lambda: project(torch.ones(5, 3)), ValueError, r"n <= d; got \(5, 3\)\. Pass the transpose W.mT"),
    "vector": (lambda: unwrap(project)(torch.ones(5)), ValueError, r"got \(5,\)"),
    "half": (lambda: project(torch.ones(3, 5).half()), TypeError, "float32 or float64; got torch.float16"),
    "not finite": (lambda: project(torch.full((3, 5), torch.inf)), ValueError, "must be finite.*got NaN or infinity"),
    "haar": (lambda: haar(5, 3), ValueError, r"got \(5, 3\)"),
    "haar type": (lambda: haar(3, 5, dtype=torch.complex64), TypeError, "got torch.complex64"),
    "shapes": (lambda: unwrap(project_tangent)(W, W[:2]), ValueError, r"got \(2, 5\) torch.float64"),
    "types": (lambda: retract_qr(W, W.float()), ValueError, r"got \(3, 5\) torch.float32"),
    "gradient's metric": (
        lambda: riemannian_gradient(W, W, "cayley"),
        ValueError,
        r"one of \['canonical', 'euclidean'\]; got 'cayley'",
    ),
    "inner's metric": (lambda: inner(W, W, W, "x"), ValueError, "got 'x'"),
    "layout": (lambda: matrix_layout((3,)), ValueError, r"got the shape \(3,\)"),
    "penalty": (lambda: unwrap(soft_orthogonality)(torch.ones(2, 2, dtype=torch.int64)), TypeError, "got torch.int64"),
    "check in float32": (
        lambda: check_tangent(W.float(), W.float()),
        TypeError,
        r"must be float64.*got torch.float32\. Pass W.double\(\)",
    ),
    "check off the manifold": (
        lambda: check_retraction(retract_qr, 2 * W),
        ValueError,
        r"= 3.0e\+00\. Pass project\(W\)",
    ),
    "check along nothing": (lambda: check_tangent(W, 0 * W), ValueError, "finite and not zero"),
    "check of a batch": (
        lambda: unwrap(check_metric)(torch.sum, W[None]),
        ValueError,
        r"one matrix \(n, d\); got the shape \(1, 3, 5\)",
    ),
}


@pytest.mark.usefixtures("unenforced")
@pytest.mark.parametrize("case", CASES)
def test_wrong_input(case):
    call, exception, message = CASES[case]
    with pytest.raises(exception, match=f"(?s){message}"):
        call()


def test_names_of_their_own_that_begin_as_an_option_stay_in_the_group():
    tags = {"weight_decay_scale": 2.0, "momentum_decay": 4e-3, "lr_scale": 0.5}
    assert tags.items() <= group(**tags).param_groups[0].items()


def test_keys_that_others_read_stay_in_the_group():
    others = {"name": "encoder", "lr_scale": 0.5, "layer_id": 3, "max_momentum": 0.95, "initial_lr": 0.1}
    assert others.items() <= group(**others).param_groups[0].items()


def test_the_groups_of_an_optimizer_of_torch_are_taken_where_none_of_their_options_is_lost():
    [theirs] = torch.optim.SGD([on_manifold((3, 5))], lr=0.1, momentum=0.9, foreach=True).param_groups
    assert StiefelSGD([theirs]).param_groups[0]["momentum"] == 0.9


@pytest.mark.parametrize("cls", [StiefelSGD, StiefelAdam, Landing, StiefelMuon])
def test_every_option_is_a_key_of_a_group_and_survives_saving(cls):
    optimizer = cls([on_manifold((3, 5))], lr=0.1)
    again = cls([{"params": [on_manifold((3, 5))], **optimizer.defaults}])
    again.load_state_dict(optimizer.state_dict())
    again.param_groups[0]["tag"] = 3  # a key for something else, set later
    again.load_state_dict(again.state_dict())
    assert again.param_groups[0]["tag"] == 3


def test_a_scheduler_of_momentum_and_a_second_optimizer_of_its_groups():
    optimizer = sgd(momentum=0.9)
    torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=3)
    assert StiefelSGD(optimizer.param_groups).param_groups[0]["max_lr"] == 0.1


@pytest.mark.parametrize(("start", "zero"), [(weight(value=0.0), True), (weight(), False)], ids=["zeros", "ones"])
def test_a_start_of_zeros_is_told_from_one_that_has_a_nearest_matrix(start, zero):
    with pytest.warns(UserWarning, match="moved 1 of 1 weights") as caught:
        sgd(start)
    assert ("In 1 of them all rows, or those of a group, were zero" in str(caught[0].message)) is zero


@pytest.mark.parametrize("size", [1e160, 1e-200])
def test_a_start_whose_squares_leave_the_range_of_its_type_is_moved_too(size: float):
    weight = nn.Parameter(torch.randn(3, 6, dtype=torch.float64) * size)
    with pytest.warns(UserWarning, match="moved 1 of 1 weights onto the manifold"):
        StiefelSGD([weight], lr=0.1)
    torch.testing.assert_close(weight @ weight.mT, torch.eye(3, dtype=torch.float64), rtol=0, atol=1e-12)
