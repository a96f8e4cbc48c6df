"""Where the weights of the networks start: variances, independence of torch's own generator."""

import math

import pytest
import torch
from torch import nn

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.models import build_model
from orthonorm_paper.models._initialization import STARTS, start_


def started(layer: nn.Linear | nn.Conv2d, start: str) -> nn.Linear | nn.Conv2d:
    start_(layer, start, 0)
    return layer.requires_grad_(False)


def test_papers_kernels_have_the_variance_2_over_k_k_n():
    # 147,456 draws: the variance is known to 0.4 %.
    kernel = started(nn.Conv2d(64, 256, 3), "paper").weight
    assert math.isclose(float(kernel.var()), 2 / (3 * 3 * 256), rel_tol=0.02)
    assert float(kernel.abs().max()) > 4 * float(kernel.std())


def test_hes_kernels_have_the_variance_2_over_d():
    kernel = started(nn.Conv2d(64, 256, 3), "he").weight
    assert math.isclose(float(kernel.var()), 2 / (3 * 3 * 64), rel_tol=0.02)


def test_papers_linear_layers_are_uniform_to_1_over_sqrt_d():
    weight = started(nn.Linear(400, 300), "paper").weight
    assert math.isclose(float(weight.abs().max()), 0.05, rel_tol=1e-3)
    assert math.isclose(float(weight.var()), 0.05**2 / 3, rel_tol=0.02)


@pytest.mark.parametrize("shape", [(32, 8), (200, 8)], ids=["wide", "tall"])
def test_orthogonal_kernels_are_sqrt_2_times_orthogonal_as_flattened(shape: tuple[int, int]):
    rows = started(nn.Conv2d(shape[1], shape[0], 3), "orthogonal").weight.flatten(1).double()
    gram = rows @ rows.mT if shape[0] <= rows.shape[1] else rows.mT @ rows
    torch.testing.assert_close(gram, 2 * torch.eye(len(gram), dtype=torch.float64), atol=1e-5, rtol=0)


@pytest.mark.parametrize("start", STARTS)
def test_biases_of_convolutions_start_at_zero(start: str):
    bias = started(nn.Conv2d(3, 8, 3), start).bias
    assert bias is not None
    assert bias.abs().max() == 0


@pytest.mark.parametrize("start", STARTS)
def test_a_network_depends_on_start_and_seed_alone(start: str):
    def weights(seed: int) -> torch.Tensor:
        network = build_model("vgg", {"width": 0.05}, shape=(3, 32, 32), classes=3, start=start, seed=seed)
        return nn.utils.parameters_to_vector(network.parameters())

    torch.manual_seed(1)
    first = weights(5)
    torch.manual_seed(2)
    assert torch.equal(first, weights(5))
    assert not torch.equal(first, weights(6))


def test_no_layer_keeps_the_weights_that_torch_gave_it():
    network = build_model("resnet34", {}, shape=(3, 64, 64), classes=3, start="paper", seed=0)
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d):
            k = module.kernel_size[0]
            assert math.isclose(float(module.weight.detach().var()), 2 / (k * k * module.out_channels), rel_tol=0.1), (
                name
            )


def test_an_unknown_start_is_told():
    with pytest.raises(UserError, match="start must be one of paper, he, orthogonal; got 'xavier'"):
        start_(nn.Linear(3, 3), "xavier", 0)
