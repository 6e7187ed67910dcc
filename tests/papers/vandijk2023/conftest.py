"""This paper's tables and figures, computed once for the slow tests, and results made up for the fast ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from dpfl.papers import module
from dpfl.reporting.results import Results, write_csv

KEY = "vandijk2023"


def write(results: Results, kind: str, name: str, data: pd.DataFrame) -> None:
    path = results.folder / kind / f"{KEY}_{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        write_csv(data, stream)


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Every table and figure's data, as the stages write them: takes half a minute, for slow tests."""
    made = Results(tmp_path_factory.mktemp(KEY) / "demo")
    for kind, recipes in (("tables", module(KEY, "tables").TABLES), ("figures", module(KEY, "figures").FIGURES)):
        for name, recipe in recipes.items():
            write(made, kind, name, recipe.data(made))
    return made


@pytest.fixture
def stored(tmp_path: Path) -> Callable[..., Results]:
    """Return a function (kind, name, data) that stores one table as the only result there is."""

    def store(kind: str, name: str, data: pd.DataFrame) -> Results:
        made = Results(tmp_path / "demo")
        write(made, kind, name, data)
        return made

    return store
