import shutil

import pytest

from dpfl.catalog import load
from dpfl.reporting import claims, figures, tables
from dpfl.reporting.pages import DERIVED, derive
from dpfl.reporting.results import Results
from dpfl.reporting.rules import Case, ClaimEvidence

PAPER = "asoodeh2020"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of pages as the stages write them: of a table, of a figure with data, of one without, of claims."""
    folder = tmp_path_factory.mktemp("made") / "demo"
    results = Results(folder, {})
    tables.make(PAPER, "errata", results, folder / "tables")
    for name in ("random_stopping", "utility"):
        figures.make(PAPER, name, results, folder / "figures")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "check_of", lambda paper, key: lambda results: ClaimEvidence([Case("case", 1.0)]))
        claims.write(PAPER, claims.evaluate(PAPER, results), folder / "claims")
    return folder


@pytest.fixture
def finished(made, tmp_path):
    """The content of the pages, copied to the test's folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_derived_pages_are_made_from_the_rest_byte_by_byte(finished, tmp_path):
    derived = {path for path in finished if path.suffix in DERIVED}
    kept = set(finished) - derived
    assert {path.suffix for path in kept} == {".csv", ".md", ".png"} and len(derived) == 10
    for path in derived:
        path.unlink()
    assert set(derive(tmp_path, PAPER)) == derived
    assert {path: path.read_bytes() for path in finished} == finished


@pytest.mark.slow
def test_pages_of_files_that_were_just_made_are_left_alone(finished, tmp_path):
    table = tmp_path / "tables" / f"{PAPER}_errata.csv"
    made = derive(tmp_path, PAPER, [table, tmp_path / "claims" / f"{PAPER}.csv"])
    assert len(made) == 6 and {path.parent.name for path in made} == {"figures"}


def test_pages_show_the_csv_and_nothing_else(finished, tmp_path):
    csv = tmp_path / "tables" / f"{PAPER}_errata.csv"
    csv.write_text(csv.read_text().replace("integration", "another route"))
    derive(tmp_path, PAPER)
    assert "another route" in csv.with_suffix(".html").read_text()
    assert csv.with_suffix(".md").read_bytes() == finished[csv.with_suffix(".md")]


def test_what_is_not_finished_is_left_out(tmp_path):
    assert load(PAPER).tables and derive(tmp_path, PAPER) == []
