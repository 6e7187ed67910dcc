"""Geometric sums against mpmath from a factor of 0 to one that rounds to 1."""

import mpmath as mp
import numpy as np
import pytest

from dpfl.accounting.contraction.kernels import double_geometric, geometric

GAPS = ["1", "0.999", "0.5", "1e-3", "1.1e-7", "1e-9", "1e-17", "1e-200", "0"]


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("terms", [1, 2, 10, 1000, 10**6, 10**12])
def test_agrees_with_mpmath(gap, terms):
    with mp.workdps(700):
        exact_gap = mp.mpf(float(gap))
        factor = 1 - exact_gap
        log_factor = float(mp.log(factor)) if factor else -np.inf
        if exact_gap:
            single = (1 - factor**terms) / exact_gap
            double = (terms - factor * single) / exact_gap
        else:
            single, double = mp.mpf(terms), mp.mpf(terms) * (terms + 1) / 2
    arguments = np.float64(log_factor), np.float64(gap), np.float64(terms)
    assert float(geometric(*arguments)) == pytest.approx(float(single), rel=1e-12)
    assert float(double_geometric(*arguments)) == pytest.approx(float(double), rel=1e-11)


def test_no_terms_sum_to_nothing():
    log_factor, gap = np.log([0.5, 0.9]), np.array([0.5, 0.1])
    np.testing.assert_array_equal(geometric(log_factor, gap, np.float64(0)), 0.0)
    np.testing.assert_array_equal(double_geometric(log_factor, gap, np.float64(0)), 0.0)
    assert geometric(np.float64(-np.inf), np.float64(1.0), np.float64(0.0)) == 0.0
