"""Fit of settings that the paper leaves open to its printed numbers: candidates, effects, scores.

A candidate is one way of training for which there are runs: the settings of paper.yaml with other values of what the
paper does not state. Its score for one model is the log likelihood of the printed accuracies, see `log_likelihood`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.optimize import minimize_scalar

from dpfl.catalog import load
from dpfl.experiments.shared.run_table import as_columns
from dpfl.papers.bhaskar2025.paper_runs import (
    PUBLISHED_RUNS,
    all_runs,
    each_once,
    published_cells,
    table_settings,
    with_settings,
)
from dpfl.randomness import generator
from dpfl.reporting.results import ORIGIN, ORIGINS, Results

OPEN = ("batch_size", "delta", "accountant", "sampling", "normalisation", "initialisation", "tempered_sigmoid")
PRIVATE_ALONE = ("delta", "accountant", "sampling")
"""Open settings that change private cells alone: without privacy every epoch is shuffled, whatever they say."""
CHOSEN = "chosen settings"
FREEDOM = 3  # of Student's law of the residuals: a single cell far off does not decide
DISCREPANCY_PCT = (0.01, 30.0)  # range of the fitted typical misfit; no less than the rounding of the print
CHANCES = 200  # draws behind the range of gains that seeds alone make
_GROUP = ["dataset", "ran_on", "stand_in", "model"]
_WHERE = ["epsilon", "local_epochs", "rounds"]


def candidate_cells(results: Results) -> pd.DataFrame:
    """Return a row for each candidate and each cell (ten clients) that it and the chosen settings both ran.

    Columns: candidate, dataset, ran_on, stand_in, model, epsilon, local_epochs, rounds, runs, shared_runs (seeds that
    the chosen settings ran too), chosen_runs, accuracy_pct (mean), seed_sd_pct (standard deviation between seeds,
    pooled over the candidates of the cell, or of the model where no cell has two; 0 where nothing has), effect_pct
    (mean over shared seeds of candidate minus chosen; of all seeds where none is shared), published_accuracy_pct and
    residual_pct (the chosen settings' mean plus the effect, minus published; both nan on stand-in data), origins
    (of the candidate's own runs).
    """
    runs = _candidate_runs(results)
    by = ["candidate", *_GROUP, *_WHERE]
    cells = runs.groupby(by, as_index=False, sort=False).agg(
        runs=("accuracy_pct", "size"),
        accuracy_pct=("accuracy_pct", "mean"),
        variance=("accuracy_pct", "var"),
        **{ORIGINS: (ORIGIN, " ".join)},
    )
    chosen = cells.loc[cells["candidate"] == CHOSEN, [*_GROUP, *_WHERE, "accuracy_pct", "runs"]]
    chosen = chosen.rename(columns={"accuracy_pct": "chosen_pct", "runs": "chosen_runs"})
    cells = cells.merge(chosen, on=[*_GROUP, *_WHERE]).merge(_shared_effects(runs), on=by, how="left")
    cells["shared_runs"] = cells["shared_runs"].fillna(0).astype(int)
    cells["effect_pct"] = cells["effect_pct"].fillna(cells["accuracy_pct"] - cells["chosen_pct"])
    cells["seed_sd_pct"] = _seed_deviations(cells)
    published = published_cells().query("table < 5").drop(columns=["table", "clients"])
    cells = cells.merge(published, on=["dataset", "model", *_WHERE])
    cells["published_accuracy_pct"] = cells["published_accuracy_pct"].where(~cells["stand_in"].eq(True))
    cells["residual_pct"] = cells["chosen_pct"] + cells["effect_pct"] - cells["published_accuracy_pct"]
    counts = ["runs", "shared_runs", "chosen_runs"]
    measures = ["accuracy_pct", "seed_sd_pct", "effect_pct", "published_accuracy_pct", "residual_pct"]
    return cells[[*by, *counts, *measures, ORIGINS]]


def _candidate_runs(results: Results) -> pd.DataFrame:
    """Return the runs with ten clients that differ from the chosen settings in open ones only, named by `candidate`."""
    settings = load("bhaskar2025").settings
    stated = {name: value for name, value in settings.items() if name not in OPEN}
    runs = with_settings(all_runs(results), {**stated, "clients": table_settings(2)["clients"]})
    named = [name for name in OPEN if name in runs.columns]
    chosen = as_columns(settings)
    values = runs[named].itertuples(index=False, name=None)
    runs["candidate"] = [candidate_name(dict(zip(named, row, strict=True)), chosen) for row in values]
    others = [name for name in named if name not in PRIVATE_ALONE]
    as_chosen = (runs[others] == [chosen[name] for name in others]).all(axis=1)
    same_again = as_chosen & np.isinf(runs["epsilon"].astype(float)) & (runs["candidate"] != CHOSEN)
    return each_once(runs[~same_again], "candidate")


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
    known = pairs.groupby(["candidate", *where], as_index=False)
    return known.agg(effect_pct=("effect_pct", "mean"), shared_runs=("effect_pct", "size"))


def _seed_deviations(cells: pd.DataFrame) -> pd.Series:
    """Return the standard deviation between seeds, pooled as `candidate_cells` says."""
    freedom = (cells["runs"] - 1).where(cells["variance"].notna(), 0)
    squares = cells["variance"].fillna(0) * freedom

    def pooled(by: list[str]) -> pd.Series:
        keys = [cells[name] for name in by]
        return (squares.groupby(keys).transform("sum") / freedom.groupby(keys).transform("sum")) ** 0.5

    return pooled([*_GROUP, *_WHERE]).fillna(pooled(_GROUP)).fillna(0.0)


def scores(results: Results) -> pd.DataFrame:
    """Return a row for each candidate, dataset and model, of each dataset and model the best score first.

    Columns: candidate, dataset, ran_on, stand_in, model, cells, runs_least, runs_most, effect_pct (mean over cells),
    misfit_pct and misfit_last_pct (mean of |residual_pct| over the cells with more than one round, and at one round),
    discrepancy_pct (fitted), log_likelihood, gain (over the chosen settings on the same cells: above 0 fits better),
    chance_low and chance_high (see `chance_gains`). On stand-in data what needs the print is nan.
    """
    cells, runs = candidate_cells(results), _candidate_runs(results)
    known: dict[tuple[Any, ...], tuple[float, float]] = {}
    rows = []
    for (candidate, *group), rows_of_candidate in cells.groupby(["candidate", *_GROUP], sort=False):
        chosen = cells[cells["candidate"] == CHOSEN].merge(rows_of_candidate[[*_GROUP, *_WHERE]], on=[*_GROUP, *_WHERE])
        row = {"candidate": candidate, **dict(zip(_GROUP, group, strict=True)), **_score(rows_of_candidate, chosen)}
        shared = rows_of_candidate["shared_runs"].min()
        key = (*group, shared, *rows_of_candidate[_WHERE].itertuples(index=False, name=None))
        if key not in known:
            known[key] = _chance(_by_seed(runs, chosen), chosen, shared)
        low, high = (np.nan, np.nan) if candidate == CHOSEN else known[key]
        rows.append({**row, "chance_low": low, "chance_high": high})
    if not rows:
        return pd.DataFrame(columns=["candidate", *_GROUP, *_SCORES, "chance_low", "chance_high"])
    order = ["dataset", "model", "gain", "candidate"]
    return pd.DataFrame(rows).sort_values(order, ascending=[True, True, False, True], ignore_index=True)


_SCORES = ["cells", "runs_least", "runs_most", "effect_pct", "misfit_pct", "misfit_last_pct"]
_SCORES += ["discrepancy_pct", "log_likelihood", "gain"]


def _score(cells: pd.DataFrame, chosen: pd.DataFrame) -> dict[str, float]:
    """Return the numbers of one row of `scores`."""
    misfit = cells["residual_pct"].abs()
    log_likelihood, discrepancy = best_discrepancy(*_residuals(cells))
    values = [len(cells), cells["runs"].min(), cells["runs"].max(), cells["effect_pct"].mean()]
    values += [misfit[cells["rounds"] > 1].mean(), misfit[cells["rounds"] == 1].mean()]
    values += [discrepancy, log_likelihood, log_likelihood - best_discrepancy(*_residuals(chosen))[0]]
    return dict(zip(_SCORES, values, strict=True))


def _residuals(cells: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the residuals and what seeds make of them, ours and those of the print, in points."""
    runs = cells["chosen_runs"].where(cells["shared_runs"] > 0, cells["runs"])
    noise = cells["seed_sd_pct"] * np.sqrt(1 / PUBLISHED_RUNS + 1 / runs)
    return cells["residual_pct"].to_numpy(float), noise.to_numpy(float)


def _by_seed(runs: pd.DataFrame, chosen: pd.DataFrame) -> NDArray[np.float64]:
    """Return the accuracies of the chosen settings in these cells, (seeds, cells), of the seeds that ran them all."""
    chosen_runs = runs[runs["candidate"] == CHOSEN].merge(chosen[[*_GROUP, *_WHERE]])
    wide = chosen_runs.pivot(index="seed", columns=_WHERE, values="accuracy_pct").dropna()
    return wide[list(chosen[_WHERE].itertuples(index=False, name=None))].to_numpy(float)


def _chance(accuracies: NDArray[np.float64], chosen: pd.DataFrame, shared: int) -> tuple[float, float]:
    """Return the central 95 % of `chance_gains`; nan where nothing is published or there is no second seed.

    Where cells share other seeds, fewer ran them all: those count as shared, which makes more of chance.
    """
    residuals, noise = _residuals(chosen)
    if not shared or len(accuracies) < 2 or np.isnan(residuals).any():
        return np.nan, np.nan
    shared = min(shared, len(accuracies))
    return tuple(np.quantile(chance_gains(accuracies, residuals, noise, shared), (0.025, 0.975)).tolist())


def chance_gains(
    accuracies: NDArray[np.float64], residuals: NDArray[np.float64], noise: NDArray[np.float64], shared: int
) -> NDArray[np.float64]:
    """Return `CHANCES` gains of candidates that are the chosen settings with `shared` other seeds.

    The seeds of both are drawn from the normal law with the covariance that the cells of `accuracies` (seeds, cells)
    have between seeds, as many as there are, and the effect is taken from those that both share, 1 <= `shared` <=
    seeds. A candidate that shares draws with the chosen settings has less noise in its effect: what is beyond these
    gains is not chance, what is among them may be.
    """
    seeds = len(accuracies)
    deviations = (accuracies - accuracies.mean(axis=0)) / math.sqrt(seeds - 1)
    draws = generator(0, "noise").standard_normal((3, CHANCES, seeds)) @ deviations
    theirs, ours, rest = (
        draws[0] / math.sqrt(shared),
        draws[1] / math.sqrt(shared),
        draws[2] * math.sqrt(seeds - shared),
    )
    known = residuals + (shared * ours + rest) / seeds
    pairs = zip(known + theirs - ours, known, strict=True)
    return np.array([best_discrepancy(other, noise)[0] - best_discrepancy(mine, noise)[0] for other, mine in pairs])


def best_discrepancy(residuals: NDArray[np.float64], noise: NDArray[np.float64]) -> tuple[float, float]:
    """Return the largest log likelihood over the discrepancy, and that discrepancy in points; arguments (cells,). Both
    are nan where a residual is."""
    if np.isnan(residuals).any():
        return np.nan, np.nan
    low, high = np.log(DISCREPANCY_PCT)
    grid = np.linspace(low, high, 60)
    start = grid[np.argmax(log_likelihood(residuals, noise, np.exp(grid)))]
    step = grid[1] - grid[0]
    result = minimize_scalar(
        lambda point: -log_likelihood(residuals, noise, np.exp(point)),
        bounds=(max(low, start - step), min(high, start + step)),
        method="bounded",
    )
    return -float(result.fun), float(np.exp(result.x))


def log_likelihood(residuals: NDArray[np.float64], noise: NDArray[np.float64], discrepancy: ArrayLike) -> NDArray:
    """Return the log likelihood of residuals (cells,), in points, under Student's law with three degrees of freedom, at
    each discrepancy; in the shape of `discrepancy`.

    The scale of each cell is sqrt(noise^2 + discrepancy^2): `noise` (cells,) is what the seeds make of a difference of
    two means, s sqrt(1/10 + 1/n), and `discrepancy` > 0 what no seed explains, one number for all cells.
    """
    scale = np.sqrt(noise**2 + np.square(discrepancy)[..., None])
    return stats.t.logpdf(residuals, FREEDOM, scale=scale).sum(-1)
