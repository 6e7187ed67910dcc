"""The theory studies with planted speeds, ratios and noise, against scipy on the same rows and formulas by hand."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import brentq
from scipy.stats import norm

from dpfl.papers.lowy2021 import theory, theory_rates
from dpfl.reporting.rules import Status, Verdict


@pytest.mark.parametrize(
    ("law", "verdicts"),
    [("inverse", (Verdict.AS_STATED, Verdict.AS_STATED)), ("mean", (Verdict.REFUTED, Verdict.UNDECIDED))],
)
def test_availability(made_up, drawn, judged, law, verdicts):
    """Risks that follow the mean of 1/M_r, or of M_r."""
    laws = {"[2]": (2,), "[5]": (5,), "[14]": (14,), "[2, 20, 20]": (2, 20, 20)}
    rows = []
    for text, sizes in laws.items():
        effective = np.mean([1 / size for size in sizes]) if law == "inverse" else 1 / np.mean(sizes)
        rows.append({"study": "availability", "participants": text, "excess_risk": 0.1 * effective})
    results = made_up(rows)
    points = drawn(results, "theory_availability")
    random = points[points["law"] == "random"].iloc[0]
    assert random["same_inverse_ratio"] == pytest.approx(1.0 if law == "inverse" else 5 / 14, rel=0.02)
    assert random["same_mean_ratio"] == pytest.approx(14 / 5 if law == "inverse" else 1.0, rel=0.02)
    assert tuple(judged(claim, results).verdict for claim in ("availability", "availability_not_mean")) == verdicts


def test_a_random_law_is_held_against_the_fixed_ones_with_its_means(made_up):
    """(1/2 + 1/20 + 1/20)/3 = 1/5 and (2 + 20 + 20)/3 = 14; (1/4 + 1/8)/2 is 3/16, of which no number is the root."""
    risks = {"[2]": 0.5, "[5]": 0.2, "[6]": 0.3, "[14]": 0.1, "[2, 20, 20]": 0.4, "[4, 8]": 0.6}
    rows = [{"study": "availability", "participants": text, "excess_risk": risk} for text, risk in risks.items()]
    points = theory.availability_data(made_up(rows)).set_index("participants")
    assert points["law"].to_dict() == {text: "random" if "," in text else "fixed" for text in risks}
    assert points.loc["[2, 20, 20]", ["mean_inverse", "mean"]].tolist() == pytest.approx([1 / 5, 14])
    assert points.loc["[4, 8]", ["mean_inverse", "mean"]].tolist() == pytest.approx([3 / 16, 6])
    ratios = points[["same_inverse_ratio", "same_mean_ratio"]]
    assert ratios.loc["[2, 20, 20]"].tolist() == pytest.approx([0.4 / 0.2, 0.4 / 0.1], rel=0.02)
    assert math.isnan(ratios.loc["[4, 8]", "same_inverse_ratio"])
    assert ratios.loc["[4, 8]", "same_mean_ratio"] == pytest.approx(0.6 / 0.3, rel=0.02)
    assert ratios[points["law"] == "fixed"].isna().all(axis=None)


def test_each_panel_has_its_own_mean_as_axis():
    points = pd.DataFrame(
        {"participants": ["[4]", "[2, 20]"], "law": ["fixed", "random"], "mean_inverse": [0.25, 0.275]}
    )
    points = points.assign(mean=[4.0, 11.0], seeds=8, excess_risk=[0.2, 0.3], interval=0.01)
    left, right = theory.draw_availability(points).axes
    places = [[line.lines[0].get_xdata()[0] for line in axis.containers] for axis in (left, right)]
    assert places == [pytest.approx([0.25, 0.275]), pytest.approx([1 / 4, 1 / 11])]
    assert "Random Mᵣ: one of 2, 20; each as likely." in left.figure.get_supxlabel().replace("\n", " ")


# Algorithm 2 against the better Algorithm 1: planted speeds, and the paired difference by scipy.


@pytest.mark.parametrize("claim", ["acceleration", "acceleration_smooth"])
@pytest.mark.parametrize(("speed", "verdict"), [(2.0, Verdict.AS_STATED), (0.5, Verdict.REFUTED)])
def test_acceleration_follows_the_paired_difference_at_the_theorems_rounds(
    made_up, drawn, judged, claim, speed, verdict
):
    """Algorithm 2 with the risk of `speed` times as many rounds; the theorem's R is 64, and Algorithm 1 has 4 R too."""
    smooth = claim == "acceleration_smooth"
    kind = {"kind": "least_squares" if smooth else "absolute"}
    task = "least squares, convex" if smooth else "absolute loss, condition 1"
    theorem = {"study": "acceleration_theorem", "theorem": 2.3, **kind}
    rows = [
        {"algorithm": algorithm, "rounds": rounds, "epsilon": epsilon, "excess_risk": risk}
        | ({"study": "acceleration", **kind} if rounds < 64 else theorem)
        for epsilon in (1.0, math.inf)
        for rounds in (4, 16, 64)
        for algorithm, risk in (("minibatch", 1 / rounds), ("accelerated", 1 / (speed * rounds)))
    ]
    more = {**theorem, "algorithm": "minibatch", "rounds": 256, "rounds_factor": 4, "epsilon": 1.0}
    results = made_up([*rows, {**more, "excess_risk": 1 / 256}])
    points = drawn(results, "theory_acceleration")
    assert points["plain_minus_this"].notna().sum() == 6
    assert set(points.loc[points["theorem"], "rounds"]) == {64}
    figure = theory.FIGURES["theory_acceleration"].draw(points)
    assert crossed(figure) == ([] if speed > 1 else [4, 16, 64])
    one_seed = points.assign(difference_interval=math.nan)
    assert not crossed(theory.FIGURES["theory_acceleration"].draw(one_seed))
    message = theory.FIGURES["theory_acceleration"].message(points)
    others = "; after other rounds it can lose (crosses)" if speed < 1 else ""
    assert f"in {int(speed > 1)} of 1 problems where " in message
    assert message.endswith(f"loses in {int(speed < 1)}{others}")
    judgement = judged(claim, results)
    assert judgement.verdict is verdict
    [case, *beside] = judgement.cases
    assert case.case.case == f"{task}, 64 rounds"
    assert case.case.estimate == pytest.approx(speed - 1, abs=0.05)  # as a share of Algorithm 2's risk
    assert len(beside) == 2 and {each.status for each in beside} == {Status.BESIDE}
    [longer] = judged("acceleration_more_rounds", results).cases
    assert (longer.status is Status.BESIDE) == smooth  # the theorem is about losses that are not
    assert longer.case.case == f"{task}, 64 rounds against 256"
    other = "acceleration" if smooth else "acceleration_smooth"
    assert judged(other, results).verdict is Verdict.NOT_RUN
    assert longer.case.estimate == pytest.approx(speed / 4 - 1, abs=0.02)


def crossed(figure) -> list[int]:
    """The rounds that the first panel crosses out."""
    return [int(x) for line in figure.axes[0].get_lines() if line.get_marker() == "x" for x in line.get_xdata()]


def test_runs_with_the_theorems_noise_are_another_problem(made_up):
    rows = [{"study": "acceleration_noise", "noise": "theorem", "excess_risk": 0.2},
            {"study": "acceleration", "excess_risk": 0.1}]  # fmt: skip
    tasks = set(theory.acceleration_data(made_up(rows))["task"])
    assert tasks == {"least squares, convex", "least squares, convex, the theorem's noise"}


@pytest.mark.parametrize("better", ["plain", "smoothed"])
def test_the_difference_is_to_the_better_algorithm_1(made_up, better):
    """Both Algorithms 1 on the absolute loss, one of them the better; scipy pairs the seeds."""
    risks = {"plain": 0.3, "smoothed": 0.3} | {better: 0.2}
    row = {"study": "acceleration", "kind": "absolute"}
    results = made_up(
        [
            {**row, "algorithm": "minibatch", "excess_risk": risks["plain"]},
            {**row, "algorithm": "minibatch", "sharpness": 5.0, "excess_risk": risks["smoothed"]},
            {**row, "algorithm": "accelerated", "sharpness": 5.0, "excess_risk": 0.15},
        ]
    )
    points = theory.acceleration_data(results).set_index("curve")
    assert set(points["task"]) == {"absolute loss, condition 1"} and len(points) == 3
    assert points.filter(like="minibatch", axis=0)["plain_minus_this"].isna().all()
    runs = results.runs("lowy2021").set_index("seed")
    fast = runs.loc[runs["algorithm"] == "accelerated", "excess_risk"]
    sharp = (runs["sharpness"] > 0) == (better == "smoothed")
    plain = runs.loc[(runs["algorithm"] == "minibatch") & sharp, "excess_risk"]
    low, high = stats.ttest_rel(plain, fast).confidence_interval(0.9)
    point = points.loc["accelerated_smoothed"]
    assert (point["plain_minus_this"], point["difference_interval"]) == pytest.approx(
        ((low + high) / 2, (high - low) / 2)
    )


def test_rounds_where_algorithm_2_loses_by_chance_are_not_crossed_out():
    point = {"task": "logistic regression, convex", "curve": "accelerated", "seeds": 8, "interval": 0.1}
    point |= {"excess_risk": 0.5, "start_risk": 1.0, "theorem": False}
    lost = {4: (-0.3, 0.2), 16: (-0.1, 0.2), 64: (-0.5, 0.2), 128: (0.3, 0.2)}
    rows = [
        {**point, "epsilon": epsilon, "rounds": rounds, "plain_minus_this": gap, "difference_interval": half}
        for epsilon in (1.0, math.inf)
        for rounds, (gap, half) in ([*lost.items(), (256, (-9.0, 0.1))] if math.isinf(epsilon) else lost.items())
    ]
    figure = theory.draw_acceleration(pd.DataFrame(rows))
    assert crossed(figure) == [4, 64]


# One pass over clients that are alike and that differ: planted ratios and powers, and scipy on the same rows.


@pytest.mark.parametrize(
    ("exponent", "cost", "start", "verdicts"),
    [
        (-0.55, 1.0, 1.0, (Verdict.AS_STATED,) * 3),
        (-0.1, 1.0, 1.0, (Verdict.AS_STATED,) * 3),  # an upper bound: a slower fall does not contradict it
        (0.2, 1.0, 9.0, (Verdict.AS_STATED, Verdict.REFUTED, Verdict.AS_STATED)),
        (-0.5, 3.0, 1.0, (Verdict.REFUTED, Verdict.AS_STATED, Verdict.AS_STATED)),
        (-0.5, 1.0, 1e-3, (Verdict.AS_STATED, Verdict.AS_STATED, Verdict.REFUTED)),
    ],
)
def test_one_pass(made_up, drawn, judged, exponent, cost, start, verdicts):
    """Different clients as good or worse, a risk that falls or rises, that is better or worse than w = 0."""
    rows = [
        {
            "study": "one_pass",
            "algorithm": "one_pass",
            "axis": "clients",
            "clients": clients,
            "spread": spread,
            "start_risk": start,
            "excess_risk": 0.5 * clients**exponent * (cost if spread else 1.0),
        }
        for clients in (4, 16, 64)
        for spread in (0.0, 0.3)
    ]
    results = made_up(rows)
    points = drawn(results, "theory_one_pass")
    assert points["ratio"].unique() == pytest.approx(cost, rel=0.02)
    assert (
        tuple(judged(claim, results).verdict for claim in ("one_pass", "one_pass_falls", "one_pass_learns")) == verdicts
    )


def test_a_point_has_the_mean_of_its_own_federation_and_the_ratio_to_the_other(made_up):
    """Clients that differ have thrice the risk with 4 clients and half of it with 16."""
    risks = {(4, 0.0): 0.2, (4, 0.3): 0.6, (16, 0.0): 0.4, (16, 0.3): 0.2}
    row = {"study": "one_pass", "algorithm": "one_pass", "axis": "clients", "strong_convexity": 0.1}
    results = made_up(
        [
            {
                **row,
                "clients": clients,
                "spread": spread,
                "excess_risk": risk,
                "v_star_squared": spread,
                "start_risk": 3 * risk,
            }
            for (clients, spread), risk in risks.items()
        ]
    )
    points = theory.one_pass_data(results).set_index(["value", "federation"])
    assert set(points["problem"]) == {"strongly convex"} and (points["exponent"] == -1.0).all() and len(points) == 4
    for (clients, spread), risk in risks.items():
        point = points.loc[(clients, "different" if spread else "alike")]
        own = results.runs("lowy2021").query("clients == @clients and spread == @spread")["excess_risk"]
        low, high = stats.t.interval(0.9, 7, loc=own.mean(), scale=stats.sem(own))
        assert (point["excess_risk"], point["interval"]) == pytest.approx((own.mean(), (high - low) / 2))
        assert (point["start_risk"], point["v_star_squared"]) == pytest.approx((3 * risk, spread))
        assert point["ratio"] == pytest.approx(3.0 if clients == 4 else 0.5, rel=0.02)
    slopes = points.groupby("federation")["slope"].first()
    assert slopes.to_dict() == pytest.approx({"alike": 0.5, "different": -0.79}, abs=0.03)  # ln 2 and -ln 3 over ln 4


def test_a_panel_has_the_slope_of_tight_noise_on_clients_that_differ(made_up):
    powers = {(0.0, "tight"): -0.2, (0.3, "tight"): -0.5, (0.0, "theorem"): -0.1, (0.3, "theorem"): -0.9}
    rows = [
        {"study": "one_pass", "axis": "records", "records": records, "spread": spread, "noise": noise,
         "excess_risk": records**power}
        for (spread, noise), power in powers.items()
        for records in (4, 16, 1024)
    ]  # fmt: skip
    figure = theory.draw_one_pass(theory.one_pass_data(made_up(rows)))
    [panel] = figure.axes
    assert panel.get_title().startswith("power -0.50 ±") and panel.get_title().endswith("theorem -0.5")
    assert len(panel.containers) == 4


# A trusted shuffler: planted noise and risks, Theorem 4.1's constant by hand, and scipy on the same rows.


def shuffle_rows(noise: float, clients: tuple[int, ...]) -> list[dict]:
    """Risks of the three models of trust; `noise`: that of the shuffled runs over the central one's."""
    rows = []
    for count in clients:
        trusts = {"nobody": 40.0, "shuffler": 40 * noise / count**0.5, "server": 40 / count**0.5}
        for trust, multiplier in trusts.items():
            own = {"study": "shuffle", "trust": trust, "clients": count, "noise_multiplier": multiplier}
            rows.append({**own, "excess_risk": 1e-5 * multiplier**2 / count})
    return rows


def test_the_constant_of_theorem_4_1(made_up):
    points = theory.shuffle_data(made_up(shuffle_rows(1.2, (16, 64))))
    own = points[(points["trust"] == "shuffler") & (points["clients"] == 16)].iloc[0]
    logarithms = math.log(16 * 16 / 1e-6) * math.log(16 / 1e-6) * math.log(1e6)
    variance = own["implied_constant"] * 16 * 16 * logarithms / (64 * 16) ** 2  # Theorem 4.1 with L = 1, M = N = 16
    assert math.sqrt(variance) * 64 == pytest.approx(own["noise_multiplier"])


@pytest.mark.parametrize(("noise", "verdict"), [(1.2, Verdict.AS_STATED), (5.0, Verdict.REFUTED)])
def test_shuffling_is_judged_where_the_theorems_condition_holds(made_up, written, drawn, judged, noise, verdict):
    few = made_up(shuffle_rows(noise, (16, 64)))
    drawn(few, "theory_shuffle")
    judgement = judged("shuffle_constant", few)
    assert judgement.verdict is Verdict.NOT_RUN and "no setting that was run has over 64" in judgement.reason
    by_accountant = judged("shuffle_by_accountant", few)
    assert by_accountant.verdict is verdict
    powers = [each.case.estimate for each in by_accountant.cases if each.case.case.startswith("power of M")]
    assert powers == [pytest.approx(-0.5)]
    many = made_up(shuffle_rows(noise, (16, 512)))  # 16 ln(18 16 512/1e-6) = 411
    written(many, "theory_shuffle")
    enough = judged("shuffle_near_central", many)
    assert enough.verdict is verdict and "M = 512" in enough.cases[0].case.case


@pytest.mark.parametrize(("noise", "verdict"), [(1.2, Verdict.AS_STATED), (1.4, Verdict.REFUTED)])
def test_the_constant_of_theorem_4_1_may_not_grow_with_the_clients(made_up, written, judged, noise, verdict):
    results = made_up([*shuffle_rows(1.2, (16, 512)), *shuffle_rows(noise, (1024,))])
    written(results, "theory_shuffle")
    judgement = judged("shuffle_constant", results)
    [case] = [each.case for each in judgement.cases if each.status is not Status.BESIDE]
    assert judgement.verdict is verdict and case.case == "M = 1024, R = 16"
    logarithms = [math.log(16 * count / 1e-6) for count in (512, 1024)]  # of R M^2/(N delta); the others are alike
    assert case.estimate == pytest.approx((noise / 1.2) ** 2 * logarithms[0] / logarithms[1])


@pytest.mark.parametrize(("noise", "verdict"), [(1.2, Verdict.AS_STATED), (9.0, Verdict.REFUTED)])
def test_shuffling_has_to_beat_the_local_model(made_up, written, judged, noise, verdict):
    results = made_up(shuffle_rows(noise, (16, 64)))
    written(results, "theory_shuffle")
    assert judged("shuffle_beats_local", results).verdict is verdict


def test_each_trust_model_is_compared_with_nobody_seed_by_seed(made_up):
    results = made_up(shuffle_rows(1.2, (16, 64)))
    points = theory.shuffle_data(results).set_index(["clients", "trust"])
    assert len(points) == 6
    for clients in (16, 64):
        runs = results.runs("lowy2021").query("clients == @clients")
        risks = runs.pivot(index="seed", columns="trust", values="excess_risk")
        for trust in ("shuffler", "server"):
            low, high = stats.ttest_rel(risks["nobody"], risks[trust]).confidence_interval(0.9)
            point = points.loc[(clients, trust)]
            assert point["nobody_minus_this"] == pytest.approx((low + high) / 2)
            assert point["difference_interval"] == pytest.approx((high - low) / 2)
        assert np.isnan(points.loc[(clients, "nobody"), "nobody_minus_this"])


def test_the_theorem_asks_for_a_logarithm_of_clients(made_up):
    """16 ln(18 R M / delta) for R = M = 16 and delta = 1e-6."""
    points = theory.shuffle_data(made_up(shuffle_rows(1.2, (16, 64))))
    least = points.groupby("clients")["least_reports"].first()
    assert least.to_dict() == pytest.approx({m: 16 * math.log(18 * 16 * m / 1e-6) for m in (16, 64)})


# Noise of the theory studies: by the theorems' formulas by hand, and what it spends by the Gaussian's own delta.


def test_noise_by_formula_and_by_accounting(made_up):
    results = made_up(
        [
            {"study": "rates_convex", "excess_risk": 1.0},
            {"study": "one_pass", "algorithm": "one_pass", "excess_risk": 1.0},
        ]
    )
    table = theory_rates.TABLES["theory_noise"]
    rows = table.data(results).set_index("study")
    variance = 256 * 16 * math.log(2.5 * 16 / 1e-6) * math.log(2 / 1e-6) / 64**2
    assert rows.loc["rates_convex", "theorem"] == pytest.approx(64 * math.sqrt(variance))
    assert rows.loc["one_pass", "theorem"] == pytest.approx(math.sqrt(8 * math.log(1.25e6)))
    assert (rows["theorem_spends"] < 1.0).all()
    assert table.page(table.data(results)).body["settings"].tolist() == ["1", "1"]


def spent(mu: float, delta: float) -> float:
    """The epsilon at which a Gaussian whose means are mu deviations apart has this delta."""
    return brentq(lambda e: norm.sf(e / mu - mu / 2) - math.exp(e) * norm.sf(e / mu + mu / 2) - delta, 1e-9, 50)


@pytest.mark.parametrize(("algorithm", "releases"), [("minibatch", 16), ("accelerated", 16), ("one_pass", 1)])
def test_what_the_formula_spends_counts_every_release_of_a_record(made_up, algorithm, releases):
    """Replacing a record moves a sum by two norm bounds: mu = 2 sqrt(releases) / noise."""
    [row] = theory_rates.noise_data(
        made_up([{"study": "acceleration", "algorithm": algorithm, "excess_risk": 1.0, "epsilon": 0.7}])
    ).to_dict("records")
    assert row["theorem_spends"] == pytest.approx(spent(2 * math.sqrt(releases) / row["theorem"], 1e-6), rel=1e-6)
    assert row["theorem_spends"] < 0.7 and (row["tight"], row["tight_spends"]) == (10.0, 1.0)


def test_only_private_runs_with_tight_noise_that_trust_nobody_are_listed_and_each_setting_once(made_up):
    row = {"study": "rates_convex", "excess_risk": 1.0}
    others = [{"noise": "theorem"}, {"trust": "server"}, {"trust": "shuffler"}, {"epsilon": math.inf}]
    left_out = [{**row, "records": 256 + place, **other} for place, other in enumerate(others)]
    results = made_up([*left_out, row, {**row, "clients": 99}, {**row, "records": 128}])
    assert theory_rates.noise_data(results)[["records", "epsilon"]].values.tolist() == [[64, 1], [128, 1]]


def test_the_page_spans_what_a_study_has():
    rows = pd.DataFrame({"study": "shuffle", "algorithm": "one_pass", "epsilon": 2.0, "tight": [3.0, 4.0]})
    rows = rows.assign(theorem=12.0, tight_spends=[1.9, 2.0], theorem_spends=[0.5, 0.25], delta=[1e-6, 1e-13])
    page = theory_rates.noise_page(rows)
    [line] = page.body.to_dict("records")
    assert page.notes[1].startswith("ε at δ = 1e-06 or 1e-13; one record is replaced")
    assert (line["settings"], line["noise, tight"], line["noise, theorem"]) == ("2", "3 to 4", "12")
    assert (line["ε spent, theorem"], line["times looser"]) == ("0.25 to 0.5", "4 to 8")
