"""`dpfl trace`: what it prints of texts that strangers recorded."""

import json

import pytest
from typer.testing import CliRunner

from dpfl.cli import app
from dpfl.files import record_path
from dpfl.provenance import input_checks, trace
from dpfl.provenance.record import StageRecorder


@pytest.mark.parametrize("odd", ["\x1b[2J", "\x9b2J", "\u202egnp.exe", "\u2028"])
def test_a_trace_as_json_steers_no_terminal_and_holds_what_was_recorded(tmp_path, monkeypatch, odd):
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "results" / "demo" / "table.csv"
    table.parent.mkdir(parents=True)
    table.write_text("x\n")
    StageRecorder("tables", ("dpfl.grid.expansion",), {"name": odd}).write(record_path(table), [table])
    input_checks._outputs.cache_clear()
    trace.writers.cache_clear()
    done = CliRunner().invoke(app, ["trace", str(table), "--json"])
    assert done.exit_code == 0 and done.stdout.isascii() and "\x1b" not in done.stdout
    assert json.loads(done.stdout)["settings"] == {"name": odd}
