"""Report the state of a scale's results: done, running, resumable, failed, waiting, and the time left."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import mean
from typing import Any

from dpfl.catalog import load
from dpfl.grid import expansion
from dpfl.grid.sweep import Sweep
from dpfl.pipeline import lock
from dpfl.pipeline.orphans import GONE
from dpfl.progress import is_progress
from dpfl.provenance.run_identity import is_finished

_INTERRUPTED = (GONE, "dpfl: interrupted")
_ERROR = re.compile(r"(\w+\.)*\w*(Error|Exception)\b")  # the last line of a traceback
_FINDINGS = re.compile(r"\d+ files checked, [1-9]\d* findings")


class SweepState(StrEnum):
    """State of a sweep."""

    DONE = "done"
    RUNNING = "running"
    FAILED = "failed"
    RESUMABLE = "resumable"
    WAITING = "waiting"


@dataclass(frozen=True)
class SweepStatus:
    """A sweep, its state, and the last line of its log where that says more."""

    sweep: Sweep
    state: SweepState
    last_line: str = ""


def sweep_status(sweep: Sweep, folder: Path, running_since: float | None) -> SweepStatus:
    """Return the state of a sweep of results/<scale>; `running_since`: when the current run began, if there is one."""
    if is_finished(sweep, folder):
        return SweepStatus(sweep, SweepState.DONE)
    log = folder / "logs" / f"train_{sweep.paper}_{sweep.name}.log"
    of_this_run = running_since is not None and log.exists() and log.stat().st_mtime >= running_since
    last = _last_line(log)
    if _is_failure(last) and (of_this_run or running_since is None):
        return SweepStatus(sweep, SweepState.FAILED, last)
    if of_this_run:
        return SweepStatus(sweep, SweepState.RUNNING, last if is_progress(last) else "")
    resumable = any((Path("checkpoints") / folder.name / sweep.paper).glob(f"{sweep.name}-*.pt"))
    return SweepStatus(sweep, SweepState.RESUMABLE if resumable else SweepState.WAITING)


def lines(config: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each paper, open sweep and failed stage of the configuration's scale, and the time left."""
    folder = Path("results") / config["scale"]
    since = lock.running_since()
    open_sweeps: list[SweepStatus] = []
    seconds: dict[tuple[str, str], list[float]] = {}
    for paper in config["papers"]:
        known = [sweep_status(sweep, folder, since) for sweep in expansion.expand(config) if sweep.paper == paper]
        unfinished = [each for each in known if each.state is not SweepState.DONE]
        parts = [f"sweeps {len(known) - len(unfinished)}/{len(known)}"]
        for kind in ("tables", "figures"):
            names = getattr(load(paper), kind)
            done = sum((folder / kind / f"{paper}_{name}.csv").exists() for name in names)
            parts.append(f"{kind} {done}/{len(names)}")
        parts.append("claims done" if (folder / "claims" / f"{paper}.csv").exists() else "claims open")
        yield f"{paper}: {', '.join(parts)}"
        for each in unfinished:
            yield f"  {each.sweep.name}: {each.state}{f' ({each.last_line})' if each.last_line else ''}"
        open_sweeps += unfinished
        for each in known:
            if (took := _seconds(each.sweep, folder)) is not None:
                seconds.setdefault((paper, each.sweep.family), []).append(took)
    yield from _other_failures([Path(config["data"]["folder"]), folder], since)
    yield "a run is in progress here" if since is not None else "no run is in progress here"
    if open_sweeps:
        yield _time_left(open_sweeps, seconds)


def _other_failures(folders: list[Path], running_since: float | None) -> Iterator[str]:
    """Yield a line for each stage other than training whose log ends with an error; a run in progress retries it."""
    for log in (path for folder in folders for path in sorted((folder / "logs").glob("*.log"))):
        again = running_since is not None and log.stat().st_mtime < running_since
        if not (log.name.startswith("train_") or again) and _is_failure(last := _last_line(log)):
            yield f"{log.stem}: {SweepState.FAILED} ({last})"


def _is_failure(line: str) -> bool:
    """Return whether a log's last line is that of a failed stage; an interrupted one did not fail."""
    is_message = line.startswith("dpfl: ") and not line.startswith(_INTERRUPTED)
    return is_message or _ERROR.match(line) is not None or _FINDINGS.fullmatch(line) is not None


def _last_line(path: Path) -> str:
    """Return the last line of a file that is not blank."""
    return next((line for line in reversed(_text(path).splitlines()) if line.strip()), "")


def _time_left(open_sweeps: list[SweepStatus], seconds: dict[tuple[str, str], list[float]]) -> str:
    """Return the time that the open sweeps take one after the other, from finished sweeps of the same family."""
    measured = [seconds.get((each.sweep.paper, each.sweep.family)) for each in open_sweeps]
    minutes = sum(mean(each) for each in measured if each) / 60
    unknown = sum(each is None for each in measured)
    of_unknown = f", and {unknown} sweeps of families that have no finished sweep yet" if unknown else ""
    return f"left, one job at a time: about {minutes:.0f} min{of_unknown}"


def _seconds(sweep: Sweep, folder: Path) -> float | None:
    """Return the wall time that Snakemake measured for a finished sweep, or None."""
    text = _text(folder / "benchmarks" / f"train_{sweep.paper}_{sweep.name}.tsv")
    rows = list(csv.DictReader(text.splitlines(), delimiter="\t"))
    return float(rows[-1]["s"]) if rows and re.fullmatch(r"[\d.]+", rows[-1].get("s") or "") else None


def _text(path: Path) -> str:
    """Return a file's text, empty where the file is missing."""
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
