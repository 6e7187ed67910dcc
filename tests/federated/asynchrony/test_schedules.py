import math

import numpy as np
import pytest

from dpfl.errors import InputError
from dpfl.federated.asynchrony.schedules import Strategy, step_sizes


def test_step_sizes_diminish_from_epoch_to_epoch():
    np.testing.assert_allclose(step_sizes(0.6, 0.5, 6, 3), [0.6, 0.6, 0.4, 0.4, 0.3, 0.3])
    np.testing.assert_array_equal(step_sizes(0.6, 0.0, 4, 2), [0.6] * 4)


def test_factors_hold_for_equal_segments():
    strategy = Strategy(clip_factors=(1.0, 0.5), noise_factors=(2.0, 1.0, 0.5))
    np.testing.assert_array_equal(strategy.clip(5), [1, 1, 1, 0.5, 0.5])
    np.testing.assert_array_equal(strategy.noise(6, 3), [2, 2, 1, 1, 0.5, 0.5])


def test_the_last_epoch_takes_the_chapters_noise():
    noise = Strategy(last_epoch=True).noise(12, 3)
    np.testing.assert_allclose(noise, [1] * 8 + [1 / math.sqrt(4)] * 4)
    # Shuffled batches: mu^2 = sum over epochs of 1/sigma^2, here E - 1 + E + 1 = 2E.
    assert 2 + 1 / noise[-1] ** 2 == pytest.approx(2 * 3)


def test_segments_cover_every_round_once():
    strategy = Strategy(noise_factors=(2.0, 1.0), last_epoch=True, arsinh_scale=3.0)
    segments = strategy.segments(sigma=1.5, p=0.1, rounds=10, epochs=5)
    assert sum(each.rounds for each in segments) == 10
    assert {each.p for each in segments} == {0.1} and {each.arsinh_scale for each in segments} == {3.0}
    total = sum(each.rounds * each.sigma for each in segments)
    assert total == pytest.approx(1.5 * strategy.noise(10, 5).sum())


@pytest.mark.parametrize(
    "given", [{"clip": [1]}, {"clip_factors": []}, {"noise_factors": [0.0]}, {"kept_share": 2.0}, {"arsinh_scale": -1}]
)
def test_a_strategy_that_cannot_be_is_named(given):
    with pytest.raises(InputError, match=r"^strategies.odd: [^\n]*$"):
        Strategy.of("odd", given)


@pytest.mark.parametrize(("rate", "decay", "name"), [(0.0, 0.1, "learning_rate"), (1.0, -0.1, "step_decay")])
def test_steps_that_do_not_diminish_are_refused(rate, decay, name):
    with pytest.raises(InputError, match=name):
        step_sizes(rate, decay, 4, 2)
