"""A run that is asked to end, on a clock of its own."""

import subprocess

import psutil
import pytest

from dpfl.pipeline.run import ASK_SECONDS, Ending

NOBODY = 2**22 - 5  # a process id that is not there


@pytest.fixture
def clock(queue, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return [1000.0]


@pytest.fixture
def ending(clock):
    return Ending(lambda: clock[0])


def in_vain_after(ending, clock, seconds):
    """Whether Snakemake waits in vain at any time within the next `seconds`."""
    found = []
    for _ in range(int(seconds / ASK_SECONDS) + 1):
        found.append(ending.is_in_vain(NOBODY))
        clock[0] += ASK_SECONDS
    return any(found)


def test_snakemake_has_longer_than_it_takes_to_ask_again(ending, clock):
    assert not in_vain_after(ending, clock, 600), "nobody asked it to end"
    ending.begin()
    assert not in_vain_after(ending, clock, 200), "the plug-in asks every three minutes"
    assert in_vain_after(ending, clock, 100)


def test_a_job_in_the_queue_is_cancelled_and_begins_the_wait_anew(ending, clock, queue, tmp_path):
    ending.begin()
    assert not in_vain_after(ending, clock, 200)
    queue.write_text(f"1|RUNNING|rule_train|{tmp_path}\n")
    assert not in_vain_after(ending, clock, 200) and queue.read_text() == ""
    assert in_vain_after(ending, clock, 60)


def test_a_queue_that_does_not_answer_and_a_run_without_slurm_end_nothing(ending, clock, tmp_path):
    ending.begin()
    (tmp_path / "down").touch()
    assert not in_vain_after(ending, clock, 600)
    (tmp_path / "down").unlink()
    (tmp_path / ".snakemake" / "slurm_logs").rmdir()
    assert not in_vain_after(ending, clock, 600), "jobs of another batch system are not seen"


def test_a_stage_on_this_machine_is_waited_for(ending, clock):
    shell = subprocess.Popen(["sh", "-c", "sleep 60; true"])
    ending.begin()
    clock[0] += 1
    assert not ending.is_in_vain(shell.pid)
    clock[0] += 600
    assert not ending.is_in_vain(shell.pid)
    for child in psutil.Process(shell.pid).children():
        child.kill()
    shell.wait()
