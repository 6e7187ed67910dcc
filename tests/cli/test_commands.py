import subprocess
import sys

import pytest
from typer.testing import CliRunner

from dpfl.cli import app

COMMANDS = ["data fetch", "data arrays", "features", "account", "train", "tables", "figures", "claims", "report"]
COMMANDS += ["status", "trace", "audit"]


def run(*arguments, cwd=None):
    """Run `python -m dpfl` as a user does."""
    return subprocess.run([sys.executable, "-m", "dpfl", *arguments], cwd=cwd, capture_output=True, text=True)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command):
    result = CliRunner().invoke(app, [*command.split(), "--help"])
    assert result.exit_code == 0 and f"Example: dpfl {command}" in " ".join(result.output.split())


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.yaml").write_text("scale: demo\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "--paper", "bhaskar2025", "--sweep", "nonsense"], ["no sweep nonsense", "there are"]),
        (["tables", "--paper", "bhaskar2025", "--name", "table_9"], ["no table table_9", "table_2"]),
        (["figures", "--paper", "lowy2021", "--name", "x"], ["no figure x", "figure_2"]),
        (["tables", "--paper", "nobody", "--name", "x"], ["no paper nobody", "lowy2021"]),
        (["claims", "--paper", "lowy2021"], ["is not there", "run make"]),
        (["data", "arrays", "--dataset", "minst"], ["minst"]),
        (["data", "arrays", "--dataset", "mnist"], ["is not there"]),
        (["data", "fetch", "--dataset", "mnist", "--file", "x"], ["x", "train-images"]),
        (["features", "--dataset", "digits"], ["digits"]),
        (["account", "--paper", "bhaskar2025"], ["digits"]),
        (["trace", "config.yaml"], ["no record", "config.yaml"]),
        (["audit", "results/demo"], ["no record below"]),
        (["report"], ["nothing to report"]),
        (["status", "--config", "other.yaml"], ["other.yaml"]),
    ],
)
def test_unusable_input_is_one_line_and_status_2(folder, arguments, words):
    done = run(*arguments, cwd=folder)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("dpfl: "), done.stderr
    assert all(word in done.stderr for word in words), done.stderr
    assert not (folder / "results").exists()


def test_an_option_that_is_missing_is_status_2():
    assert run("train").returncode == 2


def test_status_lists_what_waits(folder):
    done = run("status", cwd=folder)
    assert done.returncode == 0
    assert "digits_scatter_linear_k10_seed0: waiting" in done.stdout and "lowy2021: sweeps 0/1" in done.stdout
