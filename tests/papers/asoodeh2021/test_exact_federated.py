import numpy as np
import pytest
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
