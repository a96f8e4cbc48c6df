"""The sequence experiments: the problem, the networks, the ways to keep a recurrent weight orthogonal, the report."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from orthonorm_paper import data
from orthonorm_paper.data import load_dataset
from orthonorm_paper.data.copying import copying
from orthonorm_paper.exceptions import UserError
from orthonorm_paper.experiments.ablation import RECURRENT
from orthonorm_paper.experiments.sequences import RATES
from orthonorm_paper.methods.recurrent import recurrent_error, recurrent_weights
from orthonorm_paper.methods.table import METHODS, OptimizerSettings
from orthonorm_paper.models import build_model
from orthonorm_paper.records.cells import cells
from orthonorm_paper.records.files import Record, same, write_record
from orthonorm_paper.records.run import Run
from orthonorm_paper.records.sequences import METHODS as LABELS
from orthonorm_paper.records.sequences import SEEDS, memoryless_loss
from orthonorm_paper.reports.claims.sequences import Question, judge
from orthonorm_paper.reports.publish import write_report
from orthonorm_paper.training.execute import Settings, execute
from paper_support.recorded import changed, record

CPU = Settings(device="cpu")
KEPT = ("recurrent-torch", "recurrent-OLM", "recurrent-OLM-scale")


def test_a_sequence_is_letters_blanks_a_signal_and_is_answered_by_the_letters():
    sequences = copying(None, blanks=7, train=50, test=20)
    for x, y in ((sequences.train_x, sequences.train_y), (sequences.test_x, sequences.test_y)):
        assert torch.equal(x.sum(-1), torch.ones(len(x), 27))
        symbols = x.argmax(-1)
        letters = symbols[:, :10]
        assert set(letters.flatten().tolist()) == set(range(8))
        assert symbols[:, 10:].tolist() == len(x) * [6 * [8] + [9] + 10 * [8]]
        assert torch.equal(y[:, 17:], letters)
        assert (y[:, :17] == 8).all()
    assert (sequences.classes, sequences.shape) == (9, (27, 10))
    assert not torch.equal(sequences.train_x[:20], sequences.test_x)


def test_the_copying_problem_is_a_function_of_its_name():
    assert copying(None, blanks=5).digest == copying(None, blanks=5).digest != copying(None, blanks=6).digest
    assert load_dataset("copying-10").digest == copying(None, blanks=10).digest


def test_the_baseline_is_the_loss_of_the_best_that_remembers_nothing():
    sequences = copying(None, blanks=30, train=200, test=1)
    logits = torch.full((200, 50, 9), -torch.inf)
    logits[:, :40, 8] = 0.0  # sure of the blanks
    logits[:, 40:, :8] = 0.0  # and of nothing else
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), sequences.train_y.flatten())
    assert memoryless_loss("copying-30") == pytest.approx(float(loss), rel=1e-6)


def build(model: str, start: str = "paper", **arguments: Any) -> Any:
    shape = arguments.pop("shape", (6, 3))
    return build_model(model, {"width": 5, **arguments}, shape=shape, classes=4, start=start, seed=1)


def test_the_rnn_computes_its_equation():
    network = build("rnn", each_step=True)
    x, core = torch.randn(2, 6, 3), network.core
    h, expected = torch.zeros(2, 5), []
    for t in range(6):
        inner = x[:, t] @ core.weight_ih_l0.T + core.bias_ih_l0 + h @ core.weight_hh_l0.T + core.bias_hh_l0
        h = inner.tanh()
        expected.append(network.readout(h))
    torch.testing.assert_close(network(x), torch.stack(expected, 1))


@pytest.mark.parametrize("model", ["rnn", "lstm"])
def test_an_image_is_read_row_by_row_and_its_last_state_counts(model: str):
    network = build(model, shape=(1, 6, 3))
    each = build(model, each_step=True)
    images = torch.randn(2, 1, 6, 3)
    torch.testing.assert_close(network(images), each(images[:, 0])[:, -1])


@pytest.mark.parametrize("model", ["rnn", "lstm"])
def test_the_starts_differ_in_the_recurrent_weight_alone(model: str):
    plain, orthogonal = build(model), build(model, "orthogonal")
    differ = {
        name for (name, p), q in zip(plain.named_parameters(), orthogonal.parameters(), strict=True)
        if not torch.equal(p, q)
    }  # fmt: skip
    assert differ == {"core.weight_hh_l0"}
    assert recurrent_error(orthogonal) < 1e-6
    for parameter in plain.parameters():
        assert float(parameter.detach().abs().max()) <= 1 / math.sqrt(5)


@pytest.mark.parametrize("label", RECURRENT)
def test_the_ablation_of_the_recurrent_weight_changes_how_v_starts_and_whether_its_norm_is_kept(label: str):
    start = build("rnn").core.weight_hh_l0.detach()
    network, _, _ = trained("rnn", label)
    V = network.core.parametrizations.weight_hh_l0.original.detach()
    converted: Any = METHODS[label].convert(build("rnn"))
    first = converted.core.parametrizations.weight_hh_l0.original.detach()
    if label == "recurrent-orthonorm-weight":
        assert torch.equal(first, start)
    else:
        assert float(torch.linalg.cond(first)) == pytest.approx(1.0, abs=1e-4)
    # The gradient is at right angles to V, so that a step lengthens it unless its norm is kept.
    longer = float(V.norm() / first.norm()) - 1
    assert longer == pytest.approx(0.0, abs=1e-5) if label == "recurrent-orthonorm-kept" else longer > 1e-3


def trained(model: str, label: str) -> tuple[Any, Tensor, Tensor]:
    """A network after some steps of Adam, and its outputs before and after them."""
    method = METHODS[label]
    network = method.convert(build(model, method.start, each_step=True))
    optimizer = method.make_optimizer(network, OptimizerSettings("adam", 0.02))
    x = torch.randn(8, 6, 3)
    before = network(x).detach()
    for _ in range(5):
        optimizer.zero_grad()
        network(x).square().sum().backward()
        optimizer.step()
    return network, before, network(x).detach()


@pytest.mark.parametrize("model", ["rnn", "lstm"])
def test_each_gate_stays_orthogonal_with_the_methods_that_keep_it_so(model: str):
    outputs = []
    for label in LABELS:
        torch.manual_seed(0)
        network, before, after = trained(model, label)
        weights = network.core.weight_hh_l0.detach().double().chunk(4 if model == "lstm" else 1)
        norms = [W.norm(dim=1, keepdim=True) if label == "recurrent-OLM-scale" else 1.0 for W in weights]
        gates = [W / norm for W, norm in zip(weights, norms, strict=True)]
        errors = [float((W @ W.T - torch.eye(5)).abs().max()) for W in gates]
        assert (max(errors) < 2e-6) is (label in KEPT), label
        assert (METHODS[label].error(network) < 2e-6) is (label in KEPT), label
        assert float((after - before).abs().max()) > 0.01
        if label != "recurrent-plain":
            outputs.append(before)
    for other in outputs[1:]:  # one start for all but the plain one
        torch.testing.assert_close(other, outputs[0], rtol=0, atol=2e-6)


@pytest.mark.parametrize("label", KEPT)
def test_the_recurrent_weight_itself_learns(label: str):
    network, *_ = trained("rnn", label)
    start: Any = METHODS[label].convert(build("rnn", "orthogonal", each_step=True))
    moved = network.core.weight_hh_l0 - start.core.weight_hh_l0
    assert float(moved.detach().abs().max()) > 0.01


def test_torchs_map_keeps_the_gates_of_every_layer():
    lstm = nn.LSTM(3, 4, num_layers=2)
    METHODS["recurrent-torch"].convert(lstm)
    for module, name, gates in recurrent_weights(lstm):
        for W in getattr(module, name).detach().chunk(gates):
            torch.testing.assert_close(W @ W.T, torch.eye(4), rtol=0, atol=2e-6)


@pytest.fixture
def tiny_copying(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """A copying problem of 12 sequences; gives a function that makes runs on it."""
    monkeypatch.setitem(data.DATASETS, "copying-2", lambda _: copying(None, blanks=2, train=12, test=5))

    def make(label: str, **fields: Any) -> Run:
        given: dict[str, Any] = {"lr": 0.01, "epochs": 2, "batch_size": 4, "model": "rnn", "optimizer": "adam"}
        arguments = {"width": 6, "each_step": True}
        return Run(
            experiment="copying", dataset="copying-2", method=label, model_args=arguments, **(given | fields)
        )  # fmt: skip

    return make


@pytest.mark.parametrize("label", KEPT)
def test_a_run_that_stops_ends_as_if_it_had_not(tiny_copying: Callable[..., Run], tmp_path: Path, label: str):
    run = tiny_copying(label)
    whole = execute(run, tmp_path / "whole", CPU)
    execute(run, tmp_path / "cut", dataclasses.replace(CPU, stop_at_step=2))
    assert same(execute(run, tmp_path / "cut", CPU), whole)
    assert whole.final("orthogonality_error") < 2e-6


def test_loss_and_error_count_every_step_of_a_sequence(tiny_copying: Callable[..., Run], tmp_path: Path):
    run = tiny_copying("recurrent-plain", lr=0.0, epochs=1)
    record = execute(run, tmp_path, CPU)
    sequences = data.DATASETS["copying-2"](None)
    network = build_model("rnn", run.model_arguments, shape=(22, 10), classes=9, start="paper", seed=0)
    for part, x, y in (("train", sequences.train_x, sequences.train_y), ("test", sequences.test_x, sequences.test_y)):
        logits = network(x).detach()
        expected = nn.functional.cross_entropy(logits.reshape(-1, 9), y.reshape(-1))
        assert record.final(f"{part}_loss") == pytest.approx(float(expected), rel=1e-5)
        wrong = 100 * float((logits.argmax(2) != y).double().mean())
        assert record.final(f"{part}_error") == pytest.approx(wrong, rel=1e-9)


WRONG: list[tuple[str, Callable[[], Any], str]] = [
    ("colours", lambda: build("rnn", shape=(3, 32, 32)), r"one channel of \(1, time, features\); got .*\(3, 32, 32\)"),
    ("a vector", lambda: build("lstm", shape=(32,)), r"takes \(time, features\).*got the shape \(32,\)"),
    ("start", lambda: build("lstm", "he"), "start of a recurrent network must be paper or orthogonal; got 'he'"),
    ("width", lambda: build("rnn", width=0), "width, the size of the state, must be at least 1; got 0"),
    *((label, lambda label=label: METHODS[label].convert(nn.Linear(2, 2)), "needs a network with an RNN.* got Linear")
      for label in LABELS),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong_input_says_what_was_got(call: Callable[[], Any], message: str):
    with pytest.raises(UserError, match=message):
        call()


def recorded(label: str, lr: float, losses: tuple[float, ...], seed: int, seconds: float = 0.5) -> Record:
    """Record of an RNN on the copying problem with these numbers: synthetic."""
    given = record(label, lr, losses, seed=seed, experiment="copying")
    run = dataclasses.replace(
        given.run, dataset="copying-10", model="rnn", model_args={"width": 64}, optimizer="adam", batch_size=32
    )
    epochs = tuple(line.model_copy(update={"seconds": seconds + 0.1 * seed}) for line in given.epochs)
    return dataclasses.replace(changed(given, id=run.id, run=run.to_json()), epochs=epochs)


def two_methods(own: list[float], *, seconds: float = 0.5) -> list[Record]:
    """OLM that ends at the given losses by seed, and torch's map that ends at 0.4; each better at the middle rate."""
    return [
        recorded(label, lr, (2.0, 1.0, 0.5, end + 0.2 * (lr != RATES["copying"][1])), seed, took)
        for seed in SEEDS["copying"]
        for lr in RATES["copying"]
        for label, end, took in (("recurrent-OLM", own[seed], seconds), ("recurrent-torch", 0.4, 0.5))
    ]


LOWER = Question("recurrent-OLM", "lower", "recurrent-torch")
SOONER = Question("recurrent-OLM", "sooner", "recurrent-torch")


@pytest.mark.parametrize(
    ("question", "records", "difference", "numbers"),
    [
        (LOWER, two_methods([0.1, 0.2, 0.3]), "+0.2", "0.1 against 0.4; 0.2 against 0.4; 0.3 against 0.4"),
        (LOWER, two_methods([0.4, 0.5, 0.6]), "-0.1", "0.4 against 0.4; 0.5 against 0.4; 0.6 against 0.4"),
        (LOWER, [r for r in two_methods([0.1, 0.2, 0.3]) if r.run.seed < 2], "", "not every run is recorded"),
        (SOONER, two_methods([0.1, 0.2, 0.3]), "+0.319", "1.62 s against 2.00 s; 1.67 s against 2.00 s; 1.75 s"),
        (SOONER, two_methods([0.1, 0.2, 0.6], seconds=0.2), "not finite in 1 of 3",
         "0.65 s against 2.00 s; 0.67 s against 2.00 s; never, against 2.00 s"),
    ],
    ids=["lower", "higher", "incomplete", "sooner", "never in one"],
)  # fmt: skip
def test_a_question_is_answered_seed_by_seed(question: Question, records: list[Record], difference: str, numbers: str):
    found = judge(question, cells(records))
    assert found.answer == "undecided"
    assert found.difference.startswith(difference)
    assert found.numbers.startswith(numbers)


def test_a_variation_needs_all_seeds_unless_the_seeds_are_what_it_varies():
    two = [one for one in two_methods([0.1, 0.2, 0.3]) if one.run.seed < 2]

    def judged(name: str) -> str:
        runs = [dataclasses.replace(one.run, experiment=name) for one in two]
        named = [changed(one, id=run.id, run=run.to_json()) for one, run in zip(two, runs, strict=True)]
        return judge(LOWER, list(cells(named))).numbers

    assert judged("copying-bf16-mixed") == judged("copying-epochs9") == "not every run is recorded"
    assert judged("copying-seeds2").startswith("0.1 against 0.4")


def test_the_report_says_what_the_records_show(tmp_path: Path):
    for one in two_methods([0.1, 0.2, 0.3], seconds=0.2):
        write_record(tmp_path / "records", one)
    markdown, *figures, page = write_report("copying", tmp_path / "records", tmp_path / "out")
    assert page.name == "report.html"
    assert [path.name for path in figures] == ["figure.png", "figure.svg"]
    text = markdown.read_text()
    assert "10 ln 8 / (T + 20) = 0.6931" in text
    # Best rate, mean and deviation over the seeds, the fastest epoch's 0.2 s over 15 steps.
    row = "| recurrent-OLM | 0.003 | 0.2000 ± 0.1000 | 1.0000 ± 0.0000 | 11.00 ± 1.00 | 1.0e-07 | 13.3 | none |"
    assert row in text
    assert "| recurrent-plain | – | – | – | – | – | – | – |" in text
    assert "| recurrent-OLM | 0.4 | 0.2 | 0.4 |" in text
    assert "fewer seconds | **undecided** | 3 | +1.33 " in text
    assert text.count("**undecided**") == 2
    assert text.endswith("## lstm\n\n– not run\n")
    again = write_report("copying", tmp_path / "records", tmp_path / "again")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in (markdown, *figures, page)]
