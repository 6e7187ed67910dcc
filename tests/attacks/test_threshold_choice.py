"""A test is chosen by design alone, and right claims are refuted no oftener than stated."""

import numpy as np
import pytest

from dpfl.accounting import gaussian_dp
from dpfl.accounting.samplers import Sampling
from dpfl.attacks.lower_bounds import StepLaw, TestErrors, simulate, statistics, strongest_test, total

LAW = StepLaw.of(Sampling.POISSON, 1.0, (1.0, 0.0), 1.0)
DELTAS = np.array([1e-3, 0.01, 0.1])


def worlds(trials, seed, law=LAW):
    """Observations of two full-batch steps in both worlds."""
    return tuple(simulate(law, (trials, 1, 2), world=world, seed=seed) for world in (0, 1))


def claims(mu):
    """What a mu-GDP mechanism guarantees."""
    return tuple(zip(gaussian_dp.epsilon(DELTAS, mu).tolist(), DELTAS.tolist(), strict=True))


@pytest.mark.slow
def test_right_claims_are_refuted_no_oftener_than_stated_whatever_is_tried():
    # 80 attacks at 90 %, each with seven statistics: more than 20 refutations have probability below 1e-4.
    tried, right = statistics(LAW), claims(np.sqrt(2))
    found = [strongest_test(worlds(100, 2 * s), worlds(100, 2 * s + 1), tried, right, 0.9).excess for s in range(80)]
    assert (np.array(found) > 0).sum() <= 20


def test_a_claim_of_too_little_is_refuted_and_the_errors_are_those_of_the_test():
    seen = worlds(2000, 8)
    evidence = strongest_test(worlds(2000, 7), seen, {"total": total}, claims(0.7), 0.999)
    assert evidence.excess > 0 and evidence.statistic == "total"
    here, there = (total(each) for each in seen)
    if evidence.reversed:
        counts = (there <= evidence.threshold).sum(), (here <= evidence.threshold).sum()
    else:
        counts = (here >= evidence.threshold).sum(), (there >= evidence.threshold).sum()
    assert evidence.errors == TestErrors(int(counts[0]), 2000, int(counts[1]), 2000)


def test_both_orders_of_the_worlds_are_tried():
    # World Q alone has a rare, large value: only the test that calls Q sees it.
    here, there = np.zeros((400, 1, 1)), np.where(np.arange(400) % 4, 0.0, -9.0)[:, None, None]
    evidence = strongest_test((here, there), (here, there), {"total": total}, ((0.0, 0.0),), 0.95)
    assert evidence.reversed and evidence.errors.true_positives == 100 and evidence.errors.false_positives == 0
    assert evidence.excess > 2


@pytest.mark.parametrize("which", [0, 1])
def test_what_is_not_finite_is_named(which):
    good, bad = worlds(5, 0), (np.full((5, 1, 2), np.nan), np.zeros((5, 1, 2)))
    pairs = (bad, good) if which == 0 else (good, bad)
    with pytest.raises(ValueError, match=("design", "evaluation")[which]):
        strongest_test(*pairs, {"total": total}, ((0.0, 0.0),), 0.95)
