"""Verdicts on the claims of bhaskar2025, from Tables 2 to 5."""

from __future__ import annotations

import pandas as pd

from dpfl.reporting.claims import Outcome, Verdict, counted, on_stand_in
from dpfl.reporting.results import Results

_COLUMN = ["dataset", "model", "epsilon"]


def _tables(results: Results, *numbers: int) -> pd.DataFrame:
    """Return the cells of several published tables with our measurements."""
    return pd.concat([results.table("bhaskar2025", f"table_{number}") for number in numbers])


def _stand_ins(cells: pd.DataFrame) -> pd.Series:
    """Return the names of the stand-ins among the cells that ran."""
    return cells.loc[cells["stand_in"] & (cells["runs"] > 0), "ran_on"]


def one_local_epoch(results: Results) -> Verdict:
    """Count the private columns in which no split beats (1, 20) by more than the interval of (1, 20)."""
    cells = _tables(results, 2, 3, 4).query("epsilon < inf")
    published = ours = complete = 0
    for _, column in cells.groupby(_COLUMN):
        first = column[column["local_epochs"] == 1].iloc[0]
        published += first["published_accuracy_pct"] >= column["published_accuracy_pct"].max()
        if (column["runs"] > 0).all():
            complete += 1
            margin = first["interval_pct"] if first["runs"] >= 2 else 0.0
            ours += first["accuracy_pct"] + margin >= column["accuracy_pct"].max()
    columns = cells.groupby(_COLUMN).ngroups
    evidence = f"private columns in which (1, 20) is best; by the printed numbers {published} of {columns}."
    return on_stand_in(_stand_ins(cells), counted(ours, complete, evidence))


def more_clients(results: Results) -> Verdict:
    """Count the rows of Table 5 in which accuracy never falls with k by more than the two intervals together."""
    cells = _tables(results, 5)
    holds = rows = 0
    for _, row in cells[(cells["clients"] > 1) & (cells["runs"] > 0)].groupby(_COLUMN):
        if len(row) < 2:
            continue
        ordered = row.sort_values("clients")
        margin = ordered["interval_pct"].fillna(0)
        rows += 1
        holds += bool((ordered["accuracy_pct"].diff().dropna() >= -(margin + margin.shift()).dropna()).all())
    evidence = "rows in which accuracy does not fall as clients are added."
    return on_stand_in(_stand_ins(cells), counted(holds, rows, evidence))


def scatter_linear_best(results: Results) -> Verdict:
    """Count the cells in which ScatterNet + linear is the most accurate of the models that ran (two at least)."""
    cells = _tables(results, 2, 3, 4)
    ran = cells[cells["runs"] > 0]
    best = cases = 0
    for _, models in ran.groupby(["dataset", "epsilon", "local_epochs"]):
        if len(models) >= 2 and "scatter_linear" in set(models["model"]):
            cases += 1
            best += models.loc[models["accuracy_pct"].idxmax()]["model"] == "scatter_linear"
    spread = ran[ran["model"] == "scatter_linear"].groupby(_COLUMN)["accuracy_pct"].agg(lambda a: a.max() - a.min())
    largest = f" Its accuracy differs by at most {spread.max():.2f} points between splits." if len(spread) else ""
    evidence = f"cells in which it is the most accurate.{largest}"
    return on_stand_in(_stand_ins(cells), counted(best, cases, evidence))


def budget_kept(results: Results) -> Verdict:
    """Compare both accountants' epsilon with the budget in every private cell that ran."""
    cells = _tables(results, 2, 3, 4, 5).query("epsilon < inf and runs > 0")
    if cells.empty:
        return Verdict(Outcome.NOT_TESTABLE, "No private cell was run.")
    # The calibration stops within 0.01 of its target epsilon, from below.
    kept = (cells["epsilon_rdp"] <= cells["epsilon"]) & (cells["epsilon_pld"] <= cells["epsilon"])
    if not kept.all():
        return Verdict(Outcome.FAILS, f"{(~kept).sum()} of {len(cells)} private cells spend more than their budget.")
    slack = (1 - cells["epsilon_pld"] / cells["epsilon"]).max()
    evidence = (
        f"Both accountants stay within the budget in all {len(cells)} private cells (PLD up to {slack:.0%} below it), "
        "for one client's records and Poisson batches. Open: batches were "
        f"{', '.join(sorted(set(cells['sampling']))).replace('_', ' ')}, clients overlap where k > 10, and no canary "
        "has measured a lower bound yet."
    )
    return Verdict(Outcome.IN_PART, evidence)


CLAIMS = {
    "one_local_epoch": one_local_epoch,
    "more_clients": more_clients,
    "scatter_linear_best": scatter_linear_best,
    "budget_kept": budget_kept,
}
