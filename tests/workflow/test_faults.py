"""Every stage against full disks, signals, little memory, odd locales and clocks: whole results or none, and one line.

Each fault meets a copy of a finished tiny run in which one stage's result was deleted.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

CONFIG = ("--config", "results/demo/config.yaml")
JOB = "digits_scatter_linear_k10_seed0"
# what each stage is asked to make again: its command, the file that is deleted first
STAGES = {
    "arrays": (("data", "arrays", "--dataset", "digits", *CONFIG), "data/arrays/digits/train_x.npy"),
    "features": (("features", "--dataset", "digits", *CONFIG), "data/features/digits/train_x.npy"),
    "accounting": (("calibrate", "--paper", "bhaskar2025", *CONFIG), "results/demo/accounting/bhaskar2025.csv"),
    "training": (
        ("train", "--paper", "bhaskar2025", "--job", JOB, *CONFIG),
        f"results/demo/runs/bhaskar2025/{JOB}.csv.gz",
    ),
    "tables": (
        ("tables", "--paper", "bhaskar2025", "--name", "table_2", *CONFIG),
        "results/demo/tables/bhaskar2025_table_2.csv",
    ),
    "figures": (
        ("figures", "--paper", "bhaskar2025", "--name", "splits", *CONFIG),
        "results/demo/figures/bhaskar2025_splits.csv",
    ),
    "claims": (("claims", "--paper", "bhaskar2025", *CONFIG), "results/demo/claims/bhaskar2025.csv"),
    "report": (("report", *CONFIG), "results/demo/report.html"),
    "crate": (("crate", "results/demo"), "results/demo.crate.zip"),
}


@pytest.fixture
def broken(tiny_run, tmp_path):
    """A function that copies the tiny run, deletes a stage's result there, and returns folder, command and result."""

    def place(stage: str) -> tuple[Path, list[str], Path]:
        folder = tmp_path / "a copy é"
        shutil.copytree(tiny_run[0], folder)
        arguments, result = STAGES[stage]
        (folder / result).unlink(missing_ok=True)
        return folder, [sys.executable, "-m", "dpfl", *arguments], folder / result

    return place


def run(command: list[str], folder: Path, **extra) -> subprocess.CompletedProcess:
    """Run a stage in the folder."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(folder / ".cache")}
    environment |= extra.pop("env", {})
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, **extra)


def snapshot(folder: Path) -> dict[str, str]:
    """Every file of data and results with its hash."""
    files = [file for part in ("data", "results") for file in (folder / part).rglob("*") if file.is_file()]
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)}


def one_line(done: subprocess.CompletedProcess) -> str:
    """What a failed stage says: exactly one line of its own, without a traceback."""
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    [line] = [line for line in done.stderr.splitlines() if line.startswith("dpfl:")]
    return line


def limited(limit: str, command: list[str]) -> list[str]:
    """The command under a limit of the shell's ulimit."""
    return ["bash", "-c", f'ulimit {limit}; exec "$@"', "bash", *command]


@pytest.mark.parametrize("stage", STAGES)
def test_a_file_that_cannot_grow_is_one_line_and_leaves_nothing(broken, stage):
    folder, command, result = broken(stage)
    before = snapshot(folder)
    first = {"training": "checkpoints/demo", "report": "results/demo/tables"}  # what is written before the result
    named = first.get(stage, str(result.relative_to(folder).parent))
    assert f"cannot write {named}" in one_line(run(limited("-f 1", command), folder))  # kilobytes of one file
    left = dict(snapshot(folder).items() - before.items())
    assert set(left) <= {str(result.relative_to(folder))}  # one that is small enough is whole


@pytest.fixture
def full_disk():
    """A function that puts a full file system where a folder is; root only."""
    mounted = []

    def fill(folder: Path) -> None:
        command = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)]
        if os.geteuid() or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("only root can mount a small file system")
        mounted.append(folder)
        (folder / "filling").write_bytes(b"x" * 4096)

    yield fill
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("stage", ["arrays", "features", "accounting", "training", "tables", "figures", "claims"])
def test_a_full_disk_is_one_line_and_leaves_nothing(broken, full_disk, stage):
    folder, command, result = broken(stage)
    full_disk(result.parent)
    assert str(result.relative_to(folder).parent) in one_line(run(command, folder))
    assert [file.name for file in result.parent.iterdir()] == ["filling"]


ENDS = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGKILL: -signal.SIGKILL}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("number", ENDS)
def test_a_signal_leaves_the_result_absent_and_nothing_changed(broken, is_writing, stage, number):
    folder, command, result = broken(stage)
    before = snapshot(folder)
    process = is_writing(folder, *STAGES[stage][0])
    process.send_signal(number)
    assert process.wait(60) == ENDS[number]
    assert not result.exists()
    # who is killed cannot tidy up
    assert any(".partial" in path.name for path in folder.rglob("*")) is (number is signal.SIGKILL)
    after = snapshot(folder)
    assert {name: digest for name, digest in after.items() if ".partial" not in name} == before
    assert run(command, folder).returncode == 0 and result.is_file()


@pytest.mark.parametrize("environment", [{"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0"}, {"LC_ALL": "xx_YY.UTF-8"}])
@pytest.mark.parametrize("stage", ["arrays", "training", "tables", "figures", "claims"])
def test_a_missing_locale_changes_no_byte(broken, tiny_run, stage, environment):
    folder, command, result = broken(stage)
    done = run(command, folder, env=environment)
    assert done.returncode == 0, done.stderr
    assert result.read_bytes() == (tiny_run[0] / result.relative_to(folder)).read_bytes()


def test_files_from_long_ago_cost_at_most_work(broken, tiny_run):
    folder, _, result = broken("training")
    for file in sorted(folder.rglob("*.csv*"))[::2]:
        os.utime(file, (10**9, 10**9))
    done = run([sys.executable, "-m", "dpfl", "run", "--config", "tiny.yaml"], folder)
    assert done.returncode == 0, done.stderr[-3000:]
    kinds = (".csv", ".gz", ".svg", ".png")
    again = {name: digest for name, digest in snapshot(folder).items() if name.endswith(kinds)}
    assert again == {name: digest for name, digest in snapshot(tiny_run[0]).items() if name in again}
    assert result.is_file()


def test_files_from_the_future_are_named_and_nothing_is_made_from_them(broken):
    folder, _, _ = broken("tables")
    future = folder / f"results/demo/runs/bhaskar2025/{JOB}.csv.gz"
    os.utime(future, (time.time() + 10**8,) * 2)
    done = run([sys.executable, "-m", "dpfl", "run", "--config", "tiny.yaml"], folder)
    assert done.returncode != 0 and "clock skew" in done.stderr and future.name in done.stderr
    assert not (folder / STAGES["tables"][1]).exists()


def test_results_can_be_moved_and_copied(broken, tmp_path):
    folder, _, _ = broken("report")
    elsewhere = tmp_path / "another machine"
    elsewhere.mkdir()
    shutil.move(folder / "results", elsewhere / "results")
    audited = run([sys.executable, "-m", "dpfl", "audit", "--files-only", "results/demo"], elsewhere)
    assert audited.returncode == 0 and "0 findings" in audited.stdout
    traced = run([sys.executable, "-m", "dpfl", "trace", "results/demo/tables/bhaskar2025_table_2.csv"], elsewhere)
    assert traced.returncode == 0 and "accounting/bhaskar2025.csv" in traced.stdout


def test_little_memory_is_one_line_or_a_smaller_stack(broken, tiny_run):
    folder, command, result = broken("training")
    done = run(limited("-v 4000000", command), folder)
    if done.returncode == 0:
        assert result.read_bytes() == (tiny_run[0] / result.relative_to(folder)).read_bytes()
    else:
        assert "memory" in one_line(done)
    assert not list(folder.rglob("*.partial"))


# A run makes anew what is damaged or replaced by a link, and needs nobody's help for it.


RESULTS, CRATE = "results/demo", "results/demo.crate.zip"
PAGES = ("smith2026_risk.md", "smith2026_risk.html")


@pytest.fixture
def project(small_run, runner, tmp_path):
    """A copy of a finished run with its crate; folder and runner."""
    folder = shutil.copytree(small_run[0], tmp_path / "a copy", symlinks=True)
    run = runner(folder)
    for command in (("dpfl", "run", "--config", "tiny.yaml"), ("dpfl", "crate", RESULTS)):
        done = run(*command)
        assert done.returncode == 0, done.stderr[-3000:]
    return folder, run


def flip(path):
    """Change a bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def link(path, target):
    """Put a link in the place of a file."""
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_run_mends_a_damaged_crate_and_links_beside_a_lost_page(project):
    folder, run = project
    results, crate, victim = folder / RESULTS, folder / CRATE, folder / "victim"
    pages = [results / "tables" / name for name in PAGES]
    before = [sha256(path) for path in pages]
    for crate_is in ("flipped", "a dead link"):
        flip(crate) if crate_is == "flipped" else link(crate, "nowhere")
        victim.write_text("years of work")
        link(pages[1], "nowhere" if crate_is == "flipped" else victim)
        link(results / "README.md", "nowhere")
        link(results / "report.html", victim)
        link(results / "audit.txt", folder / "made")
        link(results / "logs" / "audit.log", victim)
        link(results / "benchmarks" / "audit.tsv", folder / "made")
        pages[0].unlink()
        for command in (("dpfl", "run", "--config", "tiny.yaml"), ("dpfl", "crate", RESULTS)):
            done = run(*command)
            assert done.returncode == 0, (crate_is, done.stderr[-3000:])
        assert not [path for path in (folder / "results").rglob("*") if path.is_symlink()]
        assert victim.read_text() == "years of work" and not (folder / "made").exists()
        assert [sha256(path) for path in pages] == before
        audited = run("dpfl", "audit", RESULTS, "--files-only")
        assert audited.returncode == 0, (crate_is, audited.stdout)
