"""Layers: their closed forms, convolutions, and products that stay in single precision."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dpfl.data.datasets import COLOUR, GREY, feature_shape
from dpfl.engine import layers
from dpfl.engine.layers import (
    ChannelScale,
    Convolution,
    ConvolutionCache,
    Dense,
    Flatten,
    MaxPoolLayer,
    MeanPoolLayer,
    ReLU,
    Tanh,
    channels_last,
    norm_roundings,
    rounding,
    scaled,
    squared_norms,
    sure_factors,
    unit,
)
from dpfl.engine.networks import ImageModel, ScaleShift, build
from dpfl.engine.per_record_gradients import (
    LayerGradients,
    LinearGradients,
    PerRecordGradients,
    cross_entropy,
    gradient_rule,
)


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


# No record adds more than the clip norm, in the arithmetic that runs: docs/clipping_precision.md.
#
# What a record adds is rebuilt in double precision from the very numbers that are multiplied and summed: its scaled
# gradients at a layer's output, rounded as they are, and the layer's inputs; or its formed gradient and its factor.

NETWORKS = {
    "dense": lambda: nn.Sequential(nn.Flatten(), nn.Linear(256, 300), nn.Tanh(), nn.Linear(300, 5)),
    "products": lambda: nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 5)
    ),
    "gram": lambda: nn.Sequential(
        nn.Conv2d(4, 40, 3, 2, 1), nn.ReLU(), nn.Conv2d(40, 40, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(160, 5)
    ),
    "scaled convolution": lambda: nn.Sequential(
        ScaleShift(4), nn.Conv2d(4, 40, 3, 2, 1), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(160, 5)
    ),
    "scaled": lambda: nn.Sequential(ScaleShift(4), nn.Tanh(), nn.Flatten(), nn.Linear(256, 5)),
}  # fmt: skip
PRECISIONS = {"float64": None, "float32": None, "bfloat16": torch.bfloat16}
SEEDS = st.integers(0, 2**31)
SIZES = st.sampled_from([1e-3, 1.0, 30.0])


def _problem(make, precision, seed, size):
    """A rule, weights of two models, a batch, on inputs and weights of that size."""
    dtype = torch.float64 if precision == "float64" else torch.float32
    torch.manual_seed(seed)
    module = make().to(dtype)
    x = size * torch.randn(6, 4, 8, 8, dtype=dtype)
    if seed % 2:  # positions that are alike: what rounding adds does not cancel
        x = size * torch.ones_like(x) * (1 + torch.randn(6, 1, 1, 1, dtype=dtype) / 8)
    rule = gradient_rule(module, cross_entropy, x[0], PRECISIONS[precision])
    weights = torch.cat([each.detach().flatten() for each in module.parameters()]).repeat(2, 1)
    weights = weights * (1 + torch.randn(weights.shape, dtype=dtype))
    return module, rule, weights, (x, torch.arange(6) % 5, torch.ones(6, dtype=dtype))


def _double(value):
    """Everything in a cache in double precision."""
    if isinstance(value, ConvolutionCache):
        return ConvolutionCache(*(None if each is None else each.double() for each in value))
    return value.double()


def _record(value, number):
    if isinstance(value, ConvolutionCache):
        return ConvolutionCache(*(None if each is None else each[number : number + 1] for each in value))
    return value[number : number + 1]


def _added(rule, weights, batch, clip_norm):
    """The norm of what each record adds to one model's sum."""
    with torch.inference_mode():
        own = rule._by_layer(list(rule.layout.views(weights).values()))
        prepared, shared = rule._shared_cache(batch)
        passed = rule._passes(own, clip_norm, prepared, shared)
        norms = torch.zeros(len(batch[0]), dtype=torch.float64)
        one = torch.ones(1, dtype=torch.float64)
        for number in range(len(norms)):
            for each in rule.trained:
                d, formed = passed.output_gradients[each], passed.gradients[each]
                d = _record(scaled(d, passed.factors), number).double()
                assert passed.factors.dtype == batch[0].dtype  # and so is d before it is lifted
                known = None
                if formed is not None:
                    factor = passed.factors[number].double()
                    known = tuple(factor * _record(part, number).double() for part in formed)
                cache = _record(_double(passed.caches[each]), number)
                parameters = tuple(part.double() for part in own[each])
                parts = rule.layers[each].weighted_gradient_sum(d, cache, parameters, one, known)
                norms[number] += sum(part.square().sum() for part in parts)
    return norms.sqrt()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NETWORKS)
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, size=SIZES, share=st.sampled_from([1e-3, 0.5, 1 - 2**-20, 1.0]))
def test_no_record_adds_more_than_the_clip_norm(name, precision, seed, size, share):
    """Clip norms far below, just below and at the norm of a record."""
    _, rule, weights, batch = _problem(NETWORKS[name], precision, seed, size)
    assert isinstance(rule, LayerGradients)
    plain = _added(rule, weights[0], batch, torch.tensor(1e30, dtype=batch[0].dtype))
    clip_norm = (share * plain.max()).to(batch[0].dtype)
    if clip_norm > 1e-30:
        added = _added(rule, weights[0], batch, clip_norm)
        assert (added <= float(clip_norm) * (1 + 2**-52)).all()
        assert added.max() > 0.93 * clip_norm  # the margin is no excuse


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("scales", [True, False])
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, size=SIZES, share=st.sampled_from([1e-3, 0.5, 1 - 2**-20, 1.0]))
def test_nor_to_a_linear_model(scales, precision, seed, size, share):
    """What one record adds to the bias is its scaled gradient itself; the rest follows from that."""
    first = [ScaleShift(256)] if scales else []
    _, rule, weights, batch = _problem(
        lambda: nn.Sequential(nn.Flatten(), *first, nn.Linear(256, 5)), precision, seed, size
    )
    assert isinstance(rule, LinearGradients)

    def added(clip_norm):
        norms = []
        for record in range(6):
            alone = tuple(part[record : record + 1] for part in batch)
            d = rule.clipped_sums(weights[:1], alone, clip_norm)[0, -5:].double()
            x = alone[0].flatten().double()
            *scaling, matrix, _ = (part[0].double() for part in weights[:1].split(rule.numbers, 1))
            back = d @ matrix.view(5, -1)
            read = x * scaling[0] + scaling[1] if scales else x
            squares = d.square().sum() * (read.square().sum() + 1)
            norms.append(squares + ((back * x).square().sum() + back.square().sum() if scales else 0))
        return torch.stack(norms).sqrt()

    plain = added(torch.tensor([1e30], dtype=batch[0].dtype))
    clip_norm = (share * plain.max()).to(batch[0].dtype)
    if clip_norm > 1e-30:
        found = added(clip_norm[None])
        assert (found <= float(clip_norm) * (1 + 2**-52)).all()
        assert found.max() > 0.99 * clip_norm


@pytest.mark.parametrize("precision", PRECISIONS)
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, size=SIZES, share=st.sampled_from([1e-3, 0.5, 1.0]))
def test_nor_where_any_module_is_differentiated_record_by_record(precision, seed, size, share):
    module, _, weights, batch = _problem(NETWORKS["products"], precision, seed, size)
    rule = PerRecordGradients(module, cross_entropy, PRECISIONS[precision])
    records = [tuple(part[each : each + 1] for part in batch) for each in range(6)]

    def added(clip_norm):
        return torch.stack([rule.clipped_sums(weights[:1], each, clip_norm[None])[0] for each in records]).double()

    plain = added(torch.tensor(1e30, dtype=batch[0].dtype)).norm(dim=1)
    clip_norm = (share * plain.max()).to(batch[0].dtype)
    assert (added(clip_norm).norm(dim=1) <= float(clip_norm) * (1 + 2**-52)).all()


def _adversary(precision):
    """A convolution of one pixel a window, 512 channels and filters, and its inputs and gradients in the format of the
    passes, on 16 positions that are alike. Their Gram matrices are single precision and lose what they can: next to
    the first square, every other is just too small to be added."""
    layer = Convolution(nn.Conv2d(512, 512, 1, device="meta"), (4, 4), reads_batch=False)
    layer.by_gram = True
    lost = math.sqrt(unit(torch.float32)) * (1 - unit(precision) if precision is torch.bfloat16 else 1 - 2**-10)
    numbers = 64 * torch.cat([torch.ones(1), torch.full((511,), lost)]).to(precision)
    images = channels_last(numbers.view(1, -1, 1, 1).expand(1, 512, 4, 4).contiguous())
    return layer, images


PASSES = pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)


@PASSES
def test_an_adversarial_record_comes_within_a_tenth_of_what_the_gram_matrices_bound(monkeypatch, precision):
    monkeypatch.setattr(layers, "LARGE", 0)
    layer, images = _adversary(precision)
    cache = layer.cache_inputs(images)
    bound, _ = layer.squared_gradient_norms(images, cache, ())
    assert images.dtype is precision and bound.dtype is torch.float32
    exact = (images[0, :, 0, 0].double().square().sum() * (images[0, :, 0, 0].double().square().sum() + 1)) * 16**2
    monkeypatch.setattr(layers, "rounding", lambda *_: 0.0)
    taken, _ = layer.squared_gradient_norms(images, cache, ())
    lost, allowed = exact / taken.double() - 1, bound.double() / taken.double() - 1
    assert 0 < float(lost) <= float(allowed)
    # oneDNN adds in one row, as the bound fears; other libraries add in several, and lose less
    assert float(lost) > (0.9 if layers._keeps_precision() else 0.1) * float(allowed)


@PASSES
def test_without_the_margin_that_record_would_exceed_its_clip_norm(monkeypatch, precision):
    monkeypatch.setattr(layers, "LARGE", 0)
    layer, images = _adversary(precision)

    def added():
        squares, _ = layer.squared_gradient_norms(images, layer.cache_inputs(images), ())
        factor = sure_factors(squares, torch.tensor(1.0), layer.roundings)
        d = scaled(images, factor)
        assert d.dtype is torch.float32
        weight, bias = layer.weighted_gradient_sum(d.double(), _double(layer.cache_inputs(images)), (), None, None)
        return float((weight.square().sum() + bias.square().sum()).sqrt())

    assert added() <= 1
    monkeypatch.setattr(layers, "rounding", lambda *_: 0.0)
    assert added() > 1 + 5e-6


def test_factors_rounded_to_bfloat16_would_let_a_record_weigh_1_0038_clip_norms():
    """As the first prototype did: why nothing is rounded to bfloat16 once its norm is taken."""
    d, clip_norm = torch.full((1, 100), 1.5).bfloat16(), (1 + 2**-8 + 2**-12) * 10
    factor = sure_factors(squared_norms(d.float()), torch.tensor(clip_norm), norm_roundings(100))
    kept = scaled(d, factor)
    rounded = kept.bfloat16()
    assert kept.double().norm() <= clip_norm
    assert rounded.double().norm() > clip_norm * (1 + 0.9 * unit(torch.bfloat16))


@settings(max_examples=50, deadline=None)
@given(numbers=st.integers(1, 3000), seed=SEEDS)
def test_squared_norms_keep_their_word(numbers, seed):
    draw = torch.Generator().manual_seed(seed)
    vectors = torch.rand(3, numbers, generator=draw)
    exact = vectors.double().square().sum(1)
    allowed = rounding(norm_roundings(numbers), torch.float32)
    assert ((squared_norms(vectors).double() / exact - 1).abs() <= allowed).all()
    assert norm_roundings(numbers) <= 2 * (layers.BLOCK + 4)


def test_roundings_are_highams():
    assert unit(torch.bfloat16) == 2**-8 and unit(torch.float32) == 2**-24
    assert rounding(1, torch.float32) == pytest.approx(2**-24, rel=1e-6)
    assert (1 + unit(torch.float32)) ** 1000 - 1 <= rounding(1000, torch.float32)
