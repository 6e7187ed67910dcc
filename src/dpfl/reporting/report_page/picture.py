"""The pictures of the report, as coordinates: one for the first screen, one for the cases of a claim."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpfl.reporting import claims
from dpfl.reporting.display_names import EpsilonVerdict, at_least, at_most, percent, with_greek_symbols
from dpfl.reporting.report_page.agreement import JUDGED, Agreement, PrintedNumber, in_words
from dpfl.reporting.rules import LEVEL, Status

if TYPE_CHECKING:
    import pandas as pd

    from dpfl.reporting.report_page.epsilons import EpsilonStatement

# The picture of the first screen: published numbers and ours, or claimed and proven epsilons.

SIZE = 340.0
"""Side of the square that the marks are in, in units of the picture."""


@dataclass(frozen=True)
class Mark:
    """A point: its place from the left and the top, the style that colours it, and what it is in words."""

    x: float
    y: float
    style: str
    text: str


@dataclass(frozen=True)
class Tick:
    """A labelled place on both axes."""

    place: float
    label: str


@dataclass(frozen=True)
class Picture:
    """Marks in a square with equal axes and the diagonal on which both are equal; `key` explains the styles."""

    title: str
    caption: str
    horizontal: str
    vertical: str
    ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    key: tuple[tuple[str, str], ...]


_STYLES = {
    Agreement.REPRODUCED: ("reproduced", str(Agreement.REPRODUCED)),
    Agreement.NOT_REPRODUCED: ("not-reproduced", str(Agreement.NOT_REPRODUCED)),
    Agreement.SINGLE: ("single", "one run, so no interval"),
    Agreement.UNDECIDED: ("undecided", "undecided: the interval is too wide"),
}
"""Style of a mark, which has a shape of its own, and what it says."""


def lead_picture(numbers: Sequence[PrintedNumber], statements: Sequence[EpsilonStatement]) -> Picture | None:
    """Return the picture of the first screen: published numbers where some of ours are comparable, else epsilons."""
    comparable = [each for each in numbers if not math.isnan(each.difference) and each.agreement in _STYLES]
    if comparable:
        return _printed(comparable)
    return _epsilons(statements) if statements else None


def _printed(numbers: Sequence[PrintedNumber]) -> Picture:
    """Return our numbers against the published ones, those of the unit that most have."""
    units = [each.unit for each in numbers]
    unit = max(dict.fromkeys(units), key=units.count)  # of several the first, in every process
    shown = [each for each in numbers if each.unit == unit]
    low, high = _span(value for each in shown for value in (each.printed, each.ours))
    place = _linear(low, high)
    marks = [
        Mark(place(each.printed), SIZE - place(each.ours), _STYLES[each.agreement][0], _cell_text(each))
        for each in shown
    ]
    judged = [each for each in shown if each.agreement in JUDGED]
    inside = sum(each.agreement is Agreement.REPRODUCED for each in judged)
    alone = sum(each.single is Agreement.REPRODUCED for each in judged)
    single = f" (or {alone}, if the published values are single runs)" if alone != inside else ""
    return Picture(
        title="Every published number that we ran, against ours",
        caption=f"A point on the line is equal to the published value. We ran {len(shown)} numbers, {len(judged)} of "
        f"them several times. Of these {inside} are reproduced{single}: the published value lies in the 95 % "
        f"prediction interval of our runs.{_too_wide(judged)} {_runs_a_point(shown)}",
        horizontal=f"published {_quantity(shown)}",
        vertical=f"our mean {_quantity(shown)}",
        ticks=tuple(Tick(place(value), f"{value:g}") for value in round_values(low, high)),
        marks=tuple(marks),
        key=tuple(style for kind, style in _STYLES.items() if any(each.agreement is kind for each in shown)),
    )


def _quantity(numbers: Iterable[PrintedNumber]) -> str:
    """Return what numbers of one unit are, with it: "accuracy (%)"."""
    names, scales = ({getattr(each, name) for each in numbers} for name in ("quantity", "scale"))
    return f"{names.pop() if len(names) == 1 else 'value'} ({scales.pop()})"


def _runs_a_point(numbers: Iterable[PrintedNumber]) -> str:
    """Return how many runs of ours a point has, in a sentence."""
    first, *others = sorted(Counter(each.runs for each in numbers).items(), reverse=True)
    if not others:
        return f"Runs per point: {first[0]}."
    return (
        f"Runs per point: {first[0]} ({first[1]} points), {', '.join(f'{runs} ({count})' for runs, count in others)}."
    )


def _too_wide(judged: Iterable[PrintedNumber]) -> str:
    """Return how many intervals are too wide to tell, as a sentence; "" if none is."""
    wide = sum(each.agreement is Agreement.UNDECIDED for each in judged)
    return f" {wide} {'interval is' if wide == 1 else 'intervals are'} too wide to tell." if wide else ""


def _cell_text(number: PrintedNumber) -> str:
    """Return a number's cell in words, with what is printed, ours, and how they agree."""
    cell = in_words(number.keys)
    return f"{cell}: published {number.printed:g}, ours {number.ours:.4g}, {number.agreement}"


def _epsilons(statements: Sequence[EpsilonStatement]) -> Picture:
    """Return proven and refuted epsilons against the claimed ones, on logarithmic axes."""
    finite = [
        value for each in statements for value in (each.claimed, each.proven, each.refuted) if 0 < value < math.inf
    ]
    low, high = 10 ** math.floor(math.log10(min(finite))), 10 ** math.ceil(math.log10(max(finite)))
    scale = _linear(math.log10(low), math.log10(high))

    def place(value: float) -> float:
        return scale(math.log10(value))

    marks = [
        Mark(
            place(each.claimed),
            SIZE - place(value),
            style,
            f"claimed {each.claimed:g}, {style} {rounded(value)} ({each.sampling})",
        )
        for each in statements
        for style, value, rounded in (("proven", each.proven, at_most), ("refuted", each.refuted, at_least))
        if 0 < value < math.inf
    ]
    proven = sum(each.verdict is EpsilonVerdict.PROVEN for each in statements)
    powers = range(round(math.log10(low)), round(math.log10(high)) + 1)
    return Picture(
        title="Claimed epsilons against proven and refuted ones",
        caption=f"{proven} of {len(statements)} claimed epsilons are proven: their full point lies on the line or "
        "below it. A claimed epsilon is refuted if its hollow mark lies above the line.",
        horizontal="claimed ε",
        vertical="proven and refuted ε",
        ticks=tuple(Tick(scale(power), power_text(power)) for power in powers),
        marks=tuple(marks),
        key=(("proven", "upper bound, proven"), ("refuted", "lower bound, by an attack")),
    )


def power_text(power: int) -> str:
    """Return a power of ten, a short one as a number."""
    return f"{10.0**power:g}" if -2 <= power <= 3 else with_greek_symbols(f"1e{power}")


def _span(values: Iterable[float]) -> tuple[float, float]:
    """Return round ends of an axis that has all values, one step apart at least."""
    known = list(values)
    least, most = min(known), max(known)
    step = 10.0 ** math.floor(math.log10((most - least) or abs(most) or 1.0))
    low, high = step * math.floor(least / step), step * math.ceil(most / step)
    return low, high if high > low else low + step


def round_values(low: float, high: float) -> list[float]:
    """Return round values from low to high, about six of them; low is below high."""
    powers = itertools.count(math.floor(math.log10(high - low)) - 1)
    steps = (digit * 10.0**power for power in powers for digit in (1, 2, 5))
    step = next(step for step in steps if (high - low) / step <= 6)
    values = (step * count for count in range(math.ceil(low / step), math.floor(high / step) + 1))
    return [float(f"{value:.12g}") for value in values]


def _linear(low: float, high: float) -> Callable[[float], float]:
    """Return the map of [low, high] to [0, SIZE]."""
    width = (high - low) or 1.0
    return lambda value: round(SIZE * (value - low) / width, 1)


# The picture of a claim's cases: each case's number and interval beside the range that it needs.

WIDTH = 400.0
"""Width of the part with the marks, in units of the picture."""
MOST_NAMED = 8
"""Cases up to which each has its name above it; more are sorted by their number and have no names."""
_NAMED_ROW, _LONGEST_ROW, _MOST_HEIGHT, _LETTERS = 34.0, 14.0, 260.0, 64
"""Heights of a row with a name, of one without, and of all rows; letters of the longest name."""
_LABEL_ROW = 18.0
"""Height that the label of the deciding case adds to its row."""
_LABEL_LETTER = 6.6
"""Width of a letter of a label, on average."""
_LOGARITHMIC_FROM = 50.0
"""Ratio of the largest to the least positive number from which the axis is logarithmic."""
_VISIBLE = 0.02
"""Least share of the axis by which some numbers, or some ranges, must differ for a picture to show anything."""
_ROUNDING = 1e-6
"""Relative difference up to which numbers are one number."""
_LEAST_BAR = 9.0
"""Length of the bar of a range that is a single number: it shows on both sides of the mark."""


@dataclass(frozen=True)
class CaseLine:
    """A case: the height of its line, and from the left its number, its interval and the range that the claim needs.

    `interval` and `needed` are (start, length) in units of the picture, None for none; `name` is "" if it has no room.
    `label` says of the case that decides a refuted claim what its number is and what it should be; "" for other cases.
    It begins at `label_x`, so that its middle is above the mark if there is room.
    """

    y: float
    x: float
    style: str
    text: str
    interval: tuple[float, float] | None
    needed: tuple[float, float]
    name: str
    label: str
    label_x: float


@dataclass(frozen=True)
class CasePicture:
    """Cases in lines below each other; `bar` is the height of the bar of a needed range, `key` explains the marks."""

    lines: tuple[CaseLine, ...]
    height: float
    bar: float
    radius: float
    ticks: tuple[tuple[float, str], ...]
    axis: str
    caption: str
    key: tuple[tuple[str, str], ...]


STYLES = {
    Status.HOLDS: ("holds", "shows it"),
    Status.WITHIN_MARGIN: ("within-margin", "within the margin"),
    Status.FAILS: ("fails", "contradicts it"),
    Status.OPEN: ("open", "undecided"),
    Status.STAND_IN: ("stand-in", "stand-in data"),
}
"""Style of a case's mark, which has a shape of its own, and what it says; a case that is not counted has no mark."""


def case_picture(
    cases: pd.DataFrame | None,
    unit: str,
    name_of: Callable[[str], str],
    *,
    our_question: bool,
    labels: Mapping[str, str] | None = None,
) -> CasePicture | None:
    """Return the picture of a claim's cases, None if there are none or their numbers cannot be told apart.

    `cases` are the rows of a claim in claims/<paper>_evidence.csv, `unit` is that of their numbers, and `name_of`
    returns the name of a case as the page shows it. `labels` has what is written beside a case's mark, by its name.
    """
    if cases is None:
        return None
    rows = [row for row in cases.to_dict("records") if row["status"] != str(Status.BESIDE)]
    shown = [(row, needed_range(row["within"])) for row in rows if math.isfinite(row["estimate"])]
    place, ticks = _axis(shown)
    if not _can_be_told_apart(place, shown):
        return None
    is_named = len(shown) <= MOST_NAMED
    if not is_named:
        shown.sort(key=lambda case: (-case[0]["estimate"], case[0]["case"]))
    row_height = _NAMED_ROW if is_named else min(_LONGEST_ROW, _MOST_HEIGHT / len(shown))
    lines, top = [], 0.0
    for row, needed in shown:
        name, (style, words) = name_of(row["case"]), STYLES[Status(row["status"])]
        start, end = place(row["low"]), place(row["high"])
        label = (labels or {}).get(row["case"], "")
        top += _LABEL_ROW if label else 0.0
        x, half = place(row["estimate"]), _LABEL_LETTER * len(label) / 2
        line = CaseLine(
            y=round(top + row_height * (0.72 if is_named else 0.5), 1),
            x=x,
            style=style,
            text=with_greek_symbols(f"{name}: {row['estimate']:.4g}, {words}"),
            interval=(start, round(end - start, 1)) if row["low"] < row["high"] else None,
            needed=_bar(place, *needed),
            name=_short(name) if is_named else "",
            label=label,
            label_x=round(max(min(x, WIDTH - half) - half, 0.0), 1),
        )
        lines.append(line)
        top += row_height
    found = [Status(row["status"]) for row, _ in shown]
    return CasePicture(
        lines=tuple(lines),
        height=round(top, 1),
        bar=round(12 if is_named else 0.9 * row_height, 1),
        radius=round(min(4.0, 0.35 * row_height + 1), 1),
        ticks=ticks,
        axis=with_greek_symbols(claims.unit_name(unit)) or "number of a case",
        caption=_caption(len(lines), any(line.interval for line in lines), is_named, our_question),
        key=tuple(
            (style, f"{words} ({found.count(each)})") for each, (style, words) in STYLES.items() if each in found
        ),
    )


_NUMBER = r"[-+]?[\d.]+(?:e[-+]?\d+)?"
_RANGE = re.compile(rf"(?P<kind>at most |at least |above )?(?P<low>{_NUMBER})(?: to (?P<high>{_NUMBER}))?")


def needed_range(within: str) -> tuple[float, float]:
    """Return the ends of a range that `claims.range_text` wrote, without its margin; infinite where it has no end."""
    found = _RANGE.match(within)
    if not found:
        return -math.inf, math.inf
    low, high = float(found["low"]), float(found["high"] or found["low"])
    return (-math.inf if found["kind"] == "at most " else low), (
        math.inf if found["kind"] in ("at least ", "above ") else high
    )


_Place = Callable[[float], float]
_Case = tuple[dict[str, Any], tuple[float, float]]


def _axis(cases: Sequence[_Case]) -> tuple[_Place, tuple[tuple[float, str], ...]]:
    """Return the map of numbers to places from 0 to WIDTH, and the labelled places.

    Every number and every finite end of a range is on the axis; a long interval may go beyond its ends.
    """
    low, high = _ends(cases)
    if low > 0 and high > _LOGARITHMIC_FROM * low:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        scale = _within(first, last)
        powers = range(first, last + 1, math.ceil((last - first) / 6))
        ticks = tuple((scale(power), power_text(power)) for power in powers)
        return (lambda value: scale(math.log10(value) if value > 0 else -math.inf)), ticks
    intervals = [end for row, _ in cases for end in (row["low"], row["high"]) if math.isfinite(end)]
    width = (high - low) or abs(high) or 1.0
    low, high = max(min([low, *intervals]), low - width), min(max([high, *intervals]), high + width)
    low, high = low - 0.05 * width, high + 0.05 * width
    scale = _within(low, high)
    return scale, tuple((scale(value), with_greek_symbols(f"{value:g}")) for value in round_values(low, high))


def _ends(cases: Sequence[_Case]) -> tuple[float, float]:
    """Return the least and the largest of all numbers and finite ends of ranges; 0 and 1 for no case."""
    numbers = [value for row, ends in cases for value in (row["estimate"], *ends) if math.isfinite(value)]
    return (min(numbers), max(numbers)) if numbers else (0.0, 1.0)


def _within(low: float, high: float) -> _Place:
    """Return the map of [low, high] to [0, WIDTH]; numbers beyond an end are at that end."""
    return lambda value: round(WIDTH * min(max((value - low) / (high - low), 0.0), 1.0), 1)


def _can_be_told_apart(place: _Place, cases: Sequence[_Case]) -> bool:
    """Return whether numbers or ends of ranges differ by more than rounding, and are apart on the axis."""
    low, high = _ends(cases)
    if not cases or high - low <= _ROUNDING * max(abs(low), abs(high)):
        return False
    numbers = [place(row["estimate"]) for row, _ in cases]
    distances = [abs(place(row["estimate"]) - place(end)) for row, ends in cases for end in ends if math.isfinite(end)]
    return max([max(numbers) - min(numbers), *distances]) >= _VISIBLE * WIDTH


def _bar(place: _Place, low: float, high: float) -> tuple[float, float]:
    """Return start and length of the bar of a range, which is at least _LEAST_BAR long."""
    start, end = place(low), place(high)
    if end - start < _LEAST_BAR:
        start, end = (start + end - _LEAST_BAR) / 2, (start + end + _LEAST_BAR) / 2
    return round(start, 1), round(end - start, 1)


def _short(name: str) -> str:
    """Return a name that fits its line."""
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1].rstrip(' ,')}…"


def _caption(count: int, has_intervals: bool, is_named: bool, our_question: bool) -> str:
    """Return what the marks and bars are."""
    bars = f" with its {percent(LEVEL)} interval" if has_intervals else ""
    order = "" if is_named else ", sorted by value"
    needs = "a yes needs" if our_question else "the claim needs"
    cases = "The mark is the case" if count == 1 else f"Each mark is one of {count} cases"
    return f"{cases}{bars}{order}. Shaded: the range that {needs}."
