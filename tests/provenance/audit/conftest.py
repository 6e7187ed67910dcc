"""A tiny results folder, made by the stages themselves, and what a tamperer can do to it."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from dpfl.catalog import load
from dpfl.cli import app
from dpfl.data.arrays import build_arrays
from dpfl.data.loading import load_description
from dpfl.files import file_sha256, record_path
from dpfl.provenance import input_checks, trace
from dpfl.provenance.audit import verify_results
from dpfl.provenance.audit.file_hashes import audit
from dpfl.provenance.record import StageRecorder

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
MADE = (("tables", "table_2"), ("figures", "splits"), ("figures", "identification"))
TRAIN, TEST = 700, 100


def forget():
    """Forget what this process knows of records: the stages run in processes of their own."""
    input_checks._outputs.cache_clear()
    trace.writers.cache_clear()


def stage(*arguments):
    """Run one stage of the pipeline here."""
    forget()
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, (arguments, done.output, done.exception)


def make_pages():
    """Make tables and figures from the run tables that are there."""
    for kind, name in MADE:
        stage(kind, "--paper", "bhaskar2025", "--name", name, "--config", "results/demo/config.yaml")


def small_digits(folder):
    """Write the first digits only, with their record."""
    build_arrays("digits", folder)
    for name, count in (("train", TRAIN), ("test", TEST)):
        for kind in "xy":
            path = folder / f"{name}_{kind}.npy"
            np.save(path, np.load(path)[:count])
    description = load_description(folder) | {"records": {"train": TRAIN, "test": TEST}}
    (folder / "description.json").write_text(json.dumps(description))
    files = [folder / "description.json", *sorted(folder.glob("*.npy"))]
    StageRecorder("data arrays", ("dpfl.data.arrays",)).write(record_path(files[0]), files)


@pytest.fixture(scope="session")
def tiny_project(tmp_path_factory):
    """A project whose runs, a table and two figures were made by the stages; not to be changed."""
    root = tmp_path_factory.mktemp("audited")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        (root / "results" / "demo").mkdir(parents=True)
        (root / "results" / "demo" / "config.yaml").write_text(yaml.safe_dump(CONFIG))
        config = ("--config", "results/demo/config.yaml")
        small_digits(root / "data" / "arrays" / "digits")
        stage("features", "--dataset", "digits", *config)
        stage("account", "--paper", "bhaskar2025", *config)
        for seed in (0, 1):
            stage("train", "--paper", "bhaskar2025", "--sweep", f"digits_scatter_linear_k10_seed{seed}", *config)
        make_pages()
    return root


@pytest.fixture
def project(tiny_project, tmp_path, monkeypatch):
    """A copy of the tiny project to tamper with, and the tamperer's and the auditor's tools."""
    root = tmp_path / "project"
    shutil.copytree(tiny_project, root)
    monkeypatch.chdir(root)
    monkeypatch.setattr(verify_results.os, "cpu_count", lambda: 1)
    forget()
    results = root / "results" / "demo"

    def by_hashes():
        """The problems that hashes alone show."""
        forget()
        return [f"{found.path} {found.problem}" for found in audit(results).findings]

    def findings(**options):
        """The problems that the whole audit shows."""
        forget()
        seen = audit(results)
        verify_results.verify_results(seen, results, **options)
        return [f"{found.path} {found.problem}" for found in seen.findings], seen

    def hide(path):
        """Write a changed file's hash into every record that names it: hashes agree again."""
        name, digest = str(path.relative_to(root)), file_sha256(path)
        for place in results.rglob("*.record.json"):
            record = json.loads(place.read_text())
            for entry in record["inputs"] + record["outputs"]:
                if entry["path"] == name:
                    entry |= {"bytes": path.stat().st_size, "sha256": digest}
            place.write_text(json.dumps(record))

    runs = results / "runs" / "bhaskar2025"
    return SimpleNamespace(
        root=root, results=results, by_hashes=by_hashes, findings=findings, hide=hide,
        make_pages=make_pages, runs=[runs / f"digits_scatter_linear_k10_seed{seed}.csv.gz" for seed in (0, 1)],
        noise=results / "accounting" / "bhaskar2025.csv", table=results / "tables" / "bhaskar2025_table_2.csv",
        published=lambda: load("bhaskar2025"),
    )  # fmt: skip
