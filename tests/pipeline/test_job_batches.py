"""Batches: which jobs share one, and what becomes of those that a batch had finished when it was ended."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.files import record_path
from dpfl.grid import configuration, expansion
from dpfl.pipeline import job_batches
from dpfl.pipeline.cost import SHARED_SPEED, estimate
from dpfl.pipeline.job_batches import BatchTraining, keep, kept_folder, put_all_back
from dpfl.pipeline.process_cleanup import CONTROLLER, WATCHED


@pytest.fixture(scope="module")
def jobs():
    return expansion.expand(configuration.resolve({"scale": "paper"}))


def keys(found):
    return sorted((job.paper, job.name) for job in found)


@settings(max_examples=15, deadline=None)
@given(cores=st.integers(2, 16), memory_mb=st.floats(4000, 64000), part=st.integers(1, 7))
def test_every_job_is_trained_once_and_a_batch_fits_a_node(jobs, cores, memory_mb, part):
    some = jobs[::part]
    made, alone = job_batches.divide(some, cores, memory_mb)
    assert keys([*alone, *(job for batch in made for job in batch.jobs)]) == keys(some)
    for batch in made:
        costs = [estimate(job) for job in batch.jobs]
        assert len({(job.paper, job.dataset) for job in batch.jobs}) == 1 < len(batch.jobs)
        assert 2 <= batch.cores <= cores and batch.limit_mb(1) <= memory_mb + 1
        assert all(cost.is_short for cost in costs)
        assert batch.seconds >= sum(cost.seconds for cost in costs) / SHARED_SPEED / batch.cores - 1e-6
        assert 60 * batch.limit_minutes(1) >= 3 * batch.seconds
    assert len({batch.rule for batch in made}) == len(made)


def test_one_core_makes_no_batch_and_a_gpu_is_never_shared(jobs):
    assert job_batches.divide(jobs, 1) == ([], jobs)
    cuda = expansion.expand(configuration.resolve({"scale": "paper", "training": {"device": "cuda"}}))
    made, _ = job_batches.divide(cuda, 4)
    assert made and not any(estimate(job).gpus for batch in made for job in batch.jobs)


def test_what_is_written_for_the_nodes_is_read_there(jobs, tmp_path):
    made, alone = job_batches.divide(jobs, 4)
    known = {(job.paper, job.name): job for job in jobs}
    cores = {(job.paper, job.name): number for number, job in enumerate(alone, 1)}
    job_batches.write(made, cores, tmp_path / "batches.json")
    read, read_cores = job_batches.read(tmp_path / "batches.json", known)
    assert [(b.rule, b.jobs, b.cores) for b in read] == [(b.rule, b.jobs, b.cores) for b in made]
    assert read_cores == {key: count for key, count in cores.items() if count > 1}
    assert job_batches.read(tmp_path / "none.json", known) == ([], {})


# A batch that was ended: what it had finished is kept, whatever Snakemake deletes, and is not trained again.


RESULTS = Path("results/demo")


@pytest.fixture
def four(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return expansion.expand(configuration.resolve({"papers": ["lowy2021"], "seeds": [0]}))[:4]


@pytest.fixture
def trainer(four, finish, tmp_path, monkeypatch):
    """A program in place of Python: it copies the finished table of its job into place, slowly; notes each call.

    A job that is named in the file `fails` fails with a message; one in `hangs` waits to be ended.
    """
    made = Path("made")
    for job in four:
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
    return expansion.run_table_path(RESULTS, job.paper, job.name)


def calls():
    return Path("calls").read_text().split()


def snakemake_deletes_outputs(jobs):
    for job in jobs:
        table(job).unlink(missing_ok=True)
        record_path(table(job)).unlink(missing_ok=True)


def test_one_that_fails_leaves_the_others_finished_and_they_are_not_trained_again(four, trainer, capfd):
    Path("fails").write_text(four[1].name)
    first = BatchTraining.of(four, RESULTS, Path("config.yaml"), 2)
    first.run()
    assert first.failed == [four[1]] and len(first.trained) == 3
    assert "no such thing" in capfd.readouterr().err
    snakemake_deletes_outputs(four)
    Path("fails").unlink()
    again = BatchTraining.of(four, RESULTS, Path("config.yaml"), 2)
    again.run()
    assert again.trained == [four[1]] and not again.failed
    assert sorted(calls()) == sorted([*(job.name for job in four), four[1].name])
    assert all(table(job).is_file() for job in four)
    assert capfd.readouterr().err.count("was finished before") == 3
    text = (RESULTS / f"benchmarks/train_lowy2021_{four[0].name}.tsv").read_text()
    assert text.startswith("s\tmax_rss\tcpu_time\n")


def test_as_many_train_at_a_time_as_there_are_cores(four, trainer, monkeypatch):
    seen, start = [], BatchTraining._start
    monkeypatch.setattr(BatchTraining, "_start", lambda self, s: (start(self, s), seen.append(len(self.running))))
    BatchTraining.of(four, RESULTS, Path("config.yaml"), 3).run()
    assert max(seen) == 3 and len(seen) == 4


def test_a_batch_that_is_ended_ends_what_it_trains_and_keeps_what_is_done(four, trainer, monkeypatch):
    Path("hangs").write_text(four[3].name)
    training = BatchTraining.of([four[3], four[0]], RESULTS, Path("config.yaml"), 2)

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
    snakemake_deletes_outputs(four)
    put_all_back(four, RESULTS)
    assert [table(job).is_file() for job in four] == [True, False, False, False]
    assert not (kept_folder(RESULTS) / "runs").exists()


def test_a_run_of_a_narrower_configuration_leaves_what_others_have_kept(four, trainer):
    first, other = four[:2]
    BatchTraining.of([first, other], RESULTS, Path("config.yaml"), 1).run()
    snakemake_deletes_outputs(four)
    put_all_back([first], RESULTS)
    assert [table(job).is_file() for job in (first, other)] == [True, False]
    put_all_back([other], RESULTS)
    assert table(other).is_file() and not kept_folder(RESULTS).exists()


def test_a_kept_run_of_other_settings_is_trained_anew(four, trainer):
    first, other = four[:2]
    BatchTraining.of([other], RESULTS, Path("config.yaml"), 1).run()
    table(other).rename(table(first))
    record_path(table(other)).rename(record_path(table(first)))
    keep(first, RESULTS)
    snakemake_deletes_outputs(four)
    BatchTraining.of([first], RESULTS, Path("config.yaml"), 1).run()
    assert calls() == [other.name, first.name]


def test_processes_that_train_know_whom_they_end_with_and_who_watches_the_limit(four, trainer, monkeypatch):
    seen, popen = [], subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *words, **more: (seen.append(more["env"]), popen(*words, **more))[1]
    )
    BatchTraining.of(four[:1], RESULTS, Path("config.yaml"), 1).run()
    assert seen[0][CONTROLLER] == str(os.getpid()) and seen[0][WATCHED] == "1"
