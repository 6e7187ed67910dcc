"""docs/conformance.md: its table is what `dpfl check` prints, and the claims are what the libraries say today."""

import json
import runpy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpfl.accounting.vectors import quantities
from dpfl.cli.app import app

DOCS = Path(__file__).parents[1] / "docs"
CLAIMS = json.loads((DOCS / "claims.json").read_text(encoding="utf-8"))["claims"]


def test_the_table_is_what_the_command_prints():
    ran = CliRunner().invoke(app, ["check", str(DOCS / "claims.json")])
    assert ran.exit_code == 1  # some claims are refuted
    header, *printed = [line.split(" | ") for line in ran.stdout.splitlines()]
    lines = [line for line in (DOCS / "conformance.md").read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    columns, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    expected = [[dict(zip(header, row, strict=True))[column] for column in columns] for row in printed]
    assert rows == expected
    assert {row[columns.index("verdict")] for row in rows} == {"proven", "refuted", "unknown"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("library", "needs"), [("opacus", "opacus"), ("dp_accounting", "dp_accounting"), ("flower", "flwr")]
)
def test_the_claims_are_what_the_library_says(library, needs):
    pytest.importorskip(needs)
    prefix, collect = runpy.run_path(str(DOCS / "collect_claims.py"))["LIBRARIES"][library]
    stored = [claim for claim in CLAIMS if claim["name"].startswith(prefix)]
    fresh = list(collect())
    assert len(stored) == len(fresh) > 0
    for old, new in zip(stored, fresh, strict=True):
        assert new == {**old, "epsilon": pytest.approx(old["epsilon"], rel=1e-6)}


def test_the_page_counts_the_vectors():
    every = quantities().values()
    closed = sum(len(each.vectors) for each in every if each.dpfl)
    epsilons = sum(len(each.vectors) for each in every if not each.dpfl)
    page = " ".join((DOCS / "conformance.md").read_text(encoding="utf-8").split())
    assert f"{closed + epsilons} vectors" in page and f"{closed} values" in page and f"{epsilons} epsilons" in page
