"""The whole audit of a scale: what hashes cannot find."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from dpfl import config as configuration
from dpfl import grid
from dpfl.auditing import recompute
from dpfl.auditing.statements import check_runs
from dpfl.errors import InputError
from dpfl.provenance.audit import Audit
from dpfl.provenance.record_file import read_record


def extend(seen: Audit, folder: Path, *, rerun: int = 0, seed: int = 0) -> None:
    """Add to an audit of results/<scale>: run tables against grid, noise and accountants; tables, figures and verdicts
    made again, on all processors; and `rerun` runs trained again, drawn by `seed`.

    Raises InputError where the configuration is missing.
    """
    root = folder.absolute().parents[1]
    config = configuration.read(folder / "config.yaml")
    sweeps = grid.expand(config)
    check_runs(seen, root, folder.name, sweeps)
    records = []
    for stage in recompute.STAGES:
        for place in sorted((folder.absolute() / stage).glob("*.record.json")):
            try:
                records.append(read_record(place))
            except InputError:
                continue  # found already
    workers = min(len(records), os.cpu_count() or 1)
    if workers:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            for part in pool.map(partial(recompute.recompute, root), records):
                seen.join(part)
    if rerun:
        from dpfl.auditing.rerun import check_reruns

        check_reruns(seen, root, config, sweeps, rerun, seed)
