"""Printed numbers beside ours as the page shows them: a row each; what is the same in all of them is said once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dpfl.reporting.report_page.agreement import Agreement, PrintedNumber
from dpfl.reporting.report_page.text_table import Row, TextTable
from dpfl.reporting.tables import readable_cell

_SAID = {"table": "Table {}", "epsilon": "ε = {}", "clients": "{} clients"}
"""How a key of a printed number is said; others are said by their value alone."""
_SPLIT = ("local_epochs", "rounds")
_SUBJECT = ("dataset", "model")
"""Keys that name what is trained: the first column."""
_NAMES = {"epsilon": "ε", "dataset": "data set"}


def in_words(keys: Mapping[str, str]) -> str:
    """Return a cell in words: "Table 2, MNIST, CNN + ReLU, no privacy, (E, R) = (1, 20), 10 clients"."""
    known = dict(keys)
    if set(_SPLIT) <= set(known):
        known["local_epochs"] = f"(E, R) = ({known['local_epochs']}, {known.pop('rounds')})"
    cell = ", ".join(_SAID.get(key, "{}").format(readable_cell(value)) for key, value in known.items())
    return re.sub(r"\b1 clients", "one client", cell.replace("ε = inf", "no privacy"))


def printed_table(numbers: Sequence[PrintedNumber], conditions: Sequence[str]) -> TextTable:
    """Return printed numbers and ours, a row each, with the condition that traces it.

    The columns that name a cell and differ between rows come first, what is trained before the rest.
    """
    names = _columns(numbers)
    unit, has_data = numbers[0].unit, len(_data(numbers)) > 1 and _on_other_data(numbers)
    columns = [*names, "ours", "published", f"difference, {unit}", f"prediction ± 95 %, {unit}", "agreement", "n"]
    rows = [
        Row(
            (
                *(_key_cell(each, keys) for keys in names.values()),
                *(_number(value, form) for value, form in _values(each)),
                _width(each.prediction),
                str(each.agreement),
                str(each.runs),
                *([readable_cell(each.data) or "–"] if has_data else []),
            ),
            where=where,
            style=f"a-{each.agreement.name.lower()}",
        )
        for each, where in zip(numbers, conditions, strict=True)
    ]
    return TextTable((*columns, *(["data"] if has_data else [])), tuple(rows), keeps_first=True)


def said_once(numbers: Sequence[PrintedNumber]) -> str:
    """Return what all rows of `printed_table` share, and what its interval is, in sentences."""
    varying, data = _varying(numbers), _data(numbers)
    shared = {key: value for key, value in numbers[0].keys.items() if key not in varying and key != "table"}
    words = [in_words(shared)] if shared else []
    if len(data) == 1 and _on_other_data(numbers):
        words.append(f"run on {readable_cell(data[0])}")
    said = [f"In every row: {', '.join(words)}."] if words else []
    runs = numbers[0].printed_runs
    if runs and any(each.prediction == each.prediction for each in numbers):
        said.append(
            f"Prediction: a mean of {runs} other runs is expected within this of ours, by how much ours differ; the "
            f'wider, the less "{Agreement.INSIDE}" says.'
        )
    return " ".join(said)


def _varying(numbers: Sequence[PrintedNumber]) -> list[str]:
    """Return the keys whose value differs between numbers, in their order; E and R go together."""
    varying = [key for key in numbers[0].keys if len({each.keys[key] for each in numbers}) > 1]
    split = set(_SPLIT) <= set(numbers[0].keys) and not set(_SPLIT).isdisjoint(varying)
    return [key for key in numbers[0].keys if key in varying or (split and key in _SPLIT)]


def _columns(numbers: Sequence[PrintedNumber]) -> dict[str, tuple[str, ...]]:
    """Return the columns that name a cell, with the keys that each of them shows."""
    varying = _varying(numbers)
    subject = tuple(key for key in _SUBJECT if key in varying)
    columns = {", ".join(_NAMES.get(key, key) for key in subject): subject} if subject else {}
    for key in sorted((key for key in varying if key not in subject), key=lambda key: key != "epsilon"):
        if key not in _SPLIT:
            columns[_NAMES.get(key, key.replace("_", " "))] = (key,)
        elif set(_SPLIT) <= set(varying):
            columns["(E, R)"] = _SPLIT
    return columns


def _key_cell(number: PrintedNumber, keys: tuple[str, ...]) -> str:
    """Return the text of a column that names the cell of a number."""
    values = ", ".join(readable_cell(number.keys[key]) for key in keys)
    return f"({values})" if keys == _SPLIT else values.replace("inf", "none")


def _data(numbers: Sequence[PrintedNumber]) -> list[str]:
    """Return the data that the numbers with runs are from, each once."""
    return list(dict.fromkeys(each.data for each in numbers if each.runs))


def _on_other_data(numbers: Sequence[PrintedNumber]) -> bool:
    """Return whether a number with runs is from other data than those that its cell names."""
    return any(each.runs and each.data != each.keys.get("dataset") for each in numbers)


def _values(number: PrintedNumber) -> tuple[tuple[float, str], ...]:
    """Return the numbers of a row with their formats."""
    return (number.ours, ".2f"), (number.printed, ".2f"), (number.difference, "+z.2f")


def _width(prediction: float) -> str:
    """Return an interval's half-width, a wide one with fewer digits."""
    return _number(prediction, f".{2 - (prediction >= 10) - (prediction >= 100)}f")


def _number(value: float, form: str) -> str:
    """Return a number as text; a dash where there is none."""
    return "–" if value != value else f"{value:{form}}"
