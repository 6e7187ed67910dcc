"""The noise of a client's rounds: what it adds is what its statement says, in units of the sensitivity."""

import math

import pytest

from dpfl.asynchronous.async_dpsgd import ClientPrivacy
from dpfl.asynchronous.schedules import AsyncSettings
from dpfl.catalog import load
from dpfl.errors import InputError

ENTRY = {"clients": 3, "batch_size": 20, "epochs": 2, "learning_rate": 0.5, "epsilon": 4.0}
FIXED = {"sampling": "fixed_without_replacement", "neighbouring": "replace_one"}
POISSON = {"sampling": "poisson", "neighbouring": "zero_out"}


def privacy(**settings) -> ClientPrivacy:
    return ClientPrivacy.of(AsyncSettings.of({**load("vandijk2023").settings, **ENTRY, **settings}), records=100)


@pytest.mark.parametrize(
    ("run", "moves"), [(FIXED, 2.0), ({**POISSON, "neighbouring": "replace_one"}, 2.0), (POISSON, 1.0)]
)
def test_noise_over_the_clip_norm_counts_how_far_one_record_moves_a_sum(run, moves):
    own = privacy(**run, sigma=1.5, clip_norm=0.25)
    stated = own.statement(own.round_sigma())
    assert stated.noise_multiplier == 1.5 * moves
    assert (stated.clip_norm, stated.steps, stated.records) == (0.25, 10, 100)


@pytest.mark.parametrize("run", [FIXED, POISSON])
def test_a_calibrated_round_spends_the_budget_and_not_more(run):
    own = privacy(**run)
    assert 3.9 < own.statement(own.round_sigma()).guarantee.upper <= 4.0
    assert own.statement(0.9 * own.round_sigma()).guarantee.upper > 4.0


def test_without_a_budget_nothing_is_added_and_nothing_proven():
    own = privacy(**FIXED, epsilon=math.inf)
    assert own.round_sigma() == 0 and not own.private
    assert math.isinf(own.statement(0.0).guarantee.upper)


@pytest.mark.parametrize("preparation", ["normalised_exactly", "exact_pca", "batch_normalised"])
def test_exact_statistics_leave_nothing_proven(preparation):
    own = privacy(**FIXED, preparation=preparation)
    assert math.isinf(own.statement(own.round_sigma()).guarantee.upper)


@pytest.mark.parametrize(
    ("run", "named"),
    [
        ({**POISSON, "neighbouring": "add_or_remove"}, "neighbouring"),
        ({**FIXED, "neighbouring": "zero_out"}, "neighbouring"),
        ({**FIXED, "batch_size": 101}, "batch_size"),
        ({**FIXED, "strategy": "nobody"}, "strategy"),
        ({**POISSON, "strategy": "batch_clip"}, "fixed size only"),
        ({**POISSON, "strategy": "adaptive_clip"}, "fixed size only"),
        ({**FIXED, "strategy": "s", "strategies": {"s": {"adaptive_quantile": 0.5, "last_epoch": True}}}, "one Gauss"),
        ({**FIXED, "strategy": "s", "strategies": {"s": {"adaptive_quantile": 0.5, "batch_clip": True}}}, "one by one"),
    ],
)
def test_what_has_no_proof_is_refused(run, named):
    with pytest.raises(InputError, match=named):
        privacy(**run)


def test_a_budget_that_no_accountant_covers_is_refused_and_given_noise_has_nothing_proven_there():
    with pytest.raises(InputError, match="delta must be at least 1e-10, got 1e-12, for batches of fixed size"):
        privacy(**FIXED, delta=1e-12).round_sigma()
    own = privacy(**FIXED, delta=1e-12, sigma=1.5)
    assert math.isinf(own.statement(own.round_sigma()).guarantee.upper)


def test_a_delta_in_records_is_that_of_a_client():
    assert privacy(**FIXED, delta="1/N").delta == 0.01 and privacy(**FIXED, delta="1/(10 N)").delta == 0.001
    with pytest.raises(InputError, match="delta"):
        privacy(**FIXED, delta="2/N")


def test_an_adaptive_clip_norm_is_paid_for_within_each_round():
    """Sum and count are one Gaussian mechanism: their mu^2 add up to the round's 1/sigma^2."""
    plain, adaptive = (privacy(**FIXED, strategy=name) for name in ("constant", "adaptive_clip"))
    sigma = adaptive.round_sigma()
    assert sigma == plain.round_sigma()
    count = adaptive.strategy.adaptive_clip(sigma)
    assert 1 / (sigma * adaptive.strategy.sum_noise) ** 2 + 1 / count.count_std**2 == pytest.approx(1 / sigma**2)
    stated = adaptive.statement(sigma)
    assert stated.guarantee == plain.statement(sigma).guarantee and "noisy count" in stated.note


def test_batch_clipping_states_the_guarantee_of_its_own_sensitivity():
    clipped, plain = (privacy(**FIXED, strategy=name) for name in ("batch_clip", "constant"))
    assert clipped.round_sigma() == plain.round_sigma()
    assert "mean gradient is clipped" in clipped.statement(1.0).note


def test_layer_normalisation_costs_nothing():
    own, plain = (privacy(**FIXED, preparation=name) for name in ("layer_normalised", "none"))
    assert own.statement(2.0).guarantee == plain.statement(2.0).guarantee
