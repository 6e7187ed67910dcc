"""Claims that arithmetic decides: right numbers hold, and numbers that a fault would give do not."""

import math

import numpy as np
import pandas as pd
import pytest

from dpfl.accounting import gaussian_dp, tradeoff
from dpfl.catalog import load
from dpfl.papers.vandijk2023 import claims
from dpfl.papers.vandijk2023.figures import FIGURES
from dpfl.reporting.claims import check_of, evaluate, rule_of
from dpfl.reporting.results import Results, write_csv
from dpfl.reporting.rules import Status, Verdict, judge

KEY = "vandijk2023"


def verdict(claim: str) -> Verdict:
    """Judge a claim that reads no results, with what its rule says."""
    return judge(check_of(KEY, claim)(None), rule_of(load(KEY).claims[claim])).verdict


@pytest.fixture
def weaker(monkeypatch):
    """Return a function that puts another function in place of one of the accounting."""
    caches = (claims._guarantee, claims._subsampled)

    def replace(name, function, module=tradeoff):
        for each in caches:
            each.cache_clear()
        monkeypatch.setattr(module, name, function)

    yield replace
    for each in caches:
        each.cache_clear()


def test_duality_holds_and_a_wrong_curve_does_not(weaker):
    assert verdict("gdp_duality") is Verdict.AS_STATED
    right = gaussian_dp.tradeoff
    weaker("tradeoff", lambda alpha, mu: right(alpha, 1.001 * np.asarray(mu)), gaussian_dp)
    assert verdict("gdp_duality") is Verdict.REFUTED


def test_composition_holds_and_a_sum_of_mus_does_not(weaker):
    assert verdict("composition") is Verdict.AS_STATED
    weaker("compose", lambda mus: np.sum(mus), gaussian_dp)
    assert verdict("composition") is Verdict.REFUTED


@pytest.mark.parametrize("claim", ["subsampling", "subsampling_tight"])
def test_the_operator_is_found_by_other_routes_and_half_the_rate_is_not(weaker, claim):
    assert verdict(claim) is Verdict.AS_STATED
    right = tradeoff.subsample
    weaker("subsample", lambda p, mu, alpha: right(p / 2, mu, alpha))
    assert verdict(claim) is Verdict.REFUTED


def test_the_composed_curve_is_valid_and_not_reached():
    valid, tight = claims.dpsgd_valid(1.6), claims.dpsgd_tight(1.6)
    assert valid.target == pytest.approx(3.18, abs=0.005)
    assert valid.estimate == tight.estimate == pytest.approx(2.75, abs=0.005)
    assert math.isnan(tight.error)  # a pair that stays below refutes no tightness
    assert verdict("dpsgd_tight_one_round") is Verdict.AS_STATED


def test_a_pair_that_reaches_the_bound_shows_that_it_is_tight(monkeypatch):
    monkeypatch.setattr(claims, "dpsgd_valid", lambda sigma: claims.Case("x", 3.0, target=3.001))
    assert claims.dpsgd_tight(1.6).error == 0


@pytest.mark.parametrize("batch", [60, 6000])
def test_who_is_told_more_learns_more(batch):
    case = claims.a1_weaker(1.6, batch, 20)
    assert case.estimate <= case.target * (1 + 1e-6)
    assert claims.a1_weaker(1.6, 60, 20).estimate < 0.5 * claims.a1_weaker(1.6, 60, 20).target
    curve = claims.a1_weaker(1.6, 60, 20, alpha=0.1)
    assert curve.estimate < curve.target


def test_the_central_limit_is_neared_and_another_limit_is_not(weaker):
    assert claims.clt(1.6, 1e-5).estimate > 0.5
    right = tradeoff.clt_mu
    weaker("clt_mu", lambda *run: 1.2 * right(*run))
    assert claims.clt(1.6, 1e-5).estimate < 0.1


def test_a1_has_no_gaussian_limit_and_a_gaussian_would_pass(weaker):
    assert claims.clt_a1(1.6, 1).estimate < 0.75
    assert claims.clt_a1(1.6, 1).estimate < claims.clt_a1(1.6, 20).estimate < 0.95
    weaker("dpsgd_guarantee", lambda **run: tradeoff.Gaussian(0.7))
    assert claims.clt_a1(1.6, 1).estimate == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(
    ("claim", "factor", "expected"),
    [
        ("epochs_simple", 1.0, Verdict.AS_STATED),
        ("epochs_simple", 1.3, Verdict.REFUTED),
        ("epochs_bounds", 1.0, Verdict.AS_STATED),
        ("epochs_bounds", 1.3, Verdict.REFUTED),
        ("epochs_limit", 1.0, Verdict.AS_STATED),
        ("epochs_limit", 0.8, Verdict.REFUTED),
        ("epochs_not_rounds", 1.0, Verdict.AS_STATED),
    ],
)
def test_epochs_decide_what_a1_learns(weaker, claim, factor, expected):
    """With `factor` times the mu of the exact mixture in its place."""
    right = tradeoff.dpsgd_guarantee

    def other(*, adversary, **run):
        own = right(adversary=adversary, **run)
        return tradeoff.Gaussian(factor * claims.equivalent_mu(own)) if adversary == "A1" else own

    if factor != 1:
        weaker("dpsgd_guarantee", other)
    assert verdict(claim) is expected


def test_rounds_would_count_if_batches_did(weaker):
    weaker("dpsgd_guarantee", lambda *, m, **run: tradeoff.Gaussian(0.5 + 0.01 * m))
    assert verdict("epochs_not_rounds") is Verdict.REFUTED


@pytest.mark.parametrize(
    ("claim", "power", "expected"),
    [
        ("group", 0.5, Verdict.AS_STATED),
        ("group", 1.0, Verdict.REFUTED),
        ("group_below_g", 0.9, Verdict.AS_STATED),
        ("group_below_g", 1.0, Verdict.REFUTED),
    ],
)
def test_groups_follow_the_growth(weaker, claim, power, expected):
    weaker("dpsgd_guarantee", lambda *, group_size, **run: tradeoff.Gaussian(0.5 * group_size**power))
    assert verdict(claim) is expected


def test_shuffled_groups_exceed_what_is_stated_flatly_and_single_records_do_not():
    assert [claims.group_shuffled(15.0, 256, g).estimate > claims.group_shuffled(15.0, 256, g).target * 1.01
            for g in (1, 2, 4)] == [False, True, True]  # fmt: skip
    assert verdict("group_shuffled") is Verdict.REFUTED
    assert verdict("group_shuffled_about") is Verdict.WEAKER


@pytest.mark.parametrize("batch", [16, 256])
def test_batch_normalisation_breaks_the_sensitivity_and_layer_normalisation_keeps_it(batch):
    assert claims.batch_norm(batch).estimate > 10
    assert -0.01 < claims.layer_norm(batch).estimate <= 1e-5


def test_the_last_epoch_composes_to_the_root_of_two():
    case = claims.last_epoch_noise(20)
    assert case.estimate == pytest.approx(case.target, rel=1e-12)
    assert case.estimate == pytest.approx(math.sqrt(19 / 64 + 21 / 64))


def test_arsinh_noise_has_lighter_tails():
    case = claims.arsinh_noise(4.0)
    assert case.estimate < 0.2 * case.target


@pytest.mark.parametrize(
    ("needed", "enough", "expected"),
    [
        (2.0, 2.05, Verdict.AS_STATED),
        (2.0, 2.2, Verdict.UNDECIDED),
        (1.5, 2.2, Verdict.UNDECIDED),
        (1.5, 1.6, Verdict.REFUTED),
        (2.4, 2.6, Verdict.REFUTED),
    ],
)
def test_a_gain_of_two_needs_a_pair_that_forces_it_and_a_proof_that_it_is_enough(
    judged, stored, needed, enough, expected
):
    factors = {"fixed_pair": needed, "fixed": enough, "poisson": 1.0, "poisson_replace": 1.5}
    rows = [(sampler, factor, 1.0, 1.6) for sampler, factor in factors.items()]
    # A second noise where nothing is decided.
    rows += [(sampler, factor, 0.5, 3.2) for sampler, factor in {**factors, "fixed_pair": 2.0, "fixed": 2.2}.items()]
    names = ["sampler", "noise_over_poisson", "epsilon", "noise_multiplier"]
    data = pd.DataFrame(rows if expected is not Verdict.AS_STATED else rows[:4], columns=names)
    results = stored("figures", "fixed_against_poisson", data)
    with (results.folder / "figures" / f"{KEY}_samplers.csv").open("w") as stream:
        write_csv(FIGURES["samplers"].data(Results(results.folder)), stream)
    judgement = judged("fixed_batches_cost_two", results)
    assert judgement.verdict is expected
    assert next(each.case.estimate for each in judgement.cases if each.status is Status.BESIDE) == 1.5
    assert len([each for each in judgement.cases if each.status is not Status.BESIDE]) == len(data) / 4


@pytest.mark.slow
def test_verdicts(results):
    verdicts = evaluate(KEY, results)[0].set_index("claim")
    named = {each: set(verdicts.index[verdicts["verdict"] == each]) for each in Verdict}
    assert named[Verdict.REFUTED] == {"clt_a1", "group_shuffled"}
    assert named[Verdict.WEAKER] == {"group", "group_shuffled_about"}
    assert named[Verdict.UNDECIDED] == {"dpsgd_tight", "fixed_batches_cost_two"}
    # Nothing was trained here.
    trained = {"batch_scaling", "last_epoch_accuracy", "arsinh_accuracy", "asynchronous", "private_normalisation"}
    assert trained <= named[Verdict.NOT_RUN] and all(map(math.isnan, verdicts.loc[list(trained), "estimate"]))
