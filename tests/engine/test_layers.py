"""Layers: their closed forms, convolutions, and products that stay in single precision."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dpfl.data.datasets import COLOUR, GREY, feature_shape
from dpfl.engine import layers
from dpfl.engine.clip_bounds import rounding
from dpfl.engine.layers import (
    ChannelScale,
    Convolution,
    Dense,
    Flatten,
    MaxPoolLayer,
    MeanPoolLayer,
    ReLU,
    Tanh,
    channels_last,
)
from dpfl.engine.networks import ImageModel, ScaleShift, build
from dpfl.engine.per_record_gradients import cross_entropy, gradient_rule


def _images(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _compare(ours, layer: nn.Module, inputs: torch.Tensor, atol: float) -> None:
    """Value and gradient of a layer against torch's layer and autograd."""
    tracked = inputs.clone().requires_grad_()
    expected = layer(tracked)
    output_gradients = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=inputs.dtype)
    (back,) = torch.autograd.grad(expected, tracked, output_gradients)
    output, cache = ours.forward(inputs)
    torch.testing.assert_close(output, expected.detach(), rtol=0, atol=atol)
    torch.testing.assert_close(ours.backward(output_gradients, cache), back, rtol=0, atol=atol)


@pytest.mark.parametrize(("size", "stride"), [(2, 1), (2, 2), (3, 1), (3, 2), ((2, 3), (1, 2)), (2, 3)])
@pytest.mark.parametrize("levels", [None, 3, 1])
def test_pooling_is_torchs_and_ties_go_to_the_first_maximum(size, stride, levels):
    inputs = _images(4, 5, 9, 8)
    if levels:  # few values: most windows have several maxima
        inputs = (inputs * levels).round().clamp(0, levels - 1)
    for dtype in (torch.float32, torch.float64):
        images = channels_last(inputs.to(dtype))
        _compare(MaxPoolLayer(nn.MaxPool2d(size, stride)), nn.MaxPool2d(size, stride), images, 1e-6)


def test_only_plain_windows_are_pooled():
    assert MaxPoolLayer.does(nn.MaxPool2d(2, 1))
    for other in ({"padding": 1}, {"dilation": 2}, {"ceil_mode": True}, {"return_indices": True}):
        assert not MaxPoolLayer.does(nn.MaxPool2d(3, **other))


@pytest.mark.parametrize("size", [2, 4, (2, 4), (1, 8)])
def test_mean_pooling_is_torchs(size):
    for dtype in (torch.float32, torch.float64):
        images = channels_last(_images(3, 5, 4, 8).to(dtype))
        _compare(MeanPoolLayer(nn.AvgPool2d(size)), nn.AvgPool2d(size), images, 1e-6)


def test_means_are_taken_of_windows_that_divide_the_image_alone():
    images = _images(1, 2, 4, 6)
    assert MeanPoolLayer.does(nn.AvgPool2d(2), images)
    for other in ({"padding": 1}, {"stride": 1}, {"divisor_override": 3}):
        assert not MeanPoolLayer.does(nn.AvgPool2d(2, **other), images)
    assert not MeanPoolLayer.does(nn.AvgPool2d(3), images)


@pytest.mark.parametrize("shape", [(7, 5), (7, 5, 3), (7, 5, 2, 3)])
def test_scales_and_shifts_have_autograds_passes_norms_and_sums(shape):
    layer = ScaleShift(5).double()
    parameters = tuple(_images(2, 5))
    for parameter, value in zip(layer.parameters(), parameters, strict=True):
        parameter.data.copy_(value)
    inputs, factors = _images(*shape).requires_grad_(), torch.rand(7, dtype=torch.float64)
    output = layer(inputs)
    d = torch.randn_like(output)
    (back,) = torch.autograd.grad(output, inputs, d, retain_graph=True)
    records = [torch.autograd.grad(output[i], layer.parameters(), d[i], retain_graph=True) for i in range(7)]
    gradients = torch.stack([torch.cat(each) for each in records])
    ours = ChannelScale(layer, inputs[0].numel())
    cache = ours.cache_inputs(inputs.detach())
    torch.testing.assert_close(ours.forward(cache, parameters), output.detach())
    torch.testing.assert_close(ours.backward(d, cache, parameters), back)
    squares, formed = ours.squared_gradient_norms(d, cache, ())
    torch.testing.assert_close(squares, gradients.square().sum(1))
    for at_hand in (formed, None):
        torch.testing.assert_close(
            torch.cat(ours.weighted_gradient_sum(d, cache, (), factors, at_hand)), factors @ gradients
        )


def test_activations_and_flatten_are_torchs():
    inputs = _images(3, 4, 5, 6)
    _compare(Tanh(), nn.Tanh(), 3 * inputs, 1e-15)
    _compare(ReLU(), nn.ReLU(), inputs.round(), 0)
    _compare(Flatten(), nn.Flatten(), inputs, 0)


def test_tanh_in_single_precision_is_right_to_rounding_and_saturates():
    x = torch.cat([torch.linspace(-12, 12, 10_001), torch.tensor([-1e30, 1e30, -torch.inf, torch.inf])])
    output, _ = Tanh().forward(x)
    assert (output.double() - x.double().tanh()).abs().max() < 2.5e-7
    assert output[-4:].tolist() == [-1, 1, -1, 1]


def test_dense_norms_and_sums_are_those_of_the_gradients():
    a, d, factors = _images(6, 4), _images(6, 3) + 1, torch.rand(6, dtype=torch.float64)
    gradients = torch.cat([d[:, :, None] * a[:, None, :], d[:, :, None]], 2)
    squares, _ = Dense(nn.Linear(1, 1)).squared_gradient_norms(d, a, ())
    torch.testing.assert_close(squares, gradients.square().sum((1, 2)))
    weight, bias = Dense(nn.Linear(1, 1)).weighted_gradient_sum(d, a, (), factors, None)
    expected = torch.tensordot(factors, gradients, 1)
    torch.testing.assert_close(torch.cat([weight, bias[:, None]], 1), expected)


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_come_last_in_memory_even_where_there_is_one(channels):
    images = _images(2, channels, 4, 5).float()
    ours = channels_last(images)
    assert torch.equal(ours, images)
    assert ours.stride() == (20 * channels, 1, 5 * channels, channels)
    vectors = _images(2, 7)
    assert channels_last(vectors) is vectors


LAYERS = {
    "plain": lambda: nn.Conv2d(2, 3, 3),
    "strided, padded": lambda: nn.Conv2d(2, 40, 3, 2, 1),
    "dilated": lambda: nn.Conv2d(2, 3, 2, dilation=2),
    "oblong": lambda: nn.Conv2d(2, 9, (2, 5), (2, 1), (0, 1), (1, 1)),
    "one channel": lambda: nn.Conv2d(1, 4, 3, padding=2),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(("by_gram", "by_pixels"), [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize("reads_batch", [True, False])
@pytest.mark.parametrize("few", [0, 10**6])
def test_every_route_gives_autograds_passes_norms_and_sums(monkeypatch, name, by_gram, by_pixels, reads_batch, few):
    monkeypatch.setattr(layers, "WINDOW_NUMBERS_CACHED", few)
    monkeypatch.setattr(layers, "WINDOW_NUMBERS_AT_ONCE", 600)  # several parts of the records
    torch.manual_seed(0)
    layer = LAYERS[name]().double()
    inputs = torch.randn(7, layer.in_channels, 6, 7, dtype=torch.float64, requires_grad=True)
    output = layer(inputs)
    output_gradients = torch.randn_like(output)
    back, *_ = torch.autograd.grad(output, inputs, output_gradients, retain_graph=True)
    records = [
        torch.autograd.grad(output[i], layer.parameters(), output_gradients[i], retain_graph=True) for i in range(7)
    ]
    weights, biases = (torch.stack(each) for each in zip(*records, strict=True))
    norms = weights.flatten(1).square().sum(1) + biases.square().sum(1)
    factors = torch.rand(7, dtype=torch.float64)

    ours = Convolution(layer, inputs.shape[2:], reads_batch=reads_batch)
    ours.by_gram, ours.by_pixels = by_gram, by_pixels
    parameters, d = (layer.weight.detach(), layer.bias.detach()), channels_last(output_gradients)
    cache = ours.cache_inputs(channels_last(inputs.detach()))
    assert (cache.gram is not None) == (by_gram and reads_batch)
    assert (cache.windows is not None) == (ours.windows <= (layers.WINDOW_NUMBERS_SHARED if reads_batch else few))
    squares, gradients = ours.squared_gradient_norms(d, cache, ())
    assert (gradients is None) == by_gram
    close = {"rtol": 0, "atol": 1e-11}
    torch.testing.assert_close(ours.forward(cache, parameters), output.detach(), **close)
    torch.testing.assert_close(ours.backward(d, cache, parameters), back, **close)
    torch.testing.assert_close(squares, norms, rtol=1e-11, atol=0)  # above by a bound on what rounding adds
    assert (squares * (1 + rounding(ours.roundings + 4, torch.float64)) >= norms).all()
    small, _ = ours.squared_gradient_norms(d * 2**-40, cache, ())
    torch.testing.assert_close(small, squares * 2**-80, rtol=1e-11, atol=0)
    for at_hand in (gradients, None):
        weight, bias = ours.weighted_gradient_sum(d, cache, (), factors, at_hand)
        torch.testing.assert_close(weight, torch.tensordot(factors, weights, 1), **close)
        torch.testing.assert_close(bias, torch.tensordot(factors, biases, 1), **close)


def _routes(model: ImageModel, shape: tuple[int, int, int]) -> list[bool]:
    fed = feature_shape(shape) if model.reads_features else shape
    layers = gradient_rule(build(model, shape, seed=0), cross_entropy, torch.zeros(fed)).layers
    return [layer.by_gram for layer in layers if isinstance(layer, Convolution)]


def test_large_filters_on_few_positions_go_by_gram():
    assert _routes(ImageModel.CNN_TANH, GREY) == [False, True]
    assert _routes(ImageModel.CNN_TANH, COLOUR) == [False] * 4 + [True] * 3 + [False]
    assert _routes(ImageModel.SCATTER_CNN, GREY) == _routes(ImageModel.SCATTER_CNN, COLOUR) == [True]


# Products stay in single precision, whichever library forms them.


SIZE = st.integers(1, 200)
ROUNDING = 2.0**-24


def deviation(left, right):
    """The largest error of the product, over the product of magnitudes."""
    exact = left.double() @ right.double()
    return ((layers.product(left, right) - exact).abs() / (left.double().abs() @ right.double().abs())).max().item()


@settings(deadline=None)
@given(st.integers(1, 9), SIZE, SIZE, SIZE, st.booleans())
def test_no_product_is_rounded_to_less_than_single_precision(batch, rows, inner, columns, transposed):
    draws = torch.Generator().manual_seed(rows)
    left = torch.randn(batch, *((inner, rows) if transposed else (rows, inner)), generator=draws)
    left = left.transpose(1, 2) if transposed else left
    right = torch.randn(batch, inner, columns, generator=draws)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers, "LARGE", 0)
        assert deviation(left, right) <= inner * ROUNDING
        assert deviation(left[0], right[0]) <= inner * ROUNDING


def test_the_setting_is_torch_s_own_again_afterwards(monkeypatch):
    setting = torch.backends.mkldnn.matmul
    before = setting.fp32_precision
    monkeypatch.setattr(layers, "_keeps_precision", lambda: True)
    monkeypatch.setattr(layers, "LARGE", 0)
    with pytest.raises(RuntimeError):
        layers.product(torch.ones(2, 3), torch.ones(2, 3))
    assert setting.fp32_precision == before


@pytest.mark.parametrize(
    ("capabilities", "keeps"),
    [
        ({"avx512_f": True, "amx_tile": False, "amx_bf16": False, "avx10_2": False}, True),
        ({"avx512_f": True, "amx_tile": True, "amx_bf16": True, "avx10_2": False}, False),
        ({"avx512_f": False, "amx_tile": False, "amx_bf16": False, "avx10_2": False}, False),
        ({"neon": True, "bf16": True}, False),
        ({}, False),
    ],
)
def test_processors_that_could_round_are_left_alone(monkeypatch, capabilities, keeps):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert layers._keeps_precision.__wrapped__() is keeps
