"""One run of lowy2021's theory studies: problem, algorithm, noise, and the step sizes that the theorems prescribe."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np

from dpfl.accounting import gaussian_dp, isrl_dp
from dpfl.accounting.mechanism import Gaussian, Mechanism, ShuffledGaussian, SummedGaussian
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.privacy_statement import PrivacyStatement
from dpfl.accounting.samplers import FullBatch, Sampling, ShuffledEpochs
from dpfl.accounting.shuffling import gaussian_rounds
from dpfl.algorithms import accelerated_sgd
from dpfl.algorithms.accelerated_sgd import Restart
from dpfl.engine.federated_rounds import Aggregate, Hyperparameters, Participation, Protocol
from dpfl.errors import InputError
from dpfl.models.glm import Loss
from dpfl.models.smoothing import Smoothed
from dpfl.models.synthetic_problems import Problem


class Algorithm(StrEnum):
    """What is run; all take the mean of the messages and project on the ball."""

    MINIBATCH = "minibatch"
    """Algorithm 1 on full batches."""
    ACCELERATED = "accelerated"
    """Algorithm 2 on full batches, one stage for mu = 0 and several for mu > 0."""
    ONE_PASS = "one_pass"
    """Algorithm 2 on one record a client and round, none used twice."""


class TheoryNoise(StrEnum):
    """Where a client's noise comes from."""

    THEOREM = "theorem"
    """The paper's formula: Theorem 2.1 and 2.3, or 2.2 for one pass."""
    TIGHT = "tight"
    """The least that an exact accounting of the mechanism asks for."""


class Trust(StrEnum):
    """Whom the clients trust."""

    NOBODY = "nobody"
    """Every client's own messages are private (LDP)."""
    SHUFFLER = "shuffler"
    """Messages are private once a shuffler has permuted them."""
    SERVER = "server"
    """Only what the server releases is private: the central model, whose noise is split among the clients."""


class Risk(StrEnum):
    """Whose excess risk is measured."""

    POPULATION = "population"
    EMPIRICAL = "empirical"


_PROBLEM = tuple(field.name for field in fields(Problem))


@dataclass(frozen=True)
class TheoryCell:
    """A run, checked.

    `participation` counts who takes part; epsilon (inf: no noise) and delta are asked for by `trust`; `sharpness` b
    smooths a loss with a kink (0: not at all); clip_norm L bounds the gradients of the whole class of problems.
    """

    problem: Problem
    algorithm: Algorithm
    noise: TheoryNoise
    trust: Trust
    risk: Risk
    epsilon: float
    delta: float
    rounds: int
    participation: Participation
    repetitions: int
    sharpness: float
    clip_norm: float

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> TheoryCell:
        """Return the run of a sweep's settings and a cell's keys.

        Keys: the fields of Problem, and algorithm, noise, trust, risk, epsilon, delta, rounds, participants (a list of
        equally likely M_r; empty: all clients), repetitions, sharpness, clip_norm (at least the
        problem's own bound, so that clipping is idle; null: that bound). Raises InputError naming the key.
        """
        problem = _checked(Problem, **{name: settings[name] for name in _PROBLEM})
        sizes = tuple(settings["participants"]) or (problem.clients,)
        run = cls(
            problem=problem,
            algorithm=_checked(Algorithm, settings["algorithm"]),
            noise=_checked(TheoryNoise, settings["noise"]),
            trust=_checked(Trust, settings["trust"]),
            risk=_checked(Risk, settings["risk"]),
            epsilon=float(settings["epsilon"]),
            delta=float(settings["delta"]),
            rounds=problem.records if settings["algorithm"] == Algorithm.ONE_PASS else settings["rounds"],
            participation=_checked(Participation, sizes),
            repetitions=settings["repetitions"],
            sharpness=float(settings["sharpness"]),
            clip_norm=float(problem.lipschitz if settings["clip_norm"] is None else settings["clip_norm"]),
        )
        run.check()
        return run

    def check(self) -> None:
        """Raise InputError for what cannot be run, or has no accounting."""
        if not self.epsilon > 0:
            raise InputError(f"epsilon is {self.epsilon!r}; it must be above 0 (inf: no privacy)")
        if not 0 < self.delta < 1:
            raise InputError(f"delta is {self.delta!r}; it must lie between 0 and 1")
        for name in ("rounds", "repetitions"):
            value = getattr(self, name)
            if not (isinstance(value, int) and value >= 1):
                raise InputError(f"{name} is {value!r}; it must be a whole number, at least 1")
        if not self.problem.lipschitz <= self.clip_norm < math.inf:
            raise InputError(f"clip_norm is {self.clip_norm:g}; gradients reach {self.problem.lipschitz:g} here")
        if self.participation.most > self.problem.clients:
            raise InputError(f"participants: {self.participation.most} exceeds the {self.problem.clients} clients")
        if self.trust is not Trust.NOBODY and (
            self.noise is TheoryNoise.THEOREM or self.algorithm is Algorithm.ONE_PASS
        ):
            raise InputError(f"trust {self.trust.value!r} goes with noise 'tight' and full batches")
        if self.trust is not Trust.NOBODY and self.participation.sizes != (self.problem.clients,):
            raise InputError(f"trust {self.trust.value!r} is accounted for when all clients take part")
        if self.sharpness:
            _checked(Smoothed, self.problem.loss, self.sharpness)
        if self.algorithm is not Algorithm.MINIBATCH and math.isinf(self.loss.smoothness):
            raise InputError("sharpness is 0: Algorithm 2 needs a smooth loss, so choose one above 0")

    @cached_property
    def loss(self) -> Loss:
        """The loss that the clients differentiate."""
        return Smoothed(self.problem.loss, self.sharpness) if self.sharpness else self.problem.loss

    @property
    def private(self) -> bool:
        """Whether there is noise."""
        return math.isfinite(self.epsilon)

    @property
    def batch_size(self) -> int:
        """K: all records of a client, or 1."""
        return 1 if self.algorithm is Algorithm.ONE_PASS else self.problem.records

    @property
    def protocol(self) -> Protocol:
        """What the algorithms of dpfl.algorithms ask for."""
        averaged = self.rounds if self.problem.strong_convexity == 0 else max(1, self.rounds // 2)
        return Protocol(
            loss=self.loss,
            rounds=self.rounds,
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
            self.rounds,
            self.participation,
            self.repetitions,
            self.sharpness,
        )

    def gradient_deviation(self, noise_multiplier: float) -> float:
        """Return V, the root of the mean squared deviation of a round's gradient: noise, records and clients drawn.

        V^2 = E[1/M_r] (d sigma^2 + L^2 where records are drawn, or not all clients take part).
        """
        noise = noise_multiplier * self.clip_norm / self.batch_size
        drawn = self.algorithm is Algorithm.ONE_PASS or self.participation.sizes != (self.problem.clients,)
        square = self.problem.features * noise**2 + (self.clip_norm**2 if drawn else 0.0)
        return math.sqrt(self.participation.mean_inverse * square)

    def points(self, noise_multiplier: float) -> Hyperparameters:
        """Return the run as a stack of one model."""
        deviation = noise_multiplier * self.clip_norm / self.batch_size
        columns = (self.step_size(noise_multiplier), self.clip_norm, deviation)
        ball = (self.problem.radius, self.problem.regularisation)
        return Hyperparameters(*(np.array([value]) for value in (*columns, *ball)))

    def step_size(self, noise_multiplier: float) -> float:
        """Return Algorithm 1's step: min{1/(4 beta), D/(V sqrt R)} for mu = 0, with L^2 in V^2 where there is a kink;
        min{1/(2 beta), ln(max{2, (mu D)^2 R/V^2})/(mu R)} for mu > 0, as lowy2021's proofs choose it."""
        problem, rounds = self.problem, self.rounds
        smoothness = self.smoothness
        deviation = self.gradient_deviation(noise_multiplier)
        if math.isinf(smoothness):
            deviation = math.hypot(deviation, self.clip_norm)
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
            gamma = accelerated_sgd.step_scale(**bounds, rounds=self.rounds, diameter=problem.radius)
            return [Restart(self.rounds, np.array([float(gamma)]))]
        rounds = accelerated_sgd.affordable_rounds(smoothness=self.smoothness, strong_convexity=mu, rounds=self.rounds)
        gap = self.clip_norm * problem.radius
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
            clip_norm=self.clip_norm,
            noise_multiplier=self._noise_multiplier() if self.private else 0.0,
            steps=self.rounds,
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
        rest = {name: getattr(self, name) for name in names}
        sizes = json.dumps(list(self.participation.sizes))
        more = {"participants": sizes, "mean_inverse_participants": self.participation.mean_inverse}
        texts = {name: str(value) if isinstance(value, StrEnum) else value for name, value in {**own, **rest}.items()}
        return {**texts, **more, "clip_norm": self.clip_norm, "batch_size": self.batch_size}

    def _noise_multiplier(self) -> float:
        """sigma K / L of a client's message."""
        if self.algorithm is Algorithm.ONE_PASS:
            if self.noise is TheoryNoise.TIGHT:
                return 2.0 / float(gaussian_dp.mu(self.epsilon, self.delta))
            variance = isrl_dp.one_pass_variance
            return math.sqrt(_checked(variance, epsilon=self.epsilon, delta=self.delta, lipschitz=1.0))
        budget = {"epsilon": self.epsilon, "delta": self.delta, "rounds": self.rounds}
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
            target_epsilon=self.epsilon, delta=self.delta, rounds=self.rounds, **crowd
        )


def _checked(make: Any, *values: Any, **named: Any) -> Any:
    """Return make(...), a wrong value as an InputError."""
    try:
        return make(*values, **named)
    except ValueError as problem:
        raise InputError(f"{problem}") from None
