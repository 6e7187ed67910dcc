import gzip
import sys

import pandas as pd
import pytest
from typer.testing import CliRunner

from dpfl import __version__
from dpfl.cli import app
from dpfl.cli.app import write_table
from dpfl.errors import InputError
from dpfl.provenance.cell_trace import read_rows
from dpfl.reporting.results import read_csv

TABLE = pd.DataFrame({"model": ["a", "ü"], "epsilon": [0.1 + 0.2, float("inf")], "note": ["", "x,y"]})


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_a_table_comes_back_and_the_same_rows_give_the_same_bytes(tmp_path, name):
    for folder in ("one", "two"):
        write_table(TABLE, tmp_path / folder / name)
    one, two = (tmp_path / folder / name for folder in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    pd.testing.assert_frame_equal(read_csv(one), TABLE, check_dtype=False)
    assert [row["model"] for row in read_rows(one)] == ["a", "ü"]


def test_a_damaged_run_table_is_named(tmp_path):
    path = tmp_path / "t.csv.gz"
    write_table(TABLE, path)
    whole = path.read_bytes()
    for damaged in (whole[:-9], whole[:12] + bytes([whole[12] ^ 255]) + whole[13:], b"model\na\n", gzip.compress(b"")):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"t\.csv\.gz is"):
            read_csv(path)
    path.write_bytes(whole[:-9])
    with pytest.raises(InputError, match=r"t\.csv\.gz is no table"):
        read_rows(path)


def test_the_version_is_printed_without_a_command():
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0 and done.output == f"dpfl {__version__}\n"


def test_an_audit_of_the_folder_of_all_scales_is_refused(tmp_path):
    (tmp_path / "results/demo").mkdir(parents=True)
    (tmp_path / "results/demo/config.yaml").write_text("scale: demo\n")
    done = CliRunner().invoke(app, ["audit", str(tmp_path / "results"), "--rebuild"])
    assert isinstance(done.exception, InputError) and "several scales" in str(done.exception)
    assert (tmp_path / "results/demo/config.yaml").exists()


def test_the_accountants_alone_say_how_to_get_the_other_commands(monkeypatch):
    module = sys.modules["dpfl.cli.app"]  # the package has its Typer by the same name
    monkeypatch.setattr(module, "PIPELINE", False)
    done = CliRunner().invoke(app, ["no-such-command"])
    assert isinstance(done.exception, InputError) and "pip install '.[pipeline]'" in str(done.exception)
    monkeypatch.setattr(module, "PIPELINE", True)
    assert "No such command" in CliRunner().invoke(app, ["no-such-command"]).output
