"""The paper's results with its own runs at scale demo, cut down to few seeds and cells."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from dpfl import config, grid
from dpfl.data.read import load_about
from dpfl.data.stand_ins import build_stand_in
from dpfl.papers import module
from dpfl.reporting.results import Results, write_csv
from dpfl.sweeps import Folders

KEY = "asoodeh2021"


def kept(cell: dict) -> bool:
    """Whether a test needs the cell."""
    quick = cell.get("epsilon", 1) != 8 and (cell.get("way") != "shuffled" or math.isinf(cell["epsilon"]))
    return quick and cell.get("users", 0) <= 4000 and cell.get("step", 1.0) in (0.3, 1.0)


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Every table and figure's data of the paper, from runs on the stand-in."""
    folder = tmp_path_factory.mktemp(KEY)
    build_stand_in("digits", folder / "arrays" / "digits")
    folders = Folders.of(folder, "digits")
    tables = []
    for sweep in grid.expand(config.resolve({"papers": [KEY], "seeds": [0, 1, 2]})):
        small = replace(sweep, cells=tuple(filter(kept, sweep.cells)))
        algorithm = import_module(f"dpfl.federated.{small.algorithm}")
        calibration = algorithm.calibrate(small, load_about(folders.arrays))
        tables.append(folder / f"{small.name}.csv")
        with tables[-1].open("w") as stream:
            write_csv(algorithm.train(small, folders, calibration, None, lambda done, total: None), stream)
    return written(Results(folder / "demo", {KEY: tuple(tables)}))


def written(results: Results) -> Results:
    """Write every table and figure's data, as the stages do."""
    for kind, recipes in (("tables", module(KEY, "tables").TABLES), ("figures", module(KEY, "figures").FIGURES)):
        for name, recipe in recipes.items():
            path = results.folder / kind / f"{KEY}_{name}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w") as stream:
                write_csv(recipe.data(results), stream)
    return results


@pytest.fixture
def results(ran: Results) -> Results:
    """Every table and figure's data of the paper, from runs."""
    return ran


@pytest.fixture
def without_runs(made: Callable[[str], Results]) -> Results:
    """The same of a configuration that trains nothing of the paper."""
    return made(KEY)


@pytest.fixture
def run_table(ran: Results) -> Path:
    """One of the run tables."""
    return ran.run_tables[KEY][0]
