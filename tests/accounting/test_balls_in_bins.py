"""Balls in bins: published numbers, an integral over the plane, Monte Carlo, and order against other samplers."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr

from dpfl.accounting import BallsInBins, FullBatch, balls_in_bins, guarantee
from dpfl.accounting.balls_in_bins import Grid, Rounding, law_of_sum, laws_above, laws_below, lowest, one_term
from dpfl.accounting.composition import epsilon_above, epsilon_below

# Balls in bins: published numbers, an integral over the plane, Monte Carlo, and order against other samplers.

# (order, bins, noise multiplier, epochs, low, high) at delta 1e-5: an own computation by repeated convolution on
# geometric grids, confirmed by Monte Carlo on simulated normals; arXiv 2412.16802 has the pair.
REFERENCE = [
    ("add", 10, 0.7, 20, 14.365171, 14.365397),
    ("remove", 10, 0.7, 20, 18.473447, 18.473669),
    pytest.param("remove", 94, 0.7, 20, 6.0120953, 6.0123624, marks=pytest.mark.slow),
    ("remove", 94, 1.0072, 20, 2.5048165, 2.5050492),
    ("add", 94, 1.0072, 1, 0.43112104, 0.43115803),
    ("remove", 94, 1.7676, 20, 1.0649223, 1.0651020),
    ("add", 94, 3.0, 20, 0.56068340, 0.56082788),
    ("remove", 1000, 1.0072, 20, 0.66577845, 0.66622876),
    pytest.param("add", 1000, 3.0, 1, 0.029741428, 0.029776366, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("order", "bins", "sigma", "epochs", "low", "high"), REFERENCE)
def test_the_interval_meets_the_reference(order, bins, sigma, epochs, low, high):
    place = ("remove", "add").index(order)
    above, below = laws_above(sigma, bins, epochs, 1e-5)[place], laws_below(sigma, bins, epochs, 1e-5)[place]
    most, least = epsilon_above([(above, epochs)], 1e-5), epsilon_below([(below, epochs)], 1e-5)
    assert low - 1e-9 <= most <= high + (high - low)
    assert least <= high
    assert least <= most <= least + 1e-4 * (1 + most)


def _two_bins_epsilon(sigma: float, delta: float, add: bool) -> float:
    """Epsilon of two bins and one epoch, by an integral: the first outcome gives the second's threshold."""

    def spent(epsilon: float) -> float:
        x = math.exp(-epsilon if add else epsilon)

        def inner(z: float) -> float:
            first = math.exp(z / sigma - 1 / (2 * sigma**2)) / 2  # E_Q (first + Y/2 - x)+ or (x - first - Y/2)+
            rest = 2 * (x - first)
            if rest <= 0:
                value = 0.0 if add else first + 0.5 - x
            else:
                cut = sigma * math.log(rest) + 1 / (2 * sigma)
                sign = -1.0 if add else 1.0
                value = sign * (0.5 * ndtr(-sign * (cut - 1 / sigma)) - (x - first) * ndtr(-sign * cut))
            return value * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

        total = quad(inner, -12, 14, limit=400, epsabs=1e-14, epsrel=1e-10, points=[0.0, 1 / sigma])[0]
        return total / x if add else total

    return brentq(lambda epsilon: spent(epsilon) - delta, 1e-9, 60, xtol=1e-10)


@pytest.mark.parametrize("sigma", [0.6, pytest.param(1.0, marks=pytest.mark.slow), 2.5])
@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("delta", [pytest.param(1e-3, marks=pytest.mark.slow), 1e-6])
def test_two_bins_agree_with_an_integral(sigma, add, delta):
    exact = _two_bins_epsilon(sigma, delta, add)
    above, below = laws_above(sigma, 2, 1, delta)[add], laws_below(sigma, 2, 1, delta)[add]
    assert epsilon_below([(below, 1)], delta) <= exact * (1 + 1e-7)
    assert epsilon_above([(above, 1)], delta) >= exact * (1 - 1e-7)
    assert epsilon_above([(above, 1)], delta) == pytest.approx(epsilon_below([(below, 1)], delta), rel=2e-4)


def _put(bins: int, sigma: float, x: float) -> float:
    """E (x - L)+ of two or three bins: quadrature over all terms but one, of which the put has a closed form."""
    z, s = np.linspace(-10, 10, 2001), 1 / sigma
    weights, terms = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0]), np.exp(s * z - s * s / 2)
    if bins == 3:
        weights, terms = np.outer(weights, weights), np.add.outer(terms, terms)
    rest = bins * x - terms
    weights, rest = weights[rest > 0], rest[rest > 0]
    cut = np.log(rest) / s + s / 2
    return float(weights @ (rest * ndtr(cut) - ndtr(cut - s))) / bins


@pytest.mark.parametrize(("bins", "sigma"), [(2, 0.4), (2, 1.0), (3, 0.35), (3, 0.6)])
def test_puts_of_few_bins_agree_with_quadrature(bins, sigma):
    """A put has no use for a term above the number of bins, where its window ends: all that is below counts."""
    above, below = laws_above(sigma, bins, 1, 1e-5)[1], laws_below(sigma, bins, 1, 1e-5)[1]
    for epsilon in (0.0, 0.02, 0.5, 2.0):
        exact = math.exp(epsilon) * _put(bins, sigma, math.exp(-epsilon))
        ends = [
            law.lost + float(law.masses @ np.maximum(-np.expm1(np.minimum(epsilon - law.losses, 0.0)), 0.0))
            for law in (below, above)
        ]
        assert ends[0] <= exact * (1 + 3e-6) and exact <= ends[1] * (1 + 3e-6)  # the quadrature is off by 1e-6
        assert ends == pytest.approx([exact] * 2, rel=1e-3)


def test_the_terms_of_a_put_end_at_the_number_of_bins():
    """Of little noise a term may be e^100 and more."""
    for spread, bins in ((1.0, 2), (3.0, 94), (5.0, 2000)):
        scale = balls_in_bins._scale(spread, bins, 2.5 * bins, 1 << 15, -1)
        assert bins <= scale.grid.end < bins + 2 * scale.grid.step


def test_monte_carlo_of_the_mechanism_agrees():
    """Throw the balls and add the noise: delta at a fixed epsilon; a false alarm once in 30,000 runs (4 deviations)."""
    bins, sigma, epochs, epsilon = 6, 1.3, 2, 1.0
    generator = np.random.default_rng(20240511)
    draws = 200_000
    loss = np.zeros(draws)
    for _ in range(epochs):
        noise = generator.normal(0, sigma, (draws, bins))
        noise[np.arange(draws), generator.integers(0, bins, draws)] += 1
        loss += np.log(np.mean(np.exp(noise / sigma**2 - 1 / (2 * sigma**2)), axis=1))
    gains = np.maximum(-np.expm1(epsilon - loss), 0.0)
    mean, error = float(gains.mean()), float(gains.std() / math.sqrt(draws))
    above, below = laws_above(sigma, bins, epochs, 1e-3)[0], laws_below(sigma, bins, epochs, 1e-3)[0]
    assert epsilon_above([(above, epochs)], mean + 4 * error) <= epsilon
    assert epsilon_below([(below, epochs)], mean + 4 * error) <= epsilon
    assert epsilon_below([(below, epochs)], mean - 4 * error) >= epsilon
    assert epsilon_above([(above, epochs)], mean - 4 * error) >= epsilon


def test_more_bins_spend_less():
    found = [epsilon_above([(laws_above(1.0, bins, 3, 1e-6)[0], 3)], 1e-6) for bins in (2, 3, 7, 20, 90, 400)]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize(
    ("sigma", "bins"), [(0.25, 30), (50.0, 200), pytest.param(1.0, 20_000, marks=pytest.mark.slow)]
)
def test_both_sides_stay_near_at_the_ends_of_the_range(sigma, bins):
    most = epsilon_above([(laws_above(sigma, bins, 10, 1e-5)[0], 10)], 1e-5)
    least = epsilon_below([(laws_below(sigma, bins, 10, 1e-5)[0], 10)], 1e-5)
    assert 0 < least <= most <= 1.02 * least


def test_both_ends_stay_near_at_a_tiny_delta():
    """Rounding takes no more from the lower end than a share of epsilon."""
    for above, below in zip(laws_above(2.5, 50, 1, 1e-22), laws_below(2.5, 50, 1, 1e-22), strict=True):
        most, least = epsilon_above([(above, 1)], 1e-22), epsilon_below([(below, 1)], 1e-22)
        assert 0.8 * most <= least <= most


@pytest.mark.parametrize("place", [0, 1])
def test_less_noise_spends_more_where_bins_are_many(place):
    """20,000 bins, and windows of the sum whose steps are above and below 1."""
    laws = [laws_above(sigma, 20_000, 10, 1e-5, rough=True)[place] for sigma in (0.8, 0.7, 0.6, 0.5)]
    found = [epsilon_above([(law, 10)], 1e-5) for law in laws]
    assert 0 < found[0] < found[1] < found[2] < found[3] < 1.5


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.7, 0.5])
def test_many_bins_and_little_noise_agree_with_simulated_sums(sigma):
    """One epoch of 20,000 bins, where rare large terms make the sum's deviation and its window must not miss the mean.

    delta at the epsilon of either side by Monte Carlo of the sum itself; a false alarm once in 10^4 runs (4.4 each).
    """
    bins, draws, delta = 20_000, 3_000, 2e-3
    normal = np.random.default_rng(7).standard_normal
    sums = np.array([np.exp(normal(bins) / sigma - 1 / (2 * sigma**2)).mean() for _ in range(draws)])
    above, below = laws_above(sigma, bins, 1, delta), laws_below(sigma, bins, 1, delta)
    for add in (False, True):
        ends = epsilon_above([(above[add], 1)], delta), epsilon_below([(below[add], 1)], delta)
        assert 0 < ends[1] <= ends[0] < (1.1 if sigma > 0.6 else 2) * ends[1]
        for side, epsilon in zip((1, -1), ends, strict=True):
            # Q||P is the expectation of (1 - e^epsilon L)+ under Q; P||Q that of (L - e^epsilon)+.
            gains = np.maximum(1 - math.exp(epsilon) * sums if add else sums - math.exp(epsilon), 0.0)
            mean, error = float(gains.mean()), float(gains.std() / math.sqrt(draws))
            assert side * (mean - delta) <= 4.4 * error


@pytest.mark.slow
def test_the_upper_end_is_smooth_in_the_noise_where_bins_are_many():
    """20,000 bins, ten epochs: no jump to what is spent without amplification, as there was below 0.7."""
    spent = [epsilon_above([(laws_above(s, 20_000, 10, 1e-5)[0], 10)], 1e-5) for s in (0.7, 0.5)]
    rough = epsilon_above([(laws_above(0.5, 20_000, 10, 1e-5, rough=True)[0], 10)], 1e-5)
    assert spent[0] < spent[1] <= rough < 1.01 * spent[1] < 1.5


# Terms on the grid keep the order that they promise; sums of two agree with an integral.


def _call(x: float, spread: float) -> float:
    """E (Y - x)+ of one term, Black and Scholes's closed form."""
    cut = math.log(x) / spread
    return float(ndtr(spread / 2 - cut) - x * ndtr(-spread / 2 - cut))


@pytest.mark.parametrize(("spread", "step"), [(0.02, 2e-4), (0.5, 0.01), (1.0, 0.01), (1.5, 0.02)])
def test_terms_bracket_calls_and_puts(spread, step):
    grid = Grid(lowest(spread), step, 60_000)
    spread_out, reduced, raised = (one_term(grid, spread, rounding) for rounding in Rounding)
    y = grid.points()
    for x in np.exp(spread * np.linspace(-2, 3, 23) - spread**2 / 2):
        exact_call = _call(x, spread)
        exact_put = exact_call - 1 + x
        room = 1e-7 + 2 * (1 - float(spread_out @ y))  # terms above the grid are left out
        assert spread_out @ np.maximum(y - x, 0) >= exact_call - room
        assert reduced @ np.maximum(y - x, 0) <= exact_call + 1e-12
        assert spread_out @ np.maximum(x - y, 0) >= exact_put - 1e-12
        assert raised @ np.maximum(x - y, 0) <= exact_put + 1e-12
        assert reduced @ np.maximum(y - x, 0) == pytest.approx(exact_call, abs=step / 100 + room)
        assert raised @ np.maximum(x - y, 0) == pytest.approx(exact_put, abs=step / 100)
    for masses in (spread_out, reduced, raised):
        assert masses.min() >= 0
        assert masses.sum() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("tilt", [0.5, -0.5])
def test_a_sum_of_two_agrees_with_an_integral(tilt):
    spread, grid = 0.8, Grid(lowest(0.8), 0.005, 8000)
    law = law_of_sum(one_term(grid, spread, Rounding.SPREAD), grid, 2, 1 << 15, 0, tilt)
    for x in (0.5, 1.0, 2.0, 4.0):

        def below(z: float, x: float = x) -> float:
            rest = x - math.exp(spread * z - spread**2 / 2)
            share = ndtr(math.log(rest) / spread + spread / 2) if rest > 0 else 0.0
            return share * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

        end = math.log(x) / spread + spread / 2
        exact = quad(below, -10, end, epsabs=1e-12, limit=200)[0]
        assert float(np.sum((law.masses * law.units())[law.values < x])) == pytest.approx(exact, abs=3e-3)


def test_the_transforms_noise_covers_a_direct_sum():
    """Each mass on its own, and the root of the sum of squares, which is less than that of as many of the largest."""
    grid = Grid(lowest(0.7), 0.05, 120)
    masses = one_term(grid, 0.7, Rounding.SPREAD)
    direct = np.convolve(np.convolve(masses, masses), masses)
    law = law_of_sum(masses, grid, 3, 512, 0, 1.5)
    size = min(direct.size, 512)
    errors = law.masses[:size] - direct[:size] / law.units()[:size]
    assert np.all(np.abs(errors) <= law.noise + 1e-13 * law.masses[:size])
    assert float(np.linalg.norm(errors)) <= law.noise_norm <= law.noise * math.sqrt(512)


@pytest.mark.parametrize(("tilt", "first", "size"), [(0.3, 60, 128), (1.5, 130, 64), (-0.8, 40, 64), (-3.0, 20, 32)])
def test_what_wraps_around_is_bounded_by_the_least_of_all_tilts(tilt, first, size):
    """The search stops where the bound turns, which is convex in the tilt: above a direct sum, and no other is less."""
    grid, terms = Grid(lowest(0.7), 0.05, 120), 4
    masses = one_term(grid, 0.7, Rounding.SPREAD)
    direct = masses
    for _ in range(terms - 1):
        direct = np.convolve(direct, masses)
    law = law_of_sum(masses, grid, terms, size, first, tilt)
    start = grid.start * terms
    tilted = np.exp(tilt * (start + grid.step * np.arange(direct.size)) - law.log_scale) * direct
    outside = tilted[:first].sum() + tilted[first + size :].sum()
    assert 1e-9 < outside <= law.wrapped * (1 + 1e-9)
    if tilt < 0:
        assert direct[:first].sum() <= law.below * (1 + 1e-9)

    def least(factors: tuple[float, ...], edge: float) -> float:
        """The least of Chernoff's bounds of the tilted mass beyond an edge, under all tilts."""
        others = (tilt + factor * abs(tilt) for factor in factors)
        places = grid.step * np.arange(masses.size)
        moment = lambda tilt: terms * math.log(float(masses @ np.exp(tilt * places)))  # noqa: E731
        return min(1.0, *(math.exp(moment(other) - moment(tilt) - (other - tilt) * edge) for other in others))

    down = tuple(-factor for factor in balls_in_bins._OFFSETS_BELOW)
    known = least(balls_in_bins._OFFSETS, (first + size) * grid.step) + least(down, first * grid.step)
    assert law.wrapped == pytest.approx(known, rel=1e-9)


@pytest.mark.parametrize(
    ("bins", "noise", "steps", "delta", "neighbouring"),
    [
        (2, 0.5, 10, 1e-290, "replace_one"),
        (3, 0.3, 15, 1e-270, "zero_out"),
        pytest.param(2, 1.0, 10, 1e-290, "replace_one", marks=pytest.mark.slow),
        pytest.param(2, 1.5, 10, 1e-260, "replace_one", marks=pytest.mark.slow),
        pytest.param(50, 0.7, 250, 1e-270, "replace_one", marks=pytest.mark.slow),
        pytest.param(3, 0.2, 15, 1e-245, "zero_out", marks=pytest.mark.slow),
    ],
)
def test_the_least_deltas_have_an_answer_of_at_most_full_batches_of_the_same_epochs(
    bins, noise, steps, delta, neighbouring
):
    run = {"noise_multiplier": noise, "delta": delta, "neighbouring": neighbouring}
    found = guarantee(BallsInBins(bins), steps=steps, **run)
    full = guarantee(FullBatch(), steps=steps // bins, **run)
    assert 0 <= found.lower <= found.upper <= full.upper * (1 + 1e-9)
