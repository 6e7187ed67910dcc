"""lowy2021's theorems on problems whose optimum is known: excess risk of its algorithms, a row a run.

A sweep is one study: its settings and each of its cells together say what is run (`Run.of` lists the keys). Runs whose
data, algorithm and rounds agree are trained as one stack. Step sizes are those of the theorems: nothing is tuned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpfl.algorithms import accelerated_sgd, minibatch_sgd
from dpfl.algorithms.minibatch_sgd import NoisyGradients
from dpfl.algorithms.one_pass_sgd import OneRecordGradients
from dpfl.data.loading import load_description
from dpfl.engine.federated_rounds import Hyperparameters, Trials
from dpfl.experiments.ldp_theory.theory_settings import Algorithm, Risk, TheoryCell
from dpfl.experiments.shared.run_table import as_columns, calibrated, run_table
from dpfl.grid.sweep import Folders, Sweep
from dpfl.models import synthetic_problems
from dpfl.models.glm import Array
from dpfl.models.synthetic_problems import Problem

STACK_BYTES = 2**26
"""Rough limit of one stack's records; a sweep with more seeds runs them one stack after the other."""


def calibrate(sweep: Sweep, description: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row a cell: its keys, batch_size, noise_multiplier and the columns of its privacy statement.

    noise_multiplier is the noise's standard deviation over the norm bound of ONE record's share of a message,
    clip_norm / K. Raises InputError naming the setting or the cell's key that cannot be used.
    """
    rows = []
    for cell in sweep.cells:
        run = TheoryCell.of({**sweep.settings, **cell})
        statement = run.statement()
        noise = {"batch_size": run.batch_size, "noise_multiplier": statement.noise_multiplier}
        rows.append({**as_columns(cell), **noise, **statement.columns()})
    return pd.DataFrame(rows)


def train(
    sweep: Sweep,
    folders: Folders,
    calibration: pd.DataFrame,
    checkpoint: Path | None,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """Return the run table: a row a (cell, seed), the repetitions' mean.

    excess_risk is F(w) - F(w*), of the population or of the records as `risk` says; start_risk that of w = 0, which
    spends nothing; v_star_squared how much the clients differ (population only). status is "diverged", and the risk
    nan, where it is no number. `checkpoint` is not used: a sweep takes seconds.
    Raises InputError where settings, cells or calibration cannot be used.
    """
    runs = [TheoryCell.of({**sweep.settings, **cell}) for cell in sweep.cells]
    noise = calibrated(calibration, sweep.cells)
    groups: dict[Any, list[int]] = {}
    for place, run in enumerate(runs):
        groups.setdefault(run.stack_key(), []).append(place)
    total, done = sum(runs[members[0]].rounds for members in groups.values()), 0
    results: dict[tuple[int, int], dict[str, Any]] = {}
    for members in groups.values():
        first = runs[members[0]]
        for seeds in _stacks(first, sweep.seeds):
            outputs = _outputs([runs[m] for m in members], [noise[m]["noise_multiplier"] for m in members], seeds)
            for seed, weights in zip(seeds, outputs, strict=True):
                columns = _risks(first, seed, weights)
                for place, member in enumerate(members):
                    measured = {name: float(values[place]) for name, values in columns.items()}
                    status = "diverged" if math.isnan(measured["excess_risk"]) else "finished"
                    results[member, seed] = {"status": status, **measured}
        done += first.rounds
        progress(done, total)
    study = {"study": sweep.settings["study"]}
    settings = [{**study, **cell, **run.columns()} for cell, run in zip(sweep.cells, runs, strict=True)]
    return run_table(sweep, load_description(folders.arrays), noise, results, settings)


def _stacks(run: TheoryCell, seeds: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the seeds that run together, as many as STACK_BYTES has room for, one at least."""
    problem = run.problem
    each = 8 * problem.clients * problem.records * (problem.features + 2) * (1 + 2 * run.repetitions)
    size = max(1, STACK_BYTES // each)
    for first in range(0, len(seeds), size):
        yield seeds[first : first + size]


def _outputs(runs: list[TheoryCell], noise_multipliers: list[float], seeds: tuple[int, ...]) -> Array:
    """Return the outputs of runs that differ in their points alone, (seeds, repetitions, features, models)."""
    first = runs[0]
    drawn = [synthetic_problems.draw(first.problem, seed) for seed in seeds]
    starts = np.arange(first.problem.clients + 1) * first.problem.records
    trials = Trials(seeds, np.stack([each.x for each in drawn]), np.stack([each.y for each in drawn]), starts)
    points = Hyperparameters.joined(run.points(noise) for run, noise in zip(runs, noise_multipliers, strict=True))
    if first.algorithm is Algorithm.MINIBATCH:
        return minibatch_sgd.averaged_minibatch_sgd(trials, points, first.protocol)
    source = OneRecordGradients if first.algorithm is Algorithm.ONE_PASS else NoisyGradients
    columns = zip(*(run.stages(noise) for run, noise in zip(runs, noise_multipliers, strict=True)), strict=True)
    stages = [
        accelerated_sgd.Restart(stage[0].rounds, np.concatenate([each.gamma for each in stage])) for stage in columns
    ]
    return accelerated_sgd.run(source(trials, points, first.protocol), stages, first.problem.strong_convexity)


def _risks(run: TheoryCell, seed: int, weights: Array) -> dict[str, Array]:
    """Return the columns of one seed for each model of a stack; weights (repetitions, features, models)."""
    problem = run.problem
    with np.errstate(over="ignore", invalid="ignore"):
        if run.risk is Risk.POPULATION:
            excess, start = _population_excess(problem, seed, weights)
            extra = {"v_star_squared": synthetic_problems.heterogeneity(problem, seed)}
        else:
            excess, start = _empirical_excess(problem, seed, weights)
            extra = {"v_star_squared": math.nan}
        means = excess.mean(axis=0)
    return {
        "excess_risk": np.where(np.isfinite(means), means, np.nan),
        **{name: np.full_like(means, value) for name, value in {"start_risk": start, **extra}.items()},
    }


def _population_excess(problem: Problem, seed: int, weights: Array) -> tuple[Array, float]:
    """Return F(w) - F(w*) of every model, and of w = 0."""
    best, hessian = synthetic_problems.population_optimum(problem, seed)
    excess = np.einsum("d,rdm->rm", hessian, np.square(weights - best[:, None])) / 2.0
    return excess, float(hessian @ np.square(best)) / 2.0


def _empirical_excess(problem: Problem, seed: int, weights: Array) -> tuple[Array, float]:
    """Return the same for the objective on the drawn records."""
    drawn = synthetic_problems.draw(problem, seed)
    best = synthetic_problems.empirical_optimum(problem, drawn)
    least = synthetic_problems.objective(problem, best[:, None], drawn.x, drawn.y)[0]
    start = synthetic_problems.objective(problem, np.zeros((problem.features, 1)), drawn.x, drawn.y)[0]
    return synthetic_problems.objective(problem, weights, drawn.x, drawn.y) - least, float(start - least)
