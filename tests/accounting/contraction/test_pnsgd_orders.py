import numpy as np
import pytest
from scipy.stats import laplace, norm

from dpfl.accounting import contraction
from dpfl.accounting.contraction.pnsgd import (
    Law,
    NoisyPass,
    calibrated_scale,
    place_deltas,
    step_epsilon,
    worst_epsilon,
)
from dpfl.papers.asoodeh2020.exact_pnsgd import ExactPnsgd

THEORY = {"eta": 0.5, "lipschitz": 1.0, "smoothness": 0.5, "strong_convexity": 0.0, "diameter": 1.0}
N = 12
VARIANTS = [{}, {"permuted": True}, {"random_stop": True}, {"permuted": True, "random_stop": True}]


def test_without_options_it_is_theorems_3_and_4():
    places = np.arange(1, N + 1)
    gaussian = contraction.pnsgd_gaussian_delta(0.3, i=places, n=N, sigma=2.0, **THEORY)
    np.testing.assert_array_equal(place_deltas(0.3, NoisyPass(N, Law.GAUSSIAN, **THEORY), scale=2.0), gaussian)
    exponential = contraction.pnsgd_laplace_delta(0.3, i=places, n=N, scale=2.0, **THEORY)
    np.testing.assert_array_equal(place_deltas(0.3, NoisyPass(N, Law.LAPLACE, **THEORY), scale=2.0), exponential)


def test_a_random_stop_is_theorem_5_before_its_last_step():
    known = contraction.pnsgd_random_stop_delta(0.3, i=np.arange(1, N + 1), n=N, sigma=2.0, **THEORY)
    ours = place_deltas(0.3, NoisyPass(N, Law.GAUSSIAN, random_stop=True, **THEORY), scale=2.0)
    np.testing.assert_allclose(ours, known, rtol=1e-12)


@pytest.mark.parametrize("law", Law)
@pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.6])
def test_the_exact_run_in_a_secret_order_stays_within(law, epsilon):
    noise = {Law.GAUSSIAN: norm, Law.LAPLACE: laplace}[law](scale=0.5 * 1.5)
    run = ExactPnsgd(0.5, noise, lipschitz=1.0, diameter=1.0, curvature=0.0)
    exact = run.mixed_delta(epsilon, np.full(N, 1 / N))
    bound = place_deltas(epsilon, NoisyPass(N, law, permuted=True, **THEORY), scale=1.5)
    assert exact <= bound[0] + 1e-9
    assert run.mixed_delta(0.0, np.full(N, 1 / N)) > 0.01
    assert np.ptp(bound) == 0


@pytest.mark.parametrize("law", Law)
@pytest.mark.parametrize("variant", VARIANTS)
def test_scale_and_epsilon_invert_delta(law, variant):
    run = NoisyPass(N, law, **variant, **THEORY)
    scale = calibrated_scale(0.7, 1e-4, run)
    worst = place_deltas(0.7, run, scale=scale).max()
    assert 0.999 * 1e-4 < worst <= 1e-4
    found = worst_epsilon(1e-4, run, scale=scale)
    assert found == pytest.approx(0.7, rel=1e-6)
    assert place_deltas(found, run, scale=scale).max() <= 1e-4 * (1 + 1e-12)


def test_one_step_alone_is_the_plain_mechanism():
    sigma_epsilon = step_epsilon(1e-5, law=Law.GAUSSIAN, scale=3.0, lipschitz=1.0)
    assert contraction.theta(sigma_epsilon, 2 / 3) == pytest.approx(1e-5, rel=1e-9)
    pure = step_epsilon(1e-5, law=Law.LAPLACE, scale=4.0, lipschitz=1.0)
    assert contraction.laplace_divergence(pure, 0.0, 2.0, 4.0) == pytest.approx(1e-5, rel=1e-9)
    assert step_epsilon(0.9, law=Law.LAPLACE, scale=4.0, lipschitz=1.0) == 0.0


def test_the_last_record_of_a_public_order_gains_nothing():
    for law in Law:
        scale = calibrated_scale(1.0, 1e-5, NoisyPass(N, law, **THEORY))
        assert step_epsilon(1e-5, law=law, scale=scale, lipschitz=1.0) == pytest.approx(1.0, rel=1e-6)
