"""Run tables of made-up runs: what decides a verdict can be set, everything else is as training writes it."""

import json
import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from dpfl.catalog import load
from dpfl.reporting.results import Results

NETWORK = (
    "speed_spread", "delay", "jitter", "update_loss", "broadcast_loss", "window", "participation", "max_staleness",
    "max_distance",
)  # fmt: skip


SCATTER = (1, -1, -1, 1)  # of the seeds; their mean is zero


def rows(study: str, cell: dict, accuracy: float, spent: float, noise: float, stand_in_for: str, number: int):
    """One row a seed; how far the seeds lie apart differs a little from run to run, so differences scatter too."""
    settings = load("vandijk2023").settings
    network = {
        **{name: settings[name] for name in NETWORK},
        **settings["scenarios"][cell.get("scenario", "synchronous")],
    }
    given = {**{name: settings[name] for name in ("strategy", "preparation", "scenario", "epsilon", "scaling")}, **cell}
    given.setdefault("learning_rate", 4.0)
    given.setdefault("batch_size", 250)
    given |= {name: np.nan if value is None else value for name, value in network.items()}
    common = {"dataset": "mnist", "stand_in_for": stand_in_for, "study": study, "noise_multiplier": noise, "clients": 7}
    counts = {name: 0.0 for name in ("updates_lost_pct", "simulated_rounds", "staleness_rounds", "interrupted_pct")}
    epochs = given.get("epochs", 10)
    privacy = {"privacy_epsilon_proven": spent, "privacy_steps": 24 * epochs, "privacy_records": 6000}
    return [
        {
            **common,
            **given,
            **counts,
            **(privacy | {name: value for name, value in cell.items() if name in privacy}),
            "seed": seed,
            "accuracy_pct": (own := accuracy + 0.3 * seed + 0.001 * number * sign),
            "accuracy_pct_by_epoch": json.dumps([10.0] * (epochs - 1) + [own]),
        }
        for seed, sign in enumerate(SCATTER)
    ]


@pytest.fixture
def trained(as_runs) -> Callable[..., Results]:
    """Return a function that writes the runs [(experiment, cell, accuracy, epsilon spent, noise)] as the only ones."""

    def write(runs: list[tuple], stand_in_for: str = "") -> Results:
        table = [row for number, run in enumerate(runs) for row in rows(*run, stand_in_for, number)]
        return as_runs(pd.DataFrame(table))

    return write


@pytest.fixture
def asynchrony_runs() -> Callable[..., list[tuple]]:
    """Return a function that gives runs of the asynchrony experiment; `cost` maps a scenario to points lost."""

    def make(cost: dict[str, float], spent: dict[str, float] | None = None) -> list[tuple]:
        names = (
            "synchronous", "late_4", "late_16", "late_64", "reordered_16", "dropped_90", "dropped_98",
            "dropped_98_guarded", "lost_50", "late_16_near", "dropped_98_near", "asked_50", "asked_20",
        )  # fmt: skip
        cells = [{"scenario": name, "epsilon": epsilon} for name in names for epsilon in (2.0, math.inf)]
        spends = spent or {}
        return [
            (
                "asynchrony",
                cell,
                85 - cost.get(cell["scenario"], 0.0),
                spends.get(cell["scenario"], cell["epsilon"]),
                2.0,
            )
            for cell in cells
        ]

    return make
