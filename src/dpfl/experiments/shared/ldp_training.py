"""Training and choosing: every trial runs a grid of step sizes and clip norms, and its training loss decides.

What is shared by the experiments without a trusted server. The choice reads the training records too, and no privacy
statement here accounts for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import pandas as pd

from dpfl.data.partition import Trial
from dpfl.engine.federated_rounds import Hyperparameters, Trials
from dpfl.experiments.shared.ldp_noise import statement
from dpfl.experiments.shared.ldp_settings import RUN, LdpPlan
from dpfl.experiments.shared.run_table import as_columns, calibrated, run_table
from dpfl.grid.sweep import Sweep
from dpfl.models.glm import Array, losses
from dpfl.progress import step_counter

STACK_BYTES = 2**25
"""Rough limit of one stack's working memory; a sweep with more trials runs them one stack after the other."""


class LdpTask(Protocol):
    """Data and measures that an experiment adds to the shared training."""

    plan: LdpPlan

    def trial(self, seed: int) -> Trial:
        """Return the clients' records of one trial."""

    def measures(self, trial: Trial, weights: Array) -> dict[str, Array]:
        """Return the test metrics of models (..., features, models), each (..., models)."""

    def references(self, trial: Trial) -> dict[str, float]:
        """Return what a trial can be held against, one column each."""


def calibrate(plan: LdpPlan, cells: tuple[dict[str, Any], ...], unaccounted: str) -> pd.DataFrame:
    """Return a row a cell: its keys, batch_size, noise_multiplier and the columns of its privacy statement.

    noise_multiplier is the noise's standard deviation over the norm bound of ONE record's share of what is released:
    clip_norm / K in the mean that minibatch SGD sends, clip_norm in a step of local SGD (replacing a record moves
    either by twice that). It is the same for every clip norm; privacy_epsilon_proven bounds what it spends,
    privacy_clip_norm is nan until training has chosen. privacy_note ends with `unaccounted`: what the statement leaves
    out.
    """
    rows = []
    for cell in cells:
        algorithm = cell["algorithm"]
        sent, counted = plan.messages(algorithm), plan.calibrated_messages(algorithm)
        stated = statement(plan.noise, sent, cell["epsilon"], unaccounted, calibrated_for=counted)
        noise = {"batch_size": plan.protocol.batch_size, "noise_multiplier": stated.noise_multiplier}
        rows.append({**as_columns(cell), **noise, **stated.columns(), "privacy_clip_norm": math.nan})
    return pd.DataFrame(rows)


def train(
    task: LdpTask,
    sweep: Sweep,
    description: Mapping[str, Any],
    calibration: pd.DataFrame,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """Return the run table: a row an (algorithm, epsilon, seed), cells in the sweep's order and seeds within them.

    The metrics are those of `choose`, the task's measures and its references; clip_norm inf is none. status is
    "diverged", and the metrics nan, where no point of the grid can be chosen; diverged_share counts the grid's runs,
    repetitions apart. `progress` counts rounds of whole stacks. Raises InputError where the calibration does not fit.
    """
    plan = task.plan
    algorithms = dict.fromkeys(cell["algorithm"] for cell in sweep.cells)
    noise = calibrated(calibration, sweep.cells)
    first = task.trial(sweep.seeds[0])
    chunks = list(_chunks(plan, sweep, first.train_x.shape[1]))
    total = plan.protocol.rounds * len(algorithms) * len(chunks)
    tick = step_counter(progress, total)
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    for seeds in chunks:
        trials = [first if seed == sweep.seeds[0] else task.trial(seed) for seed in seeds]
        references = [task.references(trial) for trial in trials]
        x, y = np.stack([trial.train_x for trial in trials]), np.stack([trial.train_y for trial in trials])
        stack = Trials(seeds, x, y, first.starts)
        for algorithm in algorithms:
            cells = [index for index, cell in enumerate(sweep.cells) if cell["algorithm"] == algorithm]
            grid = [plan.points(sweep.cells[index], noise[index]["noise_multiplier"]) for index in cells]
            outputs = RUN[algorithm](stack, Hyperparameters.joined(grid), plan.protocol_of(algorithm), tick)
            starts = np.cumsum([len(points.step_size) for points in grid])[:-1]
            for seed, trial, reference, own in zip(seeds, trials, references, outputs, strict=True):
                for index, points, weights in zip(cells, grid, np.split(own, starts, axis=-1), strict=True):
                    rows[index, seed] = {**choose(task, trial, points, weights), **reference}
    settings = [{**sweep.settings, **cell, "batch_size": plan.protocol.batch_size} for cell in sweep.cells]
    table = run_table(sweep, description, noise, rows, settings)
    return table.assign(privacy_clip_norm=table["clip_norm"])


def choose(task: LdpTask, trial: Trial, points: Hyperparameters, weights: Array) -> dict[str, Any]:
    """Return the columns of the point of least mean training loss (so of least mean excess) over the repetitions.

    weights: (repetitions, features, models). A run diverges when its training loss exceeds the plan's divergence_loss
    or is no number; a point with a run that diverged is never chosen.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        train_loss = losses(task.plan.protocol.loss, weights, trial.train_x, trial.train_y)
        diverged = ~(train_loss <= task.plan.divergence_loss)
        means = np.where(diverged.any(axis=0), np.inf, train_loss.mean(axis=0))
    best = int(np.argmin(means))
    found = math.isfinite(means[best])
    chosen = weights[..., [best, best]] if found else np.zeros_like(weights[..., :2])
    measured = {name: float(each[:, 0].mean()) for name, each in task.measures(trial, chosen).items()}
    row = {**measured, "train_loss": float(means[best])}
    row |= {"step_size": float(points.step_size[best]), "clip_norm": float(points.clip_norm[best])}
    if not found:
        row = dict.fromkeys(row, math.nan)
    return {"status": "finished" if found else "diverged", **row, "diverged_share": float(diverged.mean())}


def _chunks(plan: LdpPlan, sweep: Sweep, features: int) -> Iterator[tuple[int, ...]]:
    """Yield the seeds that run together, as many as STACK_BYTES has room for, one at least."""
    protocol, widest = plan.protocol, 0
    for algorithm in dict.fromkeys(cell["algorithm"] for cell in sweep.cells):
        models = sum(len(plan.points(cell, 0.0).step_size) for cell in sweep.cells if cell["algorithm"] == algorithm)
        rows = max(3 * features, protocol.batch_size if algorithm == "minibatch" else 0)
        widest = max(widest, protocol.participation.most * rows * models)
    size = max(1, STACK_BYTES // (8 * protocol.repetitions * widest))
    for first in range(0, len(sweep.seeds), size):
        yield tuple(sweep.seeds[first : first + size])
