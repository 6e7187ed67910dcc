"""The convergence bounds of asoodeh2021 against simulated runs of its algorithm."""

from __future__ import annotations

import numpy as np
import pytest

from dpfl.accounting.contraction import (
    average_iterate_rate,
    average_iterate_rate_as_printed,
    last_iterate_rate,
    last_iterate_rate_as_printed,
)


def test_noise_term_grows_with_the_dimension():
    """F(w) = |w|^2/2 on the unit ball, m = 1, sigma = 1, d = 100, T = 4000; 100 runs; relative error of the mean 1.4 %.

    The printed bound (8e-4 + noise of one coordinate) is passed 12-fold, the one with d holds. False-alarm rate nil:
    each margin is over 50 standard errors.
    """
    rounds, dimension, runs = 4000, 100, 100
    rng = np.random.default_rng(0)
    model = np.zeros((runs, dimension))
    for t in range(1, rounds + 1):
        model -= (model + rng.standard_normal(model.shape)) / t
        model /= np.maximum(1.0, np.linalg.norm(model, axis=1, keepdims=True))
    excess = 0.5 * (model**2).sum(axis=1).mean()
    assert excess == pytest.approx(dimension / (2 * rounds), rel=0.1)  # the noise's share, exactly d sigma^2/(2 T)
    case = {"n": rounds, "m": 1, "sigma": 1.0, "smoothness": 1.0, "strong_convexity": 1.0}
    case |= {"gradient_bound": 1.0, "gradient_variance": 0.0}
    assert excess > 10 * last_iterate_rate_as_printed(**case)
    assert excess < last_iterate_rate(dimension=dimension, **case)


def test_last_iterate_rate_in_numbers():
    case = {
        "n": 100,
        "m": 10,
        "smoothness": 2.0,
        "strong_convexity": 0.5,
        "gradient_bound": 3.0,
        "gradient_variance": 4.0,
    }
    # 2 beta (D^2 + (G^2 + d sigma^2)/m)/(lambda^2 T): 4 (9 + (4 + 7 * 2.25)/10)/(0.25 * 10)
    assert last_iterate_rate(sigma=1.5, dimension=7, **case) == pytest.approx(4 * (9 + 19.75 / 10) / 2.5, rel=1e-14)
    one = last_iterate_rate(sigma=1.5, dimension=1, **case)
    assert last_iterate_rate_as_printed(sigma=1.5, **case) == one
    added = last_iterate_rate(sigma=[0.0, 1.0, 2.0], dimension=5, **case)
    assert added[2] - added[0] == pytest.approx(4 * (added[1] - added[0]), rel=1e-12)


def test_average_iterate_rate_in_numbers():
    eta, sigma = np.array([1.0, 0.5]), np.array([2.0, 3.0])
    case = {"n": 10, "m": 5, "eta": eta, "sigma": sigma, "lipschitz": 1.0, "smoothness": 2.0, "radius": 0.5}
    case |= {"gradient_bound": 3.0, "strong_convexity": 0.5, "constant": 2.0}
    optimisation = 2 * 5 * ((1 + 2 * 0.5) ** 2 + 9) * np.log(2) / (0.5 * 10)
    assert average_iterate_rate(dimension=6, **case) == pytest.approx(optimisation + 6 * 8.5 / 10, rel=1e-14)
    assert average_iterate_rate_as_printed(**case) == pytest.approx(optimisation + 8.5 / 10, rel=1e-14)


def test_average_excess_needs_the_dimension_too():
    """Same quadratic, the mean over rounds: noise alone adds about d log(T)/(2 T), past the printed sum of eta sigma^2/n.

    The printed noise term is 9.4/5000 = .002 at T = 5000, the mean excess with d = 100 about .09; optimisation term 0
    because the gradient at the start is 0 and F has no other scale (L = G = 0 at the minimum, beta * radius = 1 left out).
    """
    rounds, dimension = 5000, 100
    t = np.arange(1, rounds + 1)
    # E|w_t|^2 = d/t without the projection: w_t is the mean of t noise vectors
    excess = np.minimum(0.5 * dimension / t, 0.5).mean()
    case = {"n": rounds, "m": 1, "eta": 1 / t, "sigma": 1.0, "lipschitz": 0.0, "smoothness": 0.0, "radius": 1.0}
    case |= {"gradient_bound": 0.0, "strong_convexity": 1.0}
    assert average_iterate_rate_as_printed(**case) < excess < average_iterate_rate(dimension=dimension, **case)


def test_refuses():
    case = {"n": 100, "m": 10, "sigma": 1.0, "smoothness": 2.0, "strong_convexity": 0.5, "gradient_bound": 3.0}
    case |= {"gradient_variance": 4.0, "dimension": 3}
    for change in ({"dimension": 0}, {"dimension": 2.5}, {"sigma": -1.0}, {"m": 101}, {"strong_convexity": 0.0}):
        (named,) = change
        with pytest.raises(ValueError, match=f"^{named} "):
            last_iterate_rate(**{**case, **change})
