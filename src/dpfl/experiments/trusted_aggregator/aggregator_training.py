"""Federated learning with a trusted aggregator: asoodeh2021, Algorithm 1, and its rivals, as an entry of the grid.

Users hold one record each. A round averages m users' gradients of a regularised logistic loss, each with Gaussian
noise, steps, and projects on a ball; what is released (the last model, one of a random round, all) and how users are
drawn differ by cell. Excess risks are above the least risk in the ball, which a deterministic solver finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpfl.algorithms.projected_sgd import (
    ProjectedHyperparameters,
    UserSampling,
    batches,
    models_at,
    projected_sgd,
    stratified_stops,
)
from dpfl.data.binary_classification import BinaryTask
from dpfl.data.loading import load_description
from dpfl.errors import InputError
from dpfl.experiments.shared.logistic_task import LIPSCHITZ, LOSS, RegularisedRisk, accuracy_pct, load_task, records_of
from dpfl.experiments.shared.run_table import as_columns, calibrated, run_table
from dpfl.experiments.shared.synthetic_logistic import (
    SYNTHETIC,
    SyntheticRecords,
    synthetic_description,
    synthetic_task,
)
from dpfl.experiments.trusted_aggregator.aggregator_settings import (
    AggregatorCell,
    calibrated_noise_std,
    excess_bound,
    privacy,
)
from dpfl.grid.sweep import Folders, Sweep
from dpfl.models.glm import Array
from dpfl.progress import step_counter


def calibrate(sweep: Sweep, description: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row a cell: its keys, noise_std, noise_multiplier and the columns of aggregator_settings.privacy.

    noise_std is the standard deviation of one user's noise in every coordinate, in the gradient's unit.
    Raises InputError naming the setting or the cell's key that cannot be used.
    """
    rows = []
    for cell in sweep.cells:
        run = AggregatorCell.of(sweep.settings, cell)
        if run.model == SYNTHETIC:
            description = synthetic_description(description, SyntheticRecords.of(sweep.settings))
        _check_users(run, description)
        noise_std = calibrated_noise_std(run)
        columns = privacy(run, noise_std)
        noise = {"noise_std": noise_std, "noise_multiplier": columns["privacy_noise_multiplier"]}
        rows.append({**as_columns(cell), **noise, **columns})
    return pd.DataFrame(rows)


def train(
    sweep: Sweep,
    folders: Folders,
    calibration: pd.DataFrame,
    checkpoint: Path | None,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """Return the run table: a row a run, cells in order and seeds within.

    Metrics: excess_risk (of the users' own records; for new users of the population that they are drawn from), its
    bound excess_bound (nan: none stated), least_risk, idle_excess_risk (of w = 0, where all start), accuracy_pct on the
    test set, optimum_accuracy_pct. A run that stops at random has their means over `stops` stopping rounds, one in each
    of as many equal parts of the range: the mean over the law of the stop, without bias. `progress` counts rounds.
    `checkpoint` is not used: minutes at most.
    Raises InputError where settings, cells, data or calibration cannot be used.
    """
    runs = [AggregatorCell.of(sweep.settings, cell) for cell in sweep.cells]
    task = _task(runs[0].model, sweep, folders)
    noise = calibrated(calibration, sweep.cells)
    noise_stds = [each["noise_std"] for each in noise]
    for run in runs:
        _check_users(run, task.description)
    groups: dict[tuple, list[int]] = {}
    for place, run in enumerate(runs):
        groups.setdefault(_stack_key(run), []).append(place)
    total = sum(max(runs[place].rounds for place in places) for places in groups.values())
    tick = step_counter(progress, total)
    dimension = task.train_x.shape[1]
    results: dict[tuple[int, int], dict[str, Any]] = {}
    goals: dict[tuple, RegularisedRisk] = {}
    for places in groups.values():
        stack = [runs[place] for place in places]
        weights = _run(task, stack, [noise_stds[place] for place in places], sweep.seeds, tick)
        for model, place in enumerate(places):
            run, noise_std = runs[place], noise_stds[place]
            bound = {"excess_bound": excess_bound(run, noise_std, dimension)}
            facts = {"rounds": run.rounds, "dimension": dimension, "noise_std": noise_std, **bound}
            measured = _measured(task, run, goals, weights[..., model])
            for number, seed in enumerate(sweep.seeds):
                results[place, seed] = {name: values[number] for name, values in measured.items()} | facts
    return run_table(sweep, task.description, noise, results)


def _task(model: str, sweep: Sweep, folders: Folders) -> BinaryTask:
    """Return the sweep's task: read from the data set's folders, or drawn."""
    if model == SYNTHETIC:
        return synthetic_task(load_description(folders.arrays), SyntheticRecords.of(sweep.settings))
    return load_task(model, folders)


def _run(
    task: BinaryTask,
    stack: list[AggregatorCell],
    noise_stds: list[float],
    seeds: tuple[int, ...],
    tick: Callable[[], None],
) -> Array:
    """Return the released models of runs that share their users' draws, shape (seeds, stops, features, models)."""
    rounds = max(run.rounds for run in stack)
    steps = np.zeros((len(stack), rounds))
    for model, run in enumerate(stack):
        steps[model, : run.rounds] = run.step_sizes
    first = stack[0]
    points = ProjectedHyperparameters(
        step_size=steps,
        noise_std=np.array(noise_stds) / math.sqrt(first.batch_size),
        radius=np.array([run.radius for run in stack]),
        regularisation=np.array([run.regularisation for run in stack]),
    )
    stops = [[stratified_stops(seed, run.first_stop, run.rounds, run.stops) for run in stack] for seed in seeds]
    source = batches(records_of(task), first.draw, seeds, first.users, first.batch_size)
    return models_at(projected_sgd(LOSS, source, seeds, points, clip_norm=LIPSCHITZ), np.array(stops), tick)


def _stack_key(run: AggregatorCell) -> tuple:
    """Return what the runs of one stack share: the draw of users, and the models taken of a run."""
    users = 0 if run.draw is UserSampling.NEW_USERS else run.users
    return run.draw, users, run.batch_size, run.passes, run.stops, run.first_stop == run.rounds


def _measured(
    task: BinaryTask, run: AggregatorCell, goals: dict[tuple, RegularisedRisk], weights: Array
) -> dict[str, list[float]]:
    """Return the metrics of one cell, a value a seed, from its models (seeds, stops, features)."""
    records = len(task.train_y) if run.draw is UserSampling.NEW_USERS else run.users
    key = (records, run.regularisation, run.radius)
    if key not in goals:
        goals[key] = RegularisedRisk(task.train_x[:records], task.train_y[:records], run.regularisation, run.radius)
    goal = goals[key]
    best = float(accuracy_pct(goal.optimum[:, None], task.test_x, task.test_y)[0])
    return {
        "excess_risk": [float(goal.excess(each.T).mean()) for each in weights],
        "least_risk": [goal.least] * len(weights),
        "idle_excess_risk": [float(goal.excess(np.zeros((weights.shape[-1], 1)))[0])] * len(weights),
        "accuracy_pct": [float(accuracy_pct(each.T, task.test_x, task.test_y).mean()) for each in weights],
        "optimum_accuracy_pct": [best] * len(weights),
    }


def _check_users(run: AggregatorCell, description: Mapping[str, Any]) -> None:
    """Raise InputError where the users are the table's records and there are not as many."""
    records = description["records"]["train"]
    if run.draw is not UserSampling.NEW_USERS and run.users > records:
        raise InputError(f"users: n = {run.users}, but {description['name']} has {records} training records")
