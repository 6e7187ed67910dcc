"""Snakemake's logger plugin `dpfl`: what happens to the jobs of a run, as JSON, an event a line.

Snakemake finds a plugin by the name of a package at the top level, not by an entry point, so this one is beside `dpfl`.
`dpfl run` asks for it (`snakemake --logger dpfl`), and `dpfl.pipeline.live_line` reads what it writes. Snakemake's own
lines stay as they are. Every Snakemake process imports this file, those of a cluster's jobs too: it needs little.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

if TYPE_CHECKING:
    from logging import LogRecord

EVENTS = Path(".snakemake") / "events.jsonl"
"""Events of the last run, below the folder that Snakemake was called in."""


def _job(record: Any) -> dict[str, Any]:
    """Return a job that starts or has failed: its number, rule, wildcards and logs."""
    wildcards = getattr(record, "wildcards", None) or {}
    return {"job": record.jobid, "rule": record.rule_name, "wildcards": dict(wildcards), "log": list(record.log)}


_FACTS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    LogEvent.RUN_INFO: lambda record: {"total": record.stats["total"]},
    LogEvent.JOB_INFO: _job,
    LogEvent.JOB_ERROR: _job,
    LogEvent.JOB_FINISHED: lambda record: {"job": record.job_id},
    LogEvent.PROGRESS: lambda record: {"done": record.done, "total": record.total},
}
"""What is written of each event; the others are not."""


class LogHandler(LogHandlerBase):
    """Writer of events, whatever Snakemake's own lines leave out (`--quiet`)."""

    def __post_init__(self) -> None:
        """Begin the file again."""
        EVENTS.parent.mkdir(exist_ok=True)
        self._stream = EVENTS.open("w", encoding="ascii")

    def emit(self, record: LogRecord) -> None:
        """Write an event, at once and as one line; one that cannot be written ends no run."""
        event = getattr(record, "event", "")
        if event not in _FACTS:
            return
        try:
            self._stream.write(json.dumps({"event": event, **_FACTS[event](record)}) + "\n")
            self._stream.flush()
        except OSError:
            self.handleError(record)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
        super().close()

    @property
    def writes_to_stream(self) -> bool:
        """False: Snakemake's own lines go to the terminal as ever."""
        return False

    @property
    def writes_to_file(self) -> bool:
        """False: Snakemake should not name the file to a user as a log."""
        return False

    @property
    def has_filter(self) -> bool:
        """True: events are chosen here."""
        return True

    @property
    def has_formatter(self) -> bool:
        """True: events are written as JSON."""
        return True

    @property
    def needs_rulegraph(self) -> bool:
        """False: jobs are enough."""
        return False
