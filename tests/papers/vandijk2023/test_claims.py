"""Claims that arithmetic or training decides: right numbers hold, and numbers that a fault would give do not."""

import math

import numpy as np
import pandas as pd
import pytest

from dpfl.accounting import gaussian_dp, tradeoff
from dpfl.attacks.lower_bounds import TestErrors, epsilon_lower_bound
from dpfl.catalog import load
from dpfl.papers.vandijk2023 import claims
from dpfl.papers.vandijk2023.training_figures import FIGURES
from dpfl.reporting.claims import evaluate
from dpfl.reporting.results import Results, write_table
from dpfl.reporting.rules import Status, Verdict

KEY = "vandijk2023"


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


def test_duality_holds_and_a_wrong_curve_does_not(verdict, weaker):
    assert verdict("gdp_duality") is Verdict.AS_STATED
    right = gaussian_dp.tradeoff
    weaker("tradeoff", lambda alpha, mu: right(alpha, 1.001 * np.asarray(mu)), gaussian_dp)
    assert verdict("gdp_duality") is Verdict.REFUTED


def test_composition_holds_and_a_sum_of_mus_does_not(verdict, weaker):
    assert verdict("composition") is Verdict.AS_STATED
    weaker("compose", lambda mus: np.sum(mus), gaussian_dp)
    assert verdict("composition") is Verdict.REFUTED


@pytest.mark.parametrize("claim", ["subsampling", "subsampling_tight"])
def test_the_operator_is_found_by_other_routes_and_half_the_rate_is_not(verdict, weaker, claim):
    assert verdict(claim) is Verdict.AS_STATED
    right = tradeoff.subsample
    weaker("subsample", lambda p, mu, alpha: right(p / 2, mu, alpha))
    assert verdict(claim) is Verdict.REFUTED


def test_the_composed_curve_is_valid_and_not_reached(verdict, weaker):
    valid, tight = claims.dpsgd_valid(1.6), claims.dpsgd_tight(1.6)
    assert valid.target == pytest.approx(3.18, abs=0.005)
    assert valid.estimate == tight.estimate == pytest.approx(2.75, abs=0.005)
    assert math.isnan(tight.error)  # a pair that stays below refutes no tightness
    assert verdict("dpsgd_tight_one_round") is Verdict.AS_STATED
    right = tradeoff.subsampled_delta
    weaker("subsampled_delta", lambda *run: 1.01 * right(*run))
    assert verdict("dpsgd_tight_one_round") is Verdict.REFUTED  # 1 % of a delta of 1e-53 counts


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


def test_a1_nears_a_gaussian_as_the_epochs_grow_and_a_wrong_one_is_seen(weaker):
    assert claims.clt_a1_growing_epochs(1.6, 1e-6).estimate > 0.4
    right = tradeoff.dpsgd_guarantee
    weaker("dpsgd_guarantee", lambda **run: right(**run | {"sigma": 0.9 * run["sigma"]}))  # 11 % off, at any epoch
    assert claims.clt_a1_growing_epochs(1.6, 1e-6).estimate < 0.3


@pytest.mark.parametrize(
    ("claim", "factor", "expected"),
    [
        ("epochs_simple", 1.0, Verdict.WEAKER),
        ("epochs_simple", 1.3, Verdict.REFUTED),
        ("epochs_bounds", 1.0, Verdict.WEAKER),
        ("epochs_bounds", 1.3, Verdict.REFUTED),
        ("epochs_limit", 1.0, Verdict.AS_STATED),
        ("epochs_limit", 0.8, Verdict.REFUTED),
        ("epochs_not_rounds", 1.0, Verdict.WEAKER),
    ],
)
def test_epochs_decide_what_a1_learns(verdict, weaker, claim, factor, expected):
    """With `factor` times the mu of the exact mixture in its place."""
    right = tradeoff.dpsgd_guarantee

    def other(*, adversary, **run):
        own = right(adversary=adversary, **run)
        return tradeoff.Gaussian(factor * claims.equivalent_mu(own)) if adversary == "A1" else own

    if factor != 1:
        weaker("dpsgd_guarantee", other)
    assert verdict(claim) is expected


def test_full_batches_with_little_noise_spend_less_than_small_ones():
    full = claims.epochs_not_rounds(1.0, 6000)
    one = tradeoff.dpsgd_guarantee(n=6000, m=1, epochs=20, sigma=1.0, adversary="A1").epsilon(1e-5)
    assert full.case == "batches of 6000 against 1, sigma = 1" and full.estimate < 0.9
    assert full.estimate == pytest.approx(math.sqrt(20) / gaussian_dp.mu(float(one), 1e-5), rel=1e-6)
    margins = {load(KEY).claims[name]["margin"] for name in ("epochs_not_rounds", "epochs_simple")}
    assert margins == {0.1}  # one reading of "approximately"


@pytest.mark.slow
def test_epochs_and_rounds_at_one_noise(cases):
    """Where the claims fail or nearly do: full batches with little noise, and 20 epochs with little noise."""
    missed = {case.case for case in cases["epochs_not_rounds"] if abs(case.estimate - 1) > 0.1}
    assert missed == {"batches of 6000 against 1, sigma = 1", "batches of 6000 against 1, sigma = 2"}
    missed = {case.case for case in cases["epochs_simple"] if abs(case.estimate - 1) > 0.1}
    assert missed == {"E = 20, sigma = 1", "E = 20, sigma = 2"}
    above = {case.case for case in cases["epochs_bounds"] if case.estimate > 1.5}
    assert above == {f"E = {epochs}, sigma = 1" for epochs in (20, 50, 100, 200)}
    assert sum(case.estimate > 1 for case in cases["epochs_bounds"]) == 9


def test_rounds_would_count_if_batches_did(verdict, weaker):
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
def test_groups_follow_the_growth(verdict, weaker, claim, power, expected):
    weaker("dpsgd_guarantee", lambda *, group_size, **run: tradeoff.Gaussian(0.5 * group_size**power))
    assert verdict(claim) is expected


def test_shuffled_groups_exceed_what_is_stated_flatly_and_single_records_do_not(verdict):
    assert [claims.group_shuffled(15.0, 256, g).estimate > claims.group_shuffled(15.0, 256, g).target * 1.01
            for g in (1, 2, 4)] == [False, True, True]  # fmt: skip
    assert verdict("group_shuffled") is Verdict.REFUTED
    assert verdict("group_shuffled_about") is Verdict.WEAKER


@pytest.mark.parametrize("batch", [16, 256])
def test_batch_normalisation_breaks_the_sensitivity_and_layer_normalisation_keeps_it(batch):
    assert claims.batch_norm(batch).estimate > 10
    assert -0.01 < claims.layer_norm(batch).estimate <= 1e-5
    # Normalised one by one, the other records cancel whatever the batch: to the digits that every processor shares.
    assert claims.layer_norm(batch).estimate == pytest.approx(claims.layer_norm(2).estimate, rel=1e-9)


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
    write_table(FIGURES["samplers"].data(Results(results.folder)), results.folder / "figures" / f"{KEY}_samplers.csv")
    judgement = judged("fixed_batches_cost_two", results)
    assert judgement.verdict is expected
    assert next(each.case.estimate for each in judgement.cases if each.status is Status.BESIDE) == 1.5
    assert len([each for each in judgement.cases if each.status is not Status.BESIDE]) == len(data) / 4


@pytest.mark.slow
def test_verdicts(results):
    verdicts = evaluate(KEY, results)[0].set_index("claim")
    named = {each: set(verdicts.index[verdicts["verdict"] == each]) for each in Verdict}
    assert named[Verdict.REFUTED] == {"clt_a1", "group_shuffled"}  # the second is a question of ours
    assert named[Verdict.WEAKER] == {
        "epochs_bounds", "epochs_not_rounds", "epochs_simple", "group", "group_shuffled_about",
    }  # fmt: skip
    assert named[Verdict.UNDECIDED] == {"dpsgd_tight", "fixed_batches_cost_two"}
    # Nothing was trained here.
    trained = {"batch_scaling", "last_epoch_accuracy", "arsinh_accuracy", "asynchronous", "private_normalisation"}
    assert trained <= named[Verdict.NOT_RUN] and all(map(math.isnan, verdicts.loc[list(trained), "estimate"]))


@pytest.fixture
def trained_and_judged(trained, judged):
    """Return a function that makes a figure's data from runs, and judges a claim."""

    def judge(claim, figure, runs, stand_in_for=""):
        results = trained(runs, stand_in_for)
        write_table(FIGURES[figure].data(results), results.folder / "figures" / f"vandijk2023_{figure}.csv")
        return judged(claim, results)

    return judge


@pytest.mark.parametrize(
    ("cost", "verdict"),
    [
        ({}, Verdict.AS_STATED),
        ({"late_64": 20.0, "reordered_16": 20.0}, Verdict.AS_STATED),  # large delays may cost accuracy
        ({"late_4": 0.9}, Verdict.AS_STATED),
        ({"late_4": 3.0}, Verdict.REFUTED),
    ],
)
def test_small_delays_may_cost_a_point(trained_and_judged, asynchrony_runs, cost, verdict):
    assert trained_and_judged("asynchronous", "asynchrony", asynchrony_runs(cost)).verdict is verdict


@pytest.mark.parametrize(
    ("cost", "verdict"),
    [({}, Verdict.REFUTED), ({"late_64": 0.5}, Verdict.WEAKER), ({"late_64": 20.0}, Verdict.AS_STATED)],
)
def test_large_delays_have_to_cost_a_point_once(trained_and_judged, asynchrony_runs, cost, verdict):
    assert trained_and_judged("asynchronous_large_delays", "asynchrony", asynchrony_runs(cost)).verdict is verdict


def attacks(*right: int, noise_multiplier: float = 2.63523) -> pd.DataFrame:
    """A row an attack on 24 rounds that state an epsilon of 2, with so many right calls among 1,024, the last on batch
    normalisation."""
    rows = [
        {"scenario": name, "epsilon": 2.0, "seed": 0, "true_positives": count, "false_positives": 60,
         "positives": 1024, "claimed_epsilon": 1.9996, "known_bad": name == "bad", "delta": 1e-5, "confidence": 0.95,
         "noise_multiplier": noise_multiplier, "batch_size": 50, "steps": 24, "records": 600}
        for name, count in zip(("synchronous", "late_8", "bad"), right, strict=True)
    ]  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("right", "noise_multiplier", "verdict"),
    [
        ((100, 150, 1000), 2.63523, Verdict.AS_STATED),
        ((100, 900, 1000), 2.63523, Verdict.REFUTED),  # ln(900/60) = 2.7
        ((100, 150, 1000), 2.6, Verdict.UNDECIDED),  # an upper bound above the statement refutes nothing
    ],
)
def test_an_accountant_shows_the_guarantee_and_only_an_attack_above_it_refutes_it(
    judged, stored, right, noise_multiplier, verdict
):
    rows = attacks(*right, noise_multiplier=noise_multiplier)
    judgement = judged("asynchronous_guarantee", stored("tables", "canaries", rows))
    assert judgement.verdict is verdict
    beside = [each.case for each in judgement.cases if each.status is Status.BESIDE]
    assert "falsely" in beside[-1].case and beside[-1].estimate > 2.0
    assert len(beside) == (2 if verdict is Verdict.REFUTED else 3)


def test_an_attack_refutes_at_95_per_cent_for_all_attacks_together(judged, stored):
    # Alone at 95 % this one bound is above 1.9996; beside another one it is not.
    rows = attacks(100, 610, 1000)
    alone = epsilon_lower_bound(TestErrors(610, 1024, 60, 1024), delta=1e-5, confidence=0.95)
    assert alone > 1.9996
    assert judged("asynchronous_guarantee", stored("tables", "canaries", rows)).verdict is Verdict.AS_STATED


@pytest.mark.parametrize(
    ("claim", "cost", "verdict"),
    [
        ("distance_guard", {"late_16": 9.0, "dropped_98": 9.0}, Verdict.AS_STATED),
        ("distance_guard", {"late_16_near": 9.0, "dropped_98_near": 9.0}, Verdict.REFUTED),
        ("subsets", {"asked_50": 0.5, "asked_20": 0.9}, Verdict.AS_STATED),
        ("subsets", {"asked_20": 3.0}, Verdict.REFUTED),
    ],
)
def test_guards_and_subsets_are_judged_by_their_own_scenarios(
    trained_and_judged, asynchrony_runs, claim, cost, verdict
):
    judgement = trained_and_judged(claim, "asynchrony", asynchrony_runs(cost))
    assert judgement.verdict is verdict and len([each for each in judgement.cases if each.case.n]) >= 2


LOOP = {"epsilon": 2.0, "learning_rate": 4.0, "epochs": 40, "delay": 64.0, "scenario": "late_64"}


@pytest.mark.parametrize(
    ("claim", "changed", "lost", "verdict"),
    [
        ("delay_closings", {}, 9.0, Verdict.AS_STATED),
        ("delay_closings", {}, 1.0, Verdict.REFUTED),
        ("delay_few_closings", {"epochs": 2, "scenario": "late_16"}, 1.0, Verdict.AS_STATED),
        ("delay_few_closings", {"epochs": 2, "scenario": "late_16"}, 3.0, Verdict.REFUTED),
        ("delay_small_steps", {"epochs": 10, "scenario": "late_16", "learning_rate": 0.25}, 1.0, Verdict.AS_STATED),
        ("delay_small_steps", {"epochs": 10, "scenario": "late_16", "learning_rate": 0.25}, 3.0, Verdict.REFUTED),
    ],
)
def test_the_loop_is_judged_at_the_end_against_the_same_steps(trained_and_judged, claim, changed, lost, verdict):
    late = LOOP | changed
    runs = [
        ("delay_loop", cell, 80 - points, 2.0, 1.0)
        for cell, points in (
            (late, lost),
            (late | {"scenario": "synchronous"}, 0),
            (late | {"learning_rate": 99.0}, 50),
        )
    ]
    judgement = trained_and_judged(claim, "delay_loop", runs)
    assert judgement.verdict is verdict and len(judgement.cases) == 1


@pytest.mark.parametrize(("gain", "verdict"), [(4.0, Verdict.AS_STATED), (-4.0, Verdict.REFUTED)])
def test_mixing_is_judged_where_clients_are_mislabelled(trained_and_judged, gain, verdict):
    runs = [
        ("mixing", {"mixing": mixing, "mislabelled": share, "epsilon": 2.0}, 80 + points, 2.0, 1.0)
        for mixing, share, points in (
            ("uniform", 0.0, 0),
            ("judged", 0.0, -9),
            ("uniform", 0.3, 0),
            ("judged", 0.3, gain),
        )
    ]
    judgement = trained_and_judged("mixing", "mixing", runs)
    assert judgement.verdict is verdict and [each.status for each in judgement.cases].count(Status.BESIDE) == 1


@pytest.mark.parametrize(("lost", "verdict"), [(0.5, Verdict.AS_STATED), (5.0, Verdict.REFUTED)])
def test_the_best_of_the_chapters_clip_norms_is_compared_with_one(trained_and_judged, lost, verdict):
    cells = {(1.0, 4.0): 0, (3.0, 4.0): 9, (0.1, 4.0): -lost, (0.01, 4.0): -20, (0.001, 400.0): -15}
    runs = [
        ("settings_grid", {"sigma": 1.0, "batch_size": 16, "clip_norm": clip, "learning_rate": step,
                           "privacy_records": 96}, 80 + gain, 2.0, 1.0)
        for (clip, step), gain in cells.items()
    ]  # fmt: skip
    judgement = trained_and_judged("chapter_values", "settings_grid", runs)
    assert judgement.verdict is verdict and "C = 0.1" in judgement.cases[0].case.case


def test_stand_ins_settle_nothing(trained_and_judged, asynchrony_runs):
    judgement = trained_and_judged("asynchronous", "asynchrony", asynchrony_runs({}), stand_in_for="mnist")
    assert judgement.verdict is Verdict.UNDECIDED and "would be 'as stated'" in judgement.reason


@pytest.mark.parametrize(
    ("claim", "lost", "verdict"),
    [
        ("batch_scaling", 0.5, Verdict.AS_STATED),
        ("batch_scaling", 5.0, Verdict.REFUTED),
        ("batch_scaling_epochs", 0.5, Verdict.REFUTED),
    ],
)
def test_batch_scaling_is_judged_by_rounds_and_by_epochs(trained_and_judged, claim, lost, verdict):
    runs = [
        ("batch_scaling", {"scaling": scaling, "batch_factor": factor}, 80 - drop, 2.0 / factor, 1.0)
        for scaling, drops in (("rounds", (0, 0, lost)), ("epochs", (0, 9, 9)))
        for factor, drop in zip((1, 2, 4), drops, strict=True)
    ]
    judgement = trained_and_judged(claim, "batch_scaling", runs)
    assert judgement.verdict is verdict and [each.status for each in judgement.cases].count(Status.BESIDE) == 3


def strategy_runs(gains):
    """Runs of each strategy: (points over the constant one, epsilon spent)."""
    return [
        ("strategies", {"strategy": name, "epsilon": 2.0}, 80 + gain, spent, 1.0)
        for name, (gain, spent) in {"constant": (0, 2.0), **gains}.items()
    ]


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [("last_epoch_accuracy", Verdict.AS_STATED), ("last_epoch_equal_budget", Verdict.REFUTED)],
)
def test_the_last_epoch_helps_or_not_paid_and_unpaid(trained_and_judged, claim, verdict):
    runs = strategy_runs({"last_epoch": (-2, 2.0), "last_epoch_unpaid": (3, 6.0)})
    judgement = trained_and_judged(claim, "strategies", runs)
    assert judgement.verdict is verdict
    if claim == "last_epoch_accuracy":
        assert judgement.cases[-1].case.estimate == pytest.approx(3.0)  # six where two were asked for


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [((2, -3), Verdict.AS_STATED), ((0.5, -3), Verdict.WEAKER), ((-1, -3), Verdict.REFUTED)],
)
def test_arsinh_noise_may_help_if_it_does_once_by_a_point(trained_and_judged, gains, verdict):
    runs = strategy_runs({"arsinh_2": (gains[0], 2.0), "arsinh_4": (gains[1], 2.0)})
    judgement = trained_and_judged("arsinh_accuracy", "strategies", runs)
    assert judgement.verdict is verdict
    assert judgement.cases[-1].status is Status.BESIDE and judgement.cases[-1].case.estimate > 1  # a round costs more


@pytest.mark.parametrize("name", ["adaptive_clip", "batch_clip"])
@pytest.mark.parametrize(("gain", "verdict"), [(2, Verdict.AS_STATED), (-2, Verdict.REFUTED)])
def test_a_strategy_is_judged_by_itself(trained_and_judged, name, gain, verdict):
    runs = strategy_runs({"adaptive_clip": (-9 * gain, 2.0), "batch_clip": (-9 * gain, 2.0)} | {name: (gain, 2.0)})
    assert trained_and_judged(name, "strategies", runs).verdict is verdict


@pytest.mark.parametrize(("gain", "verdict"), [(4, Verdict.AS_STATED), (-4, Verdict.REFUTED)])
def test_layer_normalisation_is_judged_and_that_of_batches_is_beside(trained_and_judged, gain, verdict):
    cells = {"none": 80, "layer_normalised": 80 + gain, "batch_normalised": 95}
    runs = [("preparation", {"preparation": name, "epsilon": 2.0}, level, 2.0, 1.0) for name, level in cells.items()]
    judgement = trained_and_judged("layer_norm_accuracy", "preparation", runs)
    assert judgement.verdict is verdict and [each.status for each in judgement.cases].count(Status.BESIDE) == 1


@pytest.mark.parametrize(("gain", "verdict"), [(4, Verdict.AS_STATED), (-4, Verdict.REFUTED)])
def test_normalisation_is_judged_by_what_can_fail(trained_and_judged, gain, verdict):
    cells = {"none": (80, 2.0, 1.0), "normalised": (80 + gain, 2.0, 1.2), "normalised_exactly": (85, math.inf, 1.0)}
    runs = [
        ("preparation", {"preparation": name, "epsilon": 2.0}, level, spent, own)
        for name, (level, spent, own) in cells.items()
    ]
    judgement = trained_and_judged("private_normalisation", "preparation", runs)
    assert judgement.verdict is verdict
    beside = [each.case for each in judgement.cases if each.status is Status.BESIDE]
    assert beside[0].estimate == pytest.approx(1.2) and "no guarantee covers" in beside[1].case


def test_what_fixed_batches_cost_in_accuracy_is_shown(trained):
    runs = [
        ("samplers", {"sampling": sampling, "neighbouring": relation, "epsilon": 1.0}, level, 1.0, 1.0)
        for sampling, relation, level in (
            ("fixed_without_replacement", "replace_one", 80),
            ("poisson", "zero_out", 83),
        )
    ]
    results = trained(runs)
    write_table(FIGURES["samplers"].data(results), results.folder / "figures" / "vandijk2023_samplers.csv")
    assert [case.estimate for case in claims._samplers_trained(results)] == [pytest.approx(3.0)]


@pytest.mark.parametrize(
    ("claim", "figure"),
    [
        ("asynchronous", "asynchrony"),
        ("distance_guard", "asynchrony"),
        ("subsets", "asynchrony"),
        ("mixing", "mixing"),
        ("delay_closings", "delay_loop"),
        ("chapter_values", "settings_grid"),
        ("batch_scaling", "batch_scaling"),
        ("private_normalisation", "preparation"),
        ("last_epoch_accuracy", "strategies"),
    ],
)
def test_what_was_not_run_is_not_run(trained_and_judged, claim, figure):
    assert trained_and_judged(claim, figure, [("other", {}, 80.0, 2.0, 1.0)]).verdict is Verdict.NOT_RUN
