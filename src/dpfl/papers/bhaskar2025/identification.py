"""Which of the settings that the paper leaves open fit its printed numbers best: candidates, effects, scores.

A candidate is one way of training for which there are runs: the settings of paper.yaml with other values of what the
paper does not state. Its score for one model is the log likelihood of the printed accuracies, see `log_likelihood`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import minimize_scalar

from dpfl.papers import load
from dpfl.papers.bhaskar2025.cells import PUBLISHED_RUNS, all_runs, each_once, published_cells, with_settings
from dpfl.reporting.results import Results

OPEN = ("batch_size", "delta", "accountant", "sampling", "normalisation", "initialisation")
CHOSEN = "chosen settings"
FREEDOM = 3  # of Student's law of the residuals: a single cell far off does not decide
DISCREPANCY_PCT = (0.01, 30.0)  # range of the fitted typical misfit; no less than the rounding of the print
_GROUP = ["dataset", "ran_on", "stand_in", "model"]
_WHERE = ["epsilon", "local_epochs", "rounds"]


def candidate_cells(results: Results) -> pd.DataFrame:
    """Return a row for each candidate and each cell (ten clients) that it and the chosen settings both ran.

    Columns: candidate, dataset, ran_on, stand_in, model, epsilon, local_epochs, rounds, runs, accuracy_pct (mean),
    seed_sd_pct (standard deviation between seeds, pooled over the candidates of the cell, or of the model where no
    cell has two; 0 where nothing has), effect_pct (mean over shared seeds of candidate minus chosen; of all seeds where
    none is shared), published_accuracy_pct and residual_pct (ours minus published; both nan on stand-in data).
    """
    runs = _candidate_runs(results)
    by = ["candidate", *_GROUP, *_WHERE]
    cells = runs.groupby(by, as_index=False, sort=False).agg(
        runs=("accuracy_pct", "size"), accuracy_pct=("accuracy_pct", "mean"), variance=("accuracy_pct", "var")
    )
    chosen = cells.loc[cells["candidate"] == CHOSEN, [*_GROUP, *_WHERE, "accuracy_pct"]]
    cells = cells.merge(chosen.rename(columns={"accuracy_pct": "chosen_pct"}), on=[*_GROUP, *_WHERE])
    shared = _shared_effects(runs)
    cells = cells.merge(shared, on=by, how="left")
    cells["effect_pct"] = cells["effect_pct"].fillna(cells["accuracy_pct"] - cells["chosen_pct"])
    cells["seed_sd_pct"] = _seed_deviations(cells)
    published = published_cells().query("table < 5").drop(columns=["table", "clients"])
    cells = cells.merge(published, on=["dataset", "model", *_WHERE], how="left")
    cells["published_accuracy_pct"] = cells["published_accuracy_pct"].where(~cells["stand_in"].eq(True))
    cells["residual_pct"] = cells["accuracy_pct"] - cells["published_accuracy_pct"]
    kept = ["runs", "accuracy_pct", "seed_sd_pct", "effect_pct", "published_accuracy_pct", "residual_pct"]
    return cells[[*by, *kept]]


def _candidate_runs(results: Results) -> pd.DataFrame:
    """Return the runs with ten clients that differ from the chosen settings in open ones only, named by `candidate`."""
    settings = load("bhaskar2025").settings
    stated = {name: value for name, value in settings.items() if name not in OPEN}
    runs = with_settings(all_runs(results), {**stated, "clients": load("bhaskar2025").tables["table_2"]["clients"]})
    named = [name for name in OPEN if name in runs.columns]
    values = runs[named].itertuples(index=False, name=None)
    runs["candidate"] = [candidate_name(dict(zip(named, row, strict=True)), settings) for row in values]
    return each_once(runs, "candidate")


def candidate_name(values: Mapping[str, Any], chosen: Mapping[str, Any]) -> str:
    """Return which open settings differ from the chosen ones, as "batch size 32, sampling poisson"."""
    differs = [
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
        if value != chosen[name]
    ]
    return ", ".join(differs).replace("_", " ") or CHOSEN


def _shared_effects(runs: pd.DataFrame) -> pd.DataFrame:
    """Return candidate minus chosen, averaged over the seeds that both have."""
    where = [*_GROUP, *_WHERE]
    chosen = runs.loc[runs["candidate"] == CHOSEN, [*where, "seed", "accuracy_pct"]]
    pairs = runs.merge(chosen, on=[*where, "seed"], suffixes=("", "_chosen"))
    pairs["effect_pct"] = pairs["accuracy_pct"] - pairs["accuracy_pct_chosen"]
    return pairs.groupby(["candidate", *where], as_index=False)["effect_pct"].mean()


def _seed_deviations(cells: pd.DataFrame) -> pd.Series:
    """Return the standard deviation between seeds, pooled as `candidate_cells` says."""
    freedom = (cells["runs"] - 1).where(cells["variance"].notna(), 0)
    squares = cells["variance"].fillna(0) * freedom

    def pooled(by: list[str]) -> pd.Series:
        keys = [cells[name] for name in by]
        return (squares.groupby(keys).transform("sum") / freedom.groupby(keys).transform("sum")) ** 0.5

    return pooled([*_GROUP, *_WHERE]).fillna(pooled(_GROUP)).fillna(0.0)


def scores(results: Results) -> pd.DataFrame:
    """Return a row for each candidate, dataset and model, the best score first, chosen settings included.

    Columns: candidate, dataset, ran_on, stand_in, model, cells, runs_least, runs_most, effect_pct (mean over cells),
    misfit_pct and misfit_last_pct (mean of |ours - published| over the cells with more than one round, and at one
    round), discrepancy_pct (fitted), log_likelihood, gain (over the chosen settings on the same cells: above 0 fits
    better), gain_all (the candidate's sum over its models). On stand-in data what needs the print is nan.
    """
    cells = candidate_cells(results)
    rows = []
    for key, own in cells.groupby(["candidate", *_GROUP], sort=False):
        chosen = cells[cells["candidate"] == CHOSEN].merge(own[[*_GROUP, *_WHERE]], on=[*_GROUP, *_WHERE])
        rows.append({**dict(zip(["candidate", *_GROUP], key, strict=True)), **_score(own, chosen)})
    if not rows:
        return pd.DataFrame(columns=["candidate", *_GROUP, *_SCORES, "gain_all"])
    table = pd.DataFrame(rows)
    table["gain_all"] = table.groupby("candidate")["gain"].transform(lambda gains: gains.sum(min_count=1))
    return table.sort_values(["gain_all", "candidate", "model"], ascending=[False, True, True], ignore_index=True)


_SCORES = ["cells", "runs_least", "runs_most", "effect_pct", "misfit_pct", "misfit_last_pct"]
_SCORES += ["discrepancy_pct", "log_likelihood", "gain"]


def _score(own: pd.DataFrame, chosen: pd.DataFrame) -> dict[str, float]:
    """Return the numbers of one row of `scores`."""
    misfit = own["residual_pct"].abs()
    log_likelihood, discrepancy = _fit(own)
    values = [len(own), own["runs"].min(), own["runs"].max(), own["effect_pct"].mean()]
    values += [misfit[own["rounds"] > 1].mean(), misfit[own["rounds"] == 1].mean()]
    values += [discrepancy, log_likelihood, log_likelihood - _fit(chosen)[0]]
    return dict(zip(_SCORES, values, strict=True))


def _fit(cells: pd.DataFrame) -> tuple[float, float]:
    """Return the score and the fitted discrepancy of one candidate's cells; nan where there is nothing to compare."""
    if cells["residual_pct"].isna().any():
        return np.nan, np.nan
    residuals = cells["residual_pct"].to_numpy(float)
    noise = cells["seed_sd_pct"].to_numpy(float) * np.sqrt(1 / PUBLISHED_RUNS + 1 / cells["runs"].to_numpy(float))
    return best_discrepancy(residuals, noise)


def best_discrepancy(residuals: NDArray[np.float64], noise: NDArray[np.float64]) -> tuple[float, float]:
    """Return the largest log likelihood over the discrepancy, and that discrepancy in points; arguments (cells,)."""
    low, high = np.log(DISCREPANCY_PCT)
    grid = np.linspace(low, high, 60)
    start = grid[np.argmax([log_likelihood(residuals, noise, np.exp(point)) for point in grid])]
    step = grid[1] - grid[0]
    found = minimize_scalar(
        lambda point: -log_likelihood(residuals, noise, np.exp(point)),
        bounds=(max(low, start - step), min(high, start + step)),
        method="bounded",
    )
    return -float(found.fun), float(np.exp(found.x))


def log_likelihood(residuals: NDArray[np.float64], noise: NDArray[np.float64], discrepancy: float) -> float:
    """Return the log likelihood of residuals (cells,), in points, under Student's law with three degrees of freedom.

    The scale of each cell is sqrt(noise^2 + discrepancy^2): `noise` (cells,) is what the seeds make of a difference of
    two means, s sqrt(1/10 + 1/n), and `discrepancy` > 0 what no seed explains, one number for all cells.
    """
    scale = np.sqrt(noise**2 + discrepancy**2)
    return float(stats.t.logpdf(residuals, FREEDOM, scale=scale).sum())
