"""Trace a file, a cell or a point to its sources, and show the trace."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from rich.text import Text
from rich.tree import Tree

from dpfl.catalog import load
from dpfl.data import datasets
from dpfl.errors import InputError, printable
from dpfl.files import is_folder_inside, is_regular, parse_json, read_bytes, record_path, replacing
from dpfl.grid import configuration, expansion
from dpfl.provenance.record import is_before, read_record
from dpfl.reporting.comparison import METRICS
from dpfl.reporting.display_names import at_least, at_most
from dpfl.reporting.results import ORIGINS, table_text

# Find the runs behind a cell of a table or a point of a figure.

Row = dict[str, str]
_LABELS = ("paper", "job", "stand_in_for", "data_note", "experiment")
"""Columns of a run table that do not distinguish runs."""
_LONGEST_LIST = 12
_NO_STUDY = ("", "nan", "none")
NOISE = ("noise_multiplier", "noise_std", "scale")
"""Columns of a noise calibration with noise; the scale of a law is one in asoodeh2020."""
_NOISE_TOLERANCE = 1e-6
"""Relative difference of noise calibrated twice for a target: other versions and processors end a search elsewhere."""


def conditions(text: str) -> dict[str, str]:
    """Return the conditions of "column=value,column=value"; raises InputError for another text.

    A value may have commas, as in "split=(1, 20)": a condition begins where a name and an equals sign follow.
    """
    parts = [part.partition("=") for part in re.split(r",(?=[^,=]*=)", text)]
    if any(not (name.strip() and sign) or value.endswith(",") for name, sign, value in parts):
        raise InputError(f"--where {text!r} must be column=value, more of them separated by commas")
    named = {name.strip(): value.strip() for name, _, value in parts}
    if len(named) < len(parts):
        raise InputError(f"--where {text!r} gives a column twice; a row has one value of it")
    return named


def rows_where(path: Path, wanted: Mapping[str, str]) -> list[Row]:
    """Return the rows of the CSV at `path` that meet all conditions; numbers are compared as numbers.

    Raises InputError, naming what there is, for a column that the file does not have or a value that no row has.
    """
    rows = read_rows(path)
    columns = list(rows[0]) if rows else []
    for name, value in wanted.items():
        if name not in columns:
            raise InputError(f"{path} has no column {name}; it has {', '.join(columns)}")
        if not any(same(row[name], value) for row in rows):
            known = list(dict.fromkeys(row[name] for row in rows))
            more = f" and {len(known) - _LONGEST_LIST} more" if len(known) > _LONGEST_LIST else ""
            raise InputError(f"no row of {path} has {name}={value}; there are {', '.join(known[:_LONGEST_LIST])}{more}")
    kept = [row for row in rows if all(same(row[name], value) for name, value in wanted.items())]
    if not kept:
        asked = ", ".join(f"{name}={value}" for name, value in wanted.items())
        raise InputError(f"no row of {path} has {asked} together")
    return kept


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a CSV as text; raises InputError where the file is missing or no table."""
    try:
        rows = list(csv.DictReader(table_text(path), strict=True))
    except csv.Error as error:
        raise InputError(f"{path} is not a table: {' '.join(str(error).split())}") from None
    for number, row in enumerate(rows, 1):
        if None in row or None in row.values():  # what DictReader calls cells too many, and those that are missing
            raise InputError(f"{path} is not a table: row {number} has another number of cells than the first line")
    return rows


def trace_cells(path: Path, wanted: Mapping[str, str]) -> tuple[Node, list[Row]]:
    """Return the trace of the file at `path` with only the runs behind the rows that meet the conditions, and the rows.

    For a picture or a page, the CSV of the same name is used. Raises InputError as `rows_where` and `trace` do.
    """
    data = path if path.name.endswith(".csv.gz") else _csv_of(path)
    rows = rows_where(data, wanted)
    complete = trace(data)
    root, _ = project_of(data)
    tables = {node.path: read_rows(root / node.path) for node in complete.walk() if _is_run_table(node)}
    kept = _recorded(tables, rows) if is_recorded(rows) else _agreeing(tables, rows)
    tree = trace(data, without={name for name, runs in kept.items() if not runs})
    for node in tree.walk():
        node.runs = [] if node.repeated else kept.get(node.path, [])
    return tree, rows


def _csv_of(page: Path) -> Path:
    """Return the CSV beside a page, a picture, or the page on a table's privacy."""
    return page.with_name(f"{page.stem.removesuffix('.privacy')}.csv")


def is_recorded(rows: list[Row]) -> bool:
    """Return whether rows of a table or figure record the runs that they were made of."""
    return bool(rows) and ORIGINS in rows[0]


def _recorded(tables: Mapping[str, list[Row]], rows: list[Row]) -> dict[str, list[Row]]:
    """Return the runs of each run table, by its path, that the rows record."""
    wanted = {origin for row in rows for origin in row[ORIGINS].split()}
    jobs = {path: Path(path).name.partition(".")[0] for path in tables}
    return {
        path: [run for place, run in enumerate(runs) if f"{jobs[path]}:{place}" in wanted]
        for path, runs in tables.items()
    }


def _agreeing(tables: Mapping[str, list[Row]], rows: list[Row]) -> dict[str, list[Row]]:
    """Return the runs of each run table, by its path, that may be behind rows which do not record theirs."""
    behind = {id(run) for run in runs_behind([run for runs in tables.values() for run in runs], rows)}
    return {path: [run for run in runs if id(run) in behind] for path, runs in tables.items()}


def _is_run_table(node: Node) -> bool:
    """Return whether a node is a run table at its first place in the trace."""
    return node.record is not None and node.record["stage"] == "train" and not node.repeated


def runs_behind(runs: Iterable[Row], rows: list[Row]) -> list[Row]:
    """Return the runs that agree with one of the rows in every column that both have: more than those behind them,
    where the table was made of some of these alone.

    Compared are the columns that say what was run (those before a run table's `status`). Where a table's rows do not
    name a setting, the runs have the paper's own value of it, if there are any such: a study that varies it is not
    behind the table.
    """
    found = {id(run): run for run in runs for row in rows if _agrees(run, row)}.values()
    usual = [run for run in found if _is_usual(run, rows[0])] if rows else []
    once: dict[str, Row] = {}
    for run in usual or found:
        # The same run may be asked for by several entries of the grid.
        once.setdefault(json.dumps([value for name, value in run.items() if name not in ("job", "study")]), run)
    return list(once.values())


def same(first: str, second: str) -> bool:
    """Return whether two cells are the same text, the same number or the same truth value."""
    return first == second or value_of(first) == value_of(second)


def same_noise(first: str, second: str) -> bool:
    """Return whether two cells are the same noise: equal, or as near as two searches for one target end."""
    if same(first, second):
        return True
    one, other = number_in(first), number_in(second)
    return one is not None and other is not None and math.isclose(one, other, rel_tol=_NOISE_TOLERANCE, abs_tol=0.0)


def value_of(text: str) -> object:
    """Return the value of a cell whatever its spelling: a number, a truth value, or the text; nan is text."""
    number = number_in(text)
    if number is not None and number == number:
        return number
    return text.lower() if text.lower() in ("true", "false") else text


def run_key(run: Row) -> Row:
    """Return the columns of a run that say what was run."""
    names = list(run)
    known = names[: names.index("status")] if "status" in names else names
    return {name: run[name] for name in known if name not in _LABELS}


def number_in(text: str) -> float | None:
    """Return the number in a cell, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def _agrees(run: Row, row: Row) -> bool:
    """Return whether a run may be behind a row; a stand-in counts as the data set that it stands for."""
    for name, value in run_key(run).items():
        if name not in row or not row[name] or same(value, row[name]):
            continue
        if (number_in(value) is None) != (number_in(row[name]) is None):
            continue  # a rule, as 1/n^2, against the number that it gave
        if name != "dataset" or run.get("stand_in_for") != row[name]:
            return False
    return True


def _is_usual(run: Row, row: Row) -> bool:
    """Return whether a run has the paper's own settings, those apart that the row names itself, and is of no study."""
    settings: dict[str, Any] = load(run["paper"]).settings if run.get("paper") else {}
    if "study" not in row and run.get("study", "") not in _NO_STUDY:
        return False
    return all(
        name in row or name not in run or run[name] in ("", "nan") or same(run[name], str(value))
        for name, value in settings.items()
    )


# Follow the records from an output back to the raw data.

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
    `runs`: the rows of a run table that were asked for.
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
    """Return the configuration that results/<scale> were made with; raises InputError if there is none, or a link
    in its place."""
    path = folder / "config.yaml"
    if os.path.lexists(path) and not is_regular(path):
        raise InputError(f"{path} is not a regular file, so it was not read: a link may lead anywhere")
    return configuration.read(path)


def require_no_linked_folder(folder: Path) -> None:
    """Raise InputError for a link to a folder below results/<scale>, or in the place of its configuration.

    What reads results by their names, to show or to recompute them, asks first: it would read what the link leads to.
    """
    for place, folders, _ in os.walk(folder):
        if linked := next((name for name in sorted(folders) if Path(place, name).is_symlink()), None):
            raise InputError(f"{Path(place, linked)} is a link to a folder, which is not followed: delete it")
    if (folder / "config.yaml").is_symlink():
        raise InputError(
            f"{folder / 'config.yaml'} is not a regular file, so it was not read: a link may lead anywhere"
        )


def lineage(
    folder: Path, *, shipped: bool = False, data: Iterable[Path] = (), own: bool = False
) -> Iterator[tuple[Path, dict[str, Any] | InputError]]:
    """Yield every record below `folder` (results/<scale> of some project) and of the stages before, each once.

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
    names = sorted({job.dataset for job in expansion.expand(config)})
    kept = Path(config["data"]["folder"])
    return [] if kept.is_absolute() else [kept / kind / name for kind in DATA_KINDS for name in names]


def project_of(path: Path) -> tuple[Path, str]:
    """Return the folder in which the file's stage ran, wherever it was moved, and the file's path in it.

    Raises InputError if no record in its folder lists the file, or one lists a file in another folder.
    """
    place = path.absolute()
    record = writers(place.parent).get(place.name)
    if record is None:
        if not os.path.exists(path):
            near = get_close_matches(path.name, writers(place.parent))
            raise InputError(f"{path} is not there{f'; there is {near[0]}' if near else ''}")
        raise InputError(f"no record of how {path} was made: name a table, figure or run table, or claims/<paper>.csv")
    name = next(each["path"] for each in record["outputs"] if Path(each["path"]).name == place.name)
    depth = len(Path(name).parts)
    if place.parts[-depth:] != Path(name).parts:
        raise InputError(f"{path} is {name} to its record: put it back there, or delete both and run make again")
    return place.parents[depth - 1], name


def trace(path: Path, without: Collection[str] = ()) -> Node:
    """Return the tree of what the file at `path` was made from, back to the raw data; each stage occurs once.

    Files `without` are left out, with what only they were made from. Raises InputError if no record in its folder
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


# Show a trace: as a picture with a column a stage, as a tree of text, as data for JSON.
#
# Records and run tables are input from strangers: in tree and picture their texts are text alone, on one line.

_MOST_IN_A_COLUMN = 12
_WIDTH, _HEIGHT = 3.1, 0.55
_LARGEST_DESCRIPTION = 1 << 20  # bytes; those of the datasets have a few hundred
_DAMAGED = "privacy statement damaged: see dpfl audit"


def require_own(path: Path, option: str) -> None:
    """Raise InputError, naming the option, where the pipeline wrote the file at a path, or keeps a run's results, and
    where its folder is not there."""
    if not path.absolute().parent.is_dir():
        raise InputError(f"{option} {path}: there is no folder {path.parent}")
    for folder in path.absolute().parents:
        if folder.parent.name == "results" and (folder / "config.yaml").is_file():
            raise InputError(f"{option} {path} lies in the results of a run: write it elsewhere")
    if os.path.lexists(record_path(path)) or os.path.lexists(record_path(_csv_of(path))):
        raise InputError(f"{option} {path} is a file that the pipeline wrote: give another name")


def draw(top: Node, path: Path) -> None:
    """Draw the tree below `top` to `path`, .svg or .png.

    Raises InputError for another ending, for a folder that is not there, and for a file of the pipeline.
    """
    if path.suffix not in (".svg", ".png"):
        raise InputError(f"--picture {path} must end in .svg or .png")
    require_own(path, "--picture")
    from dpfl.reporting import style

    columns, edges = _layers(top)
    places = {
        name: (-depth * (_WIDTH + 0.9), (row - (len(names) - 1) / 2) * -(_HEIGHT + 0.25))
        for depth, names in columns.items()
        for row, name in enumerate(names)
    }
    with style.apply_style():
        tall = max(map(len, columns.values()))
        size = (len(columns) * (_WIDTH + 0.9), max(2.0, tall * (_HEIGHT + 0.25) + 0.6))
        figure, axes = style.panels(width=size[0], height=size[1])
        axes.set_axis_off()
        axes.grid(False)
        for start, end in sorted(edges):
            (x, y), (to_x, to_y) = places[start], places[end]
            axes.plot([x + _WIDTH, to_x], [y, to_y], color=style.BLACK, linewidth=0.6, linestyle="-", zorder=1)
        for name, (x, y) in places.items():
            box = {"boxstyle": "round,pad=0.35", "facecolor": "#f2f6fa", "edgecolor": style.BLUE, "linewidth": 0.8}
            place = {"ha": "center", "va": "center", "fontsize": 6, "bbox": box, "zorder": 2}
            axes.text(x + _WIDTH / 2, y, name, parse_math=False, **place)
        axes.set_xlim(min(x for x, _ in places.values()) - 0.3, _WIDTH + 0.3)
        with replacing(path) as temporary:
            style.save(figure, temporary, path.suffix[1:])


def _layers(top: Node) -> tuple[dict[int, list[str]], set[tuple[str, str]]]:
    """Return the labels of each column, by distance from the file asked for, and the edges between labels."""
    depth: dict[str, int] = {}
    labels: dict[str, str] = {}
    pairs: set[tuple[str, str]] = set()

    def visit(node: Node, level: int) -> None:
        depth[node.path] = max(level, depth.get(node.path, 0))
        labels[node.path] = _label(node)
        for child in node.made_from:
            pairs.add((child.path, node.path))
            visit(child, level + 1)

    visit(top, 0)
    # A stage is left of everything that was made from it, also where the trace names it only as "see above".
    for _ in depth:
        for child, parent in pairs:
            depth[child] = max(depth[child], depth[parent] + 1)
    columns: dict[int, list[str]] = {}
    for path, level in depth.items():
        columns.setdefault(level, []).append(path)
    for level, paths in columns.items():
        if len(paths) > _MOST_IN_A_COLUMN:
            rest = paths[_MOST_IN_A_COLUMN - 1 :]
            labels |= dict.fromkeys(rest, f"and {len(rest)} more files,\n{level} stage{'s' * (level != 1)} back")
        columns[level] = list(dict.fromkeys(labels[path] for path in paths))
    return columns, {(labels[child], labels[parent]) for child, parent in pairs}


def _label(node: Node) -> str:
    """Return the text of a node's box."""
    parts = Path(node.path).parts
    name = "/".join(parts[-2:]) + (f" + {len(node.others)}" if node.others else "")
    stage = node.record["stage"] if node.record else "no record here"
    runs = f", {len(node.runs)} runs" if node.runs else ""
    return f"{printable(name)}\n{printable(f'{stage}{runs}, sha256 {node.sha256[:8]}')}"


_METRICS = (*METRICS, "train_loss")


def tree(node: Node, root: Path, rows: list[Row]) -> Tree:
    """Return the tree of a trace; `rows` are the rows that were asked for, none for the complete file."""
    top = Tree(_title(node, root))
    for row in rows:
        cells = ", ".join(f"{name} = {value}" for name, value in row.items() if name != ORIGINS)
        top.add(_text("row", "bold").append_text(_text(f" {cells}")))
    if rows:
        top.add(_text(runs_sentence(node, rows), "dim"))
    _grow(top, node, root)
    return top


def runs_sentence(node: Node, rows: list[Row]) -> str:
    """Say how many runs are shown for the rows that were asked for, and whether these are known to be theirs."""
    count = sum(len(each.runs) for each in node.walk())
    runs = f"{count} run{'s' * (count != 1)}"
    if is_recorded(rows):
        return f"made of {runs}, as the file records" if count else "made of no run, as the file records"
    if not count:
        return "no run agrees with it: it was computed from settings or accounting"
    return f"{runs} that agree with it in what both name; the file does not record which of them it was made of"


def as_json(node: Node, root: Path) -> dict[str, Any]:
    """Return a node and all below it as data for JSON."""
    facts: dict[str, Any] = {"path": node.path, "sha256": node.sha256}
    if node.others:
        facts["also_read"] = [{name: each[name] for name in ("path", "sha256")} for each in node.others]
    if licence := licence_of(node, root):
        facts["licence"] = licence
    if node.record is not None:
        facts |= {name: node.record[name] for name in ("stage", "started", "seconds", "settings", "seeds")}
        facts |= {name: node.record[name] for name in ("source", "software", "host")}
    if node.runs:
        facts["runs"] = [{**run, "statement": statement(run)} for run in node.runs]
    if node.repeated:
        return {**facts, "shown_above": True}
    if warnings := [words for child in node.made_from if (words := age_warning(node, child))]:
        facts["warnings"] = warnings
    return {**facts, "made_from": [as_json(child, root) for child in node.made_from]}


def statement(run: Row) -> str:
    """Return the privacy statement of a run as one line; of a row without its numbers, that it is damaged."""
    stated = {name.removeprefix("privacy_"): value for name, value in run.items() if name.startswith("privacy_")}
    try:
        return _statement(stated) if stated else "no privacy guarantee"
    except (KeyError, ValueError, TypeError, ArithmeticError):
        return _DAMAGED


def _statement(stated: Row) -> str:
    """Return the statement of a run from its columns; raises where one is missing or is none."""
    if float(stated["noise_multiplier"]) == 0:
        return "no privacy guarantee"
    proven, refuted = float(stated["epsilon_proven"]), float(stated["epsilon_refuted"])
    bounds = f"{f'ε <= {at_most(proven)}' if math.isfinite(proven) else 'no ε'} proven by {stated['proven_by']}"
    if refuted > 0:
        bounds += f", ε >= {at_least(refuted)} by {stated['refuted_by']}"
    return (
        f"{bounds}, at δ = {float(stated['delta']):.3g}; "
        f"{parse_json(stated['mechanism'])['kind']}, {stated['sampling']}, "
        f"{stated['neighbouring']}, {stated['observer']}; n = {stated['records']}, "
        f"q = {float(stated['sample_rate']):.4g}, C = {stated['clip_norm']}, "
        f"σ = {float(stated['noise_multiplier']):.5g}, {stated['steps']} steps; {stated['note']}"
    )


def licence_of(node: Node, root: Path) -> str:
    """Return under which licence data of a node are, as far as it is known; nothing for other files.

    Where the description of the data is damaged or no regular file, the text says so.
    """
    if node.licence:
        return node.licence
    parts = Path(node.path).parts
    kind = next((place for place, part in enumerate(parts) if part in DATA_KINDS), None)
    if kind is None or len(parts) < kind + 2:
        return ""
    description = Path(*parts[:kind], "arrays", parts[kind + 1], "description.json")
    if os.path.lexists(root / description) and is_folder_inside((root / description).parent, root):
        return _described_licence(root / description) or f"not known: {description} is damaged"
    try:
        return datasets.load(parts[kind + 1]).licence
    except InputError:
        return ""


def _described_licence(description: Path) -> str:
    """Return the licence that a description of data states; "" where it is damaged."""
    try:
        licence = parse_json(read_bytes(description, _LARGEST_DESCRIPTION))["licence"]
    except (ValueError, KeyError, TypeError):
        return ""
    return printable(licence) if isinstance(licence, str) else ""


def _grow(branch: Tree, node: Node, root: Path) -> None:
    """Hang what a node was made from below its branch."""
    shared: set[str] = set()
    for run in node.runs:
        line = statement(run)
        branch.add(_run(run, "" if line in shared else line))
        shared.add(line)
    for child in (each for each in node.made_from if not each.repeated):
        _grow(branch.add(_title(child, root).append_text(_warning(node, child))), child, root)
    again = [child for child in node.made_from if child.repeated]
    if again:
        names = ", ".join(child.path for child in again)
        line = _text(f"see above: {names}", "dim")
        branch.add(Text().join([line, *(_warning(node, child) for child in again)]))


def _text(recorded: str, style: str = "") -> Text:
    """Return a recorded text to be shown as it is: no markup, control characters escaped, one line."""
    return Text().append(printable(recorded), style)


def _title(node: Node, root: Path) -> Text:
    """Return one line on a node: file, SHA-256 (all of a raw file's), stage, time, commit, device, licence."""
    more = f" and {len(node.others)} more" if node.others else ""
    name = _text(node.path, "bold").append_text(Text(more))
    licence = licence_of(node, root)
    stated = [f"licence: {licence}"] if licence else []
    if node.record is None:
        facts = "; ".join([f"sha256 {node.sha256[:12]}", "no record here", *stated])
        return name.append_text(_text(f"  ({facts})"))
    source, host = node.record["source"], node.record["host"]
    commit = (source.get("commit") or "no commit")[:10] + (" with changes" if source.get("dirty") else "")
    work = [node.record["stage"], f"{node.record['seconds']:.1f} s", f"{host['device']} x {host['threads']}"]
    digest = f"sha256 {node.sha256 if not node.made_from else node.sha256[:12]}"
    return name.append_text(_text(f"  ({'; '.join([digest, *work, commit, *stated])})"))


def _warning(node: Node, child: Node) -> Text:
    """Return a line where a stage cannot have read what is there now: it was made since, or has other bytes."""
    words = age_warning(node, child)
    return Text("\n").append_text(_text(words, "red")) if words else Text()


def age_warning(node: Node, child: Node) -> str:
    """Return that a source is younger than what was made from it, or was made again to other bytes; else nothing."""
    if node.record is None or child.record is None:
        return ""
    stated = {each["path"]: each["sha256"] for each in child.record["outputs"]}
    if stated.get(child.path, child.sha256) != child.sha256:
        is_noise = Path(child.path).parent.name == "accounting"
        kept = "; each run table has the noise that it used" if is_noise else ""
        return f"{child.path} was made again since: the bytes that were read are gone{kept}"
    if is_before(node.record, child.record):
        return f"{child.path} is younger than {node.path}, which was made from it"
    return ""


def _run(run: Row, line: str) -> Text:
    """Return one line on a run: its cell, result and noise; then its statement, if that is not above."""
    known = run_key(run)
    named = [name for name in ("model", "algorithm", "epsilon", "local_epochs", "clients") if name in known]
    cell = ", ".join(f"{name} {known[name]}" for name in named)
    metric = next((name for name in _METRICS if name in run), None)
    result = f"{metric} {run[metric]}, " if metric else ""
    head = f"seed {run.get('seed', '?')}: {result}noise multiplier {run.get('noise_multiplier', 'none')}  ({cell})"
    return _text(head).append_text(Text("\n").append_text(_text(line, "dim")) if line else Text())
