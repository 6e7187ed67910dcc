"""Progress of long work: a bar in a terminal, an occasional line in a log."""

from __future__ import annotations

import itertools
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOG_EVERY_SECONDS = 15.0
_LINE = re.compile(r".+: \d+ of \d+ \w+")
_LEFT = re.compile(r".+: \d+ of \d+ \w+, about (\d+(?:\.\d+)?) (s|min|h) left")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}

ProgressCallback = Callable[[int, int], None]


@contextmanager
def progress_bar(title: str, unit: str) -> Iterator[ProgressCallback]:
    """Yield a callback `progress(done, total)` that shows `done` of `total` units on standard error."""
    from rich.console import Console  # slow, and every command imports this file
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

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


def duration(seconds: float) -> str:
    """Return a time in seconds, minutes or hours, as text."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def step_counter(progress: ProgressCallback, total: int, done: int = 0) -> Callable[[], None]:
    """Return a callback for work that goes step by step: each call counts one more than `done` of `total` steps."""
    counts = itertools.count(done + 1)
    return lambda: progress(next(counts), total)


def is_progress(line: str) -> bool:
    """Return whether a line of a log is one that a progress callback wrote."""
    return _LINE.match(line) is not None


def seconds_left_in(line: str) -> float | None:
    """Return the time left that a line of a progress callback states; None where it states none."""
    stated = _LEFT.fullmatch(line.strip())
    return float(stated[1]) * _SECONDS[stated[2]] if stated else None


def _log_lines(title: str, unit: str) -> ProgressCallback:
    """Return a callback that writes a line at most every few seconds, and one at the end.

    The time left goes by the speed since the first call: work that was resumed does not count.
    """
    last = -_LOG_EVERY_SECONDS
    first: tuple[int, float] | None = None

    def progress(done: int, total: int) -> None:
        nonlocal last, first
        now = time.monotonic()
        if first is None:
            first = (done, now)
        if done >= total or now - last >= _LOG_EVERY_SECONDS:
            last = now
            speed = (done - first[0]) / (now - first[1]) if now > first[1] else 0
            left = f", about {duration((total - done) / speed)} left" if speed and done < total else ""
            print(f"{title}: {done} of {total} {unit}{left}", file=sys.stderr, flush=True)

    return progress
