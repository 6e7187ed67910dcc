"""Verify results: recompute tables, figures and epsilons, independently where possible."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from snakemake.utils import available_cpu_count

from dpfl.errors import InputError
from dpfl.grid import expansion
from dpfl.provenance.audit import recompute
from dpfl.provenance.audit.files import check_report_pages
from dpfl.provenance.audit.records import Context, check_commits, check_epsilons, check_records, check_runs
from dpfl.provenance.record import read_record
from dpfl.provenance.run_identity import is_trained_here
from dpfl.provenance.trace import configuration_of, readable_records, require_no_linked_folder

if TYPE_CHECKING:
    from dpfl.grid.training_job import TrainingJob
    from dpfl.provenance.audit.findings import Audit
    from dpfl.provenance.audit.rerun import Choice

_Result = TypeVar("_Result")

QUICK_SECONDS = 20.0
"""The quick audit does not recompute what took longer."""
_CHUNK = 8


def verify_results(report: Audit, folder: Path, *, quick: bool = False, rerun: Choice | None = None) -> None:
    """Add to an audit of results/<scale> all checks that hashes cannot make, on all processors; train the runs that
    `rerun` chooses again.

    A `quick` audit draws no pictures and recomputes nothing that took longer than `QUICK_SECONDS`; it says so.
    Raises InputError where the configuration is missing, and for a link to a folder, which is not followed.
    """
    require_no_linked_folder(folder)
    root = folder.absolute().parents[1]
    config = configuration_of(folder)
    jobs = expansion.expand(config)
    if rerun and rerun.cell is not None:
        _require_job(rerun.cell, jobs)  # before the work of minutes
    statements = check_runs(report, root, folder.name, jobs, all_seeds=config["seeds"] is not None)
    records = readable_records(folder).values()
    check_records(report, Context.of(folder.absolute().name, records, jobs, config["data"]["folder"]))
    check_commits(report, records)
    report.notes += _by_other_code(_records(folder, "runs/*"))
    pages = sorted(_records(folder, *recompute.STAGES), key=lambda record: -record["seconds"])
    left_out = [record for record in pages if quick and record["seconds"] > QUICK_SECONDS]
    again = partial(recompute.recompute, root, pictures=not quick)
    work = [partial(again, record) for record in pages if record not in left_out]
    stated = list(statements.items())
    work += [partial(check_epsilons, root, stated[first : first + _CHUNK]) for first in range(0, len(stated), _CHUNK)]
    for part in at_once(work):
        report.join(part)
    check_report_pages(report, folder, config)
    if quick:
        report.notes.append("pictures were compared with their hashes only: without --quick they are drawn again")
    if left_out:
        names = ", ".join(Path(record["outputs"][0]["path"]).stem for record in left_out)
        report.notes.append(f"took more than {QUICK_SECONDS:g} s to make, so recomputed without --quick only: {names}")
    if rerun:
        from dpfl.provenance.audit.rerun import check_reruns

        check_reruns(report, root, config, jobs, rerun)


def _require_job(cell: str, jobs: list[TrainingJob]) -> None:
    """Raise InputError where no job has this name, with the one that is nearest to it."""
    known = [f"{job.paper}/{job.name}" for job in jobs]
    if cell not in known:
        near = get_close_matches(cell, known, 1, 0.0)
        hint = f"; the nearest is {near[0]}" if near else ""
        raise InputError(f"--rerun-cell {cell!r} names no job of {len(known)}{hint}")


def _records(folder: Path, *stages: str) -> Iterator[dict[str, Any]]:
    """Yield the stages' records that can be read; the audit of files has found the others."""
    for stage in stages:
        for place in sorted(folder.absolute().glob(f"{stage}/*.record.json")):
            try:
                yield read_record(place)
            except InputError:
                continue


def _by_other_code(records: Iterable[dict[str, Any]]) -> list[str]:
    """Return a note on the run tables that other versions of their code trained, if there are any."""
    records = list(records)
    other = [record["source"]["commit"] for record in records if not is_trained_here(record)]
    commits = ", ".join(sorted({(commit or "unknown")[:7] for commit in other}))
    words = (
        f"{len(other)} of {len(records)} run tables were trained by other versions of their code (commits {commits})"
    )
    return [words] if other else []


def at_once(work: Sequence[Callable[[], _Result]], *, each_anew: bool = False) -> Iterator[_Result]:
    """Yield the result of each piece of work, in order, computed on the processors that this process may use.

    With `each_anew` every piece has a process of its own, even on one processor. Raises InputError where the system
    killed a process.
    """
    workers = min(len(work), available_cpu_count())
    if workers <= 1 and not each_anew:
        yield from (each() for each in work)
        return
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawned, max_tasks_per_child=1 if each_anew else None) as pool:
        try:
            yield from pool.map(_called, work)
        except BrokenProcessPool:
            raise InputError(
                "a process was killed, perhaps because there is no memory left: run the command again"
            ) from None


def _called(work: Callable[[], Any]) -> Any:
    """Return the result of a piece of work."""
    return work()
