"""The grid at scale paper against the published cells: which of them are trained, with how many seeds, and when."""

import pandas as pd
import pytest

from dpfl.catalog import load
from dpfl.grid import configuration, expansion
from dpfl.grid.sweep import Sweep
from dpfl.papers.bhaskar2025.published_cells import CELL, published_cells

KEY = ["dataset", *CELL]
LAST = "dataset == 'cifar10' and model in ['cnn_tanh', 'cnn_relu'] and clients != 10"


def expanded(**keys: object) -> list[Sweep]:
    """Return the paper's sweeps at scale paper."""
    return expansion.expand(configuration.resolve({"scale": "paper", "papers": ["bhaskar2025"], **keys}))


def seeds_by_cell(sweeps: list[Sweep]) -> pd.Series:
    """Return the number of seeds of every cell that is trained with the settings of paper.yaml."""
    chosen = {name: value for name, value in load("bhaskar2025").settings.items() if name != "measure"}
    rows = [
        ({**sweep.settings, **cell}, seed)
        for sweep in sweeps
        if all(sweep.settings[name] == value for name, value in chosen.items())
        for cell in sweep.cells
        if not cell.get("clip")
        for seed in sweep.seeds
    ]
    trained = pd.DataFrame([{**{name: row[name] for name in KEY}, "seed": seed} for row, seed in rows])
    return trained.groupby(KEY)["seed"].nunique()


@pytest.fixture(scope="module")
def cells() -> pd.DataFrame:
    """The 276 published cells with the seeds that the grid trains of each, 0 for none."""
    published = published_cells()
    seeds = seeds_by_cell(expanded(only={"study": ["none"]})).rename("seeds").reset_index()
    return published.merge(seeds, on=KEY, how="left").fillna({"seeds": 0})


def test_all_276_published_cells_are_trained_and_268_of_them_without_the_dearest(cells):
    assert len(cells) == 276
    assert (cells["seeds"] >= 1).all()
    assert len(cells.query(f"not ({LAST})")) == 268


@pytest.mark.parametrize(
    ("where", "seeds"),
    [
        ("model == 'scatter_linear'", 10),
        ("dataset != 'cifar10' and model != 'scatter_linear' and local_epochs >= 10", 10),
        ("dataset != 'cifar10' and model != 'scatter_linear' and local_epochs < 10 and clients == 10", 3),
        ("dataset == 'cifar10' and model == 'scatter_cnn' and clients == 10", 3),
        ("model != 'scatter_linear' and clients != 10", 1),
        ("dataset == 'cifar10' and model in ['cnn_tanh', 'cnn_relu']", 1),
    ],
)
def test_cells_have_the_seeds_that_the_plan_names(cells, where, seeds):
    chosen = cells.query(where)
    assert len(chosen) and set(chosen["seeds"]) == {seeds}
