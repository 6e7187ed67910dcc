"""No record adds more than the clip norm, in the arithmetic that runs: docs/clipping_precision.md.

What a record adds is rebuilt in double precision from the very numbers that are multiplied and summed: its scaled
gradients at a layer's output, rounded as they are, and the layer's inputs; or its formed gradient and its factor.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dpfl.engine import clip_bounds, layers
from dpfl.engine.clip_bounds import norm_roundings, rounding, squared_norms, sure_factors, unit
from dpfl.engine.layers import Convolution, ConvolutionCache, channels_last, scaled
from dpfl.engine.networks import ScaleShift
from dpfl.engine.per_record_gradients import (
    LayerGradients,
    LinearGradients,
    PerRecordGradients,
    cross_entropy,
    gradient_rule,
)

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


def _adversary(dtype):
    """A convolution of one pixel a window, 512 channels and filters, on 16 positions that are alike, whose Gram
    matrices lose what they can: next to the first square, every other is just too small to be added."""
    layer = Convolution(nn.Conv2d(512, 512, 1, device="meta"), (4, 4), reads_batch=False)
    layer.by_gram = True
    lost = math.sqrt(unit(dtype)) * (1 - 2**-10)
    numbers = 64 * torch.cat([torch.ones(1, dtype=dtype), torch.full((511,), lost, dtype=dtype)])
    images = channels_last(numbers.view(1, -1, 1, 1).expand(1, 512, 4, 4).contiguous())
    return layer, images


def test_an_adversarial_record_comes_within_a_tenth_of_what_the_gram_matrices_bound(monkeypatch):
    monkeypatch.setattr(layers, "LARGE", 0)
    layer, images = _adversary(torch.float32)
    cache = layer.cache_inputs(images)
    bound, _ = layer.squared_gradient_norms(images, cache, ())
    exact = (images[0, :, 0, 0].double().square().sum() * (images[0, :, 0, 0].double().square().sum() + 1)) * 16**2
    monkeypatch.setattr(layers, "rounding", lambda *_: 0.0)
    taken, _ = layer.squared_gradient_norms(images, cache, ())
    lost, allowed = exact / taken.double() - 1, bound.double() / taken.double() - 1
    assert 0 < float(lost) <= float(allowed)
    # oneDNN adds in one row, as the bound fears; other libraries add in several, and lose less
    assert float(lost) > (0.9 if layers._keeps_precision() else 0.1) * float(allowed)


def test_without_the_margin_that_record_would_exceed_its_clip_norm(monkeypatch):
    monkeypatch.setattr(layers, "LARGE", 0)
    layer, images = _adversary(torch.float32)

    def added():
        squares, _ = layer.squared_gradient_norms(images, layer.cache_inputs(images), ())
        factor = sure_factors(squares, torch.tensor(1.0), layer.roundings)
        d = scaled(images, factor).double()
        weight, bias = layer.weighted_gradient_sum(d, _double(layer.cache_inputs(images)), (), None, None)
        return float((weight.square().sum() + bias.square().sum()).sqrt())

    assert added() <= 1
    for module in (layers, clip_bounds):
        monkeypatch.setattr(module, "rounding", lambda *_: 0.0)
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
    assert norm_roundings(numbers) <= 2 * (clip_bounds.BLOCK + 4)


def test_roundings_are_highams():
    assert unit(torch.bfloat16) == 2**-8 and unit(torch.float32) == 2**-24
    assert rounding(1, torch.float32) == pytest.approx(2**-24, rel=1e-6)
    assert (1 + unit(torch.float32)) ** 1000 - 1 <= rounding(1000, torch.float32)
