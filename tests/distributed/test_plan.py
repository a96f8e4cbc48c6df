"""The planner against what torch counts on real ranks, and at the size of a cluster."""

import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision.models import get_model

import orthonorm as on
from on_ranks import networks, planned
from on_ranks.pool import Pool
from orthonorm.cli import main
from orthonorm.cli._plan import converted_model
from orthonorm.distributed import plan
from orthonorm.distributed._row_groups import share_out

MEASURED = [(name, world, "divide") for name in ("vgg", "resnet50") for world in (1, 2, 4)]
SHARDED = [("vgg", 4, "shard"), ("resnet50", 2, "shard")]


@pytest.mark.parametrize(
    ("name", "world", "setup"),
    [
        *(pytest.param(*case, id="-".join(map(str, case))) for case in MEASURED),
        *(pytest.param(*case, id="-".join(map(str, case)), marks=pytest.mark.fsdp2) for case in SHARDED),
    ],
)
def test_operations_and_bytes_are_those_that_torch_counts(ranks: Pool, name: str, world: int, setup: str):
    found = plan(networks.large(name, values=False), world, setup=setup)
    measured = ranks.run(world, planned.measured, name, setup)
    assert [collectives for _, _, collectives in measured] == [found.collectives] * world
    for (operations, sent, _), planned_operations, planned_sent in zip(
        measured, found.operations, found.sent, strict=True
    ):
        assert planned_operations == pytest.approx(operations, rel=0.05)
        assert planned_sent == pytest.approx(sent, rel=0.05)


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("name", ["vgg", "resnet50"])
def test_a_rank_does_at_most_1_15_of_its_equal_share(name: str, world: int):
    found = plan(networks.large(name, values=False), world)
    assert max(found.operations) <= 1.15 / world * found.single


@given(costs=st.lists(st.integers(1, 50), min_size=1, max_size=12), ranks=st.integers(1, 4))
def test_work_is_shared_out_within_grahams_bound(costs: list[int], ranks: int):
    owners = share_out(costs, ranks)
    loads = [sum(cost for cost, owner in zip(costs, owners, strict=True) if owner == rank) for rank in range(ranks)]
    assert sum(loads) == sum(costs)
    best = min(max(split) for split in splits(costs, ranks))
    assert max(loads) <= (4 / 3 - 1 / (3 * ranks)) * best + 1e-9


def splits(costs: list[int], ranks: int) -> set[tuple[int, ...]]:
    """Every way to split the work, as sorted loads."""
    found = {(0,) * ranks}
    for cost in costs:
        found = {tuple(sorted((*loads[:i], loads[i] + cost, *loads[i + 1 :]))) for loads in found for i in range(ranks)}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("setup", ["divide", "shard"])
def test_a_cluster_of_1024_ranks_is_simulated(setup: str):
    model = networks.large("resnet50", values=False)
    found = plan(model, 1024, setup=setup)
    assert sum(found.operations) == found.single == plan(model, 1).single
    groups = sum(len(owner.sizes) for owner in owners(model))
    assert found.groups == groups == 415
    # More ranks than groups: one group a rank at most when divided, and the dearest group is the limit.
    assert found.idle == 1024 - groups if setup == "divide" else found.idle > 1024 - groups
    assert f"{found.idle} ranks idle" in str(found)
    assert len(str(found).splitlines()) < 8


def owners(model: torch.nn.Module) -> list[on.OrthogonalWeightNorm]:
    return [module for module in model.modules() if isinstance(module, on.OrthogonalWeightNorm)]


def test_the_summary_has_a_row_for_each_of_a_few_ranks():
    text = str(plan(torch.nn.Sequential(on.OrthogonalLinear(64, 30, group_size=8)), 4, setup="shard"))
    assert text.startswith("shard: 4 groups of rows in 1 weight, on 4 ranks\n")
    # 30 rows in groups of 8, 8, 7, 7 with borders at 8, 16, 24: the last border cuts 23 to 30 after one row.
    assert "groups cut by a border between ranks: 1 (their rows beyond it travel" in text
    assert [line.split(":")[0] for line in text.splitlines()[4:]] == [f"rank {rank:2d}" for rank in range(4)]


def test_one_of_a_thing_is_one():
    text = str(plan(torch.nn.Sequential(on.OrthogonalLinear(64, 30)), 1))
    assert text.startswith("divide: 1 group of rows in 1 weight, on 1 rank\n")
    assert ", 0 ranks idle\n" in text


def test_a_plan_of_a_file_says_what_it_took(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    torch.save({"body.weight": torch.randn(4, 9), "fc.weight": torch.randn(2, 9)}, tmp_path / "plain.pt")
    main(["plan", str(tmp_path / "plain.pt"), "--ranks", "2"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == (
        "taken from the file: every V, or if none every matrix, a classifier's too (body.weight to fc.weight)"
    )
    main(["plan", "alexnet", "--ranks", "2"])
    assert "taken from the file" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "groups"), [([], 10), (["--group-size", "64"], 2), (["--group-size", "0"], 1)], ids=["", "64", "limit"]
)
def test_a_plan_takes_the_groups_that_a_file_remembers_unless_others_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], groups: int
):
    state = torch.nn.Sequential(on.OrthogonalLinear(80, 70, group_size=7)).state_dict()
    torch.save(state, tmp_path / "remembers.pt")
    main(["plan", str(tmp_path / "remembers.pt"), *options])
    assert f": {groups} group{'s' * (groups > 1)} of rows" in capsys.readouterr().out
    torch.save(dict(state), tmp_path / "forgot.pt")
    main(["plan", str(tmp_path / "forgot.pt"), *options])
    assert f": {groups if options else 2} group" in capsys.readouterr().out


def test_a_cut_group_costs_its_smaller_part_both_ways():
    whole = plan(torch.nn.Sequential(on.OrthogonalLinear(64, 32, group_size=8)), 4, setup="shard")
    assert len(set(whole.sent)) == 1
    cut = plan(torch.nn.Sequential(on.OrthogonalLinear(64, 30, group_size=8)), 4, setup="shard")
    # Row 23, of 64 float32, goes from rank 2 to rank 3, and its gradient back.
    extra = [sent - min(cut.sent) for sent in cut.sent]
    assert extra == [0, 0, 256, 256]


WRONG_CALLS: dict[str, tuple[Any, type[Exception], str]] = {
    "plain model": (lambda: plan(torch.nn.Linear(8, 4), 2), ValueError, "has no orthogonal weight to plan for"),
    "ranks": (lambda: plan(on.OrthogonalLinear(8, 4), 0), ValueError, "ranks must be at least 1; got 0"),
    "no number": (lambda: plan(on.OrthogonalLinear(8, 4), 2.0), TypeError, "whole number; got 2.0"),  # type: ignore[arg-type]
    "setup": (lambda: plan(on.OrthogonalLinear(8, 4), 2, setup="ddp"), ValueError, "'divide', 'shard'; got 'ddp'"),
    "not a module": (lambda: plan(3, 2), TypeError, "must be a torch.nn.Module; got int"),  # type: ignore[arg-type]
}


@pytest.mark.usefixtures("unenforced")
@pytest.mark.parametrize(("call", "error", "message"), WRONG_CALLS.values(), ids=WRONG_CALLS)
def test_wrong_calls_say_the_rule_and_the_cure(call: Any, error: type[Exception], message: str):
    with pytest.raises(error, match=re.escape(message)):
        call()


class Result(NamedTuple):
    exit_code: Any
    output: str
    stderr: str


def command(*arguments: str) -> Result:
    """Run `orthonorm plan` in this process."""
    code: Any = 0
    with redirect_stdout(StringIO()) as output, redirect_stderr(StringIO()) as stderr:
        try:
            main(["plan", *arguments])
        except SystemExit as stop:
            code = stop.code
    return Result(code, output.getvalue(), stderr.getvalue())


def test_the_command_plans_a_model_by_name():
    with torch.device("meta"):
        model = get_model("resnet18")
    on.orthogonalize_(model, on.OrthogonalConfig(group_size=64))
    result = command("resnet18", "--ranks", "1024")
    assert result.exit_code == 0
    assert result.output.strip() == str(plan(model, 1024))


def test_the_command_plans_a_checkpoint_plain_or_converted(tmp_path: Path):
    plain = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.Linear(30, 20))
    torch.save(plain.state_dict(), tmp_path / "plain.pt")
    on.orthogonalize_(plain, on.OrthogonalConfig(group_size=16), lambda module, _: isinstance(module, torch.nn.Linear))
    torch.save(plain.state_dict(), tmp_path / "converted.pt")
    wanted = str(plan(plain, 2, setup="shard"))
    for name in ("plain.pt", "converted.pt"):
        options = ("--ranks", "2", "--group-size", "16", "--setup", "shard")
        assert command(str(tmp_path / name), *options).output.startswith(f"{wanted}\ntaken from the file: ")


@pytest.mark.slow
def test_the_command_leaves_out_what_cannot_be_sharded(tmp_path: Path):
    name = "maskrcnn_resnet50_fpn"  # its masks are made by a transposed convolution
    with torch.device("meta"):
        model = get_model(name, weights_backbone=None)
    on.orthogonalize_(model, on.OrthogonalConfig(group_size=64))
    result = command(name, "--setup", "shard")
    assert result.output.strip() == str(plan(model, 8, setup="shard"))

    up = {"up.weight": torch.randn(16, 8, 3, 3), "up.bias": torch.zeros(8)}
    torch.save({"body.weight": torch.randn(4, 9), **up}, tmp_path / "both.pt")
    assert " in 1 weight, " in command(str(tmp_path / "both.pt"), "--setup", "shard").output
    assert " in 2 weights, " in command(str(tmp_path / "both.pt")).output


def test_a_plan_takes_a_shared_weight_once_and_only_if_all_its_layers_can_be_sharded():
    layers = torch.nn.Sequential(on.OrthogonalConvTranspose1d(8, 8, 3), on.OrthogonalConv1d(8, 8, 3))
    layers[1].parametrizations.weight.original = layers[0].parametrizations.weight.original  # type: ignore[union-attr]
    assert plan(layers, 2).weights == 1
    with pytest.raises(ValueError, match="fully_shard"):
        plan(layers, 2, setup="shard")


MISTAKES = {
    "no model": (("resnet51",), "got 'resnet51'"),
    "no file": (("weights.pt",), "there is no file weights.pt"),
    "ranks": (("resnet18", "--ranks", "0"), "ranks must be at least 1; got 0"),
    "setup": (("resnet18", "--setup", "ddp"), "setup must be one of 'divide', 'shard'; got 'ddp'"),
}


@pytest.mark.parametrize(("arguments", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_of_the_command_is_one_line(arguments: tuple[str, ...], message: str):
    result = command(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.usefixtures("unenforced")
def test_a_file_of_numbers_that_are_not_real_is_a_mistake_too(tmp_path: Path):
    state = on.OrthogonalLinear(9, 4).state_dict()
    torch.save({key: value.to(torch.complex64) for key, value in state.items()}, tmp_path / "model.pt")
    result = command(str(tmp_path / "model.pt"))
    assert result.exit_code == 2
    assert result.stderr.startswith("orthonorm: weight is complex")


def test_no_pretrained_weights_are_fetched(monkeypatch: pytest.MonkeyPatch):
    def fetch(*_: Any, **__: Any) -> Any:
        raise AssertionError("this would download")

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fetch)
    assert converted_model("ssdlite320_mobilenet_v3_large", on.OrthogonalConfig(group_size=64))


def test_a_name_of_a_model_needs_torchvision(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(ImportError, match=r"resnet50.*torchvision"):
        converted_model("resnet50", on.OrthogonalConfig())


def test_the_command_plans_a_shared_parameter_of_a_file_once(tmp_path: Path):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    model[1].weight = model[0].weight
    on.orthogonalize_(model, filter_fn=lambda module, _: isinstance(module, torch.nn.Linear))
    torch.save(model.state_dict(), tmp_path / "tied.pt")
    for setup in ("divide", "shard"):
        output = command(str(tmp_path / "tied.pt"), "--ranks", "2", "--setup", setup).output
        assert output.startswith(str(plan(model, 2, setup=setup)))
