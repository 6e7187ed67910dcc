"""Rates: planted powers and their verdicts, the rate of a run by hand, the worst of a family, and privacy for free."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpfl.accounting import gaussian_dp
from dpfl.errors import InputError
from dpfl.papers.lowy2021 import theory_rates
from dpfl.reporting.results import Results
from dpfl.reporting.rules import Status, Verdict

SIZES = {"clients": 700, "records": 16, "epsilon": 2.0, "features": 4, "rounds": 2**15, "delta": 1e-13}
SIZES |= {"noise_multiplier": 2 * math.sqrt(2**15) / float(gaussian_dp.mu(2.0, 1e-13)), "clip_norm": 1.0}
VALUES = {"clients": (700, 1400, 2800), "records": (8, 16), "epsilon": (1.0, 2.0, 4.0), "features": (2, 4, 8)}
CLAIMS = {
    "convex_rate": ("rates_convex", "theory_rates", "theorem", 1),
    "strongly_convex_rate": ("rates_strongly_convex", "theory_rates", "theorem", 1),
    "one_pass_rate": ("rates_one_pass_convex", "theory_one_pass_rates", "theorem", 1),
    "convex_lower_bound_measured": ("bounds_convex", "theory_lower_bounds", "tight", -1),
    "strongly_convex_lower_bound_measured": ("bounds_strongly_convex", "theory_lower_bounds", "tight", -1),
}


def rows_of(study: str, noise: str, extra: float = 0.0, **changes) -> list[dict]:
    """Risks of 3 times both terms, times the axis' value to the power `extra`; and those of an easier member."""
    rows = []
    for axis, values in VALUES.items():
        for value in values:
            run = {"study": study, "noise": noise, "axis": axis, **SIZES, "strong_convexity": 0.5, **changes}
            run |= {axis: value, "step_logarithm": 2.0 + math.log(value)}
            run["mean_inverse_participants"] = 1 / run["clients"]
            both = theory_rates.terms(study, pd.Series({"radius": 1.0, "smoothness": 0.5, **run}))
            for signal, share in ((0.5, 1.0), (0.25, 0.3)):
                rows.append({**run, "signal": signal, "excess_risk": 3 * share * sum(both) * value**extra})
    return rows


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_risk_that_scales_as_the_rate_does_holds_and_one_that_does_not_is_refuted(made_up, written, judged, claim):
    study, figure, noise, sign = CLAIMS[claim]
    for extra, verdict in ((0.0, Verdict.AS_STATED), (-0.5 * sign, Verdict.AS_STATED), (0.5 * sign, Verdict.REFUTED)):
        results = made_up(rows_of(study, noise, extra))
        points = written(results, figure)
        if not extra:
            assert points["shape"].tolist() == pytest.approx(points["excess_risk"].tolist(), rel=0.03)
        assert judged(claim, results).verdict is verdict, extra


def test_a_panel_is_marked_where_the_title_counts_it_out(made_up, drawn):
    rows = [row for row in rows_of("rates_convex", "theorem", 0.5) if row["axis"] == "clients"]
    rows += [row for row in rows_of("rates_convex", "theorem") if row["axis"] == "epsilon"]
    recipe = theory_rates.FIGURES["theory_rates"]
    points = drawn(made_up(rows), "theory_rates")
    marked = [panel.get_title().count("(differs)") for panel in recipe.draw(points).axes if panel.get_title()]
    assert sorted(marked) == [0, 1] and "1 of 2 panels" in theory_rates.rates_message(points, theory_rates.NOISES)


def test_a_constant_that_makes_one_term_the_larger_does_not_refute_a_rate(made_up, written, judged):
    """Risks of 300 times the private term of (4): the quotient with the whole rate grows with d, and (4) holds."""
    rows = [{**row, "excess_risk": 300 * theory_rates.terms("rates_convex", pd.Series({"radius": 1.0, **row}))[1]}
            for row in rows_of("rates_convex", "theorem")]  # fmt: skip
    results = made_up(rows)
    points = written(results, "theory_rates")
    features = points[points["axis"] == "features"].sort_values("value")
    assert (features["excess_risk"] / (features["statistical"] + features["private"])).is_monotonic_increasing
    assert judged("convex_rate", results).verdict is Verdict.AS_STATED


def test_the_terms_of_a_run_by_hand():
    """(4) with its logarithm's root, and (5) with both logarithms; the least noise has none of Theorem 2.1's."""
    own = {**SIZES, "radius": 0.5, "clip_norm": 2.0, "strong_convexity": 0.1, "smoothness": 3.0, "noise": "theorem"}
    run = pd.Series({**own, "mean_inverse_participants": 1 / 700, "step_logarithm": 6.0})
    log, noise = math.log(2 / 1e-13), math.log(2.5 * 2**15 / 1e-13)
    scale, square = 2 * 0.5 / math.sqrt(700), 4 / 0.1 / 700
    private = scale * math.sqrt(4 * log) / 32, square * 4 * log / 32**2
    assert theory_rates.terms("rates_convex", run) == pytest.approx((scale / 4, private[0] * math.sqrt(noise)))
    strongly = theory_rates.terms("rates_strongly_convex", run)
    assert strongly == pytest.approx((6 * square / 16, 6 * private[1] * noise))
    assert theory_rates.terms("rates_one_pass_convex", run)[0] == pytest.approx(3 * 0.5**2 / 16**2)
    run["noise"] = "tight"
    assert theory_rates.terms("rates_convex", run) == pytest.approx((scale / 4, private[0]))
    assert theory_rates.terms("bounds_convex", run) == pytest.approx((1 / math.sqrt(11200), 2 / 32 / math.sqrt(700)))


@pytest.mark.parametrize(
    ("changes", "speaks"),
    [
        ({}, True),
        ({"clients": 500}, False),
        ({"rounds": 50}, False),
        ({"records": 300}, False),
        ({"delta": 1e-9}, False),
    ],
)
def test_where_theorem_3_1_speaks(changes, speaks):
    """Too few clients; rounds that spend over 1/n each; with 300 records that too; a delta over 0.01 / (n N)^2."""
    run = SIZES | changes
    run["noise_multiplier"] = 2 * math.sqrt(run["rounds"]) / float(gaussian_dp.mu(run["epsilon"], run["delta"]))
    assert theory_rates.lower_bound_applies(pd.Series(run)) is speaks


def test_an_axis_of_which_the_theorem_does_not_speak_stands_beside(made_up, written, judged):
    results = made_up(rows_of("bounds_convex", "tight", clients=500))
    written(results, "theory_lower_bounds")
    judgement = judged("convex_lower_bound_measured", results)
    counted = {each.case.case for each in judgement.cases if each.status is not Status.BESIDE}
    assert counted == {"convex, worst of the family, clients, least noise"}


def test_a_point_is_the_worst_member_at_its_own_place(made_up):
    """The member that is the easier one elsewhere is the worst with 8 records."""
    row = {"study": "rates_convex", "axis": "records"}
    risks = {(4, 0.5): 0.4, (4, 0.25): 0.2, (8, 0.5): 0.2, (8, 0.25): 0.3}
    starts = {0.5: 0.45, 0.25: 0.25}
    results = made_up(
        [
            {**row, "records": n, "signal": signal, "excess_risk": risk, "start_risk": starts[signal]}
            for (n, signal), risk in risks.items()
        ]
    )
    points = theory_rates.points(results).set_index("value")
    for records, worst in ((4, 0.5), (8, 0.25)):
        own = results.runs("lowy2021").query(f"records == {records} and signal == {worst}")["excess_risk"]
        low, high = stats.t.interval(0.9, 7, loc=own.mean(), scale=stats.sem(own))
        point = points.loc[records]
        assert (point["excess_risk"], point["interval"]) == pytest.approx((own.mean(), (high - low) / 2))
        assert point["start_risk"] == pytest.approx(starts[worst]) and point["seeds"] == 8
    fits = theory_rates.slopes(results)
    assert fits[["worse_than_start", "points"]].values.tolist() == [[1, 2]]


def test_the_figures_and_the_table_show_every_axis(made_up, drawn):
    rows = rows_of("rates_convex", "theorem") + rows_of("rates_convex", "tight")
    results = made_up([*rows, *rows_of("rates_strongly_convex", "theorem")])
    points = drawn(results, "theory_rates")
    assert len(points) == 3 * sum(map(len, VALUES.values()))
    figure = theory_rates.FIGURES["theory_rates"].draw(points)
    labels = {text.get_text() for text in figure.legends[0].get_texts()}
    names = ("the theorem's noise", "least noise")
    assert labels == {f"{what}, {noise}" for what in ("measured", "terms of the rate, fitted") for noise in names}
    slopes = theory_rates.TABLES["theory_slopes"]
    page = slopes.page(slopes.data(results))
    assert page.body["equation"].tolist() == ["(4)"] * 8 + ["(5)"] * 4
    assert page.body["risk over rate"].str.match(r"(2\.9|3)\S* to (2\.9|3)").all()


@pytest.mark.parametrize(
    ("power", "logarithm", "verdict"),
    [(0.0, 0.0, Verdict.AS_STATED), (0.5, 0.0, Verdict.REFUTED), (0.5, 0.5, Verdict.AS_STATED)],
)
def test_privacy_is_free_where_the_ratio_does_not_grow(made_up, drawn, judged, power, logarithm, verdict):
    """Private over non-private risk of 4 n^power, of which n^logarithm comes from the step size and does not count; the
    private worst member is not the other one's."""
    rows = []
    for n in (4, 16, 64):
        for signal, private, free in ((0.5, 1.0, 0.1), (0.25, 0.2, 0.25)):
            row = {"study": "free_convex", "axis": "records", "records": n, "features": 4, "signal": signal}
            row["step_logarithm"] = 3 * n**logarithm
            rows.append({**row, "epsilon": math.sqrt(4 / n), "excess_risk": private * n**power / n})
            rows.append({**row, "epsilon": math.inf, "excess_risk": free / n})
    results = made_up(rows)
    points = drawn(results, "theory_free")
    assert points["ratio"].tolist() == pytest.approx([4 * n**power for n in (4, 16, 64)], rel=0.03)
    judgement = judged("privacy_for_free_measured", results)
    assert judgement.verdict is verdict
    assert judgement.cases[0].case.estimate == pytest.approx(power - logarithm, abs=0.02)
    beside = [each.case for each in judgement.cases if each.status is Status.BESIDE]
    assert len(beside) == 3 + bool(logarithm)
    if logarithm:
        assert beside[0].case.startswith("with its logarithm") and beside[0].estimate == pytest.approx(power, abs=0.02)


# Summaries of the theory studies: powers, intervals, the worst of a family, ratios.


@given(power=st.floats(-3, 3), constant=st.floats(1e-6, 10.0))
def test_a_power_is_found_exactly(power, constant):
    axis = np.array([2.0, 4.0, 16.0])
    seeds = 1 + 0.1 * np.arange(5)
    fitted, half = theory_rates.slope(axis, constant * axis[:, None] ** power * seeds)
    assert fitted == pytest.approx(power, abs=1e-9)
    assert half == pytest.approx(0.0, abs=1e-9)  # a factor shared by a seed's settings leaves the slope alone


def test_a_power_against_numbers_and_against_other_risks():
    """Against numbers their own power is taken off; against risks of the same seeds their shared chance is too."""
    axis, rng = np.array([2.0, 4.0, 16.0]), np.random.default_rng(1)
    chance = 1 + 0.3 * rng.random((3, 9))
    risks = axis[:, None] ** -2.0 * chance
    alone, half = theory_rates.slope(axis, risks)
    over, same = theory_rates.slope(axis, risks, axis**-0.5)
    assert over == pytest.approx(alone + 0.5) and same == pytest.approx(half)
    shared, none = theory_rates.slope(axis, risks, axis[:, None] ** -0.5 * chance)
    assert shared == pytest.approx(-1.5) and none == pytest.approx(0.0, abs=1e-9)


def test_the_slopes_interval_covers():
    """2,000 fits of noisy powers: 90 % intervals cover in 90 % +- 4 % (six standard errors of the count)."""
    rng, axis = np.random.default_rng(0), np.array([1.0, 2.0, 4.0, 8.0])
    risks = axis[:, None] ** -1.0 * (1 + 0.1 * rng.standard_normal((2000, 4, 12)))
    fits = np.array([theory_rates.slope(axis, one) for one in risks])
    assert np.mean(np.abs(fits[:, 0] + 1.0) <= fits[:, 1]) == pytest.approx(0.90, abs=0.04)


def test_where_no_slope_is_known():
    assert all(map(math.isnan, theory_rates.slope([2.0], np.ones((1, 5)))))
    assert all(map(math.isnan, theory_rates.slope([1.0, 2.0], -np.ones((2, 5)))))
    assert math.isnan(theory_rates.slope([1.0, 2.0], np.ones((2, 2)))[1])


def test_intervals_are_students():
    table = pd.DataFrame([[1.0, 2.0, 4.0], [0.0, 0.0, 0.0]])
    low, high = stats.t.interval(0.9, 2, loc=table.loc[0].mean(), scale=stats.sem(table.loc[0]))
    np.testing.assert_allclose(theory_rates.interval(table), [(high - low) / 2, 0.0])
    assert theory_rates.interval(table[[0]]).isna().all()


def test_the_worst_of_a_family_is_chosen_by_its_mean():
    runs = pd.DataFrame(
        [
            (n, scale, seed, risk)
            for n, scale, risks in ((8, 1.0, (1, 2)), (8, 0.5, (5, 0)), (16, 1.0, (3, 3)), (16, 0.5, (0, 1)))
            for seed, risk in enumerate(risks)
        ],
        columns=["records", "signal", "seed", "excess_risk"],
    )
    worst = theory_rates.worst(theory_rates.by_seed(runs, ["records", "signal"]))
    assert worst.loc[(8, 0.5)].tolist() == [5, 0]
    assert worst.loc[(16, 1.0)].tolist() == [3, 3]
    assert len(worst) == 2


def test_a_seed_that_a_setting_lacks_is_left_out():
    runs = pd.DataFrame({"a": [1, 1, 2], "seed": [0, 1, 1], "excess_risk": [1.0, 2.0, 3.0]})
    assert theory_rates.by_seed(runs, ["a"]).columns.tolist() == [1]


def test_ratio_of_paired_risks():
    left, right = pd.Series([2.0, 4.0, 6.0]), pd.Series([1.0, 2.0, 3.0])
    found, half = theory_rates.ratio(left, right)
    assert found == pytest.approx(2.0)
    assert half == pytest.approx(0.0, abs=1e-12)


def test_a_study_that_was_not_run_is_named(tmp_path, as_runs):
    with pytest.raises(InputError, match="shuffle"):
        theory_rates.study(Results(tmp_path, {}), ("shuffle",))
    rows = pd.DataFrame({"experiment": ["ldp_theory", "ldp_theory", "other"], "study": ["shuffle", "rates_x", "nan"]})
    rows["status"] = ["finished", "diverged", "finished"]
    results = as_runs(rows)
    assert len(theory_rates.study(results, ("shuffle",))) == 1
    assert theory_rates.study(results, ("rates_x",)).empty
    assert len(theory_rates.study(results)) == 1
