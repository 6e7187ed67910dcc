"""A copy of the tiny project, and what a tamperer can do to it."""

import json
import math
import shutil
from functools import cache
from types import SimpleNamespace

import pytest

from dpfl.catalog import load
from dpfl.files import file_sha256
from dpfl.provenance.audit import records, verify_results
from dpfl.provenance.audit.files import audit


@pytest.fixture(scope="session", autouse=True)
def remembered_intervals():
    """Ask the second accountant once about each statement: its answer is a pure function of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "interval", cache(records.interval))
        yield


@pytest.fixture
def project(tiny_project, pipeline, tmp_path, monkeypatch):
    """A copy of the tiny project to tamper with, and the tamperer's and the auditor's tools."""
    root = tmp_path / "project"
    shutil.copytree(tiny_project, root)
    monkeypatch.chdir(root)
    monkeypatch.setattr(verify_results, "available_cpu_count", lambda: 1)
    monkeypatch.setattr(verify_results, "QUICK_SECONDS", math.inf)  # on a busy machine a page may take longer
    pipeline.forget()
    results = root / "results" / "demo"

    def by_hashes():
        """The problems that hashes alone show."""
        pipeline.forget()
        return [f"{found.path} {found.problem}" for found in audit(results).findings]

    def findings(**options):
        """The problems that the whole audit shows."""
        pipeline.forget()
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
        make_pages=pipeline.remake_pages, published=lambda: load("bhaskar2025"),
        runs=[runs / f"digits_scatter_linear_k10_seed{seed}.csv.gz" for seed in (0, 1)],
        noise=results / "accounting" / "bhaskar2025.csv", table=results / "tables" / "bhaskar2025_table_2.csv",
    )  # fmt: skip
