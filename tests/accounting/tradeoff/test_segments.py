"""Segments against runs of one noise, against dp_accounting's own composition, and against closed forms."""

import numpy as np
import pytest
from dp_accounting import NeighboringRelation as Relation
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from scipy.optimize import brentq

from dpfl.accounting import gaussian_dp
from dpfl.accounting.tradeoff import amplified_epsilon, arsinh_delta, arsinh_guarantee, dpsgd_guarantee
from dpfl.accounting.tradeoff.curves import Segment, segments_epsilon, segments_sigma
from dpfl.provenance.audit.numbers import InvertedComposition, sampled_gaussian

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
        (Segment(10, 2.0, 0.1, arsinh_scale=2.0), 2e-3, "delta with arsinh noise must be at most 0.001, got 0.002"),
    ],
)
def test_what_no_case_covers_is_refused(segment, delta, said):
    with pytest.raises(ValueError, match=f"^{said}$"):
        segments_epsilon([Segment(5, 3.0, 0.1), segment], delta)
    assert segments_epsilon([Segment(5, 3.0, 0.1, arsinh_scale=1.0)], 1e-3) > 0
    assert segments_epsilon([Segment(5, 3.0, 0.1)], 2e-3) > 0
