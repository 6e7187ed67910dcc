"""Results as data, for notebooks: tables, runs, verdicts and epsilons as pandas DataFrames; nothing is trained.

    import dpfl.results as r
    r.tables()                                                     # what there is
    r.table("bhaskar2025", 2)                                      # one row a published number, ours beside it
    r.runs("bhaskar2025", dataset="mnist", model="cnn_tanh")       # one row a round
    r.claims(), r.epsilons()

Every function takes a `source`: "demo", "quick" or "paper" (results/<scale> of the checkout that the working folder or
the package is in; the default is "paper"), or the path of a results folder, of a checkout that has one scale, of a
crate (results/<scale>.crate.zip) or of an unpacked crate. A source that is none of these is an InputError.

A column ends with its unit: `_pct` per cent, `_seconds` seconds; an accuracy's difference in `_pct` is in percentage
points. A column without a unit is a count, a name, or a number without one, as an epsilon. `COLUMNS` says what the
columns of each DataFrame hold.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from atexit import register
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from functools import cache
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

try:
    import pandas as pd
    import yaml
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"dpfl.results needs {missing.name}: only the accountants are here; pip install '.[pipeline]', or make env",
        name=missing.name,
    ) from missing

from dpfl import catalog
from dpfl.errors import InputError
from dpfl.files import parse_json
from dpfl.grid import configuration, expansion
from dpfl.provenance import archive, own_runs
from dpfl.provenance.trace import value_of
from dpfl.reporting.columns import COLUMNS
from dpfl.reporting.comparison import comparison, metrics_of, settings_of, telling
from dpfl.reporting.report_page.epsilons import EpsilonStatement, statements
from dpfl.reporting.results import ORIGIN, ORIGINS, Results, not_run_reason, read_csv, refuse_not_run, showing

Source = str | PathLike[str]
"""The name of a scale, or the path of a results folder, checkout, crate or unpacked crate."""
SCALES = ("demo", "quick", "paper")
_KINDS = ("tables", "figures")
_SHOWN = 20
_ROUND = {"_by_round": "round", "_by_epoch": "epoch"}
"""Endings of the columns with a value a round, as a JSON list, and the column that counts them here."""


def tables(source: Source = "paper") -> pd.DataFrame:
    """Return the contents: a row for each table and figure of a source, with the columns of `COLUMNS["tables"]`."""
    folder, rows = results_folder(source), []
    for kind in _KINDS:
        for path in sorted((folder / kind).glob("*.csv")):
            paper, _, name = path.stem.partition("_")
            data = read_csv(path)
            reason = not_run_reason(data)
            rows.append((paper, kind, name, _title(paper, kind, name), 0 if reason else len(data), reason))
    frame = pd.DataFrame(rows, columns=list(COLUMNS["tables"]))
    return frame.sort_values(["paper", "kind", "name"], ascending=[True, False, True], ignore_index=True)


def table(paper: str, name: int | str, source: Source = "paper") -> pd.DataFrame:
    """Return the data of a table, every digit: one row for each cell, the columns as its CSV file has them.

    `name` is the number that the paper gives it, or the name that `tables` lists. Published numbers are in
    published_<name>_<unit>, ours in <name>_<unit>. Columns: `COLUMNS["table"]` and `COLUMNS["runs"]`. Raises InputError
    for a name that there is not, and NotRunError, which is one, with the reason if nothing of it was run.
    """
    return _page("tables", paper, name, source)


def figure(paper: str, name: int | str, source: Source = "paper") -> pd.DataFrame:
    """Return the data that a figure is drawn from; `name` and errors as for `table`."""
    return _page("figures", paper, name, source)


def runs(paper: str, source: Source = "paper", **where: Any) -> pd.DataFrame:
    """Return the runs of a paper: a row for each round (or epoch), or one for the run if it reports its end alone.

    `where` keeps the runs with this value, or one of these values, in a column: `dataset="mnist"`,
    `epsilon=[1.2, 2.93]`; None is a setting that the run does not have. The lists of the run table become a row for
    each round: `accuracy_pct` is that after `round`. A measured list that has no number a round is left out; a setting
    that is a list stays JSON text. Settings of other experiments than a run's are missing. A run that
    two jobs trained alike stands once. Raises InputError for a paper without runs, for an unknown column, and for a
    value that no run has.
    """
    each = _kept(paper, run_tables(paper, source), where)
    return pd.concat([_by_round(rows) for rows in each if len(rows)], ignore_index=True)


def claims(source: Source = "paper") -> pd.DataFrame:
    """Return the verdicts: one row for each claim, papers in alphabetical order. Columns: `COLUMNS["claims"]`.

    Raises InputError if no claim of the source was judged.
    """
    folder = results_folder(source)
    paths = [path for path in sorted((folder / "claims").glob("*.csv")) if not path.stem.endswith("_evidence")]
    if not paths:
        raise InputError(f"no verdicts in {folder}: run make first")
    return pd.concat([read_csv(path) for path in paths], ignore_index=True)


def epsilons(source: Source = "paper") -> pd.DataFrame:
    """Return every private setting that claims an epsilon, once, with its claim, its bounds, and their proofs.

    Columns: `COLUMNS["epsilons"]`. Raises InputError if nothing private of the source was calibrated.
    """
    folder, rows = results_folder(source), []
    for path in sorted((folder / "accounting").glob("*.csv")):
        with showing(folder, path.stem):
            rows += [{"paper": path.stem, **asdict(each)} for each in statements(folder, path.stem)]
    if not rows:
        raise InputError(f"no table of noise in {folder}: run make first")
    names = ["paper", *(each.name for each in fields(EpsilonStatement) if each.name != "of_study")]
    return pd.DataFrame(rows)[names].assign(verdict=[row["verdict"].value for row in rows])


def curves(paper: str, name: int | str, source: Source = "paper", **where: Any) -> pd.DataFrame:
    """Return the learning curves behind the cells of a table, or of a figure's data if no table has the name.

    `where` chooses rows of the table as in `runs`. Columns: `COLUMNS["curves"]`. Raises InputError
    if the table does not say its runs, or if none of them reports its accuracy on the way.
    """
    folder = results_folder(source)
    there = {kind: _pages(kind, paper, folder) for kind in _KINDS}
    kind = next((kind for kind, names in there.items() if _label(kind, name) in names), None)
    if kind is None:
        known = ", ".join(dict.fromkeys(itertools.chain(*there.values()))) or "none"
        raise InputError(f"no table or figure {name} of {paper} in {folder}; there are {known}")
    page = _page(kind, paper, name, folder)
    if ORIGINS not in page:
        raise InputError(f"{paper} {name} does not say which runs its rows are made of: it has no learning curves")
    [chosen] = _kept(f"{paper} {name}", [page], where)
    chosen = chosen[chosen[ORIGINS] != ""]
    trained = run_tables(paper, folder)
    cells = _cells(chosen, {name for rows in trained for name in settings_of(rows)}, f"{paper} {name}")
    rows = _stepped(trained)
    parts = []
    for cell, origins in zip(cells, chosen[ORIGINS], strict=True):
        own = rows[rows[ORIGIN].isin(origins.split()) & rows["step"].notna()]
        parts.append(own.assign(cell=cell).reindex(columns=list(COLUMNS["curves"])))
    found = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    if found.empty or found["accuracy_pct"].isna().all():
        raise InputError(f"no run of these rows of {paper} {name} reports its accuracy by round or epoch")
    return found.astype({"step": int})


def _cells(rows: pd.DataFrame, settings: Collection[str], title: str) -> list[str]:
    """Return a name for each row of a table: the settings that tell rows apart, then other texts and counts that do.

    Rows that all of these leave together are numbered; a single row has the table's title.
    """
    others = [name for name in rows if name not in settings and name != ORIGINS and rows[name].dtype.kind in "Oi"]
    differing = telling(rows[[*(name for name in rows if name in settings), *others]])
    names = [", ".join(f"{name} {row[name]}" for name in differing) or title for row in rows.to_dict("records")]
    repeated = {name for name, count in Counter(names).items() if count > 1}
    return [f"{name}, row {number}" if name in repeated else name for number, name in enumerate(names, 1)]


def own_curves(*sources: Source, **where: Any) -> pd.DataFrame:
    """Return the learning curves of runs of `dpfl fedavg`, given by their folders or folders that have these.

    `where` chooses runs by their settings. Runs are of one cell if all their settings but the seed agree. Columns:
    `COLUMNS["curves"]`. Raises InputError for a source that has no run.
    """
    found = [_own(source) for source in sources]
    for source, folders in zip(sources, found, strict=True):
        if not folders:
            raise InputError(f"{source} has no run of dpfl fedavg")
    [chosen] = _kept(
        "the table of these runs", [_one_table([run for each in own_runs.read(found) for run in each])], where
    )
    differing = telling(chosen[settings_of(chosen)])
    rows = _stepped([chosen])
    rows["cell"] = [
        ", ".join(f"{column} {row[column]}" for column in differing if not pd.isna(row[column]))
        or f"{row['dataset']}, {row['model']}"
        for row in rows.to_dict("records")
    ]
    return rows[list(COLUMNS["curves"])].astype({"step": int})


def _stepped(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return runs with a row a round or epoch, its number as `step` and which of the two it is as `unit`."""
    rows = pd.concat([_by_round(each) for each in tables], ignore_index=True)
    rows["unit"] = rows.get("round", pd.Series(pd.NA, rows.index)).notna().map({True: "round", False: "epoch"})
    steps = [rows[order] for order in _ROUND.values() if order in rows]
    rows["step"] = pd.concat(steps).dropna() if steps else pd.NA
    return rows


def compare(first: Source, second: Source, metric: str | None = None) -> pd.DataFrame:
    """Return what differs between two sources: one row for each cell, with the columns of `COLUMNS["compare"]`.

    A source may also be a configuration (mine.yaml), which stands for its runs in results/<scale>, or runs of
    `dpfl fedavg`: the folder of one, or a folder that has several. Cells are matched by their settings; one that has a
    single value in the first source and another in the second is what is compared, and `.attrs["compared"]` names it.
    Without a `metric` each experiment has the first of `METRICS` that it measures. Raises InputError if there is no
    cell that both have.
    """
    pairs = []
    own = own_runs.read([_own(source) for source in (first, second)])
    chosen = [
        {own_runs.PAPER: [_one_table(each)]} if each else _chosen(source)
        for source, each in zip((first, second), own, strict=True)
    ]
    for paper in sorted({*chosen[0], *chosen[1]}):
        tables_of = [{rows["experiment"].iloc[0]: rows for rows in each.get(paper, [])} for each in chosen]
        pairs += [
            (paper, name, *(each.get(name) for each in tables_of)) for name in sorted({*tables_of[0], *tables_of[1]})
        ]
    return comparison(pairs, metric)


def run_tables(paper: str, source: Source = "paper") -> list[pd.DataFrame]:
    """Return the runs of a paper, a table per experiment and a row per run, with `origin`; lists stay JSON text.

    Settings stand before the column seed, metrics after it. Raises InputError if there is none.
    """
    folder = results_folder(source)
    found = sorted((folder / "runs" / paper).glob("*.csv.gz"))
    if not found:
        known = ", ".join(sorted(path.name for path in (folder / "runs").glob("*"))) or "none"
        raise InputError(f"no runs of {paper} in {folder}; there are runs of {known}")
    return _joined(folder, paper, found)


def _joined(
    folder: Path, paper: str, paths: Sequence[Path], asked: Mapping[Path, Mapping[str, Sequence[Any]]] | None = None
) -> list[pd.DataFrame]:
    """Return run tables joined by experiment, settings before the seed and measurements after it.

    `asked` has the values of columns that a run of a path must have to count: a configuration may want part of a job.
    """
    groups: dict[str, list[pd.DataFrame]] = {}
    for path in paths:
        rows = Results(folder, {paper: (path,)}).runs(paper)
        for name, values in (asked or {}).get(path, {}).items():
            rows = rows[rows.get(name, pd.Series(math.nan, rows.index)).isin(values)]
        if rows.empty:
            continue
        groups.setdefault(str(rows["experiment"].iloc[0]), []).append(rows)
    joined = map(_one_table, groups.values())
    return [rows.assign(job=rows[ORIGIN].str.rpartition(":")[0]) for rows in joined]


def _one_table(group: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return run tables of one experiment as one, settings before the seed; a run that two of them have stands once.

    A run is one, whichever of two jobs of a grid, or of two runs of the workflow, trained it.
    """
    before = dict.fromkeys(name for rows in group for name in rows.columns[: rows.columns.get_loc("seed")])
    rows = pd.concat(group, ignore_index=True)
    rows = rows[[*before, *(name for name in rows if name not in before)]]
    return rows.loc[~rows.drop(columns=["job", ORIGIN], errors="ignore").duplicated()]


def _own(source: Source) -> list[Path]:
    """Return the folders of the runs of `dpfl fedavg` in a source; [] for one with results of papers."""
    path = Path(source)
    return [] if _has_results(path) or (path / "results").is_dir() else own_runs.folders(path)


def _chosen(source: Source) -> dict[str, list[pd.DataFrame]]:
    """Return the run tables of a source by paper; of a configuration, those of its runs that were trained."""
    path, asked = Path(source), {}
    if path.suffix in (".yaml", ".yml"):
        config = configuration.read(path)
        folder = _of_checkout(config["scale"])
        found = {key: [] for key in config["papers"]}
        for job in expansion.expand(config):
            if (trained := expansion.run_table_path(folder, job.paper, job.name)).is_file():
                found[job.paper].append(trained)
                asked[trained] = {name: config["only"][name] for name in job.cells[0] if config["only"].get(name)}
    else:
        folder = results_folder(source)
        found = {each.name: sorted(each.glob("*.csv.gz")) for each in sorted((folder / "runs").glob("*"))}
    if not any(found.values()):
        raise InputError(f"{source} has no runs: train it first")
    tables = {paper: _joined(folder, paper, paths, asked) for paper, paths in found.items() if paths}
    if not any(tables.values()):
        raise InputError(f"{source} has no runs: train it first")
    return tables


def _kept(what: str, tables: Sequence[pd.DataFrame], where: Mapping[str, Any]) -> list[pd.DataFrame]:
    """Return the rows of tables that have these values; raises InputError for a column or value that none has."""
    for column, wanted in where.items():
        if not any(column in rows for rows in tables):
            names = dict.fromkeys(name for rows in tables for name in rows)
            raise InputError(f"{what} has no column {column}; there are {', '.join(names)}")
        listed = list(wanted) if isinstance(wanted, Collection) and not isinstance(wanted, str) else [wanted]
        columns = [rows.get(column, pd.Series(math.nan, rows.index)) for rows in tables]
        values = {value_of(str(value)) for value in listed if value is not None}  # seeds of your own runs are text
        same = [each.map(str).map(value_of).isin(values) for each in columns]
        masks = [
            is_same | (each.isna() | (each == "") if None in listed else False)
            for is_same, each in zip(same, columns, strict=True)
        ]
        if not any(mask.any() for mask in masks):
            known = sorted({str(value) for each in columns for value in each.dropna()})
            raise InputError(f"{what} has no {column} {wanted!r}; there are {', '.join(known[:_SHOWN])}")
        tables = [rows[mask] for rows, mask in zip(tables, masks, strict=True)]
    return list(tables)


def results_folder(source: Source) -> Path:
    """Return the folder results/<scale> that a source names; a crate is unpacked once, into a temporary folder.

    Raises InputError if there is none, or if a checkout has several.
    """
    path = Path(source)
    if str(source) in SCALES and not path.exists():
        return _of_checkout(str(source))
    if path.is_file():
        return _only_scale(_unpacked(path.resolve(), path.stat().st_mtime_ns), path)
    if not path.is_dir():
        raise InputError(f"{source} is not there: name demo, quick or paper, a results folder, or a crate")
    return path if _has_results(path) else _only_scale(path, path)


def _has_results(folder: Path) -> bool:
    """Return whether a folder is a results/<scale>."""
    return any((folder / part).is_dir() for part in ("runs", "tables", "claims"))


def _of_checkout(scale: str) -> Path:
    """Return results/<scale> of the checkout around the working folder, or of the one that the package is in."""
    here = Path.cwd()
    for root in (here, *here.parents, Path(__file__).resolve().parents[2]):
        if _has_results(folder := root / "results" / scale):
            return folder
    raise InputError(f"no results/{scale} here: run make {scale}, or name a results folder or a crate")


def _only_scale(root: Path, source: Path) -> Path:
    """Return the one results/<scale> of a checkout or a crate; raises InputError if the source has none or several."""
    found = [folder for scale in SCALES if _has_results(folder := root / "results" / scale)]
    if len(found) == 1:
        return found[0]
    several = ", ".join(map(str, found))
    raise InputError(f"{source} has {f'several results: name one of {several}' if found else 'no results of dpfl'}")


@cache
def _unpacked(path: Path, _time: int) -> Path:
    """Return a temporary folder with the results of a crate; it is gone when Python ends."""
    try:
        content = archive.members(path)
    except archive.UNREADABLE as error:
        raise InputError(f"{path} is not a crate: {' '.join(str(error).split())}") from None
    place = tempfile.TemporaryDirectory(prefix="dpfl-crate-")
    register(place.cleanup)
    for name, text in content.items():
        parts = PurePosixPath(name).parts
        if parts and parts[0] == "results" and ".." not in parts and not name.endswith("/"):
            target = Path(place.name, *parts)
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(text)
            except OSError as error:  # a file where another member has a folder
                raise InputError(f"{path} is not a crate: {name}: {error.strerror}") from None
    return Path(place.name)


@cache
def _titles(paper: str) -> dict[str, dict[str, Any]]:
    """Return what paper.yaml says of a paper's tables and figures; a crate's paper may be none of this version's."""
    path = catalog.PAPERS / paper / "paper.yaml"
    facts = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {kind: facts.get(kind, {}) for kind in _KINDS}


def _title(paper: str, kind: str, name: str) -> str:
    """Return the title of a table or figure, "" if it is not known."""
    return _titles(paper)[kind].get(name, {}).get("title", "")


def _page(kind: str, paper: str, name: int | str, source: Source) -> pd.DataFrame:
    """Return the data of a table or figure."""
    folder, label = results_folder(source), _label(kind, name)
    path = folder / kind / f"{paper}_{label}.csv"
    if not path.is_file():
        known = ", ".join(_pages(kind, paper, folder)) or "none"
        raise InputError(f"no {kind[:-1]} {label} of {paper} in {folder}; there are {known}")
    return refuse_not_run(read_csv(path))


def _pages(kind: str, paper: str, folder: Path) -> list[str]:
    """Return the names of a paper's tables or figures that have data."""
    return [each.stem.partition("_")[2] for each in sorted((folder / kind).glob(f"{paper}_*.csv"))]


def _label(kind: str, name: int | str) -> str:
    """Return the name of a table or figure that a number stands for."""
    return f"{kind[:-1]}_{name}" if str(name).isdecimal() else str(name)


def _by_round(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of one experiment with a row for each round."""
    rows = rows.dropna(axis="columns", how="all")
    ending = next((end for end in _ROUND if any(name.endswith(end) for name in metrics_of(rows))), None)
    if ending is None:
        return rows
    lists = {name: [_numbers(cell) for cell in rows[name]] for name in metrics_of(rows) if _is_list(rows[name])}
    counted = next(name for name in lists if name.endswith(ending))
    lengths = [len(values) for values in lists[counted]]
    filled = {
        name: [values or [math.nan] * length for values, length in zip(each, lengths, strict=True)]
        for name, each in lists.items()
    }
    whole = {
        name: each
        for name, each in filled.items()
        if all(len(values) == length for values, length in zip(each, lengths, strict=True))
    }
    order = _ROUND[ending]
    counts = [list(range(1, length + 1)) for length in lengths]
    long = (
        rows.drop(columns=lists.keys() - whole.keys())
        .assign(**{order: counts, **whole})
        .explode([order, *whole], ignore_index=True)
    )
    long = long.astype({order: "Int64", **dict.fromkeys(whole, float)})
    plain = {name: name.removesuffix(ending) for name in whole if name.endswith(ending)}
    long = long.drop(columns=[name for name in plain.values() if name in long]).rename(columns=plain)
    long.insert(long.columns.get_loc("seed") + 1, order, long.pop(order))
    return long


def _is_list(column: pd.Series) -> bool:
    """Return whether every known cell of a column is a JSON list."""
    return all(isinstance(cell, str) and cell.startswith("[") for cell in column.dropna())


def _numbers(cell: Any) -> list[float]:
    """Return a JSON list of numbers, [] for a cell that is not there; raises InputError if it is none."""
    if not isinstance(cell, str):
        return []
    try:
        return [float(value) for value in parse_json(cell)]
    except (TypeError, ValueError) as error:
        raise InputError(f"a run table has {cell[:40]!r} for a list of numbers: {error}") from None
