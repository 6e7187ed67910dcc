import math

import numpy as np
import pytest
from scipy.stats import norm

from dpfl.accounting import gaussian_dp
from dpfl.accounting.privacy_profiles import composed_epsilon, pair_epsilon_below


@pytest.mark.parametrize("steps", [1, 9])
def test_gaussian_profiles_compose_to_a_gaussian_profile(steps):
    ours = composed_epsilon(lambda e: gaussian_dp.delta(e, 0.3), largest=3.0, steps=steps, delta=1e-5)
    truth = gaussian_dp.epsilon(1e-5, 0.3 * math.sqrt(steps))
    assert truth * (1 - 1e-9) <= ours <= truth * (1 + 1e-5)


def test_pure_privacy_composes_as_randomised_response():
    # (e^eps0 - e^eps)/(e^eps0 + 1) is the profile of randomised response; two uses: likelihood ratios add.
    e0, delta = 1.0, 0.3
    p = math.exp(e0) / (1 + math.exp(e0))
    # delta(eps) = p^2 - e^eps (1-p)^2 between 0 and 2 e0, solved for eps
    truth = math.log((p**2 - delta) / (1 - p) ** 2)
    ours = composed_epsilon(
        lambda e: np.maximum(0, (math.exp(e0) - np.exp(e)) / (math.exp(e0) + 1)), largest=2.0, steps=2, delta=delta
    )
    assert ours == pytest.approx(truth, abs=1e-6)


def test_what_is_left_at_the_end_counts_as_lost():
    assert composed_epsilon(lambda e: np.full_like(e, 1e-3), largest=1.0, steps=2, delta=1e-3) == math.inf


def test_a_gaussian_from_its_outcomes_is_held_from_below():
    edges = np.linspace(-12, 12.3, 20_001)
    left = edges[1:] < 0.15  # each tail by its own function, for its digits
    moved, still = (np.where(left, np.diff(norm.cdf(edges, at)), -np.diff(norm.sf(edges, at))) for at in (0.3, 0.0))
    seen = (moved > 1e-300) & (still > 1e-300)
    losses = np.maximum.accumulate(np.log(moved[seen] / still[seen]))
    ours = pair_epsilon_below(losses, moved[seen], steps=9, delta=1e-5)
    truth = float(gaussian_dp.epsilon(1e-5, 0.9))
    assert truth * (1 - 1e-4) <= ours <= truth


@pytest.mark.parametrize("delta", [1e-5, 1e-18, 1e-60])
def test_delta_may_be_tiny(delta):
    ours = composed_epsilon(lambda e: gaussian_dp.delta(e, 0.3), largest=12.0, steps=9, delta=delta)
    truth = float(gaussian_dp.epsilon(delta, 0.9))
    assert truth * (1 - 1e-9) <= ours <= truth * (1 + 1e-4)


def test_nothing_is_spent_where_the_laws_are_equal_or_the_total_variation_is_at_most_delta():
    assert composed_epsilon(np.zeros_like, largest=1.0, steps=1000, delta=1e-5) == 0
    assert composed_epsilon(lambda epsilon: gaussian_dp.delta(epsilon, 1e-9), largest=1.0, steps=1000, delta=1e-5) == 0
    assert pair_epsilon_below(np.array([0.0]), np.array([1.0]), steps=10, delta=1e-5) == 0
