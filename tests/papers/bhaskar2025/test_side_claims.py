"""Claims on parameters, starts and budgets, judged on figures and tables with known numbers."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from dpfl.reporting.results import Results, write_table
from dpfl.reporting.rules import Status, Verdict

STARTS = {
    "dataset": "mnist", "ran_on": "mnist", "stand_in": False, "model": "cnn_tanh", "published_accuracy_pct": 40.0,
}  # fmt: skip
LOSSES = {("common", math.inf): 1, ("common", 2.93): 20, ("per_client", math.inf): 60, ("per_client", 2.93): 80}
FIGURE = "figures/bhaskar2025_initialisation.csv"
OVERLAP = {
    "dataset": "mnist", "clients": 100, "epsilon": 2.93, "holders_mean": 10.0,
    "epsilon_typical_rdp": 10.2, "epsilon_typical_pld": 9.5,
}  # fmt: skip
CANARIES = {
    "dataset": "mnist", "stand_in_for": "", "epsilon": 2.93, "seed": 0, "known_bad": False,
    "epsilon_lower_bound": 0.4, "claimed_epsilon": 2.6, "refuted": False,
}  # fmt: skip
BROKEN = {**CANARIES, "known_bad": True, "refuted": True}
DRIFT = {"dataset": "mnist", "ran_on": "mnist", "stand_in": False, "model": "scatter_linear", "epsilon": 2.93}
PRIVATE = {"ran_on": "mnist", "epsilon": 2.93, "sampling": "poisson", "runs": 10, "epsilon_proven": 2.6}
PRIVATE |= {"epsilon_refuted": 0.0}


def starts(losses, **more):
    """Accuracy 90 at E = 1 and what is lost at E = 20, by (initialisation, epsilon); seeds shift all cells together."""
    rows = [
        {**STARTS, "initialisation": start, "epsilon": epsilon, "local_epochs": epochs, "rounds": 20 // epochs,
         "accuracy_pct": 90.0 - (loss if epochs == 20 else 0), "local_accuracy_pct": 85.0, **more}
        for (start, epsilon), loss in losses.items()
        for epochs in (1, 20)
    ]  # fmt: skip
    for place, row in enumerate(rows):
        own = np.roll([-0.1, 0.0, 0.1], place)  # what a seed does to this cell alone
        row["run_accuracies_pct"] = json.dumps(
            {seed: row["accuracy_pct"] + 5 * (seed - 1) + own[seed] for seed in range(3)}
        )
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("claim", "changes", "printed", "verdict"),
    [
        ("initialisation", {}, 40.0, Verdict.AS_STATED),
        ("initialisation", {("common", 2.93): 75}, 40.0, Verdict.REFUTED),
        ("initialisation", {("common", 2.93): 60}, 40.0, Verdict.UNDECIDED),
        ("initialisation_print", {}, 40.0, Verdict.AS_STATED),
        ("initialisation_print", {}, 89.0, Verdict.REFUTED),
        ("initialisation_print", {}, math.nan, Verdict.NOT_RUN),
    ],
)
def test_initial_models_explain_the_collapse_only_where_they_cost_more_than_noise(
    tmp_path, judged, claim, changes, printed, verdict
):
    write_table(starts(LOSSES | changes, published_accuracy_pct=printed), tmp_path / FIGURE)
    judgement = judged(claim, Results(tmp_path))
    assert judgement.verdict is verdict
    if claim == "initialisation":
        lost = {each.case.case.split(", ", 2)[2]: each.case.estimate for each in judgement.cases[1:]}
        assert lost["separate starts, without noise"] == pytest.approx(60.0) and len(lost) == 4
        # Within a seed what it does to all cells goes: five points between seeds leave a tenth.
        assert all(each.case.error < 0.2 for each in judgement.cases)


def test_a_print_between_the_runs_counts_the_distance_of_each(tmp_path, judged):
    cells = starts(LOSSES, published_accuracy_pct=85.0)
    runs = {"common": {"0": 84.0, "1": 89.0, "2": 90.0}, "per_client": {"0": 86.0, "1": 80.0, "2": 81.0}}
    last = (cells["local_epochs"] == 20) & np.isinf(cells["epsilon"])
    cells.loc[last, "run_accuracies_pct"] = cells.loc[last, "initialisation"].map(lambda start: json.dumps(runs[start]))
    write_table(cells, tmp_path / FIGURE)
    [case] = [each.case for each in judged("initialisation_print", Results(tmp_path)).cases]
    nearer = np.array([1 - 1, 4 - 5, 5 - 4])
    assert case.estimate == pytest.approx(nearer.mean()) and case.error == pytest.approx(nearer.std(ddof=1) / 3**0.5)


def test_starts_without_a_common_seed_are_not_compared(tmp_path, judged):
    cells = starts(LOSSES)
    own = cells["initialisation"] == "per_client"
    cells.loc[own, "run_accuracies_pct"] = json.dumps({"7": 80.0, "8": 81.0})
    write_table(cells, tmp_path / FIGURE)
    for claim in ("initialisation", "initialisation_print"):
        judgement = judged(claim, Results(tmp_path))
        assert judgement.verdict is Verdict.NOT_RUN and judgement.missing == 1


def drift(clients, distance, local_epochs=1, local=1.0, **more):
    row = {**DRIFT, "clients": clients, "local_epochs": local_epochs, "rounds": 20 // local_epochs, "runs": 10}
    row |= {"reference": "noiseless", "round": "first", "distance": distance, "local_distance": local}
    row |= {"distance_interval": 0.02 * distance, "local_distance_interval": 0.1}
    return {**row, "bound_momentum": 10.0 * local_epochs, "bound_epochs": 0.5, **more}


@pytest.mark.parametrize(
    ("power", "runs", "verdict"),
    [
        (-0.5, 10, Verdict.AS_STATED),
        (-1.0, 10, Verdict.REFUTED),
        (0.0, 10, Verdict.REFUTED),
        (-0.5, 1, Verdict.UNDECIDED),
    ],
)
def test_the_distance_falls_with_the_root_of_the_number_of_clients(stored, judged, power, runs, verdict):
    rows = pd.DataFrame([drift(k, 3 * k**power, runs=runs) for k in (10, 25, 100)])
    judgement = judged("more_clients_distance", stored("figures", "distances", rows))
    assert judgement.verdict is verdict and judgement.cases[0].case.estimate == pytest.approx(power)


def test_the_error_of_a_fitted_power_is_that_of_its_points(stored, judged):
    rows = pd.DataFrame([drift(k, k**-0.5) for k in (10, 1000)])
    case = judged("more_clients_distance", stored("figures", "distances", rows)).cases[0].case
    # ln(d2/d1)/ln(100), each ln d with the error 0.02 of a 95 % half-width over ten runs.
    assert case.error == pytest.approx(math.sqrt(2) * 0.02 / 2.262157 / math.log(100), rel=1e-5)


@pytest.mark.parametrize(
    ("claim", "scale", "verdict"),
    [
        ("theorem2_bound", 1.0, Verdict.AS_STATED),
        ("theorem2_bound", 20.0, Verdict.REFUTED),
        ("theorem2_bound_epochs", 1.0, Verdict.REFUTED),
        ("theorem2_bound_epochs", 0.05, Verdict.AS_STATED),
    ],
)
def test_the_bound_is_two_claims_by_the_reading_of_e(stored, judged, claim, scale, verdict):
    rows = [
        drift(10, 0.3, epochs, local=scale * epochs**0.5, local_distance_interval=0.01 * scale) for epochs in (1, 4, 20)
    ]
    assert judged(claim, stored("figures", "distances", pd.DataFrame(rows))).verdict is verdict


def test_a_distance_counts_where_it_belongs(stored, judged):
    """Powers are those of E = 1 to the noise-free run, a case a round; the bound is held once an E, at few clients."""
    ks = (10, 100)
    rows = [drift(k, k**power, round=round) for round, power in (("first", -0.5), ("last", -0.4)) for k in ks]
    rows += [drift(k, 9.0 * k, local_epochs=5, local=k / 10) for k in ks]
    rows += [drift(k, 9.0 * k, reference="plain") for k in ks]
    results = stored("figures", "distances", pd.DataFrame(rows))
    powers = {each.case.case: each.case.estimate for each in judged("more_clients_distance", results).cases}
    where = "mnist, ScatterNet + linear, after the"
    assert powers == pytest.approx({f"{where} first round": -0.5, f"{where} last round": -0.4})
    held = {each.case.case[-5:]: each.case for each in judged("theorem2_bound", results).cases}
    assert {name: (case.estimate, case.target) for name, case in held.items()} == {"E = 1": (1, 10), "E = 5": (1, 50)}


@pytest.fixture
def budgets(stored):
    """A function that stores Tables 2 to 5, two cells of one budget, one of another and two that say nothing.

    Changes are of one cell of Table 2.
    """

    def store(*canaries: dict, **changes) -> Results:
        silent = [{**PRIVATE, "epsilon": math.inf, "epsilon_proven": math.inf}]
        silent += [{**PRIVATE, "runs": 0, "epsilon_proven": 99.0, "epsilon_refuted": 98.0}]
        for number in (2, 3, 4, 5):
            own = [{**PRIVATE, **(changes if number == 2 else {})}, {**PRIVATE, "epsilon_proven": 2.9}]
            rows = pd.DataFrame([*own, {**PRIVATE, "epsilon": 1.2, "epsilon_proven": 1.1}, *silent])
            stored("tables", f"table_{number}", rows)
        return stored("tables", "canaries", pd.DataFrame(canaries or [CANARIES, BROKEN]))

    return store


def test_a_budget_is_kept_or_open_or_refuted(budgets, judged):
    kept = judged("budget_kept", budgets())
    assert kept.verdict is Verdict.AS_STATED
    assert [each.case.estimate for each in kept.cases if each.status is Status.BESIDE] == [0.4]
    # Of two cells the larger proven epsilon counts.
    proven = [each.case for each in kept.cases if each.status is not Status.BESIDE]
    assert len(proven) == 8 and {(case.estimate, case.target) for case in proven} == {(2.9, 2.93), (1.1, 1.2)}
    assert sum(case.case.endswith("mnist, ε = 2.93, poisson, 2 cells") for case in proven) == 4
    # An upper bound above the budget refutes nothing, a lower one does.
    assert judged("budget_kept", budgets(epsilon_proven=9.0)).verdict is Verdict.WEAKER
    refuted = judged("budget_kept", budgets(epsilon_refuted=9.0))
    assert refuted.verdict is Verdict.REFUTED and refuted.cases[0].case.case.endswith("at least")
    assert refuted.cases[0].case.estimate == 9.0


def test_a_budget_that_canaries_refute_is_not_kept(budgets, judged):
    refuting = {**CANARIES, "epsilon_lower_bound": 3.0, "refuted": True}
    judgement = judged("budget_kept", budgets(refuting, BROKEN))
    assert judgement.verdict is Verdict.REFUTED and judgement.cases[0].case.estimate == 3.0


def test_without_canaries_the_accountants_decide(budgets, judged, tmp_path):
    results = budgets()
    (results.folder / "tables" / "bhaskar2025_canaries.csv").write_text("not_run\nno canaries here\n")
    judgement = judged("budget_kept", results)
    assert judgement.verdict is Verdict.AS_STATED and not judgement.count(Status.BESIDE)


def test_a_record_with_several_clients_spends_more_than_one_budget(stored, judged):
    several = judged("budget_kept_overlap", stored("tables", "overlap", pd.DataFrame([OVERLAP])))
    assert several.verdict is Verdict.REFUTED and several.cases[0].case.estimate == 9.5
    disjoint = {**OVERLAP, "clients": 10, "holders_mean": 1.0, "epsilon_typical_pld": 2.6}
    rows = pd.DataFrame([{**OVERLAP, "epsilon_typical_pld": 2.6}, disjoint])
    judgement = judged("budget_kept_overlap", stored("tables", "overlap", rows))
    assert judgement.verdict is Verdict.AS_STATED
    assert [each.case.case for each in judgement.cases if each.status is Status.BESIDE] == [
        "mnist, k = 10, 1 clients hold a record"
    ]
