"""Printed numbers that our runs do not bear yet: those without a run, and those with a single one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dpfl.reporting.report_page.agreement import Agreement, PrintedNumber
from dpfl.reporting.report_page.printed_table import in_words

_GROUP = ("table", "dataset", "model")


@dataclass(frozen=True)
class PrintedGap:
    """Printed numbers of one table, data set and model: how many have no run of ours, which, and how many have one."""

    name: str
    total: int
    not_run: int
    single: int
    which: str


def printed_gaps(numbers: Iterable[PrintedNumber]) -> tuple[PrintedGap, ...]:
    """Return the groups of which a number has no run of ours or a single one, in the order of the tables."""
    groups: dict[str, list[PrintedNumber]] = {}
    for each in numbers:
        name = in_words({key: value for key, value in each.keys.items() if key in _GROUP})
        groups.setdefault(name, []).append(each)
    found = (_gap(name, group) for name, group in groups.items())
    return tuple(gap for gap in found if gap.not_run or gap.single)


def gaps_in_words(numbers: Iterable[PrintedNumber]) -> str:
    """Return how many printed numbers have no run of ours and how many a single one; "" where all have several."""
    known = list(numbers)
    counts = {kind: sum(each.agreement is kind for each in known) for kind in (Agreement.NOT_RUN, Agreement.SINGLE)}
    runs = max((each.printed_runs for each in known), default=0)
    prints = f", where the paper says that it prints means of {runs}" if runs > 1 else ""
    said = {Agreement.NOT_RUN: "no run of ours", Agreement.SINGLE: f"one run of ours{prints}"}
    parts = [f"{counts[kind]} with {words}" for kind, words in said.items() if counts[kind]]
    return f"Of {len(known)} printed numbers: {'; '.join(parts)}" if parts else ""


def _gap(name: str, group: list[PrintedNumber]) -> PrintedGap:
    """Return the gap of a group."""
    absent = [each for each in group if each.agreement is Agreement.NOT_RUN]
    varying = [key for key in group[0].keys if len({each.keys[key] for each in group}) > 1]
    which = "; ".join(in_words({key: each.keys[key] for key in varying}) for each in absent)
    single = sum(each.agreement is Agreement.SINGLE for each in group)
    return PrintedGap(name, len(group), len(absent), single, "all" if len(absent) == len(group) else which)
