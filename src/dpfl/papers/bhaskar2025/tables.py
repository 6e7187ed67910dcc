"""Tables 2 to 5 in the paper's layout, the models behind a single average, and the tables of the studies."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pandas as pd

from dpfl.papers.bhaskar2025.central_model import central_cells, central_page
from dpfl.papers.bhaskar2025.noise_fit import noise_cells, noise_page
from dpfl.papers.bhaskar2025.open_settings import open_cells, open_page
from dpfl.papers.bhaskar2025.overlap import budgets, overlap_page, record_notes
from dpfl.papers.bhaskar2025.precision import precision_cells, precision_page
from dpfl.papers.bhaskar2025.published_cells import (
    BIMODAL_PCT,
    CHANCE_PCT,
    NOT_REPRODUCED,
    PUBLISHED_RUNS,
    REPRODUCED,
    UNDECIDED,
    WIDE_PCT,
    distance_page,
    distance_summary,
    measured_cells,
    numbers,
    why_far,
)
from dpfl.papers.bhaskar2025.readings import reading_cells, readings_page
from dpfl.papers.bhaskar2025.sampling import sampling_cells, sampling_page
from dpfl.reporting.bounds import at_least, at_most
from dpfl.reporting.canary_table import canaries, canaries_page, control_notes
from dpfl.reporting.display_names import budget_cell, data_name, model_name
from dpfl.reporting.errata import errata_recipe
from dpfl.reporting.results import ORIGINS, Results
from dpfl.reporting.tables import TableLayout, TableRecipe

FALL_PCT = 10.0  # points between the clients' own models and their average that count as a fall
_LOST = {
    "diverged": "diverged: the run ended with a number that is not finite",
    "at_chance": f"at chance: accuracy below {CHANCE_PCT:g} %, no better than a constant answer",
}
_LEGEND = (
    f"Accuracy in per cent. Ours: the mean over the runs; n is their number if it is below {PUBLISHED_RUNS}. If runs "
    f"differ by more than {BIMODAL_PCT:g} points, the table has the least and the most accurate instead of a mean. "
    "Difference: ours minus published, coloured on the page by the verdict. *: the published value is outside the 95 % "
    "prediction interval that our runs give for a mean of ten runs."
)


def split_page(cells: pd.DataFrame) -> TableLayout:
    """Return Tables 2 to 4 as the paper has them: splits (E, R) down, budgets and in each the models across."""
    budgets = ["FedAvg" if math.isinf(each) else f"ε = {each:g}" for each in cells["epsilon"]]
    return _page(
        cells,
        "(E, R)",
        [f"({row.local_epochs}, {row.rounds})" for row in cells.itertuples()],
        [f"{budget}: {model_name(model)}" for budget, model in zip(budgets, cells["model"], strict=True)],
        cells["epsilon"].map(lambda epsilon: -epsilon),
    )


def clients_page(cells: pd.DataFrame) -> TableLayout:
    """Return Table 5 as the paper has it: numbers of clients down, data sets and in each the models across."""
    data = [f"{data_name(row.dataset)}, ε = {row.epsilon:g}" for row in cells.itertuples()]
    return _page(
        cells,
        "k",
        ["1 (central)" if clients == 1 else f"{clients}" for clients in cells["clients"]],
        [f"{name}: {model_name(model)}" for name, model in zip(data, cells["model"], strict=True)],
        pd.Series(0, cells.index),
    )


def _page(cells: pd.DataFrame, name: str, rows: list[str], columns: list[str], order: pd.Series) -> TableLayout:
    """Lay the cells out at their rows and columns, columns in `order`; three lines a row: ours, published, difference.

    `name`: the heading of the rows.
    """
    placed = cells.assign(row=rows, column=columns, order=order).sort_values("order", kind="stable")
    lines, agreement = [], []
    for row in dict.fromkeys(rows):
        own = placed[placed["row"] == row]
        for kind, text in (("ours", _ours), ("published", _published), ("difference", _difference)):
            shown = {cell["column"]: text(cell) for _, cell in own.iterrows()}
            lines.append({name: row, "": kind, **shown})
            agreement.append(dict(zip(own["column"], own["prediction"], strict=True)) if kind == "difference" else {})
    body = pd.DataFrame(lines).fillna("")
    verdicts = pd.DataFrame(agreement, columns=body.columns, dtype=object).fillna("")
    return TableLayout(body, _notes(cells), agreement=verdicts)


def _ours(cell: pd.Series) -> str:
    """Return our mean or, if the runs lie far apart, their ends; and the number of runs if it is below ten."""
    if cell.runs == 0:
        return "not run"
    facts = [f"n = {cell.runs}"] if cell.runs < PUBLISHED_RUNS else []
    facts += [f"{count} {word.replace('_', ' ')}" for word in _LOST if (count := cell[word])]
    value = f"{cell.least_pct:.2f} to {cell.most_pct:.2f}" if _is_bimodal(cell) else f"{cell.accuracy_pct:.2f}"
    return value + (f" ({', '.join(facts)})" if facts else "")


def _is_bimodal(cell: pd.Series) -> bool:
    """Return whether the runs of a cell lie so far apart that their mean is none of them."""
    return cell.most_pct - cell.least_pct > BIMODAL_PCT


def _published(cell: pd.Series) -> str:
    return f"{cell.published_accuracy_pct:.2f}"


def _difference(cell: pd.Series) -> str:
    """Return ours minus published, marked if the published value is outside; or why there is none."""
    if cell.runs == 0:
        return ""
    if cell.stand_in:
        return "stand-in"
    if _is_bimodal(cell):
        return "–"
    return f"{cell.difference_pct:+z.2f}{'*' if cell.prediction == NOT_REPRODUCED else ''}"


def _notes(cells: pd.DataFrame) -> list[str]:
    """Return notes on runs, data, intervals, optimisers and noise."""
    ran = cells[cells["runs"] > 0]
    notes = [_LEGEND]
    if len(ran) < len(cells):
        notes.append(f"{len(cells) - len(ran)} of {len(cells)} cells were not run at this scale.")
    if len(ran) and ran["runs"].min() < PUBLISHED_RUNS:
        notes.append(f"The paper reports means of {PUBLISHED_RUNS} runs. Ours: {_run_counts(ran)}.")
    if lost := [text for name, text in _LOST.items() if ran[name].any()]:
        notes.append(f"Counted after the number of runs, and included in the mean: {'; '.join(lost)}.")
    notes += [f"Far from the published value: {text}" for cell in ran.itertuples() if (text := why_far(cell))]
    if len(ran) and not ran["stand_in"].all():
        notes.append(_prediction_note(ran[~ran["stand_in"]]))
    stand_ins = ran[ran["stand_in"]]
    for dataset, ran_on in sorted(set(zip(stand_ins["dataset"], stand_ins["ran_on"], strict=True))):
        notes.append(f"{ran_on} stands in for {dataset}. Do not compare it with the published values.")
    notes.extend(sorted(set(ran["data_note"]) - {""}))
    notes.extend(_optimisers(ran))
    private = ran[ran["epsilon"] < math.inf].drop_duplicates(["ran_on", "clients", "epsilon", "noise_multiplier"])
    if len(private):
        notes.append(
            "Each ε below is for the messages of one client in all rounds (Claim 1), by PLD. The noise is what the "
            "accountant of the settings gives for the published ε. Zero out: one record's contribution is replaced by "
            "nothing, and the number of records is public. Add or remove: the paper's Definition 1, at the same "
            "sampling rate. A record that several clients hold spends more: see the table of overlap."
        )
    notes.extend(_noise_note(cell) for _, cell in private.iterrows())
    return notes


def _run_counts(ran: pd.DataFrame) -> str:
    """Say how many cells have how many runs."""
    counts = ran["runs"].value_counts().sort_index(ascending=False)
    return ", ".join(
        f"{cells} {'cell has' if cells == 1 else 'cells have'} {runs} {'run' if runs == 1 else 'runs'}"
        for runs, cells in counts.items()
    )


def _prediction_note(ran: pd.DataFrame) -> str:
    """Count the published values that are reproduced and those that are not."""
    ten, single = (_sides(ran[name]) for name in ("prediction", "prediction_single"))
    note = (
        f"A published value is reproduced if it lies in the 95 % prediction interval of our runs, widened by half of "
        f"its last digit. As means of {PUBLISHED_RUNS} runs: {ten}; as single runs: {single}. If our settings were the "
        f"paper's, {0.05 * (ran['prediction'] != '').sum():.1f} would not be reproduced, by chance."
    )
    if UNDECIDED in set(ran["prediction"]) | set(ran["prediction_single"]):
        note += f" Undecided: the interval is wider than ± {WIDE_PCT:g} points."
    if alone := int((ran["prediction"] == "").sum()):
        note += f" {alone} {'cell has' if alone == 1 else 'cells have'} a single run and no such interval."
    return note


def _sides(where: pd.Series) -> str:
    """Return how many published values lie on which side, as "3 reproduced, 1 not reproduced"."""
    found = {side: int((where == side).sum()) for side in (REPRODUCED, NOT_REPRODUCED, UNDECIDED)}
    return ", ".join(f"{count} {side}" for side, count in found.items() if count or side != UNDECIDED)


def _optimisers(ran: pd.DataFrame) -> list[str]:
    """Name batch size, learning rate and momentum of the cells, if the runs do, and a precision that is not float32."""
    known = ran.dropna(subset=["batch_size", "learning_rate", "momentum"])
    notes = []
    optimisers = known.groupby(["batch_size", "learning_rate", "momentum"], sort=False)
    for (batch_size, rate, momentum), group in optimisers:
        where = dict.fromkeys(f"{data_name(row.ran_on)} {model_name(row.model)}" for row in group.itertuples())
        where = ["all cells"] if len(group) == len(ran) else where
        central = " (one client)" if set(group["clients"]) == {1} else ""
        notes.append(
            f"Batch size {batch_size:g}, learning rate {rate:g}, momentum {momentum:g}{central}: {', '.join(where)}."
        )
    for precision, group in ran[~ran["precision"].isin(["", "float32"])].groupby("precision", sort=False):
        where = dict.fromkeys(f"{data_name(row.ran_on)} {model_name(row.model)}" for row in group.itertuples())
        notes.append(f"Trained in {precision} instead of float32: {', '.join(where)}. See the table of precision.")
    return notes


def _noise_note(cell: pd.Series) -> str:
    """Return one claimed budget's noise, and what is proven and refuted under both neighbouring relations."""
    clients = "one central client" if cell.clients == 1 else f"each of {cell.clients} clients"
    batches = cell.sampling.replace("_", " ")
    proven = f"zero out at most {at_most(cell.epsilon_proven, places=3)}, at least "
    proven += at_least(cell.epsilon_refuted, places=3)
    if not math.isnan(cell.epsilon_add_remove):
        proven += f"; add or remove at most {at_most(cell.epsilon_add_remove, places=3)}"
    return (
        f"{data_name(cell.ran_on)}, {clients}, published ε = {cell.epsilon:g}: noise multiplier "
        f"{cell.noise_multiplier:.4f}, δ = {cell.delta:g}, {batches} batches: {proven}. "
        f"{_holds(cell)}"
    )


def _holds(cell: pd.Series) -> str:
    """Say whether the printed epsilon holds for the noise that ran."""
    if cell.epsilon_refuted > cell.epsilon:
        return f"The published ε is refuted: a lower bound exceeds it by {cell.epsilon_refuted - cell.epsilon:.2g}."
    return "The published ε is proven." if cell.epsilon_proven <= cell.epsilon else "The published ε is unproven."


_KEY = ["dataset", "model", "epsilon"]
_AVERAGED = [
    "ran_on", "stand_in", "runs", "accuracy_pct", "interval_pct", "least_pct", "most_pct", "local_accuracy_pct",
]  # fmt: skip
_PRINT = ["published_accuracy_pct", "difference_pct", "prediction", ORIGINS]


def last_column(results: Results) -> pd.DataFrame:
    """Return a row for each model and budget of Tables 2 to 4 that ran at (20, 1).

    Columns: dataset, model, epsilon, ran_on, stand_in, runs, accuracy_pct and interval_pct (the average),
    least_pct and most_pct (of the runs),
    local_accuracy_pct (the clients' own models just before, mean over clients; nan where it was not measured),
    many_rounds_pct (our accuracy at (1, 20), nan where not run), published_accuracy_pct, difference_pct, prediction,
    origins (of the runs at (20, 1)).
    """
    cells = pd.concat([measured_cells(results, table) for table in (2, 3, 4)], ignore_index=True)
    last = cells[(cells["rounds"] == 1) & (cells["runs"] > 0)]
    first = cells.loc[cells["local_epochs"] == 1, [*_KEY, "accuracy_pct"]]
    first = first.rename(columns={"accuracy_pct": "many_rounds_pct"})
    return last[[*_KEY, *_AVERAGED, *_PRINT]].merge(first, on=_KEY)


def last_column_page(cells: pd.DataFrame) -> TableLayout:
    """Lay the column out for a reader."""
    bimodal = cells["most_pct"] - cells["least_pct"] > BIMODAL_PCT
    body = pd.DataFrame(
        {
            "Data": cells["ran_on"],
            "Model": cells["model"].map(model_name),
            "ε": cells["epsilon"].map(budget_cell),
            "Runs": cells["runs"].map(str),
            "(1, 20)": numbers(cells["many_rounds_pct"], "{:.2f}"),
            "Clients alone": numbers(cells["local_accuracy_pct"], "{:.2f}"),
            "(20, 1)": [_average(cell) for _, cell in cells.iterrows()],
            "Published": numbers(cells["published_accuracy_pct"].where(~cells["stand_in"].eq(True)), "{:.2f}"),
            "Difference": numbers(cells["difference_pct"].mask(bimodal), "{:+.2f}"),
        }
    )
    return TableLayout(body, _last_column_notes(cells))


def _average(cell: pd.Series) -> str:
    """Return the mean of a cell's runs with its interval, or their range if they are far apart."""
    if _is_bimodal(cell):
        return f"{cell.least_pct:.2f} to {cell.most_pct:.2f}"
    return f"{cell.accuracy_pct:.2f}" + ("" if math.isnan(cell.interval_pct) else f" ± {cell.interval_pct:.2f}")


def _last_column_notes(cells: pd.DataFrame) -> list[str]:
    """Say what the columns are, and count what they show."""
    notes = [
        "Accuracy in per cent. (20, 1): the average of the clients' models, the only one that is taken. Clients alone: "
        "mean accuracy of the models that go into it. (1, 20): ours with twenty averages. A range: runs that differ by "
        f"more than {BIMODAL_PCT:g} points, whose mean says nothing.",
    ]
    if cells.empty:
        return ["Nothing was run at this scale.", *notes]
    measured = cells.dropna(subset="local_accuracy_pct")
    change = measured["accuracy_pct"] - measured["local_accuracy_pct"]
    alone = measured["many_rounds_pct"] - measured["local_accuracy_pct"]
    falls, lags = change < -FALL_PCT, alone > FALL_PCT
    notes.append(
        f"In {falls.sum()} of {len(measured)} rows the average is more than {FALL_PCT:g} points less accurate than the "
        f"models before averaging, so averaging fails. In {(falls & lags).sum()} of them the clients alone are more "
        f"than {FALL_PCT:g} points below (1, 20) as well, and in {(lags & ~falls).sum()} rows they are and the average "
        f"does not fall. In {(change > 0).sum()} the average is more accurate than the models before averaging."
    )
    compared = cells[cells["difference_pct"].notna()]
    if len(compared):
        better, worse = (compared["difference_pct"] > 1).sum(), (compared["difference_pct"] < -1).sum()
        notes.append(
            f"Ours is more than a point above the published value in {better} of {len(compared)} rows and more than a "
            f"point below in {worse}. Published values: {_sides(compared['prediction'])}."
        )
    if cells["stand_in"].any():
        notes.append("Do not compare stand-in data with the published values.")
    return notes


def _published_table(table: int, page: Callable[[pd.DataFrame], TableLayout]) -> TableRecipe:
    """Return the recipe of a published table."""
    return TableRecipe(partial(measured_cells, table=table), page, PUBLISHED_RUNS, record_notes)


TABLES = {
    "errata": errata_recipe("bhaskar2025"),
    "table_2": _published_table(2, split_page),
    "table_3": _published_table(3, split_page),
    "table_4": _published_table(4, split_page),
    "table_5": _published_table(5, clients_page),
    "distance_summary": TableRecipe(distance_summary, distance_page),
    "last_column": TableRecipe(last_column, last_column_page),
    "readings": TableRecipe(reading_cells, readings_page),
    "open_settings": TableRecipe(open_cells, open_page),
    "central_model": TableRecipe(central_cells, central_page),
    "noise_fit": TableRecipe(noise_cells, noise_page),
    "precision": TableRecipe(precision_cells, precision_page),
    "sampling": TableRecipe(sampling_cells, sampling_page),
    "overlap": TableRecipe(lambda results: budgets(), overlap_page),
    "canaries": TableRecipe(partial(canaries, paper="bhaskar2025"), canaries_page, privacy_notes=control_notes),
}
