"""The whole audit of a scale: what hashes cannot find."""

from __future__ import annotations

import multiprocessing
import operator
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from dpfl.errors import InputError
from dpfl.grid import configuration, expansion
from dpfl.provenance.audit import recompute
from dpfl.provenance.audit.findings import Audit
from dpfl.provenance.audit.run_tables import check_epsilons, check_runs
from dpfl.provenance.record_format import read_record
from dpfl.provenance.source_digest import source_digest

QUICK_SECONDS = 20.0
"""The quick audit does not make again what took longer to make."""
_CHUNK = 8


def verify_results(seen: Audit, folder: Path, *, quick: bool = False, rerun: int = 0, seed: int = 0) -> None:
    """Add to an audit of results/<scale>: run tables against grid, noise and accountants; tables, figures and verdicts
    made again, on all processors; and `rerun` runs trained again, drawn by `seed`.

    A `quick` audit draws no pictures and makes nothing again that took longer than `QUICK_SECONDS`; it says so.
    Raises InputError where the configuration is missing.
    """
    root = folder.absolute().parents[1]
    config = configuration.read(folder / "config.yaml")
    sweeps = expansion.expand(config)
    statements = check_runs(seen, root, folder.name, sweeps, all_seeds=config["seeds"] is not None)
    seen.notes += _by_other_code(_records(folder, "runs/*"))
    records = sorted(_records(folder, *recompute.STAGES), key=lambda record: -record["seconds"])
    left_out = [record for record in records if quick and record["seconds"] > QUICK_SECONDS]
    again = partial(recompute.recompute, root, pictures=not quick)
    work = [partial(again, record) for record in records if record not in left_out]
    told = list(statements.items())
    work += [partial(check_epsilons, root, told[first : first + _CHUNK]) for first in range(0, len(told), _CHUNK)]
    for part in _at_once(work):
        seen.join(part)
    if quick:
        seen.notes.append("pictures were compared with their hashes only: without --quick they are drawn again")
    if left_out:
        names = ", ".join(Path(record["outputs"][0]["path"]).stem for record in left_out)
        seen.notes.append(f"took more than {QUICK_SECONDS:g} s to make, so made again without --quick only: {names}")
    if rerun:
        from dpfl.provenance.audit.rerun import check_reruns

        check_reruns(seen, root, config, sweeps, rerun, seed)


def _records(folder: Path, *stages: str) -> Iterator[dict[str, Any]]:
    """Yield the stages' records that can be read; the audit of files has found the others."""
    for stage in stages:
        for place in sorted(folder.absolute().glob(f"{stage}/*.record.json")):
            try:
                yield read_record(place)
            except InputError:
                continue


def _by_other_code(records: Iterable[dict[str, Any]]) -> list[str]:
    """Say how many of the run tables were made by other versions of the code that trains them, if any were."""
    sources = [record["source"] for record in records]
    other = [source["commit"] for source in sources if source["digest"] != source_digest(*source["modules"])]
    commits = ", ".join(sorted({(commit or "unknown")[:7] for commit in other}))
    words = (
        f"{len(other)} of {len(sources)} run tables were trained by other versions of their code (commits {commits})"
    )
    return [words] if other else []


def _at_once(work: list[Callable[[], Audit]]) -> Iterator[Audit]:
    """Yield what each piece of work found, in order, done on as many processors as there are."""
    workers = min(len(work), os.cpu_count() or 1)
    if workers <= 1:
        yield from (each() for each in work)
        return
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(operator.call, work)
