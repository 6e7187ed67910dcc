"""Questions at the ends of all ranges: an ordered answer, or ValueError naming an argument; no NaN, no warning."""

import math
import warnings

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import binom, norm

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
from dpfl.provenance.audit.inverted_composition import InvertedComposition, sampled_gaussian

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
    return 0 <= found.lower <= found.upper and not math.isnan(found.upper)


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
    assert one is not None and both is not None, "these seeds draw questions that have an answer"
    assert ordered(one) and ordered(both)
    quieter, longer = (
        spends(first._replace(noise_multiplier=2 * first.noise_multiplier)),
        spends(first._replace(steps=2 * first.steps)),
    )
    assert quieter.upper <= one.upper * UNEVEN and longer.upper * UNEVEN >= one.upper
    assert both.upper * UNEVEN >= one.lower and both.lower * UNEVEN >= one.lower
    target = float(10 ** generator.uniform(-6, 3))
    noise = answered(lambda: noise_multiplier(first.sampler, target_epsilon=target, steps=first.steps, **question))
    assert noise is not None and 0 <= noise < math.inf


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


# Runs whose answers had taken long, by another route: delta by inverting the moments of the loss, in each order.


def gain(points: np.ndarray, chances: np.ndarray, shift: float) -> np.ndarray:
    """ln of the density of N(shift k, 1), k drawn with these chances, over that of N(0, 1)."""
    moves = shift * np.arange(chances.size)[:, None]
    return np.log1p(chances @ np.expm1(moves * (points - moves / 2)))


def inverted(chances: np.ndarray, shifts: tuple[float, float], steps: int, delta: float) -> float:
    """Epsilon of `steps` steps between two such mixtures, in the order that spends more: the contour integral of
    Alghamdi et al. 2023, by moments less 1, which keep their digits."""
    ends = np.append(np.linspace(-12, 2, 60, endpoint=False), np.linspace(2, 30, 401))
    at, weights = np.polynomial.legendre.leggauss(6)
    half = np.diff(ends)[:, None] / 2
    points, widths = (ends[:-1, None] + half * (1 + at)).ravel(), (half * weights).ravel()
    gains = [gain(points, chances, shift) for shift in shifts]

    def epsilon(p: np.ndarray, q: np.ndarray) -> float:
        masses, losses = np.exp(norm.logpdf(points) + p) * widths, p - q

        def log_moment(at: complex) -> complex:
            return steps * np.log1p(masses @ np.expm1(at * losses))

        def log_bound(tilt: float) -> float:
            return float(log_moment(tilt) - math.log(delta)) / tilt

        tilt = math.exp(minimize_scalar(lambda t: log_bound(math.exp(t)), bounds=(-3, 6), method="bounded").x) / 2
        line, exponents = [], []
        while not line or exponents[-1].real > exponents[0].real - 30:
            line.append(tilt * (1 + 1j * len(line) / 64))
            exponents.append(log_moment(line[-1]) - np.log(line[-1] * (line[-1] + 1)))

        def excess(epsilon: float) -> float:
            terms = np.exp(np.array(exponents) - np.array(line) * epsilon).real
            return float(np.sum(terms) - terms[0] / 2) * tilt / 64 / math.pi - delta

        return brentq(excess, 1e-3, log_bound(tilt), xtol=1e-9)

    return max(epsilon(*gains), epsilon(*gains[::-1]))


def test_the_noise_of_rare_samples_at_a_tiny_delta():
    """It took 5 processor seconds."""
    run = {"steps": 15_817, "delta": 1.36e-10}
    noise = noise_multiplier(Poisson(1.949e-4), target_epsilon=1.3985, **run)
    found = guarantee(Poisson(1.949e-4), noise_multiplier=noise, **run)
    exact = inverted(np.array([1 - 1.949e-4, 1.949e-4]), (1 / noise, 0.0), **run)
    assert found.lower <= exact <= found.upper
    assert 1.3985 * (1 - 1e-5) <= found.upper <= 1.3985 and found.upper <= found.lower * (1 + 3e-5)


def test_three_hundred_million_samples():
    """It took 4 processor seconds, and was 2.5 % wide."""
    found = guarantee(Poisson(0.01), noise_multiplier=100.0, steps=3 * 10**8, delta=1e-5)
    exact = inverted(np.array([0.99, 0.01]), (0.01, 0.0), 3 * 10**8, 1e-5)
    assert found.lower < exact < found.upper < 1.008 * found.lower


def test_a_hundred_million_draws_with_replacement():
    """It took 5 processor seconds. Above, the profile of Balle et al. 2018; below, the best of the pairs."""
    found = guarantee(WithReplacement(64, 6016), noise_multiplier=100.0, steps=10**8, delta=1e-5)
    chances = binom.pmf(np.arange(9), 64, 1 / 6016)
    amplified = sampled_gaussian(0.02 * np.arange(1, 9), chances[1:])
    exact = InvertedComposition(((amplified, 10**8),), 1e-5).epsilon()
    assert exact < found.upper < exact * (1 + 2e-4)
    exact = inverted(chances, (0.02, 0.01), 10**8, 1e-5)
    assert exact * (1 - 1e-3) < found.lower < exact
