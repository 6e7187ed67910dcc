"""Epsilon of the last iterate of noisy gradient descent on convex losses: the least of the known bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from dpfl.accounting.arguments import integer, member, real
from dpfl.accounting.hidden_state.gradient_step import SENSITIVITIES, diameter_in_shifts, step_contraction
from dpfl.accounting.hidden_state.shifted_interpolation import shifted_interpolation_mu
from dpfl.accounting.hidden_state.shuffled_epochs import last_use, shuffled_epsilon
from dpfl.accounting.hidden_state.uniform_batches import LEAST_DELTA, UniformSteps, restart_epsilon, split_epsilon
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.sampler_bounds import unamplified


class Batches(StrEnum):
    """Choice of a step's batch."""

    FULL = "full_batch"
    """All records in every step."""
    CYCLIC = "cyclic"
    """The records cut into batches once, in a public order, and used in turn."""
    SHUFFLED = "shuffled_epochs"
    """A fresh secret permutation for each epoch, cut into batches."""
    UNIFORM = "fixed_without_replacement"
    """A fresh batch of fixed size for each step."""


class Bound(StrEnum):
    """Proof behind an epsilon."""

    COMPOSITION = "composition"
    """Every iterate published."""
    CONTRACTION = "contraction"
    """The last use by shifted interpolation, the steps after it by asoodeh2020's contraction (Theorem 4)."""
    SHIFTED_INTERPOLATION = "shifted_interpolation"
    """bok2024."""
    CONTRACTION_AND_SHIFTS = "contraction_and_shifts"
    """The smaller of the two at each place of the last use."""


@dataclass(frozen=True)
class LastIterate:
    """The least `epsilon`, the `bound` that gave it, and the epsilons of all bounds that apply."""

    epsilon: float
    bound: Bound
    bounds: Mapping[Bound, float]


@dataclass(frozen=True)
class _Run:
    """Checked arguments, in units of the shift of one step."""

    steps: int
    steps_per_epoch: int
    delta: float
    contraction: float
    noise: float
    diameter: float
    sensitivity: float
    sample_rate: float
    short_batch: float


def last_iterate_epsilon(
    *,
    batches: Batches | str,
    steps: int,
    records: int,
    batch_size: int,
    noise_multiplier: float,
    delta: float,
    step_size: float,
    smoothness: float,
    lipschitz: float,
    strong_convexity: float = 0.0,
    diameter: float = math.inf,
    neighbouring: Neighbouring | str = Neighbouring.ZERO_OUT,
) -> LastIterate:
    """Return the least proven epsilon at `delta` of the last iterate only, with the bound that gave it.

    A step is w <- project(w - (step_size/batch_size)(sum of grad f_i(w) + noise_multiplier lipschitz Z)), the sum over
    the batch, Z standard normal; there are `steps` >= 0. `project` is on a convex set of `diameter` > 0 (inf: none).
    The mean loss of every batch is convex, `smoothness`-smooth and `strong_convexity`-strongly convex (a public
    regulariser counts); the gradient of a record's part is at most `lipschitz` long WITHOUT clipping, since a clipped
    gradient need not contract. `step_size` <= 2/smoothness. `batch_size` must be `records` for full batches; where it
    does not divide it, the last batch of a cycle or epoch is shorter, with the same divisor and less strong convexity.
    `delta` in (0, 1), for fixed_without_replacement at least 1e-10.

    Formal guarantee: (epsilon, delta)-DP of the last iterate for the relation `neighbouring`, n public, all other
    iterates, permutations and batches secret (the order is public for cyclic), the start independent of the data.
    add_or_remove is known for full batches with a constant divisor only. At steps = 0 the epsilon is 0. Poisson batches
    are refused: a large one need not contract. Raises ValueError naming the argument.
    Source: bok2024, section 4; asoodeh2020 Theorem 4; for shuffled epochs derived.
    """
    kind = member("batches", Batches, batches)
    relation = member("neighbouring", Neighbouring, neighbouring)
    count = integer("steps", steps)
    per_epoch = _steps_per_epoch(kind, relation, records, batch_size)
    sensitivity, short = SENSITIVITIES[relation], _short_batch(kind, records, batch_size)
    smoothness = real("smoothness", smoothness, above=0)
    convexity = short * real("strong_convexity", strong_convexity, at_least=0, at_most=smoothness)
    diameter_over_shift = diameter_in_shifts(
        diameter, step_size=step_size, lipschitz=lipschitz, batch_size=batch_size, neighbouring=relation
    )
    run = _Run(
        steps=count,
        steps_per_epoch=per_epoch,
        delta=real("delta", delta, above=0, below=1),
        contraction=float(step_contraction(step_size, smoothness, convexity)),
        noise=real("noise_multiplier", noise_multiplier, above=0) / sensitivity,
        diameter=float(diameter_over_shift),
        sensitivity=sensitivity,
        sample_rate=batch_size / records,
        short_batch=short,
    )
    bounds = _BOUNDS[kind](run) if count else {Bound.COMPOSITION: 0.0}
    least = min(bounds, key=bounds.get)
    return LastIterate(bounds[least], least, bounds)


def _steps_per_epoch(kind: Batches, relation: Neighbouring, records: int, batch_size: int) -> int:
    """Steps between two uses of a record. Raises ValueError naming records, batch_size or neighbouring."""
    records, batch_size = integer("records", records, at_least=1), integer("batch_size", batch_size, at_least=1)
    if batch_size > records:
        raise ValueError(f"batch_size must be at most records = {records}, got {batch_size}")
    if kind is Batches.FULL and batch_size != records:
        raise ValueError(f"batch_size must be records = {records} for full batches, got {batch_size}")
    if kind is not Batches.FULL and relation is Neighbouring.ADD_OR_REMOVE:
        raise ValueError("neighbouring 'add_or_remove' is not proven here: removing a record moves the batches' cuts")
    return -(-records // batch_size) if kind in (Batches.CYCLIC, Batches.SHUFFLED) else 1


def _short_batch(kind: Batches, records: int, batch_size: int) -> float:
    """The size of the last batch of a cycle or epoch over batch_size: 1 where all batches have the same size."""
    rest = records % batch_size if kind in (Batches.CYCLIC, Batches.SHUFFLED) else 0
    return rest / batch_size if rest else 1.0


def _in_order(run: _Run) -> dict[Bound, float]:
    """Bounds for full and cyclic batches, whose last step uses the record at worst."""
    mu = shifted_interpolation_mu(
        steps=run.steps,
        contraction=run.contraction,
        noise_over_shift=run.noise,
        diameter_over_shift=run.diameter,
        steps_per_epoch=run.steps_per_epoch,
    )
    return {Bound.COMPOSITION: _composed(run), Bound.SHIFTED_INTERPOLATION: unamplified(mu, run.delta).epsilon}


def _shuffled(run: _Run) -> dict[Bound, float]:
    """Bounds for shuffled epochs, as means over the place of the last use."""
    last_uses = last_use(
        steps=run.steps,
        steps_per_epoch=run.steps_per_epoch,
        short_batch=run.short_batch,
        contraction=run.contraction,
        noise_over_shift=run.noise,
        diameter_over_shift=run.diameter,
    )
    link = run.contraction * run.diameter / run.noise if run.contraction else 0.0
    names = {
        Bound.SHIFTED_INTERPOLATION: "shifted",
        Bound.CONTRACTION: "contraction",
        Bound.CONTRACTION_AND_SHIFTS: "minimum",
    }
    epsilons = {bound: shuffled_epsilon(run.delta, last_uses, link=link, bound=name) for bound, name in names.items()}
    return {Bound.COMPOSITION: _composed(run)} | epsilons


def _uniform(run: _Run) -> dict[Bound, float]:
    """Bounds for fresh batches of fixed size. Raises ValueError naming delta."""
    real("delta", run.delta, at_least=LEAST_DELTA)
    steps = UniformSteps(
        steps=run.steps,
        sample_rate=run.sample_rate,
        contraction=run.contraction,
        noise_multiplier=run.noise * run.sensitivity,
        sensitivity=run.sensitivity,
        diameter=run.diameter * run.sensitivity,
    )
    alone = split_epsilon(steps.composition(), run.sample_rate, run.delta)
    return {Bound.COMPOSITION: alone, Bound.SHIFTED_INTERPOLATION: restart_epsilon(steps, run.delta)}


def _composed(run: _Run) -> float:
    """Epsilon with every iterate published: a record is used once every steps_per_epoch steps."""
    uses = -(-run.steps // run.steps_per_epoch)
    return unamplified(math.sqrt(uses) / run.noise, run.delta).epsilon


_BOUNDS = {Batches.FULL: _in_order, Batches.CYCLIC: _in_order, Batches.SHUFFLED: _shuffled, Batches.UNIFORM: _uniform}
