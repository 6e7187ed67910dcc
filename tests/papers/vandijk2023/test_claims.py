import math

import numpy as np
import pandas as pd
import pytest

from dpfl.papers.vandijk2023.figures import FIGURES
from dpfl.reporting.claims import evaluate
from dpfl.reporting.evidence import Comparison, Relation, table
from dpfl.reporting.results import Results, write_csv
from dpfl.reporting.rules import Status, Verdict

KEY = "vandijk2023"
CASES = {
    "gdp_duality": ("gdp_duality", "one"),
    "composition": ("composition", "one"),
    "subsampling": ("subsampling", "double conjugate: one"),
    "subsampling_tight": ("subsampling", "a pair attains it: one"),
    "dpsgd_valid": ("dpsgd_tight", "valid: x, sigma = 1"),
    "dpsgd_tight_one_round": ("dpsgd_tight", "tight in one round, sigma = 1"),
    "last_epoch_noise": ("last_epoch_noise", "sqrt(2) in mu, E = 2"),
    "arsinh_noise": ("arsinh_noise", "lighter tail beyond 4 deviations: a = 1"),
}


def comparisons(name: str, off: float) -> pd.DataFrame:
    """Two rows of the claim, one off, and one of every other claim that would refute it."""
    rows = [Comparison(claim, case, Relation.EQUALS, 1.0, 9.0, 1e-6) for other, (claim, case) in CASES.items()
            if other != name]  # fmt: skip
    claim, case = CASES[name]
    rows += [Comparison(claim, f"{case}, again", Relation.EQUALS, 1.0, 1.0 + by, 1e-6) for by in (0.0, off)]
    return table(rows)


@pytest.mark.parametrize("claim", sorted(CASES))
def test_two_routes_decide_and_only_the_claims_own_rows(judged, stored, claim):
    assert judged(claim, stored("tables", "checks", comparisons(claim, 0.0))).verdict is Verdict.AS_STATED
    assert judged(claim, stored("tables", "checks", comparisons(claim, 1.0))).verdict is Verdict.REFUTED


@pytest.mark.parametrize(("reached", "verdict"), [(3.0, Verdict.AS_STATED), (2.5, Verdict.UNDECIDED)])
def test_a_pair_that_stays_below_refutes_no_tightness(judged, stored, reached, verdict):
    checks = table([Comparison("dpsgd_tight", "tight: x, sigma = 1", Relation.EQUALS, 3.0, reached, 1e-3)])
    assert judged("dpsgd_tight", stored("tables", "checks", checks)).verdict is verdict


def epochs(spread: float, ratio: float) -> pd.DataFrame:
    rows = [("batches", "A1", m, 20, 2.0 + spread * k, 1.0) for k, m in enumerate((1, 10, 100))]
    rows += [("batches", "A0", m, 20, 0.1 * m, 1.0) for m in (1, 10)]
    rows += [("epochs", curve, 250, 5, 1.0, mu) for curve, mu in (("A1", ratio), ("h", 1.05), ("h_bar", 0.95))]
    return pd.DataFrame(rows, columns=["panel", "curve", "batch", "epochs", "epsilon", "mu_over_simple"])


@pytest.mark.parametrize(
    ("claim", "spread", "ratio", "verdict"),
    [
        ("epochs_not_rounds", 0.05, 1.5, Verdict.AS_STATED),
        ("epochs_not_rounds", 2.0, 1.0, Verdict.REFUTED),
        ("epochs_simple", 2.0, 1.05, Verdict.AS_STATED),
        ("epochs_simple", 0.0, 1.5, Verdict.REFUTED),
        ("epochs_bounds", 2.0, 1.05, Verdict.AS_STATED),
        ("epochs_bounds", 2.0, 1.14, Verdict.AS_STATED),  # within a tenth of the bound, which is approximate
        ("epochs_bounds", 0.0, 1.16, Verdict.REFUTED),
    ],
)
def test_epochs_follow_the_curves(judged, stored, claim, spread, ratio, verdict):
    assert judged(claim, stored("figures", "epochs_not_rounds", epochs(spread, ratio))).verdict is verdict


@pytest.mark.parametrize(
    ("claim", "power", "verdict"),
    [
        ("group", 0.5, Verdict.AS_STATED),
        ("group", 1.0, Verdict.REFUTED),
        ("group_below_g", 0.9, Verdict.AS_STATED),
        ("group_below_g", 1.0, Verdict.REFUTED),
    ],
)
def test_groups_follow_the_growth(judged, stored, claim, power, verdict):
    groups = np.array([1, 2, 4, 8])
    columns = {"panel": "growth", "batch": 60, "group": groups, "mu_ratio": groups**power, "alpha": 0.0, "beta": 0.0}
    assert judged(claim, stored("figures", "group_privacy", pd.DataFrame(columns))).verdict is verdict


@pytest.mark.parametrize(
    ("needed", "enough", "verdict"),
    [
        (2.0, 2.05, Verdict.AS_STATED),
        (2.0, 2.2, Verdict.UNDECIDED),
        (1.5, 2.2, Verdict.UNDECIDED),
        (1.5, 1.6, Verdict.REFUTED),
        (2.4, 2.6, Verdict.REFUTED),
    ],
)
def test_a_gain_of_two_needs_a_pair_that_forces_it_and_a_proof_that_it_is_enough(
    judged, stored, needed, enough, verdict
):
    factors = {"fixed_pair": needed, "fixed": enough, "poisson": 1.0, "poisson_replace": 1.5}
    rows = [(sampler, factor, 1.0, 1.6) for sampler, factor in factors.items()]
    # A second noise where nothing is decided.
    rows += [(sampler, factor, 0.5, 3.2) for sampler, factor in {**factors, "fixed_pair": 2.0, "fixed": 2.2}.items()]
    names = ["sampler", "noise_over_poisson", "epsilon", "noise_multiplier"]
    data = pd.DataFrame(rows if verdict is not Verdict.AS_STATED else rows[:4], columns=names)
    results = stored("figures", "fixed_against_poisson", data)
    with (results.folder / "figures" / f"{KEY}_samplers.csv").open("w") as stream:
        write_csv(FIGURES["samplers"].data(Results(results.folder)), stream)
    judgement = judged("fixed_batches_cost_two", results)
    assert judgement.verdict is verdict
    assert next(each.case.estimate for each in judgement.cases if each.status is Status.BESIDE) == 1.5
    assert len([each for each in judgement.cases if each.status is not Status.BESIDE]) == len(data) / 4


@pytest.mark.slow
def test_verdicts(results):
    verdicts = evaluate(KEY, results)[0].set_index("claim")
    named = {verdict: set(verdicts.index[verdicts["verdict"] == verdict]) for verdict in Verdict}
    assert not named[Verdict.REFUTED]
    assert named[Verdict.WEAKER] == {"epochs_simple", "epochs_bounds", "group"}
    assert named[Verdict.UNDECIDED] == {"dpsgd_tight", "fixed_batches_cost_two"}
    # Nothing was trained here.
    trained = {"batch_scaling", "last_epoch_accuracy", "arsinh_accuracy", "asynchronous", "private_normalisation"}
    assert trained <= named[Verdict.NOT_RUN] and all(map(math.isnan, verdicts.loc[list(trained), "estimate"]))
