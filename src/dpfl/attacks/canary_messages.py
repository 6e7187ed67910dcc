"""Attack the messages of noisy minibatch SGD with canaries."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpfl.accounting.samplers import Sampling
from dpfl.algorithms.minibatch_sgd import minibatch_sgd
from dpfl.engine.federated_rounds import Clipping, Hyperparameters, Participation, Protocol, Trials
from dpfl.models.glm import Square

_STEP_SIZE = 1e-9
_PULL = 1e6
"""Size of a canary's gradient over the clip norm: it is always clipped."""


@dataclass(frozen=True)
class MessageRun:
    """Settings of the audited run: the messages of one client without a trusted server."""

    rounds: int
    batch_size: int
    sampling: Sampling
    clipping: Clipping
    clip_norm: float
    noise_stds: tuple[float, ...]
    seed: int


def message_scores(run: MessageRun, x: NDArray, y: NDArray, included: NDArray) -> NDArray:
    """Run noisy minibatch SGD for linear regression on one client; return the scores, (noises, canaries).

    x (records, features), y (records,): the client's records; canaries come on top, each with an input of its own. A
    canary's gradient points along it, up or down as its coin says: so the two worlds differ by a replaced record, and
    by 2 clip_norm before the mean. A score adds up over the messages how much likelier the coordinate is with the coin
    up than down, by the law of one message: mostly the record is not drawn, and only the noise is seen.
    """

    canaries, features = len(included), x.shape[1]
    signs = 2.0 * np.asarray(included) - 1.0
    wide = np.zeros((len(y) + canaries, features + canaries))
    wide[: len(y), :features] = x
    wide[len(y) + np.arange(canaries), features + np.arange(canaries)] = 1.0
    targets = np.concatenate([y, _PULL * run.clip_norm * signs])
    trials = Trials((run.seed,), wide[None], targets[None], np.array([0, len(targets)]))
    protocol = Protocol(
        loss=Square(), rounds=run.rounds, participation=Participation((1,)), batch_size=run.batch_size,
        repetitions=1, sampling=run.sampling, clipping=run.clipping,
    )  # fmt: skip
    count = len(run.noise_stds)
    step, clip = np.full(count, _STEP_SIZE), np.full(count, run.clip_norm)
    points = Hyperparameters(step, clip, np.array(run.noise_stds))
    shift = _pull(run, canaries / len(targets)) / np.maximum(points.noise_std, 1e-12)[:, None]
    drawn = run.batch_size / len(targets)
    scores, before = np.zeros((count, canaries)), np.zeros((count, canaries))
    for weights in minibatch_sgd(trials, points, protocol):
        here = weights[0, 0, features:, :].T.copy()
        observed = (here - before) / (_STEP_SIZE * np.maximum(points.noise_std, 1e-12)[:, None])
        scores += log_law(observed, shift, drawn) - log_law(observed, -shift, drawn)
        before = here
    return scores


def _pull(run: MessageRun, share: float) -> float:
    """Return how far a drawn canary moves a message: by its part of the mean, or, where the mean is clipped, by about
    its part of the norm of the canaries in the batch, `share` of the records being canaries."""
    if run.clipping is Clipping.RECORD:
        return run.clip_norm / run.batch_size
    return run.clip_norm / math.sqrt(max(1.0, run.batch_size * share))


def log_law(observed: NDArray, shift: NDArray, drawn: float) -> NDArray:
    """Return the log density of (1 - drawn) N(0, 1) + drawn N(shift, 1) at `observed`, relative to N(0, 1)."""
    return np.logaddexp(
        math.log1p(-drawn) if drawn < 1 else -math.inf, math.log(drawn) + shift * observed - shift**2 / 2
    )
