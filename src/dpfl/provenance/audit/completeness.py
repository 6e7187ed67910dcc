"""Compare what is below results/<scale> with its records, its manifest, and what papers and grid say must exist."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dpfl.catalog import keys, load
from dpfl.errors import InputError
from dpfl.files import file_sha256, is_regular, record_path
from dpfl.grid import expansion
from dpfl.grid.sweep import Sweep
from dpfl.provenance import manifest
from dpfl.provenance.audit.findings import Audit, Finding
from dpfl.provenance.trace import configuration_of

ENDED = "audit.txt"
"""What the last step of a run writes."""
_UNRECORDED = {
    "config.yaml",
    ENDED,
    manifest.MANIFEST,
    "report.html",
    "README.md",
    "workflow.html",
}
"""Files directly below results/<scale> that no stage's record lists."""
_OWN_FOLDERS = {"logs", "benchmarks"}
"""Folders directly below results/<scale> that Snakemake fills."""
_RECORD = ".record.json"
_PARTIAL = re.compile(r"\..+\.\d+\.partial")
_PAGES = ("tables", "figures")


def check_completeness(
    report: Audit, folder: Path, records: Mapping[Path, dict[str, Any]], *, sealed: bool = True
) -> None:
    """Add files without a record, differences from the manifest, and pages that a paper lists and that are not there.

    A note counts the sweeps of the grid that were not run; one whose run table is not there without the manifest saying
    so, or is there though it says so, is a finding.

    `records`: every readable record of the lineage of `folder`. Without `sealed` the manifest is left out: it is about
    to be written. A run that has not ended has no manifest, and may lack pages: both are notes then.
    """
    own = {place: record for place, record in records.items() if place.is_relative_to(folder.absolute())}
    written = Counter(each["path"] for record in own.values() for each in record["outputs"])
    for place in (place for place, record in own.items() if not _is_at_home(place, record, folder, written)):
        problem = "is the record of other files, or of files that have another record"
        report.findings.append(Finding(os.path.relpath(place, folder.absolute().parents[1]), problem, (place,)))
    _check_strays(report, folder.absolute(), own)
    ended = is_regular(folder / ENDED)
    if sealed:
        _check_manifest(report, folder.absolute(), ended)
    _check_not_run(report, folder.absolute(), sealed)
    _check_pages(report, folder.absolute(), own, ended)


def _is_at_home(place: Path, record: Mapping[str, Any], folder: Path, written: Counter[str]) -> bool:
    """Return whether a record is named after its first file, its files are of its folder, and no other record has them.

    An honest record, copied under another name, would be read in the place of one that was changed. `written`: how many
    records list each file.
    """
    own = place.parent.relative_to(folder.absolute().parents[1])
    first, *others = (Path(each["path"]) for each in record["outputs"])
    is_alone = all(path.parent == own and written[path.as_posix()] == 1 for path in others)
    return record_path(own / first.name).name == place.name and first.parent == own and is_alone


def _check_strays(report: Audit, folder: Path, own: Mapping[Path, dict[str, Any]]) -> None:
    """Find what no record lists: a page added, a picture in the place of a removed record, links, pipes."""
    root = folder.parents[1]
    listed = {place.with_name(Path(each["path"]).name) for place, record in own.items() for each in record["outputs"]}
    for path in _entries(folder):
        relative = path.relative_to(folder)
        if path in listed or _PARTIAL.fullmatch(path.name):
            continue
        name = os.path.relpath(path, root)
        if not is_regular(path):
            report.findings.append(Finding(name, "is no regular file"))
        elif not (_is_expected(relative) or path.name.endswith(_RECORD) or _has_unreadable_record(path, own)):
            report.findings.append(Finding(name, "has no record: no stage of the pipeline wrote it"))


def _entries(folder: Path) -> Iterator[Path]:
    """Yield every file, link, pipe and device below a folder; links are not followed."""
    for place, folders, files in os.walk(folder):
        if Path(place) == folder:
            folders[:] = [name for name in folders if name not in _OWN_FOLDERS or Path(place, name).is_symlink()]
        yield from (Path(place, name) for name in files)
        yield from (Path(place, name) for name in folders if Path(place, name).is_symlink())


def _is_expected(relative: Path) -> bool:
    """Return whether a file is one of those that have no record; its path is relative to results/<scale>."""
    return len(relative.parts) == 1 and relative.name in _UNRECORDED


def _has_unreadable_record(path: Path, own: Mapping[Path, dict[str, Any]]) -> bool:
    """Return whether there is a record for a file that could not be read: that is a finding of its own."""
    places = record_path(path), record_path(path.with_suffix(".csv"))
    return any(os.path.lexists(place) and place not in own for place in places)


def _check_manifest(report: Audit, folder: Path, ended: bool) -> None:
    """Find records that are gone, changed or added since the manifest was written."""
    root = folder.parents[1]
    name = os.path.relpath(folder / manifest.MANIFEST, root)
    if not os.path.lexists(folder / manifest.MANIFEST):
        if ended:
            report.findings.append(Finding(name, "is missing, though a run has ended here"))
        else:
            report.notes.append(f"no {name}: the run has not ended, so a record that was deleted may not be missed")
        return
    try:
        listed = manifest.read(folder)
    except InputError as error:
        report.findings.append(Finding(name, str(error).removeprefix(f"{folder / manifest.MANIFEST} ")))
        return
    here = manifest.records_below(folder)
    report.hashes[name] = file_sha256(folder / manifest.MANIFEST)
    report.count("records of the manifest", len(listed))
    for each in sorted(set(listed) | set(here)):
        if each not in here:
            problem = f"is gone, though {manifest.MANIFEST} lists it"
        elif each not in listed:
            problem = f"is not listed in {manifest.MANIFEST}: it was added, or a later run has not ended (make ends it)"
        elif here[each] != listed[each]:
            problem = f"is not the record that {manifest.MANIFEST} lists: it was changed, or its stage has run since"
        else:
            continue
        report.findings.append(Finding(os.path.relpath(folder / each, root), problem))


def _check_not_run(report: Audit, folder: Path, sealed: bool) -> None:
    """Note the sweeps that were not run; where there is a manifest, compare them with those that it states."""
    if not is_regular(folder / "config.yaml"):
        return
    try:
        config = configuration_of(folder)
    except InputError as error:
        place = os.path.relpath(folder / "config.yaml", folder.parents[1])
        report.findings.append(Finding(place, f"is no configuration, so that what was not run is not known: {error}"))
        return
    try:
        stated = manifest.stated_not_run(folder) if sealed and is_regular(folder / manifest.MANIFEST) else None
        listed = set() if stated is None else set(manifest.read(folder))
        known = {f"{sweep.paper}/{sweep.name}": sweep for sweep in expansion.expand(config)}
    except InputError:
        return  # _check_manifest says so
    missing = set(manifest.not_run_below(folder))
    if line := not_run_line(known.values(), missing):
        report.notes.append(line)
    for name in sorted(missing ^ set(missing if stated is None else stated)):
        table = f"runs/{name}.csv.gz"
        if name not in known:
            problem = f"is no sweep of the grid, though {manifest.MANIFEST} states that it was not run"
        elif name not in missing:
            problem = f"is there, though {manifest.MANIFEST} states that it was not run"
        elif f"{table}{_RECORD}" in listed:
            problem = f"is gone, though {manifest.MANIFEST} lists its record"
        else:
            problem = f"is not there, and {manifest.MANIFEST} does not state that it was not run"
        report.findings.append(Finding(os.path.relpath(folder / table, folder.parents[1]), problem))


def not_run_line(sweeps: Iterable[Sweep], missing: Collection[str]) -> str:
    """Return how many sweeps of the grid were not run, by paper; "" where all were. `missing`: paper/sweep."""
    papers = [sweep.paper for sweep in sweeps]
    counts = {paper: sum(name.startswith(f"{paper}/") for name in missing) for paper in dict.fromkeys(papers)}
    parts = ", ".join(f"{paper} {count} of {papers.count(paper)}" for paper, count in counts.items() if count)
    return f"{len(missing)} of {len(papers)} sweeps are not run: {parts}" if missing else ""


def _check_pages(report: Audit, folder: Path, own: Mapping[Path, dict[str, Any]], ended: bool) -> None:
    """Compare pages with the papers: no page that no paper lists; where a paper was made, all that it lists."""
    root = folder.parents[1]
    there = {place.relative_to(folder).as_posix().removesuffix(_RECORD) for place in own}
    known: set[str] = set()
    missing: list[str] = []
    for key in keys():
        wanted = [f"{kind}/{key}_{name}.csv" for kind in _PAGES for name in getattr(load(key), kind)]
        wanted.append(f"claims/{key}.csv")
        known |= set(wanted)
        if there & set(wanted):
            missing += [name for name in wanted if name not in there]
    for name in sorted(there - known):
        if name.split("/")[0] in (*_PAGES, "claims"):
            report.findings.append(
                Finding(os.path.relpath(folder / name, root), "is a page that no paper lists: delete it and its record")
            )
    if ended:
        problem = "is missing: its paper lists it, and other results of the paper are there"
        report.findings += [Finding(os.path.relpath(folder / name, root), problem) for name in missing]
    elif missing:
        report.notes.append(f"not made yet, so not checked: {len(missing)} pages of papers, as {missing[0]}")
