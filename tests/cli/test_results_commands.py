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
