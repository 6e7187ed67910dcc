"""A paper's tables and figures, without runs or from cut down ones, and copies that a test has tampered with."""

import functools
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from dpfl import catalog, experiments
from dpfl.catalog import load, recipe
from dpfl.data.arrays import build_arrays
from dpfl.data.loading import load_description
from dpfl.grid import configuration, expansion
from dpfl.grid.training_job import Folders, TrainingJob
from dpfl.reporting.claims import check_of, rule_of
from dpfl.reporting.results import Results, write_csv, write_table
from dpfl.reporting.rules import Case, ClaimEvidence, Judgement, Verdict, judge

KINDS = ("tables", "figures")


def write(results: Results, kind: str, key: str, name: str, data: pd.DataFrame) -> None:
    write_table(data, results.folder / kind / f"{key}_{name}.csv")


def recipes(key: str) -> list[tuple[str, str]]:
    """Return (kind, name) of every table and figure of a paper."""
    return [(kind, name) for kind in KINDS for name in catalog.recipes(key, kind)]


@functools.cache
def without_results(key: str, kind: str, name: str) -> pd.DataFrame | None:
    """Return the data of a table or figure that reads no results, computed once; None where it reads some."""
    try:
        return recipe(key, kind, name).data(None)
    except AttributeError:
        return None


def write_all(results: Results, key: str) -> Results:
    """Write every table and figure's data of a paper, as the stages do."""
    for kind, name in recipes(key):
        data = without_results(key, kind, name)
        write(results, kind, key, name, recipe(key, kind, name).data(results) if data is None else data)
    return results


@pytest.fixture(scope="session")
def require_shipped(repository):
    """A function that skips a test of a paper of which results/paper has nothing yet: an author is adding it."""

    def require(paper: str) -> None:
        if not any((repository / "results" / "paper").glob(f"*/{paper}*")):
            pytest.skip(f"results/paper has nothing of {paper} yet")

    return require


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """The paper that the test's folder is named after."""
    return request.path.parent.name


@pytest.fixture
def judged(key: str) -> Callable[[str, Results], Judgement]:
    """Return a function (claim, results) that judges a claim of the paper by the rule that its claims.yaml declares."""

    def give(claim: str, results: Results) -> Judgement:
        return judge(check_of(key, claim)(results), rule_of(load(key).claims[claim]))

    return give


@pytest.fixture(scope="module")
def cases(request: pytest.FixtureRequest) -> dict[str, list[Case]]:
    """The cases of every claim of the paper that arithmetic decides, by its key; computed once."""
    key = request.path.parent.name
    return {name: check_of(key, name)(None).cases for name, claim in load(key).claims.items() if "cases" in claim}


@pytest.fixture
def verdict(request: pytest.FixtureRequest) -> Callable[..., Verdict]:
    """Return a function (claim, cases) that gives the verdict of a claim on these cases, or on its own without runs."""

    key = request.path.parent.name  # a test may have a `key` of its own

    def give(claim: str, cases: list[Case] | None = None) -> Verdict:
        evidence = check_of(key, claim)(None) if cases is None else ClaimEvidence(cases)
        return judge(evidence, rule_of(load(key).claims[claim])).verdict

    return give


@pytest.fixture
def as_runs(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Results]:
    """Return a function that stores run tables, each as a job of its own, as the paper's only results."""

    def store(*tables: pd.DataFrame) -> Results:
        paths = tuple(tmp_path / f"job_{number}.csv" for number in range(len(tables)))
        for path, table in zip(paths, tables, strict=True):
            write_csv(table, path)
        return Results(tmp_path, {request.path.parent.name: paths})

    return store


@pytest.fixture(scope="session")
def computed() -> Callable[[str, str, str], pd.DataFrame | None]:
    """Return `without_results`, for what every test of a process may share."""
    return without_results


@pytest.fixture(scope="session")
def made(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Callable[[str], Results]:
    """Return a function that gives every table and figure's data of a paper, as the stages write them."""

    def make(key: str) -> Results:
        return Results(made_once(f"{key} made", lambda folder: write_all(Results(folder / "demo"), key)) / "demo")

    return make


@pytest.fixture(scope="session")
def trained(
    made_once: Callable[[str, Callable[[Path], None]], Path],
) -> Callable[[str, Callable[[dict], bool]], Results]:
    """Return a function (paper, kept) that runs three seeds of the demo's cells for which `kept` is true.

    It gives every table and figure's data of the paper, as the stages write them.
    """

    def jobs(key: str) -> list[TrainingJob]:
        return expansion.expand(configuration.resolve({"papers": [key], "seeds": [0, 1, 2]}))

    def results(folder: Path, key: str) -> Results:
        return Results(folder / "demo", {key: tuple(folder / "runs" / f"{job.name}.csv" for job in jobs(key))})

    def run(folder: Path, key: str, kept: Callable[[dict], bool]) -> None:
        build_arrays("digits", folder / "arrays" / "digits")
        build_arrays("synthetic", folder / "arrays" / "synthetic")
        (folder / "runs").mkdir()
        for job in jobs(key):
            small, folders = replace(job, cells=tuple(filter(kept, job.cells))), Folders.of(folder, job.dataset)
            algorithm = experiments.load(small.experiment)
            calibration = algorithm.calibrate(small, load_description(folders.arrays))
            runs = algorithm.train(small, folders, calibration, None, lambda done, total: None)
            write_csv(runs, folder / "runs" / f"{small.name}.csv")
        write_all(results(folder, key), key)

    def train(key: str, kept: Callable[[dict], bool]) -> Results:
        return results(made_once(f"{key} trained", lambda folder: run(folder, key, kept)), key)

    return train


@pytest.fixture
def results(made: Callable[[str], Results], key: str) -> Results:
    """Every table and figure's data of the paper."""
    return made(key)


@pytest.fixture
def without_runs(made: Callable[[str], Results], key: str) -> Results:
    """Every table and figure's data of a configuration that trains nothing of the paper."""
    return made(key)


@pytest.fixture
def doctored(results: Results, key: str, tmp_path: Path) -> Callable[..., Results]:
    """Return a function (kind, name, change) that copies the results with one table changed in place."""

    def doctor(kind: str, name: str, change: Callable[[pd.DataFrame], None]) -> Results:
        copy = Results(tmp_path / "demo")
        shutil.copytree(results.folder, copy.folder)
        data = (copy.table if kind == "tables" else copy.figure)(key, name)
        change(data)
        write(copy, kind, key, name, data)
        return copy

    return doctor


@pytest.fixture
def stored(key: str, tmp_path: Path) -> Callable[..., Results]:
    """Return a function (kind, name, data) that stores one table as the only result there is."""

    def store(kind: str, name: str, data: pd.DataFrame) -> Results:
        results = Results(tmp_path / "demo")
        write(results, kind, key, name, data)
        return results

    return store
