"""How far the results of a scale are: what is done, running, resumable, failed, waiting, and how long it may take."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import mean
from typing import Any

from dpfl import grid
from dpfl.control import lock
from dpfl.papers import load
from dpfl.progress import is_progress
from dpfl.sweeps import Sweep


class Work(StrEnum):
    """Where a sweep stands."""

    DONE = "done"
    RUNNING = "running"
    FAILED = "failed"
    RESUMABLE = "resumable"
    WAITS = "waits"


@dataclass(frozen=True)
class Standing:
    """A sweep, where it stands, and the last words of its log where they tell more."""

    sweep: Sweep
    work: Work
    words: str = ""


def standing(sweep: Sweep, folder: Path, running_since: float | None) -> Standing:
    """Return where a sweep of results/<scale> stands; `running_since`: when the run that is at work here began."""
    if grid.run_table(folder, sweep.paper, sweep.name).exists():
        return Standing(sweep, Work.DONE)
    log = folder / "logs" / f"train_{sweep.paper}_{sweep.name}.log"
    words = [line for line in _text(log).splitlines() if line.strip()]
    last = words[-1] if words else ""
    if last and not is_progress(last):
        return Standing(sweep, Work.FAILED, last)
    if running_since is not None and log.exists() and log.stat().st_mtime >= running_since:
        return Standing(sweep, Work.RUNNING, last)
    kept = any((Path("checkpoints") / folder.name / sweep.paper).glob(f"{sweep.name}-*.pt"))
    return Standing(sweep, Work.RESUMABLE if kept else Work.WAITS)


def lines(config: dict[str, Any]) -> Iterator[str]:
    """Yield how far the configuration's scale is: a line a paper, a line an open sweep, the time left."""
    folder = Path("results") / config["scale"]
    since = lock.running_since()
    open_sweeps: list[Standing] = []
    seconds: dict[tuple[str, str], list[float]] = {}
    for paper in config["papers"]:
        known = [standing(sweep, folder, since) for sweep in grid.expand(config) if sweep.paper == paper]
        unfinished = [each for each in known if each.work is not Work.DONE]
        parts = [f"sweeps {len(known) - len(unfinished)}/{len(known)}"]
        for kind in ("tables", "figures"):
            names = getattr(load(paper), kind)
            done = sum((folder / kind / f"{paper}_{name}.csv").exists() for name in names)
            parts.append(f"{kind} {done}/{len(names)}")
        parts.append("claims done" if (folder / "claims" / f"{paper}.csv").exists() else "claims open")
        yield f"{paper}: {', '.join(parts)}"
        for each in unfinished:
            yield f"  {each.sweep.name}: {each.work}{f' ({each.words})' if each.words else ''}"
        open_sweeps += unfinished
        for each in known:
            if (took := _seconds(each.sweep, folder)) is not None:
                seconds.setdefault((paper, each.sweep.family), []).append(took)
    yield "a run is at work here" if since is not None else "no run is at work here"
    if open_sweeps:
        yield _time_left(open_sweeps, seconds)


def _time_left(open_sweeps: list[Standing], seconds: dict[tuple[str, str], list[float]]) -> str:
    """Say how long the open sweeps take one after the other, by what finished sweeps of their kinds took."""
    measured = [seconds.get((each.sweep.paper, each.sweep.family)) for each in open_sweeps]
    minutes = sum(mean(each) for each in measured if each) / 60
    unknown = sum(each is None for each in measured)
    of_unknown = f", and {unknown} sweeps of which none of their kind was finished yet" if unknown else ""
    return f"left, one job at a time: about {minutes:.0f} min{of_unknown}"


def _seconds(sweep: Sweep, folder: Path) -> float | None:
    """Return the wall time that Snakemake measured for a finished sweep, or None."""
    text = _text(folder / "benchmarks" / f"train_{sweep.paper}_{sweep.name}.tsv")
    rows = list(csv.DictReader(text.splitlines(), delimiter="\t"))
    return float(rows[-1]["s"]) if rows and re.fullmatch(r"[\d.]+", rows[-1].get("s") or "") else None


def _text(path: Path) -> str:
    """Return a file's text, or nothing where it is not there."""
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
