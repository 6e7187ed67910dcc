import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dpfl.papers.asoodeh2021.exact_federated import ExactFederatedSgd


def test_one_round_on_a_wide_interval_is_the_gaussian_mechanism():
    # m = 4 users: means 2 eta L/m apart, noise eta sigma/sqrt(m): 2L/(sqrt(m) sigma) = 0.5.
    run = ExactFederatedSgd(m=4, etas=[0.3], sigma=2.0, lipschitz=1.0, radius=2.5, cells=2000)
    assert run.delta(0.0) == pytest.approx(2 * norm.cdf(0.25) - 1, abs=1e-5)


def test_laws_have_mass_one_from_the_users_round_on_and_none_before():
    laws = ExactFederatedSgd(m=1, etas=[1.0, 0.5, 0.25], sigma=1.0, lipschitz=1.0, radius=0.5).models()
    mass = laws.sum(axis=-1)
    rounds = np.arange(3)
    np.testing.assert_allclose(mass, np.broadcast_to((rounds[None, :] >= rounds[:, None])[..., None], mass.shape))


def test_stopping_at_random_hides_the_user_more_than_the_end_does():
    run = ExactFederatedSgd(m=1, etas=[0.5] * 6, sigma=2.0, lipschitz=1.0, radius=0.5)
    assert 0 < run.stopped_delta(0.0) < run.delta(0.0)


def test_concave_losses_hide_a_user_less():
    flat, concave = (
        ExactFederatedSgd(m=1, etas=[0.5] * 4, sigma=2.0, lipschitz=1.0, radius=0.25, curvature=curvature).delta(0.0)
        for curvature in (0.0, -4.0)
    )
    assert concave > flat


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_the_average_of_models_that_no_ball_holds_is_a_mixture_of_gaussians(epsilon):
    """Round t moves the average of T models by (T - t + 1)/T; its noise is the sum of those shares, squared."""
    run = ExactFederatedSgd(m=2, etas=[0.5] * 3, sigma=2.0, lipschitz=1.0, radius=6.0, cells=600)
    shares = np.array([3, 2, 1]) / 3
    shifts, deviation = 0.5 / 2 * shares, 0.5 * 2 / np.sqrt(2) * np.sqrt((shares**2).sum())

    def above(y: float) -> float:
        p, q = (norm.pdf(y, sign * shifts, deviation).mean() for sign in (1, -1))
        return max(p - np.exp(epsilon) * q, 0.0)

    assert run.averaged_delta(epsilon) == pytest.approx(quad(above, -6, 6, points=(0, 0.5))[0], abs=1e-5)


def test_the_average_of_one_model_is_the_last_one():
    run = ExactFederatedSgd(m=1, etas=[1.0], sigma=1.0, lipschitz=1.0, radius=0.25)
    assert run.averaged_delta(0.2) == pytest.approx(run.delta(0.2), rel=1e-12)


def test_the_average_in_a_small_ball_is_that_of_simulated_paths():
    """A threshold on the average of 400,000 paths gives no more than the exact delta, and nearly as much."""
    n, paths, rng = 8, 400_000, np.random.default_rng(0)
    sums = {}
    for sign in (1, -1):
        turn, w, total = rng.integers(0, n, paths), np.zeros(paths), np.zeros(paths)
        for s in range(n):
            w = np.clip(w - sign * (turn == s) + rng.standard_normal(paths), -0.25, 0.25)
            total += w
        sums[sign] = total
    exact = ExactFederatedSgd(m=1, etas=[1.0] * n, sigma=1.0, lipschitz=1.0, radius=0.25, cells=60).averaged_delta(0.0)
    gaps = [np.mean(sums[-1] > at) - np.mean(sums[1] > at) for at in (-0.1, 0.0, 0.1)]
    assert exact - 0.01 < max(gaps) < exact + 6 / np.sqrt(paths)
