"""No two jobs share a GPU, whose names nothing has to stand behind; a container's memory counts."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from types import SimpleNamespace

import psutil
import pytest

from dpfl.errors import InputError
from dpfl.pipeline import devices
from dpfl.pipeline.devices import VISIBLE, own_gpu

JOB = """
import os, sys, time
from pathlib import Path
from dpfl.pipeline.devices import own_gpu
with own_gpu(True):
    device = os.environ["CUDA_VISIBLE_DEVICES"]
    mark = Path(sys.argv[1]) / f"{device}.held"
    mark.touch(exist_ok=False)   # fails where another job holds the same device
    enough = Path(sys.argv[1]) / "enough"
    while not enough.exists():
        if len(list(enough.parent.glob("*.held"))) >= int(sys.argv[2]):
            enough.touch()
        time.sleep(0.01)
    mark.unlink()
    print(device)
"""


@pytest.fixture
def environment(tmp_path):
    """Three devices, lock files of this test alone, no scheduler."""
    hidden = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return kept | {VISIBLE: "0,1,GPU-abc", "TMPDIR": str(tmp_path)}


def start(environment, tmp_path, at_once):
    """Start a job that holds a device until so many have been held at once."""
    command = [sys.executable, "-c", JOB, str(tmp_path), str(at_once)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_seven_jobs_on_three_devices_never_share_one_and_use_all(environment, tmp_path):
    jobs = [start(environment, tmp_path, 3) for _ in range(7)]
    said = [job.communicate(timeout=120) for job in jobs]
    assert all(job.returncode == 0 for job in jobs), said
    assert {out.strip() for out, _ in said} == {"0", "1", "GPU-abc"}


def test_a_job_that_is_killed_gives_its_device_back(environment, tmp_path):
    environment[VISIBLE] = "5"
    first = start(environment, tmp_path, 2)
    deadline = time.monotonic() + 60
    while not (tmp_path / "5.held").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    first.kill()
    first.wait()
    (tmp_path / "5.held").unlink()
    out, error = start(environment, tmp_path, 1).communicate(timeout=60)
    assert out.strip() == "5", error


def test_a_cpu_a_scheduler_and_no_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(VISIBLE, "")
    with own_gpu(False):
        assert os.environ[VISIBLE] == ""
    with pytest.raises(InputError, match=r"training\.device: cpu, or --device cpu"), own_gpu(True):
        pass
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv(VISIBLE, "2")
    with own_gpu(True):
        assert os.environ[VISIBLE] == "2"
    monkeypatch.delenv("SLURM_JOB_ID")
    with own_gpu(True):
        assert os.environ[VISIBLE] == "2"


def test_processes_of_one_allocation_share_no_gpu_and_two_jobs_may_both_call_theirs_0(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with ExitStack() as stack:
        assert [devices._lock_one(["0", "1"], "7", stack) for _ in range(3)] == ["0", "1", None]
        assert devices._lock_one(["0"], "8", stack) == "0"
        monkeypatch.setenv("SLURM_JOB_ID", "9")
        monkeypatch.setenv(VISIBLE, "0,1")
        with own_gpu(True):
            assert os.environ[VISIBLE] == "0"
            assert devices._lock_one(["0", "1"], "9", stack) == "1"


def test_places_of_a_gpu_are_taken_after_the_gpus_without_a_job(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with ExitStack() as stack:
        taken = [devices._lock_one(["0", "1"], "", stack, jobs_per_gpu=2) for _ in range(5)]
        assert taken == ["0", "1", "0", "1", None]
        assert devices._lock_one(["0", "1"], "", stack) is None  # who shares with none waits for the first places
    monkeypatch.setenv(VISIBLE, "0")
    for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"):
        monkeypatch.delenv(name, raising=False)
    with own_gpu(True, 2), ExitStack() as stack:
        assert os.environ[VISIBLE] == "0"
        assert [devices._lock_one(["0"], "", stack, 2) for _ in range(2)] == ["0", None]


def test_a_folder_whose_files_cannot_be_locked_is_one_line(monkeypatch, tmp_path):
    def unsupported(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(devices.fcntl, "flock", unsupported)
    with pytest.raises(InputError, match=r"cannot lock a GPU by .*Function not implemented; name another TMPDIR"):
        devices._lock_one(["0"], "", ExitStack())


def test_a_scheduler_may_assign_what_cannot_be_listed(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(devices, "visible_gpus", list)
    monkeypatch.setenv(VISIBLE, "left alone")
    with own_gpu(True):
        assert os.environ[VISIBLE] == "left alone"


@pytest.mark.parametrize("kind", ["link", "dead link", "folder", "pipe", "another user's"])
def test_what_is_no_lock_file_of_this_user_is_refused_and_not_touched(monkeypatch, tmp_path, kind):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(VISIBLE, "0")
    victim, place = tmp_path / "thesis.docx", tmp_path / f"dpfl-gpu-{os.getuid()}-0.lock"
    victim.write_text("years")
    if kind == "folder":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "another user's":
        place.touch()
        monkeypatch.setattr(
            devices.os, "fstat", lambda _: os.stat_result((0o100600, 0, 0, 1, os.getuid() + 1, *[0] * 5))
        )
    else:
        place.symlink_to(victim if kind == "link" else "nowhere")
    with pytest.raises(InputError, match="cannot lock a GPU"), own_gpu(True):
        pass
    assert victim.read_text() == "years" and not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(("visible", "left"), [("-1", []), ("0,-1,1", ["0"]), ("", []), ("2, GPU-a", ["2", "GPU-a"])])
def test_a_negative_number_hides_itself_and_all_that_follows(monkeypatch, visible, left):
    monkeypatch.setenv(VISIBLE, visible)
    if left:
        assert devices.require_gpu() == left
    else:
        with pytest.raises(InputError, match="no GPU"):
            devices.require_gpu()


@pytest.mark.parametrize(("said", "mb"), [(None, 7), ("max\n", 7), ("5242880\n", 5), ("9223372036854771712\n", 7)])
def test_the_memory_is_the_machine_s_or_less_in_a_container(monkeypatch, tmp_path, said, mb):
    """Without control groups, without a limit by their version 2 and 1, and with one."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=7 << 20))
    monkeypatch.setattr(devices, "_CONTAINER_MEMORY", (tmp_path / "memory.max",))
    if said:
        (tmp_path / "memory.max").write_text(said)
    assert devices.memory_mb() == mb
