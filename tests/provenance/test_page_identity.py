"""Pages of results of which a part was not run: finished ones stay, the others are made from the runs there are."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from dpfl.catalog import load
from dpfl.cli import report_commands
from dpfl.files import record_path
from dpfl.provenance import manifest
from dpfl.provenance.audit import files
from dpfl.provenance.page_identity import is_page_current
from dpfl.reporting.results import read_csv

PAPER = "bhaskar2025"
TABLE = f"tables/{PAPER}_table_2.csv"


@pytest.fixture
def project(tiny_project, pipeline, tmp_path, monkeypatch):
    """A copy of the tiny project as the working folder: its results, run tables, and `dpfl pages` in this process.

    The paper has a table and a figure only, and no claims: all pages take half a minute.
    """
    shutil.copytree(tiny_project, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    pipeline.forget()
    facts = replace(load(PAPER), tables={"table_2": load(PAPER).tables["table_2"]}, figures={})
    monkeypatch.setattr(report_commands, "load", lambda key: facts)
    monkeypatch.setattr(report_commands, "_judge", lambda *arguments, **options: [])
    monkeypatch.setattr(files, "_check_pages", lambda *arguments: None)
    monkeypatch.setattr(report_commands, "ProcessPoolExecutor", InThisProcess)
    results = tmp_path / "project" / "results" / "demo"
    shutil.rmtree(results / "figures")
    runs = [results / "runs" / PAPER / f"digits_scatter_linear_k10_seed{seed}.csv.gz" for seed in (0, 1)]
    return SimpleNamespace(results=results, runs=runs, pages=lambda: pipeline.run("pages", *pipeline.settings))


class InThisProcess:
    """A pool of no other processes."""

    def __init__(self, **options):
        self.map = map

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def test_a_page_is_finished_until_inputs_files_or_the_paper_change(project, monkeypatch):
    csv = project.results / TABLE
    runs = [run.relative_to(project.results.parents[1]) for run in project.runs]
    assert is_page_current(csv, PAPER, runs)
    assert not is_page_current(csv, PAPER, runs[:1])
    csv.with_suffix(".html").unlink()
    assert is_page_current(csv, PAPER, runs)
    with monkeypatch.context() as patch:
        patch.setattr("dpfl.provenance.page_identity.published_digest", lambda paper: "another")
        assert not is_page_current(csv, PAPER, runs)
        patch.undo()
        patch.setattr("dpfl.provenance.page_identity.is_current", lambda source: False)
        assert not is_page_current(csv, PAPER, runs)
    text = csv.read_text()
    csv.write_text(text + "more")
    assert not is_page_current(csv, PAPER, runs)
    csv.write_text(text)
    project.runs[0].write_bytes(b"other runs")
    assert not is_page_current(csv, PAPER, runs)
    record_path(csv).unlink()
    assert not is_page_current(csv, PAPER, runs)


def test_pages_are_made_from_the_runs_that_are_there_and_say_what_was_not_run(project):
    for path in (project.runs[1], record_path(project.runs[1])):
        path.unlink()
    (project.results / "workflow.html").write_text("<script>foreign</script></html>")
    done = project.pages()
    assert not (project.results / "workflow.html").exists()  # it shows older pages, and may be a stranger's
    assert done.exit_code == 0, (done.output, done.exception)
    assert "1 pages remade" in done.output and "1 of 2 jobs are not run: bhaskar2025 1 of 2" in done.output
    table = read_csv(project.results / TABLE)
    assert set(table["runs"]) == {0, 1}
    assert manifest.stated_not_run(project.results) == [f"{PAPER}/digits_scatter_linear_k10_seed1"]
    assert "not run: bhaskar2025 1 of 2" in (project.results / "audit.txt").read_text()
    page, short = ((project.results / name).read_text() for name in ("report.html", "README.md"))
    assert "<strong>1 of 2 jobs were run.</strong> We have" in page
    assert "**1 of 2 jobs were run.** We have" in short
    assert "Bhaskar 2025 1 of 2." in short and "Digits (stand-in for MNIST), ScatterNet + linear (1 of 2 run)" in short

    record = record_path(project.results / TABLE).read_bytes()
    done = project.pages()
    assert done.exit_code == 0 and "0 pages remade" in done.output
    assert record_path(project.results / TABLE).read_bytes() == record
    (project.results / TABLE).with_suffix(".md").write_text("edited")
    assert "1 pages remade" in project.pages().output


def test_complete_results_say_nothing_of_what_was_not_run(project):
    assert project.pages().exit_code == 0
    assert json.loads((project.results / "manifest.json").read_text())["not_run"] == []
    texts = [(project.results / name).read_text() for name in ("report.html", "README.md", "audit.txt")]
    assert not any("1 of 2 jobs were run." in text or "jobs are not run" in text for text in texts[1:])
    assert "of 2 jobs were run" not in texts[0]


def test_a_deleted_run_table_does_not_become_one_that_was_never_run(project):
    assert project.pages().exit_code == 0
    before = (project.results / "manifest.json").read_bytes()
    for path in (project.runs[1], record_path(project.runs[1])):
        path.unlink()
    refused = project.pages()
    assert refused.exit_code != 0 and "is gone, though manifest.json lists it" in str(refused.exception)
    assert (project.results / "manifest.json").read_bytes() == before


def test_without_run_tables_there_are_no_pages(project):
    for run in project.runs:
        run.unlink()
    assert "no run table in results/demo: run make first" in str(project.pages().exception)


def test_verdicts_are_made_after_every_page_that_they_are_read_from(project, monkeypatch):
    asked = []
    monkeypatch.setattr(report_commands, "_judge", lambda *arguments, anew: asked.append(anew) or [])
    assert project.pages().exit_code == 0
    record_path(project.results / TABLE).unlink()
    assert project.pages().exit_code == 0  # the table has the same bytes again, and is younger
    assert asked == [False, True]
