"""Verdicts are made again with their evidence, and a change in either is found."""

from types import SimpleNamespace

import pytest

from dpfl.provenance.audit.recompute import recompute
from dpfl.provenance.record import published_digest
from dpfl.reporting import claims
from dpfl.reporting.results import Results, read_csv, write_csv
from dpfl.reporting.rules import ClaimEvidence, from_values

PAPER = "asoodeh2020"


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """A folder with verdicts of made-up cases, and the record of their stage."""
    made_up = ClaimEvidence([from_values("three runs", [1.0, 1.2, 0.9])])
    monkeypatch.setattr(claims, "check_of", lambda paper, key: lambda results: made_up)
    folder = tmp_path / "results" / "demo"
    paths = claims.write(PAPER, claims.evaluate(PAPER, Results(folder)), folder / "claims")
    record = {
        "stage": "claims",
        "settings": {"paper": PAPER},
        "inputs": [],
        "outputs": [{"path": str(path.relative_to(tmp_path))} for path in paths],
        "source": {"published": published_digest(PAPER)},
        "software": {},
    }
    return SimpleNamespace(root=tmp_path, record=record, verdicts=paths[0], evidence=paths[1], page=paths[2])


def rewrite(path, change):
    data = change(read_csv(path))
    with path.open("w") as stream:
        write_csv(data, stream)


def test_untouched_verdicts_have_no_findings(judged):
    assert recompute(judged.root, judged.record).findings == []


@pytest.mark.parametrize(
    ("file", "column", "value", "named"),
    [
        ("verdicts", "verdict", "not run", "verdict in row 1 is not run, not refuted"),
        ("evidence", "estimate", 9.0, f"{PAPER}_evidence.csv: estimate in row 1 is 9.0"),
    ],
)
def test_a_changed_verdict_or_case_is_found(judged, file, column, value, named):
    rewrite(getattr(judged, file), lambda data: data.assign(**{column: value}))
    [finding] = recompute(judged.root, judged.record).findings
    assert named in finding.problem and finding.path == str(judged.verdicts.relative_to(judged.root))


def test_last_digits_may_differ_and_then_the_page_shows_what_is_there(judged):
    rewrite(judged.evidence, lambda data: data.assign(estimate=data["estimate"] * (1 + 1e-12)))
    report = recompute(judged.root, judged.record)
    assert report.findings == [] and any("last digits" in note for note in report.notes)
    judged.page.write_text(judged.page.read_text().replace("refuted", "as stated"))
    [finding] = recompute(judged.root, judged.record).findings
    assert finding.path.endswith(".html")


def test_an_invented_input_excuses_nothing(judged):
    rewrite(judged.verdicts, lambda data: data.assign(verdict="as stated"))
    judged.record["inputs"].append({"path": "data/extra/none.npy", "sha256": "0" * 64})
    [finding] = recompute(judged.root, judged.record).findings
    assert "verdict in row 1" in finding.problem


def test_what_is_to_be_deleted_is_what_the_stage_wrote_and_nothing_beside_it(judged):
    notes = judged.verdicts.with_suffix(".notes.txt")
    notes.write_text("mine")
    judged.page.write_text("something else")
    [finding] = recompute(judged.root, judged.record).findings
    assert {judged.verdicts, judged.evidence, judged.page} < set(finding.remove) and notes not in finding.remove


def test_a_page_that_its_data_do_not_give_is_found(judged):
    judged.page.write_text("something else")
    [finding] = recompute(judged.root, judged.record).findings
    assert finding.path.endswith(".html")
