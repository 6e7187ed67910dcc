"""A paper's tables and figures, without runs or from cut down ones, and copies that a test has tampered with."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from dpfl.catalog import load, module, recipe
from dpfl.data.arrays import build_arrays
from dpfl.data.loading import load_description
from dpfl.experiments import protocol
from dpfl.grid import configuration, expansion
from dpfl.grid.sweep import Folders
from dpfl.reporting.claims import rule_of
from dpfl.reporting.results import Results, write_csv
from dpfl.reporting.rules import Judgement, judge

KINDS = ("tables", "figures")


def write(results: Results, kind: str, key: str, name: str, data: pd.DataFrame) -> None:
    path = results.folder / kind / f"{key}_{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        write_csv(data, stream)


def recipes(key: str) -> list[tuple[str, str]]:
    """Return (kind, name) of every table and figure of a paper."""
    return [(kind, name) for kind in KINDS for name in getattr(module(key, kind), kind.upper())]


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


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """The paper that the test's folder is named after."""
    return request.path.parent.name


@pytest.fixture
def judged(key: str) -> Callable[[str, Results], Judgement]:
    """Return a function (claim, results) that judges a claim of the paper by the rule that its claims.yaml declares."""

    def give(claim: str, results: Results) -> Judgement:
        return judge(module(key, "claims").CLAIMS[claim](results), rule_of(load(key).claims[claim]))

    return give


@pytest.fixture(scope="session")
def computed() -> Callable[[str, str, str], pd.DataFrame | None]:
    """Return `without_results`, for what every test of a process may share."""
    return without_results


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Results]:
    """Return a function that gives every table and figure's data of a paper, as the stages write them."""

    @functools.cache
    def make(key: str) -> Results:
        return write_all(Results(tmp_path_factory.mktemp(key) / "demo"), key)

    return make


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[dict], bool]], Results]:
    """Return a function (paper, kept) that runs three seeds of the demo's cells for which `kept` is true.

    It gives every table and figure's data of the paper, as the stages write them.
    """

    def train(key: str, kept: Callable[[dict], bool]) -> Results:
        folder = tmp_path_factory.mktemp(key)
        build_arrays("digits", folder / "arrays" / "digits")
        build_arrays("synthetic", folder / "arrays" / "synthetic")
        tables = []
        for sweep in expansion.expand(configuration.resolve({"papers": [key], "seeds": [0, 1, 2]})):
            small, folders = replace(sweep, cells=tuple(filter(kept, sweep.cells))), Folders.of(folder, sweep.dataset)
            algorithm = protocol.load(small.experiment)
            calibration = algorithm.calibrate(small, load_description(folders.arrays))
            tables.append(folder / f"{small.name}.csv")
            with tables[-1].open("w") as stream:
                write_csv(algorithm.train(small, folders, calibration, None, lambda done, total: None), stream)
        return write_all(Results(folder / "demo", {key: tuple(tables)}), key)

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
