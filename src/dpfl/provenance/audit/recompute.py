"""Recompute tables, figures and verdicts from the run tables, and compare them with the files."""

from __future__ import annotations

import math
import shutil
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt

from dpfl.catalog import keys, recipe
from dpfl.files import LONGEST_PAGE, file_sha256, has_bytes, is_inside, record_path
from dpfl.provenance.audit.findings import Audit, Finding
from dpfl.provenance.record import published_digest
from dpfl.reporting import claims, display_names, figures, tables
from dpfl.reporting.pages import DERIVED
from dpfl.reporting.results import Results, compute_or_placeholder, read_csv, write_csv

if TYPE_CHECKING:
    import pandas as pd

STAGES = ("tables", "figures", "claims")
TOLERANCE = 1e-6
"""Largest relative difference of a number: machines round differently."""
SMALL = 1e-3
"""Below it a difference counts as one of this number: what is left of larger ones that nearly cancel has no digits."""
PICTURE_TOLERANCE = 0.02
"""Mean difference of two pictures' pixels, of 1, where another version of matplotlib drew one of them."""
_DRAWER = "matplotlib"
_DRAWN = (".svg", ".pdf", ".png")


def recompute(root: Path, record: dict[str, Any], pictures: bool = True) -> Audit:
    """Recompute one table, figure or paper's verdicts; return the findings.

    `root`: the folder in which the stage ran. Numbers must agree within `TOLERANCE`; pages and `pictures` in every byte
    where the data do and the versions are the same.
    """
    report = Audit()
    paper, path = record["settings"].get("paper"), root / record["outputs"][0]["path"]
    if paper not in keys():
        _add(report, root, path, f"has a record that names no paper but {paper!r}", record)
        return report
    if not all(is_inside(root / name, root, path.parents[1]) for name in _needed(root, path, record)):
        return report  # the audit of files reports that
    other_facts = record["source"].get("published", published_digest(paper)) != published_digest(paper)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            _compare_all(report, root, path, _again(root, record, Path(scratch), pictures), record)
    except (MemoryError, ImportError):
        raise
    except Exception as error:  # a tampered record, run table or output may break a stage anywhere
        problem = f"cannot be made again from what its record names: {' '.join(repr(error).split())}"
        _add(report, root, path, problem, record)
    is_compared = pictures or record["stage"] != "figures"
    if other_facts and is_compared and not report.findings:
        # A claim's words, say, which no table shows; what shows is compared above with what today's files give.
        report.notes.append(f"{path.relative_to(root)} was made from other YAML files of {paper}, and shows the same")
    elif other_facts:
        _add(report, root, path, f"was made from other YAML files of {paper} than those there now", record)
    return report


def _needed(root: Path, path: Path, record: dict[str, Any]) -> list[str]:
    """Return the files without which a stage cannot be recomputed: its outputs, and what it read of its own scale.

    No such stage reads anything else. An input elsewhere that is not there excuses nothing.
    """
    scale = f"{path.parents[1].relative_to(root).as_posix()}/"
    written = [each["path"] for each in record["outputs"] if Path(each["path"]).suffix not in DERIVED]
    return written + [each["path"] for each in record["inputs"] if each["path"].startswith(scale)]


def _compare_all(report: Audit, root: Path, path: Path, made: list[Path], record: dict[str, Any]) -> None:
    """Compare the recomputed files with the recorded ones: the data first, then the pages with what the data show.

    Where numbers differ in last digits, by another machine, pages are made again from the data that are there.
    """
    report.count("tables, figures and verdicts")
    data = [(again, path.with_name(again.name)) for again in made if again.suffix == ".csv"]
    for again, there in data:
        if problem := difference(read_csv(again), read_csv(there)):
            where = "" if there == path else f"{there.name}: "
            _add(report, root, path, f"differs from what its runs give: {where}{problem}", record)
            return
    if not all(_is_copy(there, again) for again, there in data):
        report.notes.append(f"{path.relative_to(root)} differs in last digits: its pages are compared with it")
        made = _shown_again(data, made, record)
    pages = {again.name: again for again in made if again.suffix != ".csv"}
    for there in (root / output["path"] for output in record["outputs"]):
        # A page of a kind that is no longer made has its hash alone; a derived page need not be there.
        if there.name in pages and is_inside(there, root, path.parents[1]):
            _compare(report, root, there, pages[there.name], record)


def _shown_again(data: list[tuple[Path, Path]], made: list[Path], record: dict[str, Any]) -> list[Path]:
    """Return the recomputed files, their pages made from the data that are there."""
    for again, there in data:
        shutil.copyfile(there, again)
    paper, name, csv = record["settings"]["paper"], record["settings"].get("name"), data[0][0]
    suffixes = {page.suffix for page in made}
    if record["stage"] == "claims":
        return [claims.write_page(paper, csv)]
    if record["stage"] == "tables":
        return tables.write_pages(paper, name, csv, suffixes)
    return figures.write_pictures(paper, name, csv, suffixes) if suffixes & set(_DRAWN) else made


def _again(root: Path, record: dict[str, Any], scratch: Path, pictures: bool) -> list[Path]:
    """Return the files of the stage, recomputed below `scratch`, the CSV first."""
    paper, name = record["settings"]["paper"], record["settings"].get("name")
    runs = tuple(root / entry["path"] for entry in _run_tables(record))
    results = Results(root / Path(record["outputs"][0]["path"]).parents[1], {paper: runs})
    if record["stage"] == "claims":
        return claims.write(paper, claims.evaluate(paper, results), scratch)
    if record["stage"] == "tables":
        return tables.make(paper, name, results, scratch)
    return figures.make(paper, name, results, scratch) if pictures else _undrawn(paper, name, results, scratch)


def _run_tables(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the run tables among a record's inputs."""
    return [entry for entry in record["inputs"] if "/runs/" in entry["path"]]


def _undrawn(paper: str, name: str, results: Results, scratch: Path) -> list[Path]:
    """Return the data of a figure and its caption, recomputed without drawing."""
    path = scratch / f"{paper}_{name}.csv"
    write_csv(compute_or_placeholder(recipe(paper, "figures", name).data, results, paper, f"figure {name}"), path)
    return [path, display_names.write("figures", paper, name, path)]


def _compare(report: Audit, root: Path, there: Path, again: Path, record: dict[str, Any]) -> None:
    """Compare a page or a picture with one made from the same data."""
    if _is_copy(there, again):
        return
    other = again.suffix in _DRAWN and record["software"].get(_DRAWER) != metadata.version(_DRAWER)
    if other and again.suffix != ".png":
        note = f"pictures drawn with another version of {_DRAWER} than the one here are compared as PNG only"
        report.notes += [] if note in report.notes else [note]
    elif not (other and there.stat().st_size <= LONGEST_PAGE and alike(there, again)):
        _add(report, root, there, "is not what its data give", record)


def _is_copy(there: Path, again: Path) -> bool:
    """Return whether a file has the bytes of the one that was made again; one of another size is not read."""
    return has_bytes(there, {"bytes": again.stat().st_size, "sha256": file_sha256(again)})


def alike(first: Path, second: Path) -> bool:
    """Return whether two PNG files show nearly the same picture."""
    one, two = plt.imread(first), plt.imread(second)
    return one.shape == two.shape and float(abs(one - two).mean()) <= PICTURE_TOLERANCE


def difference(right: pd.DataFrame, found: pd.DataFrame) -> str:
    """Return the first difference between a table and the right one, empty where they agree."""
    if list(right.columns) != list(found.columns):
        return f"columns {', '.join(sorted(set(right.columns) ^ set(found.columns))) or 'in another order'}"
    if len(right) != len(found):
        return f"{len(found)} rows instead of {len(right)}"
    for name in right.columns:
        for row, (one, two) in enumerate(zip(right[name], found[name], strict=True)):
            if not agree(one, two, TOLERANCE):
                return f"{name} in row {row + 1} is {_short(two)}, not {_short(one)}"
    return ""


def agree(right: Any, found: Any, tolerance: float) -> bool:
    """Return whether two cells agree: as text, or as numbers within the relative tolerance (below `SMALL`, of that)."""
    if isinstance(right, str) or isinstance(found, str):
        return str(right) == str(found)
    one, two = float(right), float(found)
    if not (math.isfinite(one) and math.isfinite(two)):
        return one == two or (math.isnan(one) and math.isnan(two))
    return abs(one - two) <= tolerance * max(SMALL, abs(one))


def _short(value: object) -> str:
    """Return a cell for a message."""
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _add(report: Audit, root: Path, path: Path, problem: str, record: dict[str, Any]) -> None:
    """Add a finding; what to delete is all that the stage wrote, next to its record, and no other file."""
    csv = path.with_suffix(".csv")
    outputs = tuple(path.with_name(Path(each["path"]).name) for each in record["outputs"])
    report.findings.append(Finding(str(path.relative_to(root)), problem, (record_path(csv), *outputs)))
