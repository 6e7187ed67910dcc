"""Compare a record's own words with the grid, the papers, its siblings and the stages before it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dpfl.data import datasets
from dpfl.experiments.protocol import module_name
from dpfl.grid.expansion import run_table
from dpfl.grid.sweep import Sweep
from dpfl.provenance.audit.findings import Audit, Finding
from dpfl.provenance.trace import CLOCKS

Record = dict[str, Any]
_AHEAD = timedelta(days=1)
_PAGES = ("tables", "figures", "claims")


@dataclass(frozen=True)
class Context:
    """A scale's results: their records by the path of every output, the grid, and the data folder."""

    scale: str
    records: Mapping[str, Record]
    sweeps: Mapping[str, Sweep]
    data: str

    @classmethod
    def of(cls, scale: str, records: Iterable[Record], sweeps: Iterable[Sweep], data: str) -> Context:
        """Return the context of a scale; a run table's sweep is found by the table's path."""
        by_path = {each["path"]: record for record in records for each in record["outputs"]}
        tables = {run_table(Path("results", scale), sweep.paper, sweep.name).as_posix(): sweep for sweep in sweeps}
        return cls(scale, by_path, tables, data)


def check_records(report: Audit, context: Context) -> None:
    """Add what the records say of themselves and what grid, papers, siblings or times contradict.

    A page that is older than a run table of its paper is a note, as are stages whose data or noise were made again, to
    the same bytes, after them; and run tables of sweeps that the configuration does not ask for.
    """
    stated = _hashes_of_sources(context)
    older, unasked = [], []
    unique = {record["outputs"][0]["path"]: record for record in context.records.values()}
    for path, record in unique.items():
        problems = [*_own_words(path, record, context), *_platform(record), *_times(record, context)]
        problems += _raw_file(path, record)
        problems += [f"read another {name} than its siblings" for name in _unlike_siblings(record, stated)]
        for name, is_older in _unread(path, record, context):
            if is_older:
                older.append(path)
            else:
                problems.append(f"was made without {name}, which was there")
        report.findings += [Finding(path, f"has a record that is not true: {each}") for each in problems]
        report.count("records compared with grid and papers")
        if path.startswith(f"results/{context.scale}/runs/") and path not in context.sweeps:
            unasked.append(path)
    if older:
        report.notes.append(f"older than a run table of their paper: {len(set(older))} pages, as {older[0]}")
    if unasked:
        report.notes.append(
            f"not of the configuration's grid, so not checked: {len(unasked)} run tables, as {unasked[0]}"
        )
    _note_made_again(report, unique, context)


def _own_words(path: str, record: Record, context: Context) -> Iterator[str]:
    """Yield what stage, settings, seeds and modules should be, where they are not."""
    wanted = expected(path, context)
    found = {name: record[name] for name in ("stage", "settings", "seeds")} | {"modules": record["source"]["modules"]}
    for name, value in wanted.items():
        if found[name] != value:
            yield f"{name} {_short(found[name], value)}, not {_short(value, found[name])}"
    identity = record.get("identity")
    named = context.sweeps.get(path)
    if named and isinstance(identity, dict) and identity.get("sweep") != named.digest():
        yield f"identity {_short(identity, {})}, of another sweep than it is named after"


def expected(path: str, context: Context) -> dict[str, Any]:
    """Return what the record of a result must say: stage, settings, seeds and modules, as far as its path decides."""
    parts = Path(path).parts
    if parts[:2] != ("results", context.scale) or len(parts) < 4:
        return {}
    kind, name = parts[2], Path(path).name.partition(".")[0]
    if path in context.sweeps:
        sweep = context.sweeps[path]
        return {
            "stage": "train", "settings": json.loads(json.dumps(sweep.settings)), "seeds": list(sweep.seeds),
            "modules": [module_name(sweep.experiment)],
        }  # fmt: skip
    if kind == "accounting":
        return {"stage": "account", "settings": {"paper": name, "scale": context.scale}, "seeds": []}
    if kind not in _PAGES:
        return {}
    paper, _, page = name.partition("_")
    settings = {"paper": paper} if kind == "claims" else {"paper": paper, "name": page}
    modules = [f"dpfl.papers.{paper}.{kind}", f"dpfl.reporting.{kind}"]
    return {"stage": kind, "settings": settings, "seeds": [], "modules": modules}


def _platform(record: Record) -> Iterator[str]:
    """Yield what cannot be true of device, threads and time."""
    device, torch = record["host"]["device"], record["software"]["torch"]
    if device not in ("cpu", "cuda") or record["host"]["threads"] < 1:
        yield f"device {device} with {record['host']['threads']} threads"
    if device == "cuda" and torch.endswith("+cpu"):
        yield f"device cuda with torch {torch}, which has no CUDA"
    if _started(record) > datetime.now(UTC) + _AHEAD:
        yield f"it began at {record['started']}, which is still to come"


def _times(record: Record, context: Context) -> Iterator[str]:
    """Yield the results that a page read before the stage that wrote them had ended."""
    for entry in record["inputs"]:
        maker = context.records.get(entry["path"])
        if record["stage"] in _PAGES and maker and _states(maker, entry) and _is_before(record, maker):
            yield f"it began at {record['started']}, before {entry['path']} was written"


def _raw_file(path: str, record: Record) -> Iterator[str]:
    """Yield that a raw file has another hash than the dataset's entry."""
    place = Path(path)
    if place.parent.parent.name != "raw" or place.parent.name not in datasets.names():
        return
    known = {each.sha256 for each in datasets.load(place.parent.name).files}
    if record["outputs"][0]["sha256"] not in known:
        yield f"sha256 {record['outputs'][0]['sha256']}, which no published file of {place.parent.name} has"


def _unread(path: str, record: Record, context: Context) -> Iterator[tuple[str, bool]]:
    """Yield the files that a stage must have read and did not, and whether the stage ended before they were there."""
    read = {entry["path"] for entry in record["inputs"]}
    for name in sorted(_needed(path, context) - read):
        maker = context.records[name]
        yield name, record["stage"] in _PAGES and _is_before(record, maker)


def _needed(path: str, context: Context) -> set[str]:
    """Return the files with a record that a stage reads: data and noise of a run, run tables or pages of a paper."""
    results, wanted = f"results/{context.scale}", expected(path, context)
    if path in context.sweeps:
        sweep = context.sweeps[path]
        kinds = ("arrays", "features") if sweep.needs_features else ("arrays",)
        folders = tuple(f"{context.data}/{kind}/{sweep.dataset}/" for kind in kinds)
        noise = f"{results}/accounting/{sweep.paper}.csv"
        return {name for name in context.records if name.startswith(folders) or name == noise}
    paper = wanted.get("settings", {}).get("paper")
    if wanted.get("stage") in ("tables", "figures"):
        return {name for name, sweep in context.sweeps.items() if sweep.paper == paper and name in context.records}
    if wanted.get("stage") == "claims":
        pages = tuple(f"{results}/{kind}/{paper}_" for kind in ("tables", "figures"))
        return {name for name in context.records if name.startswith(pages) and name.endswith(".csv")}
    return set()


def _hashes_of_sources(context: Context) -> dict[str, dict[str, int]]:
    """Return how many stages read which bytes of every file that no record here describes."""
    stated: dict[str, dict[str, int]] = {}
    for record in context.records.values():
        for entry in record["inputs"]:
            if entry["path"] not in context.records:
                counts = stated.setdefault(entry["path"], {})
                counts[entry["sha256"]] = counts.get(entry["sha256"], 0) + 1
    return stated


def _unlike_siblings(record: Record, stated: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yield the files that most other stages read in another state."""
    for entry in record["inputs"]:
        counts = stated.get(entry["path"], {})
        if len(counts) > 1 and counts[entry["sha256"]] < max(counts.values()):
            yield entry["path"]


def _note_made_again(report: Audit, unique: Mapping[str, Record], context: Context) -> None:
    """Note the run tables whose noise was calibrated anew since, or whose data are younger than they are."""
    superseded, younger = [], []
    for path in context.sweeps.keys() & unique.keys():
        makers = [(context.records.get(entry["path"]), entry) for entry in unique[path]["inputs"]]
        known = [(maker, entry) for maker, entry in makers if maker]
        if any("/accounting/" in entry["path"] and not _states(maker, entry) for maker, entry in known):
            superseded.append(path)
        if any(_states(maker, entry) and _is_before(unique[path], maker) for maker, entry in known):
            younger.append(path)
    if superseded:
        count = f"{len(superseded)} run tables"
        report.notes.append(f"noise calibrated anew since, so the bytes that were read are gone: {count}")
    if younger:
        report.notes.append(f"data or noise made again since, to the same bytes: {len(younger)} run tables")


def _states(maker: Record, entry: Mapping[str, Any]) -> bool:
    """Return whether a record lists a file with the hash that a later stage read."""
    return any((each["path"], each["sha256"]) == (entry["path"], entry["sha256"]) for each in maker["outputs"])


def _is_before(record: Record, maker: Record) -> bool:
    """Return whether a stage began before another had ended."""
    return _started(record) + CLOCKS < _started(maker) + timedelta(seconds=maker["seconds"])


def _started(record: Record) -> datetime:
    """Return when a stage began."""
    return datetime.fromisoformat(record["started"])


def _short(value: Any, other: Any) -> str:
    """Return a value for a message; of two mappings, what differs."""
    if isinstance(value, dict) and isinstance(other, dict):
        value = {name: each for name, each in value.items() if name not in other or other[name] != each}
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
