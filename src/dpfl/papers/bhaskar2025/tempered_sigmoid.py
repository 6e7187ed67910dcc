"""Decide what "temp = 2" of the bounded activation is, by a rule: a factor, tanh(x), or a divisor, tanh(x/4).

The rule stands in the head of grid.yaml, dated before any run of the study. It counts Fashion-MNIST alone, of which no
cell was seen with the divisor when it was written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

import pandas as pd

from dpfl.catalog import load
from dpfl.experiments.shared.run_table import as_columns
from dpfl.papers.bhaskar2025.paper_runs import (
    CELL,
    LEVEL,
    all_runs,
    each_once,
    published_cells,
    table_settings,
    with_settings,
)
from dpfl.papers.bhaskar2025.table_layout import numbers
from dpfl.reporting.notes import budget_name, data_name, model_name
from dpfl.reporting.results import ORIGIN, ORIGINS, Results
from dpfl.reporting.statistics import half_width
from dpfl.reporting.tables import TableLayout

DIVISOR = (2, 0.5, 1)  # scale, inverse temperature, offset: 2 / (1 + exp(-x/2)) - 1 = tanh(x/4)
COUNTED = "fashion_mnist"
MODELS = ("cnn_tanh", "scatter_cnn")
SEEDS = 3
NONE = "none"  # no seed left out
_SPLIT = ["local_epochs", "rounds"]


class SigmoidReading(StrEnum):
    """Meanings of temp = 2; `UNDECIDED` as long as cells are missing."""

    FACTOR = "factor"
    DIVISOR = "divisor"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class SigmoidDecision:
    """Outcome of the rule. `gains_pct`: points by which the divisor is nearer to the print, by model and budget;
    `mean_pct` and `interval_pct`: their mean and the half-width of its interval; `without_last_pct`: the mean without
    the split (20, 1); `least_pct`, `most_pct`: its ends with one seed left out; `missing`: cells yet to run both ways.
    """

    reading: SigmoidReading
    gains_pct: tuple[float, ...]
    mean_pct: float
    interval_pct: float
    without_last_pct: float
    least_pct: float
    most_pct: float
    missing: int


def tempered_cells(results: Results) -> pd.DataFrame:
    """Return a row for each cell that ran with both readings on shared seeds, and for each of these seeds left out.

    Columns: dataset, ran_on, stand_in, model, epsilon, local_epochs, rounds, left_out ("none" or a seed), runs (shared
    seeds that are left), published_accuracy_pct, factor_pct and divisor_pct (mean accuracy), factor_distance_pct and
    divisor_distance_pct (to the published value), gain_pct (the first distance less the second: above 0 the divisor
    is nearer), origins; what needs the published value is nan on stand-in data.
    """
    settings, runs = load("bhaskar2025").settings, all_runs(results)
    runs = runs[(runs["clients"] == table_settings(2)["clients"]) & runs["model"].isin(MODELS)]
    if "tempered_sigmoid" not in runs:
        runs = runs.iloc[:0]
    key = ["dataset", *CELL, "seed"]
    factor = each_once(with_settings(runs, settings))
    divisor = each_once(with_settings(runs, {**settings, "tempered_sigmoid": DIVISOR}))
    both = factor.merge(divisor[[*key, "accuracy_pct", ORIGIN]], on=key, suffixes=("_factor", "_divisor"))
    both[ORIGINS] = both[f"{ORIGIN}_factor"] + " " + both[f"{ORIGIN}_divisor"]
    parts = [both.assign(left_out=NONE)]
    parts += [both[both["seed"] != seed].assign(left_out=str(seed)) for seed in sorted(both["seed"].unique())]
    means = (
        pd.concat(parts)
        .groupby(["dataset", *CELL, "left_out"], as_index=False)
        .agg(
            ran_on=("ran_on", "first"),
            stand_in=("stand_in", "first"),
            runs=("seed", "size"),
            factor_pct=("accuracy_pct_factor", "mean"),
            divisor_pct=("accuracy_pct_divisor", "mean"),
            **{ORIGINS: (ORIGINS, " ".join)},
        )
    )
    cells = means.merge(published_cells().query("table < 5").drop(columns="table"), on=["dataset", *CELL])
    cells["published_accuracy_pct"] = cells["published_accuracy_pct"].where(~cells["stand_in"].eq(True))
    for name in ("factor", "divisor"):
        cells[f"{name}_distance_pct"] = (cells[f"{name}_pct"] - cells["published_accuracy_pct"]).abs()
    cells["gain_pct"] = cells["factor_distance_pct"] - cells["divisor_distance_pct"]
    by, ascending = ["dataset", "model", "epsilon", "local_epochs", "left_out"], [True, True, False, True, True]
    return cells.drop(columns="clients").sort_values(by, ascending=ascending, ignore_index=True)


def expected_cells() -> set[tuple[str, float, int, int]]:
    """Return model, epsilon, local epochs and rounds of the 36 cells that the rule counts."""
    budgets, splits = load("bhaskar2025").tables["table_3"]["published_accuracy_pct"], table_settings(3)["splits"]
    return {(model, float(budget), *split) for model in MODELS for budget, split in product(budgets[model], splits)}


def decide(cells: pd.DataFrame) -> SigmoidDecision:
    """Return what the rule of grid.yaml says of `tempered_cells`.

    The divisor is chosen where the 95 % interval of the mean of six gains (Student's t; two models, three budgets, each
    averaged over six splits) is above 0, and the mean stays above 0 without the split (20, 1); else the factor stays.
    Undecided until all 36 cells ran both ways with three seeds.
    """
    counted = cells[(cells["dataset"] == COUNTED) & cells["gain_pct"].notna()]
    whole = counted[counted["left_out"].astype(str) == NONE]
    ran = whole[whole["runs"] >= SEEDS]
    missing = expected_cells() - set(ran[["model", "epsilon", *_SPLIT]].itertuples(index=False, name=None))
    gains = whole.groupby(["model", "epsilon"])["gain_pct"].mean()
    interval = float(half_width(gains.std(), len(gains), LEVEL))
    without = _mean_gain(whole[whole["rounds"] > 1])
    left = [_mean_gain(part) for seed, part in counted.groupby(counted["left_out"].astype(str)) if seed != NONE]
    better = gains.mean() - interval > 0 and without > 0
    reading = SigmoidReading.UNDECIDED if missing else SigmoidReading.DIVISOR if better else SigmoidReading.FACTOR
    ends = (min(left), max(left)) if left else (math.nan, math.nan)
    return SigmoidDecision(reading, tuple(gains), float(gains.mean()), interval, without, *ends, len(missing))


def _mean_gain(cells: pd.DataFrame) -> float:
    """Return the mean over models and budgets of the mean gain over splits."""
    return float(cells.groupby(["model", "epsilon"])["gain_pct"].mean().mean())


def tempered_page(cells: pd.DataFrame) -> TableLayout:
    """Lay the cells out for a reader, with what is decided."""
    whole = cells[cells["left_out"].astype(str) == NONE]
    body = pd.DataFrame(
        {
            "(E, R)": [f"({row.local_epochs}, {row.rounds})" for row in whole.itertuples()],
            "Seeds": whole["runs"].map(str),
            "Published": numbers(whole["published_accuracy_pct"], "{:.2f}"),
            "tanh(x)": numbers(whole["factor_pct"], "{:.2f}"),
            "off by": numbers(whole["factor_distance_pct"], "{:.2f}"),
            "tanh(x/4)": numbers(whole["divisor_pct"], "{:.2f}"),
            "off by ": numbers(whole["divisor_distance_pct"], "{:.2f}"),
            "tanh(x/4) nearer by": numbers(whole["gain_pct"], "{:+z.2f}"),
        }
    )
    headings = [
        f"{data_name(row.ran_on)}, {model_name(row.model)}, {budget_name(row.epsilon)}" for row in whole.itertuples()
    ]
    notes = [verdict(decide(cells))]
    if stand_ins := sorted(set(whole.loc[whole["stand_in"].eq(True), "ran_on"])):
        notes.append(f"Stand-in data ({', '.join(stand_ins)}) are not comparable and count for nothing.")
    chosen = as_columns({"chosen": load("bhaskar2025").settings["tempered_sigmoid"]})["chosen"]
    notes.append(
        f"tanh(x) is tempered_sigmoid {chosen} (scale, inverse temperature, offset), tanh(x/4) is {list(DIVISOR)}. "
        "Accuracy in per cent, on the seeds that both ran; off by: distance to the published value in points."
    )
    return TableLayout(body, notes, headings)


def verdict(decision: SigmoidDecision) -> str:
    """Return what is decided as one or two sentences."""
    if not decision.gains_pct:
        return f"Undecided: none of the {decision.missing} counted cells (Fashion-MNIST) ran with both readings yet."
    score = (
        f"tanh(x/4) is nearer to the print by {decision.mean_pct:+z.2f} ± {decision.interval_pct:.2f} points, the mean "
        f"of {len(decision.gains_pct)} models and budgets; without the split (20, 1) by "
        f"{decision.without_last_pct:+z.2f}; with one seed left out by {decision.least_pct:+z.2f} to "
        f"{decision.most_pct:+z.2f}"
    )
    if decision.reading is SigmoidReading.UNDECIDED:
        return (
            f"Undecided: {decision.missing} of {len(expected_cells())} counted cells have yet to run; so far {score}."
        )
    if decision.reading is SigmoidReading.FACTOR:
        return f"Decided by the rule: temp = 2 stays a factor, tanh(x); {score}."
    return (
        f"Decided by the rule: temp = 2 is a divisor, tanh(x/4); {score}. Tables 2 to 5 still show tanh(x), for with "
        "the divisor Fashion-MNIST alone was trained, with ten clients."
    )
