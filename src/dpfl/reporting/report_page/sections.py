"""Tables and figures of a paper as the page shows them: text for every cell, a data URI for every picture."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dpfl.catalog import load, recipe
from dpfl.files import is_regular, read_bytes
from dpfl.grid import expansion
from dpfl.reporting.display_names import with_greek_symbols
from dpfl.reporting.report_page.agreement import (
    PrintedNumber,
    Row,
    Summary,
    TextTable,
    printed_numbers,
    printed_table,
    said_once,
    summary,
)
from dpfl.reporting.report_page.claim_views import Trace, row_conditions, trace_of
from dpfl.reporting.results import NotRunError, read_csv, refuse_not_run
from dpfl.reporting.tables import TableLayout, readable

LONGEST_OPEN = 14
"""Rows of a table that is shown unfolded."""
_LARGEST_SVG = 500_000
"""Bytes beyond which the PNG, which has no dark colours, is embedded in place of the SVG, where it is smaller."""
_OUTCOME_STYLES = {"not refuted": "c-holds", "refuted": "c-fails"}
"""Styles of rows by what stands in the column `claim` of a table of attacks."""
MOST_PANELS, MOST_PANELS_FIRST = 4, 3
"""Panels of a figure that a card shows as a picture, and a card of the first screen: more cannot be read there."""
_PANEL = re.compile(rb'id="axes_\d+"')
"""A panel in an SVG file by matplotlib."""
_MEDIA_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}


@dataclass(frozen=True)
class Section:
    """A table or figure of a paper; `not_run` is the reason why it shows nothing, `said_once` what all rows share.

    `message` says what a figure shows, in a sentence without a full stop, and `panels` is how many it has.
    """

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
    message: str = ""
    panels: int = 0

    @property
    def fits_card(self) -> bool:
        """True for a figure that can be read as the small picture of a claim."""
        return self.panels <= MOST_PANELS

    @property
    def fits_first(self) -> bool:
        """True for a figure that can be read as the small picture of a lead finding."""
        return self.panels <= MOST_PANELS_FIRST

    @property
    def is_long(self) -> bool:
        """True where it is folded until a reader opens it."""
        return self.grid is not None and len(self.grid.rows) > LONGEST_OPEN


@dataclass(frozen=True)
class Sections:
    """Tables and figures of a paper, in the order of paper.yaml, and its published numbers."""

    tables: tuple[Section, ...]
    figures: tuple[Section, ...]
    numbers: tuple[PrintedNumber, ...] = field(default=())


def sections_of(folder: Path, paper: str) -> Sections:
    """Return the finished tables and figures of a paper in results/<scale>."""
    root, tables = folder.absolute().parents[1], load(paper).tables
    numbers = [
        number
        for name in tables
        for number in printed_numbers(paper, name, expansion.page_path(folder, "tables", paper, name))
    ]
    return Sections(
        tuple(table for name in tables for table in _table(folder, paper, name, root)),
        tuple(figure for name in load(paper).figures for figure in _figure(folder, paper, name, root)),
        tuple(numbers),
    )


def _words(entry: Mapping[str, str]) -> dict[str, str]:
    """Return title and caption of an entry of paper.yaml as a reader sees them."""
    return {name: with_greek_symbols(entry[name]) for name in ("title", "caption")}


def _table(folder: Path, paper: str, name: str, root: Path) -> Iterator[Section]:
    """Yield a table, if its CSV is there."""
    csv = expansion.page_path(folder, "tables", paper, name)
    if not csv.is_file():
        return
    entry = load(paper).tables[name]
    about = {"kind": "table", "name": name, **_words(entry)}
    try:
        data = refuse_not_run(read_csv(csv))
    except NotRunError as reason:
        yield Section(**about, trace=trace_of(csv, root), not_run=str(reason))
        return
    page: TableLayout = readable(recipe(paper, "tables", name).page(data))
    conditions = row_conditions(data)
    laid_out = _laid_out(page, conditions if len(page.body) == len(data) else [])
    numbers = printed_numbers(paper, name, csv)
    yield Section(
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
            style = _style(section.columns, cells)
            marks = () if page.agreement is None else tuple(map(_mark, page.agreement.iloc[number]))
            shown = tuple(str(cell).replace("n = ", "n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}") for cell in cells)
            rows.append(Row(shown, "" if first else heading, where, style, marks))
            number += 1
    return TextTable(tuple(map(str, page.body.columns)), tuple(rows), keeps_first=page.agreement is not None)


def _mark(agreement: str) -> str:
    """Return the style of a cell whose number agrees so with the published one."""
    return f"a-{agreement.replace(' ', '-')}" if agreement else ""


def _style(columns: Iterable[str], cells: Iterable[object]) -> str:
    """Return the style of a row that says what attacks did to a claim, "" for others."""
    return _OUTCOME_STYLES.get(str(dict(zip(columns, cells, strict=True)).get("claim")), "")


def _figure(folder: Path, paper: str, name: str, root: Path) -> Iterator[Section]:
    """Yield a figure, if its CSV is there; a figure that was not run has no picture."""
    csv = expansion.page_path(folder, "figures", paper, name)
    if not csv.is_file():
        return
    reason, message = "", ""
    try:
        data = refuse_not_run(read_csv(csv))
        if data.empty:
            reason = "no run of this figure in this configuration"
        else:
            message = with_greek_symbols(recipe(paper, "figures", name).message(data))
    except NotRunError as error:
        reason = str(error)
    svg = csv.with_suffix(".svg")
    yield Section(
        "figure",
        name,
        **_words(load(paper).figures[name]),
        trace=trace_of(csv, root),
        not_run=reason,
        picture="" if reason else picture_uri(csv),
        message=message,
        panels=len(_PANEL.findall(read_bytes(svg))) if is_regular(svg) else 0,
    )


def picture_uri(csv: Path) -> str:
    """Return the picture next to a figure's CSV as a data URI, "" if there is none.

    The SVG is taken, unless it is large and the PNG is smaller.
    """
    known = {suffix: read_bytes(path) for suffix in _MEDIA_TYPES if is_regular(path := csv.with_suffix(suffix))}
    if not known:
        return ""
    suffix, content = next(iter(known.items()))
    if len(content) > _LARGEST_SVG:
        suffix, content = min(known.items(), key=lambda item: len(item[1]))
    return f"data:{_MEDIA_TYPES[suffix]};base64,{base64.b64encode(content).decode()}"
