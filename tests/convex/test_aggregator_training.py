"""Algorithm 1 as an entry of the grid: run tables against plain loops, determinism, what a stack may change."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from dpfl.convex import trusted_aggregator
from dpfl.data.arrays import build_arrays
from dpfl.data.binary_classification import load_pooled
from dpfl.data.loading import load_description
from dpfl.errors import InputError
from dpfl.grid.training_job import Folders, TrainingJob
from dpfl.randomness import generator

SETTINGS = {
    "dataset": "digits",
    "model": "pooled_logistic",
    "delta": 1e-5,
    "radius": 1.5,
    "regularisation": 0.1,
    "step": "harmonic",
    "stops": 4,
    "users": 200,
    "batch_size": 4,
    "figure": {"of": "the paper"},
}
CELLS = (
    {"draw": "one_pass", "release": "last", "noise_std": 0.0},
    {"draw": "one_pass", "release": "last", "noise_std": 0.5},
    {"draw": "one_pass", "release": "random", "noise_std": 0.5},
    {"draw": "fresh", "release": "all", "noise_std": 1.5},
    {"draw": "new_users", "release": "last", "noise_std": 0.5},
    {"draw": "new_users", "release": "last", "noise_std": 0.5, "users": 2000},
)


def trained(digits, cells=CELLS, seeds=(0, 4), ticks=None, **settings) -> pd.DataFrame:
    job = TrainingJob("asoodeh2021", "trusted_aggregator", "x_seeds", SETTINGS | settings, tuple(cells), seeds)
    calibration = trusted_aggregator.calibrate(job, load_description(digits.arrays))
    seen = [] if ticks is None else ticks
    return trusted_aggregator.train(job, digits, calibration, None, lambda done, total: seen.append((done, total)))


@pytest.fixture(scope="module")
def table(digits) -> pd.DataFrame:
    return trained(digits)


def test_one_pass_is_the_plain_loop(digits, table):
    task = load_pooled(digits.arrays)
    x, y = task.train_x[:200], task.train_y[:200]
    for noise_std, seed in ((0.0, 0), (0.5, 4)):
        order = generator(seed, "partition").permutation(200)
        w = np.zeros(50)
        for t in range(50):
            batch = order[4 * t : 4 * t + 4]
            slopes = -y[batch] * expit(-y[batch] * (x[batch] @ w))
            noise = generator(seed, "noise", round=t // 32).standard_normal((32, 50))[t % 32]
            w = w - (slopes @ x[batch] / 4 + noise_std / 2 * noise + 0.1 * w) / (0.1 * (t + 1))
            w = w * min(1.0, 1.5 / np.linalg.norm(w))
        row = table.query(
            "draw == 'one_pass' and release == 'last' and noise_std == @noise_std and seed == @seed"
        ).iloc[0]
        risk = np.logaddexp(0, -y * (x @ w)).mean() + 0.05 * w @ w
        assert row["excess_risk"] == pytest.approx(risk - row["least_risk"], abs=1e-12)
        assert row["accuracy_pct"] == pytest.approx(100 * np.mean(task.test_x @ w * task.test_y > 0))
        assert row["idle_excess_risk"] == pytest.approx(math.log(2) - row["least_risk"], abs=1e-12)


def test_rows_are_complete_and_in_order(table):
    assert len(table) == 12 and table["seed"].tolist() == [0, 4] * 6
    assert (table["excess_risk"] >= -1e-10).all() and (table["status"] == "finished").all()
    assert (table["stand_in_for"] == "mnist").all() and table["data_note"].str.len().min() > 10
    assert "figure" not in table and table["users"].tolist() == [200] * 10 + [2000] * 2
    assert table["excess_bound"].notna().tolist() == [False] * 4 + [True] * 2 + [False] * 2 + [True] * 4


def test_noise_and_users_matter_as_they_should(table):
    means = table.groupby(["draw", "release", "noise_std", "users"])["excess_risk"].mean()
    assert means["one_pass", "last", 0.0, 200] < 0.1 * means["one_pass", "last", 0.5, 200]
    assert means["new_users", "last", 0.5, 2000] < means["new_users", "last", 0.5, 200]


def test_the_same_again_and_alone(digits, table):
    pd.testing.assert_frame_equal(trained(digits), table)
    alone = trained(digits, cells=CELLS[1:2], seeds=(4,))
    together = table[(table["seed"] == 4)].iloc[[1]].reset_index(drop=True)
    pd.testing.assert_frame_equal(alone[["excess_risk"]], together[["excess_risk"]], rtol=1e-9)


def test_progress_counts_every_round(digits):
    ticks: list[tuple[int, int]] = []
    trained(digits, cells=CELLS[:3], seeds=(0,), ticks=ticks)
    # The randomly stopped stack ends with its last stop.
    assert [done for done, _ in ticks] == list(range(1, len(ticks) + 1))
    assert 50 + 37 <= len(ticks) <= 100 and ticks[0][1] == 100


def test_more_users_than_records_are_refused(digits):
    with pytest.raises(InputError, match=r"users.*1437"):
        trained(digits, cells=CELLS[:1], users=1440)
    with pytest.raises(InputError, match="model"):
        trained(digits, cells=CELLS[:1], model="cnn_relu")


def test_a_calibration_of_other_cells_is_refused(digits):
    job = TrainingJob("asoodeh2021", "trusted_aggregator", "x_seeds", SETTINGS, CELLS, (0,))
    short = trusted_aggregator.calibrate(job, load_description(digits.arrays)).iloc[:3]
    with pytest.raises(InputError, match="3 rows for 6 cells"):
        trusted_aggregator.train(job, digits, short, None, lambda done, total: None)


def test_drawn_records_are_a_task_of_any_dimension(tmp_path):
    build_arrays("synthetic", tmp_path / "arrays" / "synthetic")
    own = Folders.of(tmp_path, "synthetic")
    drawn = {"model": "synthetic_logistic", "features": 7, "population": 400, "dataset": "synthetic"}
    cells = [CELLS[2], CELLS[4]]
    table = trained(own, cells=cells, **drawn)
    assert (table["dimension"] == 7).all() and (table["stand_in_for"] == "").all() and len(table) == 4
    assert table["excess_risk"].gt(0).all() and table["accuracy_pct"].between(40, 100).all()
    with pytest.raises(InputError, match=r"users.*synthetic has 400"):
        trained(own, cells=cells[:1], users=800, **drawn)
