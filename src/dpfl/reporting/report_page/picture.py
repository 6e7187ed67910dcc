"""The picture of the first screen, as coordinates: published numbers and ours, or claimed and proven epsilons."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpfl.reporting.bounds import at_least, at_most
from dpfl.reporting.display_names import EpsilonVerdict, with_greek_symbols
from dpfl.reporting.report_page.agreement import JUDGED, Agreement, PrintedNumber, in_words

if TYPE_CHECKING:
    from dpfl.reporting.report_page.epsilons import EpsilonStatement

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
    comparable = [each for each in numbers if not math.isnan(each.difference)]
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
    return f"{cell}: published {number.printed:g}, ours {number.ours:.2f}, {number.agreement}"


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
    """Return round ends of an axis that has all values."""
    known = list(values)
    return 10 * math.floor(min(known) / 10), 10 * math.ceil(max(known) / 10)


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
