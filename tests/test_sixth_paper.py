"""A sixth paper is one folder, and a slip in a file of it is one line. tests/workflow runs it through all stages."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpfl import catalog
from dpfl.errors import InputError
from dpfl.grid import configuration, expansion
from dpfl.reporting import claims
from dpfl.reporting.columns import COLUMNS
from dpfl.reporting.results import Results, read_csv, write_csv

KEY = "smith2026"


@pytest.fixture
def papers(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of papers with the sixth alone."""
    shutil.copytree(repository / "workflow" / "new_paper", tmp_path / KEY)
    monkeypatch.setattr(catalog, "PAPERS", tmp_path)
    for cached in (catalog.keys, catalog.load):
        cached.cache_clear()
    yield tmp_path / KEY
    for cached in (catalog.keys, catalog.load):
        cached.cache_clear()


def test_the_template_meets_the_style_rules_of_papers(repository, tmp_path):
    """In workflow/ ruff asks for less of it."""
    shutil.copytree(repository / "workflow" / "new_paper", tmp_path / "src" / "dpfl" / "papers" / KEY)
    shutil.copy(repository / "pyproject.toml", tmp_path)
    for command in (["check"], ["format", "--check"]):
        found = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", "."],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.returncode == 0, found.stdout


@pytest.mark.parametrize(
    ("file", "right", "wrong", "named"),
    [
        ("paper.yaml", "url:", "ulr:", "paper.yaml: unknown key ulr"),
        ("paper.yaml", "url: https://example.org", "", "paper.yaml: lacks url; it needs title"),
        ("paper.yaml", "published: tests", "published: 2026", "published is 2026; it must be a text"),
        (
            "paper.yaml",
            "settings: {radius: 2.0, regularisation: 0.1}",
            "settings:",
            "settings is None; it must be keys",
        ),
        (
            "paper.yaml",
            "{radius: 2.0,",
            "{radius: {1: 2.0, all: 3.0},",
            "settings.radius has keys of two kinds, 1 and 'all'",
        ),
        ("paper.yaml", "url:", "inferred: [radius]\nurl:", "inferred is ['radius']; it must be keys and values"),
        ("paper.yaml", "    caption: Mean", "    captoin: Mean", "unknown key tables.risk.captoin"),
        ("claims.yaml", "  pending:", "  waiting:", "claims.yaml: unknown key optimal.waiting"),
        ("claims.yaml", "  scope: for all\n", "", "claims.yaml: noise_costs lacks scope"),
        ("claims.yaml", "  runs:", "  cases: []\n  runs:", "noise_costs.cases is []; it must be a list of at least 1"),
        ("claims.yaml", "{study: [risk]}", "{study: risk}", "noise_costs.runs.study is 'risk'; it must be a list"),
        (
            "claims.yaml",
            "unit: of excess risk",
            "our_question: maybe",
            "our_question is 'maybe'; it must be true or false",
        ),
        ("grid.yaml", "    cells:", "    cels:", "grid.yaml: unknown key demo.0.cels"),
        ("grid.yaml", "    sweep:", "    #", "grid.yaml, demo, entry 1 lacks sweep"),
        ("grid.yaml", "count: 2, ", "", "demo.0.seeds lacks count"),
        ("grid.yaml", "count: 2", "count: 2.0", "demo.0.seeds.count is 2.0; it must be an integer"),
        ("grid.yaml", "per_job: 2", "per_job: 0", "demo.0.seeds.per_job is 0; it must be at least 1"),
        ("grid.yaml", "{count: 2, per_job: 2}", "2", "demo.0.seeds is 2; it must be keys and values"),
        ("grid.yaml", "[10]", "10", "demo.0.sweep.batch_size is 10; it must be a list"),
        ("grid.yaml", "[200]", "[]", "demo.0.cells.users is []; it must be a list of at least 1"),
        ("grid.yaml", "{noise_std: [0.0, 2.0], users: [200]}", "", "demo.0.cells is None; it must be keys and values"),
        ("grid.yaml", "[0.0, 2.0]", "[0.0, 2.0, 2.0]", "grid.yaml: cells name {'noise_std': 2.0, 'users': 200} twice"),
        (
            "grid.yaml",
            "noise_std: [0.0, 2.0], users: [200]",
            '"noise_std,users": [[0.0, 200], [2.0]]',
            "should be a list of 2",
        ),
        ("grid.yaml", "[10]", "[10, 10]", "smith2026/grid.yaml gives the job digits_risk_"),
        ("grid.yaml", "  - experiment", "    experiment", "demo is {"),
        ("grid.yaml", "[digits]", "[digitz]", "dataset is 'digitz'"),
    ],
)
def test_a_slip_in_a_yaml_file_is_one_line(papers, file, right, wrong, named):
    path = papers / file
    text = path.read_text()
    assert right in text
    path.write_text(text.replace(right, wrong, 1))
    with pytest.raises(InputError, match=re.escape(named)) as refused:
        expansion.expand(configuration.resolve({"papers": [KEY]}))
    assert "\n" not in str(refused.value)


def test_a_paper_may_have_no_claims(papers, monkeypatch, tmp_path):
    (papers / "claims.yaml").write_text("")
    monkeypatch.setattr(claims, "module", lambda key, name: SimpleNamespace(__name__="c"))
    verdicts, evidence = claims.evaluate(KEY, Results(tmp_path))
    assert not len(verdicts) and not len(evidence)
    write_csv(verdicts, tmp_path / "verdicts.csv")
    assert list(read_csv(tmp_path / "verdicts.csv")) == list(COLUMNS["claims"])


def test_a_paper_needs_neither_a_grid_nor_errata(papers):
    (papers / "grid.yaml").unlink()
    assert expansion.expand(configuration.resolve({"papers": [KEY]})) == []
    assert catalog.load(KEY).errata == {}


@pytest.mark.parametrize(
    ("right", "wrong", "named"),
    [
        (
            "scope: for all",
            "scope: always",
            "claims.yaml: noise_costs.scope is 'always'; it must be one of",
        ),
        ("kind: difference", "kind: more", "kind is 'more'; it must be one of ['difference',"),
        ("unit: of excess risk", "margin: wide", "margin is 'wide'; it must be a number"),
        ("unit: of excess risk", "of: costs", "of is 'costs', which is not a claim"),
    ],
)
def test_the_rule_of_a_claim_must_be_known(papers, monkeypatch, tmp_path, right, wrong, named):
    path = papers / "claims.yaml"
    path.write_text(path.read_text().replace(right, wrong, 1))
    monkeypatch.setattr(claims, "module", lambda key, name: SimpleNamespace(__name__="c", noise_costs=print))
    with pytest.raises(InputError, match=re.escape(named)):
        claims.evaluate(KEY, Results(tmp_path))
