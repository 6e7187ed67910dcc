"""Five papers' algorithms on one task, at one budget, as an entry of the grid: what does trust buy?

The task is regularised logistic regression (is the label odd?) on n records; every algorithm starts at 0, projects on
the same ball and gets the same epsilon at the same delta, for replacing one record. Clients hold equal random shares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpfl.algorithms.convex_fedavg import deal_records, fedavg
from dpfl.algorithms.delayed_sgd import delayed_sgd
from dpfl.algorithms.projected_sgd import (
    BLOCK,
    ProjectedHyperparameters,
    UserSampling,
    batches,
    models_at,
    projected_sgd,
)
from dpfl.data.binary_classification import BinaryTask
from dpfl.errors import InputError
from dpfl.experiments.shared.logistic_task import LIPSCHITZ, LOSS, RegularisedRisk, accuracy_pct, load_task, records_of
from dpfl.experiments.shared.run_table import as_columns, calibrated, run_table
from dpfl.experiments.trust_models.trust_settings import (
    FULL_BATCH,
    LOCAL,
    ONE_PASS,
    TRUST_MODEL,
    TrustAlgorithm,
    TrustCell,
    noise_std,
    privacy,
)
from dpfl.grid.sweep import Folders, Sweep
from dpfl.models.glm import Array, FactoredRecords
from dpfl.progress import step_counter


def calibrate(sweep: Sweep, description: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row a cell: its keys, noise_std (of a step's mean gradient), noise_multiplier, privacy_* columns.

    Raises InputError naming the setting or the cell's key that cannot be used.
    """
    rows = []
    for cell in sweep.cells:
        plan = TrustCell.of(sweep.settings, cell)
        std = noise_std(plan)
        columns = privacy(plan, std)
        noise = {"noise_std": std, "noise_multiplier": columns["privacy_noise_multiplier"]}
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

    Metrics: excess_risk over the n records above the optimum in the ball, accuracy_pct on the test set, and the
    optimum's. `progress` counts noisy steps of a whole stack. `checkpoint` is not used: minutes at most.
    Raises InputError where settings, cells, data or calibration cannot be used.
    """
    plans = [TrustCell.of(sweep.settings, cell) for cell in sweep.cells]
    task = load_task(plans[0].model, folders)
    noise = calibrated(calibration, sweep.cells)
    noise_stds = [each["noise_std"] for each in noise]
    _check(task, plans)
    users = plans[0].users
    goal = RegularisedRisk(task.train_x[:users], task.train_y[:users], plans[0].regularisation, plans[0].radius)
    records = records_of(task)[(slice(users),)]
    groups = {each: [place for place, plan in enumerate(plans) if plan.algorithm is each] for each in TrustAlgorithm}
    total = sum(_turns(plans[places[0]]) for places in groups.values() if places)
    tick = step_counter(progress, total)
    best = float(accuracy_pct(goal.optimum[:, None], task.test_x, task.test_y)[0])
    results: dict[tuple[int, int], dict[str, Any]] = {}
    for places in filter(None, groups.values()):
        stack = [plans[place] for place in places]
        weights = _run(records, stack, [noise_stds[place] for place in places], sweep, tick)
        for model, place in enumerate(places):
            own = weights[..., model].T
            facts = {"optimum_accuracy_pct": best, "trust": TRUST_MODEL[plans[place].algorithm]}
            measured = zip(goal.excess(own), accuracy_pct(own, task.test_x, task.test_y), strict=True)
            for seed, (excess, accuracy) in zip(sweep.seeds, measured, strict=True):
                results[place, seed] = {"excess_risk": float(excess), "accuracy_pct": float(accuracy), **facts}
    return run_table(sweep, task.description, noise, results)


def _run(
    records: FactoredRecords, stack: list[TrustCell], noise_stds: list[float], sweep: Sweep, tick: Callable[[], None]
) -> Array:
    """Return the released models of one algorithm's cells, (seeds, features, models)."""
    plan, seeds = stack[0], sweep.seeds
    models, rounds = len(stack), plan.steps if plan.algorithm not in LOCAL else 1
    points = ProjectedHyperparameters(
        step_size=np.tile(np.array([[each.step] for each in stack]), (1, rounds)),
        noise_std=np.array(noise_stds),
        radius=np.full(models, plan.radius),
        regularisation=np.full(models, plan.regularisation),
    )
    if plan.algorithm in LOCAL:
        held = np.stack([deal_records(seed, plan.users, plan.clients) for seed in seeds])
        common = {"passes": plan.passes, "size": plan.size, "clip_norm": LIPSCHITZ, "tick": tick}
        if plan.algorithm is TrustAlgorithm.AVERAGING:
            return fedavg(LOSS, records, held, seeds, points, **common)
        return delayed_sgd(LOSS, records, held, seeds, points, delay=plan.delay, **common)
    draw = UserSampling.ONE_PASS if plan.algorithm in ONE_PASS else UserSampling.FRESH
    source = (
        _everything(records, len(seeds))
        if plan.algorithm in FULL_BATCH
        else batches(records, draw, seeds, plan.users, plan.size)
    )
    last = np.full((len(seeds), models, 1), rounds)
    return models_at(projected_sgd(LOSS, source, seeds, points, clip_norm=LIPSCHITZ), last, tick)[:, 0]


def _everything(records: FactoredRecords, seeds: int) -> Callable[[int], FactoredRecords]:
    """Return the source whose every round reads all records, without a copy."""
    views = (np.broadcast_to(part, (seeds, BLOCK, *part.shape)) for part in vars(records).values())
    block = FactoredRecords(*views)
    return lambda number: block


def _turns(plan: TrustCell) -> int:
    """Return how many steps of a whole stack an algorithm takes."""
    return plan.steps * plan.clients if plan.algorithm is TrustAlgorithm.ASYNCHRONOUS else plan.steps


def _check(task: BinaryTask, plans: list[TrustCell]) -> None:
    """Raise InputError where data and cells do not fit together."""
    records, dimension = task.train_x.shape
    if dimension != plans[0].dimension:
        raise InputError(f"dimension is {plans[0].dimension}; {plans[0].model} has {dimension} features")
    if plans[0].users > records:
        raise InputError(f"users: n = {plans[0].users}, but {task.description['name']} has {records} training records")
