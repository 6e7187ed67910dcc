"""Fixed batches: other implementations, one step by integration, and what has to hold between the samplers."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_mixture_gaussian_mechanism
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import binom

from dpfl.accounting import FixedBatches, Poisson, WithReplacement, guarantee
from dpfl.accounting.composition import epsilon_above, epsilon_below
from dpfl.accounting.fixed_batches import law_above, pair_laws, pair_laws_above, smallest_epsilon, uses
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.tradeoff import dpsgd_guarantee


@pytest.mark.parametrize(("n", "m", "sigma"), [(100, 10, 2.0), (200, 5, 1.5), (40, 20, 6.0)])
def test_the_upper_bound_agrees_with_the_tradeoff_curves(n, m, sigma):
    weights, beyond = uses(m, n, False, 1e-12)
    law = law_above(2 * sigma, weights, beyond, 4 * n // m, 1e-5)
    curve = dpsgd_guarantee(n=n, m=m, epochs=4, sigma=sigma, adversary="A0")  # its sigma is over 2C
    assert epsilon_above([(law, 4 * n // m)], 1e-5) == pytest.approx(float(curve.epsilon(1e-5)), rel=3e-4)


# sigma, delta, low, high: q = 1/94, 1880 steps; a published-style bracket worked out elsewhere.
@pytest.mark.parametrize(
    ("sigma", "delta", "low", "high"),
    [(0.7, 1e-5, 41.48372, 69.54073), (1.0072, 1e-5, 13.83757, 20.95296), (3.0, 1e-6, 0.8574115, 1.871345)],
)
def test_zero_out_meets_the_reference_bracket(sigma, delta, low, high):
    weights, beyond = uses(64, 6016, False, 1e-15)
    assert low <= smallest_epsilon(sigma, weights, beyond, 1880, delta, Neighbouring.ZERO_OUT) <= low * 1.02
    found = epsilon_above([(law_above(sigma, weights, beyond, 1880, delta), 1880)], delta)
    assert found == pytest.approx(high, rel=1e-4)


def _mixture_epsilon(weights, a, b, sigma, delta) -> float:
    """Epsilon of one step, mixtures of N(a k, sigma^2) against N(b k, sigma^2), by integrating the positive part."""

    def density(z: float, mean: float) -> float:
        logs = [-((z - mean * k) ** 2) / (2 * sigma**2) for k in range(len(weights))]
        return sum(w * math.exp(log) for w, log in zip(weights, logs, strict=True)) / (sigma * math.sqrt(2 * math.pi))

    def spent(epsilon: float) -> float:
        positive = lambda z: max(density(z, a) - math.exp(epsilon) * density(z, b), 0.0)  # noqa: E731
        pieces = np.linspace(-8 * sigma, 8 * sigma + 2 * len(weights), 60)
        return sum(quad(positive, *ends, limit=200)[0] for ends in itertools.pairwise(pieces))

    return brentq(lambda epsilon: spent(epsilon) - delta, 1e-6, 30, xtol=1e-7)


@pytest.mark.parametrize("pair", [(2, 0), (2, 1), (1, 0), (0, 2), (1, 2)])
def test_one_step_agrees_with_an_integral(pair):
    weights = np.array([0.85, 0.12, 0.03])
    ordered = tuple(sorted(pair, reverse=True))
    law = pair_laws(1 / 1.2, weights, ordered, 1, 1e-3)[0 if ordered == pair else 1]
    assert epsilon_below([(law, 1)], 1e-3) == pytest.approx(_mixture_epsilon(weights, *pair, 1.2, 1e-3), rel=1e-3)


def test_one_slot_is_the_same_with_and_without_replacement():
    one, other = uses(1, 50, True, 1e-12)[0], uses(1, 50, False, 1e-12)[0]
    assert one == pytest.approx(other)


def test_with_replacement_counts_sum_to_one():
    weights, beyond = uses(64, 1000, True, 1e-14)
    assert weights.sum() + beyond == pytest.approx(1, abs=1e-15)
    assert beyond <= 1e-14


@pytest.mark.slow
def test_rare_uses_are_refuted_by_counting_several_as_one():
    """Two slots of 100,000 records: the pair's own grid is too coarse for losses of 1e-5, that of Poisson is not."""
    run = {"noise_multiplier": 1.0, "steps": 10_000, "delta": 1e-6, "neighbouring": "replace_one"}
    found = guarantee(WithReplacement(2, 100_000), **run)
    poisson = guarantee(Poisson(2e-5), **{**run, "noise_multiplier": 0.5, "neighbouring": "add_or_remove"})
    assert found.lower == pytest.approx(poisson.lower, rel=1e-3)
    assert 0.7 * found.upper < found.lower < found.upper


@pytest.mark.parametrize("sampler", [WithReplacement(10, 100), FixedBatches(10, 100)])
def test_hardly_any_noise_is_no_error(sampler):
    found = guarantee(sampler, noise_multiplier=0.03, steps=3, delta=1e-5)
    assert 500 < found.lower <= found.upper < math.inf


@pytest.mark.parametrize(("size", "records", "tail"), [(50, 216_660, 6e-20), (17, 12_706, 1e-27), (400, 1000, 1e-9)])
def test_uses_are_as_few_as_the_tail_allows(size, records, tail):
    weights, beyond = uses(size, records, True, tail)
    with mpmath.workdps(60):
        rate = mpmath.mpf(1) / records
        exact = [mpmath.binomial(size, k) * rate**k * (1 - rate) ** (size - k) for k in range(size + 1)]
        above = [float(mpmath.fsum(exact[k:])) for k in range(size + 1)]
    last = weights.size - 1
    assert beyond <= tail < above[last]
    assert beyond == pytest.approx(above[last + 1], rel=1e-9)
    assert weights == pytest.approx([float(chance) for chance in exact[: last + 1]], rel=1e-9)


# Where rare uses counted as all 17 or 50 slots of the batch, these were 0.0199 and 3.07.
@pytest.mark.parametrize(
    ("size", "records", "noise", "steps", "delta", "most"),
    [(17, 12_706, 102.55, 24, 1.9e-17, 0.00093), (50, 216_660, 5.83, 3_019_965, 1.78e-7, 0.716)],
)
def test_rare_uses_do_not_count_as_all_of_a_batch(size, records, noise, steps, delta, most):
    found = guarantee(WithReplacement(size, records), noise_multiplier=noise, steps=steps, delta=delta)
    assert found.lower <= found.upper <= most


@pytest.mark.parametrize(
    ("size", "records", "noise", "steps", "delta"),
    [
        (6, 558, 2.3711, 344, 1.14e-7),
        pytest.param(37, 387, 2.1524, 123, 7.98e-7, marks=pytest.mark.slow),
        pytest.param(5, 5, 4.0, 3, 1e-4, marks=pytest.mark.slow),
        (40, 8, 60.0, 2, 1e-3),
    ],
)
def test_slots_of_an_added_record_have_the_mixture_of_gaussians(size, records, noise, steps, delta):
    """dp_accounting's PLD of that mixture, on its own grid. By the bound for a replaced record 1.2 was 5.1."""
    chances = binom.pmf(np.arange(size + 1), size, 1 / records)
    moves = 2.0 * np.arange(size + 1)[chances > 1e-25]
    theirs = from_mixture_gaussian_mechanism(
        noise, sensitivities=moves, sampling_probs=chances[chances > 1e-25], value_discretization_interval=1e-3
    ).self_compose(steps)
    run = {"noise_multiplier": noise, "steps": steps, "delta": delta, "neighbouring": "add_or_remove"}
    found = guarantee(WithReplacement(size, records), **run)
    assert found.lower <= found.upper <= 1.001 * found.lower
    assert found.upper == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=2e-3)


def _profiles_of_two_slots(noise: float, epsilon: float) -> tuple[float, float]:
    """delta at epsilon of two slots of two records, the record drawn or not, in both orders, to 40 digits."""
    with mpmath.workdps(40):
        moves = [2 * k / mpmath.mpf(noise) for k in range(3)]
        chances = [mpmath.mpf(1) / 4, mpmath.mpf(1) / 2, mpmath.mpf(1) / 4]
        mixed = lambda function: mpmath.fsum(w * function(m) for w, m in zip(chances, moves, strict=True))  # noqa: E731
        loss = lambda z: mpmath.log(mixed(lambda m: mpmath.exp(m * z - m**2 / 2)))  # noqa: E731
        high, low = (mpmath.findroot(lambda z, at=at: loss(z) - at, mpmath.sign(at) / 2) for at in (epsilon, -epsilon))
        removed = mixed(lambda m: mpmath.ncdf(m - high)) - mpmath.exp(epsilon) * mpmath.ncdf(-high)
        added = mpmath.ncdf(low) - mpmath.exp(epsilon) * mixed(lambda m: mpmath.ncdf(low - m))
        return float(removed), float(added)


@pytest.mark.parametrize("noise", [1.3, 1e4])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_laws_above_hold_the_exact_profile_of_one_step(noise, share):
    """Moves of 2e-4 deviations keep their digits too."""
    epsilon = share * min(1.0, 2 / noise)
    laws = pair_laws_above(noise, np.array([0.25, 0.5, 0.25]), 0.0, 1, 1e-6)
    for law, known in zip(laws, _profiles_of_two_slots(noise, epsilon), strict=True):
        seen = law.losses > epsilon
        found = float(np.sum(law.masses[seen] * -np.expm1(epsilon - law.losses[seen]))) + law.lost
        assert known <= found <= known * 1.001


def test_a_rough_grid_spends_more_than_a_fine_one_and_hardly_so():
    """Both are above the truth; so many steps that the rough one has fewer places."""
    weights, beyond = uses(1, 100, False, 1e-12)
    rough, fine = (
        epsilon_above([(law_above(0.5, weights, beyond, 10_000, 1e-6, rough=rough), 10_000)], 1e-6)
        for rough in (True, False)
    )
    assert fine < rough < fine * (1 + 1e-5)
