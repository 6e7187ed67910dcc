"""Rates of Algorithm 1: planted powers, the worst of a family, and the lower bound as printed."""

import math

import pandas as pd
import pytest
from scipy import stats

from dpfl.papers.lowy2021 import theory, theory_rates


def rate_rows() -> list[dict]:
    """Risks that fall exactly as the theorems say; a second, easier member of the convex family."""
    rows = []
    for name, exponents in theory_rates.EXPONENTS.items():
        for axis, exponent in exponents.items():
            for value in (4, 8, 16):
                risk = 0.1 * value**exponent
                for scale in (1.0, 0.5):
                    own = {"study": name, "axis": axis, axis: value, "scale": scale, "excess_risk": risk * scale}
                    rows.append(own)
    return rows


def test_rates_and_slopes(made_up, drawn):
    results = made_up(rate_rows())
    points = drawn(results, "theory_rates")
    assert len(points) == 2 * 5 * 3
    assert (points["slope"] - points["exponent"]).abs().max() < 0.03
    assert not points["lower_bound_applies"].any()
    slopes = theory.TABLES["theory_slopes"]
    page = slopes.page(slopes.data(results))
    assert len(page.body) == 10
    assert page.body["worse than w = 0"].iloc[0] == "0 of 3"


def test_the_lower_bound_as_printed():
    row = pd.Series({"rounds": 1, "epsilon": 0.01, "clients": 1000, "records": 64, "features": 4, "delta": 1e-6})
    row["clip_norm"], row["radius"] = 2.0, 1.0
    assert theory_rates.lower_bound("rates_convex", row) == pytest.approx(2 * 2 / (0.01 * 64 * math.sqrt(1000)))
    assert theory_rates.lower_bound("rates_strongly_convex", row) == pytest.approx(2 * 4 / (0.64**2 * 1000))
    assert theory_rates.lower_bound("rates_convex", row.replace(1000, 1)) == 2.0
    assert theory_rates.lower_bound_applies(row)
    assert not theory_rates.lower_bound_applies(row.replace(0.01, 0.1))  # a round spends more than 1/n
    assert not theory_rates.lower_bound_applies(row.replace(1000, 100))  # 16 ln(2/(1e-6 64)) = 166 clients


def test_a_point_is_the_worst_member_at_its_own_place(made_up):
    """The member that is the easier one elsewhere is the worst with 8 records."""
    row = {"study": "rates_convex", "axis": "records"}
    risks = {(4, 1.0): 0.4, (4, 0.5): 0.2, (8, 1.0): 0.2, (8, 0.5): 0.3}
    starts = {4: 0.45, 8: 0.25}
    results = made_up(
        [
            {**row, "records": n, "scale": scale, "excess_risk": risk, "start_risk": starts[n] * scale}
            for (n, scale), risk in risks.items()
        ]
    )
    points = theory_rates.data(results).set_index("value")
    for records, worst, start in ((4, 1.0, 0.45), (8, 0.5, 0.25)):
        own = results.runs("lowy2021").query(f"records == {records} and scale == {worst}")["excess_risk"]
        low, high = stats.t.interval(0.9, 7, loc=own.mean(), scale=stats.sem(own))
        point = points.loc[records]
        assert (point["excess_risk"], point["interval"]) == pytest.approx((own.mean(), (high - low) / 2))
        assert point["start_risk"] == pytest.approx(start) and point["seeds"] == 8
    fits = theory_rates.slopes(results)
    assert fits[["worse_than_start", "points"]].values.tolist() == [[1, 2]]


@pytest.mark.parametrize(("power", "within"), [(-1.0, "interval"), (-0.6, "0.40")])
def test_the_page_says_how_far_a_slope_is_from_the_theorem(made_up, power, within):
    """By the theorem the convex risk falls as 1 / records; another power must show."""
    rows = [
        {"study": "rates_convex", "axis": "records", "records": n, "excess_risk": 0.1 * n**power} for n in (4, 8, 1024)
    ]
    page = theory_rates.slopes_page(theory_rates.slopes(made_up(rows)))
    [line] = page.body.to_dict("records")
    assert line["within"] == within and line["theorem"] == "-1" and line["fitted slope"].startswith(f"{power:+.2f} ±")
    assert "over 8 seeds" in page.notes[0]
