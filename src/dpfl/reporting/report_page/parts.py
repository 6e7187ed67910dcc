"""Tables and figures of a paper as the page shows them: text for every cell, a data URI for every picture."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dpfl.catalog import load, recipe
from dpfl.files import is_regular, read_bytes
from dpfl.reporting.report_page.agreement import PrintedNumber, Summary, printed_numbers, summary
from dpfl.reporting.report_page.printed_table import printed_table, said_once
from dpfl.reporting.report_page.text_table import Row, TextTable
from dpfl.reporting.report_page.traces import Trace, row_conditions, trace_of
from dpfl.reporting.results import NotRunError, read_csv, refuse_not_run
from dpfl.reporting.signs import with_signs
from dpfl.reporting.tables import TableLayout, readable

LONGEST_OPEN = 14
"""Rows of a table that is shown unfolded."""
_LARGEST_SVG = 250_000
"""Bytes beyond which the PNG is embedded in place of the SVG, where it is smaller."""
_OUTCOME_STYLES = {"stands": "c-holds", "refuted": "c-fails"}
"""Styles of rows by what stands in the column `claim` of a table of attacks."""
_MEDIA_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}


@dataclass(frozen=True)
class Part:
    """A table or figure of a paper; `not_run` is the reason why it shows nothing, `said_once` what all rows share."""

    kind: str
    name: str
    title: str
    caption: str
    trace: Trace
    not_run: str = ""
    notes: tuple[str, ...] = ()
    grid: TextTable | None = None
    said_once: str = ""
    as_laid_out: TextTable | None = None
    printed: Summary | None = None
    picture: str = ""

    @property
    def is_long(self) -> bool:
        """True where it is folded until a reader opens it."""
        return self.grid is not None and len(self.grid.rows) > LONGEST_OPEN


@dataclass(frozen=True)
class Parts:
    """Tables and figures of a paper, in the order of paper.yaml, and its printed numbers."""

    tables: tuple[Part, ...]
    figures: tuple[Part, ...]
    numbers: tuple[PrintedNumber, ...] = field(default=())


def parts_of(folder: Path, paper: str) -> Parts:
    """Return the finished tables and figures of a paper in results/<scale>."""
    root, tables = folder.absolute().parents[1], load(paper).tables
    numbers = [
        number for name in tables for number in printed_numbers(paper, name, _csv(folder, "tables", paper, name))
    ]
    return Parts(
        tuple(table for name in tables for table in _table(folder, paper, name, root)),
        tuple(figure for name in load(paper).figures for figure in _figure(folder, paper, name, root)),
        tuple(numbers),
    )


def _csv(folder: Path, kind: str, paper: str, name: str) -> Path:
    """Return where the data of a table or figure are."""
    return folder / kind / f"{paper}_{name}.csv"


def _words(entry: Mapping[str, str]) -> dict[str, str]:
    """Return title and caption of an entry of paper.yaml as a reader sees them."""
    return {name: with_signs(entry[name]) for name in ("title", "caption")}


def _table(folder: Path, paper: str, name: str, root: Path) -> Iterator[Part]:
    """Yield a table, if its CSV is there."""
    csv = _csv(folder, "tables", paper, name)
    if not csv.is_file():
        return
    entry = load(paper).tables[name]
    about = {"kind": "table", "name": name, **_words(entry)}
    try:
        data = refuse_not_run(read_csv(csv))
    except NotRunError as reason:
        yield Part(**about, trace=trace_of(csv, root), not_run=str(reason))
        return
    page: TableLayout = readable(recipe(paper, "tables", name).page(data))
    conditions = row_conditions(data)
    laid_out = _laid_out(page, conditions if len(page.body) == len(data) else [])
    numbers = printed_numbers(paper, name, csv)
    yield Part(
        **about,
        trace=trace_of(csv, root),
        not_run="" if len(data) else "no run of this table in this configuration",
        notes=tuple(page.notes),
        grid=printed_table(numbers, conditions) if numbers else laid_out,
        said_once=said_once(numbers) if numbers else "",
        as_laid_out=laid_out if numbers else None,
        printed=summary(numbers) if numbers else None,
    )


def _laid_out(page: TableLayout, conditions: list[str]) -> TextTable:
    """Return a table's own layout."""
    rows, number = [], 0
    for heading, section in page.sections():
        for first, cells in enumerate(section.itertuples(index=False)):
            where = conditions[number] if conditions else ""
            rows.append(Row(tuple(map(str, cells)), "" if first else heading, where, _style(section.columns, cells)))
            number += 1
    return TextTable(tuple(map(str, page.body.columns)), tuple(rows))


def _style(columns: Iterable[str], cells: Iterable[object]) -> str:
    """Return the style of a row that says what attacks did to a claim, "" for others."""
    return _OUTCOME_STYLES.get(str(dict(zip(columns, cells, strict=True)).get("claim")), "")


def _figure(folder: Path, paper: str, name: str, root: Path) -> Iterator[Part]:
    """Yield a figure, if its CSV is there; a figure that was not run has no picture."""
    csv = _csv(folder, "figures", paper, name)
    if not csv.is_file():
        return
    entry, reason = load(paper).figures[name], ""
    try:
        reason = "" if len(refuse_not_run(read_csv(csv))) else "no run of this figure in this configuration"
    except NotRunError as error:
        reason = str(error)
    yield Part(
        "figure",
        name,
        **_words(entry),
        trace=trace_of(csv, root),
        not_run=reason,
        picture="" if reason else picture_uri(csv),
    )


def picture_uri(csv: Path) -> str:
    """Return the picture next to a figure's CSV as a data URI, "" where there is none.

    The SVG is taken, unless it is large and the PNG is smaller.
    """
    known = {suffix: read_bytes(path) for suffix in _MEDIA_TYPES if is_regular(path := csv.with_suffix(suffix))}
    if not known:
        return ""
    suffix, content = next(iter(known.items()))
    if len(content) > _LARGEST_SVG:
        suffix, content = min(known.items(), key=lambda item: len(item[1]))
    return f"data:{_MEDIA_TYPES[suffix]};base64,{base64.b64encode(content).decode()}"
