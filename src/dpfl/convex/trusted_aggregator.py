"""Federated learning with a trusted aggregator: asoodeh2021, Algorithm 1, and its rivals, as an entry of the grid.

Users hold one record each. A round averages m users' gradients of a regularised logistic loss, each with Gaussian
noise, steps, and projects on a ball; what is released (the last model, one of a random round, all) and how users are
drawn differ by cell. Excess risks are above the least risk in the ball, which a deterministic solver finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

import numpy as np
import pandas as pd
from pydantic import Field, model_validator

from dpfl.accounting.contraction import average_iterate_rate, convex_iterate_rate, last_iterate_rate
from dpfl.accounting.contraction.federated import FederatedRelease, release_epsilon, release_sigma, round_sigma
from dpfl.accounting.local_privacy import composed_sigma
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import SAMPLERS, Sampler
from dpfl.accounting.statements import Gaussian, PrivacyStatement
from dpfl.convex.logistic_task import (
    CURVATURE,
    LIPSCHITZ,
    LOSS,
    SYNTHETIC,
    RegularisedRisk,
    SyntheticRecords,
    accuracy_pct,
    load_task,
    records_of,
    synthetic_description,
    synthetic_task,
)
from dpfl.convex.projected_sgd import (
    ProjectedHyperparameters,
    UserSampling,
    batches,
    models_at,
    projected_sgd,
    stratified_stops,
)
from dpfl.data.loading import load_description
from dpfl.errors import InputError
from dpfl.grid.run_table import as_columns, calibrated, run_table
from dpfl.grid.settings import Choice, Count, Epsilon, Positive, Probability, Settings
from dpfl.progress import step_counter

if TYPE_CHECKING:
    from dpfl.convex.problems import Array
    from dpfl.data.binary_classification import BinaryTask
    from dpfl.grid.training_job import Folders, TrainingJob

# One run of asoodeh2021's Algorithm 1, or of a rival on the same task: what a cell asks for, checked, and its privacy.
#
# Constants are those of regularised logistic regression on records of norm at most 1 (shared.logistic_task).

HARMONIC = "harmonic"


class AggregatorCell(Settings):
    """A cell within its job's settings. `release`: last, random, suffix_<alpha> (one model each) or all.

    step: "harmonic", 1/(regularisation t) in round t, or one number. Either noise_std (of one user's noise in every
    coordinate, in the gradient's unit; 0: no privacy) or epsilon (what the noise is calibrated to; inf: none) is given.
    `stops`: how many stopping rounds of a run that stops at random are measured.
    """

    model: str
    users: Count
    batch_size: Count
    passes: Count = 1
    radius: Positive
    regularisation: Positive
    step: Literal["harmonic"] | Positive
    draw: Choice[UserSampling]
    release: str
    delta: Probability
    noise_std: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    epsilon: Epsilon | None = None
    stops: Count

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise ValueError where keys do not go together."""
        if self.batch_size > self.users:
            raise ValueError(
                f"batch_size: m = {self.batch_size} of n = {self.users} users a round; it must be at most n"
            )
        if self.users % self.batch_size:
            raise ValueError(f"batch_size: m = {self.batch_size} must divide the number of users, n = {self.users}")
        if (self.noise_std is None) == (self.epsilon is None):
            raise ValueError("noise_std, epsilon: a cell gives either the noise or the budget that it is calibrated to")
        if self.draw.once and self.passes > 1:
            raise ValueError(f"passes: {self.passes} with draw {self.draw}, which takes each user once; it must be 1")
        self.first_stop  # noqa: B018 (refuses an unknown release)
        return self

    @property
    def rounds(self) -> int:
        """T."""
        return self.passes * self.users // self.batch_size

    @property
    def sampler(self) -> Sampler:
        """Sampler of a round's users: each once, or drawn again in every round."""
        return cast("Any", SAMPLERS[self.draw.sampling])(self.batch_size, self.users)

    @property
    def smoothness(self) -> float:
        """beta of one user's loss, its regulariser included."""
        return CURVATURE + self.regularisation

    @property
    def step_sizes(self) -> Array:
        """eta_t, shape (rounds,)."""
        if self.step == HARMONIC:
            return 1.0 / (self.regularisation * np.arange(1.0, self.rounds + 1.0))
        return np.full(self.rounds, self.step)

    @property
    def first_stop(self) -> int:
        """The first round after which the released model may have been taken; T where it is the last one."""
        name, _, share = self.release.partition("_")
        if self.release in ("last", "all"):
            return self.rounds
        if self.release == "random":
            return 1
        try:
            alpha = float(share)
        except ValueError:
            alpha = math.nan
        if name != "suffix" or not 0 < alpha < 1:
            known = "last, all, random or suffix_<alpha> with alpha between 0 and 1"
            raise ValueError(f"release: {self.release!r} is unknown, should be {known}")
        return max(1, math.ceil(alpha * self.rounds * (1 - 1e-12)))

    @property
    def long_steps(self) -> int:
        """Number of rounds that step by more than 2/beta, beyond the condition of Theorem 2."""
        return int(np.sum(self.step_sizes > 2.0 / self.smoothness))

    @property
    def contracting(self) -> bool:
        """True where the analysis by contraction covers the run: every user once, and one model released."""
        return self.draw.once and self.release != "all"


def calibrated_noise_std(run: AggregatorCell) -> float:
    """Return the noise of one user: as given, or the least that meets the run's epsilon at its delta."""
    if run.noise_std is not None:
        return run.noise_std
    assert run.epsilon is not None
    if math.isinf(run.epsilon):
        return 0.0
    if run.contracting:
        return release_sigma(run.epsilon, run.delta, _release(run))
    if run.draw.once:
        return round_sigma(run.epsilon, run.delta, m=run.batch_size, lipschitz=LIPSCHITZ)
    sampling = run.draw.sampling
    return composed_sigma(run.epsilon, run.delta, run.users, run.batch_size, run.rounds, sampling)


def privacy(run: AggregatorCell, noise_std: float) -> dict[str, Any]:
    """Return the statement's columns, with the release and epsilon by contraction (nan where it has no answer).

    noise_multiplier is the deviation of the noise in a round's SUM over one user's largest share, sqrt(m) noise_std/L.
    privacy_epsilon_proven is by composition and holds whatever is released; privacy_epsilon_contraction is Theorem 2's
    (Corollary 3's with a random stop). Both hold where both are given.
    """
    released = {"last": "last model", "all": "all models"}.get(run.release, "one model, its round drawn")
    statement = PrivacyStatement.of(
        Gaussian(),
        run.sampler,
        neighbouring=Neighbouring.REPLACE_ONE,
        records=run.users,
        clip_norm=LIPSCHITZ,
        noise_multiplier=math.sqrt(run.batch_size) * noise_std / LIPSCHITZ,
        steps=run.rounds,
        delta=run.delta,
        note=_note(run),
    )
    last_model = math.nan if noise_std > 0 else math.inf
    if run.contracting and noise_std > 0:
        last_model = release_epsilon(run.delta, _release(run), sigma=noise_std)
    return {**statement.columns(), "privacy_released": released, "privacy_epsilon_contraction": last_model}


def excess_bound(run: AggregatorCell, noise_std: float, dimension: int) -> float:
    """Return the paper's bound on the excess risk, the dimension put in; nan where it states none.

    Corollary 1 for the last model of new users, Corollary 2 (its unnamed constant taken as 1) for a random stop of one
    pass, both with harmonic steps; the rate without strong convexity for a random stop of new users at a constant step.
    """
    gradient = LIPSCHITZ + run.regularisation * run.radius
    shared = {"n": run.users, "m": run.batch_size, "dimension": dimension}
    if run.step != HARMONIC:
        if run.draw is UserSampling.NEW_USERS and run.release == "random":
            return convex_iterate_rate(eta=run.step, sigma=noise_std, lipschitz=gradient, radius=run.radius, **shared)
        return math.nan
    if run.draw is UserSampling.NEW_USERS and run.release == "last":
        constants = {"smoothness": run.smoothness, "strong_convexity": run.regularisation, "gradient_bound": gradient}
        return float(last_iterate_rate(sigma=noise_std, gradient_variance=LIPSCHITZ**2, **constants, **shared))
    if run.draw is UserSampling.ONE_PASS and run.release == "random" and noise_std > 0 and run.rounds > 1:
        loss = {"lipschitz": LIPSCHITZ, "smoothness": CURVATURE, "radius": run.radius, "gradient_bound": gradient}
        convex = {"strong_convexity": run.regularisation}
        return average_iterate_rate(eta=run.step_sizes, sigma=noise_std, **loss, **convex, **shared)
    return math.nan


def _release(run: AggregatorCell) -> FederatedRelease:
    """Return a run as the contraction analysis takes it."""
    return FederatedRelease(
        n=run.users,
        m=run.batch_size,
        eta=run.step_sizes if run.step == HARMONIC else run.step,
        lipschitz=LIPSCHITZ,
        radius=run.radius,
        smoothness=run.smoothness,
        strong_convexity=run.regularisation,
        first_stop=run.first_stop,
    )


def _note(run: AggregatorCell) -> str:
    """Say how the accounting relates to what runs."""
    if not run.draw.once:
        return "epsilon_proven composes the rounds' freshly drawn batches; all models may be released"
    note = "each user takes part once; epsilon_proven is of that one round, and allows all models to be released"
    if run.contracting:
        note += "; epsilon_contraction needs every other model kept secret, and who took part when"
    if run.contracting and run.long_steps:
        note += f"; {run.long_steps} rounds step beyond 2/beta and are accounted for by the relaxed diameter"
    return note


def calibrate(job: TrainingJob, description: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row for each cell: its keys, noise_std, noise_multiplier and the columns of `privacy`.

    noise_std is the standard deviation of one user's noise in every coordinate, in the gradient's unit.
    Raises InputError naming the setting or the cell's key that cannot be used.
    """
    rows = []
    for cell in job.cells:
        run = AggregatorCell.of(job.settings, cell)
        if run.model == SYNTHETIC:
            description = synthetic_description(description, SyntheticRecords.of(job.settings))
        _check_users(run, description)
        noise_std = calibrated_noise_std(run)
        columns = privacy(run, noise_std)
        noise = {"noise_std": noise_std, "noise_multiplier": columns["privacy_noise_multiplier"]}
        rows.append({**as_columns(cell), **noise, **columns})
    return pd.DataFrame(rows)


def train(
    job: TrainingJob,
    folders: Folders,
    calibration: pd.DataFrame,
    checkpoint: Path | None,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """Return the run table: a row for each run, cells in order and seeds within.

    Metrics: excess_risk (of the users' own records; for new users of the population that they are drawn from), its
    bound excess_bound (nan: none stated), least_risk, idle_excess_risk (of w = 0, where all start), accuracy_pct on the
    test set, optimum_accuracy_pct. A run that stops at random has their means over `stops` stopping rounds, one in each
    of as many equal parts of the range: the mean over the law of the stop, without bias. `progress` counts rounds.
    `checkpoint` is not used: minutes at most.
    Raises InputError where settings, cells, data or calibration cannot be used.
    """
    runs = [AggregatorCell.of(job.settings, cell) for cell in job.cells]
    task = _task(runs[0].model, job, folders)
    noise = calibrated(calibration, job.cells)
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
        weights = _run(task, stack, [noise_stds[place] for place in places], job.seeds, tick)
        for model, place in enumerate(places):
            run, noise_std = runs[place], noise_stds[place]
            bound = {"excess_bound": excess_bound(run, noise_std, dimension)}
            facts = {"rounds": run.rounds, "dimension": dimension, "noise_std": noise_std, **bound}
            measured = _measured(task, run, goals, weights[..., model])
            for number, seed in enumerate(job.seeds):
                results[place, seed] = {name: values[number] for name, values in measured.items()} | facts
    return run_table(job, task.description, noise, results)


def _task(model: str, job: TrainingJob, folders: Folders) -> BinaryTask:
    """Return the job's task: read from the data set's folders, or drawn."""
    if model == SYNTHETIC:
        return synthetic_task(load_description(folders.arrays), SyntheticRecords.of(job.settings))
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
