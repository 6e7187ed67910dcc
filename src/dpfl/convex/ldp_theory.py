"""lowy2021's theorems on problems whose optimum is known: excess risk of its algorithms, a row for each run.

A job is one study: its settings and each of its cells together say what is run (`TheoryCell`). Runs
whose data, algorithm and rounds agree are trained as one stack. Rounds, batches, stages, step sizes and outputs are
those of the theorems, unless a cell gives the rounds: nothing is tuned.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, cast

import numpy as np
import pandas as pd
from pydantic import Field, model_validator

from dpfl.accounting import gaussian_dp, local_privacy, shuffling
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import FullBatch, Sampler, Sampling, ShuffledEpochs, WithReplacement
from dpfl.accounting.statements import Gaussian, Mechanism, PrivacyStatement, ShuffledGaussian, SummedGaussian
from dpfl.convex import accelerated_sgd, minibatch_sgd, synthetic_problems
from dpfl.convex.accelerated_sgd import Restart
from dpfl.convex.federated_rounds import Aggregate, Hyperparameters, Participation, Protocol, Trials
from dpfl.convex.mean_gradients import BLOCK, MeanGradients
from dpfl.convex.problems import Absolute, Array, Hinge, Loss, Smoothed, sharpness_for
from dpfl.convex.synthetic_problems import Kind, Problem
from dpfl.data.loading import load_description
from dpfl.errors import InputError
from dpfl.grid.run_table import as_columns, calibrated, run_table
from dpfl.grid.settings import Choice, Count, Epsilon, Positive, Probability, Settings, Several

if TYPE_CHECKING:
    from dpfl.grid.training_job import Folders, TrainingJob

# One run of lowy2021's theory studies: problem, algorithm, noise, and the step sizes that the theorems prescribe.


class Algorithm(StrEnum):
    """Algorithms; all take the mean of the messages and project on the ball."""

    MINIBATCH = "minibatch"
    """Algorithm 1 on full batches."""
    ACCELERATED = "accelerated"
    """Algorithm 2 on full batches, one stage for mu = 0 and several for mu > 0."""
    ONE_PASS = "one_pass"
    """Algorithm 2 on one record a client and round, none used twice."""


class TheoryNoise(StrEnum):
    """Source of a client's noise."""

    THEOREM = "theorem"
    """The paper's formula: Theorem 2.1 and 2.3, or 2.2 for one pass."""
    TIGHT = "tight"
    """The least that an exact accounting of the mechanism asks for."""


class Trust(StrEnum):
    """Trust of the clients."""

    NOBODY = "nobody"
    """Every client's own messages are private (LDP)."""
    SHUFFLER = "shuffler"
    """Messages are private once a shuffler has permuted them."""
    SERVER = "server"
    """Only what the server releases is private: the central model, whose noise is split among the clients."""


class Theorem(StrEnum):
    """Theorem of lowy2021 that sets the rounds R, and K where batches are drawn."""

    SCO = "2.1"
    """Clients of one law, Algorithm 1."""
    ERM = "2.3"
    """Empirical risk, Algorithm 2; Algorithm 1 gets as many rounds."""
    SHUFFLED = "4.1"
    """A trusted shuffler; whoever is trusted, the rounds are the same."""


class RecordDraws(StrEnum):
    """Records of a client in a round."""

    FULL = "full"
    """All of them: K = n, which every theorem's condition on K allows, but not drawn."""
    DRAWN = "drawn"
    """K drawn with replacement, the least that the theorem allows."""


class Risk(StrEnum):
    """Risk whose excess is measured."""

    POPULATION = "population"
    EMPIRICAL = "empirical"


_PROBLEM = tuple(field.name for field in fields(Problem))
_MOST_ROUNDS = 10**7
"""Rounds at which the search for Algorithm 2's stages is given up."""
Real = int | float
"""A number that the run table repeats as it is given."""


class TheoryCell(Settings):
    """A run: the fields of Problem, the algorithm and its noise.

    `participants` lists equally likely numbers M_r of clients that take part (empty: all); epsilon (inf: no noise) and
    delta are asked for by `trust`. `rounds` null: those of `theorem`, times `rounds_factor`; neither is read for one
    pass, which has one a record. `sharpness` b smooths a loss with a kink (0: not at all; null: as much as costs
    the rate of Theorem 2.3). clip_norm L bounds the gradients of the class of problems, at least the problem's own
    bound, so that nothing has to be clipped (null: that bound).
    """

    kind: Choice[Kind]
    clients: Count
    records: Count
    features: Count
    radius: Real
    scale: Real
    condition: Real
    signal: Real
    target_noise: Real
    spread: Real
    strong_convexity: Real
    algorithm: Choice[Algorithm]
    noise: Choice[TheoryNoise]
    trust: Choice[Trust]
    risk: Choice[Risk]
    epsilon: Epsilon
    delta: Probability
    rounds: Count | None
    participants: Several[int]
    repetitions: Count
    sharpness: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None
    clip_norm: Positive | None
    theorem: Choice[Theorem] | None = None
    rounds_factor: Count = 1
    batches: Choice[RecordDraws] = RecordDraws.FULL

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise ValueError for what cannot be run, or has no accounting."""
        if self.rounds is None and self.algorithm is not Algorithm.ONE_PASS:
            if self.theorem is None:
                raise ValueError("rounds must be a whole number, at least 1, but for one_pass or a theorem")
            if not self.private:
                raise ValueError(f"epsilon is {self.epsilon}; the rounds of theorem {self.theorem} depend on it")
        if self.batches is RecordDraws.DRAWN and (self.theorem is None or self.noise is TheoryNoise.TIGHT):
            raise ValueError("batches 'drawn' goes with a theorem, and with noise 'theorem'")
        if not self.problem.lipschitz <= self.bound:
            raise ValueError(f"clip_norm is {self.bound:g}; gradients reach {self.problem.lipschitz:g} here")
        if self.participation.most > self.clients:
            raise ValueError(f"participants: {self.participation.most} exceeds the {self.clients} clients")
        if self.trust is not Trust.NOBODY:
            if self.noise is TheoryNoise.THEOREM or self.algorithm is Algorithm.ONE_PASS:
                raise ValueError(f"trust {self.trust.value!r} goes with noise 'tight' and full batches")
            if self.participation.sizes != (self.clients,):
                raise ValueError(f"trust {self.trust.value!r} is accounted for when all clients take part")
        if self.problem.kind is Kind.LINEAR and self.risk is Risk.EMPIRICAL:
            raise ValueError("kind 'linear' goes with risk 'population'")
        if math.isinf(self.loss.smoothness) and self.algorithm is not Algorithm.MINIBATCH:
            raise ValueError("sharpness is 0: Algorithm 2 needs a smooth loss, so choose one above 0")
        return self

    @cached_property
    def problem(self) -> Problem:
        """The federation's law."""
        return Problem(**{name: getattr(self, name) for name in _PROBLEM})

    @cached_property
    def participation(self) -> Participation:
        """Law of the clients that take part in a round."""
        return Participation(self.participants or (self.clients,))

    @cached_property
    def steps(self) -> int:
        """Rounds of the run, R."""
        if self.algorithm is Algorithm.ONE_PASS:
            return self.records
        if self.rounds is not None:
            return self.rounds
        if self.theorem is Theorem.ERM and self.problem.strong_convexity:
            return sum(self.stage_rounds) * self.rounds_factor
        return math.ceil(self._theorem_rounds()) * self.rounds_factor

    @property
    def _constants(self) -> dict[str, float]:
        """L, D and mu, where it is above 0, as the rates' functions take them."""
        known = {"lipschitz": self.bound, "radius": self.problem.radius}
        return known | ({"strong_convexity": self.problem.strong_convexity} if self.problem.strong_convexity else {})

    @property
    def _sizes(self) -> dict[str, float]:
        """M, n, d and epsilon, as the rates' functions take them."""
        # Exact: the rates ask whether M is N, and 1 / (1 / 49) is not 49.
        inverses = [Fraction(1, size) for size in self.participation.sizes]
        sizes = {"clients_per_round": float(len(inverses) / sum(inverses)), "epsilon": self.epsilon}
        return sizes | {"records": self.problem.records, "features": self.problem.features}

    def _theorem_rounds(self) -> float:
        """Return R of `theorem`, a real number."""
        sizes, strong = self._sizes, self.problem.strong_convexity > 0
        if self.theorem is Theorem.SCO:
            if strong:
                return float(local_privacy.iid_strongly_convex_rounds(**self._constants, **sizes))
            return float(local_privacy.iid_convex_rounds(**sizes))
        sizes["clients"] = self.problem.clients
        if self.theorem is Theorem.ERM:
            return float(local_privacy.erm_convex_rounds(**sizes, batch_size=self.batch_size))
        rounds = local_privacy.shuffled_strongly_convex_rounds if strong else local_privacy.shuffled_convex_rounds
        return float(rounds(**self._constants, smoothness=self.smoothness, **sizes))

    @cached_property
    def stage_rounds(self) -> tuple[int, ...]:
        """R_k of Algorithm 2's stages for mu > 0, whose noise is calibrated to their sum.

        As many stages as halve the gap L D to the rate of Theorem 2.3, or as the noise allows: more rounds need more
        noise, and that again more rounds. Raises InputError where it does not allow one.
        """
        problem = self.problem
        gap, goal = self.bound * problem.radius, self._erm_rate()
        best: tuple[int, ...] = ()
        for stages in range(1, max(1, math.ceil(math.log2(gap / goal))) + 1):
            rounds: tuple[int, ...] = (1,) * stages
            while (total := sum(rounds)) < _MOST_ROUNDS:
                each = accelerated_sgd.shrinking_rounds(
                    smoothness=self.smoothness,
                    strong_convexity=problem.strong_convexity,
                    gradient_deviation=self.gradient_deviation(self._multiplier(total)),
                    gap=gap,
                    stages=stages,
                )
                if sum(each) == total:
                    break
                rounds = each
            if total >= _MOST_ROUNDS:
                break
            best = rounds
        if not best:
            raise InputError(f"theorem {self.theorem}: no stage of Algorithm 2 halves its gap with this much noise")
        return best

    def _erm_rate(self) -> float:
        """Return the rate of Theorem 2.3, with constant 1."""
        strong = self.problem.strong_convexity > 0
        rate = local_privacy.erm_strongly_convex_rate if strong else local_privacy.erm_convex_rate
        constants = {name: value for name, value in self._constants.items() if not (strong and name == "radius")}
        return float(rate(**constants, **self._sizes, delta=self.delta))

    @property
    def bound(self) -> float:
        """The clip norm."""
        return float(self.problem.lipschitz if self.clip_norm is None else self.clip_norm)

    @cached_property
    def loss(self) -> Loss:
        """The loss that the clients differentiate."""
        if self.sharpness == 0:
            return self.problem.loss
        return cast("Loss", Smoothed(cast("Absolute | Hinge", self.problem.loss), self.sharpness_number))

    @cached_property
    def sharpness_number(self) -> float:
        """b of the smoothing, 0 without."""
        if self.sharpness is not None:
            return float(self.sharpness)
        return sharpness_for(self._erm_rate(), self.problem.loss.lipschitz)

    @property
    def private(self) -> bool:
        """True with noise."""
        return math.isfinite(self.epsilon)

    @property
    def batch_size(self) -> int:
        """K: all records of a client, 1 in one pass, or where they are drawn the least that the theorem allows.

        Theorem 2.3's R falls with K until its other term is as large, which K = epsilon n / sqrt(d M) reaches. The
        theorem's condition on K, at that term, can ask for more.
        """
        records = self.problem.records
        if self.algorithm is Algorithm.ONE_PASS:
            return 1
        if self.batches is RecordDraws.FULL:
            return records
        if self.theorem is Theorem.ERM:
            balanced = self.epsilon * records / math.sqrt(self.problem.features * self._sizes["clients_per_round"])
            rounds = math.ceil(balanced * self._sizes["clients_per_round"])
        else:
            balanced, rounds = 1.0, self.steps
        budget = {"epsilon": self.epsilon, "delta": self.delta, "rounds": rounds, "records": records}
        return min(records, math.ceil(max(balanced, _checked(local_privacy.least_batch_advanced, **budget))))

    @property
    def sampling(self) -> Sampling:
        """Ways to draw a client's records."""
        if self.algorithm is Algorithm.ONE_PASS:
            return Sampling.FIXED
        return Sampling.FULL if self.batches is RecordDraws.FULL else Sampling.WITH_REPLACEMENT

    @property
    def protocol(self) -> Protocol:
        """Protocol of the rounds (dpfl.convex.federated_rounds)."""
        return Protocol(
            loss=self.loss,
            rounds=self.steps,
            participation=self.participation,
            batch_size=self.batch_size,
            repetitions=self.repetitions,
            sampling=self.sampling,
            aggregate=Aggregate.MEAN,
        )

    def stack_key(self) -> tuple:
        """Return what runs must share to be trained as one stack: linear losses may differ in their signal alone."""
        alike = replace(self.problem, signal=1e-9) if self.problem.kind is Kind.LINEAR else self.problem
        own = (
            self.algorithm,
            self.risk,
            self.steps,
            self.participation,
            self.repetitions,
            self.sampling,
            self.batch_size,
        )
        return (alike, *own, self.sharpness_number)

    def gradient_deviation(self, noise_multiplier: float) -> float:
        """Return V, the root of the mean squared deviation of a round's gradient: noise, records and clients drawn.

        V^2 = E[1/M_r] (d sigma^2 + L^2/K where K records are drawn, and L^2 where not all clients take part).
        """
        noise = noise_multiplier * self.bound / self.batch_size
        drawn = 1.0 / self.batch_size if self.sampling is not Sampling.FULL else 0.0
        if self.participation.sizes != (self.problem.clients,):
            drawn = 1.0
        square = self.problem.features * noise**2 + drawn * self.bound**2
        return math.sqrt(self.participation.mean_inverse * square)

    def points(self, noise_multiplier: float) -> Hyperparameters:
        """Return the run as a stack of one model."""
        deviation = noise_multiplier * self.bound / self.batch_size
        columns = (self.step_size(noise_multiplier), self.bound, deviation)
        ball = (self.problem.radius, self.problem.regularisation)
        return Hyperparameters(*(np.array([value]) for value in (*columns, *ball)))

    def step_size(self, noise_multiplier: float) -> float:
        """Return Algorithm 1's step: min{1/(4 beta), D/(V sqrt R)} for mu = 0, with L^2 in V^2 where beta is 0 or inf;
        min{1/(2 beta), ln(max{2, (mu D)^2 R/V^2})/(mu R)} for mu > 0, as lowy2021's proofs choose it."""
        problem, rounds, smoothness = self.problem, self.steps, self.smoothness
        deviation = self.gradient_deviation(noise_multiplier)
        if problem.strong_convexity == 0:
            straight = not 0 < smoothness < math.inf
            deviation = math.hypot(deviation, self.bound) if straight else deviation
            widest = problem.radius / (deviation * math.sqrt(rounds)) if deviation else math.inf
            return widest if straight else min(1.0 / (4.0 * smoothness), widest)
        logarithm = self.step_logarithm(noise_multiplier)
        return min(1.0 / (2.0 * smoothness), logarithm / (problem.strong_convexity * rounds))

    def step_logarithm(self, noise_multiplier: float) -> float:
        """Return ln(max{2, (mu D)^2 R/V^2}) of Algorithm 1's step for mu > 0, which its risk has too; 1 for mu = 0."""
        if self.problem.strong_convexity == 0:
            return 1.0
        pull = (self.problem.strong_convexity * self.problem.radius) ** 2
        square = max(self.gradient_deviation(noise_multiplier) ** 2, 1e-12 * pull)
        return math.log(max(2.0, pull * self.steps / square))

    @property
    def smoothness(self) -> float:
        """beta of F, which the proofs use of the records' own; the smoothed loss's, if one is used."""
        return self.loss.smoothness * self.problem.curvature + self.problem.regularisation

    def stages(self, noise_multiplier: float) -> list[Restart]:
        """Return Algorithm 2's stages: one for mu = 0, else each halves the gap L D.

        Their rounds are the R_k of `stage_rounds` where the rounds are those of the theorem, else each about twice the
        last within the rounds given.
        """
        problem, deviation = self.problem, self.gradient_deviation(noise_multiplier)
        bounds = {"smoothness": self.smoothness, "gradient_deviation": deviation}
        mu = problem.strong_convexity
        if mu == 0:
            gamma = accelerated_sgd.step_scale(**bounds, rounds=self.steps, diameter=problem.radius)
            return [Restart(self.steps, np.array([float(gamma)]))]
        if self.theorem is Theorem.ERM and self.rounds is None and self.rounds_factor == 1:
            rounds = self.stage_rounds
        else:
            run = {"smoothness": self.smoothness, "strong_convexity": mu}
            rounds = accelerated_sgd.affordable_rounds(**run, rounds=self.steps)
        gap = self.bound * problem.radius
        stages = []
        for k, each in enumerate(rounds):
            root = math.sqrt(gap / 2.0**k)
            gamma = accelerated_sgd.step_scale(**bounds, rounds=each, diameter=root, strong_convexity=mu)
            stages.append(Restart(each, np.array([float(gamma)])))
        return stages

    def statement(self) -> PrivacyStatement:
        """Return the run's privacy statement: each client's own records, replace_one."""
        records = self.problem.records
        return PrivacyStatement.of(
            self._mechanism(),
            self._sampler(),
            neighbouring=Neighbouring.REPLACE_ONE,
            records=records,
            clip_norm=self.bound,
            noise_multiplier=self._multiplier(self.steps) if self.private else 0.0,
            steps=self.steps,
            delta=self.delta,
            note=f"asked for epsilon {self.epsilon:g}, noise '{self.noise.value}', trust in {self.trust.value}",
        )

    def _sampler(self) -> Sampler:
        """Return the sampler of a client's records."""
        if self.algorithm is Algorithm.ONE_PASS:
            return ShuffledEpochs(1, self.problem.records)
        if self.batches is RecordDraws.FULL:
            return FullBatch()
        return WithReplacement(self.batch_size, self.problem.records)

    def _mechanism(self) -> Mechanism:
        """Return what hides a client's record from those that it does not trust."""
        clients = self.problem.clients
        if self.trust is Trust.SHUFFLER:
            return ShuffledGaussian(clients, self.problem.records, self.problem.features)
        return SummedGaussian(clients) if self.trust is Trust.SERVER else Gaussian()

    def columns(self, noise_multiplier: float) -> dict[str, Any]:
        """Return the run's settings as table columns, and what its step size rests on with this noise."""
        own = {name: getattr(self.problem, name) for name in _PROBLEM}
        names = ("algorithm", "noise", "trust", "risk", "epsilon", "delta", "repetitions", "theorem", "batches")
        rest = {name: getattr(self, name) for name in names} | {
            "rounds": self.steps,
            "sharpness": self.sharpness_number,
        }
        sizes = json.dumps(list(self.participation.sizes))
        more = {"participants": sizes, "mean_inverse_participants": self.participation.mean_inverse}
        more |= {"clip_norm": self.bound, "batch_size": self.batch_size, "rounds_factor": self.rounds_factor}
        more |= {"smoothness": self.smoothness, "step_logarithm": self.step_logarithm(noise_multiplier)}
        texts = {name: str(value) if isinstance(value, StrEnum) else value for name, value in {**own, **rest}.items()}
        return {**texts, **more}

    def _multiplier(self, rounds: int) -> float:
        """Return sigma K / L of a client's message in a run of so many rounds; 0 without privacy."""
        if not self.private:
            return 0.0
        if self.algorithm is Algorithm.ONE_PASS:
            if self.noise is TheoryNoise.TIGHT:
                return 2.0 / float(gaussian_dp.mu(self.epsilon, self.delta))
            variance = local_privacy.one_pass_variance
            return math.sqrt(_checked(variance, epsilon=self.epsilon, delta=self.delta, lipschitz=1.0))
        budget = {"epsilon": self.epsilon, "delta": self.delta, "rounds": rounds}
        if self.noise is TheoryNoise.THEOREM:
            variance = local_privacy.advanced_composition_variance
            square = _checked(variance, **budget, lipschitz=1.0, records=self.problem.records)
            return self.batch_size * math.sqrt(square)
        if self.trust is Trust.NOBODY:
            return shuffling.local_noise_multiplier(**budget)
        if self.trust is Trust.SERVER:
            return shuffling.central_noise_multiplier(**budget, clients=self.problem.clients)
        crowd = {name: getattr(self.problem, name) for name in ("clients", "records")}
        crowd["dimension"] = self.problem.features
        return shuffling.noise_multiplier(target_epsilon=self.epsilon, delta=self.delta, rounds=rounds, **crowd)


def _checked(make: Any, *values: Any, **named: Any) -> Any:
    """Return make(...), a wrong value as an InputError."""
    try:
        return make(*values, **named)
    except ValueError as problem:
        raise InputError(f"{problem}") from None


STACK_BYTES = 2**28
"""Rough limit of one stack's records; a job with more seeds runs them one stack after the other."""


def calibrate(job: TrainingJob, description: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row for each cell: its keys, batch_size, noise_multiplier and the columns of its privacy statement.

    noise_multiplier is the noise's standard deviation over the norm bound of ONE record's share of a message,
    clip_norm / K. Raises InputError naming the setting or the cell's key that cannot be used.
    """
    rows = []
    for cell in job.cells:
        run = TheoryCell.of(job.settings, cell)
        statement = run.statement()
        noise = {"batch_size": run.batch_size, "noise_multiplier": statement.noise_multiplier}
        rows.append({**as_columns(cell), **noise, **statement.columns()})
    return pd.DataFrame(rows)


def train(
    job: TrainingJob,
    folders: Folders,
    calibration: pd.DataFrame,
    checkpoint: Path | None,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """Return the run table: a row a (cell, seed), the repetitions' mean.

    excess_risk is F(w) - F(w*), of the population or of the records as `risk` says; start_risk that of w = 0, which
    spends nothing; v_star_squared how much the clients differ (population only). status is "diverged", and the risk
    nan, where it is no number. `checkpoint` is not used: a job takes seconds.
    Raises InputError where settings, cells or calibration cannot be used.
    """
    runs = [TheoryCell.of(job.settings, cell) for cell in job.cells]
    noise = calibrated(calibration, job.cells)
    multipliers = [each["noise_multiplier"] for each in noise]
    stacks = list(_stacked(runs, multipliers))
    total, done = sum(runs[stack[0][0]].steps for stack in stacks), 0
    results: dict[tuple[int, int], dict[str, Any]] = {}
    for stack in stacks:
        first = runs[stack[0][0]]
        for seeds in _parts(first, job.seeds, len(stack)):
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
    study = {"study": job.settings["study"]}
    settings = [
        {**study, **cell, **run.columns(multiplier)}
        for cell, run, multiplier in zip(job.cells, runs, multipliers, strict=True)
    ]
    return run_table(job, load_description(folders.arrays), noise, results, settings)


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
