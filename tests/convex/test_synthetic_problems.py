"""Synthetic problems: their bounds and laws, the known optimum against independent searches, bad input."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from dpfl.convex import synthetic_problems
from dpfl.convex.synthetic_problems import Kind, Problem

BASE = Problem(Kind.LEAST_SQUARES, clients=4, records=50, features=3, radius=1.0, condition=5.0)
FALSE_ALARM_DEVIATIONS = 6.0
"""Means are held to six standard errors: about 2e-9 a comparison."""


@pytest.mark.parametrize("kind", Kind)
def test_bounds_hold_for_every_record(kind):
    problem = replace(BASE, kind=kind, scale=0.8, spread=0.3 if kind is Kind.LEAST_SQUARES else 0.0)
    drawn = synthetic_problems.draw(problem, 3)
    np.testing.assert_allclose(np.linalg.norm(drawn.x, axis=1), 0.8)
    weights = np.random.default_rng(0).normal(size=(3, 200))
    weights /= np.linalg.norm(weights, axis=0)  # on the ball's edge
    slopes = problem.loss.derivative(drawn.x @ weights, drawn.y[:, None])
    assert np.abs(slopes).max() * 0.8 <= problem.lipschitz + 1e-12


def test_draws_are_addressed_by_seed_and_client():
    few, many = synthetic_problems.draw(BASE, 5), synthetic_problems.draw(replace(BASE, clients=6), 5)
    np.testing.assert_array_equal(few.x, many.x[: len(few.x)])
    np.testing.assert_array_equal(few.y, many.y[: len(few.y)])
    assert not np.array_equal(few.x, synthetic_problems.draw(BASE, 6).x)


def test_population_risk_is_the_mean_over_fresh_records():
    """200,000 records, far more than any study: mean loss differences against the closed form."""
    problem = replace(BASE, spread=0.4, strong_convexity=0.5, records=50_000)
    drawn = synthetic_problems.draw(problem, 1)
    best, hessian = synthetic_problems.population_optimum(problem, 1)
    other = best + np.array([0.2, -0.1, 0.3])
    losses = [problem.loss.value(drawn.x @ w, drawn.y) + problem.regularisation / 2 * w @ w for w in (other, best)]
    gap = losses[0] - losses[1]
    error = gap.std() / np.sqrt(len(gap))
    assert abs(gap.mean() - hessian @ (other - best) ** 2 / 2) < FALSE_ALARM_DEVIATIONS * error


def test_population_optimum_minimises_and_heterogeneity_is_zero_for_equal_clients():
    problem = replace(BASE, spread=0.4, strong_convexity=0.5)
    models, spectra = problem.models(2), problem.spectra()

    def risk(w):
        return np.mean(np.sum(spectra * (w - models) ** 2, axis=1)) / 2 + problem.regularisation / 2 * w @ w

    found = minimize(risk, np.zeros(3), tol=1e-14).x
    np.testing.assert_allclose(synthetic_problems.population_optimum(problem, 2)[0], found, atol=1e-6)
    assert synthetic_problems.heterogeneity(problem, 2) > 1e-3
    assert synthetic_problems.heterogeneity(BASE, 2) == pytest.approx(0.0, abs=1e-30)


def slope(risk, at) -> np.ndarray:
    """The gradient of a parabola, by central differences."""
    return np.array([(risk(at + 1e-3 * side) - risk(at - 1e-3 * side)) / 2e-3 for side in np.eye(len(at))])


def test_heterogeneity_of_least_squares_by_differences_of_the_clients_risks():
    """F_i(w) = E (x . (w - w_i) - noise)^2/2 + lambda |w|^2/2, by all eight signs of x; client i's h is turned by i."""
    problem = replace(BASE, spread=0.4, strong_convexity=0.5)
    h = np.array([1.0, 5**-0.5, 0.2])
    spectra = np.stack([np.roll(h / h.sum(), client) for client in range(4)])
    lift = 0.5 - spectra.mean(axis=0).min()
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=3)))
    best, _ = synthetic_problems.population_optimum(problem, 2)
    slopes = []
    for own, spectrum in zip(problem.models(2), spectra, strict=True):
        x = signs * np.sqrt(spectrum)
        slopes.append(
            slope(lambda w, x=x, own=own: np.mean((x @ (w - own)) ** 2 + 0.25**2 / 3 + lift * w @ w) / 2, best)
        )
    np.testing.assert_allclose(np.mean(slopes, axis=0), 0.0, atol=1e-10)
    squares = np.sum(np.square(slopes), axis=1)
    assert synthetic_problems.heterogeneity(problem, 2) == pytest.approx(np.mean(squares), rel=1e-6)


def test_heterogeneity_of_strongly_convex_linear_losses_by_differences_of_the_clients_risks():
    """F_i(w) = -w . E x + mu |w|^2/2, by each client's E x."""
    own = {"condition": 5.0, "signal": 0.1, "spread": 0.2, "strong_convexity": 0.5}
    problem = Problem("linear", 4, 5, 3, 1.0, **own)
    best, _ = synthetic_problems.population_optimum(problem, 2)
    means = problem.means(2)
    slopes = [slope(lambda w, mean=mean: -mean @ w + 0.25 * w @ w, best) for mean in means]
    np.testing.assert_allclose(np.mean(slopes, axis=0), 0.0, atol=1e-10)
    squares = np.sum(np.square(slopes), axis=1)
    assert synthetic_problems.heterogeneity(problem, 2) == pytest.approx(np.mean(squares), rel=1e-6)


@pytest.mark.parametrize("kind", [Kind.LEAST_SQUARES, Kind.LOGISTIC])
@pytest.mark.parametrize("radius", [5.0, 0.2])
def test_empirical_optimum_inside_and_on_the_ball(kind, radius):
    problem = replace(BASE, kind=kind, radius=radius, signal=0.2, target_noise=0.05, strong_convexity=0.0)
    drawn = synthetic_problems.draw(problem, 0)
    best = synthetic_problems.empirical_optimum(problem, drawn)
    value = synthetic_problems.objective(problem, best[:, None], drawn.x, drawn.y)[0]
    assert np.linalg.norm(best) <= radius * (1 + 1e-10)
    gradient = drawn.x.T @ problem.loss.derivative(drawn.x @ best, drawn.y) / len(drawn.y)
    if np.linalg.norm(best) < radius * (1 - 1e-6):
        np.testing.assert_allclose(gradient, 0.0, atol=1e-12)
    else:  # at the edge the gradient points inwards, along the model
        np.testing.assert_allclose(gradient, best * (gradient @ best) / (best @ best), atol=1e-10)
        assert gradient @ best < 0
    rng = np.random.default_rng(1)
    others = best[:, None] + 0.05 * rng.normal(size=(3, 500))
    others *= np.minimum(1.0, radius / np.linalg.norm(others, axis=0))
    assert np.all(synthetic_problems.objective(problem, others, drawn.x, drawn.y) >= value - 1e-14)


def test_absolute_is_best_at_the_common_model():
    problem = replace(BASE, kind=Kind.ABSOLUTE)
    drawn = synthetic_problems.draw(problem, 0)
    best = synthetic_problems.empirical_optimum(problem, drawn)
    assert synthetic_problems.objective(problem, best[:, None], drawn.x, drawn.y)[0] == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"records": 0}, "records"),
        ({"radius": -1.0}, "radius"),
        ({"condition": 0.5}, "condition"),
        ({"signal": 2.0}, "signal"),
        ({"kind": Kind.LOGISTIC, "spread": 0.1}, "spread"),
        ({"strong_convexity": 0.01, "condition": 1.0}, "strong_convexity"),
        ({"kind": "cubic"}, "cubic"),
    ],
)
def test_bad_problems(changes, named):
    with pytest.raises(ValueError, match=named):
        replace(BASE, **changes)


def test_unknown_optima_are_refused():
    with pytest.raises(ValueError, match="least_squares"):
        synthetic_problems.population_optimum(replace(BASE, kind=Kind.LOGISTIC), 0)
    separable = replace(BASE, kind=Kind.LOGISTIC, target_noise=1e-6, records=3)
    with pytest.raises(ValueError, match="Newton"):
        synthetic_problems.empirical_optimum(separable, synthetic_problems.draw(separable, 0))


@pytest.mark.parametrize(("mu", "signal"), [(0.0, 0.3), (2.0, 0.9)])
def test_linear_losses_estimate_a_mean(mu, signal):
    """E x is as stated, no record is longer than |x|, and the excess is F(w) - F(w*) by its definition."""
    problem = Problem("linear", 6, 4000, 3, 1.5, scale=2.0, signal=signal, strong_convexity=mu)
    drawn = synthetic_problems.draw(problem, 3)
    mean = problem.means(3).mean(axis=0)
    assert np.linalg.norm(mean) == pytest.approx(2.0 * signal)
    np.testing.assert_allclose(drawn.x.mean(axis=0), mean, atol=8 / np.sqrt(24000))
    np.testing.assert_allclose(np.linalg.norm(drawn.x, axis=1), 2.0)
    best, _ = synthetic_problems.population_optimum(problem, 3)

    def risk(weights):
        return -mean @ weights + mu / 2 * np.sum(weights**2, axis=0)

    others = np.random.default_rng(0).normal(size=(3, 50))
    others *= 1.5 / np.maximum(1.5, np.linalg.norm(others, axis=0))
    excess = synthetic_problems.population_excess(problem, 3, others)
    np.testing.assert_allclose(excess, risk(others) - risk(best), atol=1e-12)
    assert np.all(excess >= 0) and np.linalg.norm(best) <= 1.5 * (1 + 1e-12)


def test_linear_losses_of_different_clients_have_the_same_mean():
    problem = Problem("linear", 8, 5, 2, 1.0, signal=0.1, spread=0.3)
    means = problem.means(4)
    assert np.linalg.norm(means.mean(axis=0)) == pytest.approx(0.1)
    assert synthetic_problems.heterogeneity(problem, 4) == pytest.approx(np.mean(np.sum(means**2, axis=1)))
    assert np.ptp(means, axis=0).min() > 0.1
    with pytest.raises(ValueError, match="linear"):
        synthetic_problems.empirical_optimum(problem, synthetic_problems.draw(problem, 4))


@pytest.mark.parametrize("changes", [{"signal": 1.1}, {"signal": 0.0}, {"signal": 0.5, "spread": 0.3}, {"radius": 0.2}])
def test_linear_losses_out_of_range(changes):
    own = {"kind": "linear", "clients": 2, "records": 2, "features": 2, "radius": 1.0, "signal": 0.5}
    with pytest.raises(ValueError, match="signal"):
        Problem(**{**own, "strong_convexity": 1.0, **changes})
