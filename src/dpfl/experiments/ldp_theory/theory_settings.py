"""One run of lowy2021's theory studies: problem, algorithm, noise, and the step sizes that the theorems prescribe."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, model_validator

from dpfl.accounting import gaussian_dp, isrl_dp
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import FullBatch, Sampling, ShuffledEpochs
from dpfl.accounting.shuffling import gaussian_rounds
from dpfl.accounting.statements.mechanism import Gaussian, Mechanism, ShuffledGaussian, SummedGaussian
from dpfl.accounting.statements.privacy_statement import PrivacyStatement
from dpfl.algorithms import accelerated_sgd
from dpfl.algorithms.accelerated_sgd import Restart
from dpfl.engine.federated_rounds import Aggregate, Hyperparameters, Participation, Protocol
from dpfl.errors import InputError
from dpfl.experiments.shared.settings import Choice, Count, Epsilon, Positive, Probability, Settings, Several
from dpfl.models.glm import Loss
from dpfl.models.smoothing import Smoothed
from dpfl.models.synthetic_problems import Kind, Problem


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


class Risk(StrEnum):
    """Risk whose excess is measured."""

    POPULATION = "population"
    EMPIRICAL = "empirical"


_PROBLEM = tuple(field.name for field in fields(Problem))
Real = int | float
"""A number that the run table repeats as it is given."""


class TheoryCell(Settings):
    """A run: the fields of Problem, the algorithm and its noise.

    `participants` lists equally likely numbers M_r of clients that take part (empty: all); epsilon (inf: no noise) and
    delta are asked for by `trust`; `rounds` is not read for one pass, which has one a record; `sharpness` b smooths a
    loss with a kink (0: not at all); clip_norm L bounds the gradients of the class of problems, at least the problem's
    own bound, so that clipping is idle (null: that bound).
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
    sharpness: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    clip_norm: Positive | None

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise ValueError for what cannot be run, or has no accounting."""
        if self.rounds is None and self.algorithm is not Algorithm.ONE_PASS:
            raise ValueError("rounds is None; it must be a whole number, at least 1, but for one_pass")
        if not self.problem.lipschitz <= self.bound:
            raise ValueError(f"clip_norm is {self.bound:g}; gradients reach {self.problem.lipschitz:g} here")
        if self.participation.most > self.clients:
            raise ValueError(f"participants: {self.participation.most} exceeds the {self.clients} clients")
        if self.trust is not Trust.NOBODY:
            if self.noise is TheoryNoise.THEOREM or self.algorithm is Algorithm.ONE_PASS:
                raise ValueError(f"trust {self.trust.value!r} goes with noise 'tight' and full batches")
            if self.participation.sizes != (self.clients,):
                raise ValueError(f"trust {self.trust.value!r} is accounted for when all clients take part")
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

    @property
    def steps(self) -> int:
        """Rounds of the run, R."""
        return self.records if self.algorithm is Algorithm.ONE_PASS else self.rounds

    @property
    def bound(self) -> float:
        """The clip norm."""
        return float(self.problem.lipschitz if self.clip_norm is None else self.clip_norm)

    @cached_property
    def loss(self) -> Loss:
        """The loss that the clients differentiate."""
        return Smoothed(self.problem.loss, self.sharpness) if self.sharpness else self.problem.loss

    @property
    def private(self) -> bool:
        """True where there is noise."""
        return math.isfinite(self.epsilon)

    @property
    def batch_size(self) -> int:
        """K: all records of a client, or 1."""
        return 1 if self.algorithm is Algorithm.ONE_PASS else self.problem.records

    @property
    def protocol(self) -> Protocol:
        """Protocol for dpfl.algorithms."""
        averaged = self.steps if self.problem.strong_convexity == 0 else max(1, self.steps // 2)
        return Protocol(
            loss=self.loss,
            rounds=self.steps,
            participation=self.participation,
            batch_size=self.batch_size,
            repetitions=self.repetitions,
            last_iterates=averaged,
            sampling=Sampling.FIXED if self.algorithm is Algorithm.ONE_PASS else Sampling.FULL,
            aggregate=Aggregate.MEAN,
        )

    def stack_key(self) -> tuple:
        """Return what runs must share to be trained as one stack."""
        return (
            self.problem,
            self.algorithm,
            self.risk,
            self.steps,
            self.participation,
            self.repetitions,
            self.sharpness,
        )

    def gradient_deviation(self, noise_multiplier: float) -> float:
        """Return V, the root of the mean squared deviation of a round's gradient: noise, records and clients drawn.

        V^2 = E[1/M_r] (d sigma^2 + L^2 where records are drawn, or not all clients take part).
        """
        noise = noise_multiplier * self.bound / self.batch_size
        drawn = self.algorithm is Algorithm.ONE_PASS or self.participation.sizes != (self.problem.clients,)
        square = self.problem.features * noise**2 + (self.bound**2 if drawn else 0.0)
        return math.sqrt(self.participation.mean_inverse * square)

    def points(self, noise_multiplier: float) -> Hyperparameters:
        """Return the run as a stack of one model."""
        deviation = noise_multiplier * self.bound / self.batch_size
        columns = (self.step_size(noise_multiplier), self.bound, deviation)
        ball = (self.problem.radius, self.problem.regularisation)
        return Hyperparameters(*(np.array([value]) for value in (*columns, *ball)))

    def step_size(self, noise_multiplier: float) -> float:
        """Return Algorithm 1's step: min{1/(4 beta), D/(V sqrt R)} for mu = 0, with L^2 in V^2 where there is a kink;
        min{1/(2 beta), ln(max{2, (mu D)^2 R/V^2})/(mu R)} for mu > 0, as lowy2021's proofs choose it."""
        problem, rounds = self.problem, self.steps
        smoothness = self.smoothness
        deviation = self.gradient_deviation(noise_multiplier)
        if math.isinf(smoothness):
            deviation = math.hypot(deviation, self.bound)
        if problem.strong_convexity == 0:
            widest = problem.radius / (deviation * math.sqrt(rounds)) if deviation else math.inf
            return min(1.0 / (4.0 * smoothness), widest) if math.isfinite(smoothness) else widest
        mu = problem.strong_convexity
        square = max(deviation**2, 1e-12 * (mu * problem.radius) ** 2)
        logarithm = math.log(max(2.0, (mu * problem.radius) ** 2 * rounds / square))
        return min(1.0 / (2.0 * smoothness), logarithm / (mu * rounds))

    @property
    def smoothness(self) -> float:
        """beta of F, which the proofs use of the records' own; that of the smoothed loss where there is one."""
        return self.loss.smoothness * self.problem.curvature + self.problem.regularisation

    def stages(self, noise_multiplier: float) -> list[Restart]:
        """Return Algorithm 2's stages: one for mu = 0, else as many as the rounds allow, each halving the gap LD."""
        problem, deviation = self.problem, self.gradient_deviation(noise_multiplier)
        bounds = {"smoothness": self.smoothness, "gradient_deviation": deviation}
        mu = problem.strong_convexity
        if mu == 0:
            gamma = accelerated_sgd.step_scale(**bounds, rounds=self.steps, diameter=problem.radius)
            return [Restart(self.steps, np.array([float(gamma)]))]
        rounds = accelerated_sgd.affordable_rounds(smoothness=self.smoothness, strong_convexity=mu, rounds=self.steps)
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
            ShuffledEpochs(1, records) if self.algorithm is Algorithm.ONE_PASS else FullBatch(),
            neighbouring=Neighbouring.REPLACE_ONE,
            records=records,
            clip_norm=self.bound,
            noise_multiplier=self._noise_multiplier() if self.private else 0.0,
            steps=self.steps,
            delta=self.delta,
            note=f"asked for epsilon {self.epsilon:g}, noise '{self.noise.value}', trust in {self.trust.value}",
        )

    def _mechanism(self) -> Mechanism:
        """Return what hides a client's record from those that it does not trust."""
        clients = self.problem.clients
        if self.trust is Trust.SHUFFLER:
            return ShuffledGaussian(clients, self.problem.features)
        return SummedGaussian(clients) if self.trust is Trust.SERVER else Gaussian()

    def columns(self) -> dict[str, Any]:
        """Return the run's settings as table columns."""
        own = {name: getattr(self.problem, name) for name in _PROBLEM}
        names = ("algorithm", "noise", "trust", "risk", "epsilon", "delta", "rounds", "repetitions", "sharpness")
        rest = {name: getattr(self, name) for name in names} | {"rounds": self.steps}
        sizes = json.dumps(list(self.participation.sizes))
        more = {"participants": sizes, "mean_inverse_participants": self.participation.mean_inverse}
        texts = {name: str(value) if isinstance(value, StrEnum) else value for name, value in {**own, **rest}.items()}
        return {**texts, **more, "clip_norm": self.bound, "batch_size": self.batch_size}

    def _noise_multiplier(self) -> float:
        """sigma K / L of a client's message."""
        if self.algorithm is Algorithm.ONE_PASS:
            if self.noise is TheoryNoise.TIGHT:
                return 2.0 / float(gaussian_dp.mu(self.epsilon, self.delta))
            variance = isrl_dp.one_pass_variance
            return math.sqrt(_checked(variance, epsilon=self.epsilon, delta=self.delta, lipschitz=1.0))
        budget = {"epsilon": self.epsilon, "delta": self.delta, "rounds": self.steps}
        if self.noise is TheoryNoise.THEOREM:
            records = self.problem.records
            variance = isrl_dp.advanced_composition_variance
            return records * math.sqrt(_checked(variance, **budget, lipschitz=1.0, records=records))
        if self.trust is Trust.NOBODY:
            return gaussian_rounds.local_noise_multiplier(**budget)
        if self.trust is Trust.SERVER:
            return gaussian_rounds.central_noise_multiplier(**budget, clients=self.problem.clients)
        crowd = {"clients": self.problem.clients, "dimension": self.problem.features}
        return gaussian_rounds.noise_multiplier(
            target_epsilon=self.epsilon, delta=self.delta, rounds=self.steps, **crowd
        )


def _checked(make: Any, *values: Any, **named: Any) -> Any:
    """Return make(...), a wrong value as an InputError."""
    try:
        return make(*values, **named)
    except ValueError as problem:
        raise InputError(f"{problem}") from None
