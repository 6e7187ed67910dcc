"""Random allocation against the likelihood ratio itself, simulated over all choices of steps."""

import itertools
import math

import numpy as np
import pytest

from dpfl.accounting import (
    BallsInBins,
    FullBatch,
    Phase,
    RandomAllocation,
    guarantee,
    guarantee_of_phases,
    privacy_curve,
)


def simulated(uses, steps, noise, epsilon, *, removed, draws, seed):
    """Delta at epsilon of one epoch, in one order, and the error of its estimate."""
    generator = np.random.default_rng(seed)
    choices = np.array(list(itertools.combinations(range(steps), uses)))
    x = generator.standard_normal((draws, steps))
    if removed:
        mine = choices[generator.integers(len(choices), size=draws)]
        np.put_along_axis(x, mine, np.take_along_axis(x, mine, axis=1) + 1 / noise, axis=1)
    logs = x[:, choices].sum(axis=2) / noise - uses / (2 * noise**2)
    loss = np.log(np.mean(np.exp(logs), axis=1)) * (1 if removed else -1)
    gains = np.maximum(-np.expm1(np.minimum(epsilon - loss, 0)), 0)
    return gains.mean(), gains.std() / math.sqrt(draws)


@pytest.mark.parametrize(("uses", "steps"), [(2, 6), (3, 7)])
@pytest.mark.parametrize("removed", [True, False])
def test_an_epoch_spends_what_is_simulated(uses, steps, removed):
    """Deterministic at this seed. A delta at an end would fail at another one with probability 1.3e-3.

    The simulated deltas are 13 standard errors or more inside both ends.
    """
    noise, epsilon = 1.2, 1.0
    delta, error = simulated(uses, steps, noise, epsilon, removed=removed, draws=200_000, seed=uses)
    lower, upper = privacy_curve([Phase(RandomAllocation(uses, steps), noise, steps)]).delta(epsilon)
    assert delta <= upper + 3 * error
    if removed:
        assert lower <= delta + 3 * error and delta > 0.2 * upper


def test_the_ends_are_of_simpler_samplers():
    run = {"noise_multiplier": 1.5, "delta": 1e-5}
    found = guarantee(RandomAllocation(4, 22), steps=44, **run)
    assert found.upper == guarantee(BallsInBins(5), steps=40, **run).upper  # 8 epochs, in blocks of 5 or 6
    sums = guarantee(FullBatch(), noise_multiplier=1.5 * math.sqrt(22) / 4, steps=2, delta=1e-5)
    assert found.lower == sums.lower < found.upper
    assert guarantee(RandomAllocation(1, 22), steps=44, **run) == guarantee(BallsInBins(22), steps=44, **run)
    assert guarantee(RandomAllocation(22, 22), steps=44, **run) == guarantee(FullBatch(), steps=44, **run)
    most = guarantee(RandomAllocation(20, 22), steps=22, **run)
    assert most.upper == pytest.approx(guarantee(FullBatch(), steps=20, **run).upper, rel=1e-9)


def test_phases_and_replaced_records():
    phases = [Phase(RandomAllocation(2, 20), 2.0, 40), Phase(FullBatch(), 30.0, 4)]
    alone = guarantee(RandomAllocation(2, 20), noise_multiplier=2.0, steps=40, delta=1e-5)
    together = guarantee_of_phases(phases, delta=1e-5)
    assert alone.upper < together.upper < alone.upper + 0.2 and together.lower > alone.lower
    replaced = guarantee(
        RandomAllocation(2, 20), noise_multiplier=2.0, steps=40, delta=1e-5, neighbouring="replace_one"
    )
    blocks = guarantee(BallsInBins(10), noise_multiplier=2.0, steps=40, delta=1e-5, neighbouring="replace_one")
    assert replaced.upper == blocks.upper > alone.upper
