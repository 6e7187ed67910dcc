import pytest

from dpfl.provenance import inputs
from dpfl.provenance.record import Stage
from dpfl.provenance.record_file import record_path


@pytest.fixture
def chain(tmp_path, monkeypatch):
    """raw -> run -> table, each with its record; returns the results folder."""
    monkeypatch.chdir(tmp_path)
    inputs._listed.cache_clear()
    results = tmp_path / "results" / "demo"
    (results / "runs").mkdir(parents=True)
    before = []
    for name in ("raw.csv", "runs/run.csv", "table.csv"):
        path = results / name
        path.write_text(f"from {name}\n")
        stage = Stage(name, ("dpfl.grid",))
        stage.reads(before)
        stage.write(record_path(path), [path])
        before = [path]
    return results
