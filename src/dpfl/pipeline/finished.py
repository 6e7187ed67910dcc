"""Ask before a run what of it is finished: noise that has to be calibrated anew first, targets that are there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpfl.files import record_path
from dpfl.grid import expansion
from dpfl.grid.sweep import Sweep
from dpfl.pipeline.engine_options import engine_options
from dpfl.provenance import run_identity


def noise_made_anew(config: Mapping[str, Any]) -> list[Path]:
    """Return the tables of noise that have to be made anew before it is known which sweeps are finished.

    They are those of papers with run tables here, whose noise is not what today's code and configuration give. Where
    it comes out the same, the runs stay finished.
    """
    folder, sweeps = Path("results") / config["scale"], expansion.expand(config)
    tables = []
    for paper in config["papers"]:
        own = [sweep for sweep in sweeps if sweep.paper == paper]
        table = expansion.noise_table(folder, paper)
        has_runs = any(expansion.run_table(folder, paper, sweep.name).exists() for sweep in own)
        if has_runs and not run_identity.is_calibrated(own, table):
            tables.append(table)
    return tables


def without_finished(options: Sequence[str], config: Mapping[str, Any]) -> list[str] | None:
    """Return Snakemake's options without the run tables and records that they name and that are finished, or None where
    no target is left.

    Each of those is named on standard error. No rule makes what is finished, so Snakemake would not know it.
    """
    folder = Path("results") / config["scale"]
    done = {str(path) for path in _finished(expansion.expand(config), folder, set(map(os.path.normpath, options)))}
    for target in sorted(done):
        print(f"dpfl: {target} is finished: training it again would give the same", file=sys.stderr)
    left = [word for word in options if os.path.normpath(word) not in done]
    return left if not done or engine_options(left).targets else None


def _finished(sweeps: Iterable[Sweep], folder: Path, named: set[str]) -> list[Path]:
    found = []
    for sweep in sweeps:
        table = expansion.run_table(folder, sweep.paper, sweep.name)
        files = [path for path in (table, record_path(table)) if str(path) in named]
        if files and run_identity.is_finished(sweep, folder):
            found += files
    return found
