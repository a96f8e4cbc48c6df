"""The page on several processes: its scripts run and train as one process does, its table is the planner's."""

import re
import socket
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import orthonorm as on
from on_ranks import networks, scripts
from on_ranks.pool import Pool
from orthonorm.distributed import plan

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
SCRIPTS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
NAMES = ["divide_", "shard_", "tensor_parallel_"]


def one_process() -> dict[str, Tensor]:
    torch.manual_seed(0)
    x, y = torch.randn(64, 20), torch.randint(0, 5, (64,))
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 5))
    on.orthogonalize_(model, on.OrthogonalConfig(group_size=8, scale="row_norms"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    return networks.plain_state(model)


def test_the_page_has_one_script_a_set_up():
    assert len(SCRIPTS) == len(NAMES)
    for script, name in zip(SCRIPTS, NAMES, strict=True):
        assert f"import {name}" in script


MARKS = {"shard_": [pytest.mark.fsdp2]}


@pytest.mark.parametrize(
    "script",
    [pytest.param(script, id=name, marks=MARKS.get(name, ())) for script, name in zip(SCRIPTS, NAMES, strict=True)],
)
def test_a_script_of_the_page_trains_as_one_process_does(ranks: Pool, script: str):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    wanted = one_process()
    for state in ranks.run(2, scripts.run, script, 2, port, group=False, numbered=True):
        assert state.keys() == wanted.keys() or state == {}
        for key, value in state.items():
            torch.testing.assert_close(value, wanted[key], rtol=0, atol=1e-6)


def table(name: str) -> list[str]:
    model = networks.large(name, values=False)
    rows = []
    for ranks in (2, 4, 8, 64, 1024):
        divided, sharded = (plan(model, ranks, setup=setup) for setup in ("divide", "shard"))
        numbers = (max(divided.sent) / 1e6, max(sharded.sent) / 1e6, divided.gradient / 1e6)
        sent, held, gradient = (f"{number:.0f}" for number in numbers)
        rows.append(
            f"| {ranks} | {divided.share:.2f} | {divided.idle} | {sent} | {sharded.share:.2f} | {held} | {gradient} |"
        )
    return rows


@pytest.mark.slow
def test_the_table_is_the_planners():
    inside = PAGE.read_text().split("<!-- plan: resnet50, 64 -->\n")[1].split("<!-- end -->")[0]
    assert inside.splitlines()[2:] == table("resnet50")
