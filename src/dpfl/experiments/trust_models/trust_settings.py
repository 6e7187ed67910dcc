"""Eight algorithms of five papers to spend one budget on one task: whom they trust, and the noise that they need.

All hold for replacing one record, at one delta. There are n records, dealt to N clients of n/N records where an
algorithm has clients.
"""

from __future__ import annotations

import math
from enum import StrEnum
from functools import cache
from typing import Any, Self

from pydantic import model_validator

from dpfl.accounting.contraction.federated_release import release_epsilon, release_sigma
from dpfl.accounting.isrl_dp import composed_sigma
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import FixedBatches, FullBatch, Sampler, Sampling, ShuffledEpochs
from dpfl.accounting.shuffling import gaussian_rounds
from dpfl.accounting.statements.mechanism import Gaussian, ShuffledGaussian
from dpfl.accounting.statements.privacy_statement import PrivacyStatement
from dpfl.experiments.shared.logistic_task import CURVATURE, LIPSCHITZ
from dpfl.experiments.shared.settings import Choice, Count, Epsilon, Positive, Probability, Settings


class TrustAlgorithm(StrEnum):
    """Algorithms that spend the budget."""

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


class TrustCell(Settings):
    """A cell within its sweep's settings.

    batch_size m of a round at the aggregator; local_batch_size of a client's own step; rounds of full batches; passes
    over the records by the algorithms that draw batches afresh; `step` the step size, constant; `delay` of the
    asynchronous updates; `dimension` of the model.
    """

    model: str
    dimension: Count
    algorithm: Choice[TrustAlgorithm]
    epsilon: Epsilon
    delta: Probability
    step: Positive
    users: Count
    clients: Count
    batch_size: Count
    local_batch_size: Count
    rounds: Count
    passes: Count
    delay: Count
    radius: Positive
    regularisation: Positive

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise ValueError where a batch or a client's records are no equal part of the records."""
        for name, part, of in (
            ("clients", self.clients, self.users),
            ("batch_size", self.batch_size, self.users),
            ("local_batch_size", self.local_batch_size, self.users // self.clients),
        ):
            if part > of or of % part:
                raise ValueError(f"{name}: {part} must divide {of}, the records that it is a part of")
        return self

    @property
    def size(self) -> int:
        """Records of one noisy step."""
        if self.algorithm in FULL_BATCH:
            return self.users
        sizes = {
            TrustAlgorithm.CENTRAL: self.batch_size,
            TrustAlgorithm.LAST_MODEL: self.batch_size,
            TrustAlgorithm.PNSGD: 1,
        }
        return sizes.get(self.algorithm, self.local_batch_size)

    @property
    def steps(self) -> int:
        """Noisy steps that read one record's holder: the aggregator's rounds, or one client's own steps."""
        if self.algorithm in FULL_BATCH:
            return self.rounds
        if self.algorithm in ONE_PASS:
            return self.users // self.size
        return self.passes * self.records // self.size

    @property
    def records(self) -> int:
        """Records among which a step draws: a client's own, or all."""
        return self.users // self.holders

    @property
    def sampler(self) -> Sampler:
        """Sampler of a step among the records of its holder."""
        if self.algorithm in FULL_BATCH:
            return FullBatch()
        kind = ShuffledEpochs if self.algorithm in ONE_PASS else FixedBatches
        return kind(self.size, self.records)

    @property
    def holders(self) -> int:
        """Number of those who add noise, each to its own records' share: the clients, or the one aggregator."""
        return self.clients if self.algorithm in (*LOCAL, TrustAlgorithm.SHUFFLED, TrustAlgorithm.MINIBATCH) else 1


def noise_std(plan: TrustCell) -> float:
    """Return the deviation, in every coordinate, of the noise of a step's mean gradient; 0 without privacy.

    A step is the server's for the algorithms that step together, a client's own for the others.
    """
    if math.isinf(plan.epsilon):
        return 0.0
    budget = {"epsilon": plan.epsilon, "delta": plan.delta}
    if plan.algorithm in ONE_PASS:
        return release_sigma(**budget, **_release(plan)) / math.sqrt(plan.size)
    if plan.algorithm in FULL_BATCH:
        shuffles = plan.algorithm is TrustAlgorithm.SHUFFLED
        multiplier = _message_multiplier(shuffles, plan.epsilon, plan.delta, plan.rounds, plan.clients, plan.dimension)
        return multiplier * LIPSCHITZ / plan.records / math.sqrt(plan.holders)
    return composed_sigma(*_composition(plan, plan.epsilon)) / math.sqrt(plan.size)


def privacy(plan: TrustCell, noise_std: float) -> dict[str, Any]:
    """Return the statement's columns, with whom it trusts and epsilon by contraction (nan: no answer).

    noise_multiplier is the deviation of the noise in a step's sum over one record's largest share of it.
    """
    extra = {
        "privacy_trust": TRUST_MODEL[plan.algorithm],
        "privacy_released": "last model" if plan.algorithm in ONE_PASS else "all models",
    }
    multiplier = noise_std * plan.size / LIPSCHITZ
    if plan.algorithm in FULL_BATCH:
        multiplier = noise_std * math.sqrt(plan.holders) * plan.records / LIPSCHITZ
    last_model = math.nan if noise_std > 0 else math.inf
    if plan.algorithm in ONE_PASS and noise_std > 0:
        last_model = release_epsilon(plan.delta, sigma=noise_std * math.sqrt(plan.size), **_release(plan))
    statement = PrivacyStatement.of(
        ShuffledGaussian(plan.clients, plan.dimension) if plan.algorithm is TrustAlgorithm.SHUFFLED else Gaussian(),
        plan.sampler,
        neighbouring=Neighbouring.REPLACE_ONE,
        records=plan.records,
        clip_norm=LIPSCHITZ,
        noise_multiplier=multiplier,
        steps=plan.steps,
        delta=plan.delta,
        note=_NOTES[plan.algorithm],
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
