"""Stacked SGD against torch's own, its measures of accuracy and its distances between models."""

import copy
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from scipy import stats
from torch import nn

from dpfl.data.datasets import COLOUR, GREY
from dpfl.engine.networks import ImageModel, build
from dpfl.engine.per_record_gradients import (
    ParameterVector,
    PerRecordGradients,
    StackedGradients,
    cross_entropy,
    gradient_rule,
)
from dpfl.engine.sgd import (
    RECORDS_AT_ONCE,
    SGD,
    StackedHyperparameters,
    accuracy_pct,
    arsinh_noise,
    base_noise,
    cuda_stream,
    distances,
    references,
)
from dpfl.randomness import address_key

CPU = torch.device("cpu")
FALSE_ALARM = 1e-12
"""Chance that a right generator fails one statistical test below."""


def _draw(size=50_000, dtype=torch.float32, **address) -> torch.Tensor:
    address = {"seed": 0, "client": 0, "epoch": 1, "step": 0, **address}
    return base_noise(size, **address, dtype=dtype, device=CPU)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_law_is_standard_normal(dtype):
    draws = _draw(dtype=dtype).double().numpy()
    assert stats.kstest(draws, "norm").pvalue > FALSE_ALARM
    for scale in (2 / 3, 3 / 2):
        assert stats.kstest(draws, "norm", args=(0, scale)).pvalue < FALSE_ALARM


def test_every_coordinate_is_standard_normal_over_addresses():
    # First, last and some coordinates between: one wrong scale must not hide among the others.
    draws = [_draw(101, client=c, epoch=e, step=s) for c in range(10) for e in range(10) for s in range(30)]
    for coordinate in torch.stack(draws).double()[:, [0, 1, 15, 16, 50, 51, 99, 100]].T.numpy():
        assert stats.kstest(coordinate, "norm").pvalue > FALSE_ALARM
        for scale in (2 / 3, 3 / 2):
            assert stats.kstest(coordinate, "norm", args=(0, scale)).pvalue < FALSE_ALARM


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_addresses_are_uncorrelated(dtype):
    """All pairs of 256 addresses that differ in seed, client, epoch or step; a repeat would have correlation 1."""
    size, bits = 4096, range(4)
    draws = torch.stack([_draw(size, dtype, seed=seed, client=client, epoch=epoch, step=step)
                         for seed in bits for client in bits for epoch in bits for step in bits])  # fmt: skip
    pairs = torch.corrcoef(draws.double())[tuple(torch.triu_indices(256, 256, 1))]
    assert pairs.abs().max() < stats.norm.isf(FALSE_ALARM / 2 / len(pairs)) / size**0.5
    assert stats.kstest(pairs.numpy() * size**0.5, "norm").pvalue > FALSE_ALARM


def test_the_same_address_has_the_same_bytes_whatever_is_drawn_between():
    first = _draw(777)
    _draw(10_000, step=3)
    assert torch.equal(_draw(777), first)


@given(st.integers(0, 2**128 - 1))
def test_a_gpus_stream_holds_124_bits_of_the_key(key):
    seed, offset = cuda_stream(key)
    assert 0 <= seed < 2**64 and 0 <= offset < 2**62 and offset % 4 == 0
    assert seed + (offset // 4 << 64) == key % 2**124


def test_an_infinite_scale_leaves_the_noise_alone():
    draws = _draw(500).view(5, 100)
    scales = torch.tensor([2.0, float("inf"), 0.5, float("inf"), 1.0])[:, None]
    changed = arsinh_noise(draws, scales)
    assert torch.equal(changed[[1, 3]], draws[[1, 3]])
    assert arsinh_noise(draws, torch.full((5, 1), float("inf"))) is draws
    np.testing.assert_allclose(changed[2], 0.5 * np.arcsinh(draws[2].numpy() / 0.5), rtol=1e-5)


def test_the_law_of_arsinh_noise_is_that_of_the_accountant():
    # The noise is below y with probability Phi(a sinh(y/a) / noise_std)
    noise_std, scale = 1.3, 1.3
    draws = noise_std * _draw(20_000, torch.float64)
    noise = arsinh_noise(draws, torch.tensor(scale, dtype=torch.float64)).numpy()
    assert stats.kstest(noise, lambda y: stats.norm.cdf(scale * np.sinh(y / scale) / noise_std)).pvalue > 1e-6
    assert stats.kstest(noise, lambda y: stats.norm.cdf(y / noise_std)).pvalue < 1e-6


class Stream:
    """What stands for a generator on a GPU: it notes how it is set, and is drawn from by `torch.randn` alone."""

    def __init__(self, device):
        self.device = device

    def manual_seed(self, seed):
        self.seed = seed
        return self

    def set_offset(self, offset):
        self.offset = offset


def test_on_a_gpu_the_address_s_stream_is_drawn_from_at_its_offset(monkeypatch):
    """The stream's place decides that two steps share no noise; tests/gpu draws from it on a real one."""
    monkeypatch.setattr(torch, "Generator", Stream)
    monkeypatch.setattr(torch, "randn", lambda size, generator, dtype, device: (size, generator, dtype, device))
    address = {"seed": 3, "client": 5, "epoch": 7, "step": 11}
    size, stream, dtype, device = base_noise(13, **address, dtype=torch.float64, device=torch.device("cuda"))
    key = address_key(3, "noise", 5, 7, 11)
    assert (stream.seed, stream.offset) == (key % 2**64, 4 * (key >> 64 & 2**60 - 1))
    assert (size, dtype, device, stream.device) == (13, torch.float64, torch.device("cuda"), torch.device("cuda"))


LEARNING_RATE, MOMENTUM, EXPECTED = 0.05, 0.5, 3  # at 0.3 the unclipped model is chaotic: rounding grows 1e6-fold
STEPS = 20
CLIP_NORMS = (1.0, 0.05, float("inf"))


def _silent(group, step):
    raise AssertionError("noise was asked for")


def _inputs(model: ImageModel, shape: tuple[int, int, int], count: int) -> torch.Tensor:
    channels, height, width = shape
    fed = (81 * channels, height // 4, width // 4) if model.reads_features else shape
    return torch.randn(count, *fed, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _initial(module: nn.Module) -> torch.Tensor:
    return ParameterVector.of(module).flatten({name: each.detach() for name, each in module.named_parameters()})


class ExactDPOptimizer(DPOptimizer):
    """Opacus with Algorithm 1's min(1, C / norm) in place of its C / (norm + 1e-6)."""

    def clip_and_accumulate(self):
        flat = torch.cat([sample.flatten(1) for sample in self.grad_samples], dim=1)
        factors = torch.where(flat.norm(dim=1) > self.max_grad_norm, self.max_grad_norm / flat.norm(dim=1), 1.0)
        for parameter in self.params:
            parameter.summed_grad = torch.einsum("i,i...", factors, self._get_flat_grad_sample(parameter))


def _reference(module: nn.Module, data, batches, clip_norm: float, optimizer_of=ExactDPOptimizer) -> torch.Tensor:
    """Opacus without noise, or torch's SGD on the batch mean where nothing is clipped."""
    module = copy.deepcopy(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    model = module
    if clip_norm < float("inf"):
        model = GradSampleModule(module)
        optimizer = optimizer_of(optimizer, noise_multiplier=0.0, max_grad_norm=clip_norm, expected_batch_size=EXPECTED)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        for rows in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(data[0][rows]), data[1][rows]).backward()
            optimizer.step()
    return _initial(module)


def _compare_with_opacus(model: ImageModel, shape, rule) -> None:
    module = build(model, shape, seed=0).double()
    data = _inputs(model, shape, 12), torch.arange(12) % 10
    draw = np.random.default_rng(0)
    batches = [draw.permutation(12)[: 4 if step % 5 else 2] for step in range(STEPS)]
    weights = _initial(module).repeat(1, len(CLIP_NORMS), 1)
    variants = StackedHyperparameters(torch.tensor(CLIP_NORMS, dtype=torch.float64), torch.zeros(len(CLIP_NORMS)))
    gradients = StackedGradients(rule(module, cross_entropy, data[0][0]), data[0][0], 2**30)
    sgd = SGD(gradients, variants, LEARNING_RATE, MOMENTUM)
    sgd.epoch(weights, torch.zeros_like(weights), data, [batches], [EXPECTED], _silent)
    for variant, clip_norm in enumerate(CLIP_NORMS):
        expected = _reference(module, data, batches, clip_norm)
        torch.testing.assert_close(weights[0, variant], expected, rtol=0, atol=1e-12)
        assert (expected - _initial(module)).abs().max() > 1e-4
        if clip_norm < float("inf"):  # Opacus's own rule differs by 1e-6 of a norm in the factor of each gradient
            stock = _reference(module, data, batches, clip_norm, DPOptimizer)
            torch.testing.assert_close(weights[0, variant], stock, rtol=0, atol=2e-6)


MODELS = [(model, GREY) for model in ImageModel]
MODELS += [pytest.param(model, COLOUR, marks=pytest.mark.slow) for model in ImageModel]


@pytest.mark.parametrize(("model", "shape"), MODELS)
def test_twenty_steps_equal_opacus_in_closed_form(model, shape):
    _compare_with_opacus(model, shape, gradient_rule)


@pytest.mark.parametrize(("model", "shape"), MODELS)
def test_steps_equal_opacus_record_by_record(model, shape):
    _compare_with_opacus(model, shape, lambda module, loss, record: PerRecordGradients(module, loss))


def _dense_problem(count: int = 40):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(30, 40), nn.Tanh(), nn.Linear(40, 10)).double()
    draw = torch.Generator().manual_seed(0)
    data = torch.randn(count, 30, generator=draw, dtype=torch.float64), torch.arange(count) % 10
    return module, data


def _train(module, data, batches, variants, noise, *, velocity=None, memory_bytes=2**30):
    weights = _initial(module).repeat(len(batches), len(variants.clip_norms), 1)
    velocity = torch.zeros_like(weights) if velocity is None else velocity
    gradients = StackedGradients(gradient_rule(module, cross_entropy, data[0][0]), data[0][0], memory_bytes)
    expected = [EXPECTED] * len(batches)
    SGD(gradients, variants, LEARNING_RATE, MOMENTUM).epoch(weights, velocity, data, batches, expected, noise)
    return weights


def _normal(group: int, step: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(1000 * group + step)
    return torch.randn(30 * 40 + 40 + 400 + 10, generator=draw, dtype=torch.float64)


def test_noise_has_the_stated_scale():
    module, data = _dense_problem()
    batches = [[np.arange(5)]]
    clip_norms = torch.tensor([1.0, 0.5], dtype=torch.float64)
    multipliers = torch.tensor([1.3, 0.7], dtype=torch.float64)
    noisy = _train(module, data, batches, StackedHyperparameters(clip_norms, multipliers), _normal)
    exact = _train(
        module, data, batches, StackedHyperparameters(clip_norms, torch.zeros(2, dtype=torch.float64)), _silent
    )
    for variant in range(2):
        scale = LEARNING_RATE * float(multipliers[variant] * clip_norms[variant]) / EXPECTED
        draws = ((noisy - exact)[0, variant] / scale).numpy()
        assert stats.kstest(draws, "norm").pvalue > FALSE_ALARM
        for wrong in (2 / 3, 3 / 2):
            assert stats.kstest(draws, "norm", args=(0, wrong)).pvalue < FALSE_ALARM


def test_variants_share_the_noise_and_groups_do_not():
    module, data = _dense_problem()
    batches = [[np.arange(5)], [np.arange(5)]]
    bounds, two = torch.ones(2, dtype=torch.float64), torch.tensor([1.0, 3.0], dtype=torch.float64)
    noise = _train(module, data, batches, StackedHyperparameters(bounds, two), _normal) - _train(
        module, data, batches, StackedHyperparameters(bounds, 0 * two), _silent
    )
    torch.testing.assert_close(3 * noise[0, 0], noise[0, 1], rtol=0, atol=1e-14)
    # independent draws: correlation has deviation 1/sqrt(1650) = 0.025; 6 of them: false alarm 2e-9
    assert abs(torch.corrcoef(noise[:, 0])[0, 1]) < 6 * 0.025


def test_groups_may_have_their_own_noise():
    module, data = _dense_problem()
    batches = [[np.arange(5)], [np.arange(3)]]
    clip_norms = torch.tensor([1.0, 0.5], dtype=torch.float64)
    multipliers = torch.tensor([[1.3, 0.7], [0.0, 2.0]], dtype=torch.float64)
    noisy = _train(module, data, batches, StackedHyperparameters(clip_norms, multipliers), _normal)
    exact = _train(module, data, batches, StackedHyperparameters(clip_norms, 0 * multipliers), _silent)
    for group in range(2):
        scales = LEARNING_RATE * multipliers[group] * clip_norms / EXPECTED
        expected = -scales[:, None] * _normal(group, 0)
        torch.testing.assert_close((noisy - exact)[group], expected, rtol=0, atol=1e-14)


def test_stacking_order_and_splitting_do_not_change_a_model():
    module, data = _dense_problem()
    draw = np.random.default_rng(1)
    batches = [[draw.permutation(40)[:size] for size in sizes] for sizes in ([5, 3, 0, 4], [2, 6, 1, 5])]
    clip_norms = torch.tensor([1.0, float("inf"), 0.2], dtype=torch.float64)
    multipliers = torch.tensor([0.5, 0.0, 2.0], dtype=torch.float64)
    stacked = _train(module, data, batches, StackedHyperparameters(clip_norms, multipliers), _normal)
    split = _train(module, data, batches, StackedHyperparameters(clip_norms, multipliers), _normal, memory_bytes=10_000)
    torch.testing.assert_close(split, stacked, rtol=0, atol=1e-13)
    order = [2, 0, 1]
    turned = _train(module, data, batches, StackedHyperparameters(clip_norms[order], multipliers[order]), _normal)
    torch.testing.assert_close(turned, stacked[:, order], rtol=0, atol=1e-13)
    for group in range(2):
        for variant in range(3):
            alone = _train(
                module,
                data,
                [batches[group]],
                StackedHyperparameters(clip_norms[variant : variant + 1], multipliers[variant : variant + 1]),
                lambda _, step, group=group: _normal(group, step),
            )
            torch.testing.assert_close(alone[0, 0], stacked[group, variant], rtol=0, atol=1e-13)


def test_an_empty_batch_is_noise_alone_for_private_variants_and_nothing_for_plain_ones():
    module, data = _dense_problem()
    variants = StackedHyperparameters(torch.tensor([2.0, float("inf")]).double(), torch.tensor([0.5, 0.0]).double())
    moved = _train(module, data, [[np.arange(0)]], variants, _normal) - _initial(module)
    torch.testing.assert_close(moved[0, 0], -LEARNING_RATE * _normal(0, 0) / EXPECTED, rtol=0, atol=1e-14)
    assert not moved[0, 1].any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_what_a_cpu_gives():
    module, data = _dense_problem()
    batches = [[np.arange(5), np.arange(3)], [np.arange(7, 9), np.arange(4)]]
    variants = StackedHyperparameters(torch.tensor([1.0, float("inf")]).double(), torch.tensor([0.5, 0.0]).double())
    here = _train(module, data, batches, variants, _normal)
    there = _train(
        module.cuda(),
        tuple(part.cuda() for part in data),
        batches,
        StackedHyperparameters(variants.clip_norms.cuda(), variants.noise_multipliers.cuda()),
        lambda group, step: _normal(group, step).cuda(),
    )
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=1e-11)


def test_counts_correct_predictions_of_every_model_over_all_chunks():
    count = 2 * RECORDS_AT_ONCE + 10
    inputs = torch.eye(2)[torch.arange(count) % 2]
    labels = torch.zeros(count, dtype=torch.long)
    labels[: count // 2] = inputs[: count // 2].argmax(1)
    identity, swapped, broken = torch.eye(2).flatten(), torch.eye(2).flip(0).flatten(), torch.full((4,), math.nan)
    weights = torch.stack([identity, swapped, broken])
    expected = [
        100 * int((labels == inputs.argmax(1)).sum()) / count,
        100 * int((labels == inputs.argmin(1)).sum()) / count,
    ]
    expected.append(100 * int((labels == 0).sum()) / count)  # the largest of outputs that are no numbers is the first
    assert accuracy_pct(nn.Linear(2, 2, bias=False), weights, inputs, labels) == expected


class Greedy(nn.Linear):
    """A model for which memory runs out beyond some records."""

    def forward(self, x):
        if len(x) > 300:
            raise MemoryError
        return super().forward(x)


def test_fewer_records_go_together_where_memory_runs_out(caplog):
    inputs = torch.randn(2 * RECORDS_AT_ONCE + 10, 2, generator=torch.Generator().manual_seed(0))
    labels, weights = inputs.argmax(1), torch.eye(2).flatten().repeat(3, 1)
    labels[:100] = 0
    expected = accuracy_pct(nn.Linear(2, 2, bias=False), weights, inputs, labels)
    assert accuracy_pct(Greedy(2, 2, bias=False), weights, inputs, labels) == expected
    assert [record.message for record in caplog.records] == [
        f"out of memory: {count} records are evaluated together" for count in (500, 250)
    ]


def test_every_input_has_a_label():
    with pytest.raises(ValueError, match="labels: 3 for 4 inputs"):
        accuracy_pct(nn.Linear(2, 2), torch.zeros(1, 6), torch.zeros(4, 2), torch.zeros(3))


def test_other_errors_of_a_model_are_not_taken_for_a_lack_of_memory():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        accuracy_pct(nn.Linear(3, 2, bias=False), torch.zeros(1, 6), torch.zeros(4, 2), torch.zeros(4))


SCHEDULES = ((2, 1), (2, 1), (2, 1), (3,), (2, 1))
VARIANTS = StackedHyperparameters(
    torch.tensor([1.0, math.inf, 1.0, math.inf, math.inf]), torch.tensor([[1.0, 0, 0, 0, 0]] * 2)
)


def test_references_have_no_noise_and_the_same_schedule():
    both = {"plain": 1, "noiseless": 2}
    assert references(VARIANTS, SCHEDULES) == [both, both, both, {"plain": 3}, both]


def test_a_variant_with_noise_on_any_client_is_no_reference():
    noise = torch.tensor([[0.0, 0.0], [0.0, 1.0]])
    assert references(StackedHyperparameters(torch.ones(2), noise), ((1,), (1,))) == [{"noiseless": 0}] * 2


def test_distances_of_known_vectors():
    """Two clients, private at (3, 4) and (-3, 4), reference at 0: each 5 away, their average 4."""
    trained = torch.zeros(2, 2, 2)
    trained[:, 0] = torch.tensor([[3.0, 4.0], [-3.0, 4.0]])
    found = distances(trained, [0, 7], [{"plain": 7}, *[{}] * 7])
    assert found == [{"distance_to_plain": pytest.approx(4), "local_distance_to_plain": pytest.approx(5)}, {}]
