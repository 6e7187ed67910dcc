"""A chain of records, and a tiny project made by the stages themselves, to be copied and tampered with."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from dpfl.cli import app
from dpfl.data.arrays import build_arrays
from dpfl.data.loading import load_description
from dpfl.files import record_path
from dpfl.provenance import crate as crates
from dpfl.provenance import manifest, record, trace
from dpfl.provenance.record import StageRecorder
from dpfl.reporting import figures

CONFIG = {
    "scale": "demo",
    "papers": ["bhaskar2025"],
    "seeds": [0, 1],
    "only": {
        "dataset": ["digits"],
        "model": ["scatter_linear"],
        "epsilon": [2.93, float("inf")],
        "local_epochs": [1],
        "clients": [10],
        "study": ["none"],
    },
}
SETTINGS = ("--config", "results/demo/config.yaml")
MADE = (("tables", "table_2"), ("figures", "splits"), ("figures", "distances"))
TRAIN, TEST = 700, 100


@pytest.fixture(scope="session")
def first_chain(tmp_path_factory):
    """raw -> run -> table, each with its record; returns the project's folder, which is not to be changed."""
    root = tmp_path_factory.mktemp("chain")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        forget()
        results = root / "results" / "demo"
        (results / "runs").mkdir(parents=True)
        before = []
        for name in ("raw.csv", "runs/run.csv", "table.csv"):
            path = results / name
            path.write_text(f"from {name}\n")
            stage = StageRecorder(name, ("dpfl.grid.expansion",))
            stage.reads(before)
            stage.write(record_path(path), [path])
            before = [path]
    return root


@pytest.fixture
def chain(first_chain, tmp_path, monkeypatch):
    """A copy of the chain as the working folder; returns its results folder."""
    shutil.copytree(first_chain, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    forget()
    return tmp_path / "results" / "demo"


def forget():
    """Forget what this process knows of records: the stages run in processes of their own."""
    record._outputs.cache_clear()
    trace.writers.cache_clear()


def run(*arguments):
    """Run a command of `dpfl` as a process of its own would, knowing nothing of earlier ones."""
    forget()
    return CliRunner().invoke(app, list(arguments))


def stage(*arguments):
    """Run one stage of the pipeline, which must succeed."""
    done = run(*arguments, *SETTINGS)
    assert done.exit_code == 0, (arguments, done.output, done.exception)


def make_pages():
    """Make tables and figures from the run tables that are there."""
    for kind, name in MADE:
        stage(kind, "--paper", "bhaskar2025", "--name", name)


def remake_pages():
    """Make tables, captions and the figures' data again and leave the pictures: quick audits do not look at those."""
    draw = figures.write_pictures

    def caption_alone(paper, name, csv):
        return [*draw(paper, name, csv, (".rst",)), *(csv.with_suffix(suffix) for suffix in figures.SUFFIXES[1:])]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "write_pictures", caption_alone)
        make_pages()


def small_digits(folder):
    """Write the first digits only, with their record."""
    build_arrays("digits", folder)
    counts = {"train": TRAIN, "test": TEST}
    for part, count in counts.items():
        for kind in "xy":
            path = folder / f"{part}_{kind}.npy"
            np.save(path, np.load(path)[:count])
    (folder / "description.json").write_text(json.dumps(load_description(folder) | {"records": counts}))
    files = [folder / "description.json", *sorted(folder.glob("*.npy"))]
    StageRecorder("data arrays", ("dpfl.data.arrays",)).write(record_path(files[0]), files)


@pytest.fixture(scope="session")
def pipeline():
    """The stages as functions: forget, run, remake_pages; and the options that name the configuration."""
    return SimpleNamespace(forget=forget, run=run, remake_pages=remake_pages, settings=SETTINGS)


@pytest.fixture(scope="session")
def tiny_project(made_once):
    """A project whose runs, a table and two figures were made by the stages; not to be changed."""

    def make(root):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(root)
            results = Path("results/demo")
            results.mkdir(parents=True)
            (results / "config.yaml").write_text(yaml.safe_dump(CONFIG))
            small_digits(Path("data/arrays/digits"))
            stage("features", "--dataset", "digits")
            stage("calibrate", "--paper", "bhaskar2025")
            for seed in CONFIG["seeds"]:
                stage("train", "--paper", "bhaskar2025", "--job", f"digits_scatter_linear_k10_seed{seed}")
            make_pages()

    return made_once("tiny project", make)


@pytest.fixture
def crate(chain):
    """The crate of the chain of records."""
    for name in ("Snakefile", "config.yaml", "README.md", "LICENSE"):
        Path(name).write_text(f"{name}\n")
    manifest.write(Path("results/demo"))
    path, made = crates.write(Path("results/demo"))
    assert made
    return path
