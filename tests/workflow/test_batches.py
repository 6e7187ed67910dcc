"""Several short jobs as one job, as on a cluster: what plan, dry run and run make of it, and a kill in the middle."""

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.workflow

CONFIG = "papers: [lowy2021]\nseeds: [0]\nonly: {dataset: [synthetic]}\n"
IN_BATCHES = ("--", "--cores", "2", "--resources", "side_by_side=2")


@pytest.fixture
def place(checkout, tmp_path):
    """A function that makes a folder with the workflow and the configuration."""

    def make(name):
        folder = tmp_path / name
        run = checkout(folder)
        (folder / "tiny.yaml").write_text(CONFIG)
        return folder, run

    return make


def tables(folder):
    """The content and the time of every run table."""
    found = (folder / "results/demo/runs").rglob("*.csv.gz")
    return {path.name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) for path in found}


@pytest.mark.slow
def test_plan_and_dry_run_on_a_cluster_agree(place):
    _, run = place("w")
    plan = run("dpfl", "plan", "--config", "tiny.yaml", "--profile", "generic")
    dry = run("dpfl", "run", "--dry-run", "--config", "tiny.yaml", "--profile", "generic")
    assert plan.returncode == dry.returncode == 0, plan.stderr + dry.stderr
    said = dry.stdout + dry.stderr
    rules = re.split(r"\n(?=(?:local)?rule )", said.split("Job stats", 2)[1])
    trained = {name for rule in rules if rule.startswith("rule train") for name in re.findall(r"(\w+)\.csv\.gz,", rule)}
    assert len(trained) == int(re.search(r"(\d+) jobs to train", plan.stdout)[1]) >= 6
    batches = set(re.findall(r"^(train_\w+_\d+) +1$", said, re.MULTILINE))
    alone = int(re.search(r"^train +(\d+)$", said, re.MULTILINE)[1])  # of a kind that nobody has measured
    assert "train_lowy2021_synthetic_0" in batches
    assert len(batches) + alone == int(re.search(r"^jobs: (\d+) that train", plan.stdout, re.MULTILINE)[1])


@pytest.mark.slow
def test_a_stage_is_run_in_the_container_where_apptainer_is_asked_for(place, tmp_path):
    """A script stands in for apptainer: it answers the question for its version, and notes what it shall run."""
    folder, run = place("w")
    fake, asked = tmp_path / "bin" / "apptainer", tmp_path / "asked"
    fake.parent.mkdir()
    fake.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo apptainer version 1.3.4 && exit\necho "$@" >> {asked}; exit 1\n'
    )
    fake.chmod(0o755)
    path = f"{fake.parent}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    (folder / "dpfl.sif").touch()
    command = ("snakemake", "--cores", "1", "--configfile", "tiny.yaml", "--sdm", "apptainer")
    done = run(*command, PATH=path)
    assert done.returncode != 0 and re.search(r"^exec .*dpfl\.sif .*dpfl ", asked.read_text(), re.MULTILINE), (
        done.stderr
    )


@pytest.mark.slow
def test_a_machine_without_cuda_is_asked_once(place):
    """Retries are for what may go better the next time."""
    folder, run = place("w")
    (folder / "cuda.yaml").write_text("papers: [bhaskar2025]\nseeds: [0]\ntraining: {device: cuda}\n")
    command = ("snakemake", "checkpoints/demo/gpu.txt", "--cores", "1", "--retries", "2", "--configfile", "cuda.yaml")
    done = run(*command, CUDA_VISIBLE_DEVICES="")
    assert done.returncode != 0 and "Trying to restart" not in done.stdout + done.stderr
    assert "finds no GPU" in (folder / "results/demo/logs/find_gpu.log").read_text()
    assert not (folder / "checkpoints/demo/gpu.txt").exists()


@pytest.mark.slow
def test_a_batch_killed_in_the_middle_trains_nothing_twice_and_leaves_the_same_bytes(place):
    here, run = place("w")
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(here / ".cache"), "OMP_NUM_THREADS": "1"}
    command = ["dpfl", "run", "--config", "tiny.yaml", *IN_BATCHES]
    with (here / "run.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=here, env=environment, stdout=log, stderr=log)
    kept = here / "checkpoints/demo/runs/lowy2021"
    deadline = time.monotonic() + 900
    while len(list(kept.glob("*.record.json"))) < 2 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    for each in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
        each.send_signal(signal.SIGKILL)
    process.wait()
    finished = {path.name.removesuffix(".record.json") for path in kept.glob("*.record.json")}
    assert 2 <= len(finished) < 6
    logs = {name: (here / f"results/demo/logs/train_lowy2021_{name[:-7]}.log").stat().st_mtime_ns for name in finished}
    for table in (here / "results/demo/runs").rglob("*.csv.gz*"):
        table.unlink()  # as Snakemake does before it runs a job again
    done = run(*command)
    assert done.returncode == 0, done.stderr[-3000:]
    for name, changed in logs.items():
        assert (here / f"results/demo/logs/train_lowy2021_{name[:-7]}.log").stat().st_mtime_ns == changed
    assert not kept.exists()

    alone, run_alone = place("alone")
    assert run_alone("dpfl", "run", "--config", "tiny.yaml").returncode == 0
    assert {name: both[0] for name, both in tables(here).items()} == {n: both[0] for n, both in tables(alone).items()}
