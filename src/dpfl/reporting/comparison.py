"""Compare the runs of two sources: which cells differ, by how much, and whether by more than chance.

A cell is compared by its changes from source to source within a seed, or by its two means if the sources share fewer
than three seeds. The hypothesis of a cell is that its mean did not change.

Guarantee: if no mean changed, a comparison calls any cell "outside chance" with a chance of at most 5 %, whatever its
number of cells and whatever their dependence (Holm). It holds if a cell's changes (or each source's runs) are draws of
one normal law that were then rounded to the steps of the metric. An accuracy on a finite test set is close to that: a
count of right answers is a normal number, rounded, unless the law of the count is very skewed. The guarantee does not
cover runs that either train or collapse: few changes can agree by chance there although the law is wide.

The p-value is Student's at the worst numbers that the rounding allows, so equal changes can be chance. The step is
the largest number of which all differences among a cell's numbers are multiples; the true step divides it. A test set
that all runs share makes changes smaller, never larger, and Student's test measures their scatter: no binomial bound
is needed. Numbers have to be those of the runs, with all digits: what was rounded once more hides its step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from dpfl.errors import InputError
from dpfl.reporting.results import ORIGIN
from dpfl.reporting.statistics import holm, t_quantile

LEVEL = 0.95
"""Of the interval of a difference; the same for the family of all cells, by Holm's correction."""
FEWEST_SEEDS = 3
"""Of a cell that is judged. The scatter of two changes is a single number, which chance makes small too often."""
_DIGITS = 1e-5
"""Smallest step of a metric, as a part of its largest number; smaller differences are taken for errors of rounding."""
METRICS = ("accuracy_pct", "test_error_pct", "test_loss", "excess_risk", "epsilon_lower_bound")
"""Metric that is compared if none is asked for: the first that both sources measure."""
_NO_SETTINGS = ("paper", "job", "experiment", "stand_in_for", "data_note", ORIGIN)

Pair = tuple[str, str, pd.DataFrame | None, pd.DataFrame | None]
"""A paper, an experiment, and the runs of each source, None if it has none."""


class Difference(StrEnum):
    """Relation of a cell of the second source to the first source's."""

    IDENTICAL = "identical"
    """The same numbers, seed by seed."""
    INSIDE = "inside chance"
    """Other numbers, and chance can give the difference."""
    OUTSIDE = "outside chance"
    """A difference that chance gives in at most 5 % of such comparisons, all cells taken together."""
    UNDECIDED = "undecided"
    """Other numbers, nothing to judge them by: fewer than three seeds, or each source has one number in all."""
    NO_NUMBER = "without a number in one"
    """Both sources ran the cell, and in one of them no run reached a number: they diverged."""
    FIRST_ONLY = "only in first"
    """The second source lacks the cell."""
    SECOND_ONLY = "only in second"
    """The first source lacks the cell."""


def settings_of(rows: pd.DataFrame) -> list[str]:
    """Return the settings of a run table: the columns before the seed, without those that identify its place."""
    return [name for name in rows.columns[: rows.columns.get_loc("seed")] if name not in _NO_SETTINGS]


def metrics_of(rows: pd.DataFrame) -> list[str]:
    """Return what a run table has measured: the columns after the seed, without noise and privacy."""
    after = rows.columns[rows.columns.get_loc("seed") + 1 :]
    return [name for name in after if not name.startswith(("noise_", "privacy_")) and name not in _NO_SETTINGS]


def telling(cells: pd.DataFrame) -> list[str]:
    """Return the columns that tell cells apart: each that splits cells which those before it leave together."""
    chosen: list[str] = []
    parts = 1
    for name in cells:
        if (split := len(cells[[*chosen, name]].drop_duplicates())) > parts:
            chosen, parts = [*chosen, name], split
    return chosen


def comparison(pairs: Iterable[Pair], metric: str | None = None) -> pd.DataFrame:
    """Return a row for each cell of the pairs (dpfl.results.COLUMNS["compare"]), with p-values of the whole family.

    If no cell changed, any verdict is "outside chance" with a chance of at most 5 %, under the module's assumptions.

    `.attrs["compared"]` names, by paper and experiment, the settings that have one value in each source and not the
    same: cells are matched without them. Raises InputError if no cell is in both sources, or if no experiment measures
    the metric.
    """
    rows: list[dict[str, Any]] = []
    compared: dict[str, list[str]] = {}
    for paper, experiment, first, second in pairs:
        given = [each for each in (first, second) if each is not None]
        name = metric or next((name for name in METRICS if all(_is_measured(each, name) for each in given)), None)
        if name is None or not all(_is_measured(each, name) for each in given):
            continue
        apart = _apart(first, second) if first is not None and second is not None else []
        if apart:
            compared[f"{paper} {experiment}"] = apart
        identity = {"paper": paper, "experiment": experiment}
        rows += [{**identity, **cell} for cell in _cells(first, second, apart, name)]
    if not any(row["runs_first"] and row["runs_second"] for row in rows):
        raise InputError(f"the two sources have no cell in common{f' that measures {metric}' if metric else ''}")
    frame = pd.DataFrame(rows)
    frame["holm_p_value"] = holm(frame["p_value"])
    frame["verdict"] = [_verdict(row).value for row in frame.to_dict("records")]
    frame.attrs["compared"] = compared
    return frame.drop(columns=["same", "trained_first", "trained_second"])


def _is_measured(rows: pd.DataFrame, metric: str) -> bool:
    """Return whether a run table has numbers of a metric."""
    return metric in metrics_of(rows) and pd.to_numeric(rows[metric], errors="coerce").notna().any()


def _text(value: object) -> str:
    """Return a setting as text: numbers in their shortest form, "" for one that is not there."""
    if isinstance(value, bool | np.bool_ | str):
        return str(value)
    if isinstance(value, int | float | np.number):
        return "" if math.isnan(value) else f"{value:.12g}"
    return "" if value is None or value is pd.NA else str(value)


def _apart(first: pd.DataFrame, second: pd.DataFrame) -> list[str]:
    """Return the settings that have one value in every run of the first, and another in every run of the second."""
    names = dict.fromkeys([*settings_of(first), *settings_of(second)])
    values = {name: (_values(first, name), _values(second, name)) for name in names}
    return [name for name, (one, other) in values.items() if len(one) == len(other) == 1 and one != other]


def _values(rows: pd.DataFrame, name: str) -> set[str]:
    return set(map(_text, rows[name].unique())) if name in rows else {""}


def _cells(
    first: pd.DataFrame | None, second: pd.DataFrame | None, apart: Sequence[str], metric: str
) -> list[dict[str, Any]]:
    """Return the cells of one experiment, in the order of the first source, then those of the second alone."""
    given = [each for each in (first, second) if each is not None]
    names = [name for name in dict.fromkeys(name for each in given for name in settings_of(each)) if name not in apart]
    sides = [{} if each is None else _by_seed(each, names, metric) for each in (first, second)]
    keys = list(dict.fromkeys([*sides[0], *sides[1]]))
    varying = [names.index(name) for name in telling(pd.DataFrame(keys, columns=names))]
    none = pd.Series(dtype=float)
    return [
        {
            "cell": ", ".join(f"{names[place]} {key[place]}" for place in varying if key[place]) or "all runs",
            "metric": metric,
            **_difference(sides[0].get(key, none), sides[1].get(key, none)),
        }
        for key in keys
    ]


def _by_seed(rows: pd.DataFrame, names: Sequence[str], metric: str) -> dict[tuple[str, ...], pd.Series]:
    """Return the metric of each cell by seed, nan for a run that reached no number."""
    texts = [rows[name].map(_text) if name in rows else pd.Series("", rows.index) for name in names]
    keys = pd.Series(list(zip(*texts, strict=True)), rows.index) if texts else pd.Series([()] * len(rows), rows.index)
    known = pd.to_numeric(rows[metric], errors="coerce").replace([math.inf, -math.inf], math.nan)
    cells = {key: own for key, own in known.groupby(keys.loc[known.index].map(repr), sort=False)}
    return {
        keys.loc[own.index[0]]: own.groupby(rows.loc[own.index, "seed"].to_numpy()).mean() for own in cells.values()
    }


def _difference(first: pd.Series, second: pd.Series) -> dict[str, Any]:
    """Return the means of a cell, their difference with its interval, and the p-value of no difference."""
    trained = {"trained_first": len(first), "trained_second": len(second)}
    first, second = first.dropna(), second.dropna()
    shared = first.index.intersection(second.index)
    facts: dict[str, Any] = {
        **trained,
        "runs_first": len(first),
        "runs_second": len(second),
        "mean_first": first.mean(),
        "mean_second": second.mean(),
        "difference": second.mean() - first.mean(),
        "interval": math.nan,
        "p_value": math.nan,
        "same": len(first) == len(second) == len(shared) and bool((first.loc[shared] == second.loc[shared]).all()),
    }
    if len(shared) >= 2:
        facts["difference"] = (second.loc[shared] - first.loc[shared]).mean()
    if first.empty or second.empty or (first.nunique() <= 1 and second.nunique() <= 1 and not facts["same"]):
        return facts
    step = _step(np.concatenate([first, second]))
    if len(shared) >= FEWEST_SEEDS:
        change = second.loc[shared] - first.loc[shared]
        return facts | _student(facts["difference"], _error(change, step), step, len(shared) - 1)
    if min(len(first), len(second)) >= FEWEST_SEEDS:
        difference = second.mean() - first.mean()
        error = math.hypot(_error(first, step / 2), _error(second, step / 2))
        freedom = min(len(first), len(second)) - 1
        return facts | {"difference": difference} | _student(difference, error, step, freedom)
    return facts


def _step(values: np.ndarray) -> float:
    """Return the largest number of which all differences of the values are multiples (Euclid), at least _DIGITS.

    On numbers of a grid it is a multiple of the grid's step: of an accuracy in per cent, of 100 / test records.
    """
    least = _DIGITS * float(np.abs(values).max())
    step = 0.0
    for gap in np.diff(np.unique(values)):
        rest = float(gap)
        while rest > least:
            step, rest = rest, math.fmod(step, rest)
    return max(step, least)


def _error(values: pd.Series, rounding: float) -> float:
    """Return the largest standard error of a mean that the values had before each was rounded by at most `rounding`."""
    return (values.std() + rounding * math.sqrt(len(values) / (len(values) - 1))) / math.sqrt(len(values))


def _student(difference: float, error: float, step: float, freedom: int) -> dict[str, float]:
    """Return the half-width of a difference's interval and the two-sided p-value of none, the worst before rounding.

    `error` is the largest standard error, and rounding moves the difference by at most `step`. For two independent
    means the degrees of freedom are those of the fewer runs: the test keeps its level whatever the two variances are.
    Source: qiu2017, which extends this bound of Hsu (1938).
    """
    if not error > 0:
        return {"interval": 0.0, "p_value": float(difference == 0)}
    distance = max(abs(difference) - step, 0.0)
    half = step + float(t_quantile(freedom + 1, LEVEL)) * error
    return {"interval": half, "p_value": float(2 * stats.t.sf(distance / error, freedom))}


def _verdict(row: dict[str, Any]) -> Difference:
    """Return how a cell differs."""
    if not row["trained_second"] or not row["trained_first"]:
        return Difference.SECOND_ONLY if row["trained_second"] else Difference.FIRST_ONLY
    if row["same"]:
        return Difference.IDENTICAL
    if not row["runs_second"] or not row["runs_first"]:
        return Difference.NO_NUMBER
    if math.isnan(row["p_value"]):
        return Difference.UNDECIDED
    return Difference.OUTSIDE if row["holm_p_value"] < 1 - LEVEL else Difference.INSIDE
