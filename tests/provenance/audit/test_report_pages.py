"""report.html and README.md have no record: the audit writes them again from the results."""

import json
import os

import pytest

from dpfl.files import record_path
from dpfl.grid.configuration import read
from dpfl.provenance.audit.files import check_report_pages
from dpfl.provenance.audit.findings import Audit
from dpfl.reporting.report_page.contents import contents
from dpfl.reporting.report_page.render import write


@pytest.fixture
def pages(project):
    """The pages of the tiny project, and a function that returns what the audit says of them."""
    folder = project.results
    config = read(folder / "config.yaml")

    def check():
        report = Audit()
        check_report_pages(report, folder, config)
        return [f"{found.path} {found.problem}" for found in report.findings], report

    assert check() == ([], Audit())  # a run writes them after its audit
    page, short = write(folder, contents(folder, config))
    return page, short, check


def test_pages_of_these_results_are_compared_and_found_right(pages):
    found, report = pages[2]()
    assert found == [] and report.checked == {"pages for readers": 2} and not report.notes


def test_a_forged_verdict_and_a_forged_number_are_found_where_they_stand(pages):
    page, short, check = pages
    lines = short.read_text().splitlines(keepends=True)
    row = next(number for number, line in enumerate(lines) if "| none yet |" in line)
    lines[row] = lines[row].replace("none yet", "7 as stated")
    short.write_text("".join(lines))
    page.write_text(page.read_text() + "<!-- -->")
    found, report = check()
    assert len(found) == 2
    assert found[0].startswith(f"results/demo/README.md is not what the results give, first in line {row + 1}: edited")
    assert found[1].startswith("results/demo/report.html is not what the results give, first in line")
    assert {path for finding in report.findings for path in finding.remove} == {page, short}


def test_a_clone_has_the_short_page_alone_and_it_is_compared(pages, project):
    page, short, check = pages
    for path in project.results.rglob("*.svg"):
        path.unlink()
    found, report = check()
    assert found == [] and report.checked == {"pages for readers": 1}
    assert report.notes == [
        "results/demo/report.html was not compared: pictures that it shows are not here (make pages)"
    ]
    page.unlink()
    short.write_text("")
    assert len(check()[0]) == 1


def test_odd_or_damaged_results_end_no_audit(pages, project):
    os.mkfifo(project.results / "tables" / "pipe")
    found, report = pages[2]()
    assert found == [] and len(report.notes) == 1
    (project.results / "tables" / "pipe").unlink()
    (project.results / "logs").mkdir(exist_ok=True)
    (project.results / "logs" / "x.log").symlink_to("nowhere")
    assert pages[2]()[1].notes == []  # pages show no log
    project.table.write_bytes(b"\xff\xfe\x00")
    assert all("cannot be made again from the results" in each for each in pages[2]()[0])


def test_a_paper_whose_runs_no_commit_accounts_for_says_so_on_both_pages(pages, project):
    page, short, check = pages
    clean = {"commit": "0" * 40, "dirty": False}
    for sources, count in (
        (({}, {}), ""),
        (({"dirty": True}, {}), "1 of 2"),
        (({"commit": None}, {"dirty": True}), "2 of 2"),
    ):
        for table, other in zip(project.runs, sources, strict=True):
            place = record_path(table)
            record = json.loads(place.read_text())
            record["source"] |= clean | other
            place.write_text(json.dumps(record))
        write(project.results, contents(project.results, read(project.results / "config.yaml")))
        words = f"{count} run tables were made from a changed source tree or name no commit."
        for path in (page, short):
            assert (words in path.read_text()) == bool(count)
            assert ("name no commit" in path.read_text()) == bool(count)
    record_path(project.runs[0]).write_text("[1]")
    write(project.results, contents(project.results, read(project.results / "config.yaml")))
    assert "2 of 2 run tables" in short.read_text() and check()[0] == []
