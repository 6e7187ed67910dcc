"""One pass over clients that are alike and that differ: planted ratios and powers, and scipy on the same rows."""

import pytest
from scipy import stats

from dpfl.papers.lowy2021 import theory
from dpfl.reporting.rules import Verdict


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
    assert panel.get_title().startswith("slope -0.50 ±") and panel.get_title().endswith("theorem: -0.5")
    assert len(panel.containers) == 4
