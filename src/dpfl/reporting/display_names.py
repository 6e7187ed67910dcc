"""Names as a reader sees them: Greek letters, data sets, verdicts on epsilons, captions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from dpfl.catalog import dataset_entries, load
from dpfl.files import record_path, write_atomically

if TYPE_CHECKING:
    import pandas as pd

# Signs of quantities: ε, δ and σ² in every figure and table, whatever the code that lays it out spells them.

_GREEK_SYMBOLS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "eta": "η", "theta": "θ", "kappa": "κ",
    "lambda": "λ", "mu": "μ", "rho": "ρ", "sigma": "σ", "tau": "τ", "Phi": "Φ", "Psi": "Ψ", "Renyi": "Rényi",
}  # fmt: skip
_NAMED = re.compile(rf"\b({'|'.join(_GREEK_SYMBOLS)})\b")
_SQUARE = re.compile(r"(?<=[\w)|])\^2(?![\w(]|\.\d)")
_POWER = re.compile(r"(?<![\w.])(\d(?:\.\d+)?)e([+-]?)0*(\d+)\b")
_INDEXED = re.compile(rf"\b({'|'.join(_GREEK_SYMBOLS)})_([0tijr])\b")
_BY_LETTER = re.compile(rf"\b([A-Z]|sum|{'|'.join(_GREEK_SYMBOLS)})_({'|'.join(_GREEK_SYMBOLS)})\b")
_INDICES = str.maketrans("0tijr", "₀ₜᵢⱼᵣ")
_SIGNS = {">=": "≥", "<=": "≤", "<~": "≲", "->": "→", "sqrt(": "√(", "Omega~": "Ω̃", "O~": "Õ"}
_SIGN = re.compile(r"(?<![<>=!-])(?:>=|<=|<~|->)(?![=>-])|(?<![\w.])(?:sqrt\(|Omega~|O~)")
_MINUS = re.compile(r"(?<![\w.)\]}^=/'\"-])-(?=\.?\d)|(?<=[\w)\]|²] )-(?= [\w(\[|√])|(?<=\([A-Za-z])-(?=[A-Za-z\d]\))")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def with_greek_symbols(text: str) -> str:
    """Return a text with every Greek letter as its sign, roots, relations, squares, powers of ten and minus signs as
    such: "sqrt(epsilon_0) >= 1e-5" is "√(ε₀) ≥ 10⁻⁵"; names of code, as beta_1, stay."""
    text = _SIGN.sub(lambda found: _SIGNS[found[0]], text)
    text = _BY_LETTER.sub(lambda found: f"{_GREEK_SYMBOLS.get(found[1], found[1])}_{_GREEK_SYMBOLS[found[2]]}", text)
    text = _INDEXED.sub(lambda found: _GREEK_SYMBOLS[found[1]] + found[2].translate(_INDICES), text)
    text = _POWER.sub(_power, _SQUARE.sub("²", _NAMED.sub(lambda found: _GREEK_SYMBOLS[found[0]], text)))
    return with_minus_signs(text)


def in_words(name: object) -> str:
    """Return the words of a name of code: "every_step" is "every step"."""
    return str(name).replace("_", " ")


def with_minus_signs(text: str) -> str:
    """Return a text with a minus sign for each hyphen before a number, with spaces around it, or as in "(n-i)".

    The hyphens of names ("CIFAR-10"), ranges ("2-4"), options and conditions ("low=-1") stay.
    """
    return _MINUS.sub("\N{MINUS SIGN}", text)


def _power(found: re.Match[str]) -> str:
    """Return a number with an exponent as a product with a power of ten."""
    digits, sign, exponent = found.groups()
    if exponent == "0":
        return digits
    raised = f"10{(sign.rstrip('+') + exponent).translate(_RAISED)}"
    return raised if digits == "1" else f"{digits} · {raised}"


# What is known of a claimed epsilon: proven, refuted or unproven.

_ROUNDING = 1e-3
"""Relative excess over the claimed epsilon that calibration and accountants' grids may leave."""


class EpsilonVerdict(StrEnum):
    """Knowledge of a claimed epsilon."""

    PROVEN = "proven"
    """The proven epsilon is at most the claimed one."""
    REFUTED = "refuted"
    """A pair of data sets exceeds the claimed epsilon."""
    UNPROVEN = "unproven"
    """It is neither proven nor refuted."""


def epsilon_verdict(claimed: float, proven: float, refuted: float) -> EpsilonVerdict:
    """Return the verdict on a claimed epsilon: `proven` is an upper, `refuted` a lower bound on what is spent."""
    if refuted > claimed * (1 + _ROUNDING):
        return EpsilonVerdict.REFUTED
    return EpsilonVerdict.PROVEN if proven <= claimed * (1 + _ROUNDING) else EpsilonVerdict.UNPROVEN


# Notes below tables and figures: how many runs, on which data, which stand-ins.

_MODEL_NAMES = {
    "cnn_relu": "CNN + ReLU",
    "cnn_tanh": "CNN + tanh",
    "scatter_linear": "ScatterNet + linear",
    "scatter_cnn": "ScatterNet + CNN",
}


def count_range(counts: pd.Series) -> str:
    """Return counts as text: one number where they are alike, else "least to most"; "0" if there are none."""
    if counts.empty:
        return "0"
    least, most = int(counts.min()), int(counts.max())
    return f"{least}" if least == most else f"{least} to {most}"


def data_name(dataset: str, stand_in_for: str = "") -> str:
    """Return the name under which a dataset's numbers are shown, with what it stands in for ("" for nothing)."""
    title = dataset_entries()[dataset]["title"]
    if not stand_in_for or "stand-in for" in title:
        return title
    return f"{title} (stand-in for {dataset_entries()[stand_in_for]['title']})"


def model_name(model: str) -> str:
    """Return the name under which a model's numbers are shown: the papers' name, else its key in words."""
    return _MODEL_NAMES.get(model, in_words(model))


def budget_name(epsilon: float) -> str:
    """Return a budget as a name, infinity as "no privacy"."""
    return "no privacy" if math.isinf(epsilon) else f"ε = {epsilon:g}"


def budget_cell(epsilon: float) -> str:
    """Return a budget as a column of budgets shows it, infinity as "none"."""
    return "none" if math.isinf(epsilon) else f"{epsilon:g}"


def span(values: Iterable[float], form: str = "{:.3g}") -> str:
    """Return the least and the largest of some numbers as text, "2 to 5"; one number where both are written alike."""
    known = [value for value in values if not math.isnan(value)]
    least, most = form.format(min(known)), form.format(max(known))
    return least if least == most else f"{least} to {most}"


def listed(names: Iterable[str]) -> str:
    """Return names as a list in a sentence: "a", "a and b", "a, b and c"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def all_or(count: int, total: int) -> str:
    """Return a share as text: "all 5", "3 of 5"."""
    return f"all {total}" if count == total else f"{count} of {total}"


def percent(share: float) -> str:
    """Return a share as whole per cents, as every text writes them: "95 %"."""
    return f"{100 * share:.0f} %"


def stand_ins(data: pd.DataFrame) -> list[str]:
    """Return the names of the stand-ins in a table with the columns dataset and stand_in_for, in alphabetical order."""
    return sorted(set(data.loc[data["stand_in_for"] != "", "dataset"]))


def data_note(data: pd.DataFrame) -> str:
    """Return how many runs a point has, on which data, and what the intervals are."""
    named = data[["dataset", "stand_in_for"]].drop_duplicates().itertuples(index=False)
    names = ", ".join(data_name(*each) for each in named).replace("Synthetic ", "synthetic ")
    return f"{count_range(data['runs'])} runs a point on {names or 'no data'}; intervals: 90 %."


# Captions of tables and figures, as files from which the report takes them.

_TEXT = """**{title}**

{caption}

Every digit: ``{data}``. How it was made: ``{record}``.
"""


def text(kind: str, paper: str, name: str, csv: Path) -> str:
    """Return title and caption of a paper's page, of `kind` "tables" or "figures", as reStructuredText."""
    page = getattr(load(paper), kind)[name]
    files = {"data": csv.name, "record": record_path(csv).name}
    return _TEXT.format(title=page["title"], caption=page["caption"], **files)


def write(kind: str, paper: str, name: str, csv: Path) -> Path:
    """Write the caption of a page to a file next to its data, as <page>.rst; return the path."""
    path = csv.with_suffix(".rst")
    write_atomically(path, text(kind, paper, name, csv))
    return path


# Bounds as text that stay true when they are rounded: a proven epsilon up, one that is exceeded down.

_NOISE = Context(prec=12)
"""Digits of a number that count: those beyond are the rounding of a float, and move no bound by a last digit."""


def at_most(value: float, digits: int = 4, *, places: int | None = None) -> str:
    """Return an upper bound in decimals, rounded up: to `digits` significant ones, or to `places` behind the point.

    "∞" for infinity. Raises ValueError for nan and for digits below 1.
    """
    return _rounded(value, digits, places, ROUND_CEILING)


def at_least(value: float, digits: int = 4, *, places: int | None = None) -> str:
    """Return a lower bound in decimals, rounded down; else as `at_most`."""
    return _rounded(value, digits, places, ROUND_FLOOR)


def _rounded(value: float, digits: int, places: int | None, rounding: str) -> str:
    """Return a number as text, rounded in one direction."""
    if math.isnan(value) or digits < 1:
        raise ValueError(f"value = {value}, digits = {digits}: a bound is a number, of one digit or more")
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    number = _NOISE.create_decimal(repr(float(value)))
    least = -places if places is not None else (number.adjusted() - digits + 1 if number else 0)
    rounded = number.quantize(Decimal((0, (1,), least)), rounding)
    if places is None and rounded and rounded.adjusted() > number.adjusted():
        rounded = rounded.quantize(Decimal((0, (1,), least + 1)))  # 9.996 as 10.00: a digit too many
    return f"{rounded:f}"
