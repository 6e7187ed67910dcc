"""Tables, figures and verdicts are made again, and a change in one is found."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from dpfl.errors import InputError
from dpfl.provenance.audit.recompute import TOLERANCE, agree, alike, difference, recompute
from dpfl.provenance.record import published_digest
from dpfl.reporting import claims, tables
from dpfl.reporting.results import Results, read_csv, write_csv
from dpfl.reporting.rules import ClaimEvidence, from_values

TABLE = pd.DataFrame({"name": ["a", "b"], "value": [1.0, 2000.0]})


def test_a_table_does_not_differ_from_itself_nor_in_digits_that_rounding_may_change():
    assert difference(TABLE, TABLE.copy()) == ""
    assert difference(TABLE, TABLE.assign(value=[1.0 + TOLERANCE / 2, 2000.001])) == ""


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (TABLE.assign(value=[1.0, 2001.0]), "value in row 2 is 2001.0, not 2000.0"),
        (TABLE.assign(name=["a", "c"]), "name in row 2 is c, not b"),
        (TABLE.iloc[:1], "1 rows instead of 2"),
        (TABLE.rename(columns={"value": "worth"}), "columns value, worth"),
        (TABLE[["value", "name"]], "columns in another order"),
        (TABLE.assign(name=["a", "x" * 80]), "name in row 2 is xxx"),
    ],
)
def test_the_first_difference_is_named(found, words):
    assert words in difference(TABLE, found)


def test_numbers_agree_relatively_and_missing_ones_with_themselves():
    assert agree(1e6, 1e6 + 0.5, 1e-6) and not agree(1e6, 1e6 + 2, 1e-6)
    assert not agree(1e-5, 1.001e-5, 1e-6) and agree(0.0, 1e-15, 1e-6)  # a delta, and what rounding leaves of zero
    assert agree(math.nan, math.nan, 0) and not agree(math.nan, 0.0, 1.0) and not agree(math.inf, 1.0, 1.0)
    assert agree("x", "x", 0) and not agree("1", 1.5, 1.0)


def test_pictures_are_alike_up_to_the_edges_of_their_letters(tmp_path):
    import matplotlib.pyplot as plt
    import numpy as np

    blank = np.ones((40, 40, 4))
    speck, other = blank.copy(), blank.copy()
    speck[0, :4] = 0
    other[:, :20] = 0
    for name, pixels in (("blank", blank), ("speck", speck), ("other", other), ("small", blank[:20])):
        plt.imsave(tmp_path / f"{name}.png", pixels)
    path = {name: tmp_path / f"{name}.png" for name in ("blank", "speck", "other", "small")}
    assert alike(path["blank"], path["speck"])
    assert not alike(path["blank"], path["other"]) and not alike(path["blank"], path["small"])


@pytest.mark.parametrize("error", [ZeroDivisionError("division by zero"), RuntimeError(), InputError("lost: find it")])
def test_a_table_that_cannot_be_made_again_is_a_finding_whatever_breaks(tmp_path, monkeypatch, error):
    path = tmp_path / "results" / "demo" / "tables" / "bhaskar2025_table_2.csv"
    path.parent.mkdir(parents=True)
    path.touch()
    record = {"settings": {"paper": "bhaskar2025", "name": "table_2"}, "stage": "tables", "source": {}, "inputs": []}
    outputs = [{"path": str(path.relative_to(tmp_path))}]

    def breaks(*_: object) -> None:
        raise error

    monkeypatch.setattr(tables, "make", breaks)
    (finding,) = recompute(tmp_path, record | {"outputs": outputs}).findings
    assert finding.path == outputs[0]["path"] and type(error).__name__ in finding.problem


def test_a_damaged_table_is_a_finding_and_a_lack_of_memory_is_none(tmp_path, monkeypatch):
    path = tmp_path / "results" / "demo" / "tables" / "bhaskar2025_errata.csv"
    path.parent.mkdir(parents=True)
    path.write_text('a,b\n1,"2\n')
    record = {"settings": {"paper": "bhaskar2025", "name": "errata"}, "stage": "tables", "source": {}, "inputs": []}
    record["outputs"] = [{"path": str(path.relative_to(tmp_path))}]

    def made(_paper, _name, _results, scratch):
        (scratch / "errata.csv").write_text("a,b\n1,2\n")
        return [scratch / "errata.csv"]

    monkeypatch.setattr(tables, "make", made)
    (finding,) = recompute(tmp_path, record).findings
    assert finding.path == record["outputs"][0]["path"]

    def hungry(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(tables, "make", hungry)
    with pytest.raises(MemoryError):
        recompute(tmp_path, record)


def test_the_card_beside_a_table_is_compared_as_a_page_of_its_own(tmp_path, monkeypatch):
    """Both end in .md."""
    contents = {
        "bhaskar2025_table_2.csv": "a\n1\n",
        "bhaskar2025_table_2.md": "page",
        "bhaskar2025_table_2.privacy.md": "ε",
    }

    def made(_paper, _name, _results, scratch):
        for name, content in contents.items():
            (scratch / name).write_text(content)
        return [scratch / name for name in contents]

    folder = tmp_path / "results" / "demo" / "tables"
    folder.mkdir(parents=True)
    made(None, None, None, folder)
    monkeypatch.setattr(tables, "make", made)
    record = {"settings": {"paper": "bhaskar2025", "name": "table_2"}, "stage": "tables", "source": {}, "inputs": []}
    record["outputs"] = [{"path": f"results/demo/tables/{name}"} for name in contents]
    assert recompute(tmp_path, record).findings == []
    (folder / "bhaskar2025_table_2.privacy.md").write_text("less")
    (finding,) = recompute(tmp_path, record).findings
    assert finding.path == "results/demo/tables/bhaskar2025_table_2.privacy.md"


# Verdicts are made again with their evidence, and a change in either is found.


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
    write_csv(change(read_csv(path)), path)


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
