import pytest
import torch
from torch import nn
from torch.func import functional_call

from dpfl.data.image_shapes import COLOUR, GREY
from dpfl.errors import InputError
from dpfl.models.image_models import (
    TANH,
    ChannelsLastMaxPool,
    ImageModel,
    Normalisation,
    TemperedSigmoid,
    build,
    image_model,
    prepare,
    softmax_regression,
)

PARAMETERS = {
    (ImageModel.CNN_RELU, GREY): 26_010,  # printed by Papernot et al. 2021
    (ImageModel.CNN_TANH, GREY): 26_010,
    (ImageModel.SCATTER_LINEAR, GREY): 81 * 7 * 7 * 10 + 10,
    (ImageModel.SCATTER_CNN, GREY): (81 * 9 + 1) * 16 + (16 * 9 + 1) * 32 + (512 + 1) * 32 + (32 + 1) * 10,
    (ImageModel.CNN_RELU, COLOUR): 550_570,
    (ImageModel.CNN_TANH, COLOUR): 550_570,
    (ImageModel.SCATTER_LINEAR, COLOUR): 243 * 8 * 8 * 10 + 10,
    (ImageModel.SCATTER_CNN, COLOUR): (243 * 9 + 1) * 64 + (64 * 9 + 1) * 64 + (1024 + 1) * 10,
}


def _inputs(model: ImageModel, shape: tuple[int, int, int], count: int = 3) -> torch.Tensor:
    channels, height, width = shape
    fed = (81 * channels, height // 4, width // 4) if model.reads_features else shape
    return torch.randn(count, *fed, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("model", "shape"), PARAMETERS)
def test_size_output_and_functional_use(model, shape):
    module = build(model, shape, seed=0)
    assert sum(parameter.numel() for parameter in module.parameters()) == PARAMETERS[model, shape]
    assert not list(module.buffers())
    inputs = _inputs(model, shape)
    logits = module(inputs)
    assert logits.shape == (3, 10)
    zeros = {name: torch.zeros_like(parameter) for name, parameter in module.named_parameters()}
    assert torch.equal(functional_call(module, zeros, (inputs,)), torch.zeros(3, 10))


def test_initial_weights_are_addressed_and_leave_the_global_generator_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    addresses = ((1, 0), (1, 0), (2, 0), (1, 1))
    drawn = [build(ImageModel.CNN_TANH, GREY, *address).parameters() for address in addresses]
    assert torch.equal(torch.get_rng_state(), before)
    for first, again, seed, client in zip(*drawn, strict=True):
        assert torch.equal(first, again)
        assert not torch.equal(first, seed)
        assert not torch.equal(first, client)


def test_tempered_sigmoid_follows_its_formula_is_tanh_at_its_default_and_used_elsewhere():
    x = torch.linspace(-30, 30, 1001, dtype=torch.float64)
    torch.testing.assert_close(TemperedSigmoid(*TANH)(x), torch.tanh(x), rtol=0, atol=1e-15)
    expected = 1.58 / (1 + torch.exp(-3.0 * x)) - 0.71
    torch.testing.assert_close(TemperedSigmoid(1.58, 3.0, 0.71)(x), expected, rtol=0, atol=1e-14)

    def kinds(**other):
        return {type(each) for each in build(ImageModel.CNN_TANH, GREY, seed=0, **other).modules()}

    assert nn.Tanh in kinds() and TemperedSigmoid not in kinds()
    assert TemperedSigmoid in kinds(tempered_sigmoid=(1.58, 3.0, 0.71))
    with pytest.raises(InputError, match="tempered_sigmoid"):
        kinds(tempered_sigmoid=(0, 2, 1))


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


def test_prepare_scales_pixels_and_normalises_every_channel_of_every_record_alone():
    pixels = torch.tensor([[[[0, 255], [51, 102]]]], dtype=torch.uint8)
    expected = torch.tensor([[[[0, 1], [0.2, 0.4]]]])
    torch.testing.assert_close(prepare(ImageModel.CNN_RELU, pixels), expected)
    features = 5 + 3 * _inputs(ImageModel.SCATTER_CNN, COLOUR)
    prepared = prepare(ImageModel.SCATTER_CNN, features)
    torch.testing.assert_close(prepared.mean((2, 3)), torch.zeros(3, 243), rtol=0, atol=1e-5)
    torch.testing.assert_close(prepared.var((2, 3), unbiased=False), torch.ones(3, 243), rtol=0, atol=1e-3)
    layer = nn.GroupNorm(243, 243, affine=False)
    torch.testing.assert_close(prepared, layer(features), rtol=0, atol=1e-6)
    assert torch.equal(prepared[1:2], prepare(ImageModel.SCATTER_CNN, features[1:2]))


def test_other_normalisations_are_group_norms_of_one_record():
    features = 5 + 3 * _inputs(ImageModel.SCATTER_CNN, COLOUR)
    for normalisation, groups in ((Normalisation.GROUPS27, 27), (Normalisation.STANDARDISED, 1)):
        prepared = prepare(ImageModel.SCATTER_CNN, features, normalisation).unflatten(1, (groups, -1)).flatten(2)
        torch.testing.assert_close(prepared.mean(2), torch.zeros(3, groups), rtol=0, atol=1e-5)
        torch.testing.assert_close(prepared.var(2, unbiased=False), torch.ones(3, groups), rtol=0, atol=1e-3)
    assert torch.equal(prepare(ImageModel.SCATTER_CNN, features, Normalisation.NONE), features)
    pixels = torch.randint(256, (3, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for normalisation in (Normalisation.CHANNEL, Normalisation.GROUPS27, Normalisation.NONE):
        assert torch.equal(prepare(ImageModel.CNN_TANH, pixels, normalisation), pixels / 255)
    standardised = prepare(ImageModel.CNN_TANH, pixels, Normalisation.STANDARDISED)
    torch.testing.assert_close(standardised.mean((1, 2, 3)), torch.zeros(3), rtol=0, atol=1e-5)
    with pytest.raises(InputError, match="normalisation: 8 channels do not make 27 groups"):
        prepare(ImageModel.SCATTER_CNN, torch.ones(1, 8, 2, 2), Normalisation.GROUPS27)


def test_refuses_unknown_models_and_shapes():
    with pytest.raises(InputError, match="cnn_relu, cnn_tanh"):
        image_model("resnet")
    with pytest.raises(InputError, match=r"\(1, 8, 8\)"):
        build(ImageModel.CNN_RELU, (1, 8, 8), seed=0)


def test_softmax_regression_starts_at_zero():
    module = softmax_regression(7, 3)
    assert module.weight.shape == (3, 7) and not module.weight.any() and not module.bias.any()
