"""Evidence for the claims of bhaskar2025 on what its tables of accuracy do not show: parameters, starts and budgets."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from dpfl.papers.bhaskar2025.distances import FIRST, NOISELESS
from dpfl.papers.bhaskar2025.initialisation import COMMON, PER_CLIENT
from dpfl.papers.bhaskar2025.paper_runs import table_settings
from dpfl.papers.bhaskar2025.published_cells import LEVEL
from dpfl.reporting.cases import Case, from_interval, from_values
from dpfl.reporting.claims import Check
from dpfl.reporting.notes import model_name
from dpfl.reporting.results import NotRunError, Results
from dpfl.reporting.rules import ClaimEvidence


def stand_in(row: pd.Series) -> str:
    """Return the name of the data of a row where they stand in for others."""
    return str(row["ran_on"]) if str(row["stand_in"]) == "True" else ""


def noise_free_distances(results: Results) -> pd.DataFrame:
    """Return the measured distances to the noise-free run."""
    distances = results.figure("bhaskar2025", "distances")
    return distances[distances["reference"] == NOISELESS]


def more_clients_distance(results: Results) -> ClaimEvidence:
    """Return the powers of k with which the average's distance to the noise-free run goes, at E = 1."""
    law = noise_free_distances(results)
    law = law[law["local_epochs"] == 1]
    cases = []
    for (ran_on, model, round), line in law.groupby(["ran_on", "model", "round"]):
        if line["clients"].nunique() > 1:
            name = f"{ran_on}, {model_name(model)}, after the {round} round"
            cases.append(fitted_power(name, line))
    return ClaimEvidence(cases)


def fitted_power(name: str, line: pd.DataFrame) -> Case:
    """Return the case of the power of k of a line of distances, its error from those of the points (delta method)."""
    logs = np.log(line["clients"].to_numpy(dtype=float))
    weights = (logs - logs.mean()) / ((logs - logs.mean()) ** 2).sum()
    points = [
        from_interval("", row.runs, row.distance, row.distance_interval, level=LEVEL) for row in line.itertuples()
    ]
    errors = np.array([point.error / point.estimate for point in points])
    return Case(
        name,
        float(weights @ np.log(line["distance"])),
        float(np.sqrt(((weights * errors) ** 2).sum())),
        int(line["runs"].min()),
        int(line["runs"].min()) - 1,
        target=-0.5,
        stand_in=stand_in(line.iloc[0]),
    )


def theorem2_bound(column: str) -> Check:
    """Return the check of the clients' distances to their noise-free runs against a bound, by its column."""

    def check(results: Results) -> ClaimEvidence:
        cells = noise_free_distances(results)
        cells = cells[cells["round"] == FIRST]
        # Until the first average nothing depends on how many clients there are, each with a tenth of the records.
        cells = cells.sort_values("clients").drop_duplicates(["ran_on", "model", "epsilon", "local_epochs"])
        return ClaimEvidence(
            [
                from_interval(
                    f"{row['ran_on']}, {model_name(row['model'])}, ε = {row['epsilon']:g}, E = {row['local_epochs']:g}",
                    row["runs"],
                    row["local_distance"],
                    row["local_distance_interval"],
                    level=LEVEL,
                    target=row[column],
                    stand_in=stand_in(row),
                )
                for _, row in cells.iterrows()
            ]
        )

    return check


def starts(results: Results) -> Iterator[tuple[str, dict[tuple[str, float], tuple[pd.Series, pd.Series]], float]]:
    """Yield each model's name, its cells (1, 20) and (20, 1) by (start, budget), and its largest private budget."""
    cells = results.figure("bhaskar2025", "initialisation")
    for (ran_on, model), group in cells.groupby(["ran_on", "model"]):
        private = group.loc[group["epsilon"] < math.inf, "epsilon"].max()
        keys = itertools.product((COMMON, PER_CLIENT), (private, math.inf))
        ends = {key: ends_of(group, *key) for key in keys}
        if all(ends.values()):
            yield f"{ran_on}, {model_name(model)}", ends, private


def ends_of(cells: pd.DataFrame, start: str, epsilon: float) -> tuple[pd.Series, ...]:
    """Return the cells of one local epoch and of one round of one start and budget; nothing unless both are there."""
    column = cells[(cells["initialisation"] == start) & (cells["epsilon"] == epsilon)].sort_values("local_epochs")
    ends = column[(column["local_epochs"] == 1) | (column["rounds"] == 1)]
    return (ends.iloc[0], ends.iloc[-1]) if len(ends) == 2 else ()


def by_seed(cell: pd.Series) -> pd.Series:
    """Return the accuracies of a cell's runs by their seeds."""
    return pd.Series(json.loads(cell["run_accuracies_pct"]), dtype=float)


def loss(ends: tuple[pd.Series, pd.Series]) -> pd.Series:
    """Return the points lost from (1, 20) to (20, 1) by seed, nan where a seed did not run both."""
    return by_seed(ends[0]) - by_seed(ends[1])


def initialisation(results: Results) -> ClaimEvidence:
    """Return how many points more separate starts without noise cost than noise with a common start, a case a model.

    Compared within each seed.
    """
    cases, beside = [], []
    for name, ends, private in starts(results):
        lost = {key: loss(end) for key, end in ends.items()}
        facts = {"stand_in": stand_in(ends[COMMON, private][0])}
        cases.append(from_values(name, lost[PER_CLIENT, math.inf] - lost[COMMON, private], **facts))
        words = {COMMON: "a common start", PER_CLIENT: "separate starts"}
        for (start, epsilon), points in lost.items():
            noise = "without noise" if math.isinf(epsilon) else f"with noise (ε = {epsilon:g})"
            beside.append(from_values(f"points lost: {name}, {words[start]}, {noise}", points, **facts))
    return counted(cases, beside)


def initialisation_print(results: Results) -> ClaimEvidence:
    """Return how many points nearer to the print separate starts bring (20, 1) without noise, a case a model.

    The distance of every run counts, compared within each seed.
    """
    cases = []
    for name, ends, _ in starts(results):
        each, one = ends[PER_CLIENT, math.inf][1], ends[COMMON, math.inf][1]
        printed = each["published_accuracy_pct"]
        if math.isnan(printed):
            continue
        nearer = (by_seed(one) - printed).abs() - (by_seed(each) - printed).abs()
        cases.append(from_values(name, nearer, stand_in=stand_in(each)))
    return counted(cases)


def counted(cases: list[Case], beside: Iterable[Case] = ()) -> ClaimEvidence:
    """Return the evidence of the cases that have a seed with all of their runs; the others count as not run."""
    there = [case for case in cases if case.n]
    return ClaimEvidence(there, missing=len(cases) - len(there), beside=list(beside))


def budget_kept(results: Results) -> ClaimEvidence:
    """Hold the proven epsilon of every private cell at most its budget, and lower bounds that exceed it against it.

    An upper bound above the budget refutes nothing: such a case has no error that is known. Canaries count only
    where their lower bound exceeds what is claimed, except on runs that are known to be broken.
    """
    numbers = (2, 3, 4, 5)
    cells = pd.concat([results.table("bhaskar2025", f"table_{number}").assign(number=number) for number in numbers])
    cells = cells.query("epsilon < inf and runs > 0")
    cases = []
    for (number, ran_on, epsilon, sampling), group in cells.groupby(["number", "ran_on", "epsilon", "sampling"]):
        proven, refuted = float(group["epsilon_proven"].max()), float(group["epsilon_refuted"].max())
        name = f"Table {number}, {ran_on}, ε = {epsilon:g}, {sampling.replace('_', ' ')}, {len(group)} cells"
        if refuted > epsilon:
            cases.append(Case(f"{name}: at least", refuted, target=epsilon))
        else:
            cases.append(Case(name, proven, error=0.0 if proven <= epsilon else math.nan, target=epsilon))
    found = [(row["refuted"], canary(row)) for row in canaries(results)] if cases else []
    return ClaimEvidence(
        cases + [case for refuted, case in found if refuted], beside=[case for refuted, case in found if not refuted]
    )


def canaries(results: Results) -> list[dict]:
    """Return the rows of the table of canaries, except runs known to be broken; none where none was run."""
    try:
        rows = results.table("bhaskar2025", "canaries")
    except NotRunError:
        return []
    return rows[~rows["known_bad"].astype(bool)].to_dict("records")


def canary(row: dict) -> Case:
    """Return the case of a lower bound that canaries give."""
    name = f"canaries on {row['dataset']}, ε = {row['epsilon']:g}, seed {row['seed']}: at least"
    stand_in = row["dataset"] if row["stand_in_for"] else ""
    return Case(name, row["epsilon_lower_bound"], target=row["claimed_epsilon"], stand_in=stand_in)


def budget_kept_overlap(results: Results) -> ClaimEvidence:
    """Hold epsilon of a record that is with the mean number of clients at most a client's budget.

    Beside it ten clients, whose data are disjoint.
    """
    cases = [
        (
            row.clients,
            Case(
                f"{row.dataset}, k = {row.clients}, {math.ceil(row.holders_mean)} clients hold a record",
                row.epsilon_typical_pld,
                target=row.epsilon,
            ),
        )
        for row in results.table("bhaskar2025", "overlap").itertuples(index=False)
    ]
    disjoint = table_settings(2)["clients"]
    return ClaimEvidence(
        [case for clients, case in cases if clients > disjoint],
        beside=[case for clients, case in cases if clients <= disjoint],
    )
