"""Shuffled noise: between the central and the local one, calibrated to its target, never above a finer accounting."""

import math

import pytest

from dpfl.accounting import gaussian_dp, shuffling
from dpfl.accounting.shuffling import blanket_rounds_epsilon

RUN = {"clients": 30, "rounds": 4, "delta": 1e-5, "dimension": 1}


def test_local_and_central_noise_by_closed_form():
    """Replacing a record moves R messages by 2/z deviations each; the mean of M by 2/(z sqrt M)."""
    budget = {"epsilon": 0.7, "delta": 1e-6, "rounds": 9}
    local = shuffling.local_noise_multiplier(**budget)
    assert float(gaussian_dp.epsilon(1e-6, 6.0 / local)) == pytest.approx(0.7, rel=1e-9)
    assert shuffling.central_noise_multiplier(**budget, clients=25) == pytest.approx(local / 5)


@pytest.mark.slow
def test_calibration_meets_its_target_between_central_and_local():
    target, run = 0.8, {**RUN, "clients": 10, "rounds": 2}
    found = shuffling.noise_multiplier(target_epsilon=target, **run)
    assert 0.98 * target <= shuffling.epsilon(noise_multiplier=found, **run) <= target
    budget = {"epsilon": target, "delta": run["delta"], "rounds": run["rounds"]}
    local = shuffling.local_noise_multiplier(**budget)
    assert shuffling.central_noise_multiplier(**budget, clients=run["clients"]) < found < local / 2


@pytest.mark.slow
def test_few_chords_lie_above_many():
    """97 points of the same curve, by the library's own function: never more than ours, and not much less."""
    noise = 3.0
    ours = shuffling.epsilon(noise_multiplier=noise, **RUN)
    fine = blanket_rounds_epsilon(n=30, mu=2 / noise, rounds=4, delta=1e-5)
    assert fine <= ours * (1 + 1e-3)
    assert ours <= 1.1 * fine


def test_one_client_has_nobody_to_hide_among():
    alone = shuffling.epsilon(noise_multiplier=8.0, clients=1, rounds=2, delta=1e-5, dimension=1)
    assert alone == pytest.approx(float(gaussian_dp.epsilon(1e-5, math.sqrt(2) / 4)), rel=2e-2)
    assert alone <= float(gaussian_dp.epsilon(1e-5, math.sqrt(2) / 4)) * (1 + 1e-12)


@pytest.mark.parametrize(("name", "value"), [("noise_multiplier", 0.0), ("rounds", 0), ("delta", 0.0), ("clients", 0)])
def test_bad_input(name, value):
    arguments = {"noise_multiplier": 2.0, **RUN, name: value}
    with pytest.raises(ValueError, match=f"^{name} "):
        shuffling.epsilon(**arguments)
