"""Whole DP-SGD runs: the adversaries against each other, and against accountants that are not ours."""

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant

from dpfl.accounting import gaussian_dp
from dpfl.accounting.tradeoff import (
    Adversary,
    clt_mu,
    dpsgd,
    dpsgd_guarantee,
    h_bar_mu,
    h_mu,
    poisson_guarantee,
    revealed,
    shuffled_mu,
    subsample,
)

ALPHAS = np.concatenate([[0.0, 1e-6], np.linspace(0.005, 0.995, 100), [1 - 1e-6, 1.0]])
RUN = dict(n=6000, m=250, epochs=20, sigma=1.6)


@pytest.mark.parametrize("adversary", list(Adversary))
def test_every_adversary_gives_a_tradeoff_curve(adversary):
    beta = dpsgd(ALPHAS, **RUN, adversary=adversary)
    assert np.all(beta >= 0) and np.all(beta <= 1 - ALPHAS) and beta[-1] == 0
    assert np.all(np.diff(beta) <= 1e-15) and np.all(np.diff(np.diff(beta) / np.diff(ALPHAS)) >= -1e-7)
    assert np.array_equal(beta, dpsgd(ALPHAS, **RUN, adversary=adversary.value))


def test_closed_forms_are_gaussian_with_their_mu():
    for adversary, mu in (("h", h_mu(20, 1.6)), ("h_bar", h_bar_mu(20, 1.6)), ("clt", clt_mu(250 / 6000, 480, 1.6))):
        assert np.array_equal(dpsgd(ALPHAS, **RUN, adversary=adversary), gaussian_dp.tradeoff(ALPHAS, mu))


def test_full_batches_are_composed_gaussians_for_both_exact_adversaries():
    run = dict(n=64, m=64, epochs=9, sigma=4.0)
    for adversary in ("A0", "A1"):
        curve = dpsgd(ALPHAS, **run, adversary=adversary)
        assert np.allclose(curve, gaussian_dp.tradeoff(ALPHAS, 0.75), rtol=1e-6, atol=1e-9)


def test_a1_knows_more_than_a0_and_shuffling_lies_between_h_and_h_bar():
    a0, a1, h, h_bar = (dpsgd(ALPHAS, **RUN, adversary=a) for a in ("A0", "A1", "h", "h_bar"))
    middle = gaussian_dp.tradeoff(ALPHAS, shuffled_mu(20, 1.6))
    assert np.all(a1 <= a0 + 1e-12) and np.all(h <= middle) and np.all(middle <= h_bar)


def test_operator_composed_is_tight_for_its_own_relation_only():
    """C_p composed overstates Poisson batches; A1 overstates both by far. One run, delta = 1e-5, four accountants."""
    delta = 1e-5
    fixed, told = (dpsgd_guarantee(**RUN, adversary=a).epsilon(delta) for a in ("A0", "A1"))
    poisson = poisson_guarantee(n=6000, m=250, epochs=20, noise_multiplier=1.6).epsilon(delta)
    theirs = PLDAccountant().compose(SelfComposedDpEvent(PoissonSampledDpEvent(250 / 6000, GaussianDpEvent(1.6)), 480))
    assert np.isclose(poisson, theirs.get_epsilon(delta), rtol=1e-9)
    assert poisson * 1.1 < fixed < told / 5
    assert np.allclose([fixed, poisson, told], [3.18, 2.75, 17.7], atol=0.05)


@pytest.mark.slow
def test_fixed_batches_cost_about_two_in_noise():
    """The same noise is sigma = multiplier/2 sensitivities for a fixed-size batch: far more is spent."""
    run = dict(n=6000, m=250, epochs=20)
    poisson = poisson_guarantee(**run, noise_multiplier=3.2).epsilon(1e-5)
    assert dpsgd_guarantee(**run, sigma=1.6, adversary="A0").epsilon(1e-5) > 2 * poisson
    assert np.isclose(dpsgd_guarantee(**run, sigma=3.2, adversary="A0").epsilon(1e-5), poisson, rtol=0.2)


@pytest.mark.slow
def test_a0_nears_its_central_limit_as_rounds_grow():
    gaps = []
    for n in (400, 8_000):
        epochs = n // 400  # m sqrt(T)/n stays
        run = dict(n=n, m=20, epochs=epochs, sigma=1.0)
        gaps.append(np.max(np.abs(dpsgd(ALPHAS, **run, adversary="A0") - dpsgd(ALPHAS, **run, adversary="clt"))))
    assert gaps[1] < gaps[0] / 3


def test_one_round_of_one_epoch_is_the_operator_for_a0():
    run = dict(n=10, m=10, epochs=1, sigma=1.3)
    assert np.allclose(dpsgd(ALPHAS, **run, adversary="A0"), subsample(1.0, 1 / 1.3, ALPHAS), rtol=1e-6, atol=1e-9)


def test_groups_reach_the_mixture_and_the_closed_forms():
    run = dict(n=100, m=10, epochs=5, sigma=3.0)
    mixture = revealed(n=100, m=10, rounds=50, sigma=3.0, group_size=4)
    assert dpsgd_guarantee(**run, adversary="A1", group_size=4).delta(1.0) == mixture.delta(1.0)
    assert dpsgd_guarantee(**run, adversary="h", group_size=4).delta(1.0) == gaussian_dp.delta(1.0, h_mu(20, 3.0))


@pytest.mark.parametrize("adversary", ["A0", "clt"])
def test_groups_are_refused_where_they_have_no_closed_answer(adversary):
    with pytest.raises(ValueError, match=r"^group_size "):
        dpsgd_guarantee(**RUN, adversary=adversary, group_size=2)


def test_the_composed_adversary_refuses_a_delta_that_rounding_may_hide():
    run = {"n": 100, "m": 10, "epochs": 2, "sigma": 2.0}
    assert dpsgd_guarantee(**run, adversary="A0").epsilon(1e-10) > dpsgd_guarantee(**run, adversary="A0").epsilon(1e-9)
    with pytest.raises(ValueError, match=r"^delta must be at least 1e-10, got 1e-11$"):
        dpsgd_guarantee(**run, adversary="A0").epsilon([1e-5, 1e-11])
    assert dpsgd_guarantee(**run, adversary="A1").epsilon(1e-11) > 0
