"""Stages without their workflow, jobs left in a queue and jobs at their time limit; tests/slurm asks a real SLURM."""

import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from dpfl.errors import InputError
from dpfl.pipeline import process_cleanup
from dpfl.pipeline.process_cleanup import CONTROLLER, GONE, is_alive
from dpfl.pipeline.status import _is_failure

STAGE = """
import signal, sys, time
from dpfl.pipeline.process_cleanup import end_with_controller
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
end_with_controller()
print("started", flush=True)
try:
    time.sleep(60)
finally:
    print("tidied", flush=True)
"""


def start_stage(controller):
    """A stage process that watches `controller`; returns once it runs."""
    environment = {**os.environ, CONTROLLER: str(controller)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    stage = subprocess.Popen([sys.executable, "-c", STAGE], env=environment, **pipes, text=True)
    assert stage.stdout.readline() == "started\n"
    return stage


def test_a_killed_controller_takes_its_stage_along_which_tidies_up():
    controller = subprocess.Popen(["sleep", "60"])
    stage = start_stage(controller.pid)
    time.sleep(0.5)
    assert stage.poll() is None
    controller.kill()  # not reaped: a zombie counts as gone
    assert stage.wait(timeout=120) == 143
    assert stage.stdout.read() == "tidied\n"
    assert stage.stderr.read().startswith(GONE)
    controller.wait()


def test_without_a_controller_nothing_is_watched():
    stage = start_stage("")
    time.sleep(0.5)
    assert stage.poll() is None
    stage.kill()
    stage.wait()


def test_who_is_alive():
    process = subprocess.Popen(["sleep", "60"])
    assert is_alive(os.getpid()) and is_alive(process.pid)
    process.kill()
    process.wait()
    assert not is_alive(process.pid)


# Jobs left in a queue, with commands that stand in for SLURM's; tests/slurm asks the real ones.


def test_only_this_folders_jobs_of_a_workflow_are_cancelled(queue, tmp_path, capsys):
    here = tmp_path / "a folder | with a bar"
    here.mkdir()
    others = f"2|RUNNING|rule_train|{tmp_path}\n3|PENDING||{here}\n4|RUNNING|my own|{here}\n"
    queue.write_text(f"1|PENDING|rule_train_wildcards_x|{here}\n{others}5_1|RUNNING|group_verdicts|{here}\n")
    assert process_cleanup.queued(here) == [
        ("1", "PENDING", "rule_train_wildcards_x"),
        ("5_1", "RUNNING", "group_verdicts"),
    ]
    process_cleanup.cancel_left_behind(here)
    assert queue.read_text() == others and "left 2 SLURM jobs" in capsys.readouterr().err


def test_without_slurm_nothing_is_done(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    process_cleanup.cancel_left_behind(tmp_path)
    assert process_cleanup.queued(tmp_path) == [] and capsys.readouterr().err == ""


def test_a_squeue_that_fails_says_nothing_about_jobs_that_were_submitted_from_here(queue, tmp_path, monkeypatch):
    queue.write_text(f"1|RUNNING|rule_train|{tmp_path}\n")
    (tmp_path / "down").touch()
    assert process_cleanup.queued(tmp_path) is None
    assert process_cleanup.queued(tmp_path / "fake") == []  # from there nothing was submitted
    monkeypatch.setattr(process_cleanup, "_ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(process_cleanup, "_ASK_SECONDS", 0.1)
    with pytest.raises(InputError, match="squeue fails"):
        process_cleanup.cancel_left_behind(tmp_path)
    assert queue.read_text()


def test_a_squeue_that_fails_for_a_moment_is_asked_again(queue, tmp_path, monkeypatch):
    monkeypatch.setattr(process_cleanup, "_ASK_SECONDS", 0.1)
    queue.write_text(f"1|RUNNING|rule_train|{tmp_path}\n")
    (tmp_path / "down").touch()
    threading.Timer(0.5, (tmp_path / "down").unlink).start()
    process_cleanup.cancel_left_behind(tmp_path)
    assert queue.read_text() == ""


def test_the_queue_is_asked_by_a_number_that_every_slurm_takes(queue, tmp_path):
    """--me came with SLURM 20.02."""
    (tmp_path / "fake" / "squeue").write_text(
        f"#!/bin/sh\ncase \"$*\" in *--me*) exit 1 ;; esac\necho '1|RUNNING|rule_train|{tmp_path}'\n"
    )
    assert process_cleanup.queued(tmp_path) == [("1", "RUNNING", "rule_train")]


def test_jobs_that_do_not_end_are_no_empty_queue(queue, tmp_path, monkeypatch):
    (tmp_path / "fake" / "scancel").write_text("#!/bin/sh\nexit 1\n")
    queue.write_text(f"17|RUNNING|rule_train|{tmp_path}\n")
    monkeypatch.setattr(process_cleanup, "_CANCEL_SECONDS", 0.2)
    monkeypatch.setattr(process_cleanup, "_ASK_SECONDS", 0.1)
    with pytest.raises(InputError, match="1 SLURM jobs of this folder do not end, as 17"):
        process_cleanup.cancel_left_behind(tmp_path)


# A job at its time limit, with commands that stand in for SLURM's; tests/slurm asks the real ones.


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("59", 59), ("1:05", 65), ("2:00:00", 7200), ("1-00:00:01", 86401), ("UNLIMITED", None), ("INVALID", None)],
)
def test_times_as_slurm_writes_them(text, seconds):
    assert process_cleanup.parse_left(text) == seconds


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A job that has four seconds left, on a clock of its own: who sleeps there does not wait.

    The file `requeued` names the jobs that were requeued.
    """
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds
        (tmp_path / "now").write_text(f"{now[0]:.0f}")

    sleep(0.0)
    monkeypatch.setattr(process_cleanup, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now[0]))
    for name, body in {
        "squeue": f"expr 4 - $(cat {tmp_path}/now)",
        "scontrol": f'[ "$1" = requeue ] && echo "$2" >> {tmp_path}/requeued',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv(process_cleanup.WATCHED, raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    return tmp_path / "requeued"


def test_a_job_that_has_come_further_is_requeued_shortly_before_its_limit(slurm):
    process_cleanup._watch_time_left("17", lambda: True)
    assert slurm.read_text() == "17\n"


def test_a_queue_that_does_not_answer_at_first_is_asked_again(slurm, monkeypatch, tmp_path):
    answers = (tmp_path / "squeue").read_text().splitlines()[-1]
    (tmp_path / "squeue").write_text(
        f"#!/bin/sh\n[ -e {tmp_path}/asked ] || {{ touch {tmp_path}/asked; exit 1; }}\n{answers}\n"
    )
    monkeypatch.setattr(process_cleanup, "_LONGEST_POLL_SECONDS", 0.1)
    process_cleanup._watch_time_left("17", lambda: True)
    assert slurm.read_text() == "17\n"


def test_a_requeue_that_fails_is_tried_again_and_no_success(slurm, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(process_cleanup, "_AGAIN_SECONDS", 0.2)
    works = (tmp_path / "scontrol").read_text().splitlines()[-1]
    (tmp_path / "scontrol").write_text(
        f"#!/bin/sh\n[ -e {tmp_path}/asked ] || {{ touch {tmp_path}/asked; exit 1; }}\n{works}\n"
    )
    process_cleanup._watch_time_left("17", lambda: True)
    assert slurm.read_text() == "17\n"
    said = capfd.readouterr().err.splitlines()
    goes_back = "dpfl: interrupted by the time limit of job 17, which goes back into the queue"
    assert said == [
        goes_back,
        "dpfl: job 17 is not put back into the queue: scontrol requeue 17 fails",
        goes_back,
    ]
    assert [_is_failure(line) for line in said] == [False, True, False]


def test_a_requeue_that_never_works_ends_with_what_failed(slurm, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(process_cleanup, "_AGAIN_SECONDS", 0.2)
    (tmp_path / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    process_cleanup._watch_time_left("17", lambda: True)
    last = capfd.readouterr().err.splitlines()[-1]
    assert last == "dpfl: job 17 is not put back into the queue: scontrol requeue 17 fails" and _is_failure(last)


@pytest.mark.timeout(20)
def test_a_job_without_a_limit_is_left_alone(slurm, tmp_path):
    (tmp_path / "squeue").write_text("#!/bin/sh\necho UNLIMITED\n")
    process_cleanup._watch_time_left("17", lambda: True)
    assert not slurm.exists()


def test_one_that_has_not_runs_into_its_limit(slurm):
    process_cleanup._watch_time_left("17", lambda: False)
    assert not slurm.exists()


def test_nothing_watches_outside_slurm_or_under_a_batch(slurm, monkeypatch):
    monkeypatch.setattr(process_cleanup.threading, "Thread", lambda **_: pytest.fail("a thread was started"))
    monkeypatch.setenv(process_cleanup.WATCHED, "1")
    process_cleanup.requeue_before_limit(lambda: True)
    monkeypatch.delenv(process_cleanup.WATCHED)
    with monkeypatch.context() as container:
        container.setenv("PATH", "")
        process_cleanup.requeue_before_limit(lambda: True)
    monkeypatch.delenv("SLURM_JOB_ID")
    process_cleanup.requeue_before_limit(lambda: True)
