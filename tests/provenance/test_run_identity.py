"""Finished stages: run tables, noise and pages, by what their records say."""

import json
import os
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml

from dpfl.catalog import dataset_entries, load
from dpfl.cli import report_commands
from dpfl.files import record_path
from dpfl.grid import configuration, expansion
from dpfl.provenance import manifest, run_identity
from dpfl.provenance import record as environment
from dpfl.provenance.audit import files, verify_results
from dpfl.provenance.run_identity import is_page_current
from dpfl.reporting.results import read_csv, write_csv


@pytest.fixture
def finished(tiny_project, tmp_path, monkeypatch):
    """A copy of the tiny project's results without its data, at new times; returns the results and the jobs."""
    shutil.copytree(tiny_project / "results", tmp_path / "results")
    for file in (tmp_path / "results").rglob("*"):
        os.utime(file, (10**9, 10**9))
    monkeypatch.chdir(tmp_path)
    results = tmp_path / "results" / "demo"
    jobs = expansion.expand(configuration.resolve(yaml.safe_load((results / "config.yaml").read_text())))
    return results, jobs


def test_results_that_came_without_data_are_finished(finished):
    results, jobs = finished
    assert [run_identity.is_finished(job, results) for job in jobs] == [True, True]
    assert run_identity.is_calibrated(jobs, results / "accounting/bhaskar2025.csv")
    assert run_identity.is_calibrated(jobs[:1], results / "accounting/bhaskar2025.csv")


def test_noise_that_is_not_what_its_record_says_is_calibrated_anew(finished):
    results, jobs = finished
    table = results / "accounting/bhaskar2025.csv"
    table.write_text(table.read_text().replace("64", "65", 1))
    assert not run_identity.is_calibrated(jobs, table)
    table.write_text("")
    assert not run_identity.is_calibrated(jobs, table)


def damaged(path):
    """A record of which a part is lost."""
    path.write_text(path.read_text()[:-20])


def replaced(**parts):
    """A change of a record: other values of the given parts."""

    def change(path):
        record = json.loads(path.read_text())
        for name, values in parts.items():
            record[name] |= values
        path.write_text(json.dumps(record))

    return change


@pytest.mark.parametrize(
    "change",
    [
        os.unlink,
        damaged,
        replaced(identity={"job": "0" * 16}),
        replaced(identity={"dataset": "0" * 16}),
        replaced(identity={"data_code": "0" * 16}),
        replaced(identity={"code": "0" * 16}),
        replaced(software={"opacus": "1.5.0"}),
        replaced(software={"torch": "1.13.1"}),
        replaced(software={"torch": "none"}),
    ],
)
def test_a_run_whose_record_says_otherwise_is_trained_again_and_no_other(finished, change):
    results, (first, second) = finished
    change(record_path(expansion.run_table_path(results, first.paper, first.name)))
    assert not run_identity.is_finished(first, results) and run_identity.is_finished(second, results)


@pytest.mark.parametrize(
    ("column", "factor", "stays"),
    [
        ("noise_multiplier", 1.01, False),
        ("noise_multiplier", 1 - 1e-5, False),
        ("noise_multiplier", 1 + 6e-7, True),  # a search that ends elsewhere, on another processor or by a sharper law
        ("privacy_epsilon_proven", 1.01, True),
    ],
)
def test_another_noise_is_trained_again_and_another_proof_of_the_same_noise_is_not(finished, column, factor, stays):
    results, jobs = finished
    table = results / "accounting" / "bhaskar2025.csv"
    noise = read_csv(table)
    noise[column] *= factor
    with open(table, "w", encoding="utf-8") as file:
        write_csv(noise, file)
    os.utime(table)
    assert {run_identity.is_finished(job, results) for job in jobs} == {stays}


def test_the_same_noise_beside_that_of_other_jobs_is_the_same(finished):
    """A configuration that leaves jobs out gives their paper's table fewer columns, and numbers other types."""
    results, jobs = finished
    path = results / "accounting" / "bhaskar2025.csv"
    noise = read_csv(path)
    other = noise.iloc[:1].assign(calibration_key="another", fraction=0.5, local_epochs=float("nan"))
    for noise_multiplier, stays in ((1.0, True), (1.01, False)):
        table = pd.concat([noise.assign(noise_multiplier=noise["noise_multiplier"] * noise_multiplier), other])
        with open(path, "w", encoding="utf-8") as file:
            write_csv(table, file)
        os.utime(path, (noise_multiplier, noise_multiplier))
        hashes = {run_identity.noise_of(job, path)["noise"] for job in jobs}
        stated = json.loads(record_path(expansion.run_table_path(results, "bhaskar2025", jobs[0].name)).read_text())
        assert stated["identity"]["noise"] not in hashes
        assert {run_identity.is_finished(job, results) for job in jobs} == {stays}


def test_a_run_is_of_this_code_whatever_its_accountants_were(finished):
    """The record's digest of all code differs after an edit of an accountant; that of the training code does not."""
    results, (job, _) = finished
    record = json.loads(record_path(expansion.run_table_path(results, job.paper, job.name)).read_text())
    record["source"]["modules"] = [run_identity.training_code(job.experiment)]
    assert run_identity.is_trained_here(record | {"source": record["source"] | {"digest": "0" * 16}})
    assert not run_identity.is_trained_here(record | {"identity": record["identity"] | {"code": "0" * 16}})
    assert not run_identity.is_trained_here(record | {"identity": "none"})
    assert not run_identity.is_trained_here(record | {"source": {"modules": ["dpfl.experiments.of_old"]}})


def test_a_table_without_the_noise_of_a_job_says_nothing_about_its_runs(finished):
    results, jobs = finished
    path = results / "accounting" / "bhaskar2025.csv"
    path.write_text(path.read_text().replace(jobs[0].calibration_key, "another"))
    os.utime(path)
    assert all(run_identity.is_finished(job, results) for job in jobs)


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "", "\x00", '"'])
def test_damaged_noise_is_left_to_the_stage_that_reads_it(finished, text):
    results, jobs = finished
    path = results / "accounting" / "bhaskar2025.csv"
    path.write_text(text)
    os.utime(path, (len(text), 3))
    assert all(run_identity.is_finished(job, results) for job in jobs)


def test_runs_beside_a_noise_that_is_no_number_are_not_finished(finished):
    results, jobs = finished
    path = results / "accounting" / "bhaskar2025.csv"
    noise = read_csv(path)
    noise["noise_multiplier"] = "<" + noise["noise_multiplier"].astype(str)
    with open(path, "w", encoding="utf-8") as file:
        write_csv(noise, file)
    os.utime(path, (5, 5))
    assert not any(run_identity.is_finished(job, results) for job in jobs)


def test_a_damaged_run_table_beside_other_noise_is_not_finished(finished):
    results, (first, second) = finished
    replaced(identity={"noise": "0" * 16})(record_path(expansion.run_table_path(results, first.paper, first.name)))
    assert run_identity.is_finished(first, results)  # its own rows have the noise
    expansion.run_table_path(results, first.paper, first.name).write_bytes(b"no gzip")
    assert not run_identity.is_finished(first, results) and run_identity.is_finished(second, results)


def test_without_its_noise_a_run_is_still_finished(finished):
    results, jobs = finished
    os.unlink(results / "accounting" / "bhaskar2025.csv")
    assert all(run_identity.is_finished(job, results) for job in jobs)


@pytest.mark.parametrize(
    "change",
    [
        replaced(host={"device": "cuda", "threads": 16}),
        replaced(software={"torch": "2.11.0+cu130", "numpy": "2.5.2", "pandas": "2.0", "python": "3.12.3"}),
        replaced(source={"commit": None, "dirty": None}),
    ],
)
def test_device_machine_and_versions_that_round_alike_do_not_count(finished, change):
    results, (first, _) = finished
    change(record_path(expansion.run_table_path(results, first.paper, first.name)))
    assert run_identity.is_finished(first, results)


def test_a_lost_or_linked_run_table_is_trained_again(finished):
    results, (first, second) = finished
    table, other = (expansion.run_table_path(results, each.paper, each.name) for each in (first, second))
    table.unlink()
    assert not run_identity.is_finished(first, results)
    table.symlink_to(other)
    assert not run_identity.is_finished(first, results)


def test_another_version_that_is_installed_here_counts(finished, monkeypatch):
    results, (first, _) = finished
    monkeypatch.setitem(environment.SAME_NUMBERS, "torch", ">=99")
    assert run_identity.is_finished(first, results)
    replaced(software={"torch": "2.7.0"})(record_path(expansion.run_table_path(results, first.paper, first.name)))
    assert not run_identity.is_finished(first, results)


@pytest.mark.parametrize(
    ("key", "value", "counts"), [("title", "Other digits", False), ("licence", "none", False), ("note", "New.", True)]
)
def test_words_of_an_entry_do_not_train_again_but_what_runs_state_does(finished, monkeypatch, key, value, counts):
    results, (first, _) = finished
    monkeypatch.setitem(dataset_entries()["digits"], key, value)
    assert run_identity.is_finished(first, results) is not counts


def test_the_lock_file_pins_versions_whose_runs_count():
    pinned = environment.locked_versions(environment.LOCK.read_text())
    assert environment.gives_these_numbers({name: pinned[name] for name in environment.SAME_NUMBERS})


# Pages of results of which a part was not run: finished ones stay, the others are made from the runs there are.


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
    monkeypatch.setattr(verify_results, "ProcessPoolExecutor", InThisProcess)
    results = tmp_path / "project" / "results" / "demo"
    shutil.rmtree(results / "figures")
    runs = [results / "runs" / PAPER / f"digits_scatter_linear_k10_seed{seed}.csv.gz" for seed in (0, 1)]
    return SimpleNamespace(results=results, runs=runs, pages=lambda: pipeline.run("pages", *pipeline.settings))


class InThisProcess:
    """A pool of no other processes."""

    def __init__(self, *arguments, **options):
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
        patch.setattr("dpfl.provenance.run_identity.published_digest", lambda paper: "another")
        assert not is_page_current(csv, PAPER, runs)
        patch.undo()
        patch.setattr("dpfl.provenance.run_identity.is_current", lambda source: False)
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
    assert re.search(r"<strong>1 of 2 jobs were run\.</strong> (\d+) of \d+ published numbers were run\.", page)
    assert re.search(r"\*\*1 of 2 jobs were run\.\*\* (\d+) of \d+ published numbers were run\.", short)
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
    assert "no run table in results/demo: dpfl run" in str(project.pages().exception)


def test_verdicts_are_made_after_every_page_that_they_are_read_from(project, monkeypatch):
    asked = []
    monkeypatch.setattr(report_commands, "_judge", lambda *arguments, anew: asked.append(anew) or [])
    assert project.pages().exit_code == 0
    record_path(project.results / TABLE).unlink()
    assert project.pages().exit_code == 0  # the table has the same bytes again, and is younger
    assert asked == [False, True]


def test_every_run_that_ships_is_of_this_training_code(repository):
    """One definition of the accountants that training uses too, written another way, would train everything again."""
    folder = repository / "results" / "paper"
    stated, today = {}, {}
    for job in expansion.expand(configuration.read(folder / "config.yaml")):
        table = folder / "runs" / job.paper / f"{job.name}.csv.gz"
        if table.is_file():
            today[job.name] = run_identity.run_identity(job)
            identity = json.loads(record_path(table).read_text())["identity"]
            stated[job.name] = {key: identity[key] for key in today[job.name]}
    assert stated and stated == today
