"""Schedules of batches and steps, and what is done to inputs before training."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from dpfl.asynchronous import schedules
from dpfl.asynchronous.schedules import (
    BatchSchedule,
    InputNormalisation,
    Moments,
    Strategy,
    noisy_moments,
    normalised,
    prepare,
    step_sizes,
)
from dpfl.errors import InputError
from dpfl.grid.settings import Settings


def course(rounds: int, epochs: int) -> BatchSchedule:
    """Batches of 10 records, alike in every round."""
    return Strategy().course(records=10 * rounds // epochs, batch_size=10, epochs=epochs)


def test_step_sizes_diminish_from_epoch_to_epoch():
    np.testing.assert_allclose(step_sizes(0.6, 0.5, course(6, 3)), [0.6, 0.6, 0.4, 0.4, 0.3, 0.3])
    np.testing.assert_array_equal(step_sizes(0.6, 0.0, course(4, 2)), [0.6] * 4)


def test_factors_hold_for_equal_segments():
    strategy = Strategy(clip_factors=(1.0, 0.5), noise_factors=(2.0, 1.0, 0.5))
    np.testing.assert_array_equal(strategy.clip(course(5, 1)), [1, 1, 1, 0.5, 0.5])
    np.testing.assert_array_equal(strategy.noise(course(6, 3)), [2, 2, 1, 1, 0.5, 0.5])


def test_the_last_epoch_takes_the_chapters_noise():
    noise = Strategy(last_epoch=True).noise(course(12, 3))
    np.testing.assert_allclose(noise, [1] * 8 + [1 / math.sqrt(4)] * 4)
    # Shuffled batches: mu^2 = sum over epochs of 1/sigma^2, here E - 1 + E + 1 = 2E.
    assert 2 + 1 / noise[-1] ** 2 == pytest.approx(2 * 3)


def test_segments_cover_every_round_once():
    strategy = Strategy(noise_factors=(2.0, 1.0), last_epoch=True, arsinh_scale=3.0)
    segments = strategy.segments(course(10, 5), sigma=1.5, records=100)
    assert sum(each.rounds for each in segments) == 10
    assert {each.p for each in segments} == {0.1} and {each.arsinh_scale for each in segments} == {3.0}
    total = sum(each.rounds * each.sigma for each in segments)
    assert total == pytest.approx(1.5 * strategy.noise(course(10, 5)).sum())


def test_batches_change_with_whole_epochs():
    own = Strategy(batch_factors=(0.5, 2.0)).course(records=100, batch_size=20, epochs=3)
    assert own.batch_sizes == (10,) * 20 + (40,) * 2 and own.epochs == (0,) * 10 + (1,) * 10 + (2,) * 2
    segments = Strategy(batch_factors=(0.5, 2.0), noise_factors=(1.0,)).segments(own, sigma=1.5, records=100)
    assert [(each.rounds, each.sigma, each.p) for each in segments] == [(20, 1.5, 0.1), (2, 1.5, 0.4)]
    np.testing.assert_allclose(step_sizes(0.6, 0.5, own), [0.6] * 10 + [0.4] * 10 + [0.3] * 2)
    np.testing.assert_allclose(Strategy(last_epoch=True).noise(own), [1.0] * 20 + [0.5] * 2)


@pytest.mark.parametrize("factors", [(0.01,), (1.0, 6.0)])
def test_a_segment_with_an_impossible_batch_is_refused(factors):
    with pytest.raises(InputError, match=r"^batch_size: is (0|120) in a segment, must be from 1 to .* 100 records$"):
        Strategy(batch_factors=factors).course(records=100, batch_size=20, epochs=2)


class Strategies(Settings):
    """Strategies by name, as an experiment reads them."""

    strategies: dict[str, Strategy]


@pytest.mark.parametrize(
    "given",
    [
        {"clip": [1]},
        {"batch_factors": []},
        {"batch_factors": [1.0, -1.0]},
        {"clip_factors": []},
        {"noise_factors": [0.0]},
        {"kept_share": 2.0},
        {"arsinh_scale": -1},
    ],
)
def test_a_strategy_that_cannot_be_is_named(given):
    with pytest.raises(InputError, match=rf"^strategies\.odd\.{next(iter(given))}[^\n]*$"):
        Strategies.of({"strategies": {"odd": given}})


@pytest.mark.parametrize(("rate", "decay", "name"), [(0.0, 0.1, "learning_rate"), (1.0, -0.1, "step_decay")])
def test_steps_that_do_not_diminish_are_refused(rate, decay, name):
    with pytest.raises(InputError, match=name):
        step_sizes(rate, decay, course(4, 2))


def data(features=12):
    draw = torch.Generator().manual_seed(0)
    train = torch.rand(90, features, generator=draw) * torch.linspace(0.2, 0.9, features)
    return train, torch.rand(20, features, generator=draw), np.split(np.random.default_rng(0).permutation(90), 3)


def prepared(preparation, sigma=0.0, seed=0, components=4):
    return prepare(preparation, *data(), sigma=sigma, components=components, seed=seed)


def test_without_preparation_inputs_are_left_alone():
    train, test = prepared(InputNormalisation.NONE)
    assert torch.equal(train, data()[0]) and torch.equal(test, data()[1])


def test_exact_normalisation_uses_the_moments_of_all_clients():
    train, test = prepared(InputNormalisation.NORMALISED_EXACTLY)
    inputs = data()[0]
    deviation = inputs.std(0, unbiased=False).clamp(min=0.1)
    torch.testing.assert_close(train, (inputs - inputs.mean(0)) / deviation, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(test, (data()[1] - inputs.mean(0)) / deviation, rtol=1e-3, atol=1e-3)


def test_exact_components_keep_the_most_of_the_second_moment():
    train, test = prepared(InputNormalisation.EXACT_PCA)
    singular = torch.linalg.svdvals(data()[0])
    assert train.shape == (90, 4) and test.shape == (20, 4)
    assert float(train.square().sum()) == pytest.approx(float(singular[:4].square().sum()), rel=2e-3)


@pytest.mark.parametrize("preparation", [InputNormalisation.NORMALISED, InputNormalisation.DP_PCA])
def test_noise_is_addressed_and_fades_with_sigma(preparation):
    exact, noisy = prepared(preparation)[0], prepared(preparation, sigma=0.3)[0]
    assert torch.equal(noisy, prepared(preparation, sigma=0.3)[0])
    assert not torch.equal(noisy, prepared(preparation, sigma=0.3, seed=1)[0])
    assert (prepared(preparation, sigma=1e-6)[0] - exact).abs().max() < 1e-3 < (noisy - exact).abs().max()


SIGMA, SEEDS = 0.02, range(16)
CLIENTS = [np.arange(0, 20), np.arange(20, 60), np.arange(60, 140)]
SPREAD = SIGMA * math.sqrt(1 / 20**2 + 1 / 40**2 + 1 / 80**2) / 3
"""Deviation of the mean of three clients' statistics, over the sensitivity of a sum."""


def assert_standard_normal(draws):
    """Kolmogorov-Smirnov at a false-alarm rate of 1e-6; scales of 2/3 and 3/2 are told apart."""
    assert stats.kstest(draws, "norm").pvalue > 1e-6
    assert all(stats.kstest(draws * scale, "norm").pvalue < 1e-6 for scale in (2 / 3, 3 / 2))


def test_normalised_inputs_carry_the_noise_of_every_clients_sigma():
    """Records of 128 ones: (x, x^2) has the norm 16 and is clipped to 8, 1/2 each; replacing one moves a sum by 16."""
    ones, corners = torch.ones(140, 128, dtype=torch.float64), torch.tensor([[0.0], [1.0]]).double().expand(2, 128)
    draws = []
    for seed in SEEDS:
        train, test = prepare(
            InputNormalisation.NORMALISED, ones, corners, CLIENTS, sigma=SIGMA, components=1, seed=seed
        )
        zero, one = test  # (0 - first) / deviation and (1 - first) / deviation
        deviation = 1 / (one - zero)
        first = -zero * deviation
        second = deviation.square() + first.square()
        torch.testing.assert_close(train, one.expand(140, -1))
        draws += [(moment - 0.5) / (16 * SPREAD) for moment in (first, second)]
    assert_standard_normal(torch.cat(draws).numpy())


def test_principal_components_are_those_of_moments_with_the_noise_of_every_clients_sigma(monkeypatch):
    """Records of 64 ones: the norm 8 is clipped to 4, so that x x^T is 1/4 throughout and moves by sqrt(2) 4^2."""
    released = []

    def axes(second_moments, components):
        released.append(second_moments)
        return torch.eye(64, dtype=torch.float64)[:, :components]

    monkeypatch.setattr(schedules, "principal_components", axes)
    ones = torch.ones(140, 64, dtype=torch.float64)
    for seed in SEEDS[:2]:
        train, _ = prepare(InputNormalisation.DP_PCA, ones, ones, CLIENTS, sigma=SIGMA, components=3, seed=seed)
        assert torch.equal(train, ones[:, :3])
    upper = torch.ones(64, 64).triu().bool()
    draws = torch.cat([(moments[upper] - 0.25) / (math.sqrt(2) * 16 * SPREAD) for moments in released])
    assert_standard_normal(draws.numpy())


def test_a_layer_normalised_record_depends_on_itself_alone():
    train, test, shares = data()
    other = train.clone()
    other[3] += 1.0
    one, two = (prepare(InputNormalisation.LAYER, x, test, shares, sigma=0.0, components=4, seed=0)[0]
                for x in (train, other))  # fmt: skip
    assert torch.equal(one[:3], two[:3]) and torch.equal(one[4:], two[4:])
    torch.testing.assert_close(one[0], (train[0] - train[0].mean()) / max(float(train[0].std(correction=0)), 0.1))


def test_batch_normalisation_is_left_to_the_batches_in_training():
    train, test = prepared(InputNormalisation.BATCH)
    assert torch.equal(train, data()[0])
    torch.testing.assert_close(test, prepared(InputNormalisation.NORMALISED_EXACTLY)[1], rtol=1e-3, atol=1e-3)
    batch = normalised(data()[0][:8], 0)
    torch.testing.assert_close(batch.mean(0), torch.zeros(12), rtol=0, atol=1e-5)


def images(records=60, features=8, seed=0):
    return torch.rand(records, features, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def released(inputs, bound=100.0, noise_multiplier=0.0, noise=None):
    noise = torch.zeros(2 * inputs.shape[1], dtype=inputs.dtype) if noise is None else noise
    moments = noisy_moments(inputs, bound=bound, noise_multiplier=noise_multiplier, noise=noise)
    return torch.cat([moments.first, moments.second])


def test_exact_moments_normalise_to_mean_zero_and_deviation_one():
    inputs = images()
    moments = noisy_moments(inputs, bound=100.0, noise_multiplier=0.0, noise=torch.zeros(16, dtype=torch.float64))
    normal = moments.normalise(inputs, 1e-3)
    np.testing.assert_allclose(normal.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(normal.std(0, unbiased=False), 1, rtol=1e-5)


def test_a_feature_that_hardly_varies_is_not_blown_up():
    moments = Moments(torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.2]))  # no variance, and a noisy negative one
    np.testing.assert_allclose(moments.normalise(torch.tensor([[0.6, 0.4]]), 0.1), [[1.0, -1.0]], rtol=1e-5)


@pytest.mark.parametrize("bound", [0.3, 2.0, 50.0])
def test_replacing_a_record_moves_the_sum_by_at_most_the_sensitivity(bound):
    inputs, worst = images(), 0.0
    for place, value in ((0, 0.0), (3, 1.0), (5, -40.0), (7, 1e6)):
        other = inputs.clone()
        other[place] = value
        moved = len(inputs) * (released(inputs, bound) - released(other, bound)).norm()
        worst = max(worst, float(moved))
    assert 0 < worst <= 2 * bound


def test_the_noise_is_the_multiplier_times_the_sensitivity_on_the_sum():
    inputs, bound, noise_multiplier = images(features=2000), 30.0, 1.5
    draws = torch.randn(4000, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    added = len(inputs) * (released(inputs, bound, noise_multiplier, draws) - released(inputs, bound))
    assert stats.kstest(added.numpy() / (2 * bound * noise_multiplier), "norm").pvalue > 1e-6  # false-alarm rate
    assert stats.kstest(added.numpy() / (2 * bound), "norm").pvalue < 1e-6


@pytest.mark.parametrize(("name", "value"), [("bound", 0.0), ("noise_multiplier", -1.0)])
def test_arguments_out_of_range_are_named(name, value):
    with pytest.raises(ValueError, match=name):
        noisy_moments(images(), **{"bound": 1.0, "noise_multiplier": 1.0, name: value}, noise=torch.zeros(16))
