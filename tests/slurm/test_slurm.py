"""The workflow on a real SLURM, disturbed in every way that a cluster has, against an undisturbed local run."""

import contextlib
import json
import os
import re
import signal
import time

import psutil
import pytest

from snakemake_logger_plugin_dpfl import EVENTS

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(3600)]

JOB = "digits_cnn_relu_k10_seed0"
COMPARED = ("runs/**/*.csv.gz", "accounting/*.csv", "tables/*.*", "figures/*.*", "claims/*.*")


def wait(condition, what, run=None, seconds=900):
    """Wait until `condition` is true and return its value; the run must not end before it is."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        if run is not None and run.poll() is not None:
            pytest.fail(f"the run ended with {run.returncode} while waiting for {what}")
        time.sleep(0.25)
    pytest.fail(f"{what}: not within {seconds} s")


class Watched:
    """A folder with a workflow on a cluster, and what its training is doing."""

    def __init__(self, folder, slurm, start):
        self.folder, self.slurm, self._start = folder, slurm, start

    def start(self):
        """Start a run as make does."""
        command = ("dpfl", "run", "--scale", "demo", "--config", "tiny.yaml", "--profile", "slurm")
        return self._start(self.folder, *command, **self.slurm.environment)

    def training_job(self):
        """Return the number of the job that trains, or None."""
        rows = self.slurm.command("squeue", "--noheader", "--states=RUNNING", "--format=%i %k").splitlines()
        found = [row.split()[0] for row in rows if re.search("rule_(short_)?train", row)]
        return found[0] if found else None

    def first_epoch(self):
        """Return the first epoch that the log of the training counts, or None before there is one."""
        log = self.folder / f"results/demo/logs/train_bhaskar2025_{JOB}.log"
        counted = re.search(r": (\d+) of \d+ steps", log.read_text()) if log.exists() else None
        return int(counted.group(1)) if counted else None

    def trains(self, job):
        """Return the process that trains in a job once it has come further than a checkpoint, or None."""
        if self.training_job() != job or not list((self.folder / "checkpoints").rglob("*.pt")):
            return None
        if self.first_epoch() is None:
            return None
        for process in psutil.process_iter(["cwd", "cmdline"]):
            words = process.info["cmdline"] or []
            if process.info["cwd"] == str(self.folder.resolve()) and "train" in words and "--job" in words[:9]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    if "python" in process.name() or "dpfl" in process.name():
                        return process
        return None

    def held(self, run, other_than=()):
        """Wait for a training job, let it save a checkpoint, and stop its process; return job and process."""
        job = wait(lambda: (own := self.training_job()) not in other_than and own, "a training job", run)
        process = wait(lambda: self.trains(job), "a checkpoint", run)
        process.send_signal(signal.SIGSTOP)
        return job, process

    def queue(self):
        """Return the numbers of the jobs that have not ended."""
        return self.slurm.command("squeue", "--noheader", "--format=%i").split()

    def asked(self, job):
        """Return the minutes and megabytes that a job asks for."""
        text = self.slurm.command("scontrol", "show", "job", job)
        hours, minutes, _ = re.search(r"TimeLimit=(\d+):(\d+):(\d+)", text).groups()
        memory = re.search(r"MinMemoryNode=([\d.]+)([MG])", text)
        return int(hours) * 60 + int(minutes), float(memory.group(1)) * (1024 if memory.group(2) == "G" else 1)


@pytest.mark.slow
def test_preemption_kill_time_limit_cancellation_and_a_dead_controller_leave_the_same_bytes(
    undisturbed, hashes, place, start, slurm, tmp_path
):
    here = Watched(place(tmp_path / "w", "bhaskar2025"), slurm, start)
    run = here.start()
    local = undisturbed(["bhaskar2025"])

    job, process = here.held(run)
    first = here.asked(job)
    slurm.take_node_of(job)
    wait(lambda: "Restarts=1" in slurm.command("scontrol", "show", "job", job), "preemption", run)
    wait(lambda: not process.is_running(), "the end of the preempted training", run)
    same, process = here.held(run)
    assert same == job and here.first_epoch() > 1, "the preempted training began anew"

    slurm.command("scancel", "--signal=KILL", "--full", job)
    killed, process = here.held(run, other_than=[job])
    assert here.first_epoch() > 1, "the killed training began anew"
    assert all(now > before for now, before in zip(here.asked(killed), first, strict=True)), "a retry asks for more"

    os.killpg(run.pid, signal.SIGINT)
    assert run.wait(300) != 0
    wait(lambda: not here.queue(), "an empty queue after cancellation", seconds=60)
    assert not list((here.folder / "results").rglob("*.partial"))

    run = here.start()
    job, process = here.held(run)
    assert here.first_epoch() > 1, "the cancelled training began anew"
    slurm.command("scontrol", "update", f"jobid={job}", "EndTime=now+1")
    late, process = here.held(run, other_than=[job])
    assert "TIMEOUT" in slurm.command("scontrol", "show", "job", job)
    assert here.first_epoch() > 1, "the training that hit its limit began anew"

    for each in [*psutil.Process(run.pid).children(), psutil.Process(run.pid)]:
        each.kill()
    run.wait()
    assert late in here.queue(), "the controller took its job along"
    process.send_signal(signal.SIGCONT)
    run = here.start()
    assert run.wait(1800) == 0, (here.folder / "run.log").read_text()[-3000:]
    assert "left 1 SLURM jobs here" in (here.folder / "run.log").read_text()

    alike = hashes(here.folder, "bhaskar2025", *COMPARED)
    assert alike == hashes(local(), "bhaskar2025", *COMPARED) and len(alike) > 10
    assert here.queue() == [] and not list((here.folder / "checkpoints").rglob("*.pt"))


def test_only_training_asks_for_a_gpu_and_is_never_grouped(place, start, slurm, tmp_path):
    folder = place(tmp_path / "w", "bhaskar2025")
    (folder / "cuda.yaml").write_text((folder / "tiny.yaml").read_text().replace("memory_gb: 0.5", "device: cuda"))
    command = ("snakemake", "--profile", "workflow/profiles/slurm", "--configfile", "cuda.yaml", "--dry-run")
    assert start(folder, *command, **slurm.environment).wait(900) == 0
    rules = re.split(r"\n(?=(?:local)?rule )", (folder / "run.log").read_text())
    asking = {rule.split()[1].rstrip(":") for rule in rules if "gpu=1" in rule}
    assert asking == {"train_gpu", "find_gpu"}


def test_two_jobs_at_once_get_two_devices(slurm, tmp_path):
    script = "echo $CUDA_VISIBLE_DEVICES > {}; sleep 8"
    files = [tmp_path / name for name in ("a", "b")]
    for file in files:
        wrapped = f"--wrap={script.format(file)}"
        slurm.command("sbatch", "--gpus=1", "--ntasks=1", "--mem=10", "--output=/dev/null", wrapped)
    wait(lambda: all(f.exists() and f.read_text().strip() for f in files), "both jobs", seconds=60)
    devices = {file.read_text().strip() for file in files}
    assert len(devices) == 2 and all(re.fullmatch(r"\d", device) for device in devices)


def test_the_generic_profile_with_the_commands_of_this_system(place, start, slurm, tmp_path):
    """PBS is not at hand; the executor is, and SLURM's own commands take the place of qsub, qstat and qdel."""
    folder = place(tmp_path / "w", "bhaskar2025")
    status = folder / "status.sh"
    status.write_text(
        '#!/bin/sh\ncase $(squeue --noheader --states=all --jobs="$1" --format=%T) in\nCOMPLETED) echo success ;;\n'
        "PENDING | CONFIGURING | RUNNING | COMPLETING) echo running ;;\n*) echo failed ;;\nesac\n"
    )
    status.chmod(0o755)
    submit = "sbatch --parsable --cpus-per-task={threads} --mem={resources.mem_mb} --time={resources.runtime}"
    options = ("--cluster-generic-submit-cmd", f"{submit} --gpus={{resources.gpu}} --output=/dev/null")
    options += ("--cluster-generic-status-cmd", str(status), "--cluster-generic-cancel-cmd", "scancel")
    command = ("snakemake", "--profile", "workflow/profiles/generic", "--configfile", "tiny.yaml", *options)
    run = start(folder, *command, "--", "data/arrays/digits/description.json", **slurm.environment)
    assert run.wait(900) == 0, (folder / "run.log").read_text()[-3000:]
    assert "Submitted job" in (folder / "run.log").read_text()
    assert (folder / "data/arrays/digits/train_x.npy").exists()


def test_the_events_of_jobs_on_nodes_are_told(place, start, slurm, tmp_path):
    """Snakemake on the nodes has no logger plugin: the controller alone writes, and the whole of it."""
    folder = place(tmp_path / "w", "bhaskar2025")
    target = "data/arrays/digits/description.json"
    words = ("dpfl", "run", "--config", "tiny.yaml", "--profile", "slurm", "--", target)
    run = start(folder, *words, **slurm.environment)
    assert run.wait(900) == 0, (folder / "run.log").read_text()[-3000:]
    events = [json.loads(line) for line in (folder / EVENTS).read_text().splitlines()]
    assert [event["event"] for event in events] == ["run_info", "job_info", "job_finished", "progress"]
    assert events[1]["rule"] == "arrays" and events[1]["wildcards"] == {"dataset": "digits"}
    assert events[3]["done"] == events[0]["total"] == 1
    assert "SLURM run ID" in (folder / ".snakemake/engine.log").read_text()
