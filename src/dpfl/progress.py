"""How far long work has come: a bar in a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_LOG_EVERY_SECONDS = 15.0

ProgressCallback = Callable[[int, int], None]


@contextmanager
def progress_bar(title: str, unit: str) -> Iterator[ProgressCallback]:
    """Yield a callback `progress(done, total)` that shows `done` of `total` units on standard error."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _log_lines(title, unit)
        return
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _log_lines(title: str, unit: str) -> ProgressCallback:
    """Return a callback that writes a line at most every few seconds, and one at the end."""
    last = -_LOG_EVERY_SECONDS

    def progress(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if done >= total or now - last >= _LOG_EVERY_SECONDS:
            last = now
            print(f"{title}: {done} of {total} {unit}", file=sys.stderr, flush=True)

    return progress
