"""Layout of the table on means of ten or single runs: what each test gives, and what follows."""

from __future__ import annotations

import math

import pandas as pd

from dpfl.papers.bhaskar2025.paper_runs import PUBLISHED_RUNS
from dpfl.papers.bhaskar2025.single_runs import ALL, AVERAGED, CONSTANT, SCATTER, TAIL
from dpfl.papers.bhaskar2025.table_layout import numbers
from dpfl.reporting.notes import budget_name, data_name, model_name
from dpfl.reporting.tables import TableLayout

SPLITS = 6
_CURVES = {0: "an offset", 1: "a straight line", 2: "a parabola"}
_READINGS = {PUBLISHED_RUNS: "means of ten", 1: "single runs"}


def single_runs_page(data: pd.DataFrame) -> TableLayout:
    """Lay the columns and what they give together out for a reader; constant models stand in the notes."""
    columns = data[data["test"] == SCATTER]
    body = pd.DataFrame(
        {
            "Columns": [_place(row) for row in columns.itertuples()],
            "Taken out": columns["curve"].map(_CURVES),
            "Seeds": columns["runs"].map("{:.0f}".format),
            "Largest step, in standard errors of means of ten": numbers(columns["largest_step_ten"], "{:.1f}"),
            "of single runs": numbers(columns["largest_step_single"], "{:.1f}"),
            "Chance, means of ten": columns["probability_ten"].map(_chance),
            "Chance, single runs": columns["probability_single"].map(_chance),
            "Runs averaged, 95 %": [_interval(row) for row in columns.itertuples()],
        }
    )
    return TableLayout(body, _notes(data))


def _place(row) -> str:
    """Return the name of a column, or how many there are together."""
    if row.dataset == ALL:
        return f"all {row.columns:.0f} together" + (", without (20, 1)" if row.splits < SPLITS else "")
    return f"{data_name(row.dataset)}, {budget_name(row.epsilon)}"


def _chance(probability: float) -> str:
    return "below 0.001" if probability < 0.001 else f"{probability:.3f}"


def _interval(row) -> str:
    """Return the interval of the number of averaged runs, open where it goes beyond what was looked at."""
    if math.isnan(row.averaged_low):
        return "none fits"
    low = "below " if row.averaged_low <= AVERAGED[0] * 1.01 else ""
    high = "more" if row.averaged_high >= AVERAGED[-1] * 0.99 else _count(row.averaged_high)
    return f"{low}{_count(row.averaged_low)} to {high}"


def _count(runs: float) -> str:
    """Return a number of runs with two digits, in decimals."""
    return f"{float(f'{runs:.2g}'):g}"


def _notes(data: pd.DataFrame) -> list[str]:
    """Say what follows, how it was tested, and what constant models add."""
    together = data[(data["test"] == SCATTER) & (data["dataset"] == ALL)]
    notes = [_verdict(together)] if len(together) else ["No column has enough seeds of all splits at this scale."]
    notes += [_constant(row) for row in data[data["test"] == CONSTANT].itertuples()]
    notes.append(
        "Published less ours, over the six splits of a column of ScatterNet + linear, is taken to be a smooth curve, "
        "which other settings than ours may cause, plus the noise of our mean and of what is printed. Chance: the "
        "probability that noise leaves at least as much scatter about the best curve as is seen; small where the "
        f"published values scatter more than the reading allows, near 1 where less. Runs averaged: all numbers for "
        f"which neither is below {TAIL:g}. Largest step: between adjacent splits, published less ours."
    )
    notes.append(
        "Were settings to shift the splits of a column unevenly, by more than a parabola, the published values would "
        "seem to average fewer runs than they do: a small number is evidence of single runs or of such shifts."
    )
    return notes


def _verdict(together: pd.DataFrame) -> str:
    """Say which reading the scatter of all columns allows."""
    parts = []
    for averaged, name in _READINGS.items():
        allowed = (together["averaged_low"] <= averaged) & (averaged <= together["averaged_high"])
        word = "allowed" if allowed.all() else "excluded" if not allowed.any() else "open"
        parts.append(f"{name}: {word}")
    found = [
        f"{_interval(row)} with {_CURVES[row.curve]} taken out{'' if row.splits == SPLITS else ', without (20, 1)'}"
        for row in together.itertuples()
    ]
    return (
        f"{'; '.join(parts)}. By their scatter in all {together['columns'].iloc[0]:.0f} columns the published values "
        f"average so many runs (95 %): {'; '.join(found)}. Excluded: outside of all these intervals; allowed: inside "
        "of all; open: else."
    )


def _constant(row) -> str:
    """Return what one cell with the share of one digit says."""
    own = f"{row.constant_runs:.0f} of our {row.runs:.0f} runs are constant" if row.runs else "ours did not run"
    same = f", {row.same_runs:.0f} of them with this digit" if row.constant_runs else ""
    text = (
        f"{data_name(row.dataset)}, {model_name(row.model)}, E = {row.local_epochs:.0f}: the published "
        f"{row.published_accuracy_pct:.2f} is the share of one digit, as a model has that always answers it "
        f"({own}{same}). Were all runs of the paper such models, and every digit as likely, a mean of ten would print "
        f"the share of one digit with probability {row.probability_ten:.2f}, a single run always."
    )
    if row.constant_runs > 1 and row.same_runs == row.constant_runs:
        text += (
            " Ours all have one digit: if the paper's favour one too, a mean of ten prints it, and this says nothing."
        )
    return text
