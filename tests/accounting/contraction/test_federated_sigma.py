"""The noise for a target is the root of Theorem 2's delta, on the safe side."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting.contraction import federated_delta, federated_sigma

CASE = {"n": 100, "m": 10, "eta": 0.5, "lipschitz": 1.0, "radius": 1.0}


@given(st.floats(0, 8), st.floats(-12, -0.01), st.sampled_from([1, 5, 30, 100]), st.floats(0.01, 3))
@settings(max_examples=30, deadline=None)
def test_meets_the_target_and_no_less_noise_does(epsilon, log_delta, m, eta):
    target = 10.0**log_delta
    case = {**CASE, "m": m, "eta": eta}
    sigma = federated_sigma(epsilon, target, **case)
    assert target * (1 - 1e-9) < federated_delta(epsilon, sigma=sigma, **case) <= target
    assert federated_delta(epsilon, sigma=sigma * (1 - 1e-9), **case) > target


def test_delta_falls_as_noise_grows():
    for epsilon in (0.0, 1.0, 5.0):
        deltas = [federated_delta(epsilon, sigma=sigma, **CASE) for sigma in np.geomspace(0.03, 3, 200)]
        assert np.all(np.diff(deltas) <= 1e-15)


def test_schedules_and_extreme_targets():
    eta = 1 / np.arange(1, 11)
    case = {**CASE, "eta": eta}
    for epsilon, delta in ((1.0, 1e-5), (2.0, 1e-300), (0.0, 1e-200), (0.5, 1 - 1e-9), (1e4, 1e-6)):
        sigma = federated_sigma(epsilon, delta, **case)
        assert federated_delta(epsilon, sigma=sigma, **case) == pytest.approx(delta, rel=1e-9)


def test_three_rounds_of_ten_thirds_never_reach_ninety_five_percent():
    """With T = 3, m = 30, n = 100 a record is seen with probability 0.9 only."""
    with pytest.raises(ValueError, match=r"^delta"):
        federated_sigma(0.0, 0.95, **{**CASE, "m": 30, "eta": [0.5] * 3})
