"""Show a trace: as a picture with a column a stage, as a tree of text, as data for JSON.

Records and run tables are input from strangers: in tree and picture their texts are text alone, on one line.
"""

from __future__ import annotations

import math
import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from rich.text import Text
from rich.tree import Tree

from dpfl.data import datasets
from dpfl.errors import InputError, printable
from dpfl.files import is_folder_inside, parse_json, read_bytes, record_path, replacing
from dpfl.provenance.cell_trace import Row, is_recorded, run_key
from dpfl.provenance.trace import CLOCKS, DATA_KINDS, Node
from dpfl.reporting.bounds import at_least, at_most
from dpfl.reporting.results import ORIGINS

_MOST_IN_A_COLUMN = 12
_WIDTH, _HEIGHT = 3.1, 0.55
_LARGEST_DESCRIPTION = 1 << 20  # bytes; those of the datasets have a few hundred
_DAMAGED = "privacy statement damaged: see dpfl audit"


def draw(top: Node, path: Path) -> None:
    """Draw the tree below `top` to `path`, .svg or .png.

    Raises InputError for another ending, for a folder that is not there, and for a file of the pipeline.
    """
    if path.suffix not in (".svg", ".png"):
        raise InputError(f"--picture {path} must end in .svg or .png")
    if not path.parent.is_dir():
        raise InputError(f"--picture {path}: there is no folder {path.parent}")
    if os.path.lexists(record_path(path)) or os.path.lexists(record_path(path.with_suffix(".csv"))):
        raise InputError(f"--picture {path} is a file that the pipeline wrote: give another name")
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


_METRICS = ("accuracy_pct", "test_loss", "test_error_pct", "excess_loss", "train_loss")


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
    """Return under which licence data of a node are, as far as it is known; nothing for what is no data.

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
        return f"{child.path} was made again since: the bytes that were read are gone"
    ended = datetime.fromisoformat(child.record["started"]) + timedelta(seconds=child.record["seconds"])
    if ended > datetime.fromisoformat(node.record["started"]) + CLOCKS:
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
