import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from dpfl.accounting import contraction
from dpfl.accounting.contraction.federated import (
    FederatedRelease,
    federated_release_delta,
    release_epsilon,
    release_sigma,
    round_epsilon,
    round_sigma,
    step_diameter,
)
from dpfl.papers.asoodeh2021.exact_federated import ExactFederatedSgd

SIGMA = 1.2
CASE = {"n": 60, "m": 6, "lipschitz": 1.0, "radius": 0.4}
SCHEDULE = 1 / np.arange(1.0, 11.0)
EPSILONS = np.array([0.0, 0.3, 1.0])


@pytest.mark.parametrize("eta", [0.5, SCHEDULE])
@pytest.mark.parametrize(
    ("first", "known", "extra"),
    [
        (10, contraction.federated_delta, {}),
        (1, contraction.federated_random_stop_delta, {}),
        (5, contraction.federated_suffix_stop_delta, {"alpha": 0.5}),
    ],
)
def test_without_strong_convexity_it_is_the_papers(eta, first, known, extra):
    release = FederatedRelease(eta=eta, smoothness=1.5, strong_convexity=0.0, first_stop=first, **CASE)
    ours = federated_release_delta(EPSILONS, release, sigma=SIGMA)
    np.testing.assert_allclose(ours, known(EPSILONS, eta=eta, sigma=SIGMA, **CASE, **extra), rtol=1e-10)


def test_short_steps_of_strongly_convex_losses_shrink_the_ball():
    theory = {"smoothness": 1.0, "strong_convexity": 0.4}
    release = FederatedRelease(eta=0.3, first_stop=10, **theory, **CASE)
    ours = federated_release_delta(EPSILONS, release, sigma=SIGMA)
    known = contraction.federated_delta_strongly_convex(EPSILONS, eta=0.3, sigma=SIGMA, **theory, **CASE)
    np.testing.assert_allclose(ours, known, rtol=1e-10)
    assert (ours < contraction.federated_delta(EPSILONS, eta=0.3, sigma=SIGMA, **CASE)).all()


@settings(max_examples=50, deadline=None)
@given(
    eta=st.floats(0.01, 50.0),
    radius=st.floats(0.1, 5.0),
    regularisation=st.floats(0.001, 1.0),
    seed=st.integers(0, 1000),
)
def test_no_step_makes_more_of_the_ball(eta, radius, regularisation, seed):
    """Logistic loss of one record of norm 1 in the plane, regularised: L = 1, beta = 1/4 + lambda."""
    rng = np.random.default_rng(seed)
    record = rng.normal(size=2)
    record /= np.linalg.norm(record)
    angles = rng.uniform(0, 2 * np.pi, 60)
    points = radius * np.sqrt(rng.random(60))[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    points = np.vstack([points, radius * record, -radius * record])
    moved = points - eta * (-expit(-points @ record)[:, None] * record + regularisation * points)
    across = np.linalg.norm(moved[:, None] - moved[None], axis=-1).max()
    theory = {"radius": radius, "lipschitz": 1.0, "smoothness": 0.25 + regularisation}
    assert across <= step_diameter(eta, strong_convexity=regularisation, **theory) * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
@pytest.mark.parametrize("radius", [0.05, 0.3])
def test_the_exact_run_with_long_first_steps_stays_within(epsilon, radius):
    """eta_t = 1/(lambda t) in one dimension: the first steps exceed 2/beta and the ball is small against them."""
    curvature, rounds = 0.2, 6
    etas = 1 / (curvature * np.arange(1.0, rounds + 1))
    run = ExactFederatedSgd(m=2, etas=list(etas), sigma=0.7, lipschitz=1.0, radius=radius, curvature=curvature)
    theory = {"lipschitz": 1.0, "radius": radius, "smoothness": 1.2, "strong_convexity": curvature}
    bounds = {
        first: federated_release_delta(
            epsilon, FederatedRelease(n=12, m=2, eta=etas, first_stop=first, **theory), sigma=0.7
        )
        for first in (1, rounds)
    }
    assert run.delta(epsilon) <= bounds[rounds]
    assert run.stopped_delta(epsilon) <= bounds[1]
    assert run.delta(0.0) > 1e-6


RELEASE = {"n": 600, "m": 1, "lipschitz": 1.0, "eta": 2.0, "radius": 0.5, "smoothness": 0.3, "strong_convexity": 0.05}


@pytest.mark.parametrize("first", [1, 300, 600])
def test_epsilon_and_sigma_invert_delta(first):
    release = FederatedRelease(first_stop=first, **RELEASE)
    sigma = release_sigma(0.8, 1e-5, release)
    delta = federated_release_delta(0.8, release, sigma=sigma)
    assert (1 - 1e-6) * 1e-5 < delta <= 1e-5
    assert release_epsilon(1e-5, release, sigma=sigma) == pytest.approx(0.8, rel=1e-6)
    assert sigma < round_sigma(0.8, 1e-5, m=1, lipschitz=1.0)


def test_the_round_alone_is_the_gaussian_mechanism():
    sigma = round_sigma(1.3, 1e-6, m=4, lipschitz=2.0)
    assert round_epsilon(1e-6, m=4, sigma=sigma, lipschitz=2.0) == pytest.approx(1.3, rel=1e-9)
    assert contraction.theta(1.3, 2 * 2 / (2 * sigma)) == pytest.approx(1e-6, rel=1e-9)


def test_the_last_model_never_spends_more_than_the_round_alone():
    for sigma in (0.1, 1.0, 100.0, 1e6):
        ours = release_epsilon(1e-5, FederatedRelease(first_stop=600, **RELEASE), sigma=sigma)
        assert 0 <= ours <= round_epsilon(1e-5, m=1, sigma=sigma, lipschitz=1.0)
    assert ours == 0.0


def test_the_noise_of_one_round_spends_its_epsilon():
    right = {"delta": 1e-5, "m": 4, "lipschitz": 1.0}
    assert round_epsilon(1e-5, sigma=round_sigma(1.0, **right), m=4, lipschitz=1.0) == pytest.approx(1.0, rel=1e-9)
