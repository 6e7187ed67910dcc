"""Tables stage: one table as CSV (every digit), Markdown, LaTeX and HTML (as a reader wants it)."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

import pandas as pd

from dpfl.catalog import dataset_entries, load, recipe
from dpfl.errors import InputError
from dpfl.files import write_atomically
from dpfl.reporting import display_names
from dpfl.reporting.display_names import model_name, with_greek_symbols, with_minus_signs
from dpfl.reporting.privacy_card import private_runs, table_card
from dpfl.reporting.results import (
    ORIGIN,
    ORIGINS,
    NotRunError,
    Results,
    compute_or_placeholder,
    own_code,
    read_csv,
    refuse_not_run,
    removed_unless_finished,
    write_table,
)

_KEY = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")
_SIGNED_ZERO = re.compile(r"(?<![\w.])[-+−](0(?:\.0+)?)(?![\d.])")
SUFFIXES = (".md", ".tex", ".html", ".rst")
PRINTED = "published_"
"""Prefix of a column of published numbers, and of their key in paper.yaml; ours are in the column of the rest of its
name."""


@dataclass(frozen=True)
class TableLayout:
    """A table as a reader sees it: `body` contains text only, `notes` states what the numbers cannot.

    Where `headings` names a heading for every row, each run of rows with the same heading is shown under it.
    `agreement` says in the shape of the body how the number of a cell agrees with the published one, "" elsewhere.
    """

    body: pd.DataFrame
    notes: list[str] = field(default_factory=list)
    headings: list[str] = field(default_factory=list)
    agreement: pd.DataFrame | None = None

    def sections(self) -> Iterator[tuple[str, pd.DataFrame]]:
        """Yield (heading, rows) from top to bottom; the heading is "" if there is none."""
        headings = self.headings or [""] * len(self.body)
        start = 0
        for heading, run in groupby(headings):
            stop = start + len(list(run))
            yield heading, self.body.iloc[start:stop]
            start = stop


@dataclass(frozen=True)
class TableRecipe:
    """Recipe of a table: `data` returns one tidy row per cell with every digit, `page` lays that out for a reader.

    A table that is made of runs says of which, row by row, in the column `origins`, which its page leaves out.

    `printed_runs` says how many runs a published number of the table averages, 0 where it has none or does not say.
    `privacy_notes` returns, from the rows, what limits the epsilons of the table's privacy card.
    """

    data: Callable[[Results], pd.DataFrame]
    page: Callable[[pd.DataFrame], TableLayout]
    printed_runs: int = 0
    privacy_notes: Callable[[pd.DataFrame], list[str]] = lambda data: []


def make(paper: str, name: str, results: Results, folder: Path) -> list[Path]:
    """Write <folder>/<paper>_<name>.csv, .md, .tex and .html, and the caption as .rst; return the paths, CSV first.

    A table that private runs stand behind, by its column `origins`, has a privacy card too,
    <folder>/<paper>_<name>.privacy.md.
    """
    with own_code(paper, f"table {name}"):
        made: TableRecipe = recipe(paper, "tables", name)
    csv = folder / f"{paper}_{name}.csv"
    data = compute_or_placeholder(made.data, results, paper, f"table {name}")
    _refuse_uncompared(paper, name, data)
    write_table(data, csv)
    with own_code(paper, f"table {name}"), removed_unless_finished(csv):
        paths = [csv, *write_pages(paper, name, csv)]
    place = csv.with_suffix(".privacy.md")
    private = private_runs(_made_of(data, results.runs(paper))) if ORIGINS in data else pd.DataFrame()
    if len(private):
        write_atomically(place, table_card(paper, name, private, made.privacy_notes(data)))
        return [*paths, place]
    place.unlink(missing_ok=True)  # of runs that are no longer there
    return paths


def printed_columns(paper: str, name: str) -> list[str]:
    """Return the columns that a table with published numbers has for their comparison with ours, the published one
    first; [] if paper.yaml lists none. Raises InputError where it lists two kinds of published numbers."""
    keys = [key for key in load(paper).tables[name] if key.startswith(PRINTED)]
    if not keys:
        return []
    if len(keys) > 1:
        raise InputError(f"{paper}/paper.yaml: table {name} has {' and '.join(keys)}: give each a table of its own")
    ours = keys[0].removeprefix(PRINTED)
    unit = ours.rpartition("_")[2]
    return [keys[0], ours, f"difference_{unit}", f"prediction_{unit}", "runs", "stand_in", "ran_on", "prediction"]


def _refuse_uncompared(paper: str, name: str, data: pd.DataFrame) -> None:
    """Raise InputError where the rows of a table with published numbers lack a column that the comparison reads."""
    try:
        rows = refuse_not_run(data)
    except NotRunError:
        return
    lacking = [column for column in printed_columns(paper, name) if column not in rows]
    if len(rows) and lacking:
        raise InputError(
            f"{paper}: paper.yaml has published numbers for table {name}, but its rows lack the columns "
            f"{', '.join(lacking)}"
        )


def _made_of(data: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that a table's rows were made of."""
    named = {origin for cell in data[ORIGINS] for origin in str(cell).split()}
    return runs[runs[ORIGIN].isin(named)] if ORIGIN in runs else runs


def write_pages(paper: str, name: str, csv: Path, suffixes: Collection[str] = SUFFIXES) -> list[Path]:
    """Write the pages with these suffixes that show a table's CSV, and no other number; return their paths."""
    made: TableRecipe = recipe(paper, "tables", name)
    title = with_greek_symbols(load(paper).tables[name]["title"])
    try:
        data = refuse_not_run(read_csv(csv))
        page = readable(made.page(data))
    except NotRunError as reason:
        page = TableLayout(_nothing(str(reason)))
    if page.body.empty:
        absent = "no run of this table in this configuration" if data.empty else "too few runs for a row of this table"
        page = TableLayout(_nothing(absent), page.notes)
    texts = {
        ".md": markdown(page, title, with_greek_symbols(load(paper).tables[name]["caption"])),
        ".tex": latex(page, title, f"{paper}_{name}"),
        ".html": html_page(page, title),
        ".rst": display_names.text("tables", paper, name, csv),
    }
    paths = [csv.with_suffix(suffix) for suffix in texts if suffix in suffixes]
    for path in paths:
        write_atomically(path, texts[path.suffix])
    return paths


def readable(layout: TableLayout) -> TableLayout:
    """Return a layout whose cells name data sets and quantities as a reader knows them; no zero has a sign, and no
    number of a note a hyphen for its minus."""
    body = layout.body.map(readable_cell).rename(columns=readable_cell)
    return replace(layout, body=body, notes=[with_minus_signs(note) for note in layout.notes])


def readable_cell(cell: object) -> str:
    """Return the text of a cell: the name of a data set or model for its key, other keys in words, ε for epsilon."""
    text = str(cell)
    if text in dataset_entries():
        return dataset_entries()[text]["title"]
    if _KEY.fullmatch(text):
        return model_name(text)
    return with_greek_symbols(_SIGNED_ZERO.sub(r"\1", text))


def _nothing(reason: str) -> pd.DataFrame:
    """Return what a reader sees where a table has no rows."""
    return pd.DataFrame({"not run": [reason]})


def markdown(page: TableLayout, title: str, caption: str) -> str:
    """Return the table as Markdown: title, caption, table, notes."""
    notes = "".join(f"- {note}\n" for note in page.notes)
    tables = "".join(
        f"{heading and f'*{heading}*'}\n\n{rows.to_markdown(index=False, disable_numparse=True)}\n\n".lstrip("\n")
        for heading, rows in page.sections()
    )
    return f"**{title}**\n\n{caption}\n\n{tables}{notes}"


def latex(page: TableLayout, title: str, label: str) -> str:
    """Return the table as LaTeX (booktabs), its notes in the caption, headings as lines across all columns."""
    escaped = page.body.map(_latex_text).rename(columns=_latex_text)
    caption = _latex_text(" ".join([title + ".", *page.notes]))
    lines = escaped.to_latex(index=False, caption=caption, label=f"tab:{label}", position="ht").splitlines(True)
    first = next(number for number, line in enumerate(lines) if line.startswith("\\midrule")) + 1
    for heading, rows in page.sections():
        if heading:
            across = rf"\multicolumn{{{rows.shape[1]}}}{{l}}{{\textit{{{_latex_text(heading)}}}}} \\"
            lines.insert(first, across + "\n")
            first += 1
        first += len(rows)
    return "".join(lines)


def html_page(page: TableLayout, title: str) -> str:
    """Return the table as a page of its own, without anything from elsewhere."""
    head = "".join(f"<th{_kept_together(name)}>{html.escape(str(name))}</th>" for name in page.body.columns)
    rows = "".join(
        (heading and f'<tr><th colspan="{section.shape[1]}">{html.escape(heading)}</th></tr>\n')
        + "".join(_html_row(row) for row in section.itertuples(index=False))
        for heading, section in page.sections()
    )
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in page.notes)
    return _HTML.format(title=html.escape(title), head=head, rows=rows, notes=notes)


def _html_row(row: tuple[object, ...]) -> str:
    """Return one row of the page."""
    return "<tr>" + "".join(f"<td{_kept_together(value)}>{html.escape(str(value))}</td>" for value in row) + "</tr>\n"


def _kept_together(text: object) -> str:
    """Return the attribute that keeps a short cell on one line."""
    return ' class="short"' if len(str(text)) <= 24 else ""


def _latex_text(text: object) -> str:
    """Return `text` with LaTeX's special characters escaped."""
    table = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
    table |= {"∞": r"$\infty$", "ε": r"$\varepsilon$", "σ": r"$\sigma$", "δ": r"$\delta$", "−": "$-$"}
    table |= {"λ": r"$\lambda$", "θ": r"$\theta$", "η": r"$\eta$", "μ": r"$\mu$"}
    table |= {"τ": r"$\tau$", "Φ": r"$\Phi$", "Ψ": r"$\Psi$", "Ω": r"$\Omega$"}
    table |= {"≥": r"$\geq$", "≤": r"$\leq$", "≲": r"$\stackrel{<}{\sim}$", "→": r"$\to$", "√": r"$\surd$"}
    table |= {"α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "κ": r"$\kappa$", "ρ": r"$\rho$"}
    table |= {"·": r"$\cdot$", "⁻": "$^{-}$"}
    table |= {raised: f"$^{{{digit}}}$" for digit, raised in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
    table |= {lowered: f"$_{{{letter}}}$" for letter, lowered in zip("0tijr", "₀ₜᵢⱼᵣ", strict=True)}
    table |= {"\N{COMBINING TILDE}": r"$\tilde{\ }$"}
    table |= {character: f"\\{character}" for character in "&%$#_{}"}
    return "".join(table.get(character, character) for character in str(text))


_HTML = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 14px/1.45 system-ui, sans-serif; margin: 1.5rem; color: #1b1b1b; }}
h1 {{ font-size: 1.15rem; }}
table {{ border-collapse: collapse; }}
.short {{ white-space: nowrap; }}
th, td {{ padding: .3rem .7rem; text-align: left; border-bottom: 1px solid #ddd; vertical-align: top; }}
th {{ border-bottom: 2px solid #555; }}
li {{ color: #444; max-width: 60rem; }}
</style></head><body>
<h1>{title}</h1>
<table><thead><tr>{head}</tr></thead><tbody>
{rows}</tbody></table>
<ul>{notes}</ul>
</body></html>
"""
