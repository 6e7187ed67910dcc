"""Verdicts on the claims of bhaskar2025, from its tables and figures' data."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd

from dpfl.papers.bhaskar2025.distances import FIRST, NOISELESS, exponent
from dpfl.papers.bhaskar2025.initialisation import COMMON, PER_CLIENT
from dpfl.papers.bhaskar2025.table_layout import MODEL_NAMES
from dpfl.reporting.claims import Outcome, Verdict, counted, on_stand_in
from dpfl.reporting.results import NotRunError, Results

MARGIN_PCT = 1.0  # by which one loss has to exceed another to count
_COLUMN = ["dataset", "model", "epsilon"]


def _tables(results: Results, *numbers: int) -> pd.DataFrame:
    """Return the cells of several published tables with our measurements."""
    return pd.concat([results.table("bhaskar2025", f"table_{number}") for number in numbers])


def _stand_ins(cells: pd.DataFrame) -> pd.Series:
    """Return the names of the stand-ins among the cells that ran."""
    return cells.loc[cells["stand_in"].eq(True) & (cells["runs"] > 0), "ran_on"]


def _runs(cells: pd.DataFrame) -> str:
    """Say how many runs a cell has."""
    ran = cells.loc[cells["runs"] > 0, "runs"]
    if ran.empty:
        return "no runs"
    least, most = ran.min(), ran.max()
    return f"n = {least}" if least == most else f"n = {least} to {most}"


def one_local_epoch(results: Results) -> Verdict:
    """Count the private columns in which no split beats (1, 20) by more than the interval of their difference."""
    cells = _tables(results, 2, 3, 4).query("epsilon < inf")
    published = holds = tried = complete = 0
    gains = []
    for _, column in cells.groupby(_COLUMN):
        first = column[column["local_epochs"] == 1].iloc[0]
        published += first["published_accuracy_pct"] >= column["published_accuracy_pct"].max()
        others = column[(column["local_epochs"] > 1) & column["over_first_pct"].notna()]
        if others.empty:
            continue
        tried += 1
        complete += len(others) == len(column) - 1
        gains.append(others.loc[others["over_first_pct"].idxmax()])
        holds += not (others["over_first_pct"] > others["over_first_interval_pct"].fillna(0)).any()
    evidence = (
        f"private columns in which no split beats (1, 20) by more than the 95 % interval of the difference on shared "
        f"seeds ({_runs(cells)} a cell; in {complete} columns all six splits ran); a single seed has no interval, and "
        "the splits of a column are compared one by one, without correction. By the printed numbers, without "
        f"intervals, {published} of {cells.groupby(_COLUMN).ngroups}.{_largest_gain(gains)}"
    )
    return on_stand_in(_stand_ins(cells), counted(holds, tried, evidence))


def _largest_gain(gains: list[pd.Series]) -> str:
    """Say by how much the best other split is ahead of (1, 20), where that is most."""
    if not gains:
        return ""
    best = max(gains, key=lambda each: each["over_first_pct"])
    gain = _points((best["over_first_pct"], best["over_first_interval_pct"]), "+.2f")
    where = f"{best['ran_on']}, {MODEL_NAMES[best['model']]}, ε = {best['epsilon']:g}"
    return f" Largest gain of another split: {gain} points, {where}, E = {best['local_epochs']}."


def more_clients(results: Results) -> Verdict:
    """Count the rows of Table 5 in which accuracy never falls with k by more than the two intervals together, and those
    in which the most clients are nearer to the central model than the fewest."""
    cells = _tables(results, 5)
    ran = cells[cells["runs"] > 0]
    rows = grows = central = nears = 0
    gaps = []
    for (_, model, _), row in ran.groupby(_COLUMN):
        ordered = row[row["clients"] > 1].sort_values("clients")
        if len(ordered) < 2:
            continue
        margin = ordered["interval_pct"].fillna(0)
        rows += 1
        grows += bool((ordered["accuracy_pct"].diff().dropna() >= -(margin + margin.shift()).dropna()).all())
        for one in row.loc[row["clients"] == 1, "accuracy_pct"]:
            fewest, most = (ordered["accuracy_pct"].iloc[place] - one for place in (0, -1))
            central += 1
            nears += abs(most) < abs(fewest)
            gaps.append(f"{ordered['ran_on'].iloc[0]}, {MODEL_NAMES[model]}: {fewest:+.2f} to {most:+.2f}")
    spans = f" (points above it, fewest to most clients: {'; '.join(gaps)})" if gaps else ""
    evidence = (
        f"rows of Table 5, counted twice ({_runs(ran)} a cell; a single run has no interval). Accuracy does not fall "
        f"as clients are added in {grows} of {rows}. It comes nearer to the central model's in {nears} of "
        f"{central}{spans}.{_exponent_of_clients(results.figure('bhaskar2025', 'distances'))}"
    )
    return on_stand_in(_stand_ins(cells), counted(grows + nears, rows + central, evidence))


def _exponent_of_clients(distances: pd.DataFrame) -> str:
    """Say with which power of k the distance of the average to the noise-free run falls, at E = 1."""
    parts = []
    law = distances[(distances["reference"] == NOISELESS) & (distances["local_epochs"] == 1)]
    for (ran_on, model), series in law.groupby(["ran_on", "model"]):
        if series["clients"].nunique() < 2:
            continue
        powers = ", ".join(
            f"{exponent(part['clients'], part['distance']):.2f} after the {round} round"
            for round, part in series.groupby("round")
        )
        span = f"k = {series['clients'].min()} to {series['clients'].max()}"
        parts.append(f"{ran_on}, {MODEL_NAMES[model]}, {span}, {_runs(series)}: {powers}")
    if not parts:
        return " The distance to the noise-free run was not measured for several k."
    return f" Power of k with which the average's distance to the noise-free run goes (law: -0.5): {'; '.join(parts)}."


def scatter_linear_best(results: Results) -> Verdict:
    """Count the cells in which ScatterNet + linear is the most accurate of the models that ran (two at least), and the
    columns in which it differs least between the splits that all of them ran."""
    cells = _tables(results, 2, 3, 4)
    ran = cells[cells["runs"] > 0]
    best = cases = least = columns = 0
    for _, models in ran.groupby(["dataset", "epsilon"]):
        wide = models.pivot(index="model", columns="local_epochs", values="accuracy_pct")
        if len(wide) < 2 or "scatter_linear" not in wide.index:
            continue
        rivals = (wide.notna().sum() >= 2) & wide.loc["scatter_linear"].notna()
        cases += int(rivals.sum())
        best += int((wide.loc[:, rivals].idxmax() == "scatter_linear").sum())
        shared = wide.dropna(axis="columns")
        if shared.shape[1] >= 2:
            columns += 1
            least += (shared.max(axis=1) - shared.min(axis=1)).idxmin() == "scatter_linear"
    linear = ran[ran["model"] == "scatter_linear"]
    ranges = linear.groupby(_COLUMN)["accuracy_pct"].agg(lambda accuracy: accuracy.max() - accuracy.min())
    intervals = linear["interval_pct"].dropna()
    width = f"; largest interval of a cell ± {intervals.max():.2f}" if len(intervals) else ""
    largest = (
        f" Its accuracy differs by at most {ranges.max():.2f} points between splits{width}." if len(ranges) else ""
    )
    models = ran.groupby("ran_on")["model"].nunique()
    evidence = (
        f"cells and columns ({_runs(ran)} a cell; rivals ran on {', '.join(models[models > 1].index) or 'no data'} "
        f"alone). It is the most accurate of the models that ran in {best} of {cases} cells, and depends least on the "
        f"split in {least} of {columns} columns of a budget.{largest}"
    )
    return on_stand_in(_stand_ins(cells), counted(best + least, cases + columns, evidence))


def initialisation(results: Results) -> Verdict:
    """Count the models that lose more by separate initial models without noise than by noise with a common one, and
    those that separate starts without noise bring nearer to the print at (20, 1)."""
    cells = results.figure("bhaskar2025", "initialisation")
    if cells.empty:
        return Verdict(Outcome.NOT_TESTABLE, "Separate initial models were not run.")
    costs = nears = prints = models = 0
    stories = []
    for (ran_on, model), group in cells.groupby(["ran_on", "model"]):
        private = group.loc[group["epsilon"] < math.inf, "epsilon"].max()
        ends = {key: _ends(group, *key) for key in itertools.product((COMMON, PER_CLIENT), (private, math.inf))}
        if any(len(end) < 2 for end in ends.values()):
            continue
        models += 1
        lost = {key: _loss(end) for key, end in ends.items()}
        (noise, noise_interval), (start, start_interval) = lost[COMMON, private], lost[PER_CLIENT, math.inf]
        margin = np.nansum([noise_interval**2, start_interval**2]) ** 0.5
        costs += start - noise >= max(MARGIN_PCT, margin)
        each, one = (ends[key, math.inf].iloc[-1] for key in (PER_CLIENT, COMMON))
        gaps = [abs(end["accuracy_pct"] - end["published_accuracy_pct"]) for end in (each, one)]
        prints += not math.isnan(gaps[0])
        nears += gaps[0] < gaps[1]
        alone = ends[COMMON, private].iloc[-1]
        stories.append(
            f"{ran_on}, {MODEL_NAMES[model]} ({_runs(group)}): {_points(lost[COMMON, math.inf])} with neither, "
            f"{_points(lost[COMMON, private])} with noise (ε = {private:g}), {_points(lost[PER_CLIENT, math.inf])} "
            f"with separate starts, {_points(lost[PER_CLIENT, private])} with both; with noise and a common start the "
            f"clients alone reach {alone['local_accuracy_pct']:.1f} %, their average {alone['accuracy_pct']:.1f} %"
        )
    evidence = (
        f"models, counted twice. Separate initial models without noise cost more from (1, 20) to (20, 1) than noise "
        f"with a common one, by {MARGIN_PCT:g} point and by the two intervals at least, in {costs} of {models}; at "
        f"(20, 1) without noise they are nearer to the print than a common start in {nears} of {prints}. Points lost: "
        f"{'; '.join(stories)}."
    )
    return on_stand_in(_stand_ins(cells), counted(costs + nears, models + prints, evidence))


def _ends(cells: pd.DataFrame, start: str, epsilon: float) -> pd.DataFrame:
    """Return the cells of one local epoch and of one round of one start and budget, those that there are."""
    column = cells[(cells["initialisation"] == start) & (cells["epsilon"] == epsilon)].sort_values("local_epochs")
    return column[(column["local_epochs"] == 1) | (column["rounds"] == 1)]


def _loss(ends: pd.DataFrame) -> tuple[float, float]:
    """Return the points lost from (1, 20) to (20, 1), and the half-width of their interval (nan below two runs)."""
    (first, last), intervals = ends["accuracy_pct"], ends["interval_pct"]
    return first - last, math.hypot(*intervals)


def _points(change: tuple[float, float], form: str = ".1f") -> str:
    """Return a change with its interval, where there is one."""
    return f"{change[0]:{form}}" + ("" if math.isnan(change[1]) else f" ± {change[1]:{form.removeprefix('+')}}")


def theorem2_bound(results: Results) -> Verdict:
    """Count the measured distances below the bound, with E in steps and with E in passes over the data."""
    cells = results.figure("bhaskar2025", "distances")
    cells = cells[(cells["reference"] == NOISELESS) & (cells["round"] == FIRST)]
    if cells.empty:
        return Verdict(Outcome.NOT_TESTABLE, "Distances to the noise-free run were not measured.")
    # Until the first average nothing depends on how many clients there are, each with a tenth of the records.
    cells = cells.sort_values("clients").drop_duplicates(["ran_on", "model", "epsilon", "local_epochs"])
    upper = cells["local_distance"] + cells["local_distance_interval"].fillna(0)
    in_steps, in_passes = upper <= cells["bound_steps"], cells["local_distance"] <= cells["bound_epochs"]
    slack = cells["bound_steps"] / cells["local_distance"]
    powers = [
        f"{ran_on}, {MODEL_NAMES[model]}, ε = {epsilon:g}: {exponent(line['local_epochs'], line['local_distance']):.2f}"
        for (ran_on, model, epsilon), line in cells.groupby(["ran_on", "model", "epsilon"])
        if line["local_epochs"].nunique() > 1
    ]
    growth = f" Power of E with which the distance grows (bound: 1): {'; '.join(powers)}." if powers else ""
    evidence = (
        f"distances of clients' models within the bound, counted twice: with E in steps, as in Algorithm 1, "
        f"{in_steps.sum()} of {len(cells)} ({_runs(cells)}; the bound is {slack.min():.1f} to {slack.max():.1f} times "
        f"the distance); with E in passes over the data, as in the tables, {in_passes.sum()} of {len(cells)}.{growth} "
        "Against a noise-free run that does not clip, the bound is infinite."
    )
    return on_stand_in(_stand_ins(cells), counted(in_steps.sum() + in_passes.sum(), 2 * len(cells), evidence))


def budget_kept(results: Results) -> Verdict:
    """Compare both accountants' epsilon with the budget in every private cell that ran, and canaries' lower bounds with
    what is claimed."""
    cells = _tables(results, 2, 3, 4, 5).query("epsilon < inf and runs > 0")
    if cells.empty:
        return Verdict(Outcome.NOT_TESTABLE, "No private cell was run.")
    # The calibration stops within 0.01 of its target epsilon, from below.
    kept = cells["epsilon_proven"] <= cells["epsilon"]
    if not kept.all():
        return Verdict(Outcome.FAILS, f"{(~kept).sum()} of {len(cells)} private cells spend more than their budget.")
    refuted, canaries = _canaries(results)
    if refuted:
        return Verdict(Outcome.FAILS, f"{canaries[0].upper()}{canaries[1:]}.")
    slack = (1 - cells["epsilon_proven"] / cells["epsilon"]).max()
    overlap = results.table("bhaskar2025", "overlap")
    worst = overlap.loc[overlap["epsilon_typical_rdp"].idxmax()]
    evidence = (
        f"Both accountants stay within the budget in all {len(cells)} private cells (PLD up to {slack:.0%} below it), "
        "for one client's records and Poisson batches. Not kept where clients overlap: with "
        f"k = {worst['clients']} on {worst['dataset']} a record lies with {worst['holders_mean']:g} clients and spends "
        f"{worst['epsilon_typical_rdp']:.1f} by RDP, {worst['epsilon_typical_pld']:.1f} by PLD, instead of "
        f"{worst['epsilon']:g}. Batches were {', '.join(sorted(set(cells['sampling']))).replace('_', ' ')}; {canaries}."
    )
    return Verdict(Outcome.IN_PART, evidence)


def _canaries(results: Results) -> tuple[int, str]:
    """Return how many claims canaries refute, runs that are known to be broken apart, and that in words."""
    try:
        rows = results.table("bhaskar2025", "canaries")
    except NotRunError:
        rows = pd.DataFrame()
    if rows.empty:
        return 0, "no canary has measured a lower bound here"
    rows = rows[~rows["known_bad"]]
    closest = rows.loc[(rows["epsilon_lower_bound"] / rows["claimed_epsilon"]).idxmax()]
    refuted = int(rows["refuted"].sum())
    return refuted, (
        f"canaries refute {refuted} of {len(rows)} claims (n = 1 run each; closest: epsilon is at least "
        f"{closest['epsilon_lower_bound']:.2f} where {closest['claimed_epsilon']:.2f} is claimed)"
    )


CLAIMS = {
    "one_local_epoch": one_local_epoch,
    "more_clients": more_clients,
    "scatter_linear_best": scatter_linear_best,
    "initialisation": initialisation,
    "theorem2_bound": theorem2_bound,
    "budget_kept": budget_kept,
}
