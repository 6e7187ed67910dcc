"""lowy2021's theorems on problems whose optimum is known: excess risk of its algorithms, a row a run.

A sweep is one study: its settings and each of its cells together say what is run (theory_settings.TheoryCell). Runs
whose data, algorithm and rounds agree are trained as one stack. Rounds, batches, stages, step sizes and outputs are
those of the theorems, unless a cell gives the rounds: nothing is tuned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpfl.accounting.samplers import Sampling
from dpfl.algorithms import accelerated_sgd, minibatch_sgd
from dpfl.algorithms.accelerated_sgd import Restart
from dpfl.algorithms.mean_gradients import BLOCK, MeanGradients
from dpfl.data.loading import load_description
from dpfl.engine.federated_rounds import Hyperparameters, Trials
from dpfl.experiments.ldp_theory.theory_settings import Algorithm, Risk, TheoryCell
from dpfl.experiments.shared.run_table import as_columns, calibrated, run_table
from dpfl.grid.sweep import Folders, Sweep
from dpfl.models import synthetic_problems
from dpfl.models.glm import Array
from dpfl.models.synthetic_problems import Problem

STACK_BYTES = 2**28
"""Rough limit of one stack's records; a sweep with more seeds runs them one stack after the other."""


def calibrate(sweep: Sweep, description: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row a cell: its keys, batch_size, noise_multiplier and the columns of its privacy statement.

    noise_multiplier is the noise's standard deviation over the norm bound of ONE record's share of a message,
    clip_norm / K. Raises InputError naming the setting or the cell's key that cannot be used.
    """
    rows = []
    for cell in sweep.cells:
        run = TheoryCell.of(sweep.settings, cell)
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
    runs = [TheoryCell.of(sweep.settings, cell) for cell in sweep.cells]
    noise = calibrated(calibration, sweep.cells)
    multipliers = [each["noise_multiplier"] for each in noise]
    stacks = list(_stacked(runs, multipliers))
    total, done = sum(runs[stack[0][0]].steps for stack in stacks), 0
    results: dict[tuple[int, int], dict[str, Any]] = {}
    for stack in stacks:
        first = runs[stack[0][0]]
        for seeds in _parts(first, sweep.seeds, len(stack)):
            points = [(runs[member], multipliers[member]) for member in stack[0]]
            outputs = _outputs([runs[members[0]] for members in stack], points, seeds)
            for members, weights in zip(stack, outputs, strict=True):
                for seed, own in zip(seeds, weights, strict=True):
                    columns = _risks(runs[members[0]], seed, own)
                    for place, member in enumerate(members):
                        measured = {name: float(values[place]) for name, values in columns.items()}
                        status = "diverged" if math.isnan(measured["excess_risk"]) else "finished"
                        results[member, seed] = {"status": status, **measured}
        done += first.steps
        progress(done, total)
    study = {"study": sweep.settings["study"]}
    settings = [
        {**study, **cell, **run.columns(multiplier)}
        for cell, run, multiplier in zip(sweep.cells, runs, multipliers, strict=True)
    ]
    return run_table(sweep, load_description(folders.arrays), noise, results, settings)


def _stacked(runs: list[TheoryCell], multipliers: list[float]) -> Iterator[list[list[int]]]:
    """Yield the places of runs that are trained together: a list a problem, each with the same points in one order."""
    by_problem: dict[Any, list[int]] = {}
    for place, run in enumerate(runs):
        by_problem.setdefault((run.stack_key(), run.problem), []).append(place)
    stacks: dict[Any, list[list[int]]] = {}
    for (key, _), members in by_problem.items():
        points = tuple((runs[m].bound, multipliers[m]) for m in members)
        stacks.setdefault((key, points), []).append(members)
    yield from stacks.values()


def _parts(run: TheoryCell, seeds: tuple[int, ...], problems: int) -> Iterator[tuple[int, ...]]:
    """Yield the seeds that run together, as many as STACK_BYTES has room for, one at least."""
    problem = run.problem
    drawn = BLOCK * run.repetitions * run.batch_size if run.sampling is not Sampling.FULL else 0
    records = problem.clients * (problem.records + drawn) * (problem.features + 2)
    size = max(1, STACK_BYTES // (8 * problems * records))
    for first in range(0, len(seeds), size):
        yield seeds[first : first + size]


def _outputs(problems: list[TheoryCell], points: list[tuple[TheoryCell, float]], seeds: tuple[int, ...]) -> Array:
    """Return the outputs of runs, (problems, seeds, repetitions, features, models).

    `problems` has a run of each problem, `points` the runs of the first that make up the models, each with its noise.
    """
    first = problems[0]
    drawn = [synthetic_problems.draw(run.problem, seed) for run in problems for seed in seeds]
    starts = np.arange(first.problem.clients + 1) * first.problem.records
    x, y = np.stack([each.x for each in drawn]), np.stack([each.y for each in drawn])
    models = Hyperparameters.joined(run.points(noise) for run, noise in points)
    gradients = MeanGradients(Trials(seeds * len(problems), x, y, starts), models, first.protocol)
    mu = first.problem.strong_convexity
    if first.algorithm is Algorithm.MINIBATCH:
        weights = minibatch_sgd.weighted_mean(minibatch_sgd.descend(gradients), mu, models.step_size)
    else:
        columns = zip(*(run.stages(noise) for run, noise in points), strict=True)
        stages = [Restart(stage[0].rounds, np.concatenate([each.gamma for each in stage])) for stage in columns]
        weights = accelerated_sgd.run(gradients, stages, mu)
    return weights.reshape(len(problems), len(seeds), *weights.shape[1:])


def _risks(run: TheoryCell, seed: int, weights: Array) -> dict[str, Array]:
    """Return the columns of one seed for each model of a stack; weights (repetitions, features, models)."""
    problem = run.problem
    with np.errstate(over="ignore", invalid="ignore"):
        if run.risk is Risk.POPULATION:
            excess = synthetic_problems.population_excess(problem, seed, weights)
            start = synthetic_problems.population_excess(problem, seed, np.zeros((problem.features, 1)))[0]
            extra = {"v_star_squared": synthetic_problems.heterogeneity(problem, seed)}
        else:
            excess, start = _empirical_excess(problem, seed, weights)
            extra = {"v_star_squared": math.nan}
        means = excess.mean(axis=0)
    return {
        "excess_risk": np.where(np.isfinite(means), means, np.nan),
        **{name: np.full_like(means, value) for name, value in {"start_risk": start, **extra}.items()},
    }


def _empirical_excess(problem: Problem, seed: int, weights: Array) -> tuple[Array, float]:
    """Return the excess of the objective on the drawn records of every model, and of w = 0."""
    drawn = synthetic_problems.draw(problem, seed)
    best = synthetic_problems.empirical_optimum(problem, drawn)
    least = synthetic_problems.objective(problem, best[:, None], drawn.x, drawn.y)[0]
    start = synthetic_problems.objective(problem, np.zeros((problem.features, 1)), drawn.x, drawn.y)[0]
    return synthetic_problems.objective(problem, weights, drawn.x, drawn.y) - least, float(start - least)
