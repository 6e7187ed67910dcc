"""Last lines of a run: one for each paper."""

from __future__ import annotations

from collections.abc import Iterator

from dpfl.reporting.report_page.contents import Page


def verdict_lines(page: Page) -> Iterator[str]:
    """Yield a line for each paper: how many of its claims have which verdict, and how much of it was run."""
    for view in page.papers:
        counts = ", ".join(f"{count} {style.word}" for style, count in view.tally) or "no verdict yet"
        printed = f"; {view.printed.sentence().rstrip('.')}" if view.printed.printed else ""
        partly = f"; {view.sweeps.sentence().rstrip('.')}" if view.sweeps.not_run else ""
        yield f"{view.short}: {counts}{printed}{partly}"
