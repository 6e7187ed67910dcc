import subprocess
import sys

import pytest
from typer.testing import CliRunner

from dpfl.cli import app

COMMANDS = [
    "data fetch",
    "data arrays",
    "features",
    "account",
    "calibrate",
    "train",
    "tables",
    "figures",
    "claims",
    "report",
]
COMMANDS += ["compare", "curves", "train-batch", "plan", "run", "status", "gpu", "trace", "audit"]


def run(*arguments, cwd=None):
    """Run `python -m dpfl` as a user does."""
    return subprocess.run([sys.executable, "-m", "dpfl", *arguments], cwd=cwd, capture_output=True, text=True)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command):
    result = CliRunner().invoke(app, [*command.split(), "--help"])
    assert result.exit_code == 0 and f"Example: dpfl {command}" in " ".join(result.output.split())


def test_a_process_of_its_own_ends_with_status_2_and_one_line(tmp_path):
    (tmp_path / "config.yaml").write_text("scale: demo\n")
    done = run("tables", "--paper", "bhaskar2025", "--name", "table_9", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("dpfl: ") and "no table table_9" in done.stderr and "table_2" in done.stderr


def test_an_option_that_is_missing_is_status_2():
    assert CliRunner().invoke(app, ["train"]).exit_code == 2


def test_status_lists_what_waits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text("scale: demo\n")
    done = CliRunner().invoke(app, ["status"])
    assert done.exit_code == 0
    assert "digits_scatter_linear_k10_seed0: waiting" in done.output and "lowy2021: jobs 0/2" in done.output
