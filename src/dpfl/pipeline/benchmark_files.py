"""Read the files in which Snakemake says what a job took."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import NamedTuple


class Benchmark(NamedTuple):
    """Measurements of one job: time on the clock, processor time, which is sampled too rarely for short jobs, and the
    largest resident memory; nan where there is none."""

    seconds: float
    processor_seconds: float
    memory_mb: float


def read_benchmark(path: Path) -> Benchmark:
    """Return what Snakemake measured of a job; nan throughout where there is no such file."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    last = (list(csv.DictReader(text.splitlines(), delimiter="\t")) or [{}])[-1]
    return Benchmark(*(_number(last.get(name) or "") for name in ("s", "cpu_time", "max_rss")))


def _number(text: str) -> float:
    """Return the number that a text says, nan for another word."""
    return float(text) if re.fullmatch(r"\d+(\.\d*)?", text) else math.nan
