"""`dpfl compare` and `dpfl curves` on shipped runs."""

import shutil

import pytest
from typer.testing import CliRunner

from dpfl.cli import app
from dpfl.errors import InputError
from dpfl.reporting.results import read_csv, write_table


@pytest.fixture
def copy(repository, tmp_path):
    """A results folder with some of the shipped runs."""
    shipped = repository / "results" / "paper"
    chosen = sorted((shipped / "runs/lowy2021").glob("insurance_k3_3_*_seeds0to99.csv.gz"))[:2]
    target = tmp_path / "results" / "paper" / "runs" / "lowy2021"
    target.mkdir(parents=True)
    for path in chosen:
        shutil.copy(path, target)
    return target.parents[1]


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_the_same_results_are_identical_and_a_shift_is_found(copy, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(copy, other)
    done = invoke("compare", copy, other)
    assert done.exit_code == 0 and done.output.rstrip().endswith("identical")
    path = sorted(other.rglob("*.csv.gz"))[0]
    rows = read_csv(path)
    shifted = rows["epsilon"] == rows["epsilon"].min()
    rows.loc[shifted, "test_loss"] *= 1.01
    write_table(rows, path)
    done = invoke("compare", copy, other, "--csv", tmp_path / "cells.csv")
    assert done.exit_code == 1 and f"{rows[shifted]['algorithm'].nunique()} outside chance" in done.output
    assert read_csv(tmp_path / "cells.csv")["verdict"].value_counts()["outside chance"] == done.output.count(
        "test_loss"
    )
    invoke("compare", copy, other, "--csv", tmp_path / "cells.csv.gz")
    assert read_csv(tmp_path / "cells.csv.gz").equals(read_csv(tmp_path / "cells.csv"))


@pytest.mark.parametrize("name", ["config.yaml", "claims/lowy2021_evidence.csv", "../../mine.txt"])
def test_a_table_replaces_no_result_and_no_other_file(copy, name):
    path = copy / name
    path.parent.mkdir(exist_ok=True)
    (copy / "config.yaml").write_text("scale: paper\n")
    path.write_text("kept")
    done = invoke("compare", copy, copy, "--csv", path)
    assert isinstance(done.exception, InputError) and "--csv" in str(done.exception)
    assert path.read_text() == "kept"


def test_a_metric_that_no_run_has_is_one_line(copy):
    assert isinstance(invoke("compare", copy, copy, "--metric", "colour").exception, InputError)


def test_curves_are_drawn_where_one_asks(repository, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shipped = repository / "results" / "paper"
    if not (shipped / "runs" / "bhaskar2025").is_dir():
        pytest.skip("no runs of bhaskar2025 are shipped")
    done = invoke("curves", "bhaskar2025", "2", "--where", "model=scatter_linear,epsilon=2.93", "--results", shipped)
    assert done.exit_code == 0 and done.output == "6 cells drawn to bhaskar2025_2_curves.svg\n"
    assert (tmp_path / "bhaskar2025_2_curves.svg").read_text().startswith("<?xml")
    refused = invoke("curves", "bhaskar2025", "2", "--where", "paper=x", "--results", shipped)
    assert isinstance(refused.exception, InputError) and "name settings" in str(refused.exception)


def test_own_runs_are_compared_and_drawn(own_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, lower in (("poisson", 0.0), ("shuffled_epochs", 10.0)):
        for seed, accuracy in enumerate((60.5, 61.0, 62.25)):
            own_run(tmp_path / name / str(seed), "secret", [20.0, accuracy - lower], sampler=name)
    done = invoke("compare", "poisson", "shuffled_epochs")
    first, second, last = done.output.splitlines()
    assert done.exit_code == 1 and first == "own fedavg: cells are matched without sampler, which differs in all runs"
    assert second.startswith("own fedavg, all runs: accuracy_pct 61.25 -> 51.25 (-10 ± ")
    assert second.endswith("; 3 and 3 runs): outside chance") and last == "1 cell: 1 outside chance"
    done = invoke("compare", "poisson/0", "shuffled_epochs/1")
    assert done.exit_code == 0 and "(-9.5; 1 and 1 runs): undecided" in done.output
    assert done.output.endswith("A cell is judged only if both have 3 runs of it or more.\n")
    done = invoke("curves", "poisson", "shuffled_epochs")
    assert done.exit_code == 0 and done.output == "2 cells drawn to poisson_curves.svg\n"
    assert "poisson, shuffled_epochs. Thin: each run" in (tmp_path / "poisson_curves.svg").read_text()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["bhaskar2025"], "bhaskar2025 is not a folder: name a paper and a table of it, or folders"),
        (["bhaskar2025", "2", "3"], "bhaskar2025 is not a folder"),
        ([".", "--results", "demo"], "--results is for the table of a paper"),
        (["."], ". has no run of dpfl fedavg"),
    ],
)
def test_curves_of_nothing_are_one_line(tmp_path, monkeypatch, words, named):
    monkeypatch.chdir(tmp_path)
    refused = invoke("curves", *words).exception
    assert isinstance(refused, InputError) and str(refused).startswith(named)
