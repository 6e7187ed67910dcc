"""Tables of errata: what a paper's errata.yaml says, with the numbers that its errata.py computes for each entry."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from inspect import signature
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from dpfl.catalog import load, module
from dpfl.errors import InputError
from dpfl.reporting.rules import LEVEL
from dpfl.reporting.statistics import mean_interval
from dpfl.reporting.tables import TableLayout, TableRecipe

if TYPE_CHECKING:
    from dpfl.reporting.results import Results


class ErratumKind(StrEnum):
    """Kind of an entry of errata.yaml; the first two alone are errata."""

    WRONG = "wrong"
    INCONSISTENT = "inconsistent"
    LOOSE = "loose"
    UNCLEAR = "unclear"
    SCRIPT = "script"
    UNSTATED = "unstated"


HEADINGS = {
    ErratumKind.WRONG: "Errata: wrong as published",
    ErratumKind.INCONSISTENT: "Errata: two places of the paper disagree",
    ErratumKind.LOOSE: "Remarks: loose, approximate or not general",
    ErratumKind.UNCLEAR: "Remarks: unclear in our copy of the text, which may have lost a letter",
    ErratumKind.SCRIPT: "Remarks: about the authors' scripts and protocol, not about the paper",
    ErratumKind.UNSTATED: "Remarks: not stated in the paper",
}
_TEXTS = ("printed_form", "corrected_form", "case", "source")


class Numbers(NamedTuple):
    """Value of the printed form, of the corrected (or tighter) one, and of the latter by an independent route.

    `shown` has the computed values that the entry's texts name in braces. A simulated `independent` is the mean of
    `runs`, with the half-width `interval` of its 95 % interval (`rules.LEVEL`); a computed one has neither.
    """

    printed: float
    corrected: float
    independent: float
    shown: Mapping[str, object] = {}
    runs: int = 0
    interval: float = 0.0

    @classmethod
    def simulated(
        cls, printed: float, corrected: float, values: Iterable[float], shown: Mapping[str, object] | None = None
    ) -> Numbers:
        """Return the numbers whose independent route is a simulation with these `values`, one a run."""
        runs, mean, interval = mean_interval(values, LEVEL)
        return cls(printed, corrected, mean, shown or {}, runs, interval)


def errata(paper: str) -> pd.DataFrame:
    """Return one row per case of each entry of the paper's errata.yaml, kinds in the order of `ErratumKind`.

    Columns: kind, number, entry, printed_form, corrected_form, case, printed, corrected, independent, runs, interval,
    source. An entry is named after the function of the paper's errata.py that returns its `Numbers`, called once for
    each keyword set in its `arguments`; these also fill the braces in its texts. Entries of kind unstated have no
    function: nan.
    """
    rows = [
        _row(paper, name, entry, arguments)
        for name, entry in load(paper).errata.items()
        for arguments in entry.get("arguments", [{}])
    ]
    if not rows:
        raise InputError(
            f"{paper}/errata.yaml has no entry: a paper without errata has neither this file nor errata.py"
        )
    order = list(ErratumKind)
    return pd.DataFrame(rows).sort_values("kind", key=lambda kinds: kinds.map(order.index), kind="stable")


def _row(paper: str, name: str, entry: Mapping[str, object], arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the row of one case."""
    kind = ErratumKind(entry["kind"])
    numbers = Numbers(math.nan, math.nan, math.nan)
    if kind is not ErratumKind.UNSTATED:
        numbers = _numbers(paper, name, arguments)
    try:
        printed_form, corrected_form, case, source = (
            entry.get(text, "").format(**{**arguments, **numbers.shown}) for text in _TEXTS
        )
    except (KeyError, IndexError, ValueError) as unknown:
        raise InputError(f"{paper}/errata.yaml: {name}: a text has braces that cannot be filled: {unknown}") from None
    return {
        "kind": str(kind),
        "number": entry["number"],
        "entry": name,
        "printed_form": printed_form,
        "corrected_form": corrected_form,
        "case": case,
        "printed": float(numbers.printed),
        "corrected": float(numbers.corrected),
        "independent": float(numbers.independent),
        "runs": numbers.runs,
        "interval": float(numbers.interval),
        "source": source,
    }


def _numbers(paper: str, name: str, arguments: Mapping[str, object]) -> Numbers:
    """Return the numbers of one case, by the entry's function."""
    function = getattr(module(paper, "errata"), name, None)
    if function is None:
        raise InputError(f"{paper}/errata.py has no function {name}, which errata.yaml names")
    try:
        signature(function).bind(**arguments)
    except TypeError as slip:
        raise InputError(f"{paper}/errata.yaml: {name}: its function in errata.py: {slip}") from None
    numbers = function(**arguments)
    if not isinstance(numbers, Numbers):
        raise InputError(f"{paper}/errata.py: {name} returned a {type(numbers).__name__}; it must return Numbers")
    for field in ("printed", "corrected", "independent", "interval"):
        value = getattr(numbers, field)
        try:
            float(value)
        except (TypeError, ValueError):
            raise InputError(f"{paper}/errata.py: {name} returned {field} {value!r}; it must be a number") from None
    return numbers


def errata_page(data: pd.DataFrame) -> TableLayout:
    """Lay out errata for a reader, each kind under its own heading."""
    spread = (" ± " + data["interval"].map("{:.2g}".format) + " at 95 %").where(data["runs"] > 1, "")
    independent = data["independent"].map(_digits) + spread + " (" + data["source"] + ")"
    body = pd.DataFrame(
        {
            "No.": data["number"].map(str),
            "Published": data["printed_form"],
            "Corrected, tighter or other form": data["corrected_form"],
            "Case": data["case"],
            "Published gives": data["printed"].map(_digits),
            "Other form gives": data["corrected"].map(_digits),
            "Independent value": independent.where(data["independent"].notna(), ""),
        }
    )
    return TableLayout(body, headings=[HEADINGS[ErratumKind(kind)] for kind in data["kind"]])


def _digits(value: float) -> str:
    """Return four digits, or nothing for a missing number."""
    return "" if math.isnan(value) else f"{value:.4g}"


def errata_recipe(paper: str) -> TableRecipe:
    """Return the recipe of the paper's table `errata`."""

    def data(results: Results) -> pd.DataFrame:
        return errata(paper)

    return TableRecipe(data, errata_page)
