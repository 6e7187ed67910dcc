"""Evidence for the claims of bhaskar2025, from its tables and figures' data."""

from __future__ import annotations

import itertools
import math

import pandas as pd

from dpfl.papers.bhaskar2025 import side_claims
from dpfl.papers.bhaskar2025.published_cells import LEVEL
from dpfl.papers.bhaskar2025.side_claims import stand_in
from dpfl.reporting.cases import Case, difference, from_interval
from dpfl.reporting.claims import Check
from dpfl.reporting.notes import budget_name, model_name
from dpfl.reporting.results import Results
from dpfl.reporting.rules import ClaimEvidence

COLUMN = ["dataset", "model", "epsilon"]


def tables(results: Results, *numbers: int) -> pd.DataFrame:
    """Return the cells of several published tables with our measurements."""
    return pd.concat([results.table("bhaskar2025", f"table_{number}") for number in numbers])


def named(cell: pd.Series) -> str:
    """Return the data on which a cell ran, or is published, its model and its budget."""
    return f"{cell['ran_on'] or cell['dataset']}, {model_name(cell['model'])}, {budget_name(cell['epsilon'])}"


def printed_gap(first: float, second: float) -> float:
    """Return the difference of two printed accuracies, which have two decimals."""
    return round(first - second, 2)


def accuracy(cell: pd.Series) -> Case:
    """Return the mean accuracy of a cell."""
    return from_interval("", cell["runs"], cell["accuracy_pct"], cell["interval_pct"], level=LEVEL)


def between(name: str, better: pd.Series, worse: pd.Series) -> Case:
    """Return how many points one cell is ahead of another, ours and printed; the two have separate runs."""
    published = printed_gap(better["published_accuracy_pct"], worse["published_accuracy_pct"])
    return difference(name, accuracy(better), accuracy(worse), published=published, stand_in=stand_in(better))


def one_local_epoch(results: Results) -> ClaimEvidence:
    """Return how many points (1, 20) is ahead of each other split of its column, on the seeds that both ran."""
    cells = tables(results, 2, 3, 4).query("epsilon < inf")
    cases = []
    for _, column in cells.groupby(COLUMN, sort=False):
        first = column[column["local_epochs"] == 1].iloc[0]
        others = column[(column["local_epochs"] > 1) & column["over_first_pct"].notna()]
        for _, cell in others.iterrows():
            ahead = from_interval(
                f"{named(cell)}, E = {cell['local_epochs']:g}",
                cell["over_first_runs"],
                -cell["over_first_pct"],
                cell["over_first_interval_pct"],
                level=LEVEL,
                published=printed_gap(first["published_accuracy_pct"], cell["published_accuracy_pct"]),
                stand_in=stand_in(cell),
            )
            cases.append(ahead)
    return ClaimEvidence(cases, missing=int((cells["local_epochs"] > 1).sum()) - len(cases))


def one_local_epoch_printed(results: Results) -> ClaimEvidence:
    """Return how many points (1, 20) is ahead of the best other split in each private column of the printed tables."""
    cells = tables(results, 2, 3, 4).query("epsilon < inf")
    cases = []
    for (dataset, model, epsilon), column in cells.groupby(COLUMN, sort=False):
        others = column[column["local_epochs"] > 1]
        best = others.loc[others["published_accuracy_pct"].idxmax()]
        first = column.loc[column["local_epochs"] == 1, "published_accuracy_pct"].iloc[0]
        ahead = printed_gap(first, best["published_accuracy_pct"])
        name = f"{dataset}, {model_name(model)}, {budget_name(epsilon)}, best other E = {best['local_epochs']:g}"
        cases.append(Case(name, ahead, published=ahead))
    return ClaimEvidence(cases)


def table_5_rows(results: Results) -> list[pd.DataFrame]:
    """Return the rows of Table 5, each as its cells sorted by the number of clients."""
    cells = tables(results, 5).sort_values("clients")
    return [row for _, row in cells.groupby(COLUMN, sort=False)]


def more_clients(results: Results) -> ClaimEvidence:
    """Return how many points each number of clients of Table 5 is ahead of the next smaller one."""
    cases, steps = [], 0
    for row in table_5_rows(results):
        for (_, fewer), (_, more) in itertools.pairwise(row[row["clients"] > 1].iterrows()):
            steps += 1
            if min(fewer["runs"], more["runs"]) > 0:
                cases.append(between(f"{named(more)}, k = {fewer['clients']:g} to {more['clients']:g}", more, fewer))
    return ClaimEvidence(cases, missing=steps - len(cases))


def more_clients_central(results: Results) -> ClaimEvidence:
    """Return how many points the most clients of each row of Table 5 are ahead of the central client.

    To be ahead of it is no failure to come near.
    """
    cases, rows = [], table_5_rows(results)
    for row in rows:
        central, most = row.iloc[0], row.iloc[-1]
        if min(central["runs"], most["runs"]) > 0:
            cases.append(between(f"{named(most)}, k = {most['clients']:g} against central", most, central))
    return ClaimEvidence(cases, missing=len(rows) - len(cases))


def scatter_linear_best(results: Results) -> ClaimEvidence:
    """Return how many points ScatterNet + linear is ahead of the best other model, in each cell where one ran."""
    cells = tables(results, 2, 3, 4)
    cases, places = [], 0
    for _, place in cells.groupby(["dataset", "epsilon", "local_epochs"], sort=False):
        places += 1
        ran = place[place["runs"] > 0]
        own, rivals = ran[ran["model"] == "scatter_linear"], ran[ran["model"] != "scatter_linear"]
        if own.empty or rivals.empty:
            continue
        best = rivals.loc[rivals["accuracy_pct"].idxmax()]
        where = f"{own.iloc[0]['ran_on']}, {budget_name(best['epsilon'])}, E = {best['local_epochs']:g}"
        cases.append(between(f"{where}, over {model_name(best['model'])}", own.iloc[0], best))
    return ClaimEvidence(cases, missing=places - len(cases))


def falls(cells: pd.DataFrame) -> dict[tuple, Case]:
    """Return the points that a column loses from (1, 20) to (20, 1), on shared seeds, by (dataset, model, epsilon)."""
    made = {}
    for key, column in cells.query("epsilon < inf").groupby(COLUMN, sort=False):
        first, last = (column[column["local_epochs"] == epochs].iloc[0] for epochs in (1, 20))
        if math.isnan(last["over_first_pct"]):
            continue
        made[key] = from_interval(
            named(last),
            last["over_first_runs"],
            -last["over_first_pct"],
            last["over_first_interval_pct"],
            level=LEVEL,
            published=printed_gap(first["published_accuracy_pct"], last["published_accuracy_pct"]),
            stand_in=stand_in(last),
        )
    return made


def scatter_linear_robust(results: Results) -> ClaimEvidence:
    """Return the points that ScatterNet + linear loses from (1, 20) to (20, 1)."""
    cells = tables(results, 2, 3, 4)
    own = [case for (_, model, _), case in falls(cells).items() if model == "scatter_linear"]
    columns = cells.query("epsilon < inf and model == 'scatter_linear'").groupby(COLUMN).ngroups
    return ClaimEvidence(own, missing=columns - len(own))


def scatter_linear_most_robust(results: Results) -> ClaimEvidence:
    """Return how many points more than ScatterNet + linear each other model loses from (1, 20) to (20, 1)."""
    cells = tables(results, 2, 3, 4)
    lost = falls(cells)
    cases = []
    for (dataset, model, epsilon), fall in lost.items():
        own = lost.get((dataset, "scatter_linear", epsilon))
        if model != "scatter_linear" and own:
            facts = {"published": printed_gap(fall.published, own.published), "stand_in": fall.stand_in}
            cases.append(difference(fall.case, fall, own, **facts))
    columns = cells.query("epsilon < inf and model != 'scatter_linear'").groupby(COLUMN).ngroups
    return ClaimEvidence(cases, missing=columns - len(cases))


CLAIMS: dict[str, Check] = {
    "one_local_epoch": one_local_epoch,
    "one_local_epoch_printed": one_local_epoch_printed,
    "more_clients": more_clients,
    "more_clients_central": more_clients_central,
    "more_clients_distance": side_claims.more_clients_distance,
    "scatter_linear_best": scatter_linear_best,
    "scatter_linear_robust": scatter_linear_robust,
    "scatter_linear_most_robust": scatter_linear_most_robust,
    "initialisation": side_claims.initialisation,
    "initialisation_print": side_claims.initialisation_print,
    "theorem2_bound": side_claims.theorem2_bound("bound_momentum"),
    "theorem2_bound_epochs": side_claims.theorem2_bound("bound_epochs"),
    "budget_kept": side_claims.budget_kept,
    "budget_kept_overlap": side_claims.budget_kept_overlap,
}
