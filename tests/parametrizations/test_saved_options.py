"""A checkpoint remembers how every V was mapped, and says so where they are mapped in another way."""

import io
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import orthonorm as on


def model(**options: Any) -> nn.Module:
    given: dict[str, Any] = {"group_size": 4, **options}
    config = on.OrthogonalConfig(**given)
    return on.orthogonalize_(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 12), nn.Linear(12, 2)), config
    )


def saved(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state after a journey through a file."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


OTHERS = {
    "smaller groups": (
        {"group_size": 2},
        "groups of 2 x 4 rows, not centred, but this model has groups of 4 x 2 rows",
    ),
    "one tail": (
        {"group_size": 5, "grouping": "tail"},
        r".*this model has groups of 1 x 5 \+ 1 x 3 rows, not centred",
    ),
    "centred": ({"center": True}, ".*this model has groups of 2 x 4 rows, centred"),
}


@pytest.mark.parametrize(("options", "message"), OTHERS.values(), ids=OTHERS)
def test_v_of_other_options_is_loaded_with_a_warning_that_names_both(options: dict[str, Any], message: str):
    state, other = saved(model().state_dict()), model(**options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        other.load_state_dict(state)
    assert len(caught) == 2  # a layer each
    first, second = (str(entry.message) for entry in caught)
    assert re.search(rf"the V loaded for 0\.weight was trained with {message}", first)
    assert "the V loaded for 2.weight" in second
    assert torch.equal(
        other.state_dict()["0.parametrizations.weight.original"], state["0.parametrizations.weight.original"]
    )


@pytest.mark.parametrize(
    "state",
    [
        lambda: saved(model().state_dict()),
        lambda: dict(model(group_size=2).state_dict()),  # torch's data beside the tensors is gone
        lambda: on.fold(model(group_size=2)).state_dict(),
    ],
    ids=["the same options", "tensors alone", "plain"],
)
def test_what_tells_no_other_options_is_loaded_in_silence(state: Callable[[], dict[str, Tensor]]):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model().load_state_dict(state())
    assert [str(entry.message) for entry in caught] == []


def test_no_key_shows_the_options():
    plain = {key for key in nn.Linear(8, 12).state_dict() if key != "weight"}
    layer = on.orthogonal_weight_norm(nn.Linear(8, 12))
    assert set(layer.state_dict()) == plain | {"parametrizations.weight.original"}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("options", [{}, {"use_trivialization": False}])
def test_v_of_torchs_own_parametrization_is_refused(options: dict[str, bool], strict: bool):
    other = nn.Sequential(torch.nn.utils.parametrizations.orthogonal(nn.Linear(8, 8), "weight", **options))
    ours = nn.Sequential(on.orthogonal_weight_norm(nn.Linear(8, 8)))
    with pytest.raises(RuntimeError, match=r"0\.weight .*remove_parametrizations"):
        ours.load_state_dict(other.state_dict(), strict=strict)
    # The cure.
    torch.nn.utils.parametrize.remove_parametrizations(other[0], "weight")
    ours.load_state_dict(other.state_dict())
    torch.testing.assert_close(ours[0].weight, other[0].weight, rtol=0, atol=1e-5)


def test_v_of_ours_loads_without_the_data_beside_the_tensors():
    model = nn.Sequential(on.orthogonal_weight_norm(nn.Linear(8, 6)))
    other = nn.Sequential(on.orthogonal_weight_norm(nn.Linear(8, 6)))
    other.load_state_dict(dict(model.state_dict()))
    assert torch.equal(other[0].weight, model[0].weight)
