"""Losses on a grid, their sums, and epsilon of them, against exact profiles, convolution and binomial laws."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom

from dpfl.accounting import composition, gaussian_dp
from dpfl.accounting.composition import (
    Blend,
    Composition,
    LossPart,
    LossSearch,
    epsilon_above,
    epsilon_below,
    largest_below,
)
from dpfl.accounting.fixed_batches import law_above, pair_laws
from dpfl.accounting.loss_grids import (
    UNIT,
    Cells,
    GridLaw,
    LossGrid,
    from_atoms,
    from_points,
    optimistic,
    pessimistic,
    regrid,
)
from dpfl.accounting.poisson_gaussian import Step

# Losses on a grid against the exact profile of their atoms, and sums of them against plain convolution.


def profile(losses: np.ndarray, masses: np.ndarray, epsilon: np.ndarray) -> np.ndarray:
    """E[(1 - e^(epsilon - loss))_+], term by term."""
    return (masses * np.maximum(0.0, -np.expm1(epsilon[:, None] - losses))).sum(axis=1)


def test_an_epsilon_beyond_all_places_has_no_gain():
    law = GridLaw(-1e-290, 1e-300, np.array([0.5, 0.5]))
    assert Composition([(law, 10)], 1.0).log_delta_above(1e20) < -1e10


@pytest.mark.parametrize(("epsilon", "tilt"), [(0.5, 0.5), (2.0, 2.0), (4.0, 20.0), (5.0, 20.0)])
def test_a_sum_keeps_its_digits_where_delta_is_tiny(epsilon, tilt):
    law = GridLaw(-0.4, 0.1, np.array([0.1, 0.1, 0.15, 0.2, 0.2, 0.1, 0.08, 0.05, 0.019, 0.001]))
    other = GridLaw(-0.1, 0.1, np.array([0.5, 0.3, 0.2]), lost=1e-40)
    plain, start = np.ones(1), 0.0
    for each, times in ((law, 12), (other, 5)):
        for _ in range(times):  # sums of products of positive numbers: each keeps its digits
            plain, start = np.convolve(plain, each.masses), start + each.origin
    exact = profile(start + 0.1 * np.arange(plain.size), plain, np.array([epsilon]))[0]
    composition = Composition([(law, 12), (other, 5)], tilt=tilt)
    lower, upper = composition.log_delta_below(epsilon), composition.log_delta_above(epsilon)
    assert lower <= math.log(exact + 5e-40) + 1e-9
    assert math.log(exact) <= upper + 1e-9
    assert upper - lower < 1e-6
    assert composition.doubt(epsilon) < 1e-6


@pytest.mark.parametrize("tilt", [0.0, 1.0, 50.0])
def test_a_tilt_that_does_not_fit_widens_the_bounds_only(tilt):
    law = GridLaw(-0.4, 0.1, np.array([0.1, 0.1, 0.15, 0.2, 0.2, 0.1, 0.08, 0.05, 0.019, 0.001]))
    plain = np.ones(1)
    for _ in range(12):
        plain = np.convolve(plain, law.masses)
    composition = Composition([(law, 12)], tilt=tilt)
    for epsilon in (0.5, 2.0, 4.5):
        exact = math.log(profile(-4.8 + 0.1 * np.arange(plain.size), plain, np.array([epsilon]))[0])
        assert composition.log_delta_below(epsilon) <= exact + 1e-9
        assert exact <= composition.log_delta_above(epsilon) + 1e-9


def test_grids_of_different_steps_are_refused():
    laws = [(GridLaw(0.0, step, np.array([0.5, 0.5])), 2) for step in (0.1, 0.2)]
    with pytest.raises(ValueError, match="phases"):
        Composition(laws, 1.0)


@pytest.mark.parametrize("jump", [0, 40, 100])
@pytest.mark.parametrize("tilt", [0.05, 0.3, 2.0])
def test_a_sum_that_the_places_do_not_reach_across_is_bounded(tilt, jump, monkeypatch):
    """What wraps around the ends may be above epsilon, below the grid as well: against the law of the sum itself."""
    monkeypatch.setattr(composition, "MOST_PLACES", 1 << 10)
    steps, chance, rare = 60, 0.7, 1e-6
    often, once = np.zeros(201), np.zeros(100 * jump + 1)
    often[[0, 200]] = 1 - chance, chance
    once[0], once[-1] = 1 - rare, once[-1] + rare
    sums = Composition([(GridLaw(-1.0, 0.01, often), steps), (GridLaw(0.0, 0.01, once / once.sum()), 1)], tilt)
    epsilon = np.linspace(0, 59 + jump, 119)
    uses = np.arange(steps + 1)
    chances = binom.pmf(uses, steps, chance)
    losses, masses = 2.0 * uses - steps, np.append((1 - rare) * chances, rare * chances)
    truth = profile(np.append(losses, losses + jump), masses, epsilon)
    above, below = (np.array([bound(e) for e in epsilon]) for bound in (sums.log_delta_above, sums.log_delta_below))
    assert np.all(above >= np.log(truth) - 1e-9)
    assert np.all(below <= np.log(truth) + 1e-9)


@pytest.mark.parametrize("jump", range(50, 100))
def test_a_rare_loss_just_beyond_the_last_place_counts(jump, monkeypatch):
    """Whether the places end before, at or after the loss: delta is at least what this loss alone adds."""
    monkeypatch.setattr(composition, "MOST_PLACES", 64)
    masses = np.concatenate([[0.99], np.zeros(jump - 1), [0.01]])
    sums = Composition([(GridLaw(0.0, 1.0, masses), 1)], 0.0)
    for epsilon in (0.5, jump - 10.0, jump - 5.0):
        assert sums.log_delta_above(epsilon) >= math.log(0.01 * -math.expm1(epsilon - jump)) - 1e-9


@pytest.mark.parametrize("tilt", [0.0, 1.0])
def test_losses_between_two_laws_are_those_of_their_mixtures(tilt):
    low, high = np.array([0.2, 0.2, 0.2, 0.2, 0.1, 0.1]), np.array([0.1, 0.0, 0.05, 0.05, *(0.1,) * 8])
    shares, counts = np.array([0.1, 0.5, 0.8]), np.array([3.0, 5.0, 2.0])
    plain = np.ones(1)
    for share, count in zip(shares, counts, strict=True):
        mixture = share * high
        mixture[2:8] += (1 - share) * low
        for _ in range(int(count)):
            plain = np.convolve(plain, mixture)
    sums = Composition([Blend((GridLaw(-0.3, 0.1, low), GridLaw(-0.5, 0.1, high)), shares, counts)], tilt)
    for epsilon in (0.0, 1.0, 3.0):
        exact = math.log(profile(-5.0 + 0.1 * np.arange(plain.size), plain, np.array([epsilon]))[0])
        below, above = sums.log_delta_below(epsilon), sums.log_delta_above(epsilon)
        assert exact - 1e-8 < below <= exact + 1e-10 and exact - 1e-10 <= above < exact + 1e-8


# Laws on a grid: Gaussian steps compose to a Gaussian, and grids that are brought together keep their side.

ALWAYS = np.array([0.0, 1.0])


@pytest.mark.parametrize("tilt", [0.0, 1.0])
def test_losses_between_two_equal_laws_have_that_law(tilt):
    law = GridLaw(-0.2, 0.1, np.array([0.1, 0.3, 0.2, 0.2, 0.15, 0.05]))
    blend = Blend((law, law), np.array([0.3, 0.8]), np.array([4.0, 3.0]))
    plain, between = Composition([(law, 7)], tilt), Composition([blend], tilt)
    for epsilon in (0.0, 0.25, 0.6):
        assert between.log_delta_above(epsilon) == pytest.approx(plain.log_delta_above(epsilon), rel=1e-8)
        assert between.log_delta_below(epsilon) == pytest.approx(plain.log_delta_below(epsilon), rel=1e-8)


@pytest.mark.parametrize("steps", [1, 7])
def test_the_rounding_of_every_step_s_transform_and_of_the_way_back_is_allowed_for(steps):
    """The spectrum of a single loss is 1 everywhere, so each of these transforms may err by as much as the others."""
    sums = Composition([(GridLaw(0.2, 0.1, np.ones(1)), steps)], 0.0)
    of_one = composition.TRANSFORM_ERROR * UNIT * math.log2(sums.masses.size)
    assert sums.rounding >= (steps + 1) * of_one * float(np.linalg.norm(sums.masses))


@pytest.mark.parametrize("steps", [1, 7, 300])
@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-25])
def test_gaussian_steps_compose_to_a_gaussian(steps, delta):
    mu = 0.3
    exact = float(gaussian_dp.epsilon(delta, mu * math.sqrt(steps)))
    above = epsilon_above([(law_above(2 / mu, ALWAYS, 0.0, steps, delta), steps)], delta)
    below = epsilon_below([(pair_laws(mu, ALWAYS, (1, 0), steps, delta)[0], steps)], delta)
    assert below <= exact <= above
    assert above == pytest.approx(exact, rel=2e-3, abs=2e-5)
    assert below == pytest.approx(exact, rel=2e-3, abs=2e-5)


def test_a_coarser_grid_keeps_its_side():
    exact = float(gaussian_dp.epsilon(1e-6, 0.5 * math.sqrt(20)))
    above, below = law_above(4.0, ALWAYS, 0.0, 20, 1e-6), pair_laws(0.5, ALWAYS, (1, 0), 20, 1e-6)[0]
    for step in (above.step / 3, 0.0123):
        assert epsilon_above([(pessimistic(regrid(above, step)), 20)], 1e-6) >= exact
        assert epsilon_below([(optimistic(regrid(below, step)), 20)], 1e-6) <= exact


def test_randomised_response_comes_out_exactly():
    """Atoms on the grid are kept: one step is (ln 3, 0)-DP, so at delta it is ln((3/4 - delta) / (1/4))."""
    step = math.log(3) / 50
    grid = LossGrid(-60, 60, step)
    laws = from_atoms(grid, np.array([0.25, 0.75]), np.array([0.75, 0.25]))
    assert epsilon_below([(laws[0], 1)], 0.1) <= math.log((0.75 - 0.1) / 0.25)
    x = np.exp(grid.losses)
    profile = np.maximum.reduce([np.zeros_like(x), 0.75 - 0.25 * x, 1 - x])
    values = np.where(grid.losses < 0, profile - 1 + x, profile)
    above = from_points(grid, values)
    assert epsilon_above([(above[0], 1)], 0.1) == pytest.approx(math.log((0.75 - 0.1) / 0.25), rel=1e-9)
    assert epsilon_above([(above[1], 1)], 0.1) == pytest.approx(math.log((0.75 - 0.1) / 0.25), rel=1e-9)


def test_lost_mass_above_delta_is_no_guarantee():
    grid = LossGrid(-3, 3, 0.1)
    laws = from_points(grid, np.full(7, 0.5))
    assert epsilon_above([(laws[0], 1)], 0.1) == math.inf


# The search for epsilon against randomised response, whose composition is a binomial law.

LEVEL = 0.2


def search(steps: int, delta: float, level: float = LEVEL) -> LossSearch:
    """The losses of randomised response, +-`level`, on grids on which they are points."""
    truth = math.exp(level) / (1 + math.exp(level))

    def cells(step: float) -> Cells:
        count = 2 * max(2, math.ceil(level / step))
        below, above = np.zeros(count), np.zeros(count)
        below[0], above[-1] = 1 - truth, truth
        return Cells(-level, 2 * level / count, below, above, 0.0)

    return LossSearch([LossPart(cells, np.array([-level, level]), np.log([1 - truth, truth]), steps)], delta)


def exact_epsilon(steps: int, delta: float) -> float:
    """The zero of sum_k Bin(k) (1 - e^(epsilon - (2 k - steps) LEVEL))_+ - delta."""
    truth, k = math.exp(LEVEL) / (1 + math.exp(LEVEL)), np.arange(steps + 1)
    masses, losses = binom.pmf(k, steps, truth), (2 * k - steps) * LEVEL
    return brentq(lambda e: masses @ -np.expm1(np.minimum(0, e - losses)) / delta - 1, 0, steps * LEVEL, xtol=1e-13)


@pytest.mark.parametrize(("steps", "delta"), [(10, 1e-2), (10, 1e-5), (40, 1e-5), (100, 1e-9), (100, 1e-12)])
def test_the_interval_holds_the_binomial(steps, delta):
    lower, upper = search(steps, delta).interval(0.0, both=True)
    exact = exact_epsilon(steps, delta)
    assert lower <= exact * (1 + 1e-9)
    assert exact <= upper * (1 + 1e-9)
    assert upper - lower <= 1e-3 * upper


def test_what_is_known_to_be_larger_is_returned_at_once():
    assert search(10, 1e-5).interval(5.0, both=True) == (0.0, 5.0)
    assert search(10, 0.9).interval(0.0, both=True) == (0.0, 0.0)


@pytest.mark.parametrize(("steps", "delta"), [(10, 1e-2), (400, 1e-5), (2000, 1e-9)])
def test_sums_about_an_epsilon_are_sharp_there(steps, delta):
    """Also those that deviate by more than 1, here by 4 and 9."""
    epsilon = exact_epsilon(steps, delta)
    above, below = search(steps, delta).sum_above(epsilon), search(steps, delta).sum_below(epsilon)
    assert math.log(delta) - 1e-4 < below.log_delta_below(epsilon) <= math.log(delta) + 1e-9
    assert math.log(delta) - 1e-9 <= above.log_delta_above(epsilon) < math.log(delta) + 1e-4


@pytest.mark.parametrize(("level", "delta"), [(1e-22, 1e-20), (1e-50, 1e-15)])
def test_next_to_no_loss_costs_no_more_than_the_sum_of_the_largest_losses(level, delta):
    lower, upper = search(10, delta, level).interval(0.0, both=True)
    assert lower <= upper <= 10 * level * (1 + 1e-4)


@pytest.mark.parametrize(("mu", "steps", "delta"), [(1e-4, 100, 1e-5), (1e-5, 1, 1e-7), (1e-3, 50, 1e-8)])
def test_a_tiny_epsilon_is_as_exact_as_a_large_one(mu, steps, delta):
    """Gaussian steps under so much noise that their losses deviate by 1e-5 to 1e-2, against the closed form."""
    lower, upper = LossSearch([Step(mu, 1.0, "remove").part(steps, delta)], delta).interval(0.0, both=True)
    exact = float(gaussian_dp.epsilon(delta, mu * math.sqrt(steps)))
    assert exact * (1 - 4 * composition.TOLERANCE) <= lower <= exact <= upper <= exact * (1 + 2 * composition.TOLERANCE)


@pytest.mark.parametrize(("steps", "epsilon"), [(10, 1.5), (40, 4.0), (100, 1.99), (100, 19.9), (100, 25.0)])
def test_the_bound_by_tilts_is_above_the_binomial_and_the_least_of_all_doublings(steps, epsilon):
    """Chernoff's bound of ln delta, convex in the tilt: the doublings that come after its turn are not looked at."""
    truth = math.exp(LEVEL) / (1 + math.exp(LEVEL))
    masses, losses = binom.pmf(np.arange(steps + 1), steps, truth), (2 * np.arange(steps + 1) - steps) * LEVEL
    exact = float(masses @ np.maximum(0, -np.expm1(epsilon - losses)))
    top = losses[-1]
    bounds = [np.log(masses @ np.exp(2.0**k * (losses - top))) + 2.0**k * (top - epsilon) for k in range(12)]
    found = search(steps, 1e-5)._chernoff(epsilon)
    assert (exact == 0 or found > math.log(exact)) and found <= min(bounds) + 1e-9
    assert epsilon > top or found == pytest.approx(min(bounds), rel=1e-9)


@pytest.mark.parametrize("tilt", [0.0, 1.0])
def test_a_profile_has_the_bounds_of_delta_at_every_loss(tilt):
    law = composition.pessimistic(regrid(GridLaw(-2.5, 0.5, binom.pmf(np.arange(11), 10, 0.6)), 0.5))
    sums = Composition([(law, 7)], tilt)
    found = sums.profile()
    assert found.growths[0] == 1 and np.all(np.diff(found.growths) > 0)
    for at in (0, 1, 2, 5, 12, 20):
        epsilon = math.log(found.growths[at])
        assert found.above[at] == pytest.approx(min(math.exp(sums.log_delta_above(epsilon)), 1), rel=1e-9, abs=1e-11)
        assert found.below[at] == pytest.approx(math.exp(sums.log_delta_below(epsilon)), rel=1e-9, abs=1e-11)
    assert np.all(found.below <= found.above) and found.below[-1] == 0


# Sums of so many steps that few frequencies are left: against sums over all places, and a transform of all.

LAWS = {
    "smooth": GridLaw(-0.5, 0.01, binom.pmf(np.arange(101), 100, 0.5)),
    "skewed": GridLaw(-0.02, 0.01, np.append([0.7, 0.25, 0.04], 0.01 * binom.pmf(np.arange(40), 39, 0.3))),
    "every other place": GridLaw(-0.5, 0.01, np.insert(binom.pmf(np.arange(50), 49, 0.5), range(1, 50), 0.0)),
    "far atom": GridLaw(0.0, 0.01, np.append([0.5, 0.4995], np.append(np.zeros(60), 0.0005))),
}


@pytest.mark.parametrize(("tilt", "places"), [(0.5, 1 << 22), (20.0, 1 << 22), (1.0, 2000), (2.0, 2000)])
@pytest.mark.parametrize("law", LAWS.values(), ids=list(LAWS))
def test_a_gain_by_frequencies_is_that_of_all_places(law, tilt, places, monkeypatch):
    """Also where the places do not reach from end to end, so that sums wrap around."""
    monkeypatch.setattr(composition, "MOST_PLACES", places)
    sums = Composition([(law, 40_000)], tilt)
    monkeypatch.setattr(composition, "_FEWER", 1)
    monkeypatch.setattr(composition, "_FALLEN", 5.0)
    reach = sums._size * sums.step
    epsilons = [sums.bottom + share * reach for share in (-0.01, 0.0, 0.3001, 0.45, 0.5)]
    few = [sums._gain(epsilon) for epsilon in epsilons]
    assert "masses" not in vars(sums)
    monkeypatch.setattr(composition, "_FEWER", math.inf)
    monkeypatch.setattr(composition, "_FAR", 1e9)
    for (gain, rounding), (known, allowed) in zip(few, map(sums._gain, epsilons), strict=True):
        assert gain == pytest.approx(known, rel=1e-11, abs=1e-4 * allowed)
        assert rounding == pytest.approx(allowed, rel=1e-3)


@pytest.mark.parametrize("tilt", [0.0, 1e-12, 1e-9, 1e-6, 1e-3])
def test_a_sum_keeps_its_digits_under_hardly_any_tilt(tilt):
    """The sum of the smooth losses is a binomial one."""
    sums, k = Composition([(LAWS["smooth"], 4000)], tilt), np.arange(190_000, 210_001)  # 30 deviations
    for epsilon in (0.0, 5.0, 10.0):
        exact = math.log(profile(0.01 * k - 2000, binom.pmf(k, 400_000, 0.5), np.array([epsilon]))[0])
        lower, upper = sums.log_delta_below(epsilon), sums.log_delta_above(epsilon)
        assert lower <= exact <= upper < lower + 1e-6


@pytest.mark.parametrize("steps", [200, 10**4, 10**8])
@pytest.mark.parametrize("law", LAWS.values(), ids=list(LAWS))
def test_no_frequency_that_is_left_is_left_out(law, steps):
    """The lowest frequencies that are looked at hold all whose power is not next to nothing, by a transform of all."""
    masses, size = law.masses, 1 << 15
    tilted = composition._Tilted(masses, 0.0, 3, steps)
    known = np.abs(np.fft.rfft(masses, size))
    left = np.flatnonzero(known > math.exp(composition._CUT_OFF / steps))
    looked_at = composition._left(tilted, size)
    assert left[-1] < looked_at
    kept, values, _ = composition._spectrum([tilted], size)
    assert kept.tolist() == left.tolist()
    assert np.abs(values) == pytest.approx(known[left] ** steps, rel=1e-13 * steps)


def test_few_frequencies_are_looked_at_where_no_others_are_left():
    found = {
        name: composition._left(composition._Tilted(law.masses, 0.0, 0, 10**6), 1 << 20) for name, law in LAWS.items()
    }
    assert found["smooth"] < 2000 and found["every other place"] == (1 << 19) + 1


def test_rare_losses_are_trimmed_to_the_safe_side():
    """The profile of the trimmed law: above that of the whole where it is pessimistic, below it where it is not."""
    losses = np.arange(-40, 41) * 0.25
    masses = np.exp(-(losses**2)) + 1e-15 * (np.abs(losses) > 7)
    law = GridLaw(-10.0, 0.25, masses / masses.sum())
    delta = lambda law, e: law.lost + law.masses @ np.maximum(0, -np.expm1(e - law.losses))  # noqa: E731
    for above, sign in ((True, 1), (False, -1)):
        ((kept, count),) = composition._trimmed([(law, 3)], 1e-12, pessimistic=above)
        assert count == 3 and kept.masses.size < law.masses.size
        if not above:
            kept = GridLaw(kept.origin, kept.step, kept.masses)  # what is lost counts above only
        for epsilon in (-9.0, -3.0, 0.0, 1.0, 5.0):
            assert sign * (delta(kept, epsilon) - delta(law, epsilon)) >= -1e-16
            assert delta(kept, epsilon) == pytest.approx(delta(law, epsilon), abs=1e-11)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_the_largest_lower_bound_is_that_of_each_law_alone(order, monkeypatch):
    """In any order of the laws; one that does not reach the best so far is looked at once."""
    laws = [pair_laws(shift, np.array([0.9, 0.1]), (2, 0), 100, 1e-5)[0] for shift in (0.3, 0.5, 0.7)]
    alone = [epsilon_below([(law, 100)], 1e-5) for law in laws]
    assert alone == sorted(alone) and alone[0] > 0
    looks, right = [], Composition.log_delta_below
    monkeypatch.setattr(Composition, "log_delta_below", lambda sums, e: looks.append(e) or right(sums, e))
    assert largest_below([laws[at] for at in order], 100, 1e-5) == alone[2]
    later = 2 - order.index(2)
    assert looks[len(looks) - later :] == [alone[2]] * later
