"""The documented columns are those of the DataFrames, neither more nor fewer."""

import functools

import pytest

from dpfl import results as r
from dpfl.reporting.columns import COLUMNS
from dpfl.reporting.comparison import metrics_of, settings_of


@pytest.mark.parametrize("name", ["tables", "claims", "epsilons"])
def test_the_columns_of_a_shipped_frame_are_documented_in_their_order(repository, name):
    assert list(COLUMNS[name]) == list(getattr(r, name)(repository / "results" / "paper").columns)


def test_the_columns_of_shipped_curves_are_documented_in_their_order(repository):
    shipped = repository / "results" / "paper"
    if not (shipped / "runs" / "bhaskar2025").is_dir():
        pytest.skip("no runs of bhaskar2025 are shipped")
    assert list(COLUMNS["curves"]) == list(r.curves("bhaskar2025", 2, shipped, model="scatter_linear").columns)


def test_every_frame_with_columns_of_its_own_is_documented():
    """Those of `figure` are the columns of its CSV file."""
    assert set(COLUMNS) == {"tables", "table", "runs", "claims", "epsilons", "curves", "compare"}
    meanings = [meaning for columns in COLUMNS.values() for meaning in columns.values()]
    assert all(meaning.strip() and "|" not in meaning for meaning in meanings)  # a cell of a table of Markdown


def test_the_columns_of_shipped_tables_are_documented_and_no_others(repository):
    """A column is a table's own, or a setting or measurement as in `runs`, or the published value of one."""
    shipped, own = repository / "results" / "paper", set(COLUMNS["table"])
    found: set[str] = set()
    for each in r.tables(shipped).query("kind == 'tables' and not_run == ''").itertuples():
        found |= {name.removeprefix("published_") for name in r.table(each.paper, each.name, shipped)}
    assert found <= own | set(COLUMNS["runs"]) and own <= found and not own & set(COLUMNS["runs"])


def test_the_columns_of_shipped_runs_are_documented_and_no_others(repository, monkeypatch):
    """Also: a column of a row a round is a number or a setting, never a measured list."""
    monkeypatch.setattr(r, "run_tables", functools.cache(r.run_tables))
    shipped = repository / "results" / "paper"
    found: set[str] = set()
    for paper in sorted((shipped / "runs").iterdir()):
        rows = r.runs(paper.name, shipped)
        settings = {name for table in r.run_tables(paper.name, shipped) for name in settings_of(table)}
        found |= set(rows.columns)
        measured = [name for name in metrics_of(rows) if name not in settings]
        lists = [name for name in measured if rows[name].astype(str).str.startswith("[").any()]
        assert not lists
    assert found == set(r.COLUMNS["runs"])
