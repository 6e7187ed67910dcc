"""The models of images: sizes as published, inputs as prepared, and the law of their initial weights."""

import pytest
import torch
from scipy import stats
from torch import nn
from torch.func import functional_call

from dpfl.data.datasets import COLOUR, GREY
from dpfl.engine.networks import (
    PIXEL_CONSTANTS,
    Architecture,
    ChannelsLastMaxPool,
    FeatureNorm,
    ImageModel,
    Pixels,
    ScaleShift,
    build,
    image_model,
    initialised,
    prepare,
    softmax_regression,
)
from dpfl.errors import InputError

AUTHORS, CITED = Architecture
PARAMETERS = {
    (AUTHORS, ImageModel.CNN_RELU, GREY): 10_650,  # of the authors' code, like all of AUTHORS
    (AUTHORS, ImageModel.CNN_TANH, GREY): 10_650,
    (AUTHORS, ImageModel.SCATTER_LINEAR, GREY): 7_938 + 3969 * 10 + 10,
    (AUTHORS, ImageModel.SCATTER_CNN, GREY): 162 + (729 + 1) * 16 + (144 + 1) * 32 + (128 + 1) * 32 + (32 + 1) * 10,
    (AUTHORS, ImageModel.CNN_RELU, COLOUR): 605_226,
    (AUTHORS, ImageModel.CNN_TANH, COLOUR): 605_226,
    (AUTHORS, ImageModel.SCATTER_LINEAR, COLOUR): 31_104 + 15_552 * 10 + 10,
    (AUTHORS, ImageModel.SCATTER_CNN, COLOUR): 486 + (2187 + 1) * 64 + (576 + 1) * 64 + (256 + 1) * 10,
    (CITED, ImageModel.CNN_RELU, GREY): 26_010,  # printed by Papernot et al. 2021
    (CITED, ImageModel.CNN_TANH, GREY): 26_010,
    (CITED, ImageModel.SCATTER_LINEAR, GREY): 7_938 + 3969 * 10 + 10,
    (CITED, ImageModel.SCATTER_CNN, GREY): 162 + (729 + 1) * 16 + (144 + 1) * 32 + (512 + 1) * 32 + (32 + 1) * 10,
    (CITED, ImageModel.CNN_RELU, COLOUR): 550_570,
    (CITED, ImageModel.CNN_TANH, COLOUR): 550_570,
    (CITED, ImageModel.SCATTER_LINEAR, COLOUR): 31_104 + 15_552 * 10 + 10,
    (CITED, ImageModel.SCATTER_CNN, COLOUR): 486 + (2187 + 1) * 64 + (576 + 1) * 64 + (1024 + 1) * 10,
}


def _inputs(model: ImageModel, shape: tuple[int, int, int], count: int = 3) -> torch.Tensor:
    channels, height, width = shape
    fed = (81 * channels, height // 4, width // 4) if model.reads_features else shape
    return torch.randn(count, *fed, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("network", "model", "shape"), PARAMETERS)
def test_size_output_and_functional_use(network, model, shape):
    module = build(model, shape, 0, network)
    assert sum(parameter.numel() for parameter in module.parameters()) == PARAMETERS[network, model, shape]
    assert not list(module.buffers())
    inputs = _inputs(model, shape)
    logits = module(inputs)
    assert logits.shape == (3, 10)
    zeros = {name: torch.zeros_like(parameter) for name, parameter in module.named_parameters()}
    assert torch.equal(functional_call(module, zeros, (inputs,)), torch.zeros(3, 10))


def test_initial_weights_are_addressed_and_leave_the_global_generator_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    drawn = [build(ImageModel.CNN_TANH, GREY, seed).parameters() for seed in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), before)
    for first, again, other in zip(*drawn, strict=True):
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


def test_a_learnt_norm_is_a_scale_and_a_shift_before_the_rest_and_a_fixed_one_is_not_there():
    for shape, channels in ((GREY, 81), (COLOUR, 243)):
        learnt, fixed = (
            [each.numel() for each in build(ImageModel.SCATTER_CNN, shape, 0, feature_norm=norm).parameters()]
            for norm in FeatureNorm
        )
        assert learnt == [channels, channels, *fixed]


@pytest.mark.parametrize("model", [ImageModel.SCATTER_LINEAR, ImageModel.SCATTER_CNN])
@pytest.mark.parametrize("shape", [GREY, COLOUR])
def test_prepared_features_and_the_learnt_norm_are_torchs_group_norm(model, shape):
    """SN + linear has its norm on the flattened vector, as in the authors' code: the groups are the same numbers."""
    features = (5 + 3 * _inputs(model, shape)).abs()
    module = build(model, shape, 0)
    own = next(each for each in module.modules() if isinstance(each, ScaleShift))
    with torch.no_grad():
        own.weight.uniform_(0.5, 2), own.bias.uniform_(-1, 1)
    norm = nn.GroupNorm(27, own.channels)
    norm.load_state_dict(own.state_dict())
    flat = features.flatten(1) if model is ImageModel.SCATTER_LINEAR else features
    expected = norm(flat * 255)
    prepared = prepare(model, features, "mnist")
    prepared = prepared.flatten(1) if model is ImageModel.SCATTER_LINEAR else prepared
    torch.testing.assert_close(own(prepared), expected, rtol=0, atol=2e-5)


def test_the_grey_cnn_has_relu_after_its_dense_layer_whatever_its_activation():
    kinds = [type(each) for each in build(ImageModel.CNN_TANH, GREY, 0)]
    assert kinds.count(nn.Tanh) == 2 and kinds.count(nn.ReLU) == 1
    assert nn.ReLU not in {type(each) for each in build(ImageModel.CNN_TANH, GREY, 0, Architecture.CITED)}


def test_average_pools_stand_after_the_activation():
    """There the order matters: mean(tanh) is another function than tanh(mean)."""
    kinds = [type(each) for each in build(ImageModel.CNN_TANH, COLOUR, 0)]
    pools = [place for place, kind in enumerate(kinds) if kind is nn.AvgPool2d]
    assert [kinds[place - 1] for place in pools] == [nn.Tanh] * 3 + [nn.Conv2d]


@pytest.mark.parametrize("stride", [1, 2])
def test_pooling_has_the_values_and_slopes_of_torch(stride):
    x = torch.randn(4, 5, 8, 8, generator=torch.Generator().manual_seed(0)).relu().requires_grad_()
    for pool in (ChannelsLastMaxPool(2, stride=stride), nn.MaxPool2d(2, stride=stride)):
        output = pool(x)
        slope = torch.autograd.grad((output * torch.arange(output.numel()).view(output.shape)).sum(), x)
        if isinstance(pool, ChannelsLastMaxPool):
            ours = output, slope[0]
    assert torch.equal(ours[0], output)
    assert ours[0].is_contiguous()
    assert torch.equal(ours[1], slope[0])


def test_the_constants_of_pixels_are_those_of_the_authors_code():
    """As its transforms have them; bhaskar2025's code normalises Fashion-MNIST to [-1, 1]."""
    assert PIXEL_CONSTANTS == {
        "mnist": ((0.1307,), (0.3081,)),
        "fashion_mnist": ((0.5,), (0.5,)),
        "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    }


def test_pixels_are_standardised_by_the_constants_of_the_code_or_lie_between_0_and_1():
    pixels = torch.tensor([[[[0, 255], [51, 102]]]], dtype=torch.uint8)
    unit = torch.tensor([[[[0, 1], [0.2, 0.4]]]])
    read = prepare(ImageModel.CNN_RELU, pixels, "mnist", Pixels.UNIT_INTERVAL)
    torch.testing.assert_close(read, unit)
    torch.testing.assert_close(prepare(ImageModel.CNN_RELU, pixels, "mnist"), (unit - 0.1307) / 0.3081)
    torch.testing.assert_close(prepare(ImageModel.CNN_TANH, pixels, "fashion_mnist"), 2 * unit - 1)
    colours = prepare(ImageModel.CNN_TANH, pixels.repeat(1, 3, 1, 1), "cifar10")
    for channel, (mean, deviation) in enumerate(zip(*PIXEL_CONSTANTS["cifar10"], strict=True)):
        torch.testing.assert_close(colours[:, channel], (unit[:, 0] - mean) / deviation)
    with pytest.raises(InputError, match="pixels: authors has constants for mnist, fashion_mnist, cifar10, not for x"):
        prepare(ImageModel.CNN_TANH, pixels, "x")


def test_features_are_normalised_by_group_or_by_channel_each_record_alone():
    features = 5 + 3 * _inputs(ImageModel.SCATTER_CNN, COLOUR)
    for norm, groups in ((FeatureNorm.LEARNT, 27), (FeatureNorm.FIXED, 243)):
        prepared = prepare(ImageModel.SCATTER_CNN, features, "cifar10", feature_norm=norm)
        grouped = prepared.unflatten(1, (groups, -1)).flatten(2)
        torch.testing.assert_close(grouped.mean(2), torch.zeros(3, groups), rtol=0, atol=1e-5)
        torch.testing.assert_close(grouped.var(2, unbiased=False), torch.ones(3, groups), rtol=0, atol=1e-3)
        assert torch.equal(prepared[1:2], prepare(ImageModel.SCATTER_CNN, features[1:2], "cifar10", feature_norm=norm))
    with pytest.raises(InputError, match="feature_norm: 8 channels do not make 27 groups"):
        prepare(ImageModel.SCATTER_CNN, torch.ones(1, 8, 2, 2), "mnist")


def test_features_of_raw_pixels_are_255_times_as_large():
    """Faint features tell: the group norm adds 1e-5 to a variance, which those of pixels in [0, 1] can be below."""
    features = 1e-3 * _inputs(ImageModel.SCATTER_CNN, GREY)
    for pixels, scale in ((Pixels.AUTHORS, 255), (Pixels.UNIT_INTERVAL, 1)):
        expected = nn.GroupNorm(27, 81, affine=False)(scale * features)
        read = prepare(ImageModel.SCATTER_CNN, features, "mnist", pixels)
        torch.testing.assert_close(read, expected, rtol=0, atol=1e-5)
    assert read.abs().max() < 1.5


def test_refuses_unknown_models_and_shapes():
    with pytest.raises(InputError, match="cnn_relu, cnn_tanh"):
        image_model("resnet")
    with pytest.raises(InputError, match=r"\(1, 8, 8\)"):
        build(ImageModel.CNN_RELU, (1, 8, 8), seed=0)


def test_softmax_regression_starts_at_zero():
    module = softmax_regression(7, 3)
    assert module.weight.shape == (3, 7) and not module.weight.any() and not module.bias.any()


def three_layers():
    return nn.Sequential(nn.Conv2d(3, 40, 5), nn.ReLU(), nn.Flatten(), nn.Linear(40, 300), nn.Linear(300, 20))


def test_weights_have_the_law_of_torchs_own():
    """Two-sample KS of every parameter against torch's initialisation, false alarm 1e-9 each, and the same bounds."""
    ours = initialised(three_layers, 0)
    torch.manual_seed(0)
    theirs = [list(three_layers().parameters()) for _ in range(20)]
    for number, parameter in enumerate(ours.parameters()):
        reference = torch.cat([each[number].detach().flatten() for each in theirs]).numpy()
        values = parameter.detach().flatten().numpy()
        assert stats.ks_2samp(values, reference).pvalue > 1e-9
        assert abs(values).max() <= abs(reference).max() * 1.05
        if len(values) > 2000:
            assert stats.ks_2samp(values * 1.5, reference).pvalue < 1e-9


def test_an_address_decides_every_weight_and_torchs_generator_is_left_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    drawn = [initialised(three_layers, seed).parameters() for seed in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), before)
    for first, again, other in zip(*drawn, strict=True):
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        assert first.dtype is torch.float32 and first.requires_grad


def test_layers_of_an_unknown_law_are_named():
    with pytest.raises(ValueError, match="LayerNorm"):
        initialised(lambda: nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)), 0)


def test_scales_begin_at_one_and_shifts_at_zero_and_draw_nothing():
    scaled, plain = (
        initialised(lambda first=first: nn.Sequential(*first, nn.Linear(4, 3)), seed=0)
        for first in ([ScaleShift(4)], [])
    )
    assert (scaled[0].weight == 1).all() and (scaled[0].bias == 0).all()
    assert torch.equal(scaled[1].weight, plain[0].weight)
