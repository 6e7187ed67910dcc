import math

import numpy as np
import pandas as pd
import pytest

from dpfl.reporting.results import Results, write_csv

NOISES = ("advanced_composition", "moments", "tight")


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """Run tables of 20 made-up trials at three budgets; `gap` is added to local SGD's private losses.

    `epsilon_proven` is what every private run spends; `mean_gap` is the gap where the batch's mean is clipped.
    """

    def write(gap=1.0, stand_in_for="", epsilon_proven=0.1, mean_gap=1.0, price=10.0):
        rows = []
        for noise, clipping in [*((noise, "record") for noise in NOISES), (NOISES[0], "mean")]:
            own = {"experiment": "ldp_regression", "dataset": "insurance", "clients": 3, "clipping": clipping}
            own |= {"noise": noise, "stand_in_for": stand_in_for}
            spends = 50.0 if clipping == "mean" else epsilon_proven
            rows += _runs(own, "test_loss", mean_gap if clipping == "mean" else gap, spends, price)
        for split in ("published", "disjoint"):
            own = {"experiment": "ldp_classification", "dataset": "mnist", "participating": 12, "rounds": 35}
            own |= {"noise": "moments", "clipping": "record", "split": split, "stand_in_for": stand_in_for}
            rows += _runs(own, "test_error_pct", gap, epsilon_proven, price)
        folder = tmp_path_factory.mktemp("runs")
        write_csv(pd.DataFrame(rows), folder / "runs.csv")
        return Results(folder, {"lowy2021": (folder / "runs.csv",)})

    return write


def _runs(task, metric, gap, epsilon_proven, price):
    """The runs of one task: both algorithms, budgets 1, 18 and none."""
    noise = np.random.default_rng(0).normal(0, 0.1, 20)
    jitter = np.random.default_rng(1).normal(0, 0.01, (2, 3, 20))
    rows = []
    for a, algorithm in enumerate(("minibatch", "local")):
        for e, epsilon in enumerate((1.0, 18.0, math.inf)):
            for seed in range(20):
                private = 0 if math.isinf(epsilon) else price / epsilon + gap * (algorithm == "local")
                measured = 5 + noise[seed] + private + jitter[a, e, seed]
                free = algorithm == "local" and math.isinf(epsilon)
                measures = {metric: measured + free, "train_loss": 4.0}
                references = {f"mean_predictor_{metric}": 20.0 + noise[seed], f"least_squares_{metric}": 4.5}
                references[f"minimiser_{metric}"] = 4.5
                spent = {"records": 356, "steps": 35, "delta": 1e-5, "sampling": "with_replacement"}
                spent["epsilon_proven"] = math.inf if math.isinf(epsilon) else epsilon_proven
                cell = {"algorithm": algorithm, "epsilon": epsilon, "seed": seed}
                privacy = {f"privacy_{name}": value for name, value in spent.items()}
                rows.append(
                    {**task, **cell, **measures, **references, **privacy, "batch_size": 37, "noise_multiplier": 2}
                )
    return rows
