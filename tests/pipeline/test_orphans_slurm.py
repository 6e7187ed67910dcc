"""Jobs left in a queue, with commands that stand in for SLURM's; tests/slurm asks the real ones."""

import threading

import pytest

from dpfl.errors import InputError
from dpfl.pipeline import process_cleanup


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
