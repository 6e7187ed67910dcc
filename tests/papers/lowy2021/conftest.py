import math

import numpy as np
import pandas as pd
import pytest

from dpfl.reporting.results import Results, write_csv


@pytest.fixture
def results(tmp_path):
    """Run tables of 20 made-up trials at three budgets; `gap` is added to local SGD's private losses."""

    def write(gap=1.0, stand_in_for="", epsilon_pld=0.1):
        noise = np.random.default_rng(0).normal(0, 0.1, 20)
        rows = []
        for algorithm in ("minibatch", "local"):
            for epsilon in (1.0, 10.0, math.inf):
                for seed in range(20):
                    private = 0 if math.isinf(epsilon) else 10 / epsilon + gap * (algorithm == "local")
                    losses = {"test_loss": 5 + noise[seed] + private, "train_loss": 4.0}
                    baselines = {"mean_predictor_test_loss": 20.0 + noise[seed], "least_squares_test_loss": 4.5}
                    task = {"dataset": "insurance", "stand_in_for": stand_in_for, "clients": 3}
                    privacy = {"records": 356, "steps": 35, "delta": 1e-5, "epsilon_pld": epsilon_pld}
                    cell = {"algorithm": algorithm, "epsilon": epsilon, "seed": seed}
                    spent = {f"privacy_{name}": value for name, value in privacy.items()}
                    rows.append(
                        {**task, **cell, **losses, **baselines, **spent, "batch_size": 37, "noise_multiplier": 2}
                    )
        write_csv(pd.DataFrame(rows), tmp_path / "runs.csv")
        return Results(tmp_path, {"lowy2021": (tmp_path / "runs.csv",)})

    return write
