"""Jobs left in a queue, with commands that stand in for SLURM's; tests/slurm asks the real ones."""

import os

import pytest

from dpfl.pipeline import orphans


@pytest.fixture
def queue(tmp_path, monkeypatch):
    """A squeue and an scancel that keep their jobs in a file."""
    jobs = tmp_path / "jobs"
    for name, body in {
        "squeue": f"cat '{jobs}'",
        "scancel": f'for job in "$@"; do sed -i "/^$job|/d" \'{jobs}\'; done',
    }.items():
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return jobs


def test_only_this_folders_jobs_of_a_workflow_are_cancelled(queue, tmp_path, capsys):
    here = tmp_path / "a folder | with a bar"
    here.mkdir()
    others = f"2|RUNNING|rule_train|{tmp_path}\n3|PENDING||{here}\n4|RUNNING|my own|{here}\n"
    queue.write_text(f"1|PENDING|rule_train_wildcards_x|{here}\n{others}5_1|RUNNING|group_verdicts|{here}\n")
    assert orphans.queued(here)[0] == ("1", "PENDING", "rule_train_wildcards_x")
    assert orphans.left_behind(here) == ["1", "5_1"]
    orphans.cancel_left_behind(here)
    assert queue.read_text() == others and "left 2 SLURM jobs" in capsys.readouterr().err


def test_without_slurm_nothing_is_done(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    orphans.cancel_left_behind(tmp_path)
    assert orphans.left_behind(tmp_path) == [] and capsys.readouterr().err == ""
