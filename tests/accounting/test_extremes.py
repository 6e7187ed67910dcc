"""Questions at the ends of all ranges: an ordered answer, or ValueError naming an argument; no NaN, no warning."""

import math
import warnings

import numpy as np
import pytest

from dpfl.accounting import (
    BallsInBins,
    FixedBatches,
    FullBatch,
    Neighbouring,
    Phase,
    Poisson,
    ShuffledEpochs,
    WithReplacement,
    gaussian_dp,
    guarantee,
    guarantee_of_phases,
    noise_multiplier,
)

UNEVEN = 1 + 1e-3
"""Room for grids that change with the question, where answers are compared."""
ARGUMENTS = ("noise_multiplier", "steps", "delta", "target_epsilon", "batch_size", "records", "sampler", "phases")


def drawn(generator):
    """A phase: sigma 1e-6 to 1e9, rates down to 1e-12, up to ten million steps."""

    def power(low: float, high: float) -> float:
        return float(10 ** generator.uniform(low, high))

    records = int(power(2, 9))
    samplers = [
        Poisson(power(-12, 0)),
        FixedBatches(int(generator.integers(1, 100)), records),
        WithReplacement(int(power(0, 2)), records),
        ShuffledEpochs(int(generator.integers(1, 100)), int(power(2, 6))),
        BallsInBins(int(power(0, 2.5))),
        FullBatch(),
    ]
    return Phase(samplers[generator.integers(6)], power(-6, 9), int(power(0, 7)))


def answered(ask):
    """The answer, or None where it is refused by a ValueError that names an argument."""
    with warnings.catch_warnings(), np.errstate(all="warn", under="ignore"):
        warnings.simplefilter("error")
        try:
            return ask()
        except ValueError as problem:
            assert any(name in str(problem) for name in ARGUMENTS), problem
            return None


def ordered(found):
    """Whether an answer is an interval of numbers."""
    return found is None or (0 <= found.lower <= found.upper and not math.isnan(found.upper))


@pytest.mark.parametrize("seed", [2, 5, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 90))])
def test_ends_of_all_ranges(seed):
    generator = np.random.default_rng(seed)
    first, second = drawn(generator), drawn(generator)
    question = {"delta": float(10 ** generator.uniform(-30, math.log10(0.5)))}
    question["neighbouring"] = list(Neighbouring)[generator.integers(3)]

    def spends(phase: Phase):
        sampler, noise, steps = phase
        return answered(lambda: guarantee(sampler, noise_multiplier=noise, steps=steps, **question))

    one, both = spends(first), answered(lambda: guarantee_of_phases([first, second], **question))
    assert ordered(one) and ordered(both)
    if one is None:
        return
    quieter, longer = (
        spends(first._replace(noise_multiplier=2 * first.noise_multiplier)),
        spends(first._replace(steps=2 * first.steps)),
    )
    assert quieter.upper <= one.upper * UNEVEN and longer.upper * UNEVEN >= one.upper
    if both is not None:
        assert both.upper * UNEVEN >= one.lower and both.lower * UNEVEN >= one.lower
    target = float(10 ** generator.uniform(-6, 3))
    noise = answered(lambda: noise_multiplier(first.sampler, target_epsilon=target, steps=first.steps, **question))
    assert noise is None or 0 <= noise < math.inf


def test_a_delta_below_what_may_wrap_around_is_answered():
    """Without a tilt the allowance for wrapping alone outweighs such a delta."""
    rare = {"noise_multiplier": 429410.0, "steps": 164765, "delta": 2e-13, "neighbouring": "replace_one"}
    assert guarantee(Poisson(1.66e-12), **rare).upper == 0


@pytest.mark.parametrize("times", [1.5, 2, 4, 8])
def test_a_delta_at_which_epsilon_is_0_keeps_its_amplification(times):
    """With hardly any tilt what may wrap around outweighed such a delta; the search for a tilt has no end at 4."""
    rare = {"steps": 5349, "delta": 2.7e-15, "neighbouring": "zero_out"}
    assert guarantee(WithReplacement(1, 91798915), noise_multiplier=times * 183312742.5, **rare).upper == 0


@pytest.mark.parametrize("times", [1, 2, 8])
def test_tiny_losses_have_a_tilt_that_is_steep_enough(times):
    """Losses of 1e-9: under a tilt of 1e6 alone the upper end was 115 times the lower one, and rose with the noise."""
    rare = {"steps": 117, "delta": 5.626e-21, "neighbouring": "replace_one"}
    found = guarantee(FixedBatches(2, 1072605), noise_multiplier=times * 8240.83, **rare)
    assert 0 < found.lower <= found.upper < 1.001 * found.lower


def test_noise_that_is_enough_but_for_rounding_is_found():
    question = {"steps": 1, "delta": 1.7628920742188675e-10, "neighbouring": "add_or_remove"}
    noise = noise_multiplier(BallsInBins(110), target_epsilon=4.109e-6, **question)
    assert guarantee(BallsInBins(110), noise_multiplier=noise, **question).upper <= 4.109e-6


def test_no_epsilon_is_below_a_rounding_of_the_ends():
    """The points of its profile are 1e-183 at the end, and were below 0 by rounding."""
    many = {"noise_multiplier": 11734.8, "steps": 646712, "delta": 3.4e-26}
    assert 0 < guarantee(BallsInBins(269), **many).upper < 0.003


@pytest.mark.parametrize("sigma", [1e-6, 1e-3, 0.05])
def test_phases_of_hardly_any_noise_are_those_of_every_use(sigma):
    """Their losses are no floats: Gaussian DP of all uses stands for them, exactly so for full batches."""
    phases = [Phase(FullBatch(), sigma, 100), Phase(Poisson(0.1), 1.0, 10)]
    found = guarantee_of_phases(phases, delta=1e-5)
    assert found.upper == pytest.approx(float(gaussian_dp.epsilon(1e-5, math.hypot(10 / sigma, math.sqrt(10)))))
    assert found.lower == pytest.approx(float(gaussian_dp.epsilon(1e-5, 10 / sigma)))
