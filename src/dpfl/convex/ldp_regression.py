"""Linear regression under local privacy (lowy2021, Fig. 2): noisy minibatch SGD beside noisy local SGD.

Clients hold contiguous blocks of the records sorted by target, so they differ in what they have to predict. Every
trial splits each client's records anew. Step size and clip norm are chosen from a grid by training loss. Blocks,
standardisation and that choice read the records too, and no privacy statement here accounts for them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dpfl.convex import silo_jobs
from dpfl.convex.problems import Array, Loss, Square, gradients, least_squares, losses
from dpfl.convex.silo_jobs import ClientCounts, LdpCell, LdpPlan, LdpSettings, LdpTask
from dpfl.data.loading import TableData, load_table
from dpfl.data.partition import Trial, client_blocks, held_back, split
from dpfl.errors import InputError
from dpfl.grid.settings import Count, Several

if TYPE_CHECKING:
    import pandas as pd

    from dpfl.grid.training_job import Folders, TrainingJob

UNACCOUNTED = "standardisation, blocks and the choice of step size and clip norm are not accounted for"


class RegressionSettings(LdpSettings):
    """A job's settings; `standardise` names the columns to standardise."""

    clients: Count
    standardise: Several[str]


@dataclass(frozen=True)
class Regression:
    """The task: least squares on a table, losses ||X w - y||^2 / (2 n) in the target's unit squared."""

    plan: LdpPlan
    table: TableData
    standardise: list[str]

    def trial(self, seed: int) -> Trial:
        """Return a fresh split of every client's block."""
        return split(self.table, self.plan.clients, self.standardise, seed)

    def measures(self, trial: Trial, weights: Array) -> dict[str, Array]:
        """Return the test loss, pooled over the clients' test records."""
        return {"test_loss": losses(cast("Loss", Square()), weights, trial.test_x, trial.test_y)}

    def references(self, trial: Trial) -> dict[str, float]:
        """Return what a trial can be held against, all pooled over the clients' records.

        Test losses of predicting the training mean and of least squares; v_star_squared, the mean over clients of
        |grad F_i(w*)|^2 at the least-squares weights w*, lowy2021's measure of how much clients differ.
        """
        mean = np.zeros(trial.train_x.shape[1])
        mean[0] = trial.train_y.mean()
        best = least_squares(trial.train_x, trial.train_y)
        mean_loss, best_loss = losses(
            cast("Loss", Square()), np.stack([mean, best], axis=1), trial.test_x, trial.test_y
        )
        clients = [slice(*pair) for pair in itertools.pairwise(trial.starts)]
        pulls = [
            gradients(cast("Loss", Square()), best[:, None], trial.train_x[each], trial.train_y[each])
            for each in clients
        ]
        return {
            "mean_predictor_test_loss": float(mean_loss),
            "least_squares_test_loss": float(best_loss),
            "v_star_squared": float(np.mean([np.sum(pull**2) for pull in pulls])),
        }


def calibrate(job: TrainingJob, description: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row for each cell: see dpfl.convex.silo_jobs.calibrate_plan.

    Raises InputError naming the setting or the cell's key that cannot be used.
    """
    return silo_jobs.calibrate_plan(_plan(job, description["records"]["all"]), job.cells, UNACCOUNTED)


def train(
    job: TrainingJob,
    folders: Folders,
    calibration: pd.DataFrame,
    checkpoint: Path | None,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """Return the run table (`silo_jobs.train_plan`). `checkpoint` is not used: a job takes seconds.

    Raises InputError where settings, cells, table or calibration cannot be used.
    """
    table = load_table(folders.arrays)
    plan = _plan(job, len(table.y))
    if np.ptp(table.y) == 0:
        raise InputError(f"the target in {folders.arrays} is constant: there is nothing to predict")
    task = Regression(plan, table, list(RegressionSettings.of(job.settings).standardise))
    return silo_jobs.train_plan(cast("LdpTask", task), job, table.description, calibration, progress)


def _plan(job: TrainingJob, records: int) -> LdpPlan:
    """Return the plan of `job` on a table of `records` rows."""
    settings = RegressionSettings.of(job.settings)
    blocks = client_blocks(records, settings.clients)
    training = min(len(block) - held_back(len(block)) for block in blocks)
    counts = ClientCounts(settings.clients, len(blocks[0]), training)
    return LdpPlan.of(settings, map(LdpCell.of, job.cells), cast("Loss", Square()), counts)
