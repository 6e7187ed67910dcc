"""An experiment to begin one from: the mean of a table's target, released again and again with Gaussian noise.

Every record's target is clipped to [-clip_norm, clip_norm]; a release is the mean of all, with noise, and what is
published is the mean of the releases. Copied to src/dpfl/convex/ it is the experiment `noisy_mean` of a grid.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpfl.accounting import FullBatch, Neighbouring, noise_multiplier
from dpfl.accounting.statements import Gaussian, PrivacyStatement
from dpfl.data.loading import load_table
from dpfl.errors import InputError
from dpfl.grid.run_table import calibrated, run_table
from dpfl.grid.settings import Count, Epsilon, Positive, Probability, Settings
from dpfl.grid.training_job import Folders, TrainingJob
from dpfl.progress import ProgressCallback, step_counter
from dpfl.randomness import generator


class MeanSettings(Settings):
    """A job's settings: how often the mean is released, and the bound on a target, in its unit."""

    releases: Count
    clip_norm: Positive
    delta: Probability


class MeanCell(Settings):
    """A cell's key: the budget of all releases together."""

    epsilon: Epsilon


def calibrate(job: TrainingJob, description: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row a cell: its key, the least noise that keeps its budget, and what that noise is proven to spend.

    Raises InputError naming the setting or the cell's key that cannot be used, and where the data are no table.
    """
    settings, sampler, rows = MeanSettings.of(job.settings), FullBatch(), []
    if "all" not in description["records"]:  # images have records to train on and to test on
        raise InputError(f"dataset must be a table, as insurance is; {job.settings['dataset']} holds images")
    run = {"steps": settings.releases, "delta": settings.delta, "neighbouring": Neighbouring.REPLACE_ONE}
    for cell in job.cells:
        epsilon = MeanCell.of(cell).epsilon
        noise = 0.0 if math.isinf(epsilon) else noise_multiplier(sampler, target_epsilon=epsilon, **run)
        statement = PrivacyStatement.of(
            Gaussian(), sampler, noise_multiplier=noise, records=description["records"]["all"],
            clip_norm=settings.clip_norm, **run,
        )  # fmt: skip
        rows.append({**cell, "noise_multiplier": noise, **statement.columns()})
    return pd.DataFrame(rows)


def train(
    job: TrainingJob, folders: Folders, calibration: pd.DataFrame, checkpoint: Path | None, progress: ProgressCallback
) -> pd.DataFrame:
    """Return the run table: what is published, less the mean of the targets, in their unit.

    Runs of one seed share their noise, so that budgets are compared within a seed. `checkpoint` is not used: a job
    takes moments. Raises InputError where settings, cells, table or calibration cannot be used.
    """
    settings, table = MeanSettings.of(job.settings), load_table(folders.arrays)
    noise, results = calibrated(calibration, job.cells), {}
    mean = np.clip(table.y, -settings.clip_norm, settings.clip_norm).mean()
    count = step_counter(progress, len(job.cells) * len(job.seeds))
    for (index, row), seed in itertools.product(enumerate(noise), job.seeds):
        draws = [generator(seed, "noise", step=step).standard_normal() for step in range(settings.releases)]
        added = row["noise_multiplier"] * settings.clip_norm / len(table.y) * np.mean(draws)
        results[index, seed] = {"mean_error": mean + added - table.y.mean()}
        count()
    return run_table(job, table.description, noise, results)
