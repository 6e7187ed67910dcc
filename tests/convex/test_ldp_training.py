"""Choosing by training loss, stacks of any size, and run tables that do not depend on what else was trained."""

import io
import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

from dpfl.convex import silo_jobs
from dpfl.convex.federated_rounds import Hyperparameters
from dpfl.convex.problems import Square, least_squares, losses
from dpfl.convex.silo_jobs import ClientCounts, LdpCell, LdpPlan, LdpSettings
from dpfl.data.partition import Trial
from dpfl.errors import InputError
from dpfl.grid.training_job import TrainingJob

DESCRIPTION = {"stand_in_for": "insurance", "note": "a toy"}
SETTINGS = {
    "dataset": "toy",
    "participating": 2,
    "rounds": 6,
    "delta": "1/n^2",
    "noise": "moments",
    "sampling": "with_replacement",
    "clipping": "record",
    "batch_size": 5,
    "largest_epsilon": 6,
    "repetitions": 2,
    "step_exponents": {"minibatch": [-3, 1, 4], "local": [-4, 0, 3]},
    "clip_norms": [1.0, 10.0],
    "last_iterates": 3,
    "divergence_loss": 1e4,
}
CELLS = tuple({"algorithm": name, "epsilon": e} for name in ("minibatch", "local") for e in (2.0, 6.0, math.inf))


@dataclass(frozen=True)
class Toy:
    """Three clients with 16 training and 4 test records each, drawn anew every trial."""

    plan: LdpPlan

    def trial(self, seed: int) -> Trial:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(60, 4))
        y = x @ [1.0, 2.0, 0.0, -1.0] + rng.normal(size=60)
        return Trial(x[:48], y[:48], x[48:], y[48:], np.array([0, 16, 32, 48]))

    def measures(self, trial, weights):
        return {"test_loss": losses(Square(), weights, trial.test_x, trial.test_y)}

    def references(self, trial):
        return {"spread": float(trial.train_y.std())}


def training_job(cells=CELLS, seeds=(0, 1, 5), **changes) -> TrainingJob:
    """The toy job with some settings changed."""
    return TrainingJob("lowy2021", "ldp_toy", "toy", {**SETTINGS, **changes}, tuple(cells), tuple(seeds))


def toy(job: TrainingJob) -> Toy:
    """The task of a job."""
    counts = ClientCounts(clients=3, before_split=20, training=16)
    return Toy(LdpPlan.of(LdpSettings.of(job.settings), map(LdpCell.of, job.cells), Square(), counts))


def trained(job: TrainingJob, progress=lambda done, total: None) -> pd.DataFrame:
    """Calibrate and train."""
    task = toy(job)
    return silo_jobs.train_plan(task, job, DESCRIPTION, silo_jobs.calibrate_plan(task.plan, job.cells, ""), progress)


def test_the_run_table_has_a_row_a_run_in_order():
    rows = trained(training_job())
    keys = [(cell["algorithm"], cell["epsilon"], seed) for cell in CELLS for seed in (0, 1, 5)]
    assert list(zip(rows["algorithm"], rows["epsilon"], rows["seed"], strict=True)) == keys
    first = rows.iloc[0]
    assert (first["experiment"], first["stand_in_for"], first["data_note"]) == ("ldp_toy", "insurance", "a toy")
    assert set(rows["status"]) == {"finished"} and rows["spread"].nunique() == 3
    private = rows[np.isfinite(rows["epsilon"])]
    assert (private["privacy_clip_norm"] == private["clip_norm"]).all() and (private["noise_multiplier"] > 0).all()


def test_a_subset_of_cells_or_seeds_gives_the_same_rows():
    whole = trained(training_job())
    for cells, seeds in ((CELLS[1:2], (0, 1, 5)), (CELLS[3:], (5,)), (CELLS[::-1], (1, 0))):
        part = trained(training_job(cells, seeds))
        keys = ["algorithm", "epsilon", "seed"]
        same = part[keys].merge(whole, on=keys, how="left")[list(part.columns)]
        pd.testing.assert_frame_equal(part, same, check_exact=True)


def test_small_stacks_give_the_same_rows(monkeypatch):
    told: list[tuple[int, int]] = []
    whole = trained(training_job())
    monkeypatch.setattr(silo_jobs, "STACK_BYTES", 1)
    parts = trained(training_job(), progress=lambda done, total: told.append((done, total)))
    pd.testing.assert_frame_equal(whole, parts, check_exact=True)
    assert told == [(done, 36) for done in range(1, 37)]  # 2 algorithms, 3 trials, 6 rounds


def test_a_calibration_read_back_from_its_file_gives_the_same_rows():
    job = training_job()
    calibration = silo_jobs.calibrate_plan(toy(job).plan, job.cells, "")
    read = pd.read_csv(io.StringIO(calibration.to_csv(index=False)), keep_default_na=False, na_values=["nan", ""])
    first, second = (
        silo_jobs.train_plan(toy(job), job, DESCRIPTION, each, lambda done, total: None).to_csv(index=False)
        for each in (calibration, read)
    )
    assert first == second


def test_a_point_with_a_diverged_repetition_is_recorded_and_never_chosen():
    """Of three points the first has the least mean but for one repetition that is no number."""
    task = toy(training_job())
    trial = task.trial(0)
    best = least_squares(trial.train_x, trial.train_y)
    weights = np.tile(best[:, None], (2, 1, 3))
    weights[:, :, 1] += 0.1
    weights[:, :, 2] += 1e6
    points = Hyperparameters(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, np.inf]), np.zeros(3))
    assert silo_jobs.choose(task, trial, points, weights)["step_size"] == 1.0
    for poison in (np.nan, np.inf, 1e5):
        weights[1, 0, 0] = poison
        chosen = silo_jobs.choose(task, trial, points, weights)
        assert (chosen["status"], chosen["step_size"], chosen["clip_norm"]) == ("finished", 2.0, 5.0)
        assert chosen["diverged_share"] == 0.5
    lost = silo_jobs.choose(task, trial, points, weights[:, :, 2:].repeat(2, axis=2))
    assert lost["status"] == "diverged" and lost["diverged_share"] == 1.0
    assert all(math.isnan(lost[name]) for name in ("train_loss", "test_loss", "step_size", "clip_norm"))


def test_only_training_records_decide():
    task = toy(training_job())
    trial = task.trial(0)
    rng = np.random.default_rng(0)
    weights, points = rng.normal(size=(2, 4, 6)), Hyperparameters(np.arange(1.0, 7.0), np.ones(6), np.ones(6))
    other = replace(trial, test_y=trial.test_y * -7.0)
    one, two = (silo_jobs.choose(task, each, points, weights) for each in (trial, other))
    assert one["step_size"] == two["step_size"] and one["test_loss"] != two["test_loss"]


def test_steps_that_all_diverge_are_a_row_and_no_crash():
    rows = trained(training_job(step_exponents={"minibatch": [30, 40, 2], "local": [30, 40, 2]}))
    assert set(rows["status"]) == {"diverged"} and rows["test_loss"].isna().all()
    assert (rows["diverged_share"] == 1.0).all()


def test_a_calibration_of_another_job_is_refused():
    job = training_job()
    calibration = silo_jobs.calibrate_plan(toy(job).plan, job.cells, "").iloc[1:]
    with pytest.raises(InputError, match=r"the calibration has \d rows for \d cells"):
        silo_jobs.train_plan(toy(job), job, DESCRIPTION, calibration, lambda done, total: None)
