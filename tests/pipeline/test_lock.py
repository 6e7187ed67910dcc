"""One run at a time; a lock is stale only when nobody runs."""

import errno
import os
import re
import subprocess
import sys
import time

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from dpfl.cli import app
from dpfl.cli.app import StageCommand
from dpfl.errors import InputError
from dpfl.pipeline import lock, process_cleanup

HOLDER = """
import time
from dpfl.pipeline.lock import only_run
with only_run():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".snakemake").mkdir()
    return tmp_path


def hold():
    """Another process that holds the lock of the working folder."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    return holder


def test_a_second_run_is_refused_and_told_who_is_at_work(folder):
    holder = hold()
    with pytest.raises(InputError, match=rf"another run .*process {holder.pid}"), lock.only_run():
        pass
    assert time.time() - lock.running_since() < 60
    holder.kill()
    holder.wait()
    assert lock.running_since() is None
    with lock.only_run():
        pass


def test_a_file_system_without_locks_is_one_line(folder, monkeypatch):
    def unknown(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    (folder / ".snakemake" / "dpfl.lock").touch()
    monkeypatch.setattr(lock.fcntl, "flock", unknown)
    for locked in (lock.only_run, lock.beside_no_run, lambda: lock.alone_in(folder)):
        with pytest.raises(InputError, match=r"cannot be locked \(Function not implemented\): work on a"), locked():
            pass


STAGE = """
import time
from dpfl.pipeline.lock import beside_no_run
with beside_no_run():
    print("held", flush=True)
    time.sleep(60)
"""


def test_no_run_begins_beside_a_stage_that_was_started_by_hand_and_other_stages_may(folder, monkeypatch):
    monkeypatch.delenv(process_cleanup.CONTROLLER, raising=False)
    (folder / "Snakefile").touch()
    stage = subprocess.Popen([sys.executable, "-c", STAGE], stdout=subprocess.PIPE, text=True)
    assert stage.stdout.readline() == "held\n"
    with pytest.raises(InputError, match="a stage that was started by hand is at work"), lock.only_run():
        pass
    with lock.beside_no_run():
        assert lock.running_since() is None
    stage.kill()
    stage.wait()
    with lock.only_run():
        pass


def test_a_stage_leaves_no_lock_in_a_folder_that_is_no_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(process_cleanup.CONTROLLER, raising=False)
    with lock.beside_no_run():
        assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_has_no_run(folder, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match=r"\.snakemake cannot be written: .* read-only"), lock.only_run():
        pass


def test_the_lock_lives_as_long_as_a_child_that_inherited_it(folder):
    with lock.only_run() as descriptor:
        child = subprocess.Popen(["sleep", "60"], pass_fds=[descriptor])
    assert lock.running_since() is not None
    child.kill()
    child.wait()
    assert lock.running_since() is None


def test_a_snakemake_started_without_the_lock_is_a_run_and_one_inside_a_job_is_none(folder):
    asleep = [sys.executable, "-c", "import time; time.sleep(60)", "snakemake"]
    shell = ["sh", "-c", "sleep 60; : python -m snakemake --nolock"]
    in_a_job, its_shell, started = map(subprocess.Popen, ([*asleep, "--nolock"], shell, asleep))
    while not lock._snakemakes(folder):
        time.sleep(0.05)
    with pytest.raises(InputError, match=rf"another run .*process {started.pid}"), lock.only_run():
        pass
    started.kill()
    started.wait()
    with lock.only_run():
        pass
    for process in (in_a_job, its_shell):
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("python -m snakemake --cores 2", True),
        ("/env/bin/python /env/bin/snakemake --profile workflow/profiles/default", True),
        ("/nix/bin/.snakemake-wrapped --cores 1", True),
        ("python /env/lib/snakemake/__main__.py all", True),
        ("python -m snakemake --cores 2 --nolock", False),
        ("snakemake -np", False),
        ("snakemake --report=x.html", False),
        ("snakemake --report=x.html --report-after-run", True),
        ("snakemake -S", False),
        ("snakemake --lt", False),
        ("snakemake -l", False),
        ("tail -f .snakemake/log/2026.snakemake.log", False),
        ("python tool/__main__.py", False),
        ("", False),
    ],
)
def test_which_commands_run_a_workflow(command, runs):
    assert lock._runs_a_workflow(command.split()) is runs


def test_snakemake_s_lock_is_stale_to_the_holder_of_ours(folder):
    with lock.only_run():
        assert not lock.is_stale()
        (folder / ".snakemake" / "locks").mkdir()
        (folder / ".snakemake" / "locks" / "0.output.lock").write_text("results\n")
        assert lock.is_stale()


def test_no_run_was_ever_here(folder):
    assert lock.running_since() is None


def stages(repository):
    """The commands that rules of the workflow call, each as words."""
    rules = "\n".join(path.read_text() for path in sorted((repository / "workflow" / "rules").glob("*.smk")))
    called = set(re.findall(r'^ +f"\{DPFL\} (data [a-z]+|[a-z-]+) ', rules, re.MULTILINE)) | {"tables", "figures"}
    return sorted(words.split() for words in called - {"gpu"})


def test_a_stage_by_hand_is_refused_while_a_run_is_at_work_and_its_own_stages_are_not(folder, monkeypatch, repository):
    refused = "another run is at work in this folder"
    monkeypatch.delenv(process_cleanup.CONTROLLER, raising=False)
    assert len(stages(repository)) == 9
    for words in stages(repository):
        command = get_command(app)
        for word in words:
            command = command.commands[word]
        assert isinstance(command, StageCommand), words
    by_hand = ["tables", "--paper", "lowy2021"]
    with lock.only_run(what="dpfl pages"):
        for words in (by_hand, ["crate", "results/demo"], ["report"], ["audit", "--seal", "results/demo"]):
            assert refused in str(CliRunner().invoke(app, words).exception), words
        assert CliRunner().invoke(app, ["tables", "--help"]).exit_code == 0
        monkeypatch.setenv(process_cleanup.CONTROLLER, "1")
        assert refused not in str(CliRunner().invoke(app, by_hand).exception)
    monkeypatch.delenv(process_cleanup.CONTROLLER)
    assert refused not in str(CliRunner().invoke(app, by_hand).exception)
    other = folder / "other" / "results" / "demo"
    other.mkdir(parents=True)
    seal = ["audit", "--seal", str(other)]
    with lock.only_run(folder / "other", "dpfl pages"):
        assert refused in str(CliRunner().invoke(app, seal).exception)
    with lock.only_run(what="dpfl pages"):  # of the folder where one stands, not of the results
        assert refused not in str(CliRunner().invoke(app, seal).exception)
    monkeypatch.setattr(lock, "_snakemakes", lambda _: [7])
    assert "(process 7)" in str(CliRunner().invoke(app, by_hand).exception)
