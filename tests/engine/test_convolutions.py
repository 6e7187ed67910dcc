import pytest
import torch
from torch import nn

from dpfl.data.datasets import COLOUR, GREY, feature_shape
from dpfl.engine import layers
from dpfl.engine.clip_bounds import rounding
from dpfl.engine.layers import Convolution, channels_last
from dpfl.engine.networks import ImageModel, build
from dpfl.engine.per_record_gradients import cross_entropy, gradient_rule

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
    squares, gradients = ours.squared_gradient_norms(d, cache, ())
    assert (gradients is None) == by_gram
    close = {"rtol": 0, "atol": 1e-11}
    torch.testing.assert_close(ours.forward(cache, parameters), output.detach(), **close)
    torch.testing.assert_close(ours.backward(d, cache, parameters), back, **close)
    torch.testing.assert_close(squares, norms, rtol=1e-11, atol=0)  # above by a bound on what rounding adds
    assert (squares * (1 + rounding(ours.roundings + 4, torch.float64)) >= norms).all()
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
