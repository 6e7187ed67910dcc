"""Follow the records from an output back to the raw data."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from dpfl.errors import InputError
from dpfl.files import is_folder_inside, is_regular
from dpfl.grid import configuration, expansion
from dpfl.provenance.record_format import read_record

CLOCKS = timedelta(seconds=60)
"""By how much the clocks of two machines of a run may differ."""
SOURCES = "sources"
"""Folder below results/<scale> with copies of the records of the data (dpfl.provenance.manifest)."""

_DEEPEST = 100
DATA_KINDS = ("raw", "arrays", "features")
"""Folders of data: a dataset's files are in <data>/<kind>/<dataset>."""


@dataclass
class Node:
    """A stage that ran, or files without a record here, and what it was made from.

    `path`: its first output that the stage above read, relative to the project. `others`: further files of it that the
    stage above read, each with path and sha256. `repeated`: the node occurs earlier in the tree, with its sources.
    `runs`: the rows of a run table that were asked for (dpfl.provenance.cell_trace).
    """

    path: str
    sha256: str
    record: dict[str, Any] | None
    others: tuple[dict[str, Any], ...] = ()
    repeated: bool = False
    licence: str = ""
    runs: list[dict[str, str]] = field(default_factory=list)
    made_from: list[Node] = field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below it, depth first."""
        yield self
        for node in self.made_from:
            yield from node.walk()


def scale_folder(folder: Path) -> Path:
    """Return the absolute path of results/<scale> of some project, however it was spelled.

    Raises InputError for every other folder: what stands in records is relative to the project.
    """
    place = Path(os.path.abspath(folder))
    if place.parent.name != "results":
        raise InputError(f"{folder} is not a scale's results: name results/<scale>, as results/demo")
    return place


def configuration_of(folder: Path) -> dict[str, Any]:
    """Return the configuration that results/<scale> were made with; raises InputError where there is none, or a link
    in its place."""
    path = folder / "config.yaml"
    if os.path.lexists(path) and not is_regular(path):
        raise InputError(f"{path} is no regular file, so it was not read: a link may lead anywhere")
    return configuration.read(path)


def require_no_linked_folder(folder: Path) -> None:
    """Raise InputError for a link to a folder below results/<scale>, or in the place of its configuration.

    What reads results by their names, to show or to recompute them, asks first: it would read what the link leads to.
    """
    for place, folders, _ in os.walk(folder):
        if linked := next((name for name in sorted(folders) if Path(place, name).is_symlink()), None):
            raise InputError(f"{Path(place, linked)} is a link to a folder, which is not followed: delete it")
    if (folder / "config.yaml").is_symlink():
        raise InputError(f"{folder / 'config.yaml'} is no regular file, so it was not read: a link may lead anywhere")


def lineage(
    folder: Path, *, shipped: bool = False, data: Iterable[Path] = (), own: bool = False
) -> Iterator[tuple[Path, dict[str, Any] | InputError]]:
    """Yield every record below `folder` (results/<scale> of some project) and those of the stages before, each once.

    `data`: further folders of the project whose records belong, though no result may have read from them yet.
    Where a stage before has no record here, the copy below <folder>/sources is read; its path is that of the original.
    With `shipped` the copy comes first: the answer is the same with or without data.
    A folder behind a link that leads out of the project is not opened, unless the project is the caller's `own`, whose
    data may lie on another disk. An InputError takes the place of a record that cannot be read. Raises InputError where
    there is no record.
    """
    place = scale_folder(folder)
    root, copies = place.parents[1], place / SOURCES
    waiting = [path for path in sorted(place.rglob("*.record.json")) if not path.is_relative_to(copies)]
    if not waiting:
        raise InputError(f"no record below {folder}: nothing is known of it; name results/<scale>")
    roots = () if own else (root, scale_folder(folder))
    waiting += [place for each in data for place in _records_in(each, root, copies, roots)]
    seen: set[Path] = set()
    while waiting:
        place = waiting.pop()
        if place not in seen:
            seen.add(place)
            try:
                record = read_record(_original_or_copy(place, root, copies, shipped, roots))
            except InputError as error:
                yield place, error
                continue
            yield place, record
            for source in sorted({Path(entry["path"]).parent for entry in record["inputs"]}):
                waiting += _records_in(source, root, copies, roots)


def _records_in(source: Path, root: Path, copies: Path, roots: tuple[Path, ...]) -> list[Path]:
    """Return where the records of a folder of the project belong, those included of which there are copies alone.

    `roots`: folders that nothing outside of is opened; none for no such limit.
    """
    places = [place / source for place in (root, copies)]
    here = [place for place in places if not roots or is_folder_inside(place, *roots)]
    names = {each.name for place in here for each in place.glob("*.record.json")}
    return [root / source / name for name in sorted(names)]


def _original_or_copy(place: Path, root: Path, copies: Path, shipped: bool, roots: tuple[Path, ...]) -> Path:
    """Return the path to read a record from: its own, else that of its copy; with `shipped` the other way round."""
    copy = copies / place.relative_to(root)
    is_here = os.path.lexists(place) and (not roots or is_folder_inside(place.parent, *roots))
    return copy if os.path.lexists(copy) and (shipped or not is_here) else place


def readable_records(folder: Path, data: Iterable[Path] = ()) -> dict[Path, dict[str, Any]]:
    """Return every record of `lineage(folder, data=data)` that can be read, by its path."""
    return {place: record for place, record in lineage(folder, data=data) if not isinstance(record, InputError)}


def data_folders(folder: Path) -> list[Path]:
    """Return the folders below the project that the configuration of results/<scale> has data in; [] without one."""
    try:
        config = configuration_of(folder)
    except InputError:
        return []
    names = sorted({sweep.dataset for sweep in expansion.expand(config)})
    kept = Path(config["data"]["folder"])
    return [] if kept.is_absolute() else [kept / kind / name for kind in DATA_KINDS for name in names]


def project_of(path: Path) -> tuple[Path, str]:
    """Return the folder in which the file's stage ran, wherever it was moved, and the file's path in it.

    Raises InputError where no record in its folder lists the file, or one lists a file in another folder.
    """
    place = path.absolute()
    record = writers(place.parent).get(place.name)
    if record is None:
        raise InputError(f"no record of how {path} was made: name a file below results/ or data/")
    name = next(each["path"] for each in record["outputs"] if Path(each["path"]).name == place.name)
    depth = len(Path(name).parts)
    if place.parts[-depth:] != Path(name).parts:
        raise InputError(f"{path} is {name} to its record: put it back there, or delete both and run make again")
    return place.parents[depth - 1], name


def trace(path: Path, without: Collection[str] = ()) -> Node:
    """Return the tree of what the file at `path` was made from, back to the raw data; each stage occurs once.

    Files `without` are left out, with what only they were made from. Raises InputError where no record in its folder
    lists the file, and for a chain of stages that is longer than any pipeline's.
    """
    root, name = project_of(path)
    record = writers(root / Path(name).parent)[Path(name).name]
    entries = [entry for entry in record["outputs"] if entry["path"] == name]
    parts = Path(name).parts
    results = root.joinpath(*parts[:2]) if parts[0] == "results" else root / parts[0]
    return _node(_Project(root, results, results / SOURCES, without), entries, record, set())


@dataclass(frozen=True)
class _Project:
    """The folder in which stages ran, the results or data that are traced, where the copies of data records are, and
    the files to leave out."""

    root: Path
    results: Path
    copies: Path
    without: Collection[str]

    def maker(self, path: Path) -> dict[str, Any] | None:
        """Return the record of the stage that wrote a file, or its copy; nothing outside the project is opened."""
        places = [place / path.parent for place in (self.root, self.copies)]
        here = (place for place in places if is_folder_inside(place, self.root, self.results))
        return next((found for place in here if (found := writers(place).get(path.name))), None)


def _node(
    project: _Project, entries: Sequence[dict[str, Any]], record: dict[str, Any] | None, above: set[str], depth: int = 0
) -> Node:
    """Return the node of a stage, of whose outputs `entries` were read; `above` are the stages shown already."""
    first = entries[0]
    if depth > _DEEPEST:
        raise InputError(f"{first['path']} comes before more than {_DEEPEST} stages, one after the other: dpfl has ten")
    node = Node(first["path"], first["sha256"], record, others=tuple(entries[1:]))
    if record is None:
        return node
    key = record["outputs"][0]["path"]
    node.licence = str(record["settings"].get("licence", ""))
    node.repeated = key in above
    if node.repeated:
        return node
    above.add(key)
    groups: dict[str, list[dict[str, Any]]] = {}
    makers: dict[str, dict[str, Any] | None] = {}
    for entry in (each for each in record["inputs"] if each["path"] not in project.without):
        maker = project.maker(Path(entry["path"]))
        group = maker["outputs"][0]["path"] if maker else os.path.dirname(entry["path"])
        groups.setdefault(group, []).append(entry)
        makers[group] = maker
    node.made_from = [_node(project, files, makers[group], above, depth + 1) for group, files in groups.items()]
    return node


@cache
def writers(folder: Path) -> dict[str, dict[str, Any]]:
    """Return, by file name, the records of the stages that wrote the files of a folder."""
    found = {}
    for place in sorted(folder.glob("*.record.json")):
        record = read_record(place)
        for output in record["outputs"]:
            found.setdefault(Path(output["path"]).name, record)
    return found
