"""What a failed run says last."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpfl.cli import app
from dpfl.errors import InputError
from dpfl.pipeline import run
from dpfl.pipeline.run import explain

LOG = """Select jobs to execute...
[Fri Nov 20 12:00:00 2026]
rule train:
    output: results/demo/runs/x.csv
[Fri Nov 20 12:00:01 2026]
Error in rule train:
    message: None
    jobid: 3
    output: results/demo/runs/x.csv
    log: {log} (check log file(s) for error details)
    shell:
        dpfl train --paper bhaskar2025
[Fri Nov 20 12:00:02 2026]
Finished jobid: 4 (Rule: tables)
Exiting because a job execution failed. Look below for error messages
"""


def test_the_rule_and_the_last_lines_of_its_log_are_named(tmp_path):
    own = tmp_path / "a folder" / "train.log"
    own.parent.mkdir()
    own.write_text("".join(f"line {number}\n" for number in range(20)))
    lines = list(explain(LOG.format(log=own)))
    assert lines == [f"dpfl: rule train failed; {own} ends with:", *(f"  line {number}" for number in range(15, 20))]


def test_a_log_that_is_not_there_and_a_run_without_failure():
    assert list(explain(LOG.format(log="gone.log"))) == ["dpfl: rule train failed; gone.log ends with:"]
    assert list(explain("nothing\n")) == [] and list(explain("")) == []


def test_a_snakemake_that_was_killed_is_told_with_the_command_to_continue(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").touch()
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nkill -9 $$\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    assert run.run([], again="make demo") == -9
    said = capfd.readouterr().err.splitlines()
    assert said[-2:] == [
        "dpfl: Snakemake was ended by SIGKILL",
        "dpfl: not finished; what is done is kept. Continue with: make demo",
    ]


@pytest.mark.parametrize("spelling", ["-n", "-np", "--dryrun", "--dry-run"])
def test_a_dry_run_of_any_spelling_removes_nothing_and_takes_no_lock(tmp_path, monkeypatch, spelling):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").touch()
    words = tmp_path / "words"
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/sh\necho "$@" > {words}\n')
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    monkeypatch.setattr(run, "remove_damaged_pages", lambda _: pytest.fail("pages were looked for, to be removed"))
    assert run.run(["--cores", "1", spelling], again="make demo", results=tmp_path / "results") == 0
    assert words.read_text() == f"-m snakemake --cores 1 {spelling}\n" and not (tmp_path / ".snakemake").exists()


@pytest.mark.parametrize("cores", ["-c0", "--cores=-5"])
def test_a_run_on_no_core_does_not_begin(tmp_path, monkeypatch, cores):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").touch()
    with pytest.raises(InputError, match="at least 1"):
        run.run([cores], again="make demo")
    assert [path.name for path in tmp_path.iterdir()] == ["Snakefile"]


@pytest.mark.parametrize(
    ("options", "again"),
    [
        ([], "make demo"),
        (["--scale", "paper", "--profile", "slurm"], "make paper PROFILE=slurm"),
        (["--config", "my own.yaml"], "make demo 'CONFIG=my own.yaml'"),
    ],
)
def test_the_command_to_continue_is_the_one_that_was_given(repository, tmp_path, monkeypatch, options, again):
    told = []
    monkeypatch.chdir(tmp_path)
    for name in ("config.yaml", "workflow"):
        Path(name).symlink_to(repository / name)
    Path("my own.yaml").write_text("seeds: [1]")
    monkeypatch.setattr(run, "run", lambda arguments, again, **_: told.append(again) or 0)
    assert CliRunner().invoke(app, ["run", *options]).exit_code == 0
    assert told == [again]


def test_ctrl_c_is_said_once_by_the_command_line(tmp_path, monkeypatch, capfd):
    """Stages and the engine say it as well, each in its own words: nothing of that is repeated."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").touch()
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'dpfl: interrupted; run the same'\nsleep 1\nkill -INT $PPID\nsleep 0.2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    assert run.run([], again="make demo") == 130
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", ["a {b", "a}"])
def test_a_brace_in_the_path_is_one_line(tmp_path, monkeypatch, name):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "Snakefile").touch()
    monkeypatch.chdir(folder)
    with pytest.raises(InputError, match="brace in its path"):
        run.run([], again="make demo")
