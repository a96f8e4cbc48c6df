"""The paper's networks: sizes by arithmetic from the layer tables, shapes, names, finite gradients."""

from collections.abc import Callable

import pytest
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.models import MODELS, build_model

CIFAR, IMAGENET, SMALL = (3, 32, 32), (3, 224, 224), (3, 64, 64)


def build(name: str, shape: tuple[int, ...] = CIFAR, classes: int = 10, **arguments) -> nn.Module:
    return build_model(name, arguments, shape=shape, classes=classes, start="paper", seed=0)


# Parameters of one layer: a kernel without bias, scale and shift of a normalisation, a linear layer with bias.
def conv(k: int, inputs: int, outputs: int) -> int:
    return k * k * inputs * outputs


def norm(channels: int) -> int:
    return 2 * channels


def linear(inputs: int, outputs: int) -> int:
    return (inputs + 1) * outputs


def count_pie_mlp() -> int:
    return linear(1024, 128) + 4 * linear(128, 128) + linear(128, 68)


def count_vgg() -> int:
    kernels = conv(3, 3, 64) + conv(3, 64, 128) + conv(3, 128, 256) + conv(3, 256, 256) + conv(3, 256, 512)
    kernels += conv(3, 512, 512)
    biases = 64 + 128 + 256 + 256 + 512 + 512
    return kernels + biases + linear(512, 512) + linear(512, 10)


def count_wide_resnet() -> int:
    # A stage of WRN-28 has (28 - 4) / 6 = 4 blocks; the first one changes the width and has the 1 x 1 shortcut.
    def stage(inputs: int, c: int) -> int:
        first = norm(inputs) + conv(3, inputs, c) + norm(c) + conv(3, c, c) + conv(1, inputs, c)
        return first + 3 * 2 * (norm(c) + conv(3, c, c))

    stages = stage(16, 160) + stage(160, 320) + stage(320, 640)
    return conv(3, 3, 16) + stages + norm(640) + linear(640, 10)


def count_preresnet_1001(normalisations: bool = True) -> int:
    # (1001 - 2) / 9 = 111 bottlenecks a stage: 1 x 1 to p planes, 3 x 3, 1 x 1 to 4 p.
    def stage(inputs: int, p: int) -> int:
        inner = conv(3, p, p) + conv(1, p, 4 * p)
        kernels = 111 * inner + conv(1, inputs, p) + 110 * conv(1, 4 * p, p) + conv(1, inputs, 4 * p)
        norms = norm(inputs) + 110 * norm(4 * p) + 111 * 2 * norm(p)
        return kernels + normalisations * norms

    stages = stage(16, 16) + stage(64, 32) + stage(128, 64)
    return conv(3, 3, 16) + stages + normalisations * norm(256) + linear(256, 10)


def block(k: int, inputs: int, outputs: int) -> int:
    return conv(k, inputs, outputs) + norm(outputs)


# The widths of the paper's BN-Inception: 1 x 1 | 3 x 3 reduce, 3 x 3 | double reduce, double | projection, and the
# channels that come in: what all branches of the module before give together (a pooling without projection gives all).
INCEPTION = (
    (192, 64, 64, 64, 64, 96, 32),
    (64 + 64 + 96 + 32, 64, 64, 96, 64, 96, 64),
    (64 + 96 + 96 + 64, 0, 128, 160, 64, 96, 0),
    (160 + 96 + 320, 224, 64, 96, 96, 128, 128),
    (224 + 96 + 128 + 128, 192, 96, 128, 96, 128, 128),
    (192 + 128 + 128 + 128, 160, 128, 160, 128, 160, 96),
    (160 + 160 + 160 + 96, 96, 128, 192, 160, 192, 96),
    (96 + 192 + 192 + 96, 0, 128, 192, 192, 256, 0),
    (192 + 256 + 576, 352, 192, 320, 160, 224, 128),
    (352 + 320 + 224 + 128, 352, 192, 320, 192, 224, 128),
)


def count_inception(stem: int, classes: int) -> int:
    total = stem
    for inputs, one, reduce, three, double_reduce, double, projection in INCEPTION:
        total += block(1, inputs, one) + block(1, inputs, projection)
        total += block(1, inputs, reduce) + block(3, reduce, three)
        total += block(1, inputs, double_reduce) + block(3, double_reduce, double) + block(3, double, double)
    return total + block(2, 576, 576) + block(2, 1024, 1024) + linear(1024, classes)


def count_alexnet() -> int:
    # torchvision's has the same widths, a bias in each convolution and no normalisation.
    plain = sum(p.numel() for p in torchvision.models.alexnet(weights=None).parameters())
    channels = 64 + 192 + 384 + 256 + 256
    return plain - channels + norm(channels) + 2 * norm(4096)


def count_preresnet34() -> int:
    # ResNet-34 (21.8 M) with its kernels and classifier. Normalisations: one after the stem, two a block but one in the
    # first, one at the end; torchvision's ResNet has one more after each of three shortcuts.
    kernels = conv(7, 3, 64) + 6 * conv(3, 64, 64)
    norms = norm(64) + 5 * norm(64)
    for inputs, c, blocks in ((64, 128, 4), (128, 256, 6), (256, 512, 3)):
        kernels += conv(3, inputs, c) + (2 * blocks - 1) * conv(3, c, c) + conv(1, inputs, c)
        norms += norm(inputs) + (2 * blocks - 1) * norm(c)
    return kernels + norms + norm(512) + linear(512, 1000)


SIZES = {
    "pie-mlp": (lambda: build("pie-mlp", (1, 32, 32), 68), count_pie_mlp, 0.206),
    "pie-mlp-batch": (
        lambda: build("pie-mlp", (1, 32, 32), 68, batch_norm=True),
        lambda: count_pie_mlp() + 5 * norm(128),
        0.207,
    ),
    "vgg": (lambda: build("vgg"), count_vgg, 4.77),
    "wide-resnet": (lambda: build("wide-resnet"), count_wide_resnet, 36.5),
    "preresnet-1001": (lambda: build("preresnet-cifar"), count_preresnet_1001, 10.3),
    "inception-cifar": (
        lambda: build("inception-cifar"),
        lambda: count_inception(block(3, 3, 64) + block(3, 64, 192), 10),
        15.7,
    ),
    "inception-imagenet": (
        lambda: build("inception-imagenet", IMAGENET, 1000),
        lambda: count_inception(block(7, 3, 64) + block(1, 64, 64) + block(3, 64, 192), 1000),
        16.7,
    ),
    "alexnet": (lambda: build("alexnet", IMAGENET, 1000), count_alexnet, 61.1),
    "resnet34": (lambda: build("resnet34", IMAGENET, 1000), lambda: count_preresnet34() + 2 * (128 + 256 + 512), 21.8),
    "preresnet34": (lambda: build("preresnet34", IMAGENET, 1000), count_preresnet34, 21.8),
}


@pytest.mark.parametrize("name", SIZES)
def test_the_number_of_parameters_is_that_of_the_layer_table(name: str):
    make, count, _ = SIZES[name]
    assert sum(p.numel() for p in make().parameters()) == count()


@pytest.mark.parametrize("name", SIZES)
def test_the_number_of_parameters_is_the_known_one(name: str):
    _, count, millions = SIZES[name]
    digits = 3 if millions < 1 else 2 if millions < 10 else 1
    assert round(count() / 1e6, digits) == millions


def test_wide_resnet_has_the_36_479_194_parameters_of_its_authors():
    assert count_wide_resnet() == 36_479_194


def test_preresnet_1001_has_the_10_2_million_that_its_authors_count_without_normalisations():
    assert round(count_preresnet_1001(normalisations=False) / 1e6, 1) == 10.2


def shapes(network: nn.Module, names: tuple[str, ...], image: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Shapes that come out of the named modules, computed without arithmetic."""
    found: dict[str, tuple[int, ...]] = {}

    def note(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            found[name] = tuple(output.shape[1:])

        return hook

    for name in names:
        network.get_submodule(name).register_forward_hook(note(name))
    network.to("meta")(torch.empty(2, *image, device="meta"))
    return [found[name] for name in names]


def test_sizes_inside_the_inception_for_cifar():
    names = ("stem", "inception3a", "inception3c", "down3", "inception4d", "down4", "inception5b", "classifier")
    assert shapes(build("inception-cifar", classes=100), names, CIFAR) == [
        (192, 28, 28), (256, 28, 28), (576, 28, 28), (576, 14, 14), (576, 14, 14), (1024, 7, 7), (1024, 7, 7), (100,),
    ]  # fmt: skip


def test_sizes_inside_the_inception_for_imagenet():
    names = ("stem.0", "stem.1", "stem.4", "inception3b", "inception4e", "inception5a", "classifier")
    assert shapes(build("inception-imagenet", IMAGENET, 1000), names, IMAGENET) == [
        (64, 112, 112), (64, 56, 56), (192, 28, 28), (320, 28, 28), (1024, 14, 14), (1024, 7, 7), (1000,),
    ]  # fmt: skip


def test_sizes_inside_the_residual_networks():
    names = ("stem", "stage1", "stage2", "stage3", "classifier")
    assert shapes(build("wide-resnet", classes=100), names, CIFAR) == [
        (16, 32, 32), (160, 32, 32), (320, 16, 16), (640, 8, 8), (100,),
    ]  # fmt: skip
    assert shapes(build("preresnet-cifar"), names, CIFAR) == [
        (16, 32, 32), (64, 32, 32), (128, 16, 16), (256, 8, 8), (10,),
    ]  # fmt: skip
    assert shapes(build("preresnet34", IMAGENET, 1000), (*names[:-1], "stage4", names[-1]), IMAGENET) == [
        (64, 56, 56), (64, 56, 56), (128, 28, 28), (256, 14, 14), (512, 7, 7), (1000,),
    ]  # fmt: skip


def test_sizes_inside_alexnet_and_vgg():
    names = ("features.0", "features.3", "features.7", "features.17", "features.18", "classifier")
    assert shapes(build("alexnet", IMAGENET, 1000), names, IMAGENET) == [
        (64, 55, 55), (64, 27, 27), (192, 13, 13), (256, 6, 6), (256, 6, 6), (1000,),
    ]  # fmt: skip
    assert shapes(build("vgg"), ("4", "9", "13", "14", "18"), CIFAR) == [
        (128, 16, 16), (256, 8, 8), (512, 8, 8), (512, 1, 1), (10,),
    ]  # fmt: skip


def test_depth_1001_has_1001_layers():
    # The stem, three convolutions in each of 333 blocks, and the classifier; shortcuts do not count.
    network = build("preresnet-cifar")
    layers = [name for name, m in network.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len([name for name in layers if not name.endswith("projection")]) == 1001
    assert len(layers) == 1004


SMOKE: dict[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]] = {
    "mlp": lambda: (build("mlp", (1, 32, 32)), (1, 32, 32)),
    "pie-mlp": lambda: (build("pie-mlp", (1, 32, 32), batch_norm=True), (1, 32, 32)),
    "vgg": lambda: (build("vgg", width=0.125), CIFAR),
    "inception-cifar": lambda: (build("inception-cifar", width=0.125), CIFAR),
    "wide-resnet": lambda: (build("wide-resnet", depth=10, width=1), CIFAR),
    "preresnet-cifar": lambda: (build("preresnet-cifar", depth=11), CIFAR),
    "alexnet": lambda: (build("alexnet", SMALL, width=0.125), SMALL),
    "inception-imagenet": lambda: (build("inception-imagenet", SMALL, width=0.125), SMALL),
    "resnet34": lambda: (build("resnet34", SMALL), SMALL),
    "preresnet34": lambda: (build("preresnet34", SMALL), SMALL),
}


def test_every_network_has_a_smoke_size():
    # Recurrent networks read sequences: test_sequences.py.
    assert SMOKE.keys() == MODELS.keys() - {"rnn", "lstm"}


@pytest.mark.parametrize("name", SMOKE)
def test_a_step_reaches_every_parameter_and_is_finite(name: str):
    network, shape = SMOKE[name]()
    logits = network(torch.randn(4, *shape))
    assert logits.shape == (4, 10)
    F.cross_entropy(logits, torch.arange(4)).backward()
    for key, parameter in network.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key
        assert parameter.grad.abs().sum() > 0, key


def layer_names(network: nn.Module) -> list[str]:
    return [name for name, module in network.named_modules() if isinstance(module, nn.Conv2d | nn.Linear)]


def test_layers_keep_their_names_and_order():
    assert layer_names(build("pie-mlp", (1, 32, 32))) == ["1", "3", "5", "7", "9", "11"]
    assert layer_names(build("vgg", width=0.1)) == ["0", "2", "5", "7", "10", "12", "16", "18"]
    assert layer_names(build("wide-resnet", depth=10, width=2)) == [
        "stem", *(f"stage{i}.0.{part}" for i in (1, 2, 3) for part in ("body.0", "body.3", "projection")), "classifier",
    ]  # fmt: skip
    assert layer_names(build("preresnet-cifar", depth=11))[:5] == [
        "stem", "stage1.0.body.0", "stage1.0.body.2", "stage1.0.body.4", "stage1.0.projection",
    ]  # fmt: skip
    inside = ["one.conv", "three.0.conv", "three.1.conv", "twice.0.conv", "twice.1.conv", "twice.2.conv", "pool.1.conv"]
    assert layer_names(build("inception-cifar", width=0.1))[:9] == [
        "stem.0.conv", "stem.1.conv", *(f"inception3a.branches.{name}" for name in inside),
    ]  # fmt: skip
    assert layer_names(build("alexnet", SMALL, width=0.1)) == [
        *(f"features.{i}" for i in (0, 4, 8, 11, 14)), *(f"classifier.{i}" for i in (1, 5, 8)),
    ]  # fmt: skip
    assert layer_names(build("preresnet34", SMALL))[:4] == ["stem.0", "stage1.0.body.0", "stage1.0.body.2",
                                                            "stage1.1.body.0"]  # fmt: skip


def test_normalisations_of_the_inception_and_alexnet_have_eps_1e_3():
    for network in (build("inception-cifar", width=0.1), build("alexnet", SMALL, width=0.1)):
        norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
        assert norms
        assert {m.eps for m in norms} == {1e-3}


def normalised(x: Tensor) -> Tensor:
    """Batch normalisation with the scale 1 and shift 0 of a fresh layer, from its definition."""
    mean = x.mean((0, 2, 3), keepdim=True)
    variance = (x - mean).square().mean((0, 2, 3), keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt()


def test_a_widening_block_projects_the_activated_input():
    network = build("wide-resnet", depth=10, width=2, dropout=0.0).double()
    block = network.get_submodule("stage2.0")
    x = torch.randn(3, 32, 8, 8, dtype=torch.float64)
    first, second, shortcut = (block.get_parameter(f"{n}.weight") for n in ("body.0", "body.2", "projection"))
    a = normalised(x).relu()
    hidden = normalised(F.conv2d(a, first, stride=2, padding=1)).relu()
    expected = F.conv2d(hidden, second, padding=1) + F.conv2d(a, shortcut, stride=2)
    torch.testing.assert_close(block(x), expected)


def test_an_equal_block_adds_the_input_itself():
    network = build("preresnet-cifar", depth=20).double()
    block = network.get_submodule("stage1.1")
    x = torch.randn(3, 64, 8, 8, dtype=torch.float64)
    weights = [block.get_parameter(f"body.{i}.weight") for i in (0, 2, 4)]
    hidden = F.conv2d(normalised(x).relu(), weights[0])
    hidden = F.conv2d(normalised(hidden).relu(), weights[1], padding=1)
    torch.testing.assert_close(block(x), x + F.conv2d(normalised(hidden).relu(), weights[2]))


def test_every_branch_of_an_inception_module_sees_the_input():
    module = build("inception-cifar", width=0.125).double().get_submodule("inception3c")
    x = torch.randn(2, 40, 6, 6, dtype=torch.float64)
    y = module(x)
    # 160 and 96 channels at an eighth, and the pooled input as it is.
    assert y.shape == (2, 20 + 12 + 40, 6, 6)
    torch.testing.assert_close(y[:, 32:], F.max_pool2d(F.pad(x, (1, 1, 1, 1), value=-torch.inf), 3, 1))


def test_in_the_cited_order_a_relu_comes_on_both_sides_of_the_normalisation():
    network = build("inception-cifar", width=0.125, relu_before_norm=True).double()
    x = torch.randn(2, 24, 6, 6, dtype=torch.float64)
    block = network.get_submodule("inception3a.branches.one")
    hidden = F.conv2d(x, block.get_parameter("conv.weight"), block.get_parameter("conv.bias")).relu()
    mean, variance = hidden.mean((0, 2, 3), keepdim=True), hidden.var((0, 2, 3), keepdim=True, correction=0)
    torch.testing.assert_close(block(x), ((hidden - mean) / (variance + 1e-3).sqrt()).relu())
    assert [type(m).__name__ for m in network.get_submodule("stem.0").children()] == ["Conv2d", "BatchNorm2d", "ReLU"]
    # Each of the 66 convolutions inside the modules has the bias that its normalisation no longer takes away.
    inside = [m for n, m in network.named_modules() if isinstance(m, nn.Conv2d) and n.startswith("inception")]
    assert [m.bias is not None for m in inside] == [True] * 66


def test_the_average_of_an_inception_module_counts_the_zero_border():
    pool = build("inception-cifar", width=0.125).get_submodule("inception3a.branches.pool.0")
    x = torch.randn(1, 2, 5, 5)
    torch.testing.assert_close(pool(x), F.pad(x, (1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1).mean((-2, -1)))


def test_dropout_of_wide_resnet_lies_between_the_two_convolutions():
    body = build("wide-resnet", depth=10, width=1).get_submodule("stage1.0.body")
    assert [type(m).__name__ for m in body.children()] == ["Conv2d", "Sequential", "Dropout", "Conv2d"]
    assert [m.p for m in body.modules() if isinstance(m, nn.Dropout)] == [0.3]


def test_width_scales_every_hidden_width():
    assert [m.out_channels for m in build("vgg", width=0.25).modules() if isinstance(m, nn.Conv2d)] == [
        16, 32, 64, 64, 128, 128,
    ]  # fmt: skip


WRONG = (
    ("vgg", (3, 28, 28), {}, "vgg takes images of 32 x 32; got 28 x 28"),
    ("vgg", (1024,), {}, r"vgg takes images of \(channels, height, width\); got the shape \(1024,\)"),
    ("vgg", CIFAR, {"width": 0.0}, r"width must be a factor .* got 0.0"),
    ("vgg", CIFAR, {"depth": 16}, "model vgg with .*depth"),
    ("wide-resnet", CIFAR, {"depth": 27}, r"depth of a wide-resnet must be 6 n \+ 4 .* got 27"),
    ("wide-resnet", CIFAR, {"width": 0}, "width of a wide-resnet must be at least 1; got 0"),
    ("wide-resnet", CIFAR, {"dropout": 1.0}, r"dropout must be a probability in \[0, 1\); got 1.0"),
    ("preresnet-cifar", CIFAR, {"depth": 1000}, r"depth of a preresnet-cifar must be 9 n \+ 2 .* got 1000"),
    ("inception-imagenet", CIFAR, {}, "inception-imagenet takes images of at least 64 x 64; got 32 x 32"),
    ("resnet34", (1, 64, 64), {}, "resnet34 takes images of 3 channels; got 1"),
    (
        "pie-mlp",
        (1, 32, 32),
        {"hidden_layers": 0},
        "hidden_layers and width of an mlp must be at least 1; got 0 and 128",
    ),
    ("resnet-50", CIFAR, {}, "model must be one of mlp, .*lstm; got 'resnet-50'"),
)


@pytest.mark.parametrize(("name", "shape", "arguments", "message"), WRONG, ids=[f"{w[0]}-{w[1]}-{w[2]}" for w in WRONG])
def test_wrong_arguments_are_told(name: str, shape: tuple[int, ...], arguments: dict, message: str):
    with pytest.raises(UserError, match=message):
        build(name, shape, **arguments)
