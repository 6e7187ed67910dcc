"""What separate starts cost: claims judged within each seed."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from dpfl.reporting.results import Results, write_table
from dpfl.reporting.rules import Verdict

STARTS = {
    "dataset": "mnist", "ran_on": "mnist", "stand_in": False, "model": "cnn_tanh", "published_accuracy_pct": 40.0,
}  # fmt: skip
FIGURE = "figures/bhaskar2025_initialisation.csv"


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


LOSSES = {("common", math.inf): 1, ("common", 2.93): 20, ("per_client", math.inf): 60, ("per_client", 2.93): 80}


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
