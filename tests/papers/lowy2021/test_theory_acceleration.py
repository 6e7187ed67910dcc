"""Algorithm 2 against the better Algorithm 1: planted speeds, and the paired difference by scipy."""

import math

import pandas as pd
import pytest
from scipy import stats

from dpfl.papers.lowy2021 import theory
from dpfl.reporting.rules import Status, Verdict


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
    lost = "nowhere" if speed > 1 else f"{task}: R = 4, 16, 64"
    assert figure.get_supxlabel().replace("\n", " ").endswith(f"interval of the difference: {lost}.")
    one_seed = points.assign(difference_interval=math.nan)
    assert "Algorithm 2" not in theory.FIGURES["theory_acceleration"].draw(one_seed).get_supxlabel()
    judgement = judged(claim, results)
    assert judgement.verdict is verdict
    [case, *beside] = judgement.cases
    assert case.case.case == f"{task}, 64 rounds"
    assert case.case.estimate == pytest.approx(speed - 1, abs=0.05)  # as a share of Algorithm 2's risk
    assert len(beside) == 2 and {each.status for each in beside} == {Status.BESIDE}
    [longer] = judged("acceleration_more_rounds", results).cases
    assert longer.case.case == f"{task}, 64 rounds against 256"
    other = "acceleration" if smooth else "acceleration_smooth"
    assert judged(other, results).verdict is Verdict.NOT_RUN
    assert longer.case.estimate == pytest.approx(speed / 4 - 1, abs=0.02)


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


def test_rounds_where_algorithm_2_loses_by_chance_are_not_named():
    point = {"task": "logistic regression, convex", "curve": "accelerated", "seeds": 8, "interval": 0.1}
    point |= {"excess_risk": 0.5, "start_risk": 1.0, "theorem": False}
    lost = {4: (-0.3, 0.2), 16: (-0.1, 0.2), 64: (-0.5, 0.2), 128: (0.3, 0.2)}
    rows = [
        {**point, "epsilon": epsilon, "rounds": rounds, "plain_minus_this": gap, "difference_interval": half}
        for epsilon in (1.0, math.inf)
        for rounds, (gap, half) in ([*lost.items(), (256, (-9.0, 0.1))] if math.isinf(epsilon) else lost.items())
    ]
    figure = theory.draw_acceleration(pd.DataFrame(rows))
    assert figure.get_supxlabel().replace("\n", " ").endswith("difference: logistic regression, convex: R = 4, 64.")
