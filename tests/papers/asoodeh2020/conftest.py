"""This paper's tables and figures, computed once, and copies of them that a test has tampered with."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from dpfl.papers import module
from dpfl.reporting.results import Results, write_csv

KEY = "asoodeh2020"


def write(results: Results, kind: str, name: str, data: pd.DataFrame) -> None:
    path = results.folder / kind / f"{KEY}_{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        write_csv(data, stream)


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Every table and figure's data, as the stages write them."""
    made = Results(tmp_path_factory.mktemp(KEY) / "demo")
    for kind, recipes in (("tables", module(KEY, "tables").TABLES), ("figures", module(KEY, "figures").FIGURES)):
        for name, recipe in recipes.items():
            write(made, kind, name, recipe.data(made))
    return made


@pytest.fixture
def doctored(results: Results, tmp_path: Path) -> Callable[..., Results]:
    """Return a function (kind, name, change) that copies the results with one table changed in place."""

    def doctor(kind: str, name: str, change: Callable[[pd.DataFrame], None]) -> Results:
        copy = Results(tmp_path / "demo")
        shutil.copytree(results.folder, copy.folder)
        data = (copy.table if kind == "tables" else copy.figure)(KEY, name)
        change(data)
        write(copy, kind, name, data)
        return copy

    return doctor
