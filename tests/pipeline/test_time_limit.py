"""A job at its time limit, with commands that stand in for SLURM's; tests/slurm asks the real ones."""

import os
import time

import pytest

from dpfl.pipeline import process_cleanup
from dpfl.pipeline.status import _is_failure


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("59", 59), ("1:05", 65), ("2:00:00", 7200), ("1-00:00:01", 86401), ("UNLIMITED", None), ("INVALID", None)],
)
def test_times_as_slurm_writes_them(text, seconds):
    assert process_cleanup.parse_left(text) == seconds


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A job that has a few seconds left; the file `requeued` names those that were requeued."""
    end = time.time() + 4
    for name, body in {
        "squeue": f"expr {end:.0f} - $(date +%s)",
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
    assert _is_failure(capfd.readouterr().err.splitlines()[1]) and not capfd.readouterr().err


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
