"""One run at a time; a lock is stale only when nobody runs."""

import os
import subprocess
import sys
import time

import pytest

from dpfl.errors import InputError
from dpfl.pipeline import run

HOLDER = """
import time
from dpfl.pipeline.run import only_run
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
    with pytest.raises(InputError, match=rf"another run .*process {holder.pid}"), run.only_run():
        pass
    assert time.time() - run.running_since() < 60
    holder.kill()
    holder.wait()
    assert run.running_since() is None
    with run.only_run():
        pass


def test_a_folder_that_cannot_be_written_has_no_run(folder, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match=r"\.snakemake cannot be written: .* read-only"), run.only_run():
        pass


def test_the_lock_lives_as_long_as_a_child_that_inherited_it(folder):
    with run.only_run() as descriptor:
        child = subprocess.Popen(["sleep", "60"], pass_fds=[descriptor])
    assert run.running_since() is not None
    child.kill()
    child.wait()
    assert run.running_since() is None


def test_a_snakemake_started_without_the_lock_is_a_run_and_one_inside_a_job_is_none(folder):
    asleep = [sys.executable, "-c", "import time; time.sleep(60)", "snakemake"]
    shell = ["sh", "-c", "sleep 60; : python -m snakemake --nolock"]
    in_a_job, its_shell, started = map(subprocess.Popen, ([*asleep, "--nolock"], shell, asleep))
    while not run._snakemakes(folder):
        time.sleep(0.05)
    with pytest.raises(InputError, match=rf"another run .*process {started.pid}"), run.only_run():
        pass
    started.kill()
    started.wait()
    with run.only_run():
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
        ("tail -f .snakemake/log/2026.snakemake.log", False),
        ("python tool/__main__.py", False),
        ("", False),
    ],
)
def test_which_commands_run_a_workflow(command, runs):
    assert run._runs_a_workflow(command.split()) is runs


def test_snakemake_s_lock_is_stale_to_the_holder_of_ours(folder):
    with run.only_run():
        assert not run.is_stale()
        (folder / ".snakemake" / "locks").mkdir()
        (folder / ".snakemake" / "locks" / "0.output.lock").write_text("results\n")
        assert run.is_stale()


def test_no_run_was_ever_here(folder):
    assert run.running_since() is None
