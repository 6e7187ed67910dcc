"""Phases of different samplers against an exact sum of losses, an integral over one phase of the other's profile."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from dpfl.accounting import gaussian_dp
from dpfl.accounting.guarantees import Phase, guarantee, guarantee_of_phases, privacy_curve
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.phases import phases_interval
from dpfl.accounting.sampler_accountants import Run, accountant
from dpfl.accounting.samplers import BallsInBins, FixedBatches, FullBatch, Poisson, ShuffledEpochs, WithReplacement
from dpfl.provenance.audit.inverted_composition import InvertedComposition, poisson_replaced


def phases_lower(phases):
    """The end below."""
    return phases_interval(phases)[0]


def phases_upper(phases):
    """The end above, alone."""
    return phases_interval(phases, both=False)[1]


DELTA, RATE, NOISE, MU = 1e-4, 0.1, 0.9, 0.8
ZERO, REPLACE, ADD = Neighbouring.ZERO_OUT, Neighbouring.REPLACE_ONE, Neighbouring.ADD_OR_REMOVE


def slow(*cases) -> list:
    """The cases, left to the slow tests."""
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


def phase(sampler, noise, steps, relation=ADD):
    return Run(sampler, noise, steps, DELTA, relation)


def gaussian(epsilon, mu):
    """The hockey stick of N(mu, 1) against N(0, 1) at any epsilon, also below 0."""
    return norm.sf(epsilon / mu - mu / 2) - np.exp(epsilon) * norm.sf(epsilon / mu + mu / 2)


def exact_epsilon(p_law, q_law, mu):
    """Epsilon at DELTA of a step with mixtures ((weight, mean), ...) and of mu-GDP, both seen."""
    x = np.linspace(-15, 25, 4001)
    p, q = (sum(weight * norm.pdf(x, mean) for weight, mean in law) for law in (p_law, q_law))
    loss = np.log(p) - np.log(q)
    spent = lambda epsilon: (p * gaussian(epsilon - loss, mu)).sum() * (x[1] - x[0])  # noqa: E731
    return brentq(lambda epsilon: math.log(max(spent(epsilon), 1e-300) / DELTA), 1e-3, 40)


NONE, ONCE, TWICE = ((1, 0),), ((1 - RATE, 0), (RATE, 1 / NOISE)), ((1 - RATE, 0), (RATE, 2 / NOISE))
BACK = ((1 - RATE, 0), (RATE, -1 / NOISE))


@pytest.mark.parametrize(
    ("sampler", "relation", "pair", "low"),
    [
        (Poisson(RATE), ADD, (ONCE, NONE), None),
        *slow(
            (FixedBatches(3, 30), ADD, (TWICE, NONE), None),
            (FixedBatches(3, 30), REPLACE, (TWICE, NONE), None),
            (WithReplacement(1, 10), REPLACE, (TWICE, NONE), None),
        ),
        (Poisson(RATE), REPLACE, (ONCE, BACK), None),
    ],
)
def test_a_sampled_step_and_a_full_batch_lie_about_the_exact_sum(sampler, relation, pair, low):
    """Both orders of each pair; the larger one is what is spent."""
    reach = 2 if relation is REPLACE else 1
    phases = [phase(sampler, NOISE, 1, relation), phase(FullBatch(), reach / MU, 1, relation)]
    exact = max(exact_epsilon(*pair, MU), exact_epsilon(*pair[::-1], MU))
    above, below = phases_upper(phases).epsilon, phases_lower(phases).epsilon
    assert below <= exact * (1 + 1e-9) and exact <= above * (1 + 1e-9)
    if low is None:
        assert above == pytest.approx(exact, rel=2e-3) and below == pytest.approx(exact, rel=2e-3)
    else:
        assert below == pytest.approx(max(exact_epsilon(*low, MU), exact_epsilon(*low[::-1], MU)), rel=2e-3)


def test_phases_without_amplification_are_one_gaussian():
    """Squares add: 3/4 of full batches and 2/25 of two epochs, of which the second is begun."""
    phases = [phase(FullBatch(), 2.0, 3, ZERO), phase(ShuffledEpochs(10, 40), 5.0, 7, ZERO)]
    exact = float(gaussian_dp.epsilon(DELTA, math.sqrt(3 / 4 + 2 / 25)))
    assert phases_upper(phases).epsilon == pytest.approx(exact, rel=1e-9)


def test_a_single_bin_is_a_full_batch():
    phases = [phase(BallsInBins(1), 1.5, 2), phase(FullBatch(), 2.0, 1)]
    exact = float(gaussian_dp.epsilon(DELTA, math.sqrt(2 / 2.25 + 1 / 4)))
    above, below = phases_upper(phases).epsilon, phases_lower(phases).epsilon
    assert below <= exact <= above
    assert above == pytest.approx(exact, rel=2e-3) and below == pytest.approx(exact, rel=1e-2)


def test_a_phase_of_which_nothing_is_proven_leaves_nothing():
    phases = [phase(ShuffledEpochs(10, 31), 5.0, 8), phase(Poisson(0.1), 2.0, 5)]
    assert accountant(phases[0]).unamplified_mu() == math.inf
    assert phases_upper(phases).epsilon == phases_lower(phases).epsilon == math.inf


def test_losses_beyond_floats_fall_back_on_gaussian_dp_and_on_one_phase():
    phases = [phase(Poisson(0.5), 0.01, 2), phase(FullBatch(), 1.0, 1)]
    exact = float(gaussian_dp.epsilon(DELTA, math.sqrt(2 * 100**2 + 1)))
    assert phases_upper(phases).epsilon == pytest.approx(exact, rel=1e-9)
    assert phases_lower(phases).epsilon > 1000  # the first one alone
    both = float(gaussian_dp.epsilon(DELTA, math.sqrt(200**2 + 1)))
    assert phases_lower([phase(FullBatch(), 0.005, 1), phases[1]]).epsilon == pytest.approx(both, rel=1e-9)


@pytest.mark.parametrize("noise", [0.2, 0.25])
def test_a_replaced_record_of_full_batches_spends_at_least_what_they_spend(noise):
    """As a removal, then an addition, 72.8 was proven at the noise 0.2, where the full batch alone spends 91.8."""
    runs = [Run(BallsInBins(20), 1.0, 20, 1e-5, REPLACE), Run(FullBatch(), noise, 1, 1e-5, REPLACE)]
    below, above = phases_interval(runs)
    alone = float(gaussian_dp.epsilon(1e-5, 2 / noise))
    assert alone <= below.epsilon <= above.epsilon  # neither is cut to fit the other


def test_epochs_that_are_not_complete_count_above_only():
    full, cut = phase(FullBatch(), 2.0, 1, ZERO), phase(ShuffledEpochs(10, 40), 3.0, 3, ZERO)
    assert phases_lower([full, cut]).epsilon == pytest.approx(float(gaussian_dp.epsilon(DELTA, 0.5)), rel=1e-3)
    assert phases_upper([full, cut]).epsilon == pytest.approx(
        float(gaussian_dp.epsilon(DELTA, math.sqrt(1 / 4 + 1 / 9))), rel=1e-9
    )


SAMPLERS = [
    Poisson(0.02),
    FixedBatches(3, 150),
    WithReplacement(4, 200),
    ShuffledEpochs(5, 200),
    BallsInBins(40),
    FullBatch(),
]


@pytest.mark.parametrize("relation", [ZERO, pytest.param(REPLACE, marks=pytest.mark.slow), ADD])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)
@pytest.mark.parametrize("cuts", [(120, 80), pytest.param((40, 40, 120), marks=pytest.mark.slow)])
def test_a_run_that_is_cut_gives_what_the_whole_gives(sampler, relation, cuts):
    """Also where another phase stands in between, and where the parts differ by what nobody could notice."""
    noise = 6.0 if isinstance(sampler, FullBatch | ShuffledEpochs) else 1.3
    question = {"delta": DELTA, "neighbouring": relation}
    whole = guarantee(sampler, noise_multiplier=noise, steps=200, **question)
    between = Phase(FullBatch(), 1e6, 1)
    parts = [Phase(sampler, noise, steps) for steps in cuts]
    other = [Phase(sampler, noise * (1 + 1e-7 * at), steps) for at, steps in enumerate(cuts)]
    coins = Phase(Poisson(0.5), 1e6, 1)  # so that the parts are composed on a grid
    for phases in (parts, [parts[0], between, *parts[1:]], [coins, *parts], other):
        found = guarantee_of_phases(phases, **question)
        assert found.upper == pytest.approx(whole.upper, rel=1e-3)
        assert found.lower == pytest.approx(whole.lower, rel=1e-3)
        assert found.lower <= found.upper


@pytest.mark.parametrize(
    ("phases", "known"),
    [
        ([Phase(Poisson(1 / 94), 1.0072, 940), Phase(Poisson(1 / 94), 1.0072 * (1 + 1e-9), 940)], 4.29696),
        ([Phase(Poisson(0.01), 1.0, 300), Phase(Poisson(0.02), 1.2, 200)], 2.5332),
    ],
)
def test_phases_of_a_replaced_record_against_an_inverted_transform(phases, known):
    """4.297 is dp_accounting's PLD of the whole; they were 2.913 to 20.95, and 1.97 to 11.27."""
    found = guarantee_of_phases(phases, delta=1e-5, neighbouring=REPLACE)
    parts = tuple(
        (poisson_replaced(phase.noise_multiplier, phase.sampler.sample_rate), phase.steps) for phase in phases
    )
    exact = InvertedComposition(parts, 1e-5).epsilon()
    assert exact == pytest.approx(known, rel=1e-4)
    assert found.lower * (1 - 1e-5) <= exact <= found.upper * (1 + 1e-5)
    assert found.upper / found.lower < 1.0001


def test_full_batches_of_several_noises_keep_their_floor():
    """The sum of squares is exact, however large: 809.7 was below, and 904.68 is what is spent."""
    phases = [Phase(FullBatch(), 1 / 10, 4), Phase(FullBatch(), 1 / 12, 9)]
    mu = math.sqrt(4 * 100 + 9 * 144)
    found = guarantee_of_phases(phases, delta=1e-5)
    exact = float(gaussian_dp.epsilon(1e-5, mu))
    assert found.lower == pytest.approx(exact, rel=1e-8) and found.upper == pytest.approx(exact, rel=1e-8)


def test_a_schedule_of_noise_has_a_narrow_interval():
    """300 steps, each its own noise, against a convolution of plain laws on a fine grid by numpy's transform."""
    noises = 1.5 * 0.998 ** np.arange(300)
    found = guarantee_of_phases([Phase(Poisson(0.02), noise, 1) for noise in noises], delta=1e-5)
    step, size = 1e-3, 1 << 15
    x = np.linspace(-12, 14, 40001)
    spectrum = np.ones(size // 2 + 1, dtype=complex)
    for noise in noises:
        loss = np.log1p(0.02 * np.expm1(x / noise - 0.5 / noise**2))
        mass = np.exp(-x * x / 2 + loss) * (x[1] - x[0]) / math.sqrt(2 * math.pi)
        place = loss / step
        low = np.floor(place).astype(int)
        share = place - low  # keeps the mean of the loss
        law = np.bincount(low % size, mass * (1 - share), size) + np.bincount((low + 1) % size, mass * share, size)
        spectrum *= np.fft.rfft(law)
    law = np.fft.irfft(spectrum, size)
    losses = np.where(np.arange(size) > size // 2, np.arange(size) - size, np.arange(size)) * step
    spent = lambda epsilon: law @ np.maximum(0.0, -np.expm1(epsilon - losses))  # noqa: E731
    exact = brentq(lambda epsilon: spent(epsilon) - 1e-5, 0.5, 10)  # a logarithm fails where rounding leaves a minus
    assert found.lower <= exact * (1 + 3e-4) and exact <= found.upper * (1 + 3e-4)
    assert found.upper / found.lower < 1.001


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0, 8.0])
def test_delta_of_full_batches_is_the_closed_form(epsilon):
    low, high = privacy_curve([Phase(FullBatch(), 2.0, 3)]).delta(epsilon)
    exact = norm.cdf(math.sqrt(3) / 4 - 2 * epsilon / math.sqrt(3))
    exact -= math.exp(epsilon) * norm.cdf(-math.sqrt(3) / 4 - 2 * epsilon / math.sqrt(3))
    assert low <= exact * (1 + 1e-9) and exact <= high * (1 + 1e-9)
    assert low == pytest.approx(exact, rel=2e-3)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
def test_delta_of_two_coins_is_the_integral_over_one_of_the_others_profile(epsilon):
    """Two Poisson steps, the larger order, summed on a plane."""
    low, high = privacy_curve([Phase(Poisson(0.2), 1.0, 1), Phase(Poisson(0.1), 0.8, 1)]).delta(epsilon)
    x = np.linspace(-9, 11, 3001)
    step = x[1] - x[0]
    none = norm.pdf(x) * step
    one, two = ((1 - rate) * none + rate * norm.pdf(x, 1 / noise) * step for rate, noise in ((0.2, 1.0), (0.1, 0.8)))
    p, q = np.outer(one, two), np.outer(none, none)
    exact = max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p)))
    assert low <= exact * (1 + 1e-5) and exact <= high * (1 + 1e-5)
    assert high / low < 1.001


@pytest.mark.parametrize("relation", [ZERO, REPLACE, pytest.param(ADD, marks=pytest.mark.slow)])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)
def test_delta_at_epsilon_is_the_inverse_of_epsilon_at_delta(sampler, relation):
    """Where epsilon at 1e-4 has these ends, delta has its ends about 1e-4 there; the ends never cross."""
    run = [Phase(sampler, 6.0 if isinstance(sampler, FullBatch | ShuffledEpochs) else 1.3, 80)]
    found = guarantee_of_phases(run, delta=DELTA, neighbouring=relation)
    by_two = isinstance(sampler, BallsInBins) and relation is REPLACE
    above = privacy_curve(run, neighbouring=relation).delta(found.upper)
    below = privacy_curve(run, neighbouring=relation).delta(found.lower)
    assert above[1] * (100 if by_two else 1) >= 0.999 * DELTA and above[1] <= (3 if by_two else 1.001) * DELTA
    assert 0.95 * DELTA <= below[0] <= 1.001 * DELTA
    assert all(low <= high for low, high in (above, below))


@pytest.mark.parametrize("chances", [(1e-18, 2e-18), (3e-17, 1e-19)])
def test_a_chance_below_the_spacing_of_floats_at_1_counts(chances):
    """1 - chance is 1 in float64. Without it the record would be called used with a chance of at most any delta."""
    phases = [Phase(Poisson(chance), 0.1, 10) for chance in chances]
    found = guarantee_of_phases(phases, delta=1e-20)
    alone = guarantee(Poisson(chances[0]), noise_multiplier=0.1, steps=10, delta=1e-20)
    assert found.upper >= alone.lower > 30
    assert guarantee_of_phases(phases, delta=11 * sum(chances)).upper == 0


def test_a_rare_record_has_the_total_variation_of_its_use():
    apart = math.erf(10 / math.sqrt(8))
    found = privacy_curve([Phase(Poisson(3e-17), 0.1, 1)]).delta(0.0)
    assert found.lower <= 3e-17 * apart <= found.upper <= 3e-17 * (1 + 1e-9)
