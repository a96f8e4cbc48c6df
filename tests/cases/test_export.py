"""Graphs: compiled with Inductor, exported, run by onnxruntime, scripted, quantized."""

import copy
from collections.abc import Callable
from typing import Any

import numpy
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import orthonorm as on

pytestmark = [
    pytest.mark.compiled,
    # torch's own: what it is about to drop or to rename inside itself.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


def convolutional() -> nn.Module:
    parts = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=2), nn.Flatten()]
    return nn.Sequential(*parts, nn.Linear(8 * 16, 12), nn.ReLU(), nn.Linear(12, 4))


def transformer() -> nn.Module:
    return nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True)


def chosen(module: nn.Module, fqn: str) -> bool:
    return isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.MultiheadAttention)


def small() -> nn.Module:
    return nn.Sequential(nn.Conv1d(2, 4, 3), nn.Tanh(), nn.Linear(6, 5))


class SelfAttention(nn.Module):
    """torch's attention of a sequence to itself: q, k and v of one stacked weight."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolutional": (convolutional, (2, 3, 6, 6)),
    "transformer": (transformer, (2, 5, 16)),
    "small": (small, (3, 2, 8)),
}
cases = pytest.mark.parametrize(("make", "shape"), list(MODELS.values())[:2], ids=list(MODELS)[:2])
# The exporter of torch 2.6 stops at the batch normalisation of any model.
EXPORTED = ["convolutional", "transformer"] if torch.__version__ >= "2.7" else ["transformer"]
exported_to_onnx = pytest.mark.parametrize(("make", "shape"), [MODELS[name] for name in EXPORTED], ids=EXPORTED)


def converted(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return on.orthogonalize_(make(), on.OrthogonalConfig(group_size=8, scale="row_norms"), chosen)


def gradients(model: Any, output: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(output.pow(3).sum(), [p for p in model.parameters() if p.requires_grad]))


@pytest.mark.parametrize(
    ("backend", "name", "method"),
    [
        # Inductor calls the C++ compiler, so one small model: the graphs are those of aot_eager.
        pytest.param("inductor", "small", "eigh", id="inductor"),
        pytest.param("aot_eager", "convolutional", "eigh", id="convolutional"),
        pytest.param("aot_eager", "transformer", "eigh", id="transformer"),
    ],
)
def test_case_16_a_training_step_compiles_without_a_graph_break(backend: str, name: str, method: str):
    torch._dynamo.reset()
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model = on.orthogonalize_(make(), on.OrthogonalConfig(group_size=8, scale="row_norms", method=method), chosen)
    compiled: Any = torch.compile(copy.deepcopy(model), fullgraph=True, backend=backend)
    for _ in range(2):  # the second call has another V: the weight is no constant of the graph
        x = torch.randn(shape)
        expected, got = model(x), compiled(x)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
        for g, h in zip(gradients(compiled, got), gradients(model, expected), strict=True):
            torch.testing.assert_close(g, h, rtol=1e-3, atol=1e-4)
        with torch.no_grad():
            for p, q in zip(model.parameters(), compiled.parameters(), strict=True):
                p.add_(0.1 * torch.randn_like(p))
                q.copy_(p)


@pytest.mark.parametrize(
    ("make", "method", "shape"),
    [
        pytest.param(SelfAttention, "eigh", (2, 5, 8), id="attention"),
        pytest.param(lambda: nn.Linear(6, 3), "newton", (2, 6), id="newton"),
    ],
)
def test_case_16_inductor_computes_what_the_model_computes(
    make: Callable[[], nn.Module], method: str, shape: tuple[int, ...]
):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = on.orthogonalize_(
        make(),
        on.OrthogonalConfig(group_size=4, method=method),
        lambda module, _: not isinstance(module, SelfAttention),
    )
    compiled: Any = torch.compile(model, fullgraph=True)
    # Without gradients, for the C++ compiler's sake: those are of the graphs above.
    with torch.no_grad():
        for _ in range(2):
            x = torch.randn(shape)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-6)
            for p in model.parameters():
                p.add_(0.1 * torch.randn_like(p))


def test_case_16_compiled_code_inside_cached_computes_its_own_weight():
    torch._dynamo.reset()
    model = converted(convolutional).eval()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 3, 6, 6)
    with on.cached(model):
        expected = model(x)
        torch.testing.assert_close(compiled(x), expected)


@cases
def test_case_14_an_exported_program_equals_the_model(make: Callable[[], nn.Module], shape: tuple[int, ...]):
    model = converted(make).eval()
    x, other = torch.randn(2, *shape)
    with torch.no_grad():
        for form in (model, on.fold(model)):
            program = torch.export.export(form, (x,)).module()
            torch.testing.assert_close(program(other), model(other), rtol=1e-5, atol=1e-6)


@exported_to_onnx
def test_case_14_onnxruntime_computes_what_the_model_computes(
    make: Callable[[], nn.Module], shape: tuple[int, ...], tmp_path: Any
):
    model = converted(make).eval()
    x, other = torch.randn(2, *shape)
    path = tmp_path / "model.onnx"
    torch.onnx.export(on.fold(model), (x,), path, dynamo=True, verbose=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: other.numpy()})
    with torch.no_grad():
        numpy.testing.assert_allclose(numpy.asarray(found), model(other).numpy(), rtol=1e-4, atol=1e-5)


@cases
@pytest.mark.parametrize("compiler", ["script", "trace"])
def test_case_14_torchscript_of_a_folded_model(
    make: Callable[[], nn.Module], shape: tuple[int, ...], compiler: str, tmp_path: Any
):
    model = converted(make).eval()
    x, other = torch.randn(2, *shape)
    folded = on.fold(model)
    with torch.no_grad():
        scripted = torch.jit.script(folded) if compiler == "script" else torch.jit.trace(folded, x)
        torch.jit.save(scripted, tmp_path / "model.ts")
        torch.testing.assert_close(torch.jit.load(tmp_path / "model.ts")(other), model(other), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation:UserWarning")
def test_case_14_dynamic_quantization_of_a_folded_model():
    model = converted(convolutional).eval()
    quantized = torch.ao.quantization.quantize_dynamic(on.fold(model), {nn.Linear}, torch.qint8)
    assert type(quantized[5]).__module__ == "torch.ao.nn.quantized.dynamic.modules.linear"
    x = torch.randn(16, 3, 6, 6)
    with torch.no_grad():
        expected, got = model(x), quantized(x)
    # Eight bits a weight: 1/256 of the largest of a row, against sums of some hundred products.
    assert 0 < float((got - expected).abs().max()) < 0.05 * float(expected.abs().max())
