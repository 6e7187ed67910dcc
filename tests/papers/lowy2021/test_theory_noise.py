"""Noise of the theory studies: by the theorems' formulas by hand, and what it spends by the Gaussian's own delta."""

import math

import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from dpfl.papers.lowy2021 import theory, theory_rates


def test_noise_by_formula_and_by_accounting(made_up):
    results = made_up(
        [
            {"study": "rates_convex", "excess_risk": 1.0},
            {"study": "one_pass", "algorithm": "one_pass", "excess_risk": 1.0},
        ]
    )
    table = theory.TABLES["theory_noise"]
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
    rows = rows.assign(theorem=12.0, tight_spends=[1.9, 2.0], theorem_spends=[0.5, 0.25])
    [line] = theory_rates.noise_page(rows).body.to_dict("records")
    assert (line["settings"], line["noise, tight"], line["noise, theorem"]) == ("2", "3 to 4", "12")
    assert (line["ε spent, theorem"], line["times looser"]) == ("0.25 to 0.5", "4 to 8")
