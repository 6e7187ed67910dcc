"""Complete DP-SGD runs: segments, adversaries, closed forms, and what batches of fixed size really spend."""

from collections import Counter
from itertools import combinations, product

import mpmath as mp
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting import NeighboringRelation as Relation
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.privacy_loss_distribution import (
    from_gaussian_mechanism,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import norm

from dpfl.accounting import FixedBatches, gaussian_dp, guarantee
from dpfl.accounting.tradeoff import (
    Adversary,
    amplified_epsilon,
    arsinh_delta,
    arsinh_guarantee,
    clt_mu,
    dpsgd,
    dpsgd_guarantee,
    h_bar_mu,
    h_mu,
    last_epoch_mu,
    poisson_add_delta,
    poisson_clt_mu,
    poisson_guarantee,
    revealed,
    shuffled_mu,
    subsample,
    subsampled_delta,
    sufficient_sigma,
)
from dpfl.accounting.tradeoff.curves import ARSINH_SHARE, Segment, segments_epsilon, segments_sigma
from dpfl.provenance.audit.inverted_composition import InvertedComposition, sampled_gaussian

# Segments against runs of one noise, against dp_accounting's own composition, and against closed forms.

DELTA = 1e-5


@pytest.mark.parametrize(("n", "m", "epochs", "sigma"), [(6000, 250, 20, 1.6), (360, 36, 5, 0.8), (600, 60, 3, 8.0)])
def test_one_segment_is_the_run_that_the_fine_grid_knows(n, m, epochs, sigma):
    fine = float(dpsgd_guarantee(n=n, m=m, epochs=epochs, sigma=sigma, adversary="A0").epsilon(DELTA))
    own = segments_epsilon([Segment(epochs * n // m, sigma, m / n)], DELTA)
    assert fine * (1 - 1e-4) <= own <= fine * (1 + 2e-3)


@pytest.mark.parametrize(("sigma", "p", "rounds"), [(4.0, 0.001, 300), (10.0, 0.001, 5000), (10.0, 0.02, 10)])
def test_rounds_that_lose_nearly_nothing_keep_their_digits(sigma, p, rounds):
    """Held against the audit's inversion of the loss's moment generating function, which knows no grid."""
    exact = InvertedComposition(((sampled_gaussian(np.array([1 / sigma]), np.array([p])), rounds),), DELTA).epsilon()
    assert exact < segments_epsilon([Segment(rounds, sigma, p)], DELTA) < exact * (1 + 2e-3)


def test_cutting_a_run_into_segments_changes_nothing():
    whole = segments_epsilon([Segment(60, 1.5, 0.1)], DELTA)
    assert segments_epsilon([Segment(20, 1.5, 0.1), Segment(40, 1.5, 0.1)], DELTA) == pytest.approx(whole, rel=1e-4)


def test_full_batches_compose_by_the_root_of_the_sum_of_squares():
    mu = gaussian_dp.compose([0.5, *[0.25] * 8])
    own = segments_epsilon([Segment(1, 2.0, 1.0), Segment(8, 4.0, 1.0)], DELTA)
    assert own == pytest.approx(float(gaussian_dp.epsilon(DELTA, mu)), rel=1e-4)


@pytest.mark.slow
def test_segments_lie_between_poisson_batches_and_their_replacement():
    """C_p covers removing from Poisson batches, and replacing in them (twice the sensitivity) spends no less."""
    parts = [(40, 1.0), (20, 0.6)]
    own = segments_epsilon([Segment(rounds, sigma, 0.1) for rounds, sigma in parts], DELTA)

    def poisson(relation):
        losses = [
            from_gaussian_mechanism(sigma, sampling_prob=0.1, neighboring_relation=relation).self_compose(rounds)
            for rounds, sigma in parts
        ]
        return losses[0].compose(losses[1]).get_epsilon_for_delta(DELTA)

    assert poisson(Relation.ADD_OR_REMOVE_ONE) * (1 - 1e-3) <= own <= poisson(Relation.REPLACE_ONE)


@pytest.mark.slow
def test_arsinh_rounds_are_those_of_the_exact_guarantee():
    exact = float(arsinh_guarantee(scale=4.0, sigma=2.0, p=0.2, rounds=20).epsilon(DELTA))
    assert segments_epsilon([Segment(20, 2.0, 0.2, arsinh_scale=2.0)], DELTA) == pytest.approx(exact, rel=2e-3)


@pytest.mark.filterwarnings("error")
def test_little_arsinh_noise_composes_without_a_warning():
    one, ten = (segments_epsilon([Segment(rounds, 0.5, 0.1, arsinh_scale=1.0)], DELTA) for rounds in (1, 10))
    exact = brentq(
        lambda e: 0.1 * arsinh_delta(amplified_epsilon(e, 0.1), scale=0.5, sigma=0.5) - DELTA, 0, 690, xtol=1e-9
    )
    assert one == pytest.approx(exact, rel=1e-3)
    assert one < ten


@pytest.mark.parametrize("target", [0.5, 4.0])
def test_calibration_meets_the_target_from_below(target):
    sigma = segments_sigma(lambda sigma: [Segment(50, sigma, 0.1), Segment(10, sigma / 2, 0.1)], target, DELTA)
    spent = segments_epsilon([Segment(50, sigma, 0.1), Segment(10, sigma / 2, 0.1)], DELTA)
    assert target * (1 - 1e-3) <= spent <= target


def test_arguments_out_of_range_are_named():
    with pytest.raises(ValueError, match="sigma"):
        segments_epsilon([Segment(1, -1.0, 0.1)], DELTA)
    with pytest.raises(ValueError, match="target_epsilon"):
        segments_sigma(lambda sigma: [Segment(10**4, sigma, 1.0)], 1e-3, DELTA)


def test_more_noise_spends_less():
    spent = [segments_epsilon([Segment(30, sigma, 0.2)], DELTA) for sigma in (0.7, 1.0, 2.0, 5.0)]
    assert np.all(np.diff(spent) < 0)


@pytest.mark.parametrize(
    ("segment", "delta", "said"),
    [
        (Segment(10, 2.0, 0.1), 1e-11, "delta must be at least 1e-10, got 1e-11"),
        (Segment(10, 2.0, 0.1, arsinh_scale=0.9), 1e-5, "arsinh_scale must be at least 1, got 0.9"),
        (Segment(1, 3.0, 0.01, arsinh_scale=1.0), 1e-3, "delta with arsinh noise must be at most 0.0001.*, got 0.001"),
    ],
)
def test_what_no_case_covers_is_refused(segment, delta, said):
    with pytest.raises(ValueError, match=f"^{said}$"):
        segments_epsilon([Segment(5, 3.0, 0.1), segment], delta)
    assert segments_epsilon([Segment(1, 3.0, 0.01, arsinh_scale=1.0)], 1e-4) > 0
    assert segments_epsilon([Segment(5, 3.0, 0.1)], 2e-3) > 0


@pytest.mark.parametrize(("sigma", "scale"), [(1.0, 2.0), (3.0, 1.0), (20.0, 1.0)])
def test_a_move_over_many_axes_spends_less_up_to_the_delta_that_is_allowed(sigma, scale):
    """And more at half of the total variation, which is why a larger share is refused."""
    whole, spread = (
        arsinh_guarantee(scale=scale * sigma, sigma=sigma, rounds=axes, shift=axes**-0.5) for axes in (1, 64)
    )
    variation = whole.delta(0.0)
    for share in (ARSINH_SHARE, ARSINH_SHARE / 10, ARSINH_SHARE / 1000):
        own = segments_epsilon([Segment(1, sigma, 1.0, arsinh_scale=scale)], 0.99 * share * variation)
        assert spread.epsilon(0.99 * share * variation) < own
    assert spread.epsilon(variation / 2) > whole.epsilon(variation / 2)


def test_many_laws_leave_out_no_more_than_one():
    sigmas = np.linspace(50.0, 70.0, 300)
    own = segments_epsilon([Segment(1, sigma, 1.0) for sigma in sigmas], DELTA)
    exact = float(gaussian_dp.epsilon(DELTA, gaussian_dp.compose(1 / sigmas)))
    assert exact < own < exact * (1 + 1e-3)


def test_the_search_for_sigma_keeps_to_its_range():
    assert segments_sigma(lambda sigma: [Segment(1, sigma, 1e-4)], 1.0, 1e-3) == 0.2
    asked = []

    def run(sigma):
        asked.append(sigma)
        return [Segment(1, sigma, 1.0)]

    with pytest.raises(ValueError, match=r"^target_epsilon 0\.001 is met by no sigma from 0\.2 to 1000\.0$"):
        segments_sigma(run, 1e-3, DELTA)
    assert max(asked) == pytest.approx(1000.0)


# Whole DP-SGD runs: the adversaries against each other, and against accountants that are not ours.

ALPHAS = np.concatenate([[0.0, 1e-6], np.linspace(0.005, 0.995, 100), [1 - 1e-6, 1.0]])
RUN = dict(n=6000, m=250, epochs=20, sigma=1.6)


@pytest.mark.parametrize("adversary", list(Adversary))
def test_every_adversary_gives_a_tradeoff_curve(adversary):
    beta = dpsgd(ALPHAS, **RUN, adversary=adversary)
    assert np.all(beta >= 0) and np.all(beta <= 1 - ALPHAS) and beta[-1] == 0
    assert np.all(np.diff(beta) <= 1e-15) and np.all(np.diff(np.diff(beta) / np.diff(ALPHAS)) >= -1e-7)
    assert np.array_equal(beta, dpsgd(ALPHAS, **RUN, adversary=adversary.value))


def test_closed_forms_are_gaussian_with_their_mu():
    for adversary, mu in (("h", h_mu(20, 1.6)), ("h_bar", h_bar_mu(20, 1.6)), ("clt", clt_mu(250 / 6000, 480, 1.6))):
        assert np.array_equal(dpsgd(ALPHAS, **RUN, adversary=adversary), gaussian_dp.tradeoff(ALPHAS, mu))


def test_full_batches_are_composed_gaussians_for_both_exact_adversaries():
    run = dict(n=64, m=64, epochs=9, sigma=4.0)
    for adversary in ("A0", "A1"):
        curve = dpsgd(ALPHAS, **run, adversary=adversary)
        assert np.allclose(curve, gaussian_dp.tradeoff(ALPHAS, 0.75), rtol=1e-6, atol=1e-9)


def test_a1_knows_more_than_a0_and_shuffling_lies_between_h_and_h_bar():
    a0, a1, h, h_bar = (dpsgd(ALPHAS, **RUN, adversary=a) for a in ("A0", "A1", "h", "h_bar"))
    middle = gaussian_dp.tradeoff(ALPHAS, shuffled_mu(20, 1.6))
    # a0 is a lower bound, below by what 480 rounds may round.
    assert np.all(a1 <= a0 + 1e-11) and np.all(h <= middle) and np.all(middle <= h_bar)


def test_operator_composed_is_tight_for_its_own_relation_only():
    """C_p composed overstates Poisson batches; A1 overstates both by far. One run, delta = 1e-5, four accountants."""
    delta = 1e-5
    fixed, told = (dpsgd_guarantee(**RUN, adversary=a).epsilon(delta) for a in ("A0", "A1"))
    poisson = poisson_guarantee(n=6000, m=250, epochs=20, noise_multiplier=1.6).epsilon(delta)
    theirs = PLDAccountant().compose(SelfComposedDpEvent(PoissonSampledDpEvent(250 / 6000, GaussianDpEvent(1.6)), 480))
    assert np.isclose(poisson, theirs.get_epsilon(delta), rtol=1e-9)
    assert poisson * 1.1 < fixed < told / 5
    assert np.allclose([fixed, poisson, told], [3.18, 2.75, 17.7], atol=0.05)


@pytest.mark.slow
def test_fixed_batches_cost_about_two_in_noise():
    """The same noise is sigma = multiplier/2 sensitivities for a fixed-size batch: far more is spent."""
    run = dict(n=6000, m=250, epochs=20)
    poisson = poisson_guarantee(**run, noise_multiplier=3.2).epsilon(1e-5)
    assert dpsgd_guarantee(**run, sigma=1.6, adversary="A0").epsilon(1e-5) > 2 * poisson
    assert np.isclose(dpsgd_guarantee(**run, sigma=3.2, adversary="A0").epsilon(1e-5), poisson, rtol=0.2)


@pytest.mark.slow
def test_a0_nears_its_central_limit_as_rounds_grow():
    gaps = []
    for n in (400, 8_000):
        epochs = n // 400  # m sqrt(T)/n stays
        run = dict(n=n, m=20, epochs=epochs, sigma=1.0)
        gaps.append(np.max(np.abs(dpsgd(ALPHAS, **run, adversary="A0") - dpsgd(ALPHAS, **run, adversary="clt"))))
    assert gaps[1] < gaps[0] / 3


def test_one_round_of_one_epoch_is_the_operator_for_a0():
    run = dict(n=10, m=10, epochs=1, sigma=1.3)
    assert np.allclose(dpsgd(ALPHAS, **run, adversary="A0"), subsample(1.0, 1 / 1.3, ALPHAS), rtol=1e-6, atol=1e-9)


def test_groups_reach_the_mixture_and_the_closed_forms():
    run = dict(n=100, m=10, epochs=5, sigma=3.0)
    mixture = revealed(n=100, m=10, rounds=50, sigma=3.0, group_size=4)
    assert dpsgd_guarantee(**run, adversary="A1", group_size=4).delta(1.0) == mixture.delta(1.0)
    assert dpsgd_guarantee(**run, adversary="h", group_size=4).delta(1.0) == gaussian_dp.delta(1.0, h_mu(20, 3.0))


@pytest.mark.parametrize("adversary", ["A0", "clt"])
def test_groups_are_refused_where_they_have_no_closed_answer(adversary):
    with pytest.raises(ValueError, match=r"^group_size "):
        dpsgd_guarantee(**RUN, adversary=adversary, group_size=2)


def test_the_composed_adversary_refuses_a_delta_that_rounding_may_hide():
    run = {"n": 100, "m": 10, "epochs": 2, "sigma": 2.0}
    assert dpsgd_guarantee(**run, adversary="A0").epsilon(1e-10) > dpsgd_guarantee(**run, adversary="A0").epsilon(1e-9)
    with pytest.raises(ValueError, match=r"^delta must be at least 1e-10, got 1e-11$"):
        dpsgd_guarantee(**run, adversary="A0").epsilon([1e-5, 1e-11])
    assert dpsgd_guarantee(**run, adversary="A1").epsilon(1e-11) > 0


def delta_of_the_largest_step(epsilon, p, sigma, rounds):
    """The delta of the best event "some round's outcome exceeds c": a floor of C_p's, in closed form."""
    c = np.linspace(0, 15, 3001)
    without, with_record = norm.sf(c), p * norm.sf(c - 1 / sigma) + (1 - p) * norm.sf(c)
    seen, unseen = (-np.expm1(rounds * np.log1p(-tail)) for tail in (with_record, without))
    return np.max(seen - np.exp(epsilon) * unseen)


def test_very_many_rounds_hide_no_loss_behind_rounding():
    """Once 0.732 was stated at 1e-9 for ten million rounds; the certified composition knows 0.932 to 0.953."""
    run = dpsgd_guarantee(n=10**6, m=1, epochs=10, sigma=0.5, adversary="A0")
    floor = delta_of_the_largest_step(0.732, 1e-6, 0.5, 10**7)
    assert 3e-9 < floor <= run.delta(0.732) < 1e-5
    assert run.tradeoff(0.0) <= 1 - floor
    with pytest.raises(ValueError, match=r"^delta must be at least 1\.\de-05, got 1e-09$"):
        run.epsilon(1e-9)
    with pytest.raises(ValueError, match=r"^delta must be at least 1\.\de-05, got 1e-09$"):
        segments_epsilon([Segment(10**7, 0.5, 1e-6)], 1e-9)


@pytest.mark.parametrize(("sigma", "p", "delta"), [(0.05, 1e-8, 0.01), (0.03, 1e-6, 0.3), (1e3, 1e-9, 0.5)])
def test_a_record_that_is_hardly_ever_drawn_loses_nothing(sigma, p, delta):
    assert segments_epsilon([Segment(1, sigma, p)], delta) < 1e-6


@pytest.mark.parametrize(("rounds", "p", "sigma", "delta"), [(10**6, 1e-5, 0.5, 1e-6), (10**5, 1e-3, 1.0, 1e-7)])
def test_many_rounds_stay_above_the_certified_composition(rounds, p, sigma, delta):
    n = round(1 / p)
    batches = FixedBatches(1, n)
    certified = guarantee(batches, noise_multiplier=2 * sigma, steps=rounds, delta=delta, neighbouring="replace_one")
    own = dpsgd_guarantee(n=n, m=1, epochs=rounds // n, sigma=sigma, adversary="A0").epsilon(delta)
    for spent in (own, segments_epsilon([Segment(rounds, sigma, p)], delta)):
        assert certified.upper * (1 - 1e-4) < spent < 1.07 * certified.upper


# Closed forms for mu against 50-digit arithmetic and against the exact runs that they approximate.


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-4, 1), st.integers(1, 10**5), st.floats(0.05, 1e7))
def test_central_limits_against_50_digits(p, rounds, sigma):
    with mp.workdps(60):
        x = 1 / mp.mpf(sigma)
        bracket = mp.exp(x**2) * mp.ncdf(1.5 * x) + 3 * mp.ncdf(-x / 2) - 2
        fixed = mp.sqrt(2 * rounds * bracket) * p
        poisson = p * mp.sqrt(rounds * mp.expm1(x**2))
    assert abs(clt_mu(p, rounds, sigma) - fixed) <= 1e-11 * fixed
    assert abs(poisson_clt_mu(p, rounds, sigma) - poisson) <= 1e-12 * poisson


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 1000), st.floats(0.1, 50), st.integers(1, 16))
def test_h_and_h_bar_embrace_the_epochs(epochs, sigma, g):
    middle, total = shuffled_mu(epochs, sigma, g), g * epochs
    assert h_bar_mu(epochs, sigma, g) < middle < h_mu(epochs, sigma, g)
    assert np.isclose(h_mu(epochs, sigma, g), np.sqrt((1 + 1 / np.sqrt(2 * total)) * total) / sigma, rtol=1e-13)
    assert np.isclose(h_bar_mu(epochs, sigma, g), np.sqrt((1 - 1 / np.sqrt(2 * total)) * total) / sigma, rtol=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 1000), st.floats(0.1, 50), st.integers(1, 16))
def test_last_epoch_composes_and_costs_a_factor_root_two(epochs, sigma, g):
    parts = np.append(np.full(epochs - 1, 1 / sigma), np.sqrt(epochs + 1) / sigma)
    mu = last_epoch_mu(epochs, sigma, group_size=g)
    assert np.isclose(mu, np.sqrt(g) * gaussian_dp.compose(parts), rtol=1e-12)
    assert np.isclose(mu, np.sqrt(2) * shuffled_mu(epochs, sigma, g), rtol=1e-12)
    assert np.isclose(last_epoch_mu(epochs, sigma, sigma, g), shuffled_mu(epochs, sigma, g), rtol=1e-12)


def test_sufficient_sigma_is_enough_up_to_the_rounds_it_asks_for():
    """T = epsilon (N/m)^2/2 subsampled rounds by the central limit; one full batch, T > epsilon/2, needs more."""
    epsilons, deltas, p = np.array([0.1, 1.0, 5.0])[:, None], np.array([1e-9, 1e-5, 1e-2]), 1e-3
    sigma = sufficient_sigma(epsilons, deltas)
    assert np.all(gaussian_dp.delta(epsilons, clt_mu(p, np.rint(epsilons / (2 * p**2)), sigma)) <= deltas)
    assert gaussian_dp.delta(0.1, 1 / sufficient_sigma(0.1, 1e-5)) > 1e-3


def test_extremes_are_finite_or_infinite_but_never_nan():
    assert clt_mu(0.1, 10, 0.01) == np.inf and clt_mu(0.0, 10, 0.01) == 0
    assert poisson_clt_mu(0.1, 10, 1e-3) == np.inf and poisson_clt_mu(0.0, 10, 1e-3) == 0
    assert clt_mu([0.1, 0.2], 10, [[1.0], [2.0]]).shape == (2, 2)


# One round of fixed-size batches, one record replaced: what each data set really spends, by listing every batch. m of n
# records without replacement, gradients in [-1/2, 1/2], so that a replaced record moves the sum by at most 1, and noise
# of deviation sigma on the sum.

Sums = dict[float, float]
"""A round's sum without noise: how likely is each value."""


def literal_sums(gradients: list[float], m: int) -> Sums:
    """The sum over m records, by listing every batch."""
    batches = Counter(sum(batch) for batch in combinations(gradients, m))
    return {value: count / batches.total() for value, count in batches.items()}


def log_masses(law: Sums, sigma: float, edges: np.ndarray) -> np.ndarray:
    """Logarithms of the masses of sum + noise between the edges; the two ends reach to infinity."""
    away = (np.concatenate([[-np.inf], edges, [np.inf]]) - np.array(list(law))[:, None]) / sigma
    # Of the two tails the smaller one keeps its digits.
    mass = np.where(away[:, :-1] > 0, -np.diff(norm.sf(away)), np.diff(norm.cdf(away)))
    with np.errstate(divide="ignore"):
        return logsumexp(np.log(mass), b=np.array(list(law.values()))[:, None], axis=0)


@pytest.mark.parametrize(("n", "m", "sigma"), [(5, 2, 0.7), (6, 1, 1.6), (4, 3, 1.0)])
def test_one_round_of_the_worst_data_set_is_a_poisson_batch_and_meets_c_p(n, m, sigma):
    """Over all data sets with gradients in {-1/2, 0, 1/2}, every batch listed: no leak exceeds C_p, and one meets it.

    The worst has every other gradient at the record's replacement: the round is the Poisson pair, both directions.
    """
    edges = np.linspace(-m / 2 - 8 * sigma, m / 2 + 8 * sigma, 6001)
    epsilons = np.array([0.0, 0.5, 1.0, 2.0])[:, None]
    claimed = subsampled_delta(epsilons[:, 0], m / n, 1 / sigma)
    leaks = {}
    for others in product((-0.5, 0.0, 0.5), repeat=n - 1):
        if list(others) != sorted(others):
            continue
        p, q = (np.exp(log_masses(literal_sums([mine, *others], m), sigma, edges)) for mine in (0.5, -0.5))
        leaks[others] = [np.maximum(a - np.exp(epsilons) * b, 0).sum(axis=1) for a, b in ((p, q), (q, p))]
        assert np.all(leaks[others] <= claimed * (1 + 1e-9))
    removed, added = leaks[(-0.5,) * (n - 1)]
    assert np.allclose(removed, claimed, rtol=2e-3, atol=1e-7)
    assert np.allclose(added, poisson_add_delta(epsilons[:, 0], m / n, 1 / sigma), rtol=2e-3, atol=1e-7)
