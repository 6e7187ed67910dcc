"""`dpfl trace`: what it prints of texts that strangers recorded."""

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpfl.cli import app
from dpfl.errors import InputError
from dpfl.files import record_path
from dpfl.provenance.record import StageRecorder


@pytest.mark.parametrize("odd", ["\x1b[2J", "\x9b2J", "\u202egnp.exe", "\u2028"])
def test_a_trace_as_json_steers_no_terminal_and_holds_what_was_recorded(empty_project, odd):
    table = empty_project / "results" / "demo" / "table.csv"
    table.parent.mkdir(parents=True)
    table.write_text("x\n")
    StageRecorder("tables", ("dpfl.grid.expansion",), {"name": odd}).write(record_path(table), [table])
    done = CliRunner().invoke(app, ["trace", str(table), "--json"])
    assert done.exit_code == 0 and done.stdout.isascii() and "\x1b" not in done.stdout
    assert json.loads(done.stdout)["settings"] == {"name": odd}


def test_a_run_table_is_traced_by_its_rows(empty_project):
    table = empty_project / "results" / "demo" / "runs" / "a" / "b.csv.gz"
    table.parent.mkdir(parents=True)
    table.write_bytes(gzip.compress(b"epsilon,seed,status\n1,0,finished\n2,0,finished\n"))
    StageRecorder("train", ("dpfl.grid.expansion",), {}).write(record_path(table), [table])
    done = CliRunner().invoke(app, ["trace", str(table), "--where", "epsilon=2", "--json"])
    assert [row["epsilon"] for row in json.loads(done.stdout)["rows"]] == ["2"]


def test_what_a_record_could_not_name_is_refused_before_anything_is_read(tmp_path, monkeypatch):
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    (tmp_path / "mine.yaml").write_text("scale: demo\n")
    with pytest.raises(InputError, match="outside the project: copy it here"):
        StageRecorder("account", ("dpfl.grid.expansion",), {}).reads([Path("../mine.yaml")])
