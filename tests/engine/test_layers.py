import pytest
import torch
from torch import nn

from dpfl.engine.layers import (
    ChannelScale,
    Dense,
    Flatten,
    MaxPoolLayer,
    MeanPoolLayer,
    ReLU,
    Tanh,
    channels_last,
)
from dpfl.engine.networks import ScaleShift


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
