"""The theory jobs: run table, stacking, determinism, and risks against a plain recomputation."""

import io
import json
import math

import numpy as np
import pandas as pd
import pytest

from dpfl.convex import ldp_theory, synthetic_problems
from dpfl.errors import InputError
from dpfl.grid.training_job import Folders, TrainingJob
from dpfl.reporting.results import read_csv, write_csv

SETTINGS = {
    "dataset": "synthetic",
    "study": "toy",
    "kind": "least_squares",
    "clients": 5,
    "records": 16,
    "features": 2,
    "condition": 2.0,
    "signal": 0.5,
    "target_noise": 0.25,
    "spread": 0.2,
    "strong_convexity": 0.0,
    "radius": 1.0,
    "scale": 1.0,
    "clip_norm": 2.5,
    "sharpness": 0.0,
    "algorithm": "minibatch",
    "noise": "tight",
    "trust": "nobody",
    "risk": "population",
    "participants": [],
    "delta": 1e-5,
    "rounds": 6,
    "repetitions": 2,
}
CELLS = (
    {"algorithm": "minibatch", "epsilon": 2.0, "participants": []},
    {"algorithm": "minibatch", "epsilon": math.inf, "participants": []},
    {"algorithm": "minibatch", "epsilon": 2.0, "participants": [1, 5]},
    {"algorithm": "accelerated", "epsilon": 2.0, "participants": []},
    {"algorithm": "one_pass", "epsilon": 2.0, "participants": []},
)


@pytest.fixture
def folders(tmp_path) -> Folders:
    """The description of the synthetic dataset."""
    description = {
        "name": "synthetic",
        "title": "Synthetic",
        "stand_in_for": None,
        "note": "",
        "licence": "",
        "records": {},
    }
    (tmp_path / "description.json").write_text(json.dumps(description))
    return Folders(tmp_path, tmp_path / "features")


def trained(folders: Folders, cells=CELLS, seeds=(0, 1, 5), progress=lambda done, total: None, **changes):
    """Calibrate, write and read the noise as the pipeline does, and train."""
    job = TrainingJob("lowy2021", "ldp_theory", "toy", {**SETTINGS, **changes}, tuple(cells), tuple(seeds))
    path = folders.arrays / "noise.csv"
    with path.open("w") as stream:
        write_csv(ldp_theory.calibrate(job, {}), stream)
    return ldp_theory.train(job, folders, read_csv(path), None, progress)


def test_the_run_table(folders):
    seen = []
    table = trained(folders, progress=lambda done, total: seen.append((done, total)))
    assert len(table) == 15
    assert list(table["seed"]) == [0, 1, 5] * 5
    assert set(table["status"]) == {"finished"}
    assert set(table["experiment"]) == {"ldp_theory"}
    assert seen[-1] == (34, 34)  # 6 + 6 + 6 + 16 rounds of four stacks: the first two cells are one
    privacy = table[[column for column in table if column.startswith("privacy_")]]
    assert privacy.notna().all().all()
    np.testing.assert_allclose(table.query("epsilon == 2.0")["privacy_epsilon_proven"], 2.0)


def test_same_inputs_same_bytes(folders):
    texts = []
    for _ in range(2):
        stream = io.StringIO()
        write_csv(trained(folders), stream)
        texts.append(stream.getvalue())
    assert texts[0] == texts[1]


def test_neither_the_other_cells_nor_the_other_seeds_matter(folders):
    whole = trained(folders)
    alone = trained(folders, cells=CELLS[2:3], seeds=(5,))
    expected = whole[(whole["participants"] == "[1, 5]") & (whole["seed"] == 5)]
    # A stack of one model takes another path through the matrix products: equal to rounding.
    np.testing.assert_allclose(alone["excess_risk"], expected["excess_risk"], rtol=1e-12)
    pair = trained(folders, cells=CELLS[:2], seeds=(1,))
    same = whole[(whole["algorithm"] == "minibatch") & (whole["participants"] == "[5]") & (whole["seed"] == 1)]
    np.testing.assert_array_equal(pair["excess_risk"].to_numpy(), same["excess_risk"].to_numpy())


def test_small_stacks_change_nothing(folders, monkeypatch):
    whole = trained(folders)
    monkeypatch.setattr(ldp_theory, "STACK_BYTES", 1)
    pd.testing.assert_frame_equal(trained(folders), whole)


def test_risk_of_gradient_descent_by_a_plain_loop(folders):
    """Without noise: mean of all iterates, steps of 1/(4 beta) on all records, risk by the closed form."""
    table = trained(folders, cells=CELLS[1:2], seeds=(3,), spread=0.0)
    problem = synthetic_problems.Problem("least_squares", 5, 16, 2, 1.0, condition=2.0, signal=0.5)
    drawn = synthetic_problems.draw(problem, 3)
    h = np.array([2.0, 1.0]) / 3.0
    weights, total = np.zeros(2), np.zeros(2)
    for _ in range(6):
        weights = weights - drawn.x.T @ (drawn.x @ weights - drawn.y) / 80 / (4 * h[0])
        total += weights / 6
    best = np.full(2, 0.5 / math.sqrt(2))
    assert table["excess_risk"].item() == pytest.approx(h @ (total - best) ** 2 / 2, rel=1e-10)
    assert table["start_risk"].item() == pytest.approx(h @ best**2 / 2)


def test_a_family_of_linear_losses_is_one_stack_and_equals_a_plain_loop(folders, monkeypatch):
    """Without noise, on full batches: the weighted mean of the iterates of w -> Pi[w - eta (mu w - mean record)]."""
    family = [{"signal": signal, "epsilon": math.inf} for signal in (0.9, 0.3)]
    own = {"kind": "linear", "condition": 1.0, "strong_convexity": 1.0, "clip_norm": 2.0, "spread": 0.0}
    stacks = []
    whole = ldp_theory._outputs
    monkeypatch.setattr(ldp_theory, "_outputs", lambda *given: stacks.append(len(given[0])) or whole(*given))
    table = trained(folders, cells=family, seeds=(3,), **own)
    assert stacks == [2]
    for signal, risk in zip((0.9, 0.3), table["excess_risk"], strict=True):
        problem = synthetic_problems.Problem("linear", 5, 16, 2, 1.0, signal=signal, strong_convexity=1.0)
        pull, best = synthetic_problems.draw(problem, 3).x.mean(axis=0), np.full(2, signal / math.sqrt(2))
        step = 0.5  # 1/(2 mu): without noise the logarithm does not bind
        weights, total, above = np.zeros(2), np.zeros(2), 0.0
        for r in range(6):
            weights = weights - step * (weights - pull)
            weights /= max(1.0, np.linalg.norm(weights))
            gamma = (1 - step) ** -(r + 1.0)
            total, above = total + gamma * weights, above + gamma
        assert risk == pytest.approx(np.sum((total / above - best) ** 2) / 2, rel=1e-10)


def test_the_table_says_what_the_step_and_the_rounds_rest_on(folders):
    cell = {"noise": "theorem", "epsilon": 2.0, "batches": "drawn"}
    own = {"rounds": None, "theorem": "2.1", "spread": 0.0, "strong_convexity": 0.4}
    row = trained(folders, cells=[cell], seeds=(0,), **own).iloc[0]
    assert row["theorem"] == "2.1" and row["rounds"] == row["privacy_steps"] > 80 and row["batch_size"] == 1
    assert row["step_logarithm"] > 0 and row["smoothness"] > 0.4 and row["mean_inverse_participants"] == 0.2


def test_empirical_risk_is_never_negative(folders):
    kinds = {"least_squares": 0.0, "logistic": 0.0, "absolute": 8.0}
    for kind, sharpness in kinds.items():
        own = {"kind": kind, "sharpness": sharpness, "spread": 0.0, "risk": "empirical", "strong_convexity": 0.0}
        table = trained(folders, cells=CELLS[:4], clip_norm=None, **own)
        assert (table["excess_risk"] >= -1e-14).all()
        assert (table["start_risk"] > 0).all()


@pytest.mark.slow
def test_a_shuffler_buys_risk(folders):
    cells = [{"trust": trust, "epsilon": 0.5} for trust in ("nobody", "shuffler")]
    crowd = {"clients": 30, "rounds": 12, "features": 1, "spread": 0.0, "condition": 1.0, "repetitions": 8}
    table = trained(folders, cells=cells, seeds=range(8), records=100, strong_convexity=1.0, **crowd)
    risks = table.groupby("trust")["excess_risk"].mean()
    assert risks["shuffler"] < risks["nobody"] / 2


def test_a_cell_without_noise_is_named(folders):
    job = TrainingJob("lowy2021", "ldp_theory", "toy", SETTINGS, CELLS, (0,))
    with pytest.raises(InputError, match="4 rows for 5 cells"):
        ldp_theory.train(job, folders, ldp_theory.calibrate(job, {})[1:], None, lambda done, total: None)
