"""A command is skipped only if no byte that it reads or wrote has changed since it ended well."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpfl.cli import app, report_commands, workflow_commands
from dpfl.pipeline import run, unchanged
from dpfl.pipeline.unchanged import code_state, data_state, forget, note, results_state, said_when_done

CONFIG = {"scale": "demo", "data": {"folder": "data"}}
PAGE, TABLE, DATA = Path("results/demo/report.html"), Path("results/demo/tables/a.csv"), Path("data/arrays/x.npy")
CODE = Path("src/dpfl/a.py")


def put(path, text="one\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def project(tmp_path, monkeypatch, repository):
    """A project with a file of each kind, and a cache of its own."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for path in (PAGE, TABLE, DATA, CODE, Path("workflow/rules/a.smk"), Path("Snakefile"), Path("checkpoints/demo/x")):
        put(path)
    shutil.copy(repository / "config.yaml", folder)
    Path(".snakemake").mkdir()  # as a run leaves it
    return folder


def test_without_a_home_folder_nothing_is_noted_and_nothing_fails(project, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    note("run", "demo", states())
    forget("run", "demo")
    assert said_when_done("run", "demo", states()) is None


def states():
    return [code_state("fact"), results_state("demo"), data_state(CONFIG)]


def replace_by_a_link(path):
    path.rename("elsewhere")
    path.symlink_to(Path("elsewhere").absolute())


def write_again(path):
    put(path)
    os.utime(path, (1, 1))


EDITS = {
    "a result": (1, lambda: put(TABLE, "two\n")),
    "a result, of the same time": (1, lambda: (put(TABLE, "two\n"), os.utime(TABLE, (1, 1)))),
    "a new result": (1, lambda: put(TABLE.with_name("b.csv"))),
    "a result that is gone": (1, TABLE.unlink),
    "a result by another name": (1, lambda: TABLE.rename(TABLE.with_name("b.csv"))),
    "a result that is a link": (1, lambda: replace_by_a_link(TABLE)),
    "a folder that is a link": (1, lambda: replace_by_a_link(TABLE.parent)),
    "a page of the report, in a folder": (1, lambda: put(Path("results/demo/tables/report.html"))),
    "code": (0, lambda: put(CODE, "two\n")),
    "the workflow": (0, lambda: put(Path("workflow/rules/a.smk"), "two\n")),
    "the Snakefile": (0, lambda: put(Path("Snakefile"), "two\n")),
    "the settings": (0, lambda: put(Path("config.yaml"), "two\n")),
    "no Snakefile": (0, lambda: Path("Snakefile").unlink()),
    "data of another size": (2, lambda: put(DATA, "three\n")),
    "data of another time": (2, lambda: os.utime(DATA, (1, 1))),
    "data that are gone": (2, DATA.unlink),
    "a checkpoint": (2, lambda: put(Path("checkpoints/demo/y"))),
}
SAME = {
    "a page of the report": lambda: put(PAGE, "two\n"),
    "a result written again": lambda: write_again(TABLE),
    "code written again": lambda: write_again(CODE),
    "compiled code": lambda: put(CODE.parent / "__pycache__" / "a.pyc"),
    "another scale": lambda: put(Path("results/paper/tables/a.csv")),
    "a log at the root": lambda: put(Path("nohup.out")),
}


@pytest.mark.parametrize(("part", "edit"), EDITS.values(), ids=EDITS)
def test_an_edit_changes_the_state_of_its_part_alone(project, part, edit):
    before = states()
    edit()
    assert [number for number, (one, two) in enumerate(zip(before, states(), strict=True)) if one != two] == [part]


@pytest.mark.parametrize("edit", SAME.values(), ids=SAME)
def test_what_no_command_reads_changes_no_state(project, edit):
    before = states()
    edit()
    assert states() == before and all(before)


def test_another_setting_or_package_is_another_state(project, tmp_path, monkeypatch):
    before = code_state("fact")
    assert code_state("another") != before
    (tmp_path / "site" / "torch-2.13.0.dist-info").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert code_state("fact") not in ("", before)


def test_code_that_is_installed_elsewhere_counts(project, tmp_path, monkeypatch):
    put(tmp_path / "installed/dpfl/b.py")
    monkeypatch.setattr(unchanged, "_PACKAGE", tmp_path / "installed" / "dpfl")
    before = code_state()
    put(tmp_path / "installed/dpfl/b.py", "two\n")
    assert code_state() != before


# What is noted of a command.


def test_a_command_that_ended_well_says_again_what_it_said(project):
    note("report", "demo", states(), [PAGE], ["a line", "another"])
    assert said_when_done("report", "demo", states()) == ["a line", "another"]
    assert said_when_done("report", "paper", states()) is None and said_when_done("crate", "demo", states()) is None
    forget("report", "demo")
    assert said_when_done("report", "demo", states()) is None


@pytest.mark.parametrize("change", [PAGE.unlink, lambda: put(PAGE, "two\n"), lambda: replace_by_a_link(PAGE)])
def test_what_it_wrote_has_to_be_there_as_it_was(project, change):
    note("report", "demo", states(), [PAGE])
    assert said_when_done("report", "demo", states()) == []
    change()
    assert said_when_done("report", "demo", states()) is None


def test_a_note_is_of_one_folder_and_lies_outside_it(project, tmp_path):
    note("run", "demo", states())
    [noted] = (tmp_path / "cache").rglob("run-demo.json")
    assert not list(project.rglob("run-demo.json"))
    os.rename(project, tmp_path / "moved")
    os.chdir(tmp_path / "moved")
    assert said_when_done("run", "demo", states()) is None
    os.chdir(tmp_path)
    os.rename(tmp_path / "moved", project)
    os.chdir(project)
    assert said_when_done("run", "demo", states()) == []
    for text in ("", "[]", "{", noted.read_text().replace("unchanged/1", "unchanged/0")):
        noted.write_text(text)
        assert said_when_done("run", "demo", states()) is None


def test_nothing_is_noted_of_what_is_not_known(project, tmp_path):
    replace_by_a_link(TABLE)
    note("run", "demo", states())
    assert not list((tmp_path / "cache").rglob("*.json")) and said_when_done("run", "demo", states()) is None


def test_without_a_cache_commands_run(project, tmp_path):
    (tmp_path / "cache").touch()
    note("run", "demo", states())
    forget("run", "demo")
    assert said_when_done("run", "demo", states()) is None


# The commands of `make`; what they do in earnest is tested in tests/workflow.


def test_a_run_that_ended_well_is_not_repeated_until_something_changes(project, monkeypatch):
    runs, ends = [], iter([1, 0, 0, 0, 0])
    monkeypatch.setattr(workflow_commands, "_run_anyway", lambda *words: runs.append(words) or next(ends))
    for done, (edit, count) in {
        "fails": (lambda: None, 1),
        "is repeated": (lambda: None, 2),
        "has nothing to do": (lambda: None, 2),
        "has a lost table": (TABLE.unlink, 3),
        "has nothing to do again": (lambda: None, 3),
    }.items():
        edit()
        shown = CliRunner().invoke(app, ["run", "--scale", "demo"])
        assert len(runs) == count and ("nothing to do" in shown.output) is ("nothing" in done), done
    for words in (["--dry-run"], ["--", "--cores", "1"]):
        CliRunner().invoke(app, ["run", "--scale", "demo", *words])
    assert len(runs) == 5


@pytest.mark.parametrize(("words", "is_kept"), [(["--dry-run"], True), (["--", "-n"], True), (["--", "-c1"], False)])
def test_a_run_with_options_that_is_killed_is_not_up_to_date(project, monkeypatch, repository, words, is_kept):
    """It may leave jobs in a cluster's queue before it has changed any file."""
    (project / "workflow" / "profiles").symlink_to(repository / "workflow" / "profiles")
    note("run", "demo", ["a state"])
    monkeypatch.setattr(run, "run", lambda *_, **__: 1)
    CliRunner().invoke(app, ["run", "--scale", "demo", *words])
    assert (said_when_done("run", "demo", ["a state"]) is not None) is is_kept


def test_code_that_is_edited_during_a_run_is_run_again(project, monkeypatch):
    runs = []

    def edited(*words):
        runs.append(words)
        if len(runs) == 1:
            put(CODE, "two\n")
        return 0

    monkeypatch.setattr(workflow_commands, "_run_anyway", edited)
    for count in (1, 2, 2):
        assert CliRunner().invoke(app, ["run", "--scale", "demo"]).exit_code == 0
        assert len(runs) == count


def test_a_report_is_made_again_if_something_has_changed(project, monkeypatch):
    made = []
    monkeypatch.setattr(
        report_commands, "_report", lambda folder, *_: made.append(put(PAGE)) or (["Read it"], [folder / PAGE.name])
    )
    for edit, count in ((list, 1), (list, 1), (lambda: put(PAGE, "two\n"), 2), (lambda: put(TABLE, "two\n"), 3)):
        edit()
        done = CliRunner().invoke(app, ["report"])
        assert done.exit_code == 0 and done.output == "Read it\n" and len(made) == count


def test_a_crate_is_written_again_if_something_has_changed(project, monkeypatch):
    made, path = [], Path("results/demo.crate.zip")
    monkeypatch.setattr("dpfl.provenance.crate.write", lambda _: made.append(put(path)) or (path, True))
    edits = [(list, "written"), (list, "is up to date"), (path.unlink, "written"), (lambda: put(TABLE, "2"), "written")]
    for edit, words in edits:
        edit()
        assert CliRunner().invoke(app, ["crate", f"{Path.cwd()}/results/demo/"]).output == f"{path} {words}\n"
    assert len(made) == 3


def test_what_is_skipped_imports_little(project):
    """Two thirds of the time of a second `make` went into imports."""
    path = Path("results/demo.crate.zip")
    put(path)
    note("crate", "demo", [code_state(), results_state("demo")], [path], ["as before"])
    words = [sys.executable, "-X", "importtime", "-m", "dpfl", "crate", "results/demo"]
    done = subprocess.run(words, capture_output=True, text=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.stdout == "as before\n" and "dpfl.pipeline.unchanged" in imported
    assert not imported & {"pandas", "scipy", "torch", "matplotlib", "snakemake", "rocrate"}
