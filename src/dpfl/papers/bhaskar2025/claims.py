"""Cases of the claims: accuracies of the tables, published numbers, distances, budgets and an exact bound."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy import stats

from dpfl.papers.bhaskar2025.cells import COLUMN, LEVEL
from dpfl.papers.bhaskar2025.distances import FIRST, LAST, NOISELESS
from dpfl.reporting.display_names import budget_name, model_name
from dpfl.reporting.results import NotRunError, Results
from dpfl.reporting.rules import Case, ClaimEvidence, difference, from_interval

_PLACE = ["dataset", "epsilon", "local_epochs"]


def _tables(results: Results, *numbers: int) -> pd.DataFrame:
    """Return the cells of several published tables with our measurements."""
    return pd.concat([results.table("bhaskar2025", f"table_{number}") for number in numbers])


def _named(cell: pd.Series) -> str:
    """Return the data on which a cell ran, or is published, its model and its budget."""
    return f"{cell['ran_on'] or cell['dataset']}, {model_name(cell['model'])}, {budget_name(cell['epsilon'])}"


def _printed_gap(first: float, second: float) -> float:
    """Return the difference of two published accuracies, which have two decimals."""
    return round(first - second, 2)


def _accuracy(cell: pd.Series) -> Case:
    """Return the mean accuracy of a cell."""
    return from_interval("", cell["runs"], cell["accuracy_pct"], cell["interval_pct"], level=LEVEL)


def _between(name: str, better: pd.Series, worse: pd.Series) -> Case:
    """Return how many points one cell is ahead of another, ours and printed."""
    published = _printed_gap(better["published_accuracy_pct"], worse["published_accuracy_pct"])
    return difference(name, _accuracy(better), _accuracy(worse), published=published, stand_in=_stand_in(better))


def one_local_epoch(results: Results) -> ClaimEvidence:
    """Return how many points (1, 20) leads the best other split of the same seed, a case a private column.

    A column of which some split did not run counts as missing too: what is there cannot show that (1, 20) is best.
    """
    cells = _tables(results, 2, 3, 4).query("epsilon < inf")
    cases, missing = [], 0
    for _, column in cells.groupby(COLUMN, sort=False):
        first = column[column["local_epochs"] == 1].iloc[0]
        missing += bool(first["lead_splits"] != len(column) - 1)
        if not math.isnan(first["lead_pct"]):
            printed = column.loc[column["local_epochs"] > 1, "published_accuracy_pct"].max()
            lead = from_interval(
                _named(first),
                first["lead_runs"],
                first["lead_pct"],
                first["lead_interval_pct"],
                level=LEVEL,
                published=_printed_gap(first["published_accuracy_pct"], printed),
                stand_in=_stand_in(first),
            )
            cases.append(lead)
    return ClaimEvidence(cases, missing=missing, best_of_several=True)


def one_local_epoch_printed(results: Results) -> ClaimEvidence:
    """Return how many points (1, 20) is ahead of the best other split in each private column of the printed tables."""
    leads = _printed_leads(results, "epsilon < inf")
    return ClaimEvidence([Case(name, lead, published=lead) for name, lead in leads])


def noise_free(results: Results) -> ClaimEvidence:
    """Return how many points each other split of a column without privacy is ahead of (1, 20), on shared seeds."""
    cells = _tables(results, 2, 3, 4).query("epsilon == inf")
    cases = []
    for _, column in cells.groupby(COLUMN, sort=False):
        first = column[column["local_epochs"] == 1].iloc[0]
        others = column[(column["local_epochs"] > 1) & column["over_first_pct"].notna()]
        for _, cell in others.iterrows():
            ahead = from_interval(
                f"{_named(cell)}, E = {cell['local_epochs']:g}",
                cell["over_first_runs"],
                cell["over_first_pct"],
                cell["over_first_interval_pct"],
                level=LEVEL,
                published=_printed_gap(cell["published_accuracy_pct"], first["published_accuracy_pct"]),
                stand_in=_stand_in(cell),
            )
            cases.append(ahead)
    return ClaimEvidence(cases, missing=int((cells["local_epochs"] > 1).sum()) - len(cases))


def noise_free_printed(results: Results) -> ClaimEvidence:
    """Return how many points the best other split of each published column without privacy is ahead of (1, 20)."""
    leads = _printed_leads(results, "epsilon == inf")
    return ClaimEvidence([Case(name, -lead, published=-lead) for name, lead in leads])


def _printed_leads(results: Results, columns: str) -> list[tuple[str, float]]:
    """Return how many points (1, 20) is ahead of the best other split in the published columns of a query, named."""
    cells = _tables(results, 2, 3, 4).query(columns)
    leads = []
    for key, column in cells.groupby(COLUMN, sort=False):
        others = column[column["local_epochs"] > 1]
        best = others.loc[others["published_accuracy_pct"].idxmax()]
        first = column.loc[column["local_epochs"] == 1, "published_accuracy_pct"].iloc[0]
        name = f"{_printed_name(key)}, best other E = {best['local_epochs']:g}"
        leads.append((name, _printed_gap(first, best["published_accuracy_pct"])))
    return leads


def _table_5_rows(results: Results) -> list[pd.DataFrame]:
    """Return the rows of Table 5, each as its cells sorted by the number of clients."""
    cells = _tables(results, 5).sort_values("clients")
    return [row for _, row in cells.groupby(COLUMN, sort=False)]


def more_clients(results: Results) -> ClaimEvidence:
    """Return how many points each number of clients of Table 5 is ahead of the next smaller one."""
    cases, steps = [], 0
    for row in _table_5_rows(results):
        for (_, fewer), (_, more) in itertools.pairwise(row[row["clients"] > 1].iterrows()):
            steps += 1
            if min(fewer["runs"], more["runs"]) > 0:
                cases.append(_between(f"{_named(more)}, k = {fewer['clients']:g} to {more['clients']:g}", more, fewer))
    return ClaimEvidence(cases, missing=steps - len(cases))


def more_clients_printed(results: Results) -> ClaimEvidence:
    """Return the smallest printed step from a number of clients to the next, in each row of Table 5."""
    cases = []
    for row in _table_5_rows(results):
        several = row[row["clients"] > 1]
        steps = [
            (_printed_gap(more["published_accuracy_pct"], fewer["published_accuracy_pct"]), fewer, more)
            for (_, fewer), (_, more) in itertools.pairwise(several.iterrows())
        ]
        step, fewer, more = min(steps, key=lambda found: found[0])
        name = f"{more['dataset']}, {model_name(more['model'])}, k = {fewer['clients']:g} to {more['clients']:g}"
        cases.append(Case(name, step, published=step))
    return ClaimEvidence(cases)


def more_clients_central(results: Results) -> ClaimEvidence:
    """Return how many points 100 clients are closer to the central client than 10, in each row of Table 5.

    To be above the central client is to have reached it; a row in which both have is no case.
    """
    cases, missing = [], 0
    for row in _table_5_rows(results):
        if min(row.iloc[place]["runs"] for place in (0, 1, -1)) == 0:
            missing += 1
            continue
        fewest, most = _below_central(row, "accuracy_pct")
        if fewest is not most:
            name = f"{_named(row.iloc[-1])}, k = {row.iloc[1]['clients']:g} to {row.iloc[-1]['clients']:g}"
            cases.append(replace(_between(name, most, fewest), published=_printed_approach(row)))
    absent = "No row was run in which 10 or 100 clients are below the central client."
    return ClaimEvidence(cases, missing=missing, absent=absent)


def _below_central(row: pd.DataFrame, accuracy: str) -> list[pd.Series]:
    """Return the cells of 10 and of 100 clients of a row of Table 5, the central client's for one that is not below."""
    central = row.iloc[0]
    return [cell if cell[accuracy] < central[accuracy] else central for cell in (row.iloc[1], row.iloc[-1])]


def _printed_approach(row: pd.DataFrame) -> float:
    """Return how many points 100 clients are closer to the central client than 10 in a published row of Table 5."""
    fewest, most = _below_central(row, "published_accuracy_pct")
    return _printed_gap(most["published_accuracy_pct"], fewest["published_accuracy_pct"])


def more_clients_central_printed(results: Results) -> ClaimEvidence:
    """Return how many points 100 clients are closer to the central client than 10, in each published row of Table 5."""
    cases = []
    for row in _table_5_rows(results):
        first, closer = row.iloc[0], _printed_approach(row)
        cases.append(Case(f"{first['dataset']}, {model_name(first['model'])}", closer, published=closer))
    return ClaimEvidence(cases)


def scatter_linear_best(results: Results) -> ClaimEvidence:
    """Return how many points ScatterNet + linear is ahead of the best other model, in each private cell that all models
    ran; beside them the cells without privacy."""
    cases, beside, places = [], [], 0
    for (_, epsilon, _), place in _tables(results, 2, 3, 4).groupby(_PLACE, sort=False):
        private = epsilon < math.inf
        places += private
        ran = place[place["runs"] > 0]
        own, rivals = ran[ran["model"] == "scatter_linear"], ran[ran["model"] != "scatter_linear"]
        if own.empty or len(rivals) < len(place) - 1:  # it is said to be ahead of all
            continue
        best = rivals.loc[rivals["accuracy_pct"].idxmax()]
        where = f"{own.iloc[0]['ran_on']}, {budget_name(epsilon)}, E = {best['local_epochs']:g}"
        lead = _between(f"{where}, over {model_name(best['model'])}", own.iloc[0], best)
        (cases if private else beside).append(lead)
    return ClaimEvidence(cases, missing=places - len(cases), beside=beside)


def scatter_linear_best_printed(results: Results) -> ClaimEvidence:
    """Return how many points ScatterNet + linear is printed ahead of the best other model, in each private cell; beside
    them the cells without privacy."""
    cases, beside = [], []
    for (dataset, epsilon, local_epochs), place in _tables(results, 2, 3, 4).groupby(_PLACE, sort=False):
        printed = place.set_index("model")["published_accuracy_pct"]
        rivals = printed.drop("scatter_linear")
        ahead = _printed_gap(printed["scatter_linear"], rivals.max())
        name = f"{dataset}, {budget_name(epsilon)}, E = {local_epochs:g}, over {model_name(rivals.idxmax())}"
        (cases if epsilon < math.inf else beside).append(Case(name, ahead, published=ahead))
    return ClaimEvidence(cases, beside=beside)


def _falls(cells: pd.DataFrame) -> dict[tuple, Case]:
    """Return the points that a column loses from (1, 20) to (20, 1), on shared seeds, by (dataset, model, epsilon)."""
    made = {}
    for key, column in cells.query("epsilon < inf").groupby(COLUMN, sort=False):
        first, last = (column[column["local_epochs"] == epochs].iloc[0] for epochs in (1, 20))
        if math.isnan(last["over_first_pct"]):
            continue
        made[key] = from_interval(
            _named(last),
            last["over_first_runs"],
            -last["over_first_pct"],
            last["over_first_interval_pct"],
            level=LEVEL,
            published=_printed_gap(first["published_accuracy_pct"], last["published_accuracy_pct"]),
            stand_in=_stand_in(last),
        )
    return made


def scatter_linear_robust(results: Results) -> ClaimEvidence:
    """Return the points that ScatterNet + linear loses from (1, 20) to (20, 1)."""
    cells = _tables(results, 2, 3, 4)
    own = [case for (_, model, _), case in _falls(cells).items() if model == "scatter_linear"]
    columns = cells.query("epsilon < inf and model == 'scatter_linear'").groupby(COLUMN).ngroups
    return ClaimEvidence(own, missing=columns - len(own))


def scatter_linear_most_robust(results: Results) -> ClaimEvidence:
    """Return how many points more than ScatterNet + linear each other model loses from (1, 20) to (20, 1)."""
    cells = _tables(results, 2, 3, 4)
    lost = _falls(cells)
    cases = []
    for (dataset, model, epsilon), fall in lost.items():
        own = lost.get((dataset, "scatter_linear", epsilon))
        if model != "scatter_linear" and own:
            facts = {"published": _printed_gap(fall.published, own.published), "stand_in": fall.stand_in}
            cases.append(difference(fall.case, fall, own, **facts))
    columns = cells.query("epsilon < inf and model != 'scatter_linear'").groupby(COLUMN).ngroups
    return ClaimEvidence(cases, missing=columns - len(cases))


def _printed_falls(results: Results) -> dict[tuple, float]:
    """Return the published points that a private column loses from (1, 20) to (20, 1), by (dataset, model, epsilon)."""
    made = {}
    for key, column in _tables(results, 2, 3, 4).query("epsilon < inf").groupby(COLUMN, sort=False):
        printed = column.set_index("local_epochs")["published_accuracy_pct"]
        made[key] = _printed_gap(printed[1], printed[20])
    return made


def _printed_name(key: tuple) -> str:
    """Return the name of a published column."""
    dataset, model, epsilon = key
    return f"{dataset}, {model_name(model)}, {budget_name(epsilon)}"


def scatter_linear_robust_printed(results: Results) -> ClaimEvidence:
    """Return the published points that ScatterNet + linear loses from (1, 20) to (20, 1)."""
    lost = {key: fall for key, fall in _printed_falls(results).items() if key[1] == "scatter_linear"}
    return ClaimEvidence([Case(_printed_name(key), fall, published=fall) for key, fall in lost.items()])


def scatter_linear_most_robust_printed(results: Results) -> ClaimEvidence:
    """Return how many published points more than ScatterNet + linear each other model loses from (1, 20) to (20, 1)."""
    lost, cases = _printed_falls(results), []
    for key, fall in lost.items():
        dataset, model, epsilon = key
        if model != "scatter_linear":
            more = _printed_gap(fall, lost[dataset, "scatter_linear", epsilon])
            cases.append(Case(_printed_name(key), more, published=more))
    return ClaimEvidence(cases)


def _stand_in(row: pd.Series) -> str:
    """Return the name of the data of a row where they stand in for others."""
    return str(row["ran_on"]) if str(row["stand_in"]) == "True" else ""


def _noise_free_distances(results: Results) -> pd.DataFrame:
    """Return the measured distances to the noise-free run."""
    distances = results.figure("bhaskar2025", "distances")
    return distances[distances["reference"] == NOISELESS]


def more_clients_distance(results: Results) -> ClaimEvidence:
    """Return the powers of k with which the average's distance to the noise-free run goes, at E = 1."""
    law = _noise_free_distances(results)
    law = law[law["local_epochs"] == 1]
    cases = []
    for (ran_on, model, round), line in law.groupby(["ran_on", "model", "round"]):
        if line["clients"].nunique() > 1:
            name = f"{ran_on}, {model_name(model)}, after the {round} round"
            cases.append(_fitted_power(name, line))
    return ClaimEvidence(cases)


def _fitted_power(name: str, line: pd.DataFrame) -> Case:
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
        stand_in=_stand_in(line.iloc[0]),
    )


def one_local_epoch_distance(results: Results) -> ClaimEvidence:
    """Return how much farther from its noise-free run the nearest other split ends than (1, 20)."""
    ends = _noise_free_distances(results)
    ends = ends[(ends["round"] == LAST) | (ends["rounds"] == 1)]
    cases = []
    for (ran_on, model, epsilon, _), splits in ends.groupby(["ran_on", "model", "epsilon", "clients"]):
        others = splits[splits["local_epochs"] > 1]
        if others.empty:  # of other numbers of clients only (1, 20) was run
            continue
        other, first = others.loc[others["distance"].idxmin()], splits[splits["local_epochs"] == 1].iloc[0]
        name = f"{ran_on}, {model_name(model)}, ε = {epsilon:g}, nearest other E = {other['local_epochs']:g}"
        ended = [
            from_interval("", row["runs"], row["distance"], row["distance_interval"], level=LEVEL)
            for row in (other, first)
        ]
        cases.append(difference(name, *ended, stand_in=_stand_in(first)))
    return ClaimEvidence(cases)


def theorem2_bound(results: Results) -> ClaimEvidence:
    """Hold the clients' distances to their noise-free runs at most the bound with E in steps and momentum."""
    return _distances_within(lambda row: row["bound_momentum"], results)


def theorem2_bound_epochs(results: Results) -> ClaimEvidence:
    """Hold the same distances at most the bound with E in passes over the data and the same factor for momentum."""
    return _distances_within(lambda row: row["bound_epochs"] * row["bound_momentum"] / row["bound_steps"], results)


def _distances_within(bound: Callable[[pd.Series], float], results: Results) -> ClaimEvidence:
    """Return the clients' distances to their noise-free runs after the first round, with a bound of each row."""
    cells = _noise_free_distances(results)
    cells = cells[cells["round"] == FIRST]
    # Until the first average nothing depends on how many clients there are, each with a tenth of the records.
    cells = cells.sort_values("clients").drop_duplicates(["ran_on", "model", "epsilon", "local_epochs"])
    cases = [
        from_interval(
            f"{row['ran_on']}, {model_name(row['model'])}, ε = {row['epsilon']:g}, E = {row['local_epochs']:g}",
            row["runs"],
            row["local_distance"],
            row["local_distance_interval"],
            level=LEVEL,
            target=bound(row),
            stand_in=_stand_in(row),
        )
        for _, row in cells.iterrows()
    ]
    return ClaimEvidence(cases)


def budget_kept(results: Results) -> ClaimEvidence:
    """Hold the proven epsilon of every private cell at most its budget, and lower bounds that exceed it against it.

    Proven under zero_out and, for Poisson batches, under the paper's add or remove: the larger one counts.

    An upper bound above the budget refutes nothing: such a case has no error that is known. Canaries count only
    where their lower bound exceeds what is claimed, except on runs that are known to be broken.
    """
    numbers = (2, 3, 4, 5)
    cells = pd.concat([results.table("bhaskar2025", f"table_{number}").assign(number=number) for number in numbers])
    cells = cells.query("epsilon < inf and runs > 0")
    cases = []
    for (number, ran_on, epsilon, sampling), group in cells.groupby(["number", "ran_on", "epsilon", "sampling"]):
        proven = float(group[["epsilon_proven", "epsilon_add_remove"]].max(axis=None))
        refuted = float(group["epsilon_refuted"].max())
        name = f"Table {number}, {ran_on}, ε = {epsilon:g}, {sampling.replace('_', ' ')}, {len(group)} cells"
        if refuted > epsilon:
            cases.append(Case(f"{name}: at least", refuted, target=epsilon))
        else:
            cases.append(Case(name, proven, error=0.0 if proven <= epsilon else math.nan, target=epsilon))
    found = [(row["refuted"], _canary(row)) for row in _canaries(results)] if cases else []
    return ClaimEvidence(
        cases + [case for refuted, case in found if refuted], beside=[case for refuted, case in found if not refuted]
    )


def _canaries(results: Results) -> list[dict]:
    """Return the rows of the table of canaries, except runs known to be broken; none if none was run."""
    try:
        rows = results.table("bhaskar2025", "canaries")
    except NotRunError:
        return []
    return rows[~rows["known_bad"].astype(bool)].to_dict("records")


def _canary(row: dict) -> Case:
    """Return the case of a lower bound that canaries give."""
    name = f"canaries on {row['dataset']}, ε = {row['epsilon']:g}, seed {row['seed']}: at least"
    stand_in = row["dataset"] if row["stand_in_for"] else ""
    return Case(name, row["epsilon_lower_bound"], target=row["claimed_epsilon"], stand_in=stand_in)


def budget_kept_overlap(results: Results) -> ClaimEvidence:
    """Hold the epsilon that a quarter of the records spend at least, at most a client's budget.

    Beside it Claim 1, what one client's messages spend.
    """
    cases, beside = [], []
    for row in results.table("bhaskar2025", "overlap").itertuples(index=False):
        where = f"{row.dataset}, epsilon = {row.epsilon:g}, k = {row.clients}"
        name = f"{where}, a quarter of the records are held by {row.holders_quarter} clients or more each"
        cases.append(Case(name, row.epsilon_quarter, target=row.epsilon))
        beside.append(Case(f"{where}, one client (Claim 1)", row.epsilon_client, target=row.epsilon))
    return ClaimEvidence(cases, beside=beside)


def utility_bound(parameters: int, network: str, clients: int, ratio: float) -> Case:
    """Evaluate Theorem 3's bound with sigma the root of the mean squared distance of the whole vector."""
    return _exceeds(parameters, network, clients, ratio, sigma_of_each=1 / math.sqrt(parameters))


def utility_bound_parameters(parameters: int, network: str, clients: int, ratio: float) -> Case:
    """Evaluate Theorem 3's bound with sigma the deviation of each parameter."""
    return _exceeds(parameters, network, clients, ratio, sigma_of_each=1.0)


def _exceeds(parameters: int, network: str, clients: int, ratio: float, *, sigma_of_each: float) -> Case:
    """Return the chance that the average is ratio sigma = l/beta or more from the ideal, with 1/(ratio^2 k) printed.

    The average of k models that are normal around the ideal parameters: its squared distance, in variances of one of
    its parameters, follows the chi-squared law. `sigma_of_each`: deviation of a parameter of one model, in sigma.
    """
    variance = sigma_of_each**2 / clients
    chance = float(stats.chi2.sf(ratio**2 / variance, parameters))
    model = "1 parameter" if parameters == 1 else f"{parameters} parameters {network}"
    return Case(f"{model}, k = {clients}, l/(beta sigma) = {ratio:g}", chance, target=1 / (ratio**2 * clients))
