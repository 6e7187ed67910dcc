"""Read what earlier stages of one scale wrote, within limits, and write the tables that pages are made from."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from traceback import walk_tb
from typing import IO

import pandas as pd
from packaging.version import Version
from pandas.api.types import is_numeric_dtype

from dpfl.catalog import keys
from dpfl.errors import InputError
from dpfl.files import opened, replacing
from dpfl.grid.expansion import page_path


class NotRunError(InputError):
    """Raised where the runs of a table or figure are not part of the configuration; the reason is shown instead."""


_NOT_RUN = "not_run"
ORIGIN = "origin"
"""Column of `Results.runs`: the run's place, as "<job>:<row of its run table, from 0>"."""
ORIGINS = "origins"
"""Column of tables and figures: the origins of the runs that a row was made of, separated by spaces. `dpfl trace` goes
by it."""
_LONGEST_TABLE = 1 << 26
_MOST_ROWS = 1 << 20
_MOST_CELLS = 1 << 22
"""Bytes, rows and cells beyond which a file is no table of ours, which have a fifth at most: a small file can be
packed so that it fills all memory."""
_EXACT = {} if Version(pd.__version__) >= Version("3.1") else {"float_precision": "round_trip"}
"""Arguments with which pandas reads numbers to the last bit. From 3.1 on it always does, and warns of the argument."""
_SHOWN = 60
_FORMULA = re.compile(r"[\t\r]|\s*([=+@＝＋＠]|[-－].*[(|!])", re.DOTALL)
"""Beginning of a text that a spreadsheet may take for a formula, which can run programs; a number may begin so, and
some programs drop blanks before it."""


def not_run_table(reason: NotRunError) -> pd.DataFrame:
    """Return the placeholder on disk for the data of a table or figure that was not run."""
    return pd.DataFrame({_NOT_RUN: [str(reason)]})


@contextmanager
def own_code(paper: str, what: str) -> Iterator[None]:
    """Name the line at which a paper's own code fails: "smith2026: table risk: tables.py, line 31: KeyError: 'noise'".

    Raises InputError in place of whatever the author's code raises, but for InputError itself; what fails elsewhere is
    a fault of ours and keeps its traceback.
    """
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as slip:
        steps = [(frame.f_globals.get("__name__", ""), frame, line) for frame, line in walk_tb(slip.__traceback__)]
        own = [(frame, line) for name, frame, line in steps if name.startswith(f"dpfl.papers.{paper}.")]
        if not own:
            raise
        file, line = Path(own[-1][0].f_code.co_filename).name, own[-1][1]
        said = " ".join(f"{type(slip).__name__}: {slip}".split())
        raise InputError(f"{paper}: {what}: {file}, line {line}: {said}") from slip


@contextmanager
def removed_unless_finished(csv: Path) -> Iterator[None]:
    """Remove the data of a page whose other files cannot be made: without them it would be called damaged."""
    try:
        yield
    except BaseException:
        csv.unlink(missing_ok=True)
        raise


def compute_or_placeholder(
    make: Callable[[Results], pd.DataFrame], results: Results, paper: str, what: str
) -> pd.DataFrame:
    """Return the data that `make` computes from the results, or the placeholder if nothing of them was run.

    Raises InputError, naming the paper and `what` it makes, where `make` fails or returns something else.
    """
    try:
        with own_code(paper, what):
            data = make(results)
        if not isinstance(data, pd.DataFrame):
            raise InputError(f"{paper}: {what}: data returned a {type(data).__name__}, no DataFrame")
        if data.columns.empty:
            raise NotRunError("no run of this page in this configuration")
        return data
    except NotRunError as reason:
        return not_run_table(reason)


def not_run_reason(table: pd.DataFrame) -> str:
    """Return why a table read from disk only states that it was not run; "" where it has data."""
    return table[_NOT_RUN].iloc[0] if list(table.columns) == [_NOT_RUN] else ""


def refuse_not_run(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table read from disk; raises NotRunError, with the reason, where it only states that it was not run."""
    if reason := not_run_reason(table):
        raise NotRunError(reason)
    return table


@contextmanager
def showing(folder: Path, paper: str) -> Iterator[None]:
    """Raise InputError where the block cannot show the tables of a paper in results/<scale>.

    They have the right form where this version wrote them; an edited one may lack a column, or hold a word or number
    that none of ours has.
    """
    try:
        yield
    except InputError:
        raise
    except (LookupError, AttributeError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise InputError(
            f"a table of {paper} in {folder} cannot be shown ({problem}): it was edited, an earlier version wrote it "
            "(run make again), or the paper's own code does not fit its columns"
        ) from None


@dataclass(frozen=True)
class Results:
    """Results of one scale: `folder` is results/<scale>, `run_tables` lists the run tables of each paper."""

    folder: Path
    run_tables: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    _read: dict[str, pd.DataFrame] = field(default_factory=dict, init=False, repr=False, compare=False)

    def runs(self, paper: str, **where: str) -> pd.DataFrame:
        """Return the run tables of a paper as one table, one row per run; empty if nothing was trained.

        `origin` says where each run stands. `where` keeps the runs that have these values in these columns, as
        experiment="canaries". Raises InputError for an unknown paper.
        """
        if paper not in self.run_tables and paper not in keys():
            raise InputError(f"no paper {paper}; there are {', '.join(keys())}")
        if paper not in self._read:
            tables = [_with_origins(path) for path in sorted(self.run_tables.get(paper, ()))]
            self._read[paper] = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
        runs = self._read[paper].copy()
        for column, value in where.items():
            runs = runs[runs[column] == value] if column in runs else runs.iloc[:0]
        return runs

    def table(self, paper: str, name: str) -> pd.DataFrame:
        """Return a finished table; raises NotRunError, or InputError where the tables stage has not written it."""
        return refuse_not_run(read_csv(page_path(self.folder, "tables", paper, name)))

    def figure(self, paper: str, name: str) -> pd.DataFrame:
        """Return the data of a finished figure; raises as `table` does."""
        return refuse_not_run(read_csv(page_path(self.folder, "figures", paper, name)))


def _with_origins(path: Path) -> pd.DataFrame:
    """Return a run table with the origin of each run."""
    table = read_csv(path)
    return table.assign(**{ORIGIN: [f"{path.name.partition('.')[0]}:{row}" for row in range(len(table))]})


def origins(runs: pd.DataFrame) -> str:
    """Return the origins of runs as a cell of ORIGINS; "" if nothing says them."""
    return " ".join(runs[ORIGIN]) if ORIGIN in runs else ""


def read_csv(path: Path, text: Collection[str] = ()) -> pd.DataFrame:
    """Return a table of this pipeline, numbers exact to the last digit, empty text kept as text. Columns in `text` are
    text even if all of their cells look like numbers.

    Raises InputError where the file is missing, empty, no table, or no regular file: a link may lead anywhere; and
    where a cell is a formula to a spreadsheet.
    """
    try:
        kinds = dict.fromkeys(text, str)
        table = pd.read_csv(table_text(path), keep_default_na=False, na_values=["nan"], dtype=kinds, **_EXACT)
    except pd.errors.EmptyDataError:
        raise InputError(f"{path} is empty: delete it and run make again") from None
    except pd.errors.ParserError as error:
        raise InputError(
            f"{path} is not a table: {' '.join(str(error).split())}; delete it and run make again"
        ) from None
    _require_no_formula(table, path)
    return table


def _require_no_formula(table: pd.DataFrame, path: Path) -> None:
    """Raise InputError naming the first cell that a spreadsheet would take for a formula."""
    texts = [table[name] for name in table.columns[table.dtypes.map(lambda kind: not is_numeric_dtype(kind))]]
    for cell in chain(table.columns, *texts):
        if isinstance(cell, str) and _FORMULA.match(cell) and not _is_number(cell):
            raise InputError(f"{path} has the cell {cell[:_SHOWN]!r}, which is a formula to a spreadsheet: delete it")


def _is_number(cell: str) -> bool:
    """Return whether a text is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def table_text(path: Path) -> io.StringIO:
    """Return the text of a CSV, packed by gzip where its name ends so.

    Raises InputError where the file is missing, damaged, no regular file, or has more bytes, rows or cells than any
    table of ours.
    """
    try:
        unpacked = gzip.open if path.suffix == ".gz" else nullcontext
        with opened(path, _LONGEST_TABLE) as packed, unpacked(packed) as stream:
            content = stream.read(_LONGEST_TABLE + 1)
        rows, cells = content.count(b"\n"), content.count(b",")
        if len(content) > _LONGEST_TABLE or rows > _MOST_ROWS or rows + cells > _MOST_CELLS:
            raise InputError(
                f"{path} is not a table: it has more than {_LONGEST_TABLE >> 20} MiB, {_MOST_ROWS} rows or "
                f"{_MOST_CELLS} cells; delete it"
            )
        return io.StringIO(content.decode(), newline="")
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"{path} is not a table: {' '.join(str(error).split())}; delete it and run make again"
        ) from None


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table of the pipeline, completely or not at all; the same rows give the same bytes, compressed or not.

    Raises InputError where it cannot be written, or a cell is a formula to a spreadsheet.
    """
    _require_no_formula(table, path)
    text = io.StringIO()
    write_csv(table, text)
    content = text.getvalue().encode()
    with replacing(path) as temporary:
        temporary.write_bytes(_packed(content) if path.suffix == ".gz" else content)


def _packed(content: bytes) -> bytes:
    """Return content in gzip's format (RFC 1952) without a time, with the same header from every version of Python.

    `gzip.compress` names Unix as the system in the header until Python 3.12, and an unknown one from 3.13 on.
    """
    return zlib.compress(content, level=9, wbits=zlib.MAX_WBITS | 16)


def write_csv(table: pd.DataFrame, stream: IO[str] | Path) -> None:
    """Write a table so that `read_csv` gives it back: every digit, "nan" for a missing number, \\n line ends."""
    table.to_csv(stream, index=False, na_rep="nan", lineterminator="\n")
