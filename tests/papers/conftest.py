"""A paper's tables and figures without runs, computed once, and copies of them that a test has tampered with."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from dpfl.papers import module
from dpfl.reporting.results import Results, write_csv


def write(results: Results, kind: str, key: str, name: str, data: pd.DataFrame) -> None:
    path = results.folder / kind / f"{key}_{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        write_csv(data, stream)


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """The paper that the test's folder is named after."""
    return request.path.parent.name


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Results]:
    """Return a function that gives every table and figure's data of a paper, as the stages write them."""

    @functools.cache
    def make(key: str) -> Results:
        results = Results(tmp_path_factory.mktemp(key) / "demo")
        for kind, recipes in (("tables", module(key, "tables").TABLES), ("figures", module(key, "figures").FIGURES)):
            for name, recipe in recipes.items():
                write(results, kind, key, name, recipe.data(results))
        return results

    return make


@pytest.fixture
def results(made: Callable[[str], Results], key: str) -> Results:
    """Every table and figure's data of the paper."""
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
