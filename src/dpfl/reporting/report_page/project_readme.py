"""Results in the project's README.md: a verdict column and how far the reproduction goes, from results/paper alone."""

from __future__ import annotations

import re
import textwrap

from dpfl.errors import InputError
from dpfl.reporting.report_page.contents import Page, PaperView
from dpfl.reporting.report_page.epsilons import counts_in_words
from dpfl.reporting.rules import Verdict

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
    return f"{before}{_BEGIN}{status_block(page)}{_END}{rest.partition(_END)[2]}"


def status_block(page: Page) -> str:
    """Return the lines that say how far the results go: runs, verdicts, what is refuted, printed numbers, epsilons."""
    jobs, shown = page.jobs, [view for view in page.papers if view.printed.printed]
    claims = ", ".join(f"{count} {style.word}" for style, count in page.tally)
    lines = [
        f"**Where the results stand** (scale `{page.scale}`; [every verdict]({page.folder}/README.md)). "
        f"{jobs.sentence()} Claims: {claims}.",
        *(f"{view.short}: {view.printed.sentence()}" for view in shown),
    ]
    for view in shown:
        if absent := [f"{gap.name} {gap.not_run}" for gap in view.gaps if gap.not_run]:
            lines.append(f"Printed numbers with no run of ours, {view.short}: {'; '.join(absent)}.")
    lines += [f"Epsilons that are stated, {view.short}: {words}." for view in page.papers if (words := _epsilons(view))]
    for wanted, _, groups in page.epsilons_not_proven:
        which = "; ".join(f"{view.short} {count}, {what}" for view, count, what in groups)
        lines.append(f"Those {wanted}: {which}.")
    if jobs.not_run:
        parts = ", ".join(f"{view.short} {view.jobs.not_run}" for view in page.papers if view.jobs.not_run)
        lines.append(f"Jobs that are not run: {parts}; `make {page.scale}` trains them, and no other.")
    refuted = [
        f"- {view.short}: {claim.text}"
        for view in page.papers
        for claim in view.claims
        if claim.verdict.word == Verdict.REFUTED and not claim.our_question
    ]
    said = f"\nRefuted, each by cases that the page shows:\n\n{_wrapped(refuted)}" if refuted else ""
    return _wrapped(lines) + said


def _wrapped(lines: list[str]) -> str:
    """Return lines of text, a bullet where they begin with a dash, no longer than those of the file."""
    return "".join(
        f"{part}\n"
        for line in lines
        for part in textwrap.wrap(
            line, _WIDTH, subsequent_indent="  " * line.startswith("- "), break_long_words=False, break_on_hyphens=False
        )
    )


def _epsilons(view: PaperView) -> str:
    """Return how many of a paper's noise settings keep the epsilon that they state, "" where none states one."""
    return counts_in_words(view.statements)


def _verdicts(view: PaperView) -> str:
    """Return how many claims of a paper have which verdict."""
    return ", ".join(f"{count} {style.word}" for style, count in view.tally) or "none yet"
