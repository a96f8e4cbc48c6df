"""Theorem 1 as a tool: what a batch and its gradient become, layer by layer."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from orthonorm._text_table import text_table
from orthonorm.functional._precision import in_float64

from ._forward_hooks import LAYERS, as_written

__all__ = ["LayerSignal", "SignalPropagation", "signal_propagation"]


@dataclass(frozen=True)
class LayerSignal:
    """What one layer does to a batch and to its gradient.

    Attributes:
        layer: fully qualified name of the layer.
        mean: root mean square over channels of the mean of the output s.
        covariance: eigenvalues of the covariance of s over samples and positions, the largest first.
        forward_ratio: |s| / |x| over the batch, the bias taken off s.
        gradient_ratio: |dL/dx| / |dL/ds| over the batch; NaN where no gradient reaches the layer.
    """

    layer: str
    mean: float
    covariance: Float[Tensor, " n"]
    forward_ratio: float
    gradient_ratio: float


_HEADINGS = ("layer", "mean(s)", "cov(s)", "|s|/|x|", "|dL/dx|/|dL/ds|")
_LEGEND = """\
x and s: input and output of the layer, norms over the whole batch, without the bias in |s|
mean(s): root mean square over the channels; cov(s): smallest and largest eigenvalue over samples and positions"""


class SignalPropagation(list[LayerSignal]):
    """The list of what each call of a layer does to a batch and to its gradient; prints as a table."""

    def __str__(self) -> str:
        """Return the table, one row a call of a layer, and what its columns mean."""
        return "\n".join([*text_table(_HEADINGS, [*map(_cells, self)]), _LEGEND])


def _cells(signal: LayerSignal) -> tuple[str, ...]:
    eigenvalues = signal.covariance.tolist()
    return (
        signal.layer or "(the model)",
        f"{signal.mean:.2g}",
        f"{eigenvalues[-1]:.3g} to {eigenvalues[0]:.3g}" if eigenvalues else "none",
        f"{signal.forward_ratio:.3g}",
        f"{signal.gradient_ratio:.3g}",
    )


def signal_propagation(
    model: nn.Module,
    inputs: Shaped[Tensor, "batch *rest"],
    *,
    gradient: Float[Tensor, "..."] | None = None,
) -> SignalPropagation:
    r"""Feed a batch and return what every Linear and convolution layer does to it and to the gradient.

    Theorem 1, for $s = W x$ with $W W^T = I$ in a single group: $\operatorname{cov}(x) = \sigma^2 I$ gives
    $\operatorname{cov}(s) = \sigma^2 I$, and $|\partial L/\partial x| = |\partial L/\partial s|$. With centring, W also
    removes the mean direction of x. With several groups only the diagonal blocks of cov(s) are $\sigma^2 I$, and the
    gradient's norm is kept only on average (errata 6).

    The training flag and the gradients of the model stay as they are, and so do the global random states. Buffers that
    a training-mode forward updates are updated, so call `model.eval()` first where that matters. What was compiled is
    run uncompiled.

    Args:
        model: any module that takes `inputs` and returns a tensor.
        inputs: one batch, samples first.
        gradient: dL/d(output); None for a fixed pseudo-random one.

    Returns:
        A list with one entry for each call of a layer, in the order of the calls. It prints as a table.

    Raises:
        TypeError: if `model` is not a module, `inputs` or what it returns not a tensor.
        ValueError: if the batch has fewer than 2 samples, the model has no Linear or convolution, or it was built in
            inference mode.

    Examples:
        >>> import torch, orthonorm as on
        >>> x = torch.randn(4096, 16, generator=torch.Generator().manual_seed(0))
        >>> layer = on.signal_propagation(on.OrthogonalLinear(16, 8), x)[0]
        >>> round(layer.gradient_ratio, 4), bool((layer.covariance - 1).abs().max() < 0.2)
        (1.0, True)
        >>> x = torch.tensor([[2.0, 0.0], [0.0, 2.0], [-2.0, 0.0], [0.0, -2.0]])
        >>> doubling = torch.nn.Linear(2, 2)
        >>> doubling.load_state_dict({"weight": 2 * torch.eye(2), "bias": torch.ones(2)})
        <All keys matched successfully>
        >>> print(on.signal_propagation(torch.nn.Sequential(doubling), x))
        layer  mean(s)  cov(s)        |s|/|x|  |dL/dx|/|dL/ds|
        -----  -------  ------------  -------  ---------------
        0      1        10.7 to 10.7  2        2
        x and s: input and output of the layer, norms over the whole batch, without the bias in |s|
        mean(s): root mean square over the channels; cov(s): smallest and largest eigenvalue over samples and positions

    Source: Theorem 1 of the paper, with errata 6.
    """
    if not isinstance(inputs, Tensor):
        raise TypeError(
            f"inputs must be a tensor, samples first; got {type(inputs).__name__}. Wrap the model in a module that "
            "takes one."
        )
    if inputs.ndim < 2 or inputs.shape[0] < 2:
        raise ValueError(f"inputs must be a batch of at least 2 samples; got the shape {tuple(inputs.shape)}.")
    with as_written(model) as model:
        layers: dict[nn.Module, str] = {
            module: fqn for fqn, module in model.named_modules() if isinstance(module, LAYERS)
        }
        if not layers:
            raise ValueError(f"this {type(model).__name__} has no Linear or convolution layer to look at.")
        _check_differentiable(model)
        calls, output = _record_calls(model, layers, inputs)
        if gradient is None:
            generator = torch.Generator().manual_seed(0)
            gradient = torch.randn(output.shape, generator=generator, device=generator.device).to(output)
        if gradient.shape != output.shape:
            raise ValueError(
                f"gradient must have the shape of the model's output, {tuple(output.shape)}; got "
                f"{tuple(gradient.shape)}."
            )
        at_outputs = _gradients(output, [s for _, _, s in calls], gradient.clone())  # not one of inference mode
        return SignalPropagation(
            _signal(layers[module], module, x, s, grad) for (module, x, s), grad in zip(calls, at_outputs, strict=True)
        )


def _check_differentiable(model: nn.Module) -> None:
    """Refuse a model that was built in inference mode: torch differentiates nothing that saves such tensors."""
    made = [name for name, parameter in model.named_parameters() if parameter.is_inference()]
    if made:
        raise ValueError(
            f"{made[0]} was made in torch.inference_mode, so no gradient goes through it. Build the model outside, or "
            "pass a copy made outside (copy.deepcopy(model))."
        )


def _gradients(output: Tensor, tensors: list[Tensor], gradient: Tensor) -> list[Tensor | None]:
    """Return the gradient at each tensor, None where none arrives: outside the graph, or of no use to the output."""
    reachable = [t for t in tensors if t.requires_grad] if output.requires_grad else []
    found = torch.autograd.grad(output, reachable, gradient, allow_unused=True, retain_graph=True) if reachable else ()
    by_id = {id(t): grad for t, grad in zip(reachable, found, strict=True)}
    return [by_id.get(id(t)) for t in tensors]


def _record_calls(
    model: nn.Module, layers: Iterable[nn.Module], inputs: Tensor
) -> tuple[list[tuple[nn.Module, Tensor, Tensor]], Tensor]:
    """Return `(layer, x, s)` of every call, and the output.

    The layers are handed copies and hand on copies, so that an in-place activation after or before a layer does not
    change what was recorded.
    """
    calls: list[tuple[nn.Module, Tensor, Tensor]] = []

    def copy_input(_: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict]:
        if args:
            return (args[0].clone(), *args[1:]), named
        return args, named | {"input": named["input"].clone()}

    def record(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any], s: Tensor) -> Tensor:
        calls.append((module, args[0] if args else named["input"], s))
        return s.clone()

    handles = [
        handle
        for layer in layers
        for handle in (
            layer.register_forward_pre_hook(copy_input, with_kwargs=True),
            layer.register_forward_hook(record, with_kwargs=True),
        )
    ]
    x = inputs.detach().clone()
    x.requires_grad_(x.is_floating_point())  # not the tokens of an embedding
    devices = [x.device] if x.device.type == "cuda" else []
    try:
        with torch.enable_grad(), torch.random.fork_rng(devices):
            output = model(x)
    finally:
        for handle in handles:
            handle.remove()
    if not isinstance(output, Tensor):
        raise TypeError(
            f"the model must return a tensor; got {type(output).__name__}. Wrap it in a module that returns one."
        )
    return calls, output


def _signal(fqn: str, module: nn.Module, x: Tensor, s: Tensor, at_output: Tensor | None) -> LayerSignal:
    ratio = float("nan")
    if at_output is not None and x.requires_grad:
        # Through this layer alone: where x also feeds a shortcut, that path is not the layer's.
        (at_input,) = torch.autograd.grad(s, x, at_output, retain_graph=True)
        ratio = float(at_input.norm() / at_output.norm())
    x, s = x.detach(), s.detach()
    channels = -1 - len(module.kernel_size) if isinstance(module, nn.modules.conv._ConvNd) else -1
    rows = in_float64(s.movedim(channels, -1).reshape(-1, s.shape[channels]))
    unbiased = rows - in_float64(module.bias.detach()) if isinstance(module.bias, Tensor) else rows
    centred = rows - rows.mean(0)
    covariance = centred.T @ centred / max(1, len(rows) - 1)  # zero for a call with a single vector
    return LayerSignal(
        layer=fqn,
        mean=float(rows.mean(0).square().mean().sqrt()),
        covariance=torch.linalg.eigvalsh(covariance).flip(0),
        forward_ratio=float(unbiased.norm() / x.norm()),
        gradient_ratio=ratio,
    )
