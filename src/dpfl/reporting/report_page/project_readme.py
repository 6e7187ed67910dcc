"""Results in the project's README.md: a verdict column and how far the reproduction goes, from results/paper alone."""

from __future__ import annotations

import re
import textwrap

from dpfl.errors import InputError
from dpfl.reporting.report_page.contents import Page, PaperView
from dpfl.reporting.report_page.epsilons import counts_in_words

SCALE = "paper"
"""The scale whose results README.md shows."""
_BEGIN, _END = "<!-- results: written by make pages SCALE=paper -->\n", "<!-- end of results -->\n"
_ROW = re.compile(r"^(\| \[`(\w+)`\].*\| )([^|]*)( \|)$", re.MULTILINE)
_WIDTH = 118


def updated(text: str, page: Page) -> str:
    """Return README.md with the verdicts of every paper in the last column of its table, and the lines on the results.

    Raises InputError where the text lacks a paper's row, or the marks between which the lines are.
    """
    verdicts = {view.paper.key: _verdicts(view) for view in page.papers}
    if missing := sorted(set(verdicts) - {found[2] for found in _ROW.finditer(text)}):
        raise InputError(f"README.md has no row of {missing[0]}, as | [`{missing[0]}`](...) | ... | verdicts |")
    if _BEGIN not in text or _END not in text:
        raise InputError(f"README.md has no lines between {_BEGIN.strip()} and {_END.strip()}")
    text = _ROW.sub(lambda found: f"{found[1]}{verdicts.get(found[2], found[3])}{found[4]}", text)
    before, _, rest = text.partition(_BEGIN)
    return f"{before}{_BEGIN}{standing(page)}{_END}{rest.partition(_END)[2]}"


def standing(page: Page) -> str:
    """Return the lines that say how far the results go: runs, verdicts, printed numbers, epsilons."""
    sweeps, shown = page.sweeps, [view for view in page.papers if view.printed.printed]
    claims = ", ".join(f"{count} {style.word}" for style, count in page.tally)
    lines = [
        f"**Where the results stand** (scale `{page.scale}`; [every verdict]({page.folder}/README.md)). "
        f"{sweeps.sentence()} Claims: {claims}. Claimed epsilons: {counts_in_words(page.statements) or 'none yet'}.",
        *(f"{view.short}: {view.printed.sentence()}" for view in shown),
    ]
    if sweeps.not_run:
        parts = ", ".join(f"{view.short} {view.sweeps.not_run}" for view in page.papers if view.sweeps.not_run)
        lines.append(f"Sweeps that are not run: {parts}; `make {page.scale}` trains them, and no other.")
    return "".join(
        f"{part}\n"
        for line in lines
        for part in textwrap.wrap(line, _WIDTH, break_long_words=False, break_on_hyphens=False)
    )


def _verdicts(view: PaperView) -> str:
    """Return how many claims of a paper have which verdict."""
    return ", ".join(f"{count} {style.word}" for style, count in view.tally) or "none yet"
