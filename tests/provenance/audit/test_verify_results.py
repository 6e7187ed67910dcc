"""A whole audit finds nothing where nothing was done, and everything that was, however well it is hidden.

Whoever tampers can rewrite records, so hashes find the careless only. What they leave: tables and figures are made
again from the run tables, run tables are held against grid and calibration, epsilons against another accountant. Who
remakes everything below a changed number is found by training it again.
"""

import json
import os
from dataclasses import replace
from functools import partial

import pandas as pd
import pytest
from typer.testing import CliRunner

from dpfl.cli import app
from dpfl.commands import git
from dpfl.errors import InputError
from dpfl.files import record_path
from dpfl.grid.configuration import read
from dpfl.grid.expansion import expand
from dpfl.provenance.audit import records as commits
from dpfl.provenance.audit import verify_results
from dpfl.provenance.audit.findings import Audit
from dpfl.provenance.audit.records import check_runs
from dpfl.provenance.audit.rerun import Choice


def change(path, column, value, where=slice(None)):
    """Set a column of a CSV; the rest keeps every character."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    assert not (table.loc[where, column] == value).any()
    table.loc[where, column] = value
    table.to_csv(path, index=False, lineterminator="\n")


def test_untouched_results_have_no_findings_and_everything_was_checked(project):
    found, seen = project.findings()
    assert found == []
    assert seen.checked["runs"] == 4 and seen.checked["tables, figures and verdicts"] == 3
    assert seen.checked["distinct epsilons"] == 4
    assert not any("other versions" in note or "without --quick" in note for note in seen.notes)


def test_runs_by_another_version_of_the_code_are_counted_and_no_finding(project):
    if (commit := git(commits._REPOSITORY, "rev-parse", "HEAD")) is None:
        pytest.skip("the source tree is no git checkout")
    place = record_path(project.runs[0])
    record = json.loads(place.read_text())
    record["source"] |= {"digest": "0123456789abcdef", "commit": commit.decode().strip(), "dirty": True}
    record["identity"] |= {"code": "0123456789abcdef"}
    place.write_text(json.dumps(record))
    found, seen = project.findings(quick=True)
    [note] = [note for note in seen.notes if "other versions" in note]
    assert found == [] and note.startswith("1 of 2 run tables")
    assert f"{record['source']['commit'][:7]})" in note
    assert any(each.startswith("trained from a changed tree or without a commit:") for each in seen.notes)


def test_a_slip_in_the_job_to_train_again_is_found_before_the_work(project, monkeypatch):
    monkeypatch.setattr(verify_results, "check_runs", None)
    job = expand(read(project.results / "config.yaml"))[0]
    with pytest.raises(InputError, match=rf"^--rerun-cell '.*x' names no job of \d+; the nearest is .*{job.name}$"):
        project.findings(quick=True, rerun=Choice(cell=f"{job.paper}/{job.name}x"))


@pytest.mark.slow
def test_the_audit_on_several_processors_finds_the_same(project, monkeypatch):
    change(project.table, "accuracy_pct", "99.99", where=[0])
    project.hide(project.table)
    alone, _ = project.findings()
    monkeypatch.setattr(verify_results, "available_cpu_count", lambda: 2)
    together, _ = project.findings()
    assert alone == together and len(alone) == 1


def test_a_process_that_the_system_killed_is_one_line():
    with pytest.raises(InputError, match="a process was killed, perhaps because there is no memory left"):
        list(verify_results.at_once([partial(os._exit, 9)] * 2, each_anew=True))


def test_runs_from_before_another_calibration_may_state_less_than_it_and_not_more(project):
    """A better accountant proves more of the same noise; nobody trains again for that."""
    told = pd.read_csv(project.noise)["privacy_epsilon_proven"].iloc[1]
    records = {path: json.loads(record_path(path).read_text()) for path in project.runs}
    jobs = expand(read(project.results / "config.yaml"))
    for proven, problems in ((told * 0.9, 0), (told * 1.1, 2)):
        change(project.noise, "privacy_epsilon_proven", str(proven), where=[1])
        report = Audit()
        check_runs(report, project.root, "demo", jobs)
        assert report.findings == report.notes == [], "a damaged table of noise says nothing against its runs"
        project.hide(project.noise)
        for path, record in records.items():
            record_path(path).write_text(json.dumps(record))
        check_runs(report, project.root, "demo", jobs)
        assert len(report.findings) == problems
        assert sum("calibrated again since" in each for each in report.notes) == 1
    project.hide(project.noise)
    report = Audit()
    check_runs(report, project.root, "demo", jobs)
    assert len(report.findings) == 2 and not any("calibrated again" in each for each in report.notes)
    change(project.noise, "privacy_epsilon_proven", str(told), where=[1])
    change(project.noise, "privacy_epsilon_refuted", "0.5", where=[1])
    project.hide(project.noise)
    for path, record in records.items():
        record_path(path).write_text(json.dumps(record))
    report = Audit()
    check_runs(report, project.root, "demo", jobs)
    assert report.findings == [] and any("2 of them state an epsilon to be refuted" in each for each in report.notes)


def test_a_grid_that_the_scale_asks_for_may_lack_its_last_seeds_and_no_others(project):
    jobs = expand(read(project.results / "config.yaml") | {"seeds": [0, 1, 2]})

    def check(all_seeds):
        seen = Audit()
        check_runs(seen, project.root, "demo", jobs, all_seeds=all_seeds)
        return [finding.path for finding in seen.findings], seen.notes

    lost = "results/demo/runs/bhaskar2025/digits_scatter_linear_k10_seed{}.csv.gz"
    words = "begun here and not finished, or its last seeds deleted: bhaskar2025/digits_scatter_linear_k10 after seed 1"
    assert check(all_seeds=True) == ([lost.format(2)], [])
    assert check(all_seeds=False) == ([], [words])
    project.runs[0].unlink()
    assert check(all_seeds=False) == ([lost.format(0)], [words])
    jobs.append(replace(jobs[0], name="digits_scatter_linear_k25_seed0"))  # a family that has not begun
    between = (
        "not run, though later seeds of the same cells are, or deleted: bhaskar2025/digits_scatter_linear_k10_seed0"
    )
    assert check(all_seeds=False) == ([], [between, words])
    assert check(all_seeds=True) == ([lost.format(0), lost.format(2)], [])


@pytest.mark.parametrize(
    "page", [pytest.param("tables/bhaskar2025_table_2.rst", marks=pytest.mark.slow), "figures/bhaskar2025_splits.rst"]
)
def test_an_edited_caption_is_found_without_drawing(project, page):
    path = project.results / page
    path.write_text(path.read_text().replace("published", "expected"))
    project.hide(path)
    assert project.by_hashes() == []
    assert project.findings(quick=True)[0] == [f"results/demo/{page} is not what its data give"]


@pytest.mark.parametrize("digest_too", [pytest.param(False, marks=pytest.mark.slow), True])
def test_an_edited_published_value_is_found_in_the_paper_s_own_file(project, monkeypatch, digest_too):
    values = project.published().tables["table_2"]["published_accuracy_pct"]["scatter_linear"]
    monkeypatch.setitem(values, 2.93, [50.0, *values[2.93][1:]])
    assert project.by_hashes() == []
    if digest_too:
        from dpfl.provenance.record import published_digest

        for place in project.results.rglob("*.record.json"):
            record = json.loads(place.read_text())
            if "published" in record["source"] and record["settings"]["paper"] == "bhaskar2025":
                record["source"]["published"] = published_digest("bhaskar2025")
                place.write_text(json.dumps(record))
    found, _ = project.findings(quick=True)
    assert any("table_2.csv differs from what its runs give: published_accuracy_pct" in each for each in found)
    assert any("was made from other YAML files" in each for each in found) is not digest_too


def test_a_fact_that_no_page_shows_is_a_note_alone(project, monkeypatch):
    monkeypatch.setitem(project.published().errata, "another", {"number": 9})
    found, seen = project.findings(quick=True)
    # A picture that was not drawn again may show it.
    assert len(found) == 2 and all("/figures/" in each and "was made from other YAML files" in each for each in found)
    assert sum("was made from other YAML files of bhaskar2025, and shows the same" in note for note in seen.notes) == 1


def test_the_quick_audit_leaves_pictures_to_their_hashes_and_says_so(project):
    picture = project.results / "figures" / "bhaskar2025_splits.svg"
    picture.write_text("<svg/>")
    project.hide(picture)
    found, seen = project.findings(quick=True)
    assert found == [] and any("pictures were compared with their hashes only" in note for note in seen.notes)
    assert seen.checked["tables, figures and verdicts"] == 3


@pytest.mark.slow
def test_the_command_trains_again_and_ends_with_1_and_a_list_where_something_differs(project):
    def audit(*options):
        project.by_hashes()  # forgets what this process knew of the files
        return CliRunner().invoke(app, ["audit", "results/demo", *options])

    done = audit("--quick", "--rerun", "1")
    assert done.exit_code == 0, done.output
    assert "1 runs trained again checked" in done.output and "0 findings" in done.output
    change(project.runs[1], "status", "diverged", where=[0])
    done = audit("--files-only")
    assert done.exit_code == 1
    assert "seed1.csv.gz changed since stage train wrote it" in done.output.splitlines()[0]
