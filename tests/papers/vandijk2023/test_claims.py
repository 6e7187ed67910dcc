import numpy as np
import pandas as pd
import pytest

from dpfl.papers.vandijk2023.claims import CLAIMS
from dpfl.papers.vandijk2023.figures import FIGURES
from dpfl.reporting.claims import Outcome, evaluate
from dpfl.reporting.evidence import Comparison, Relation, table
from dpfl.reporting.results import Results, write_csv

KEY = "vandijk2023"
CASES = {
    "gdp_duality": ["one", "two"],
    "composition": ["one", "two"],
    "subsampling": ["double conjugate: one", "a pair attains it: one"],
    "dpsgd_tight": ["valid: x, sigma = 1", "tight: x, sigma = 1", "tight in one round, sigma = 1"],
}


def comparisons(claim: str, off: list[float]) -> pd.DataFrame:
    cases = zip(CASES[claim], off, strict=True)
    return table([Comparison(claim, case, Relation.EQUALS, 1.0, 1.0 + by, 1e-6) for case, by in cases])


@pytest.mark.parametrize("claim", sorted(CASES))
def test_two_routes_decide(stored, claim):
    count = len(CASES[claim])
    for off, outcome in (
        ([0.0] * count, Outcome.HOLDS),
        ([0.0] * (count - 1) + [1.0], Outcome.IN_PART),
        ([1.0] * count, Outcome.FAILS),
    ):
        assert CLAIMS[claim](stored("tables", "checks", comparisons(claim, off))).outcome == outcome


def epochs(spread: float, ratio: float) -> pd.DataFrame:
    rows = [("batches", "A1", m, 20, 2.0 + spread * k, 1.0) for k, m in enumerate((1, 10, 100))]
    rows += [("batches", "A0", m, 20, 0.1 * m, 1.0) for m in (1, 10)]
    rows += [("epochs", curve, 250, 5, 1.0, mu) for curve, mu in (("A1", ratio), ("h", 1.05), ("h_bar", 0.95))]
    return pd.DataFrame(rows, columns=["panel", "curve", "batch", "epochs", "epsilon", "mu_over_simple"])


@pytest.mark.parametrize(
    ("spread", "ratio", "outcome"),
    [(0.0, 1.0, Outcome.HOLDS), (0.0, 1.5, Outcome.IN_PART), (2.0, 1.5, Outcome.IN_PART)],
)
def test_epochs_not_rounds_follows_the_curves(stored, spread, ratio, outcome):
    verdict = CLAIMS["epochs_not_rounds"](stored("figures", "epochs_not_rounds", epochs(spread, ratio)))
    assert verdict.outcome == outcome
    steady = 3 if spread == 0 else 1
    assert f"over batch sizes in {steady} of 3" in verdict.evidence


@pytest.mark.parametrize(("power", "outcome"), [(0.5, Outcome.HOLDS), (1.0, Outcome.FAILS)])
def test_group_follows_the_growth(stored, power, outcome):
    groups = np.array([1, 2, 4, 8])
    columns = {"panel": "growth", "batch": 60, "group": groups, "mu_ratio": groups**power, "alpha": 0.0, "beta": 0.0}
    verdict = CLAIMS["group"](stored("figures", "group_privacy", pd.DataFrame(columns)))
    assert verdict.outcome == outcome
    assert f"{power:.2f} with batches of 60" in verdict.evidence


@pytest.mark.parametrize(("factor", "outcome"), [(2.1, Outcome.HOLDS), (1.2, Outcome.FAILS)])
def test_fixed_batches_follow_the_noise_needed(stored, factor, outcome):
    rows = [("fixed", factor), ("poisson", 1.0), ("poisson_replace", 1.5)]
    data = pd.DataFrame(rows, columns=["sampler", "noise_over_poisson"])
    results = stored("figures", "fixed_against_poisson", data)
    with (results.folder / "figures" / f"{KEY}_samplers.csv").open("w") as stream:
        write_csv(FIGURES["samplers"].data(Results(results.folder)), stream)
    verdict = CLAIMS["fixed_batches_cost_two"](results)
    assert verdict.outcome == outcome and "no run has an interval" in verdict.evidence


@pytest.mark.slow
def test_outcomes(results):
    outcomes = evaluate(KEY, results).set_index("claim")["outcome"]
    holds = {"gdp_duality", "composition", "subsampling", "fixed_batches_cost_two"}
    untested = {"batch_scaling", "asynchronous", "private_normalisation"}  # nothing was trained here
    assert set(outcomes[outcomes == Outcome.HOLDS].index) == holds
    assert set(outcomes[outcomes == Outcome.NOT_TESTABLE].index) == untested
    assert set(outcomes[outcomes == Outcome.IN_PART].index) == set(CLAIMS) - holds - untested
