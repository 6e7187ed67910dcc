"""On a real SLURM: a batch of short jobs is preempted, loses its node, reaches its time limit, is cancelled, loses
its controller, and trains nothing twice; a job whose clients are divided gives the bytes of one that is not."""

import contextlib
import os
import re
import shutil
import signal
import time
from pathlib import Path

import psutil
import pytest
import yaml

from dpfl.grid import configuration, expansion
from dpfl.pipeline.job_batches import kept_folder

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(3600)]

BATCHED, DIVIDED = "vandijk2023", "bhaskar2025"
COMPARED = ("runs/**/*.csv.gz", "accounting/*.csv")


def wait(condition, what, run, seconds=900):
    """Wait until `condition` is true and return its value; the run must not end before it is."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        assert run.poll() is None, f"the run ended with {run.returncode} while waiting for {what}"
        time.sleep(0.25)
    pytest.fail(f"{what}: not within {seconds} s")


def batch_job(slurm):
    """The number of the running job that trains a batch, or None."""
    rows = slurm.command("squeue", "--noheader", "--states=RUNNING", "--format=%i %k").splitlines()
    return next((row.split()[0] for row in rows if "rule_train_vandijk2023_digits" in row), None)


def training(folder):
    """The processes that train a job in `folder`, by the job's name."""
    found = {}
    for process in psutil.process_iter(["cwd", "cmdline"]):
        words = process.info["cmdline"] or []
        if process.info["cwd"] == str(folder.resolve()) and "--job" in words and BATCHED in words:
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name().startswith("python"):
                    found[words[words.index("--job") + 1]] = process
    return found


def divide_from_5_seconds(source, copy):
    """Copy the package: there, jobs of seconds get as many cores as those of hours, and a file says how many."""
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in (
        ("cost.py", "enough = max(JOB_SECONDS, ", "enough = max(5.0, "),
        (
            "client_division.py",
            "    try:\n        yield",
            "    open('divided.txt', 'a').write(f'{cores} ')\n    try:\n        yield",
        ),
    ):
        path = copy / "dpfl/pipeline" / name
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))
    return copy


def records(folder, names):
    """The records beside these jobs' run tables, which say when each was trained."""
    return {name: (folder / f"results/demo/runs/{BATCHED}/{name}.csv.gz.record.json").read_bytes() for name in names}


def kept(folder):
    """The run tables that the batch has finished so far."""
    return {path.name.split(".")[0] for path in (kept_folder(folder / "results/demo") / "runs").glob("*/*.record.json")}


def hold_after_one_more(folder, run):
    """Wait until another job of the batch is finished, and stop all that train; return those that are finished."""
    before = kept(folder)
    _, held = wait(lambda: next(iter(training(folder).items()), None), "a training process", run)
    held.send_signal(signal.SIGSTOP)
    wait(lambda: kept(folder) - before, "one more finished job", run)
    for process in wait(
        lambda: len(found := training(folder)) == 2 and found, "another training process", run
    ).values():
        process.send_signal(signal.SIGSTOP)
    return kept(folder)


@pytest.mark.slow
def test_batches_go_on_after_disturbances_without_another_attempt_and_division_changes_no_byte(
    undisturbed, hashes, place, start, slurm, repository, tmp_path
):
    here = place(tmp_path / "w", BATCHED, DIVIDED)
    source = divide_from_5_seconds(repository / "src", here / "src")
    config = configuration.resolve({"scale": "demo", **yaml.safe_load((here / "tiny.yaml").read_text())})
    jobs = [(job.paper, job.name) for job in expansion.expand(config)]
    tables = sorted(str(expansion.run_table_path(Path("results/demo"), *job)) for job in jobs)
    command = ("dpfl", "run", "--scale", "demo", "--config", "tiny.yaml", "--profile", "slurm", "--", "--keep-going")
    run = start(here, *command, *tables, **slurm.environment | {"PYTHONPATH": str(source)})
    local = undisturbed([BATCHED, DIVIDED], *tables)

    def restarted(times, why):
        wait(lambda: f"Restarts={times}" in slurm.command("scontrol", "show", "job", job), why, run)
        assert wait(lambda: batch_job(slurm), "the batch again", run) == job

    job = wait(lambda: batch_job(slurm), "the batch", run)
    hold_after_one_more(here, run)
    slurm.take_node_of(job)
    restarted(1, "preemption")

    hold_after_one_more(here, run)
    node = slurm.node_of(job)
    slurm.command("scontrol", "update", f"nodename={node}", "state=down", "reason=test")  # it comes back by itself
    restarted(2, "the failure of its node")

    finished = hold_after_one_more(here, run)
    memory = re.search(r"MinMemoryNode=\S+", slurm.command("scontrol", "show", "job", job)).group()
    slurm.command("scontrol", "update", f"jobid={job}", "EndTime=now+90")  # the batch asks once a minute what is left
    restarted(3, "the time limit")
    slurm.command("scontrol", "update", f"jobid={job}", "TimeLimit=60")
    assert memory in slurm.command("scontrol", "show", "job", job), "the batch asks for more memory"

    log = next((here / "results/demo/logs").glob("batch_*.log"))
    wait(lambda: log.exists() and log.read_text().count("was finished before") >= len(finished), "its log", run)
    assert run.wait(1800) == 0, (here / "run.log").read_text()[-3000:]
    assert "Trying to restart" not in (here / ".snakemake/engine.log").read_text()
    assert hashes(here, "", *COMPARED) == hashes(local(), "", *COMPARED) and len(tables) == 7
    assert (here / "divided.txt").read_text().split().count("2") == 1, "not one job was divided"
    assert not kept(here)


def test_what_a_batch_has_finished_survives_ctrl_c_and_the_end_of_its_controller(place, start, slurm, tmp_path):
    """Its inner Snakemake deletes the run tables as it ends, some seconds after it was cancelled."""
    here = place(tmp_path / "w", BATCHED)
    text = f"papers: [{BATCHED}]\nseeds: [0]\nonly: {{dataset: [digits]}}\ntraining: {{memory_gb: 0.5}}\n"
    (here / "tiny.yaml").write_text(text)
    config = configuration.resolve({"scale": "demo", **yaml.safe_load((here / "tiny.yaml").read_text())})
    tables = [
        str(expansion.run_table_path(Path("results/demo"), BATCHED, each.name)) for each in expansion.expand(config)
    ]
    command = ("dpfl", "run", "--scale", "demo", "--config", "tiny.yaml", "--profile", "slurm", "--", "--keep-going")

    def batch_at_work():
        run = start(here, *command, *tables, **slurm.environment)
        wait(lambda: batch_job(slurm), "the batch", run)
        return run, hold_after_one_more(here, run)

    run, first = batch_at_work()
    os.killpg(run.pid, signal.SIGINT)
    assert run.wait(300) != 0
    assert batch_job(slurm) is None and not kept(here)
    trained = records(here, first)

    run, second = batch_at_work()
    for each in [*psutil.Process(run.pid).children(), psutil.Process(run.pid)]:
        each.kill()
    run.wait()
    trained |= records(here, second)
    run = start(here, *command, *tables, **slurm.environment)
    assert run.wait(900) == 0, (here / "run.log").read_text()[-3000:]
    assert "left 1 SLURM jobs here" in (here / "run.log").read_text()
    assert len(trained) >= 2 and records(here, trained) == trained, "what was finished was trained again"
    assert not kept(here)
