from pathlib import Path

import pytest

from dpfl.files import record_path
from dpfl.grid.expansion import run_table
from dpfl.provenance.record import StageRecorder
from dpfl.provenance.run_identity import run_identity


@pytest.fixture
def finish():
    """A function that writes an empty run table with the record of a training that gave it today."""

    def write(sweep, results: Path) -> Path:
        table = run_table(results, sweep.paper, sweep.name)
        table.parent.mkdir(parents=True, exist_ok=True)
        table.touch()
        stage = StageRecorder("train", ("dpfl.randomness",), identity=run_identity(sweep))
        stage.write(record_path(table), [table])
        return table

    return write
