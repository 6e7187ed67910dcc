"""The commands of the command line: their help, their version, and which are there."""

import os
import re
import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from dpfl import __version__
from dpfl.cli import app, main
from dpfl.cli.app import CHECKING, DAILY, STAGES
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


ALONE = """
import sys
from importlib.machinery import PathFinder
found, absent = PathFinder.find_spec, {"torch", "opacus", "matplotlib", "snakemake"}
PathFinder.find_spec = lambda name, *rest: None if name in absent else found(name, *rest)
from dpfl.cli import main
sys.argv = ["dpfl", *sys.argv[1:]]
main()
"""


def test_the_accountants_alone_need_neither_torch_nor_opacus(tmp_path):
    (tmp_path / "log.csv").write_text("noise_multiplier,sample_rate,num_steps\n1.1,0.01,1000\n")
    question = ["--sampler", "poisson", "--sample-rate", "0.01", "--noise-multiplier", "1.1", "--steps", "100"]
    asked = ["account", *question, "--delta", "1e-5", "--claimed-epsilon", "3"]
    for words in (asked, ["check", "log.csv", "--sampler", "poisson", "--delta", "1e-5", "--claimed-epsilon", "9"]):
        done = subprocess.run([sys.executable, "-c", ALONE, *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0 and "proven" in done.stdout, done.stderr


def commands(group, *words: str) -> list[str]:
    """The commands of a group and of the groups in it, as words after `dpfl`."""
    if not hasattr(group, "commands"):
        return [" ".join(words)]
    return [found for name, command in group.commands.items() for found in commands(command, *words, name)]


COMMANDS = commands(get_command(app))


def test_commands_of_every_module_are_found():
    assert {"account", "check", "data fetch", "fedavg", "new-paper", "trace", "tables"} <= set(COMMANDS)
    assert {"compare", "train", "run"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command):
    result = CliRunner().invoke(app, [*command.split(), "--help"])
    assert result.exit_code == 0 and f"Example: dpfl {command}" in " ".join(result.output.split())


def test_an_option_that_is_missing_is_status_2():
    assert CliRunner().invoke(app, ["train"]).exit_code == 2


def test_status_lists_what_waits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text("scale: demo\n")
    (tmp_path / "Snakefile").touch()
    done = CliRunner().invoke(app, ["status"])
    assert done.exit_code == 0
    assert "digits_scatter_linear_k10_seed0: waiting" in done.output and "lowy2021: jobs 0/2" in done.output


def test_status_reads_the_configuration_that_run_would_and_names_it(tmp_path, monkeypatch):
    """One's own settings lie over config.yaml; without any, --scale shows how that scale was last run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").touch()
    (tmp_path / "config.yaml").write_text("scale: demo\npapers: [lowy2021]\n")
    (tmp_path / "mine.yaml").write_text("training: {threads: 2}\n")
    (tmp_path / "results" / "demo").mkdir(parents=True)
    (tmp_path / "results" / "demo" / "config.yaml").write_text("scale: demo\npapers: [asoodeh2020]\n")

    def shown(*options):
        lines = CliRunner().invoke(app, ["status", *options]).output.splitlines()
        return lines[0], {line.split(":")[0] for line in lines if ": jobs " in line}

    assert shown() == ("scale demo (config.yaml):", {"lowy2021"})
    assert shown("--config", "mine.yaml") == ("scale demo (mine.yaml over config.yaml):", {"lowy2021"})
    assert shown("--scale", "demo") == ("scale demo (results/demo/config.yaml):", {"asoodeh2020"})


def test_the_help_has_groups_and_leaves_the_stages_out():
    plain, whole = (CliRunner().invoke(app, [option]).output for option in ("--help", "--stages"))
    assert plain.index(DAILY) < plain.index(CHECKING) and STAGES not in plain and STAGES in whole
    listed = [set(re.findall(r"^. ([a-z][a-z-]+) ", text, re.MULTILINE)) for text in (plain, whole)]
    assert listed[1] - listed[0] >= {"train", "tables", "data", "calibrate"} and {"run", "account"} <= listed[0]
    assert set(get_command(app).commands) == listed[1]


def test_the_help_imports_no_library_that_computes():
    """numpy alone would make it take half as long again, pandas or torch twice."""
    slow = {"numpy", "pandas", "torch", "scipy", "matplotlib"}
    code = f"import sys; from dpfl.cli import app; print({slow} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_shell_completes_commands():
    asked = {**os.environ, "_DPFL_COMPLETE": "complete_bash", "COMP_WORDS": "dpfl trai", "COMP_CWORD": "1"}
    words = [sys.executable, "-c", "import sys; sys.argv = ['dpfl']; from dpfl.cli import main; main()"]
    done = subprocess.run(words, env=asked, capture_output=True, text=True)
    assert done.stdout.split() == ["train", "train-batch"]


def test_a_command_runs_in_another_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    found = CliRunner().invoke(app, ["--directory", "there", "status"]).exception
    assert isinstance(found, InputError) and os.getcwd() == str(tmp_path / "there")
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["--directory", "nowhere", "status"]).exception
    assert isinstance(found, InputError) and "nowhere is not a folder" in str(found)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("check claims.json", 2),
        ("account --help", 2),
        ("--directory there check claims.json --version", 2),
        ("--help", 0),
        ("--directory check --version", 0),
        ("--directory=check --stages", 0),
    ],
)
def test_a_command_that_did_nothing_never_ends_with_status_0(monkeypatch, capsys, words, status):
    """An old typer with a new click prints the version and ends, whatever it is asked."""
    monkeypatch.setattr("dpfl.cli.app", lambda **_: 0)
    monkeypatch.setattr(sys.modules["dpfl.cli.app"].Commands, "ran", False)
    monkeypatch.setattr(sys, "argv", ["dpfl", *words.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == status and ("no command was run" in capsys.readouterr().err) == (status == 2)
