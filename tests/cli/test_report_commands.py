"""`dpfl tables`, `claims`, `report` and what ends `dpfl pages`: which files they read, and when they refuse."""

import hashlib
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpfl.catalog import load
from dpfl.cli import report_commands
from dpfl.errors import InputError
from dpfl.files import record_path
from dpfl.grid import configuration
from dpfl.provenance import manifest
from dpfl.provenance import record as input_checks
from dpfl.provenance.audit import files
from dpfl.provenance.record import StageRecorder
from dpfl.reporting import claims, tables

PAPER = "bhaskar2025"
DEMO = Path("results/demo")


def store(path: Path) -> Path:
    """Write a file with a record of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(path.name)
    StageRecorder("made", ("dpfl.files",), {}).write(record_path(path), [path])
    return path


def inputs(path: Path) -> dict[str, str]:
    return {each["path"]: each["sha256"] for each in json.loads(record_path(path).read_text())["inputs"]}


def hashed(*paths: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def test_pages_need_runs_unless_nothing_is_trained(tmp_path):
    """A paper of formulas alone has no run."""
    with pytest.raises(InputError, match="no run table in"):
        report_commands._require_runs(tmp_path, trains=True)
    report_commands._require_runs(tmp_path, trains=False)


@pytest.fixture
def made(monkeypatch) -> list[tuple]:
    """Every table that was asked for, with the run tables that it was to be made of; its page is two words."""
    asked = []

    def make(paper, name, results, folder):
        asked.append((paper, name, results.run_tables[paper]))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{paper}_{name}.csv").write_text("a page")
        return [folder / f"{paper}_{name}.csv"]

    monkeypatch.setattr(tables, "make", make)
    return asked


def test_tables_are_made_of_the_runs_of_the_configuration_alone(empty_project, made):
    """Not of a job that an earlier configuration left behind, nor under another paper's name of one."""
    own = store(DEMO / "runs" / PAPER / "digits_scatter_linear_k10_seed0.csv.gz")
    for name in ("digits_scatter_linear_k10_seed77", "digits_mean_ink_seeds0to19"):
        store(DEMO / "runs" / PAPER / f"{name}.csv.gz")
    report_commands._render("tables", PAPER, "table_2", Path("config.yaml"))
    assert made == [(PAPER, "table_2", (own,))]
    page = DEMO / "tables" / f"{PAPER}_table_2.csv"
    assert inputs(page) == hashed(own)
    record = json.loads(record_path(page).read_text())
    assert record["settings"] == {"paper": PAPER, "name": "table_2"} and record["stage"] == "tables"


def test_pages_of_a_paper_that_the_configuration_lacks_stay_as_they_are(empty_project, made):
    """They would be made anew without a run."""
    Path("mine.yaml").write_text("scale: demo\npapers: [lowy2021]\n")
    page = store(DEMO / "tables" / f"{PAPER}_table_2.csv")
    for make in (partial(report_commands._render, "tables", PAPER, "table_2"), partial(report_commands._judge, PAPER)):
        with pytest.raises(InputError, match=r"papers: mine\.yaml does not have bhaskar2025; it has lowy2021"):
            make(Path("mine.yaml"))
    assert not made and page.read_text() == page.name


def test_without_a_name_every_table_of_the_paper_is_made(empty_project, made):
    with pytest.raises(InputError, match="no run table of bhaskar2025 in results/demo: dpfl run"):
        report_commands._render("tables", PAPER, None, Path("config.yaml"))
    report_commands._render("tables", PAPER, "errata", Path("config.yaml"))  # it needs no run
    assert made.pop() == (PAPER, "errata", ())
    store(DEMO / "runs" / PAPER / "digits_scatter_linear_k10_seed0.csv.gz")
    pages = report_commands._render("tables", PAPER, None, Path("config.yaml"))
    assert [name for _, name, _ in made] == list(load(PAPER).tables) and len(pages) == len(made) > 4


def test_a_run_table_that_changed_makes_no_page(empty_project, made):
    store(DEMO / "runs" / PAPER / "digits_scatter_linear_k10_seed0.csv.gz").write_text("tampered")
    with pytest.raises(InputError, match="digits_scatter_linear_k10_seed0"):
        report_commands._render("tables", PAPER, "table_2", Path("config.yaml"))
    assert not made


def test_a_table_that_the_paper_lacks_is_named_with_those_it_has(empty_project, made):
    with pytest.raises(InputError, match=r"bhaskar2025 has no table x; it has errata, table_2"):
        report_commands._render("tables", PAPER, "x", Path("config.yaml"))
    with pytest.raises(InputError, match=r"bhaskar2025 has no figure table_2; it has leads, splits"):
        report_commands._render("figures", PAPER, "table_2", Path("config.yaml"))
    assert not made


def test_verdicts_are_read_from_the_pages_that_are_there_and_the_papers_own(empty_project, monkeypatch):
    table, figure = (
        store(DEMO / f"{kind}/{PAPER}_{name}.csv") for kind, name in (("tables", "table_2"), ("figures", "splits"))
    )
    for stray in (f"tables/{PAPER}_left_over.csv", "tables/lowy2021_noise.csv", f"figures/{PAPER}_table_2.csv"):
        store(DEMO / stray)
    verdicts = DEMO / "claims" / f"{PAPER}.csv"

    def write(paper, verdict, folder):
        folder.mkdir()
        verdicts.write_text(verdict)
        return [verdicts]

    monkeypatch.setattr(claims, "evaluate", lambda paper, results: f"{paper} in {results.folder}")
    monkeypatch.setattr(claims, "files", lambda paper, folder: [verdicts])
    monkeypatch.setattr(claims, "write", write)
    assert report_commands._judge(PAPER, Path("config.yaml")) == [verdicts]
    assert inputs(verdicts) == hashed(table, figure) and verdicts.read_text() == f"{PAPER} in {DEMO}"
    assert report_commands._judge(PAPER, Path("config.yaml"), anew=False) == []
    store(DEMO / "tables" / f"{PAPER}_table_3.csv")
    input_checks._outputs.cache_clear()
    (DEMO / "claims").rename(DEMO / "older")
    assert report_commands._judge(PAPER, Path("config.yaml"), anew=False) == [verdicts]


@pytest.mark.parametrize("findings", [[], ["one", "two"]])
def test_results_are_sealed_only_where_the_audit_finds_nothing(empty_project, monkeypatch, capsys, findings):
    sealed = []
    found = SimpleNamespace(findings=findings, lines=lambda: ["first line", "last line"])
    monkeypatch.setattr(files, "audit", lambda folder, sealed: found)
    monkeypatch.setattr(manifest, "write", sealed.append)
    DEMO.mkdir(parents=True)
    assert report_commands._sealed(DEMO) == len(findings)
    assert (DEMO / "audit.txt").read_text() == capsys.readouterr().out == "first line\nlast line\n"
    assert sealed == ([] if findings else [DEMO])


@pytest.mark.parametrize(
    ("chosen", "whole"),
    [
        ({"scale": "paper"}, True),
        ({"scale": "paper", "training": {"device": "cuda"}}, True),
        ({"scale": "paper", "papers": ["asoodeh2020"]}, False),
        ({"scale": "paper", "seeds": [0]}, False),
        ({"scale": "paper", "only": {"local_epochs": [1, 2, 4, 5, 20]}}, False),
        ({"scale": "demo"}, False),
    ],
)
def test_the_readme_shows_a_whole_scale_or_stays(chosen, whole):
    assert report_commands._is_whole(configuration.resolve(chosen), "paper") is whole
