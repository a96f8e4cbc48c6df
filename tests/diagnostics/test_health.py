"""The hook and the Lightning callback: what they log, and that they name the layer that broke."""

import math
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import orthonorm as on
from orthogonal_layers import free, matrix, weight


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), on.OrthogonalLinear(4, 3, group_size=1), nn.Linear(3, 2))


def healthy(net: nn.Module) -> None:
    """Change nothing."""


def lose_rank(net: nn.Module) -> None:
    with torch.no_grad():
        V = net[0].parametrizations.weight.original  # type: ignore[index]
        V[2] = 2 * V[0]


def put_nan(net: nn.Module) -> None:
    with torch.no_grad():
        net[2].parametrizations.weight.original[0, 0] = math.nan  # type: ignore[index]


BREAKS = [
    pytest.param(healthy, [], id="healthy"),
    pytest.param(lose_rank, ["0.weight has lost rank"], id="dependent rows"),
    pytest.param(put_nan, ["2.weight is not finite"], id="not a number"),
]


@pytest.mark.parametrize(("damage", "expected"), BREAKS)
def test_the_layer_that_broke_is_named(damage: Callable[[nn.Module], None], expected: list[str]):
    net = model()
    on.orthogonalize_(net, None, lambda _, fqn: fqn == "0")
    damage(net)
    assert [problem.partition(":")[0] for problem in on.weight_problems(net)] == expected
    hook = on.OrthogonalityHook(net)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hook.look(7)
    assert [str(w.message).partition(":")[0] for w in caught] == ["step 7"] * len(expected)
    assert all(w.category is on.OrthogonalityWarning for w in caught)


HALF = (torch.bfloat16, torch.float16)


@pytest.mark.parametrize("method", ["eigh", "newton"])
@pytest.mark.parametrize("dtype", [*HALF, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("n", "d"), [(3, 4), (16, 32), (64, 65)])
def test_no_healthy_weight_is_reported(n: int, d: int, dtype: torch.dtype, method: str):
    net = nn.Sequential(on.OrthogonalLinear(d, n, method=method, dtype=dtype))
    # Two passes in float32, which "newton" is, hold directions up to a condition number of 1e3.
    narrow = dtype in HALF or (dtype == torch.float32 and method == "newton")
    for condition in (1.0, 1e2, 1e3) if narrow else (1.0, 1e3, 1e5, 1e6):
        values = torch.logspace(0, -math.log10(condition), n, dtype=torch.float64)
        with torch.no_grad():
            free(net[0]).copy_(matrix(n, d, values))
        assert on.weight_problems(net) == []


def depend(V: torch.Tensor) -> None:
    V[2] = V[0] + V[1]


def repeat(V: torch.Tensor) -> None:
    V[2] = V[0]


def vanish(V: torch.Tensor) -> None:
    V[2] = 0


def spread(V: torch.Tensor) -> None:
    """Lose the direction that all rows share: its share of each row is the smallest there is, 1/n."""
    V -= V.mean(0)


DAMAGES = [depend, repeat, vanish, spread]


# A sum of rows, rounded to half precision, is none of them: nothing is lost.
DAMAGED = [
    (damage, dtype)
    for damage in DAMAGES
    for dtype in (*HALF, torch.float32, torch.float64)
    if dtype not in HALF or damage in (repeat, vanish)
]


@pytest.mark.parametrize(("damage", "dtype"), DAMAGED)
@pytest.mark.parametrize("method", ["eigh", "newton"])
@pytest.mark.parametrize(("n", "d"), [(16, 32), (128, 200)])
def test_every_lost_direction_is_reported_and_the_cure_that_is_named_helps(
    damage, dtype: torch.dtype, method: str, n: int, d: int
):
    net = nn.Sequential(on.OrthogonalLinear(d, n, method=method, dtype=dtype))
    with torch.no_grad():
        damage(free(net[0]))
    assert torch.linalg.svdvals(weight(net[0]).detach().double())[-1] < 0.5
    problems = on.weight_problems(net)
    assert [problem.partition(":")[0] for problem in problems] == ["0.weight has lost rank"]
    assert "recenter_" in problems[0]
    assert on.weight_problems(on.recenter_(net)) == []
    assert torch.linalg.svdvals(weight(net[0]).detach().double())[-1] > 0.99


def test_the_hook_logs_what_inspect_says_every_so_many_steps():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    logged: list[tuple[str, float, int]] = []
    handle = on.OrthogonalityHook(net, lambda *entry: logged.append(entry), every=2).attach(optimizer)
    for _ in range(5):
        optimizer.zero_grad()
        net(torch.randn(4, 6)).square().sum().backward()
        optimizer.step()
    assert [(name, step) for name, _, step in logged[:3]] == [
        ("orthogonality_error/2.weight", 2), ("condition/2.weight", 2), ("norm/2.weight", 2),
    ]  # fmt: skip
    assert [step for *_, step in logged] == [2] * 3 + [4] * 3
    handle.remove()
    row = on.inspect(net).layers[0]
    assert on.weight_metrics(net) == {
        "orthogonality_error/2.weight": row.error, "condition/2.weight": row.condition, "norm/2.weight": row.norm,
    }  # fmt: skip
    optimizer.step()
    assert len(logged) == 6


def test_the_hook_writes_to_tensorboard(tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    net = model()
    with SummaryWriter(tmp_path) as writer:
        on.OrthogonalityHook(net, writer.add_scalar).look(3)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    (scalar,) = events.Scalars("norm/2.weight")
    assert (scalar.step, scalar.value) == (3, pytest.approx(on.inspect(net).layers[0].norm))


@pytest.mark.parametrize("every", [0, -1])
def test_the_period_is_positive(every: int):
    from orthonorm.integrations.lightning import OrthogonalityCallback

    for make in (lambda: on.OrthogonalityHook(model(), every=every), lambda: OrthogonalityCallback(every)):
        with pytest.raises(ValueError, match=f"every must be at least 1 step; got {every}"):
            make()


def test_a_model_without_orthogonal_weights_is_refused():
    with pytest.raises(ValueError, match="has no orthogonal weight"):
        on.OrthogonalityHook(nn.Linear(2, 2))


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:.*does not have many workers:UserWarning"
)
@pytest.mark.filterwarnings("ignore:.*`treespec, LeafSpec`.*:UserWarning", "ignore:You are using the:UserWarning")
def test_the_lightning_callback_writes_to_tensorboard_and_names_the_layer(tmp_path: Path):
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.loggers import TensorBoardLogger
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from orthonorm.integrations.lightning import OrthogonalityCallback

    class Training(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = model()

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            if index == 6:
                put_nan(self.net)
            return self.net(batch).square().sum()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    trainer = Trainer(
        max_epochs=1, accelerator="cpu", logger=TensorBoardLogger(tmp_path), callbacks=[OrthogonalityCallback(every=2)],
        accumulate_grad_batches=2, log_every_n_steps=1, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False,
        default_root_dir=tmp_path,
    )  # fmt: skip
    batches = torch.utils.data.DataLoader(torch.randn(32, 6), batch_size=4)  # type: ignore[arg-type]
    with pytest.warns(on.OrthogonalityWarning, match=r"step 4: net\.2\.weight is not finite"):
        trainer.fit(Training(), batches)
    assert trainer.logger is not None
    events = EventAccumulator(str(trainer.logger.log_dir))
    events.Reload()
    scalars = events.Scalars("norm/net.2.weight")
    assert [entry.step for entry in scalars] == [2, 4]
    assert scalars[0].value == pytest.approx(1.0, abs=0.5)
