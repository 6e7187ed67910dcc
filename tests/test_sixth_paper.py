"""A sixth paper is one folder: `dpfl new-paper` writes it, its stages run, and a slip in a file of it is one line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from dpfl import catalog
from dpfl.cli.paper_commands import new_paper
from dpfl.errors import InputError
from dpfl.grid import configuration, expansion
from dpfl.reporting import claims
from dpfl.reporting.results import Results

KEY = "smith2026"
SWEEP = "digits_risk_b10_seeds0to1"


@pytest.fixture(scope="module")
def project(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project to which nothing but the paper's folder was added."""
    folder = tmp_path_factory.mktemp("six")
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "workflow"):
        shutil.copytree(repository / name, folder / name, ignore=unwanted)
    for name in ("Snakefile", "config.yaml"):
        shutil.copy(repository / name, folder / name)
    in_copy(folder, "-m", "dpfl", "new-paper", KEY)
    (folder / "mine.yaml").write_text(f"papers: [{KEY}]\n")
    return folder


STAGES = """
import sys
from dpfl.cli import app
for line in sys.stdin.read().splitlines():
    app([*line.split(), "--config", "mine.yaml"], standalone_mode=False)
"""


def in_copy(project: Path, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python in the copy's folder, on the copy's source."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(project / "src"), "OMP_NUM_THREADS": "1", "PATH": path}
    done = subprocess.run(
        [sys.executable, *command], cwd=project, env=environment, input=text, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.slow
def test_the_stages_of_a_sixth_paper_run(project):
    stages = ["data arrays --dataset digits", f"calibrate --paper {KEY}", f"train --paper {KEY} --sweep {SWEEP}"]
    stages += [f"{stage} --paper {KEY}" for stage in ("tables", "figures", "claims")]
    in_copy(project, "-c", STAGES, text="\n".join(stages))
    results = project / "results" / "demo"
    risks = pd.read_csv(results / "tables" / f"{KEY}_risk.csv")
    assert risks["noise_std"].tolist() == [0.0, 2.0] and risks["runs"].tolist() == [2, 2]
    assert 0 < risks["excess_risk"][0] < risks["excess_risk"][1]
    assert (results / "figures" / f"{KEY}_risk.png").stat().st_size > 5000
    verdicts = pd.read_csv(results / "claims" / f"{KEY}.csv").set_index("claim")
    assert verdicts["verdict"].to_dict() == {"noise_costs": "undecided", "optimal": "not run"}
    assert "Stand-in data only (digits)" in verdicts["reason"]["noise_costs"]
    evidence = pd.read_csv(results / "claims" / f"{KEY}_evidence.csv")
    assert evidence["claim"].tolist() == ["noise_costs"] and evidence["estimate"][0] > 0


@pytest.mark.workflow
def test_the_workflow_finds_the_sixth_paper(project):
    planned = in_copy(project, "-m", "dpfl", "run", "--dry-run", "--config", "mine.yaml")
    assert f"results/demo/claims/{KEY}.csv" in planned.stdout + planned.stderr


@pytest.mark.parametrize("key", ["Smith2026", "smith", "../x2026", "smith 2026", "bhaskar2025"])
def test_a_key_that_cannot_be_is_one_line(repository, monkeypatch, key):
    monkeypatch.chdir(repository)
    with pytest.raises(InputError, match=re.escape(key)) as refused:
        new_paper(key)
    assert "\n" not in str(refused.value)


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


@pytest.mark.parametrize(
    ("file", "right", "wrong", "named"),
    [
        ("paper.yaml", "url:", "ulr:", "paper.yaml lacks url"),
        ("paper.yaml", "url:", "year: 2026\nurl:", "paper.yaml has an unknown key year"),
        ("paper.yaml", "    caption: Mean", "    captoin: Mean", "tables.risk lacks caption"),
        ("claims.yaml", "  pending:", "  waiting:", "claims.yaml, optimal has an unknown key waiting"),
        ("claims.yaml", "  scope:", "  scop:", "claims.yaml, noise_costs lacks scope"),
        ("paper.yaml", "url: ", "url: [", "paper.yaml is not YAML"),
        ("grid.yaml", "demo:", "demmo:", "grid.yaml has the unknown key demmo"),
        ("grid.yaml", "    cells:", "    cels:", "grid.yaml, demo, entry 1 lacks cells"),
        ("grid.yaml", "count:", "cuont:", "entry 1, seeds lacks count"),
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


def test_a_paper_needs_neither_a_grid_nor_errata(papers):
    (papers / "grid.yaml").unlink()
    assert expansion.expand(configuration.resolve({"papers": [KEY]})) == []
    assert catalog.load(KEY).errata == {}


def test_what_paper_yaml_names_must_be_in_the_modules(papers, monkeypatch):
    with pytest.raises(InputError, match=f"papers/{KEY} has no errata.py"):
        catalog.module(KEY, "errata")
    (papers / "tables.py").write_text("")
    monkeypatch.setattr(catalog, "import_module", lambda name: SimpleNamespace(TABLES={"risks": None}))
    with pytest.raises(InputError, match=f"{KEY}/paper.yaml: tables.risk is not in TABLES of tables.py, .* risks"):
        catalog.recipe(KEY, "tables", "risk")


@pytest.mark.parametrize(
    ("right", "wrong", "named"),
    [
        ("scope: for all", "scope: always", "claims.yaml: noise_costs: scope is 'always'"),
        ("kind: difference", "kind: more", "kind is 'more'"),
        ("unit: of excess risk", "margin: -1", "margin is -1, not a number"),
        ("unit: of excess risk", "of: costs", "of is 'costs', which is no claim"),
        ("tables/risk", "tables/risks", "claims.yaml: noise_costs: places names tables/risks"),
    ],
)
def test_the_rule_of_a_claim_must_be_known(papers, monkeypatch, tmp_path, right, wrong, named):
    path = papers / "claims.yaml"
    path.write_text(path.read_text().replace(right, wrong, 1))
    monkeypatch.setattr(claims, "module", lambda key, name: SimpleNamespace(CLAIMS={"noise_costs": None}))
    with pytest.raises(InputError, match=re.escape(named)):
        claims.evaluate(KEY, Results(tmp_path))


@pytest.mark.parametrize(
    ("checks", "named"), [({"riskk": None}, "checks riskk, which"), ({}, "noise_costs needs a check")]
)
def test_claims_and_checks_must_match(papers, monkeypatch, tmp_path, checks, named):
    monkeypatch.setattr(claims, "module", lambda key, name: SimpleNamespace(CLAIMS=checks))
    with pytest.raises(InputError, match=named):
        claims.evaluate(KEY, Results(tmp_path))
