import pytest

from dpfl.files import record_path
from dpfl.provenance import input_checks
from dpfl.provenance.record import StageRecorder


@pytest.fixture
def chain(tmp_path, monkeypatch):
    """raw -> run -> table, each with its record; returns the results folder."""
    monkeypatch.chdir(tmp_path)
    input_checks._outputs.cache_clear()
    results = tmp_path / "results" / "demo"
    (results / "runs").mkdir(parents=True)
    before = []
    for name in ("raw.csv", "runs/run.csv", "table.csv"):
        path = results / name
        path.write_text(f"from {name}\n")
        stage = StageRecorder(name, ("dpfl.grid.expansion",))
        stage.reads(before)
        stage.write(record_path(path), [path])
        before = [path]
    return results
