"""What an optimizer refuses leaves everything as it was: weights, groups and state."""

import copy

import pytest
import torch
from torch import nn

from optim.problems import on_manifold, weight, with_sparse_gradient
from orthonorm.optim import Landing, StiefelAdam, StiefelMuon, StiefelSGD


def sgd(param: nn.Parameter | None = None) -> StiefelSGD:
    """An optimizer over one good weight, or the given one."""
    return StiefelSGD([on_manifold((3, 5)) if param is None else param])


def test_a_refused_group_leaves_the_optimizer_as_it_was():
    optimizer = sgd()
    with pytest.raises(TypeError, match="complex"):
        optimizer.add_param_group({"params": [weight(dtype=torch.complex64)]})
    assert len(optimizer.param_groups) == 1


# Makes an optimizer over a weight that is off the manifold and over what no optimizer takes; a pattern of the message.
REFUSED = {
    "decay for nobody": (lambda off: StiefelSGD([off], weight_decay=0.1), "weight_decay=0.1 would do nothing"),
    "not finite": (lambda off: StiefelSGD([off, weight((2, 4), value=torch.nan)]), "not finite"),
    "decay for nobody near the manifold": (lambda off: Landing([off], weight_decay=0.1), "would do nothing"),
    "decay for nobody in Muon": (lambda off: StiefelMuon([off], weight_decay=0.1), "would do nothing"),
    "not finite in another group": (
        lambda off: StiefelAdam([{"params": [off]}, {"params": [weight(value=torch.inf)]}]),
        "not finite",
    ),
    "a bias in another group": (
        lambda off: StiefelAdam([{"params": [off]}, {"params": [weight((4,))]}]),
        "Put biases and scales in a parameter group",
    ),
    "misspelled in another group": (
        lambda off: StiefelSGD([{"params": [off]}, {"params": [weight()], "manifol": True}]),
        "no option 'manifol'",
    ),
    "in two groups": (lambda off: StiefelSGD([{"params": [off]}, {"params": [off]}]), "more than one parameter group"),
    "not finite, added later": (
        lambda off: sgd().add_param_group({"params": [off, weight(value=torch.nan)]}),
        "not finite",
    ),
}


@pytest.mark.filterwarnings("ignore")  # a move is told first, and as an error it would not happen
@pytest.mark.parametrize("case", REFUSED)
def test_an_optimizer_that_is_refused_has_moved_nothing(case):
    make, message = REFUSED[case]
    off = weight()
    with pytest.raises(ValueError, match=message):
        make(off)
    assert torch.equal(off, weight())


def trained(cls, groups=None, **options):
    """An optimizer that has taken a step, over the given groups or a group on the manifold and one off it."""
    groups = groups or [{"params": [on_manifold((3, 5))]}, {"params": [weight((4,))], "manifold": False}]
    optimizer = cls(groups, lr=0.1, **options)
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = torch.ones_like(param)
    optimizer.step()
    return optimizer


def swapped():
    """The state of an optimizer with its groups in another order."""
    groups = [{"params": [weight((4,))], "manifold": False}, {"params": [on_manifold((3, 5))]}]
    return trained(StiefelSGD, groups, momentum=0.9).state_dict()


def torchs(cls, **options):
    """The state of an optimizer of torch, of groups like those here."""
    return trained(cls, [{"params": [on_manifold((3, 5))]}, {"params": [weight((4,))]}], **options).state_dict()


# An optimizer, a state that is not its, and a pattern of the message.
FOREIGN = {
    "SGD's": (
        StiefelSGD,
        lambda: torchs(torch.optim.SGD, momentum=0.9),
        "must have lr, .*group 0 has no metric, retraction, group_size, manifold, stacked, so another",
    ),
    "Adam's": (StiefelAdam, lambda: torchs(torch.optim.Adam), "no metric, .*the weights"),
    "StiefelAdam's": (StiefelSGD, lambda: trained(StiefelAdam).state_dict(), "group 0 has no momentum"),
    "StiefelSGD's": (StiefelAdam, lambda: trained(StiefelSGD).state_dict(), "group 0 has no betas, eps"),
    "SGD's for Landing": (
        Landing,
        lambda: trained(StiefelSGD).state_dict(),
        "group 0 has no attraction, eps",
    ),
    "SGD's for Muon": (StiefelMuon, lambda: trained(StiefelSGD).state_dict(), "group 0 has no tolerance"),
    "Adam's for Landing": (
        Landing,
        lambda: trained(StiefelAdam).state_dict(),
        "has no momentum, nesterov, attraction",
    ),
    "Landing's": (StiefelSGD, lambda: trained(Landing).state_dict(), "group 0 has no metric, retraction"),
    "Muon's": (StiefelSGD, lambda: trained(StiefelMuon).state_dict(), "group 0 has no metric,"),
    "other groups": (StiefelSGD, swapped, "group 0 .*manifold=True.*got manifold=False.*order"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_state_of_another_optimizer_is_refused_when_it_is_loaded(case):
    cls, state, message = FOREIGN[case]
    optimizer = trained(cls)
    groups, moments = copy.deepcopy(optimizer.param_groups), list(optimizer.state.values())
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(state())
    assert [group.keys() for group in optimizer.param_groups] == [group.keys() for group in groups]
    assert list(optimizer.state.values()) == moments
    optimizer.step()


@pytest.mark.parametrize("cls", [StiefelSGD, StiefelAdam, Landing, StiefelMuon])
def test_a_state_of_its_own_is_loaded_as_often_as_one_likes(cls):
    optimizer = trained(cls)
    state = optimizer.state_dict()
    other = copy.deepcopy(optimizer)  # after which torch has a default of its own that no group has
    for _ in range(2):
        other.load_state_dict(state)
    assert other.state_dict()["param_groups"] == state["param_groups"]


def test_a_hook_may_complete_a_state_of_another_optimizer():
    optimizer = trained(StiefelSGD)
    own = [{name: group[name] for name in group if name != "params"} for group in optimizer.param_groups]

    def complete(_, state):
        pairs = zip(own, state["param_groups"], strict=True)
        return {**state, "param_groups": [{**mine, **theirs} for mine, theirs in pairs]}

    optimizer.register_load_state_dict_pre_hook(complete)
    optimizer.load_state_dict(torchs(torch.optim.SGD, momentum=0.5))
    assert [group["manifold"] for group in optimizer.param_groups] == [True, False]
    assert [group["momentum"] for group in optimizer.param_groups] == [0.5, 0.5]
    optimizer.step()


@pytest.mark.parametrize("cls", [StiefelSGD, StiefelAdam, Landing, StiefelMuon])
def test_a_step_that_a_sparse_gradient_forbids_moves_nothing(cls):
    optimizer, weights = with_sparse_gradient(cls)
    before = [param.detach().clone() for param in weights]
    with pytest.raises(TypeError, match="dense gradient"):
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(weights, before, strict=True))
    assert not optimizer.state


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_an_ordinary_group_takes_a_sparse_gradient_as_torch_does(momentum):
    optimizer, weights = with_sparse_gradient(StiefelSGD, manifold=False, momentum=momentum)
    twin, twins = with_sparse_gradient(lambda groups, lr: torch.optim.SGD(groups, lr), momentum=momentum)
    for _ in range(2):
        optimizer.step()
        twin.step()
    assert all(torch.equal(a, b) for a, b in zip(weights, twins, strict=True))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", [sgd, lambda off: sgd().add_param_group({"params": [off]})], ids=["new", "added"])
def test_where_the_warning_is_an_error_nothing_is_moved(make):
    off = weight()
    with pytest.raises(UserWarning, match="moved 1 of 1"):
        make(off)
    assert torch.equal(off, weight())


@pytest.mark.filterwarnings("error")
def test_a_group_whose_warning_is_an_error_is_not_added():
    optimizer = sgd()
    with pytest.raises(UserWarning, match="moved 1 of 1"):
        optimizer.add_param_group({"params": [weight()]})
    assert len(optimizer.param_groups) == 1
