"""Run tables that look as if the print had been measured, for this paper's tables, figures and claims."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpfl.papers.bhaskar2025.cells import published_cells

READING = {
    "network": "authors", "pixels": "authors", "feature_norm": "learnt", "client_records": "independent",
    "plain_batches": "fixed", "accountant": "prv", "batch_size": 64, "delta": 1e-5, "clip_norm": 1.0,
    "learning_rate": 0.3, "momentum": 0.5, "sampling": "poisson", "client_share": 0.1, "study": "",
}  # fmt: skip
"""The settings of a published cell by the authors' code."""


def run_rows(
    query: str, seeds: Iterable[int], offset_pct: float = 0.0, noise_pct: float = 0.0, **settings: Any
) -> pd.DataFrame:
    """Runs of the published cells that `query` names: accuracy as printed plus an offset plus noise by seed."""
    cells = published_cells().query(query).drop(columns="table")
    tables = []
    for seed in seeds:
        draws = np.random.default_rng(seed).standard_normal(len(cells))
        rows = cells.assign(**{**READING, **settings}, seed=seed, status="finished")
        rows["accuracy_pct"] = rows.pop("published_accuracy_pct") + offset_pct + noise_pct * draws
        rows["local_accuracy_pct"] = 80.0
        tables.append(rows.assign(stand_in_for="", data_note=""))
    runs = pd.concat(tables, ignore_index=True)
    privacy = {"noise_multiplier": 1.007, "delta": 1e-5, "sampling": "poisson", "sample_rate": 1 / 94, "steps": 1880}
    return runs.assign(
        **{f"privacy_{name}": value for name, value in privacy.items()},
        privacy_epsilon_proven=0.9 * runs["epsilon"],
        privacy_epsilon_refuted=0.8 * runs["epsilon"],
    )


def on_stand_in(runs: pd.DataFrame, name: str = "digits") -> pd.DataFrame:
    """The same runs, on a stand-in."""
    return runs.assign(stand_in_for=runs["dataset"], dataset=name, data_note="A note.")


@pytest.fixture
def rows_of_runs() -> Callable[..., pd.DataFrame]:
    return run_rows


@pytest.fixture
def as_stand_in() -> Callable[..., pd.DataFrame]:
    return on_stand_in
