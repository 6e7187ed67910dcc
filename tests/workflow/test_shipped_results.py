"""Results that came from elsewhere are a cache: a clone, a copy, a lost .snakemake train nothing again.

The clone has what git ships: run tables, noise, records, CSV, Markdown, PNG; new times; neither data nor .snakemake.
"""

import os
import re
import shutil

import pytest

pytestmark = pytest.mark.workflow

NOT_SHIPPED = shutil.ignore_patterns("*.svg", "*.pdf", "*.tex", "*.html", "*.rst", "logs", "benchmarks", "config.yaml")
CONFIG = ("--config", "tiny.yaml")


@pytest.fixture
def cloned(checkout, tmp_path):
    """A function that clones a run's results and returns the folder and a runner of commands there."""

    def copy(source):
        folder = tmp_path / "a clone"
        run = checkout(folder)
        shutil.copytree(source / "results", folder / "results", ignore=NOT_SHIPPED)
        if (source / "src").exists():
            shutil.copytree(source / "src", folder / "src")
        shutil.copy(source / "tiny.yaml", folder)
        for file in folder.rglob("*"):
            os.utime(file)
        return folder, run

    return copy


@pytest.fixture
def clone(tiny_run, cloned):
    """A clone of the tiny run's results, and a runner of commands there."""
    return cloned(tiny_run[0])


def planned(run):
    """The number of trainings that `dpfl plan` and the dry run announce."""
    plan = run("dpfl", "plan", *CONFIG)
    dry = run("dpfl", "run", "--dry-run", *CONFIG)
    assert plan.returncode == dry.returncode == 0, plan.stderr + dry.stderr
    count = re.search(r"^train +(\d+)$", dry.stdout + dry.stderr, re.MULTILINE)
    return int(re.search(r"(\d+) jobs to train", plan.stdout)[1]), int(count[1]) if count else 0


def trained(folder):
    """The jobs that a run has trained: each has a log."""
    return sorted(log.name for log in (folder / "results/demo/logs").glob("train_*.log"))


def runs(folder):
    """The content and time of every run table."""
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*.csv.gz")}


def test_a_clone_plans_no_training(small_run, cloned):
    _, run = cloned(small_run[0])
    assert planned(run) == (0, 0)


@pytest.mark.slow
def test_a_clone_that_lost_a_table_plans_its_training(clone):
    folder, run = clone
    next((folder / "results/demo/runs/bhaskar2025").glob("*.csv.gz")).unlink()
    assert planned(run) == (1, 1)


@pytest.mark.slow
def test_a_copy_with_snakemakes_notes_of_another_folder_plans_the_same(tiny_run, clone):
    folder, run = clone
    shutil.copytree(tiny_run[0] / ".snakemake", folder / ".snakemake")
    assert planned(run) == (0, 0)


@pytest.mark.slow
def test_a_run_of_other_settings_or_code_is_planned_although_its_table_is_newest(clone):
    folder, run = clone
    record = next((folder / "results/demo/runs/lowy2021").glob("*.record.json"))
    text = record.read_text()
    record.write_text(re.sub(r'("code": )"\w+"', r'\1"0000000000000000"', text))
    assert planned(run) == (1, 1)
    record.write_text(re.sub(r'("dp-accounting": )"[\d.]+"', r'\1"0.4.4"', text))
    assert planned(run) == (1, 1)


@pytest.mark.slow
def test_a_clone_makes_its_pages_without_data_and_trains_nothing(clone, tiny_run):
    folder, run = clone
    before = runs(folder)
    done = run("dpfl", "run", *CONFIG)
    assert done.returncode == 0, done.stderr[-3000:]
    assert trained(folder) == [] and runs(folder) == before and not (folder / "data" / "arrays").exists()
    page = "results/demo/figures/bhaskar2025_splits.svg"
    assert (folder / page).read_bytes() == (tiny_run[0] / page).read_bytes()
    assert "0 findings" in (folder / "results/demo/audit.txt").read_text()


@pytest.mark.slow
def test_one_lost_table_is_trained_again_to_the_same_bytes_and_no_other(clone):
    folder, run = clone
    before = runs(folder)
    lost = sorted((folder / "results/demo/runs/lowy2021").glob("*.csv.gz"))[0]
    lost.unlink()
    done = run("dpfl", "run", *CONFIG)
    assert done.returncode == 0, done.stderr[-3000:]
    assert trained(folder) == [f"train_lowy2021_{lost.name.removesuffix('.csv.gz')}.log"]
    after = runs(folder)
    assert after[lost.name][0] == before[lost.name][0]
    assert {name: both for name, both in after.items() if name != lost.name} == {
        name: both for name, both in before.items() if name != lost.name
    }
