"""Tables 2 to 5 in the paper's layout, and their last column, (20, 1), in detail."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

import pandas as pd

from dpfl.papers.bhaskar2025.cells import (
    BIMODAL_PCT,
    CHANCE_PCT,
    COLUMN,
    LEVEL,
    NOT_REPRODUCED,
    PUBLISHED_RUNS,
    REPRODUCED,
    UNDECIDED,
    WIDE_PCT,
    is_bimodal,
    measured_cells,
    numbers,
    value_or_range,
    why_far,
)
from dpfl.papers.bhaskar2025.overlap import record_notes
from dpfl.reporting.canary_table import canaries, canaries_page, control_notes
from dpfl.reporting.display_names import (
    at_least,
    at_most,
    budget_cell,
    budget_name,
    data_name,
    in_words,
    listed,
    model_name,
    percent,
)
from dpfl.reporting.results import ORIGINS, Results
from dpfl.reporting.tables import TableLayout, TableRecipe

# The paper's layout: three lines a row.

_LOST = {
    "diverged": "diverged: the run ended with a number that is not finite",
    "at_chance": f"at chance: accuracy below {CHANCE_PCT:g} %, no better than a constant answer",
}
_LEGEND = (
    f"Accuracy in per cent. Ours: the mean over the runs; n is their number if it is below {PUBLISHED_RUNS}. If runs "
    f"differ by more than {BIMODAL_PCT:g} points, the table has the least and the most accurate instead of a mean. "
    "Difference: ours minus published, coloured on the page by the verdict. *: the published value is outside the 95 % "
    "prediction interval that our runs give for a mean of ten runs. ?: it is inside, but the interval is too wide to "
    "tell."
)
_MARKS = {NOT_REPRODUCED: "*", UNDECIDED: "?"}


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
    page = _page(
        cells,
        "k",
        ["1 (central)" if clients == 1 else f"{clients}" for clients in cells["clients"]],
        [f"{name}: {model_name(model)}" for name, model in zip(data, cells["model"], strict=True)],
        pd.Series(0, cells.index),
    )
    central = cells.loc[cells["clients"] == 1, "difference_pct"].dropna().abs()
    if len(central):
        page.notes.insert(
            1,
            f"One central client: the table of the central model compares three ways to train it, and a rule chooses. "
            f"Median distance from the published values, {len(central)} {'cell' if len(central) == 1 else 'cells'}: "
            f"{central.median():.2f} points.{_worse_than_ten(cells)}",
        )
    return page


def _worse_than_ten(cells: pd.DataFrame) -> str:
    """Say where our central model is less accurate than our ten clients and the published one is more accurate, after a
    blank; "" if nowhere."""
    kept = cells[(cells["runs"] > 0) & ~cells["stand_in"].eq(True)]
    both = kept[kept["clients"] == 1].merge(kept[kept["clients"] == 10], on=["dataset", "model"], suffixes=("", "_ten"))
    reversed_here = (both["accuracy_pct"] < both["accuracy_pct_ten"]) & (
        both["published_accuracy_pct"] > both["published_accuracy_pct_ten"]
    )
    where = [
        f"{data_name(row.dataset)} {model_name(row.model)} "
        f"({row.accuracy_pct:.2f} against {row.accuracy_pct_ten:.2f} %; "
        f"published {row.published_accuracy_pct:.2f} against {row.published_accuracy_pct_ten:.2f} %)"
        for row in both[reversed_here].itertuples()
    ]
    if not where:
        return ""
    choices = "its batches, and on CIFAR-10 the rate of the pixel CNNs, are our choices"
    return f" It is less accurate than ten clients for {listed(where)}; {choices}."


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
    return value_or_range(cell) + (f" ({', '.join(facts)})" if facts else "")


def _published(cell: pd.Series) -> str:
    return f"{cell.published_accuracy_pct:.2f}"


def _difference(cell: pd.Series) -> str:
    """Return ours minus published, marked if the published value is outside or cannot be told; or why there is none."""
    if cell.runs == 0:
        return ""
    if cell.stand_in:
        return "stand-in"
    if is_bimodal(cell):
        return "–"
    return f"{cell.difference_pct:+z.2f}{_MARKS.get(cell.prediction, '')}"


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
    if ran["repeats"].any():
        notes.append(_repeats_note(ran))
    notes += [f"Far from the published value: {text}" for cell in ran.itertuples() if (text := why_far(cell))]
    if len(ran) and not ran["stand_in"].all():
        notes.append(_prediction_note(ran[~ran["stand_in"]]))
    stand_ins = ran[ran["stand_in"]]
    for dataset, ran_on in sorted(set(zip(stand_ins["dataset"], stand_ins["ran_on"], strict=True))):
        notes.append(f"{ran_on} stands in for {dataset}. Do not compare it with the published values.")
    notes.extend(sorted(set(ran["data_note"]) - {""}))
    notes.extend(_optimisers(ran))
    private = ran[ran["epsilon"] < math.inf]
    if len(private):
        notes.append(
            "Each ε below is for the messages of one client in all rounds (Claim 1), by PLD. The noise is what the "
            "accountant of the settings gives for the published ε. Zero out: one record's contribution is replaced by "
            "nothing, and the number of records is public. Add or remove: the paper's Definition 1, at the same "
            "sampling rate. A record that several clients hold spends more: see the table of overlap."
        )
    noises = private.groupby(["ran_on", "epsilon", "noise_multiplier", "sampling"], sort=False)
    notes.extend(_noise_note(group.iloc[0], group["clients"]) for _, group in noises)
    return notes


def _run_counts(ran: pd.DataFrame) -> str:
    """Say how many cells have how many runs."""
    counts = ran["runs"].value_counts().sort_index(ascending=False)
    return ", ".join(
        f"{cells} {'cell has' if cells == 1 else 'cells have'} {runs} {'run' if runs == 1 else 'runs'}"
        for runs, cells in counts.items()
    )


def _repeats_note(ran: pd.DataFrame) -> str:
    """Say how many runs repeat a seed, and how far they lie from the run that stands for it."""
    farthest = ran.loc[ran["repeats_apart_pct"].idxmax()]
    count, lost = int(ran["repeats"].sum()), ran[ran["repeats_lost"] > 0]
    note = (
        f"Studies ran seeds of these cells again, with the same settings ({count} {'run' if count == 1 else 'runs'}). "
        "They give the same numbers on the same kind of processor only. A seed counts once, by the run of the cell's "
        f"own job if there is one. The largest distance of a repeat from it: {farthest['repeats_apart_pct']:.2f} "
        f"points ({_place(farthest)})."
    )
    for _, cell in lost.iterrows():
        one = cell["repeats_lost"] == 1
        note += (
            f" {cell['repeats_lost']} {'repeat' if one else 'repeats'} of {_place(cell)} diverged or ended at chance."
        )
    return note


def _place(cell: pd.Series) -> str:
    """Return the name of a cell in a sentence."""
    split = f"({cell['local_epochs']}, {cell['rounds']})"
    return f"{data_name(cell['ran_on'])} {model_name(cell['model'])}, {budget_name(cell['epsilon'])}, {split}"


def _prediction_note(ran: pd.DataFrame) -> str:
    """Count the published values that are reproduced and those that are not."""
    ten, single = (_sides(ran[name]) for name in ("prediction", "prediction_single"))
    note = (
        f"A published value is reproduced if it lies in the 95 % prediction interval of our runs, widened by half of "
        f"its last digit. As means of {PUBLISHED_RUNS} runs: {ten}; as single runs: {single}. If our settings were the "
        f"paper's, {0.05 * (ran['prediction'] != '').sum():.1f} would not be reproduced, by chance."
    )
    if UNDECIDED in set(ran["prediction"]) | set(ran["prediction_single"]):
        note += f" Undecided: it lies in an interval that is wider than ± {WIDE_PCT:g} points."
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
        central = " (several clients)" if 1 in set(ran["clients"]) - set(group["clients"]) else central
        notes.append(
            f"Batch size {batch_size:g}, learning rate {rate:g}, momentum {momentum:g}{central}: {', '.join(where)}."
        )
    for precision, group in ran[~ran["precision"].isin(["", "float32"])].groupby("precision", sort=False):
        where = dict.fromkeys(f"{data_name(row.ran_on)} {model_name(row.model)}" for row in group.itertuples())
        notes.append(f"Trained in {precision} instead of float32: {', '.join(where)}. See the table of precision.")
    return notes


def _noise_note(cell: pd.Series, clients: Iterable[int]) -> str:
    """Return one claimed budget's noise, and what is proven and refuted under both neighbouring relations.

    `cell` is one of those that share it, and `clients` has their numbers of clients.
    """
    several = sorted({count for count in clients if count > 1})
    who = [f"each of {listed(map(str, several))} clients"] if several else []
    who += ["one central client"] if 1 in set(clients) else []
    batches = in_words(cell.sampling).replace("poisson", "Poisson")
    proven = f"zero out at most {at_most(cell.epsilon_proven, places=3)}, at least "
    proven += at_least(cell.epsilon_refuted, places=3)
    if not math.isnan(cell.epsilon_add_remove):
        proven += f"; add or remove at most {at_most(cell.epsilon_add_remove, places=3)}"
    return (
        f"{data_name(cell.ran_on)}, {', '.join(who)}, published ε = {cell.epsilon:g}: noise multiplier "
        f"{cell.noise_multiplier:.4f}, δ = {cell.delta:g}, {batches} batches: {proven}. "
        f"{_holds(cell)}"
    )


def _holds(cell: pd.Series) -> str:
    """Say whether the printed epsilon holds for the noise that ran."""
    if cell.epsilon_refuted > cell.epsilon:
        return f"The published ε is refuted: a lower bound exceeds it by {cell.epsilon_refuted - cell.epsilon:.2g}."
    return "The published ε is proven." if cell.epsilon_proven <= cell.epsilon else "The published ε is unproven."


# The last column, (20, 1): the models behind a single average.

FALL_PCT = 10.0  # points between the clients' own models and their average that count as a fall
_AVERAGED = [
    "ran_on", "stand_in", "runs", "accuracy_pct", "interval_pct", "least_pct", "most_pct", "local_accuracy_pct",
    "local_runs", "average_of_local_pct",
]  # fmt: skip
_PRINT = ["published_accuracy_pct", "difference_pct", "prediction", ORIGINS]


def last_column(results: Results) -> pd.DataFrame:
    """Return a row for each model and budget of Tables 2 to 4 that ran at (20, 1).

    Columns: dataset, model, epsilon, ran_on, stand_in, runs, accuracy_pct and interval_pct (the average),
    least_pct and most_pct (of the runs),
    local_accuracy_pct (the clients' own models just before, mean over clients; nan where it was not measured),
    local_runs and average_of_local_pct (the runs that measured it, and their mean accuracy), many_rounds_pct (our
    accuracy at (1, 20), nan where not run), published_accuracy_pct, difference_pct, prediction, origins (of the runs at
    (20, 1)).
    """
    cells = pd.concat([measured_cells(results, table) for table in (2, 3, 4)], ignore_index=True)
    last = cells[(cells["rounds"] == 1) & (cells["runs"] > 0)]
    first = cells.loc[cells["local_epochs"] == 1, [*COLUMN, "accuracy_pct"]]
    first = first.rename(columns={"accuracy_pct": "many_rounds_pct"})
    return last[[*COLUMN, *_AVERAGED, *_PRINT]].merge(first, on=COLUMN)


def last_column_page(cells: pd.DataFrame) -> TableLayout:
    """Lay the column out for a reader."""
    bimodal = is_bimodal(cells)
    body = pd.DataFrame(
        {
            "Data": cells["ran_on"],
            "Model": cells["model"].map(model_name),
            "ε": cells["epsilon"].map(budget_cell),
            "Runs": cells["runs"].map(str),
            "(1, 20)": numbers(cells["many_rounds_pct"], "{:.2f}"),
            "Clients alone": [_alone(cell) for _, cell in cells.iterrows()],
            "(20, 1)": [_average(cell) for _, cell in cells.iterrows()],
            "Published": numbers(cells["published_accuracy_pct"].where(~cells["stand_in"].eq(True)), "{:.2f}"),
            "Difference": numbers(cells["difference_pct"].mask(bimodal), "{:+.2f}"),
        }
    )
    return TableLayout(body, _last_column_notes(cells))


def _alone(cell: pd.Series) -> str:
    """Return the accuracy of the clients' own models, with the number of runs that measured it if others did not."""
    [accuracy] = numbers([cell.local_accuracy_pct], "{:.2f}")
    return accuracy + (f" (n = {cell.local_runs})" if 0 < cell.local_runs < cell.runs else "")


def _average(cell: pd.Series) -> str:
    """Return the mean of a cell's runs with its interval, or their range if they are far apart."""
    alone = is_bimodal(cell) or math.isnan(cell.interval_pct)
    return value_or_range(cell) + ("" if alone else f" ± {cell.interval_pct:.2f}")


def _last_column_notes(cells: pd.DataFrame) -> list[str]:
    """Say what the columns are, and count what they show."""
    notes = [
        "Accuracy in per cent. (20, 1): the average of the clients' models, the only one that is taken. Clients alone: "
        "mean accuracy of the models that go into it, over the runs that measured it. (1, 20): ours with twenty "
        f"averages. ±: {percent(LEVEL)} interval of the mean. A range: runs that differ by more than {BIMODAL_PCT:g} "
        "points, whose mean says nothing.",
    ]
    if cells.empty:
        return ["Nothing was run at this scale.", *notes]
    measured = cells.dropna(subset="local_accuracy_pct")
    change = measured["average_of_local_pct"] - measured["local_accuracy_pct"]
    alone = measured["many_rounds_pct"] - measured["local_accuracy_pct"]
    falls, lags = change < -FALL_PCT, alone > FALL_PCT
    notes.append(
        f"In {falls.sum()} of {len(measured)} rows the average is more than {FALL_PCT:g} points less accurate than the "
        f"models before averaging, so averaging fails. In {(falls & lags).sum()} of them the clients alone are more "
        f"than {FALL_PCT:g} points below (1, 20) as well. In {(lags & ~falls).sum()} other rows they are that far "
        f"below, but averaging costs at most {FALL_PCT:g} points. In {(change > 0).sum()} rows the average is more "
        "accurate than the models before averaging."
    )
    compared = cells[cells["difference_pct"].notna() & ~is_bimodal(cells)]
    if len(compared):
        better, worse = (compared["difference_pct"] > 1).sum(), (compared["difference_pct"] < -1).sum()
        judged = compared["prediction"].isin([REPRODUCED, NOT_REPRODUCED, UNDECIDED])
        others = {"beside a range": int(is_bimodal(cells).sum()), "with one run": int((~judged).sum())}
        notes.append(
            f"{len(compared)} rows have a difference. Ours is more than a point above the published value in {better} "
            f"and more than a point below in {worse}. Published values: {_sides(compared['prediction'])}"
            + "".join(f", {count} {where}" for where, count in others.items() if count)
            + "."
        )
    if cells["stand_in"].any():
        notes.append("Do not compare stand-in data with the published values.")
    return notes


def _published_table(table: int, page: Callable[[pd.DataFrame], TableLayout]) -> TableRecipe:
    """Return the recipe of a published table."""
    return TableRecipe(partial(measured_cells, table=table), page, PUBLISHED_RUNS, record_notes)


TABLES = {
    "table_2": _published_table(2, split_page),
    "table_3": _published_table(3, split_page),
    "table_4": _published_table(4, split_page),
    "table_5": _published_table(5, clients_page),
    "last_column": TableRecipe(last_column, last_column_page),
    "canaries": TableRecipe(partial(canaries, paper="bhaskar2025"), canaries_page, privacy_notes=control_notes),
}
