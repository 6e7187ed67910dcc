"""The search for epsilon against randomised response, whose composition is a binomial law."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom

from dpfl.accounting.composition import Cells, LossPart, LossSearch

LEVEL = 0.2


def search(steps: int, delta: float) -> LossSearch:
    """The losses of randomised response, +-LEVEL, on grids on which they are points."""
    truth = math.exp(LEVEL) / (1 + math.exp(LEVEL))

    def cells(step: float) -> Cells:
        count = 2 * max(2, math.ceil(LEVEL / step))
        below, above = np.zeros(count), np.zeros(count)
        below[0], above[-1] = 1 - truth, truth
        return Cells(-LEVEL, 2 * LEVEL / count, below, above, 0.0)

    return LossSearch([LossPart(cells, np.array([-LEVEL, LEVEL]), np.log([1 - truth, truth]), steps)], delta)


def exact_epsilon(steps: int, delta: float) -> float:
    """The zero of sum_k Bin(k) (1 - e^(epsilon - (2 k - steps) LEVEL))_+ - delta."""
    truth, k = math.exp(LEVEL) / (1 + math.exp(LEVEL)), np.arange(steps + 1)
    masses, losses = binom.pmf(k, steps, truth), (2 * k - steps) * LEVEL
    return brentq(lambda e: masses @ np.maximum(0, -np.expm1(e - losses)) / delta - 1, 0, steps * LEVEL, xtol=1e-13)


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
