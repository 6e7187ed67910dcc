"""A batch of sweeps on a real SLURM: preempted, and at its time limit, it trains nothing twice; same bytes."""

import contextlib
import hashlib
import re
import signal
import time

import psutil
import pytest

from dpfl.pipeline.batch_training import kept_folder

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(3600)]

CONFIG = "papers: [lowy2021]\nseeds: [0]\nonly: {dataset: [synthetic]}\n"
COMPARED = ("runs/**/*.csv.gz", "accounting/*.csv", "tables/*.csv", "claims/*.csv")


def hashes(folder):
    """The hash of every result."""
    files = sorted(file for pattern in COMPARED for file in (folder / "results/demo").glob(pattern))
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def wait(condition, what, run, seconds=900):
    """Wait until `condition` is true and return its value; the run must not end before it is."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        assert run.poll() is None, f"the run ended with {run.returncode} while waiting for {what}"
        time.sleep(0.1)
    pytest.fail(f"{what}: not within {seconds} s")


def batch_job(slurm):
    """The number of the running job that trains a batch, or None."""
    rows = slurm.command("squeue", "--noheader", "--states=RUNNING", "--format=%i %k").splitlines()
    return next((row.split()[0] for row in rows if "rule_train_lowy2021_synthetic" in row), None)


def training(folder):
    """The processes that train a sweep in `folder`, by the sweep's name."""
    found = {}
    for process in psutil.process_iter(["cwd", "cmdline"]):
        words = process.info["cmdline"] or []
        if process.info["cwd"] == str(folder.resolve()) and "--sweep" in words and "train" in words:
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name().startswith("python"):
                    found[words[words.index("--sweep") + 1]] = process
    return found


def kept(folder):
    """The run tables that the batch has finished so far, and when."""
    tables = (kept_folder(folder / "results/demo") / "runs").glob("*/*.record.json")
    return {path.name.split(".")[0]: path.stat().st_mtime_ns for path in tables}


def hold_one_and_finish_another(folder, run, finished):
    """Stop a process that trains, and wait until another sweep of the batch than those `finished` is done."""
    name, process = wait(lambda: next(iter(training(folder).items()), None), "a training process", run)
    process.send_signal(signal.SIGSTOP)
    return name, wait(lambda: kept(folder).keys() - finished, f"a finished sweep besides {name}", run)


def test_a_batch_goes_on_after_preemption_and_at_its_time_limit_without_another_attempt(place, start, slurm, tmp_path):
    here, local = place(tmp_path / "w"), place(tmp_path / "local")
    for folder in (here, local):
        (folder / "tiny.yaml").write_text(CONFIG)
    command = ("dpfl", "run", "--scale", "demo", "--config", "tiny.yaml")
    run = start(here, *command, "--profile", "slurm", **slurm.environment)

    job = wait(lambda: batch_job(slurm), "the batch", run)
    _, first = hold_one_and_finish_another(here, run, set())
    times = kept(here)
    slurm.command("sbatch", "--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
    wait(lambda: "Restarts=1" in slurm.command("scontrol", "show", "job", job), "preemption", run)

    assert wait(lambda: batch_job(slurm), "the batch again", run) == job
    _, second = hold_one_and_finish_another(here, run, times.keys())
    text = slurm.command("scontrol", "show", "job", job)
    hours, minutes, _ = map(int, re.search(r"RunTime=(\d+):(\d+):(\d+)", text).groups())
    memory = re.search(r"MinMemoryNode=\S+", text).group()
    slurm.command("scontrol", "update", f"jobid={job}", f"TimeLimit={60 * hours + minutes + 3}")
    wait(lambda: "Restarts=2" in slurm.command("scontrol", "show", "job", job), "the time limit", run)

    wait(lambda: batch_job(slurm), "the batch once more", run)
    again = slurm.command("scontrol", "show", "job", job)
    assert memory in again, "the batch asks for more memory"
    log = next((here / "results/demo/logs").glob("batch_*.log"))
    wait(lambda: log.exists() and log.read_text().count("was finished before") >= len(first | second), "its log", run)
    assert run.wait(1800) == 0, (here / "run.log").read_text()[-3000:]
    assert "Trying to restart" not in (here / ".snakemake/engine.log").read_text()

    done = start(local, *command)
    assert done.wait(1800) == 0, (local / "run.log").read_text()[-3000:]
    assert hashes(here) == hashes(local) and len(hashes(here)) > 10
    assert not kept(here)
