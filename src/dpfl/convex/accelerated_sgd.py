"""Accelerated noisy minibatch SGD (lowy2021, Algorithm 2), in one stage and, for strong convexity, in several.

Stack, participants, records and noise are those of noisy minibatch SGD (dpfl.convex.federated_rounds): runs of both
algorithms on the same trials are paired.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpfl.convex.federated_rounds import Aggregate, mean_of_last
from dpfl.mechanisms import project

if TYPE_CHECKING:
    from dpfl.convex.minibatch_sgd import NoisyGradientSource
    from dpfl.convex.problems import Array


@dataclass(frozen=True)
class Restart:
    """One run of Algorithm 2: its rounds R_k, and gamma (models,), the inverse scale of its steps."""

    rounds: int
    gamma: Array


def step_scale(
    *,
    smoothness: Array | float,
    gradient_deviation: Array | float,
    rounds: int,
    diameter: Array | float,
    strong_convexity: float = 0.0,
) -> Array:
    """Return gamma = max{2 beta, sqrt(2 V^2 R (R+1) (R+2) / (3 D^2))} for each model.

    beta `smoothness`, V^2 = `gradient_deviation` squared, which counts the noise in all coordinates, and D `diameter`
    > 0 a bound on |w_0 - w*|; arrays broadcast. With `strong_convexity` mu > 0 the stage's version: mu V^2 for 2 V^2
    and the gap Delta_k that the stage starts with for D^2 (so `diameter` is its root).
    Source: lowy2021 Algorithm 2 after ghadimi2012. Raises ValueError for `rounds` below 1.
    """
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}; it must be at least 1")
    factor = strong_convexity if strong_convexity > 0 else 2.0
    cube = rounds * (rounds + 1.0) * (rounds + 2.0)
    noisy = np.asarray(gradient_deviation) * np.sqrt(factor * cube / 3.0) / np.asarray(diameter)
    return np.maximum(2.0 * np.asarray(smoothness), noisy)


def shrinking_rounds(
    *, smoothness: float, strong_convexity: float, gradient_deviation: float, gap: float, stages: int
) -> tuple[int, ...]:
    """Return R_k = ceil(max{4 sqrt(2 beta/mu), 128 V^2 / (3 mu Delta 2^-(k+1))}) for k = 1 .. `stages`.

    `gap` Delta >= F(w_0) - F*, all arguments above 0; each stage halves the gap. The deviation V must belong to noise
    that is calibrated to the SUM of the R_k. Source: lowy2021's multi-stage Algorithm 2.
    """
    least = 4.0 * math.sqrt(2.0 * smoothness / strong_convexity)
    noisy = 128.0 * gradient_deviation**2 / (3.0 * strong_convexity * gap)
    return tuple(math.ceil(max(least, noisy * 2.0 ** (k + 1))) for k in range(1, stages + 1))


def affordable_rounds(*, smoothness: float, strong_convexity: float, rounds: int) -> tuple[int, ...]:
    """Return stages that fill `rounds`, each about twice the last and none below 4 sqrt(2 beta/mu), as many as fit.

    shrinking_rounds has this shape, but with its proof's constants even a first stage outgrows what one can run. A
    run too short for two stages has one. Raises ValueError for `rounds` below 1.
    """
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}; it must be at least 1")
    least = 4.0 * math.sqrt(2.0 * smoothness / strong_convexity)
    stages = max(1, math.floor(math.log2(rounds / least + 1.0)))
    shares = [round(rounds * (2**k - 1) / (2**stages - 1)) for k in range(stages + 1)]
    return tuple(stop - start for start, stop in itertools.pairwise(shares))


def iterates(
    gradients: NoisyGradientSource, stages: Sequence[Restart], strong_convexity: float = 0.0
) -> Iterator[Array]:
    """Yield w^ag after every round, (trials, repetitions, features, models), from w_0 = 0.

    Every round asks for the participants' mean noisy gradient at w^md; each stage starts again from the previous one's
    w^ag. `strong_convexity` mu is that of the objective, regularisation included. Of the points, the clip norms, the
    noise and the radius count; the step sizes come from the stages. The array is overwritten by the next round.
    Source: lowy2021 Algorithm 2. Formal guarantee: that of the gradients; all else is post-processing.
    Raises ValueError where the server would sum the messages, or stages and protocol differ in rounds.
    """
    protocol, points = gradients.protocol, gradients.points
    if protocol.aggregate is not Aggregate.MEAN:
        raise ValueError(
            f"aggregate must be MEAN: Algorithm 2 takes the mean of the messages, not {protocol.aggregate}"
        )
    if sum(stage.rounds for stage in stages) != protocol.rounds:
        raise ValueError(f"stages of {[stage.rounds for stage in stages]} rounds do not sum to {protocol.rounds}")
    aggregate, round = np.zeros(gradients.shape), 0
    for stage in stages:
        weights = aggregate.copy()
        for r in range(1, stage.rounds + 1):
            alpha, eta = 2.0 / (r + 1), 4.0 * stage.gamma / (r * (r + 1))
            middle = _middle(aggregate, weights, alpha, eta, strong_convexity)
            weights = _step(middle, weights, gradients.at(middle, round), alpha, eta, strong_convexity)
            if points.projected:
                assert points.radius is not None
                weights = project(weights, points.radius)
            aggregate *= 1.0 - alpha
            aggregate += alpha * weights
            round += 1
            yield aggregate


def run(
    gradients: NoisyGradientSource,
    stages: Sequence[Restart],
    strong_convexity: float = 0.0,
    progress: Callable[[], None] = lambda: None,
) -> Array:
    """Return w^ag after the last round; see `iterates`. A diverging run ends in inf or NaN and touches no other."""
    rounds = gradients.protocol.rounds
    return mean_of_last(iterates(gradients, stages, strong_convexity), rounds, 1, progress)


def _middle(aggregate: Array, weights: Array, alpha: float, eta: Array, mu: float) -> Array:
    """w^md, where the gradient is asked for: a convex combination, so it stays in the ball that both are in."""
    old, new = (1.0 - alpha) * (mu + eta), alpha * ((1.0 - alpha) * mu + eta)
    return (old * aggregate + new * weights) / (eta + (1.0 - alpha**2) * mu)


def _step(middle: Array, weights: Array, gradient: Array, alpha: float, eta: Array, mu: float) -> Array:
    """w_r before its projection; with mu = 0 it is w_{r-1} - r/(2 gamma) g."""
    pull = alpha * mu * middle + ((1.0 - alpha) * mu + eta) * weights
    return (pull - alpha * gradient) / (mu + eta)
