"""The table of results in the project's README.md, made from results/paper alone."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING

from dpfl.errors import InputError
from dpfl.reporting.display_names import model_name
from dpfl.reporting.report_page.epsilons import counts_in_words
from dpfl.reporting.rules import Verdict

if TYPE_CHECKING:
    from dpfl.reporting.report_page.contents import Page, PaperView

SCALE = "paper"
"""The scale whose results README.md shows."""
_BEGIN, _END = "<!-- results: written by make pages SCALE=paper -->\n", "<!-- end of results -->\n"
_HEAD = (
    "| paper | verdicts on its claims | published numbers | epsilons checked | jobs run |",
    "|---|---|---|---|---|",
)


def updated(text: str, page: Page) -> str:
    """Return README.md with the table of results between its two marks.

    Raises InputError if the text lacks the marks.
    """
    if _BEGIN not in text or _END not in text:
        raise InputError(f"README.md has no lines between {_BEGIN.strip()} and {_END.strip()}")
    before, _, rest = text.partition(_BEGIN)
    return f"{before}{_BEGIN}{results_table(page)}{_END}{rest.partition(_END)[2]}"


def results_table(page: Page) -> str:
    """Return the table of results, a row for each paper, and sentences on refuted claims and on published numbers."""
    lines = [*_HEAD, *map(_row, page.papers)]
    refuted = sum(
        claim.verdict.word == Verdict.REFUTED and not claim.our_question
        for view in page.papers
        for claim in view.claims
    )
    if refuted:
        verb = "claim is" if refuted == 1 else "claims are"
        lines += ["", f"{refuted} {verb} refuted: [each with the cases that decide it]({page.folder}/README.md)."]
    lines += [text for view in page.papers if (text := _distances(view))]
    return "\n".join([*lines, ""])


def _distances(view: PaperView) -> str:
    """Return the distance of a paper's published numbers from ours for each model, the closest first; "" of none."""
    comparable = [each for each in view.sections.numbers if not math.isnan(each.difference) and "model" in each.keys]
    distances: dict[str, list[float]] = {}
    for each in comparable:
        distances.setdefault(each.keys["model"], []).append(abs(each.difference))
    if not distances:
        return ""
    shown = [
        f"{model_name(model)} {median(own):.2g} ({len(own)})"
        for model, own in sorted(distances.items(), key=lambda item: median(item[1]))
    ]
    return (
        f"`{view.paper.key}`, median distance from published numbers in {comparable[0].unit}, by model (numbers): "
        f"{', '.join(shown)}."
    )


def _row(view: PaperView) -> str:
    """Return the table's row of a paper."""
    paper, printed = view.paper, view.printed
    verdicts = ", ".join(f"{count} {style.word}" for style, count in view.tally) or "none yet"
    numbers = "none printed"
    if printed.printed:
        distance = f", median distance {printed.median:.2g} {printed.unit}" if printed.comparable else ""
        numbers = f"{printed.comparable} of {printed.printed} re-run{distance}"
    epsilons = counts_in_words(view.statements) or "none"
    cells = [f"[{paper.title}]({paper.url}) [`{paper.key}`](src/dpfl/papers/{paper.key})", verdicts, numbers, epsilons]
    return f"| {' | '.join([*cells, f'{view.jobs.run} of {view.jobs.total}'])} |"
