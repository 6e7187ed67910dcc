import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from dpfl.accounting import WithReplacement
from dpfl.accounting.statements import encode
from dpfl.catalog import recipe
from dpfl.reporting import style
from dpfl.reporting.results import Results, read_csv, write_csv, write_table

NOISES = ("advanced_composition", "moments", "tight")
THEORY = {
    "experiment": "ldp_theory",
    "status": "finished",
    "noise": "tight",
    "trust": "nobody",
    "algorithm": "minibatch",
    "kind": "least_squares",
    "spread": 0.0,
    "strong_convexity": 0.0,
    "sharpness": 0.0,
    "signal": 0.5,
    "theorem": math.nan,
    "rounds_factor": 1,
    "step_logarithm": 1.0,
    "smoothness": 0.5,
    "mean_inverse_participants": 0.125,
    "scale": 1.0,
    "condition": 1.0,
    "clients": 8,
    "records": 64,
    "features": 4,
    "rounds": 16,
    "epsilon": 1.0,
    "delta": 1e-6,
    "radius": 1.0,
    "clip_norm": 2.0,
    "participants": "[8]",
    "noise_multiplier": 10.0,
    "privacy_epsilon_proven": 1.0,
    "start_risk": 1.0,
    "v_star_squared": 0.0,
}


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
            own |= {"largest_record": 5.0}
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
                references |= {f"minimiser_{metric}": 4.5, "v_star_squared": 6.5e7}
                spent = {"records": 356, "steps": 35, "delta": 1e-5, "sampling": "with_replacement"}
                spent |= {"clip_norm": 10.0, "sampler": encode(WithReplacement(batch_size=37, records=356))}
                spent["epsilon_proven"] = math.inf if math.isinf(epsilon) else epsilon_proven
                spent |= {"epsilon_refuted": 0.9 * spent["epsilon_proven"], "refuted_by": "a pair"}
                cell = {"algorithm": algorithm, "epsilon": epsilon, "seed": seed}
                privacy = {f"privacy_{name}": value for name, value in spent.items()}
                rows.append(
                    {**task, **cell, **measures, **references, **privacy, "batch_size": 37, "noise_multiplier": 2}
                )
    return rows


@pytest.fixture
def made_up(as_runs) -> Callable[..., Results]:
    """Return a function (rows) that writes runs of the theory studies, eight seeds with 1 % noise, as the only ones."""

    def make(rows: list[dict], seeds: int = 8) -> Results:
        rng = np.random.default_rng(0)
        runs = [
            {**THEORY, **row, "seed": seed, "excess_risk": row["excess_risk"] * (1 + 0.01 * rng.standard_normal())}
            for row in rows
            for seed in range(seeds)
        ]
        return as_runs(pd.DataFrame(runs))

    return make


@pytest.fixture
def written() -> Callable[[Results, str], pd.DataFrame]:
    """Return a function that writes a theory figure's data and reads them back."""

    def write(results: Results, name: str) -> pd.DataFrame:
        path = results.folder / "figures" / f"lowy2021_{name}.csv"
        write_table(recipe("lowy2021", "figures", name).data(results), path)
        return read_csv(path)

    return write


@pytest.fixture
def drawn(written) -> Callable[[Results, str], pd.DataFrame]:
    """Return a function that writes a theory figure's data and draws it from the file, as the figures stage does."""

    def draw(results: Results, name: str) -> pd.DataFrame:
        points = written(results, name)
        with style.apply_style():
            figure = recipe("lowy2021", "figures", name).draw(points)
            figure.canvas.draw()
            style.plt.close(figure)
        return points

    return draw
