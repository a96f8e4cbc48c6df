"""What happens to a model between its making and its deployment: averages, files, checkpointing, several passes."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.checkpoint import checkpoint

import orthonorm as on


def everything(module: nn.Module, fqn: str) -> bool:
    return isinstance(module, nn.Linear | nn.Conv2d | nn.MultiheadAttention | nn.LSTM)


class Mixed(nn.Module):
    """A convolution, an attention and a recurrent layer in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 8, 3, padding=1)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.lstm = nn.LSTM(8, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.conv(x).relu().flatten(2).mT
        return self.head(self.lstm(self.attention(tokens, tokens, tokens)[0])[0][:, -1])


def mixed(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    return on.orthogonalize_(Mixed(), on.OrthogonalConfig(**options), everything)


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same(got: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert got.keys() == expected.keys() != set()
    for name, value in expected.items():
        torch.testing.assert_close(
            got[name], value, rtol=1e-5, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> None:
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()


def test_an_average_of_v_is_orthogonal_and_is_the_average_by_hand():
    model = mixed(scale="row_norms")
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.75))
    by_hand = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(4, 2, 4, 4)
    average.update_parameters(model)  # the first update copies
    for _ in range(3):
        step(model, optimizer, x)
        average.update_parameters(model)
        for name, p in model.named_parameters():
            by_hand[name].lerp_(p.detach(), 0.25)
    update_bn([x], average)
    assert max(on.orthogonality_error(average).values()) < 1e-5
    expected = functional_call(copy.deepcopy(model), by_hand, (x,))
    torch.testing.assert_close(average(x), expected)
    assert not torch.allclose(average(x), model(x))


def test_no_random_number_is_drawn_from_conversion_to_folding():
    model, plain, x = Mixed(), Mixed().state_dict(), torch.randn(2, 2, 4, 4)
    with torch.no_grad():
        model.conv.weight[1] = 0
    before = torch.get_rng_state()
    with pytest.warns(UserWarning, match="fixed orthonormal rows"):
        on.orthogonalize_(model, on.OrthogonalConfig(scale="row_norms"), everything)
    model.load_state_dict(plain)
    on.register_cached(model)
    model(x)
    on.renormalize_(model)
    on.inspect(model)
    on.orthogonality_error(model)
    on.fold(model)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_file_of_the_whole_model_is_refused_and_the_cures_work(tmp_path: Any):
    model = mixed()
    x = torch.randn(2, 2, 4, 4)
    with pytest.raises(RuntimeError, match="only supported through state_dict"):
        torch.save(model, tmp_path / "model.pt")
    torch.save(model.state_dict(), tmp_path / "state.pt")
    other = on.orthogonalize_(Mixed(), on.OrthogonalConfig(), everything)
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(other(x), model(x))
    torch.save(on.fold(model), tmp_path / "folded.pt")
    torch.testing.assert_close(torch.load(tmp_path / "folded.pt", weights_only=False)(x), model(x))


@pytest.mark.parametrize("reentrant", [True, False])
def test_activation_checkpointing_gives_the_same_gradients(reentrant: bool):
    model = mixed(scale="row_norms")
    x = torch.randn(3, 2, 4, 4, requires_grad=True)
    model(x).square().sum().backward()
    expected = gradients(model)
    model.zero_grad()
    output = checkpoint(model, x, use_reentrant=reentrant)
    assert isinstance(output, Tensor)
    output.square().sum().backward()
    assert_same(gradients(model), expected)


def test_two_forwards_before_one_backward():
    model = mixed(scale="row_norms")
    first, second = torch.randn(2, 3, 2, 4, 4)
    (model(first).square().sum() + model(second).square().sum()).backward()
    together = gradients(model)
    model.zero_grad()
    for x in (first, second):
        model(x).square().sum().backward()
    assert_same(together, gradients(model))


def test_functional_transforms_of_a_model_with_attention_agree_with_loops():
    torch.manual_seed(0)
    model = on.orthogonalize_(nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True), None, everything)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    xs = torch.randn(3, 2, 4, 8)

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(model, parameters, (x,)).pow(3).mean()

    expected = []
    for x in xs:
        model.zero_grad()
        model(x).pow(3).mean().backward()
        expected.append(gradients(model))
    for x, gradient in zip(xs, expected, strict=True):
        assert_same(grad(loss)(parameters, x), gradient)


def test_per_sample_gradients_agree_with_a_loop():
    torch.manual_seed(0)
    model = on.orthogonalize_(
        nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)), on.OrthogonalConfig(scale="row_norms"), everything
    )
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    xs = torch.randn(4, 5)
    per_sample = vmap(grad(lambda p, x: functional_call(model, p, (x,)).pow(2).sum()), (None, 0))(parameters, xs)
    for i, x in enumerate(xs):
        model.zero_grad()
        model(x).pow(2).sum().backward()
        assert_same({name: g[i] for name, g in per_sample.items()}, gradients(model))


def critic() -> nn.Module:
    torch.manual_seed(0)
    parts = [nn.Conv2d(1, 6, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(6, 8, 3, 2, 1), nn.Flatten(), nn.Linear(32, 9)]
    model = nn.Sequential(*parts, nn.Softplus(), nn.Linear(9, 1)).double()
    return on.orthogonalize_(model, on.OrthogonalConfig(scale="row_norms"))


def critic_loss(model: nn.Module, real: Tensor, fake: Tensor, mix: Tensor) -> Tensor:
    """The critic's loss of WGAN-GP (Gulrajani et al. 2017), with its penalty on mixtures of real and made images."""
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(model(between).sum(), between, create_graph=True)
    penalty = (slope.flatten(1).norm(dim=1) - 1).square().mean()
    return model(fake).mean() - model(real).mean() + 10 * penalty


def test_the_critics_step_of_wgan_gp_has_the_right_gradient_and_goes_down():
    model = critic()
    real, fake = torch.randn(2, 5, 1, 8, 8, dtype=torch.float64)
    mix = torch.rand(5, 1, 1, 1, dtype=torch.float64)
    critic_loss(model, real, fake, mix).backward()
    for name, p in model.named_parameters():
        if p.grad is None:  # the last bias cancels
            assert name == "6.bias"
            continue
        direction, values = torch.randn_like(p), []
        for sign in (1, -1):
            with torch.no_grad():
                p.add_(sign * 1e-5 * direction)
            values.append(float(critic_loss(model, real, fake, mix).detach()))
            with torch.no_grad():
                p.sub_(sign * 1e-5 * direction)
        slope = (values[0] - values[1]) / 2e-5
        assert float((p.grad * direction).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-7), name
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.0, 0.9))
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = critic_loss(model, real, fake, mix)
        with on.cached(model):  # the three passes of a step share one weight
            again = critic_loss(model, real, fake, mix)
            again.backward()
        torch.testing.assert_close(again, loss)
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    assert max(on.orthogonality_error(model).values()) < 1e-12
