"""The commands of the command line: their help, their version, and which are there."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from dpfl import __version__
from dpfl.cli import app
from dpfl.errors import InputError


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
