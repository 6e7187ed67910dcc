"""What a run on a cluster does with finished run tables of batches, with commands that stand in for SLURM's."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from dpfl.errors import InputError
from dpfl.grid import configuration, expansion
from dpfl.pipeline import process_cleanup, run
from dpfl.pipeline.batches import keep, kept_folder
from dpfl.provenance.run_identity import is_finished

RESULTS = Path("results/demo")


@pytest.fixture
def batch(queue, tmp_path, monkeypatch, finish):
    """A job that a batch has finished, with its copy; the batch is job 1, and deletes its outputs as it ends."""
    monkeypatch.chdir(tmp_path)
    Path("Snakefile").touch()
    job = expansion.expand(configuration.resolve({}))[0]
    table = finish(job, RESULTS)
    keep(job, RESULTS)
    queue.write_text(f"1|RUNNING|rule_train_x|{tmp_path}\n")
    ends = f"rm -f {table}*; sed -i '/^1|/d' {queue}"
    # SLURM's scancel comes back at once; the job ends when its processes have.
    (tmp_path / "fake" / "scancel").write_text(
        f"#!/bin/sh\n[ -s {queue} ] || exit 1\nsed -i 's/RUNNING/COMPLETING/' {queue}\n"
        f"(sleep 1.5; {ends}) >/dev/null 2>&1 &\n"
    )
    monkeypatch.setattr(process_cleanup, "_ASK_SECONDS", 0.2)
    return job


def snakemake(tmp_path, monkeypatch, body):
    """Put a script in the place of Snakemake."""
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\n{body}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))


def at_work(tmp_path, monkeypatch, body):
    """Put a script in the place of Snakemake, whose batch finishes a job before the `body`."""
    Path("jobs").rename("submitted")
    Path("checkpoints").rename("finished")
    Path("jobs").touch()
    snakemake(tmp_path, monkeypatch, f"cp submitted jobs; cp -r finished checkpoints; {body}")


def kept():
    return list(kept_folder(RESULTS).rglob("*.record.json"))


def test_what_a_batch_of_a_killed_controller_finished_stays(batch, tmp_path, monkeypatch):
    # As its onstart does: what is in the queue is cancelled, and gone when the first job starts.
    snakemake(tmp_path, monkeypatch, "scancel 1; sleep 2")
    assert run.run([], again="make demo", results=RESULTS, jobs=[batch]) == 0
    assert is_finished(batch, RESULTS) and not kept()


def test_what_an_interrupted_batch_finished_stays(batch, tmp_path, monkeypatch):
    at_work(tmp_path, monkeypatch, "scancel 1; exit 1")
    assert run.run([], again="make demo", results=RESULTS, jobs=[batch]) == 1
    while Path("jobs").read_text():
        time.sleep(0.2)
    assert is_finished(batch, RESULTS) and not kept()


def test_copies_stay_where_the_queue_does_not_say_that_the_batch_has_ended(batch, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(process_cleanup, "_ANSWER_SECONDS", 0.3)
    at_work(tmp_path, monkeypatch, "touch down; exit 1")
    assert run.run([], again="make demo", results=RESULTS, jobs=[batch]) == 1
    assert kept() and "squeue fails" in capfd.readouterr().err


def test_of_another_batch_system_copies_stay_until_a_run_ends_well(batch, tmp_path, monkeypatch):
    """Nothing says when its jobs have ended."""
    (tmp_path / ".snakemake" / "slurm_logs").rmdir()
    table = expansion.run_table(RESULTS, batch.paper, batch.name)
    at_work(tmp_path, monkeypatch, f"rm jobs; touch jobs; rm {table}; exit 1")
    assert run.run([], again="make demo", results=RESULTS, jobs=[batch]) == 1
    assert kept() and is_finished(batch, RESULTS)
    snakemake(tmp_path, monkeypatch, "exit 0")
    assert run.run([], again="make demo", results=RESULTS, jobs=[batch]) == 0
    assert not kept() and is_finished(batch, RESULTS)


def test_no_run_starts_next_to_jobs_that_may_live(batch, tmp_path, monkeypatch):
    monkeypatch.setattr(process_cleanup, "_ANSWER_SECONDS", 0.3)
    snakemake(tmp_path, monkeypatch, "touch started")
    Path("down").touch()
    with pytest.raises(InputError, match="squeue fails"):
        run.run([], again="make demo", results=RESULTS, jobs=[batch])
    assert kept() and not Path("started").exists()


def terminate_when_there_is(name):
    """Send SIGTERM to this process, as to `dpfl run`, once there is a file of this name."""

    def wait():
        while not Path(name).exists():
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


@pytest.mark.timeout(120)
def test_sigterm_cancels_the_jobs_and_waits_until_snakemake_has_seen_it(batch, tmp_path, monkeypatch, capfd):
    """Snakemake asks now and then whether its jobs have ended."""
    monkeypatch.setattr(run, "ASK_SECONDS", 0.2)
    monkeypatch.setattr(run, "PATIENCE_SECONDS", 20.0)
    monkeypatch.setattr(run, "_POLL_SECONDS", 0.2)
    at_work(tmp_path, monkeypatch, "trap '' TERM; touch ready; while [ -s jobs ]; do sleep 0.1; done; sleep 2; exit 1")
    terminate_when_there_is("ready")
    assert run.run([], again="make demo", results=RESULTS, jobs=[batch]) == 1
    assert is_finished(batch, RESULTS) and "killed" not in capfd.readouterr().err


@pytest.mark.timeout(60)
def test_a_snakemake_that_waits_for_forgotten_jobs_ends_after_sigterm(queue, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("Snakefile").touch()
    monkeypatch.setattr(run, "ASK_SECONDS", 0.1)
    monkeypatch.setattr(run, "PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(run, "_POLL_SECONDS", 0.2)
    fake = tmp_path / "python"
    fake.write_text(f"#!{sys.executable}\nimport signal, time\nsignal.signal(15, signal.SIG_IGN)\n")
    with fake.open("a") as stream:
        stream.write("open('ready', 'w').close()\nwhile True: time.sleep(1)\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    terminate_when_there_is("ready")
    assert run.run([], again="make demo") == -9
    assert "waits for jobs that are in no queue any more" in capfd.readouterr().err
