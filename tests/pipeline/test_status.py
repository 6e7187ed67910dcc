"""How far a scale is, from what lies on disk."""

import os
import re
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpfl.cli import app
from dpfl.errors import InputError
from dpfl.grid import configuration, expansion
from dpfl.pipeline import job_batches, status
from dpfl.pipeline.cost import estimate
from dpfl.pipeline.plan import stages
from dpfl.pipeline.process_cleanup import GONE
from dpfl.pipeline.status import JobState, job_status
from dpfl.progress import duration


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return next(each for each in expansion.expand(configuration.resolve({})) if each.paper == "bhaskar2025")


def put(path, text=""):
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def state(job, tmp_path, since=None):
    return job_status(job, tmp_path / "results" / "demo", since).state


def test_the_five_states(job, tmp_path, finish):
    folder = tmp_path / "results" / "demo"
    assert state(job, tmp_path) is JobState.WAITING
    put(tmp_path / "checkpoints" / "demo" / "bhaskar2025" / f"{job.name}-ab-cd.pt")
    assert state(job, tmp_path) is JobState.RESUMABLE
    log = put(folder / "logs" / f"train_bhaskar2025_{job.name}.log", "x y: 3 of 20 steps, about 2 min left\n")
    assert state(job, tmp_path) is JobState.RESUMABLE
    assert state(job, tmp_path, since=time.time() - 60) is JobState.RUNNING
    os.utime(log, (1, 1))
    assert state(job, tmp_path, since=time.time() - 60) is JobState.RESUMABLE
    put(log, "x y: 3 of 20 steps\ndpfl: the disk is full\n")
    failed = job_status(job, folder, None)
    assert failed.state is JobState.FAILED and failed.last_line == "dpfl: the disk is full"
    finish(job, Path("results/demo"))
    assert state(job, tmp_path) is JobState.DONE


@pytest.mark.parametrize("last", [f"{GONE} 7) has gone; this stage ends", "dpfl: interrupted; run the same command"])
def test_a_job_whose_run_was_ended_is_no_failure(job, tmp_path, last):
    put(tmp_path / f"results/demo/logs/train_bhaskar2025_{job.name}.log", f"x y: 3 of 20 steps\n{last}\n")
    assert state(job, tmp_path) is JobState.WAITING
    put(tmp_path / "checkpoints" / "demo" / "bhaskar2025" / f"{job.name}-ab-cd.pt")
    assert state(job, tmp_path) is JobState.RESUMABLE


def test_what_failed_before_the_run_at_work_waits_for_it(job, tmp_path):
    log = put(tmp_path / f"results/demo/logs/train_bhaskar2025_{job.name}.log", "dpfl: the disk is full\n")
    assert state(job, tmp_path) is JobState.FAILED
    assert state(job, tmp_path, since=log.stat().st_mtime + 1) is JobState.WAITING
    assert state(job, tmp_path, since=log.stat().st_mtime - 1) is JobState.FAILED


def test_every_stage_that_failed_is_named_with_its_last_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "data/logs/features_digits.log", "features: 3 of 9 images\ndpfl: cannot write x: No space left\n\n")
    put(tmp_path / "data/logs/arrays_digits.log", "a warning\n")
    put(tmp_path / "results/demo/logs/tables_lowy2021.log", "Traceback (most recent call last):\nKeyError: 'a'\n")
    put(tmp_path / "results/demo/logs/figures_lowy2021.log", "dpfl: interrupted; run the same command again\n")
    put(tmp_path / "results/demo/logs/audit.log", "a.csv changed since\n7 files checked, 1 findings\n")
    lines = list(status.lines(configuration.resolve({"papers": ["lowy2021"]})))
    assert [line for line in lines if "failed" in line] == [
        "features_digits: failed (dpfl: cannot write x: No space left)",
        "audit: failed (7 files checked, 1 findings)",
        "tables_lowy2021: failed (KeyError: 'a')",
    ]
    put(tmp_path / "results/demo/logs/audit.log", "7 files checked, 0 findings\n")
    assert not any("audit" in line for line in status.lines(configuration.resolve({"papers": ["lowy2021"]})))


def test_the_time_left_goes_by_jobs_of_the_same_kind(job, tmp_path, finish):
    resolved = configuration.resolve(
        {"papers": ["bhaskar2025"], "seeds": [0, 1], "only": {"model": ["scatter_linear"], "clients": [10]}}
    )
    first, second, *others = expansion.expand(resolved)
    assert first.calibration_key == second.calibration_key
    folder = tmp_path / "results" / "demo"
    finish(first, Path("results/demo"))
    put(folder / "benchmarks" / f"train_bhaskar2025_{first.name}.tsv", "s\th:m:s\n120.5\t0:02:00\n")
    lines = list(status.lines(resolved))
    assert lines[0].startswith(f"bhaskar2025: jobs 1/{2 + len(others)}, tables 0/")
    assert "no run is in progress here" in lines
    [(left, model)] = re.findall(r"about (.+) \((\d+) jobs by the cost model\)", lines[-1])
    # one job as long as the first, the others and the stages around them by the model, on a machine as slow as this
    around = [stage.seconds for stage in stages(resolved, [second, *others]) if not stage.is_done]
    slowdown = 120.5 / estimate(first).seconds
    expected = 120.5 + slowdown * (sum(estimate(each).seconds for each in others) + sum(around))
    assert left == duration(expected) and int(model) == len(others) + len(around)


def left(resolved):
    """The seconds left that the last line says."""
    [(number, unit)] = re.findall(
        r"left, one job at a time: about ([\d.]+) (s|min|h)", list(status.lines(resolved))[-1]
    )
    return float(number) * {"s": 1, "min": 60, "h": 3600}[unit]


def test_the_time_left_of_other_kinds_goes_by_the_speed_of_the_jobs_that_are_done(tmp_path, monkeypatch, finish):
    monkeypatch.chdir(tmp_path)
    resolved = configuration.resolve({"papers": ["bhaskar2025"]})
    first, *others = expansion.expand(resolved)
    finish(first, Path("results/demo"))
    before = left(resolved)
    slow = 5 * estimate(first).seconds
    put(tmp_path / f"results/demo/benchmarks/train_bhaskar2025_{first.name}.tsv", f"s\th:m:s\n{slow}\t0:02:00\n")
    assert any(each.calibration_key != first.calibration_key for each in others)
    assert left(resolved) == pytest.approx(5 * before, rel=0.1)


def test_a_running_job_takes_what_its_log_says(job, tmp_path, monkeypatch):
    resolved = configuration.resolve({"papers": ["bhaskar2025"]})
    monkeypatch.setattr(status.lock, "running_since", lambda: time.time() - 60)
    log = tmp_path / f"results/demo/logs/train_bhaskar2025_{job.name}.log"
    before = left(resolved)
    put(log, "x y: 3 of 20 steps, about 40.0 h left\n")
    assert left(resolved) == pytest.approx(before + 40 * 3600, rel=0.02)


def test_data_and_features_are_counted_and_take_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    resolved = configuration.resolve({"papers": ["bhaskar2025"], "only": {"model": ["scatter_linear"]}})
    assert "data: arrays 0/2, features 0/2" in status.lines(resolved)
    before = list(status.lines(resolved))[-1]
    for kind in ("arrays", "features"):
        put(tmp_path / f"data/{kind}/digits/description.json")
    after = list(status.lines(resolved))
    assert "data: arrays 1/2, features 1/2" in after and after[-1] != before


def test_pages_that_are_older_than_the_open_jobs_are_to_be_made_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    resolved = configuration.resolve({"papers": ["asoodeh2020"]})
    assert next(status.lines(resolved)).endswith("claims open")
    put(tmp_path / "results/demo/claims/asoodeh2020.csv")
    assert next(status.lines(resolved)).endswith("claims done, pages without the open jobs")


def test_a_scale_is_asked_for_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "Snakefile")
    put(tmp_path / "config.yaml", "scale: demo\n")
    asked = CliRunner().invoke(app, ["status", "--scale", "paper"])
    assert asked.exit_code == 0 and "arrays 0/5" in asked.output
    put(tmp_path / "results/paper/config.yaml", "scale: paper\npapers: [asoodeh2020]\n")
    asked = CliRunner().invoke(app, ["status", "--scale", "paper"])
    assert "asoodeh2020" in asked.output and "lowy2021" not in asked.output
    put(tmp_path / "mine.yaml", "scale: demo\npapers: [vandijk2023]\n")
    asked = CliRunner().invoke(app, ["status", "--scale", "paper", "--config", "mine.yaml"])
    assert "vandijk2023" in asked.output and "asoodeh2020" not in asked.output


@pytest.mark.parametrize("scale", ["..", "paper-old", "nothing"])
def test_a_scale_that_does_not_exist_is_refused_though_there_is_a_folder(tmp_path, monkeypatch, scale):
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "Snakefile")
    put(tmp_path / "config.yaml", "scale: demo\n")
    put(tmp_path / "results" / "paper-old" / "config.yaml", "scale: paper\n")
    with pytest.raises(InputError, match="scale is"):
        CliRunner().invoke(app, ["status", "--scale", scale], catch_exceptions=False)


def test_a_job_past_its_limit_is_not_running(job, tmp_path):
    log = put(tmp_path / f"results/demo/logs/train_bhaskar2025_{job.name}.log", "x y: 3 of 20 steps\n")
    longest = 60 * estimate(job).limit_minutes(3)
    for age, expected in ((longest - 60, JobState.RUNNING), (longest + 60, JobState.WAITING)):
        os.utime(log, (time.time() - age,) * 2)
        assert state(job, tmp_path, since=time.time() - 2 * longest) is expected


def test_on_a_cluster_only_jobs_whose_job_runs_are_running(job, tmp_path, monkeypatch):
    resolved = configuration.resolve({"papers": ["bhaskar2025"], "seeds": [0]})
    first, second, third, *_, last = expansion.expand(resolved)
    folder = Path("results/demo")
    job_batches.write(
        [job_batches.Batch("b_0", (second, third), 2, 1.0, 1.0)], {}, Path("checkpoints/demo/batches.json")
    )
    here = tmp_path.resolve()
    rows = [f"1|RUNNING|rule_train_wildcards_bhaskar2025_{first.name}|{here}"]
    rows += [f"2|RUNNING|rule_train_b_0_wildcards_bhaskar2025|{here}"]
    rows += [f"3|PENDING|rule_train_wildcards_bhaskar2025_{last.name}|{here}"]
    put(tmp_path / "bin/squeue", "#!/bin/sh\ncat <<'E'\n" + "\n".join(rows) + "\nE\n").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    found = status.jobs_on_nodes(expansion.expand(resolved), folder)
    assert found == {
        ("bhaskar2025", last.name): "PENDING",
        **{("bhaskar2025", each.name): "RUNNING" for each in (first, second, third)},
    }
    put(folder / f"logs/train_bhaskar2025_{last.name}.log", "x y: 3 of 20 steps\n")
    put(folder / f"logs/train_bhaskar2025_{third.name}.log", "x y: 3 of 20 steps\n")
    assert job_status(last, folder, 1.0, found).state is JobState.WAITING
    assert job_status(third, folder, 1.0, found).state is JobState.RUNNING


def test_a_job_whose_next_attempt_waits_in_the_queue_has_not_failed(job, tmp_path, queue):
    log = put(tmp_path / f"results/demo/logs/train_bhaskar2025_{job.name}.log", "dpfl: the disk is full\n")
    for job_state, expected in (("PENDING", JobState.WAITING), ("RUNNING", JobState.FAILED)):
        queue.write_text(f"7|{job_state}|rule_train_wildcards_bhaskar2025_{job.name}|{tmp_path}\n")
        found = status.jobs_on_nodes([job], tmp_path / "results/demo")
        since = log.stat().st_mtime - 60
        assert job_status(job, tmp_path / "results/demo", since, found).state is expected


def test_a_job_that_slurm_has_forgotten_is_not_running(job, tmp_path, queue):
    put(tmp_path / f"results/demo/logs/train_bhaskar2025_{job.name}.log", "x y: 3 of 20 steps\n")
    folder = tmp_path / "results/demo"

    def seen():
        return job_status(job, folder, time.time() - 60, status.jobs_on_nodes([job], folder)).state

    assert seen() is JobState.RUNNING  # of a run on this machine
    put(tmp_path / ".snakemake/engine.log", "Building DAG of jobs...\nSLURM run ID: 1-2-3\n")
    assert seen() is JobState.WAITING


def test_a_queue_that_does_not_answer_is_named(job, tmp_path, queue, monkeypatch):
    put(tmp_path / ".snakemake/engine.log", "SLURM run ID: 1-2-3\n")
    monkeypatch.setattr(status.lock, "running_since", lambda: time.time() - 60)
    resolved = configuration.resolve({"papers": ["bhaskar2025"], "only": {"model": ["scatter_linear"]}})
    assert "a run is in progress here" in status.lines(resolved)
    (tmp_path / "down").touch()
    assert any("in progress here; squeue fails" in line for line in status.lines(resolved))


def test_a_finished_run_is_not_looked_for_in_another_folder(tmp_path, monkeypatch):
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    elsewhere.mkdir()
    put(project / "Snakefile")
    put(project / "config.yaml", "scale: demo\n")
    put(project / "results/demo/config.yaml", "scale: demo\n")
    put(tmp_path / "mine.yaml", "scale: demo\n")
    monkeypatch.chdir(elsewhere)
    put(elsewhere / "config.yaml", "scale: demo\n")
    for config, words in (
        (project / "results/demo/config.yaml", str(project)),
        (tmp_path / "mine.yaml", "no Snakefile here"),
        (elsewhere / "config.yaml", "no Snakefile here"),
    ):
        with pytest.raises(InputError, match=words):
            CliRunner().invoke(app, ["status", "--config", str(config)], catch_exceptions=False)
    monkeypatch.chdir(project)
    (tmp_path / "link").symlink_to(project)
    for config in ("results/demo/config.yaml", "../link/results/demo/config.yaml", "../mine.yaml"):
        assert CliRunner().invoke(app, ["status", "--config", config]).exit_code == 0, config
