import numpy as np
import pytest
from scipy.stats import laplace, norm

from dpfl.papers.asoodeh2020.exact_pnsgd import ExactPnsgd


def test_one_step_on_a_wide_interval_is_the_gaussian_mechanism():
    # Two means 2 apart with unit noise: total variation 2 Phi(1) - 1.
    run = ExactPnsgd(eta=1.0, noise=norm(), lipschitz=1.0, diameter=20.0, curvature=0.0, cells=2000)
    assert run.delta(0.0, 0) == pytest.approx(2 * norm.cdf(1) - 1, abs=1e-6)


def test_many_steps_on_a_wide_interval_add_up_their_noise():
    run = ExactPnsgd(eta=1.0, noise=norm(), lipschitz=1.0, diameter=60.0, curvature=0.0, cells=1500)
    assert run.delta(0.0, 8) == pytest.approx(2 * norm.cdf(1 / 3) - 1, abs=1e-4)


def test_a_strongly_convex_own_loss_pushes_less():
    flat, steep = (
        ExactPnsgd(1.0, laplace(scale=1.0), 1.0, 1.0, curvature=0.2, strong_convexity=rho).delta(0.0, 0)
        for rho in (0.0, 0.2)
    )
    assert steep < flat


def test_with_one_record_a_random_stop_is_the_end():
    run = ExactPnsgd(eta=0.5, noise=norm(), lipschitz=1.0, diameter=1.0, curvature=0.0)
    assert run.stopped_delta(0.1, 1, 1) == pytest.approx(run.delta(0.1, 0), rel=1e-12)


@pytest.mark.parametrize("i", [1, 3])
def test_a_random_stop_agrees_with_simulated_runs(i):
    """The sign tells the data sets apart as well as the exact delta at 0; five standard errors: false alarm 6e-7."""
    run = ExactPnsgd(eta=0.5, noise=norm(scale=0.25), lipschitz=1.0, diameter=1.0, curvature=0.5)
    n, runs, draw = 4, 400_000, np.random.default_rng(11)
    shares = []
    for sign in (1, -1):
        w, released, stop = np.zeros(runs), np.zeros(runs), draw.integers(1, n + 1, runs)
        for record in range(1, n + 1):
            gradient = -sign if record == i else 0.5 * w
            w = np.clip(w - 0.5 * gradient + draw.normal(scale=0.25, size=runs), -0.5, 0.5)
            released = np.where(stop == record, w, released)
        shares.append(np.mean(released > 0))
    assert abs(shares[0] - shares[1] - run.stopped_delta(0.0, i, n)) < 5 * np.sqrt(0.5 / runs) + 1e-3


def test_monte_carlo_agrees():
    run = ExactPnsgd(eta=0.5, noise=norm(scale=0.5), lipschitz=1.0, diameter=2.0, curvature=0.0)
    draw = np.random.default_rng(7)
    states = np.array([[0.5], [-0.5]]) + draw.normal(scale=0.5, size=(2, 200_000))
    for _ in range(2):
        states = np.clip(states, -1, 1) + draw.normal(scale=0.5, size=states.shape)
    # Total variation is reached by the sign; 5 standard errors: false alarm 6e-7.
    estimate = np.mean(states[0] > 0) - np.mean(states[1] > 0)
    assert abs(estimate - run.delta(0.0, 2)) < 5 * np.sqrt(0.5 / 200_000) + 1e-3
