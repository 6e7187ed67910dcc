"""Eight ways of five papers to spend one budget on one task: whom they trust, and the noise that they need.

All hold for replacing one record, at one delta. n records, dealt to N clients of n/N records where a way has clients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from dpfl.accounting.contraction.federated_release import release_epsilon, release_sigma
from dpfl.accounting.isrl_dp import composed_sigma
from dpfl.accounting.mechanism import Gaussian, ShuffledGaussian
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.privacy_statement import PrivacyStatement
from dpfl.accounting.samplers import FixedBatches, FullBatch, Sampler, Sampling, ShuffledEpochs
from dpfl.accounting.shuffling import gaussian_rounds
from dpfl.errors import InputError
from dpfl.experiments.shared.logistic_task import CURVATURE, LIPSCHITZ
from dpfl.experiments.shared.settings import positive_float, positive_int


class TrustAlgorithm(StrEnum):
    """How the budget is spent."""

    CENTRAL = "central"
    CENTRAL_FULL = "central_full"
    LAST_MODEL = "last_model"
    PNSGD = "pnsgd"
    SHUFFLED = "shuffled"
    MINIBATCH = "minibatch"
    AVERAGING = "averaging"
    ASYNCHRONOUS = "asynchronous"


TRUST_MODEL = {
    TrustAlgorithm.CENTRAL: "trusted aggregator",
    TrustAlgorithm.CENTRAL_FULL: "trusted aggregator",
    TrustAlgorithm.LAST_MODEL: "trusted aggregator, last model only",
    TrustAlgorithm.PNSGD: "trusted aggregator, last model only",
    TrustAlgorithm.SHUFFLED: "trusted shuffler",
    TrustAlgorithm.MINIBATCH: "no trust outside the client",
    TrustAlgorithm.AVERAGING: "no trust outside the client",
    TrustAlgorithm.ASYNCHRONOUS: "no trust outside the client",
}
ONE_PASS = (TrustAlgorithm.LAST_MODEL, TrustAlgorithm.PNSGD)
FULL_BATCH = (TrustAlgorithm.CENTRAL_FULL, TrustAlgorithm.SHUFFLED, TrustAlgorithm.MINIBATCH)
LOCAL = (TrustAlgorithm.AVERAGING, TrustAlgorithm.ASYNCHRONOUS)


@dataclass(frozen=True)
class TrustCell:
    """A cell within its sweep's settings. Raises InputError naming the key that cannot be used.

    batch_size m of a round at the aggregator; local_batch_size of a client's own step; rounds of full batches; passes
    over the records by the ways that draw batches afresh; `step` the step size, constant.
    """

    way: TrustAlgorithm
    epsilon: float
    delta: float
    step: float
    users: int
    clients: int
    batch_size: int
    local_batch_size: int
    rounds: int
    passes: int
    radius: float
    regularisation: float

    @classmethod
    def of(cls, settings: Mapping[str, Any], cell: Mapping[str, Any]) -> TrustCell:
        """Read one cell of a sweep."""
        given = {**settings, **cell}
        if given["way"] not in tuple(TrustAlgorithm):
            raise InputError(f"way: {given['way']!r} is unknown, should be one of {', '.join(TrustAlgorithm)}")
        if not given["epsilon"] > 0:
            raise InputError(f"epsilon is {given['epsilon']!r} in the grid; it must be above 0 (inf: no privacy)")
        counts = ("users", "clients", "batch_size", "local_batch_size", "rounds", "passes")
        reals = ("step", "radius", "regularisation")
        plan = cls(
            way=TrustAlgorithm(given["way"]),
            epsilon=float(given["epsilon"]),
            delta=positive_float(given, "delta", below=1.0),
            **{name: positive_int(given, name) for name in counts},
            **{name: positive_float(given, name) for name in reals},
        )
        share = plan.users // plan.clients
        for name, part, of in (
            ("clients", plan.clients, plan.users),
            ("batch_size", plan.batch_size, plan.users),
            ("local_batch_size", plan.local_batch_size, share),
        ):
            if part > of or of % part:
                raise InputError(f"{name}: {part} must divide {of}, the records that it is a part of")
        return plan

    @property
    def size(self) -> int:
        """Records of one noisy step."""
        if self.way in FULL_BATCH:
            return self.users
        by_way = {
            TrustAlgorithm.CENTRAL: self.batch_size,
            TrustAlgorithm.LAST_MODEL: self.batch_size,
            TrustAlgorithm.PNSGD: 1,
        }
        return by_way.get(self.way, self.local_batch_size)

    @property
    def steps(self) -> int:
        """Noisy steps that read one record's holder: the aggregator's rounds, or one client's own steps."""
        if self.way in FULL_BATCH:
            return self.rounds
        if self.way in ONE_PASS:
            return self.users // self.size
        return self.passes * self.records // self.size

    @property
    def records(self) -> int:
        """Records among which a step draws: a client's own, or all."""
        return self.users // self.holders

    @property
    def sampler(self) -> Sampler:
        """How a step draws among the records of its holder."""
        if self.way in FULL_BATCH:
            return FullBatch()
        kind = ShuffledEpochs if self.way in ONE_PASS else FixedBatches
        return kind(self.size, self.records)

    @property
    def holders(self) -> int:
        """How many add noise, each to its own records' share: the clients, or the one aggregator."""
        return self.clients if self.way in (*LOCAL, TrustAlgorithm.SHUFFLED, TrustAlgorithm.MINIBATCH) else 1


def noise_scale(plan: TrustCell, dimension: int) -> float:
    """Return the deviation, in every coordinate, of the noise of a step's mean gradient; 0 without privacy.

    A step is the server's for the ways that step together, a client's own for the others.
    """
    if math.isinf(plan.epsilon):
        return 0.0
    budget = {"epsilon": plan.epsilon, "delta": plan.delta}
    if plan.way in ONE_PASS:
        return release_sigma(**budget, **_release(plan)) / math.sqrt(plan.size)
    if plan.way in FULL_BATCH:
        shuffles = plan.way is TrustAlgorithm.SHUFFLED
        multiplier = _message_multiplier(shuffles, plan.epsilon, plan.delta, plan.rounds, plan.clients, dimension)
        return multiplier * LIPSCHITZ / plan.records / math.sqrt(plan.holders)
    return composed_sigma(*_composition(plan, plan.epsilon)) / math.sqrt(plan.size)


def privacy(plan: TrustCell, scale: float, dimension: int) -> dict[str, Any]:
    """Return the statement's columns, with whom it trusts and epsilon by contraction (nan: no answer).

    noise_multiplier is the deviation of the noise in a step's sum over one record's largest share of it.
    """
    extra = {
        "privacy_trust": TRUST_MODEL[plan.way],
        "privacy_released": "last model" if plan.way in ONE_PASS else "all models",
    }
    multiplier = scale * plan.size / LIPSCHITZ
    if plan.way in FULL_BATCH:
        multiplier = scale * math.sqrt(plan.holders) * plan.records / LIPSCHITZ
    last_model = math.nan if scale > 0 else math.inf
    if plan.way in ONE_PASS and scale > 0:
        last_model = release_epsilon(plan.delta, sigma=scale * math.sqrt(plan.size), **_release(plan))
    statement = PrivacyStatement.of(
        ShuffledGaussian(plan.clients, dimension) if plan.way is TrustAlgorithm.SHUFFLED else Gaussian(),
        plan.sampler,
        neighbouring=Neighbouring.REPLACE_ONE,
        records=plan.records,
        clip_norm=LIPSCHITZ,
        noise_multiplier=multiplier,
        steps=plan.steps,
        delta=plan.delta,
        note=_NOTES[plan.way],
    )
    return {**statement.columns(), **extra, "privacy_epsilon_contraction": last_model}


_NOTES = {
    TrustAlgorithm.CENTRAL: "fresh batches without replacement, composed; whoever sees all models",
    TrustAlgorithm.LAST_MODEL: "epsilon_contraction is of the last model alone; epsilon_proven of all models",
    TrustAlgorithm.PNSGD: "epsilon_contraction is of the last model alone, secret order; epsilon_proven of all models",
    TrustAlgorithm.CENTRAL_FULL: "full batches: Gaussian mechanisms, composed exactly; whoever sees all models",
    TrustAlgorithm.SHUFFLED: (
        "against whoever sees the shuffled messages only: the blanket of the other clients, composed"
    ),
    TrustAlgorithm.MINIBATCH: "against whoever sees every message of a client",
    TrustAlgorithm.AVERAGING: (
        "a client's budget for its own records, against whoever sees its models; batches composed"
    ),
    TrustAlgorithm.ASYNCHRONOUS: (
        "a client's budget for its own records, against whoever sees its updates; batches composed"
    ),
}


def _composition(plan: TrustCell, first: float) -> tuple[float, float, int, int, int, Sampling]:
    """Return the arguments of composed_sigma."""
    return first, plan.delta, plan.records, plan.size, plan.steps, Sampling.FIXED


@cache
def _message_multiplier(
    shuffles: bool, epsilon: float, delta: float, rounds: int, clients: int, dimension: int
) -> float:
    """Return sigma n_c/L of one client's message on its full batch, once for every step size."""
    if not shuffles:
        return gaussian_rounds.local_noise_multiplier(epsilon=epsilon, delta=delta, rounds=rounds)
    run = {"rounds": rounds, "clients": clients, "delta": delta, "dimension": dimension}
    return gaussian_rounds.noise_multiplier(target_epsilon=epsilon, **run)


def _release(plan: TrustCell) -> dict[str, Any]:
    """Return the keywords of the contraction analysis that a one-pass plan fixes."""
    return {
        "n": plan.users,
        "m": plan.size,
        "eta": plan.step,
        "lipschitz": LIPSCHITZ,
        "radius": plan.radius,
        "smoothness": CURVATURE + plan.regularisation,
        "strong_convexity": plan.regularisation,
        "first_stop": plan.users // plan.size,
    }
