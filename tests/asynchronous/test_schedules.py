import math

import numpy as np
import pytest

from dpfl.asynchronous.schedules import BatchSchedule, Strategy, step_sizes
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
