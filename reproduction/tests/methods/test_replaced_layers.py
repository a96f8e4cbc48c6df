"""Which layers of each network become what, by their names."""

import math

import pytest
import torch
from torch import nn

import orthonorm as on
from orthonorm_paper.exceptions import UserError
from orthonorm_paper.methods.replaced_layers import REPLACED, REPLACEMENTS, replaced_layers
from orthonorm_paper.models import MODELS, build_model

CIFAR, SMALL, GREY = (3, 32, 32), (3, 64, 64), (1, 32, 32)

# A small size of each network, and how many convolutions and linear layers it has.
NETWORKS = {
    "mlp": (GREY, {"hidden_layers": 3}, 4),
    "pie-mlp": (GREY, {}, 6),
    "vgg": (CIFAR, {"width": 0.1}, 8),
    "inception-cifar": (CIFAR, {"width": 0.1}, 2 + 10 * 7 - 2 * 2 + 2 + 1),
    "wide-resnet": (CIFAR, {"depth": 16, "width": 2}, 1 + 12 + 3 + 1),
    "preresnet-cifar": (CIFAR, {"depth": 11}, 1 + 9 + 3 + 1),
    "alexnet": (SMALL, {"width": 0.1}, 8),
    "inception-imagenet": (SMALL, {"width": 0.1}, 3 + 10 * 7 - 2 * 2 + 2 + 1),
    "resnet34": (SMALL, {}, 33 + 3 + 1),
    "preresnet34": (SMALL, {}, 33 + 3 + 1),
}

# The names replaced by OLM. For the inceptions: all layers but the last.
STAGES = ("stage1", "stage2", "stage3")
REPLACED_NAMES = {
    "mlp": ("1", "3", "5"),
    "pie-mlp": ("1", "3", "5", "7", "9", "11"),
    "vgg": ("0", "2", "5", "7", "10", "12"),
    "wide-resnet": ("stem", *(f"{s}.{i}.body.{k}" for s in STAGES for i in (0, 1) for k in (0, 3))),
    "preresnet-cifar": ("stem", *(f"{s}.0.body.2" for s in STAGES)),
    "alexnet": ("features.0", "features.4", "features.8", "features.11", "features.14"),
    "resnet34": ("conv1",),
    "preresnet34": ("stem.0",),
}


def plain(name: str) -> nn.Module:
    shape, arguments, _ = NETWORKS[name]
    return build_model(name, arguments, shape=shape, classes=10, start="paper", seed=0)


def layer_names(network: nn.Module) -> tuple[str, ...]:
    return tuple(name for name, m in network.named_modules() if isinstance(m, nn.Conv2d | nn.Linear))


def orthogonal_names(network: nn.Module) -> tuple[str, ...]:
    return tuple(key.removesuffix(".weight") for key in on.orthogonality_error(network))


def test_every_network_has_its_layers_here():
    # Recurrent networks have methods of their own: test_sequences.py.
    assert NETWORKS.keys() == REPLACED.keys() == MODELS.keys() - {"rnn", "lstm"}


@pytest.mark.parametrize("name", NETWORKS)
def test_olm_replaces_the_papers_layers_and_they_are_orthogonal(name: str):
    network = plain(name)
    layers = layer_names(network)
    assert len(layers) == NETWORKS[name][2]
    expected = REPLACED_NAMES.get(name, layers[:-1])
    assert replaced_layers(name, network) == expected
    assert REPLACEMENTS["OLM"].apply_(network, name) is network
    assert orthogonal_names(network) == expected
    assert max(on.orthogonality_error(network).values()) < 1e-4


@pytest.mark.parametrize(("label", "count"), [("OLM-L1", 1), ("OLM-L2", 2), ("OLM-L4", 4)], ids=["L1", "L2", "L4"])
def test_olm_l_replaces_the_first_convolutions(label: str, count: int):
    for name in ("vgg", "wide-resnet"):
        network = REPLACEMENTS[label].apply_(plain(name), name)
        assert orthogonal_names(network) == REPLACED_NAMES[name][:count]


def test_shortcuts_of_wide_resnet_are_orthogonal_by_choice():
    network = REPLACEMENTS["OLM"].apply_(plain("wide-resnet"), "wide-resnet", {"layers": "convolutions"})
    assert orthogonal_names(network) == layer_names(plain("wide-resnet"))[:-1]
    assert sum(name.endswith("projection") for name in orthogonal_names(network)) == 3


def biases(network: nn.Module) -> list[bool]:
    return [m.bias is not None for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]


def test_orthogonal_convolutions_carry_no_bias_and_others_keep_theirs():
    # Six convolutions, a hidden linear layer and the classifier.
    assert biases(plain("vgg")) == [True] * 8
    assert biases(REPLACEMENTS["OLM"].apply_(plain("vgg"), "vgg")) == [False] * 6 + [True] * 2
    assert biases(REPLACEMENTS["OLM-L2"].apply_(plain("vgg"), "vgg")) == [False] * 2 + [True] * 6
    assert biases(REPLACEMENTS["WN"].apply_(plain("vgg"), "vgg")) == [True] * 8
    assert biases(REPLACEMENTS["OLM"].apply_(plain("pie-mlp"), "pie-mlp")) == [True] * 6


def test_orthogonal_layers_start_from_the_plain_networks_weights():
    network = REPLACEMENTS["OLM"].apply_(plain("vgg"), "vgg")
    state = plain("vgg").state_dict()
    before = torch.cat([state[f"{name}.weight"].flatten() for name in REPLACED_NAMES["vgg"]])
    kept = [p for name, p in network.named_parameters() if "parametrizations" in name]
    assert torch.equal(torch.cat([p.detach().flatten() for p in kept]), before)


def effective(network: nn.Module, name: str) -> torch.Tensor:
    layer = network.get_submodule(name)
    assert isinstance(layer, nn.Conv2d | nn.Linear)
    return layer.weight.detach().flatten(1).double()


def test_torch_s_weight_normalisation_keeps_the_function_and_adds_a_scale_a_row():
    before, network = plain("vgg"), REPLACEMENTS["WN-row-norms"].apply_(plain("vgg"), "vgg")
    rows = sum(len(effective(before, name)) for name in REPLACED_NAMES["vgg"])
    sizes = [sum(p.numel() for p in net.parameters()) for net in (before, network)]
    assert sizes[1] - sizes[0] == rows
    for name in REPLACED_NAMES["vgg"]:
        torch.testing.assert_close(effective(network, name), effective(before, name), atol=1e-6, rtol=1e-5)


def test_the_g_of_weight_normalisation_starts_at_1():
    before, network = plain("vgg"), REPLACEMENTS["WN"].apply_(plain("vgg"), "vgg")
    for name in REPLACED_NAMES["vgg"]:
        v = effective(before, name)
        torch.testing.assert_close(effective(network, name), v / v.norm(dim=1, keepdim=True), atol=1e-6, rtol=1e-5)
    extra = sum(p.numel() for p in network.parameters()) - sum(p.numel() for p in before.parameters())
    assert extra == sum(len(effective(before, name)) for name in REPLACED_NAMES["vgg"])


def test_the_authors_weight_normalisation_divides_rows_by_their_norm():
    before, network = plain("pie-mlp"), REPLACEMENTS["WN-unit"].apply_(plain("pie-mlp"), "pie-mlp")
    for name in REPLACED_NAMES["pie-mlp"]:
        v = effective(before, name)
        torch.testing.assert_close(effective(network, name), v / v.norm(dim=1, keepdim=True), atol=1e-6, rtol=1e-5)
    assert sum(p.numel() for p in network.parameters()) == sum(p.numel() for p in before.parameters())


def test_a_group_size_is_cut_to_what_a_layer_can_hold():
    network = REPLACEMENTS["OLM"].apply_(plain("pie-mlp"), "pie-mlp", {"group_size": 128})
    groups = {row.weight: row.groups for row in on.inspect(network).layers}
    # 128 rows in 1024 dimensions are one group; in 128 dimensions the centred limit is 127; 10 classes in 128.
    gram = effective(network, "3") @ effective(network, "3").mT
    torch.testing.assert_close(gram[:127, :127], torch.eye(127, dtype=torch.float64), atol=1e-5, rtol=0)
    assert math.isclose(float(gram[127, 127]), 1, abs_tol=1e-5)
    assert float(gram[127, :127].abs().max()) > 1e-3
    assert groups["1.weight"] == (128,)


def test_the_default_group_has_64_rows():
    network = build_model("vgg", {}, shape=CIFAR, classes=10, start="paper", seed=0)
    rows = effective(REPLACEMENTS["OLM"].apply_(network, "vgg"), "2")
    assert rows.shape == (128, 576)
    gram = rows @ rows.mT - torch.eye(128, dtype=torch.float64)
    assert max(float(gram[:64, :64].abs().max()), float(gram[64:, 64:].abs().max())) < 1e-4
    assert float(gram[:64, 64:].abs().max()) > 1e-2


@pytest.mark.parametrize("label", ["OLM-scale", "OLM-scale-row-norms"])
def test_scale_is_learned_and_starts_where_its_label_says(label: str):
    before, network = plain("pie-mlp"), REPLACEMENTS[label].apply_(plain("pie-mlp"), "pie-mlp", {"group_size": 32})
    extra = sum(p.numel() for p in network.parameters()) - sum(p.numel() for p in before.parameters())
    assert extra == 5 * 128 + 10
    norms = effective(network, "1").norm(dim=1)
    expected = effective(before, "1").norm(dim=1) if label.endswith("norms") else torch.ones(128, dtype=norms.dtype)
    torch.testing.assert_close(norms, expected, rtol=0.1 if label.endswith("norms") else 1e-5, atol=0)


def test_the_library_s_defaults_are_one_group_uncentred_with_an_orthonormal_v():
    before, network = plain("mlp"), REPLACEMENTS["orthonorm"].apply_(plain("mlp"), "mlp")
    for name in REPLACED_NAMES["mlp"]:
        u, _, vh = torch.linalg.svd(effective(before, name), full_matrices=False)
        torch.testing.assert_close(effective(network, name), u @ vh, atol=1e-5, rtol=0)
    originals = [p for name, p in network.named_parameters() if name.endswith("original")]
    assert [float(torch.linalg.cond(v.detach())) for v in originals] == pytest.approx([1.0] * len(originals), abs=1e-4)


WRONG = (
    ("vgg", {"first": 7}, r"vgg has 6 layers to replace \(every convolution\); got first 7"),
    ("vgg", {"first": 0}, "got first 0"),
    ("vgg", {"layers": "1x1"}, "layers must be one of hidden, all, convolutions, 3x3; got '1x1'"),
    ("lenet", {}, "model must be one of mlp, .*; got 'lenet'"),
)


@pytest.mark.parametrize(("model", "choice", "message"), WRONG, ids=[f"{w[0]}-{w[1]}" for w in WRONG])
def test_wrong_choices_are_told(model: str, choice: dict, message: str):
    with pytest.raises(UserError, match=message):
        replaced_layers(model, plain("vgg"), **choice)
