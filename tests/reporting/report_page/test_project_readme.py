from dataclasses import replace
from pathlib import Path

import pytest

from dpfl.catalog import keys, load
from dpfl.errors import InputError
from dpfl.grid import configuration
from dpfl.reporting.report_page.contents import JobCounts, contents
from dpfl.reporting.report_page.project_readme import SCALE, updated

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = ROOT / "results" / SCALE
SHIPPED = (RESULTS / "config.yaml").is_file()


def rows(text):
    """The verdicts of each paper in a README."""
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| [`")]
    return {each[0].split("`")[1]: each[-1] for each in cells}


@pytest.mark.skipif(not SHIPPED, reason="no results of scale paper are here")
def test_the_readme_says_what_the_results_say():
    assert updated(README, contents(RESULTS, configuration.read(RESULTS / "config.yaml"))) == README


def test_every_paper_has_a_row_with_its_link():
    absent = [key for key in keys() if key not in rows(README) or load(key).title.lower()[:30] not in README.lower()]
    assert not absent, f"the table of papers in README.md needs a row with the key and the title of {absent}"
    assert set(rows(README)) <= set(keys())


def test_verdicts_and_lines_are_replaced_and_nothing_else(made):
    page = contents(*made)
    text = updated(README, page)
    assert rows(text)["asoodeh2020"] == "1 as stated, 1 weaker than stated, 1 refuted, 1 undecided, 1 not run"
    assert rows(text)["lowy2021"] == rows(README)["lowy2021"]
    assert "0 of 27 jobs run. Claims: 2 as stated, 2 weaker than stated, 2 refuted" in text.replace("\n", " ")
    assert "5 of 72 printed numbers run" in text.replace("\n", " ")
    assert "Printed numbers with no run of ours, Bhaskar 2025: Table 2, MNIST, " in text.replace("\n", " ")
    assert "Epsilons that are stated, Bhaskar 2025: 1 proven, 1 refuted, 1 unproven." in text.replace("\n", " ")
    assert "Those refuted: Bhaskar 2025 1, " in text and "Those unproven: Bhaskar 2025 1, " in text
    refuted = [claim.text for view in page.papers for claim in view.claims if claim.verdict.word == "refuted"]
    bullets = text.partition("Refuted, each by cases that the page shows:")[2].partition("<!-- end")[0]
    assert bullets.count("\n- ") == len(refuted) == 2
    assert all(claim in " ".join(bullets.split()) for claim in refuted)
    assert updated(text, page) == text
    assert text.partition("<!-- end of results -->")[2] == README.partition("<!-- end of results -->")[2]
    assert max(map(len, text.partition("<!-- results")[2].partition("<!-- end")[0].splitlines())) <= 120


def test_complete_results_name_no_job_that_is_missing(made):
    page = contents(*made)
    done = replace(page, papers=tuple(replace(view, jobs=JobCounts(7, 7)) for view in page.papers))
    assert "All 14 jobs run." in updated(README, done) and "not run: " not in updated(README, done)


@pytest.mark.parametrize("lost", ["<!-- end of results -->\n", "| [`asoodeh2020`]"])
def test_a_readme_without_its_places_is_refused(made, lost):
    with pytest.raises(InputError, match=r"README\.md has no"):
        updated(README.replace(lost, ""), contents(*made))
