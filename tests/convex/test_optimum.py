import numpy as np
import pytest
from scipy.optimize import minimize

from dpfl.convex.problems import TOLERANCE, Logistic, Square, gradients, minimum, risk

RNG = np.random.default_rng(5)
X = RNG.normal(size=(80, 4)) / 4
Y = np.sign(X @ np.array([3.0, -2.0, 0.5, 0.0]) + 0.3 * RNG.normal(size=80))


def test_least_squares_in_closed_form():
    targets = X @ np.arange(4.0) + 0.1
    exact = np.linalg.solve(X.T @ X / 80 + 0.2 * np.eye(4), X.T @ targets / 80)
    np.testing.assert_allclose(minimum(Square(), X, targets, regularisation=0.2, radius=9.0), exact, atol=1e-9)


def test_the_gradient_vanishes_inside_the_ball():
    best = minimum(Logistic(), X, Y, regularisation=0.05, radius=100.0)
    gradient = gradients(Logistic(), best[:, None], X, Y)[:, 0] + 0.05 * best
    assert np.sum(gradient**2) / (2 * 0.05) < TOLERANCE


def test_on_the_boundary_nothing_in_the_ball_is_better():
    radius = 0.5
    best = minimum(Logistic(), X, Y, regularisation=0.01, radius=radius)
    assert np.linalg.norm(best) == pytest.approx(radius, rel=1e-12)
    least = risk(Logistic(), best[:, None], X, Y, 0.01)[0]
    other = minimize(
        lambda w: risk(Logistic(), w[:, None], X, Y, 0.01)[0],
        np.zeros(4),
        constraints={"type": "ineq", "fun": lambda w: radius**2 - w @ w},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    assert least <= other.fun + TOLERANCE
    directions = RNG.normal(size=(4, 5000))
    inside = radius * directions / np.linalg.norm(directions, axis=0) * RNG.random(5000) ** 0.25
    assert (risk(Logistic(), inside, X, Y, 0.01) >= least).all()


@pytest.mark.parametrize("bad", [{"regularisation": 0.0}, {"radius": -1.0}])
def test_bad_arguments_are_named(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        minimum(Logistic(), X, Y, **{"regularisation": 0.1, "radius": 1.0} | bad)
