import numpy as np
import pytest
import torch
from scipy import stats

from dpfl.asynchronous.schedules import Moments, noisy_moments


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
