"""The method "fused": its kernels under Triton's interpreter, compiled for GPUs that are not here, and without them."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import triton
from torch import Tensor
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import orthonorm as on
from orthonorm.functional import inverse_sqrt, orthonormalize
from orthonorm.functional._methods import METHODS, _lyapunov_floor, _newton_scales, choose_method
from orthonorm.functional.fused import _inverse_sqrt as fused_root

ROOT = Path(__file__).parents[2]
PACKAGE = Path(on.__file__).parent


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python as a user would, without the wrappers that enforce types, which would wrap kernels too."""
    path = os.pathsep.join(map(str, (PACKAGE.parent, ROOT / "tests")))
    env = {**os.environ, "PYTHONPATH": path, "ORTHONORM_TYPECHECK": "0", **environment}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env, cwd=ROOT, timeout=280)


def test_the_kernels_under_the_interpreter():
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=--import-mode=importlib")
    done = python("-m", "pytest", *options, "tests/functional/fused_child.py", TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\b18 passed", done.stdout), done.stdout


# The options and sizes of fused_launch.py, which this process cannot import: its operators would run for good.
COMPILED = [
    ("root_kernel", 64, 80),
    ("root_kernel", 128, 90),
    ("lyapunov_kernel", 64, 90),
    ("lyapunov_kernel", 128, 80),
]


def kernels() -> ModuleType:
    """The kernels past the hook that wraps the library's functions, and past Triton's switch."""
    spec = importlib.util.spec_from_file_location("kernels_of_fused", PACKAGE / "functional/fused_kernels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled(name: str, n: int, capability: int) -> Any:
    kernel = getattr(kernels(), name)
    constants = {"ADJOINT": True, "FLOOR": 2.0**-42, "N": n, "TILE": 64, "DEPTH": 32}
    types = {"n": "i32", "steps": "i32", **dict.fromkeys(constants, "constexpr")}
    signature = {argument: types.get(argument, "*fp64") for argument in kernel.arg_names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind == "*fp64"}
    constants = {key: value for key, value in constants.items() if key in signature}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    options = {"num_warps": 8, "num_stages": 1, "enable_fp_fusion": True}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def stack_bytes(cubin: bytes, folder: Path) -> int:
    """Bytes of local memory a thread needs, as NVIDIA's tool reads them from the machine code."""
    file = folder / "kernel.cubin"
    file.write_bytes(cubin)
    tool = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(file)]
    usage = subprocess.run(tool, capture_output=True, text=True, check=True, timeout=60).stdout
    return max(int(stack) for stack in re.findall(r"STACK:(\d+)", usage))


@pytest.mark.parametrize(("name", "n", "capability"), COMPILED)
def test_the_kernels_compile_within_a_gpus_means(name: str, n: int, capability: int, tmp_path: Path, monkeypatch: Any):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel = compiled(name, n, capability)
    assert len(kernel.asm["cubin"]) > 0
    # Slices of 64 x 32 and 32 x 64: two programs and more fit into one multiprocessor.
    assert kernel.metadata.shared <= 32 * 1024
    # Registers are enough: no part of a matrix goes to local memory.
    assert stack_bytes(kernel.asm["cubin"], tmp_path) <= 16
    # Products in float64 on the tensor cores, by no narrower type.
    products = set(re.findall(r"mma[\w.]*", kernel.asm["ptx"]))
    assert products
    assert all(product.endswith(".f64.f64.f64.f64") for product in products)
    # What is not a product is float64 too: a scale in float32 would leave seven digits.
    assert ".f32" not in kernel.asm["ptx"]
    # What one thread wrote another reads only beyond a barrier of all memory: a step has two of them.
    barriers = re.findall(r"^ *(?:ttg|gpu)\.barrier", kernel.asm["ttgir"], re.MULTILINE)
    assert len(barriers) == {"root_kernel": 3, "lyapunov_kernel": 6}[name]


def loss(V: Tensor, method: str) -> Tensor:
    return (orthonormalize(V, method=method) * torch.linspace(-1, 1, V.shape[-1])).square().sum()


def test_without_a_kernel_it_is_newton_to_the_last_bit():
    V = torch.randn(2, 5, 9, requires_grad=True)
    assert torch.equal(orthonormalize(V, method="fused"), orthonormalize(V, method="newton"))
    fused, newton = (torch.autograd.grad(loss(V, method), V)[0] for method in ("fused", "newton"))
    assert torch.equal(fused, newton)
    Sigma = torch.eye(3) + 0.1
    assert torch.equal(inverse_sqrt(Sigma, method="fused"), inverse_sqrt(Sigma, method="newton"))


def test_the_number_of_steps_follows_the_interval():
    # The lower end may come to rest a half unit of round-off below 1, where it must count as 1.
    counts = [
        len(_newton_scales(_lyapunov_floor(torch.empty(n, n, dtype=torch.float64)) ** 0.5)) for n in range(1, 513)
    ]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (21, 24)


@pytest.mark.parametrize(("device", "auto"), [("cpu", "eigh"), ("cuda", "newton"), ("mps", "newton"), ("meta", "eigh")])
def test_auto_goes_by_the_device_and_is_never_fused(device: str, auto: str):
    assert choose_method("auto", torch.device(device)) == auto
    assert choose_method("fused", torch.device(device)) == "fused"


def test_a_layer_takes_it():
    layer = on.OrthogonalLinear(6, 4, method="fused")
    assert (layer.weight @ layer.weight.T - torch.eye(4)).abs().max() <= 1e-6


def test_what_the_kernels_take(monkeypatch: pytest.MonkeyPatch):
    X = torch.eye(3, dtype=torch.float64)
    monkeypatch.setattr(fused_root, "_COMPILES", True)
    monkeypatch.setattr(fused_root, "_INTERPRETS", False)
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        sizes = {
            n: fused_root.kernel_takes(torch.empty(2, n, n, dtype=torch.float64, device="cuda")) for n in (128, 129)
        }
    assert sizes == {128: True, 129: False}
    assert not fused_root.kernel_takes(X)
    assert not fused_root.kernel_takes(X.to("meta"))
    assert METHODS["fused"].root(X)[0].device.type == "cpu"


def test_it_works_and_loads_nothing_where_triton_is_missing():
    program = """if True:
        import sys, torch
        sys.modules["triton"] = None  # as if it were not installed
        import orthonorm
        W = orthonorm.functional.orthonormalize(torch.randn(3, 5), method="fused")
        print(orthonorm.functional.fused._inverse_sqrt._COMPILES, (W @ W.T - torch.eye(3)).abs().max().item() < 1e-6)
        print([name for name in sys.modules if name.startswith("orthonorm") and "fused_" in name])
    """
    done = python("-c", program)
    assert done.stdout.splitlines() == ["False True", "['orthonorm.functional.fused._inverse_sqrt']"], done.stderr
