"""A batch that was ended: what it had finished is kept, whatever Snakemake deletes, and is not trained again."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dpfl.files import record_path
from dpfl.grid import configuration, expansion
from dpfl.pipeline.batches import BatchTraining, keep, kept_folder, put_all_back
from dpfl.pipeline.process_cleanup import CONTROLLER, WATCHED

RESULTS = Path("results/demo")


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return expansion.expand(configuration.resolve({"papers": ["lowy2021"], "seeds": [0]}))[:4]


@pytest.fixture
def trainer(jobs, finish, tmp_path, monkeypatch):
    """A program in place of Python: it copies the finished table of its job into place, slowly; notes each call.

    A job that is named in the file `fails` fails with a message; one in `hangs` waits to be ended.
    """
    made = Path("made")
    for job in jobs:
        finish(job, RESULTS)
    RESULTS.rename(made)
    script = tmp_path / "python"
    script.write_text(
        '#!/bin/sh\nname=$7\necho "$name" >> calls\n'
        'grep -qx "$name" fails 2>/dev/null && { echo "dpfl: no such thing" >&2; exit 2; }\n'
        'if grep -qx "$name" hangs 2>/dev/null; then exec sleep 600; fi\n'
        f"sleep 0.3; mkdir -p {RESULTS}/runs/$5; cp {made}/runs/$5/$name.* {RESULTS}/runs/$5/\n"
    )
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    return tmp_path


def table(job):
    return expansion.run_table(RESULTS, job.paper, job.name)


def calls():
    return Path("calls").read_text().split()


def snakemake_deletes_outputs(jobs):
    for job in jobs:
        table(job).unlink(missing_ok=True)
        record_path(table(job)).unlink(missing_ok=True)


def test_one_that_fails_leaves_the_others_finished_and_they_are_not_trained_again(jobs, trainer, capfd):
    Path("fails").write_text(jobs[1].name)
    first = BatchTraining.of(jobs, RESULTS, Path("config.yaml"), 2)
    first.run()
    assert first.failed == [jobs[1]] and len(first.trained) == 3
    assert "no such thing" in capfd.readouterr().err
    snakemake_deletes_outputs(jobs)
    Path("fails").unlink()
    again = BatchTraining.of(jobs, RESULTS, Path("config.yaml"), 2)
    again.run()
    assert again.trained == [jobs[1]] and not again.failed
    assert sorted(calls()) == sorted([*(job.name for job in jobs), jobs[1].name])
    assert all(table(job).is_file() for job in jobs)
    assert capfd.readouterr().err.count("was finished before") == 3
    text = (RESULTS / f"benchmarks/train_lowy2021_{jobs[0].name}.tsv").read_text()
    assert text.startswith("s\tmax_rss\tcpu_time\n")


def test_as_many_train_at_a_time_as_there_are_cores(jobs, trainer, monkeypatch):
    seen, start = [], BatchTraining._start
    monkeypatch.setattr(BatchTraining, "_start", lambda self, s: (start(self, s), seen.append(len(self.running))))
    BatchTraining.of(jobs, RESULTS, Path("config.yaml"), 3).run()
    assert max(seen) == 3 and len(seen) == 4


def test_a_batch_that_is_ended_ends_what_it_trains_and_keeps_what_is_done(jobs, trainer, monkeypatch):
    Path("hangs").write_text(jobs[3].name)
    training = BatchTraining.of([jobs[3], jobs[0]], RESULTS, Path("config.yaml"), 2)

    def preempted(self):
        if self.trained:
            raise SystemExit(143)
        reap(self)

    reap = BatchTraining._reap
    monkeypatch.setattr(BatchTraining, "_reap", preempted)
    with pytest.raises(SystemExit):
        training.run()
    [process] = training.running.values()
    assert process.popen.returncode == -signal.SIGTERM
    snakemake_deletes_outputs(jobs)
    put_all_back(jobs, RESULTS)
    assert [table(job).is_file() for job in jobs] == [True, False, False, False]
    assert not (kept_folder(RESULTS) / "runs").exists()


def test_a_run_of_a_narrower_configuration_leaves_what_others_have_kept(jobs, trainer):
    first, other = jobs[:2]
    BatchTraining.of([first, other], RESULTS, Path("config.yaml"), 1).run()
    snakemake_deletes_outputs(jobs)
    put_all_back([first], RESULTS)
    assert [table(job).is_file() for job in (first, other)] == [True, False]
    put_all_back([other], RESULTS)
    assert table(other).is_file() and not kept_folder(RESULTS).exists()


def test_a_kept_run_of_other_settings_is_trained_anew(jobs, trainer):
    first, other = jobs[:2]
    BatchTraining.of([other], RESULTS, Path("config.yaml"), 1).run()
    table(other).rename(table(first))
    record_path(table(other)).rename(record_path(table(first)))
    keep(first, RESULTS)
    snakemake_deletes_outputs(jobs)
    BatchTraining.of([first], RESULTS, Path("config.yaml"), 1).run()
    assert calls() == [other.name, first.name]


def test_processes_that_train_know_whom_they_end_with_and_who_watches_the_limit(jobs, trainer, monkeypatch):
    seen, popen = [], subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *words, **more: (seen.append(more["env"]), popen(*words, **more))[1]
    )
    BatchTraining.of(jobs[:1], RESULTS, Path("config.yaml"), 1).run()
    assert seen[0][CONTROLLER] == str(os.getpid()) and seen[0][WATCHED] == "1"
