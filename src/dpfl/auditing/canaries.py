"""Canaries in private training: records that the worst adversary would choose, in with probability 1/2 each.

Every canary has a direction of its own in which no other record's gradient points, and there it pulls as far as
clipping lets a record pull. What training adds up along that direction is its score.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpfl.accounting.relations import Sampling
from dpfl.engine.batches import epoch_batches, expected_batch_size
from dpfl.engine.gradients import Batch, GradientRule, StackedGradients
from dpfl.engine.linear import LinearGradients
from dpfl.engine.losses import cross_entropy
from dpfl.engine.randomness import generator
from dpfl.engine.sgd import SGD, Variants
from dpfl.federated.rounds import Clipping, Participation, Points, Protocol, Trials
from dpfl.mechanisms.noise import base_noise
from dpfl.models.glm import Square

_STEP_SIZE = 1e-9
_PULL = 1e6
"""Size of a canary's gradient over the clip norm: it is always clipped."""


def coins(seed: int, count: int) -> NDArray[np.int64]:
    """Return a fair coin for each canary, 0 or 1; addressed by the seed alone."""
    return generator(seed, "participants", client=count).integers(0, 2, size=count)


class CanaryGradients:
    """The gradients of a linear model, where a record with a label from `classes` on is a canary.

    Canary c (label classes + c) has the gradient clip_norm along the weight of output 0 and input first_input + c,
    where all other records' inputs are 0; canaries that are `out` add nothing. This is `zero_out` neighbouring, which
    has the dominating pair of add_or_remove.
    """

    def __init__(self, inner: GradientRule, classes: int, first_input: int, included: Tensor) -> None:
        self.inner, self.classes, self.first_input, self.included = inner, classes, first_input, included

    def clipped_sums(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Return the sums with the canaries' own; shape (variants, parameters)."""
        x, y, present = batch
        canary = y >= self.classes
        labels = torch.where(canary, 0, y)
        sums = self.inner.clipped_sums(weights, (x, labels, present * ~canary), clip_norms)
        drawn = torch.where(canary, y - self.classes, 0)
        pulls = torch.zeros(len(self.included), dtype=x.dtype, device=x.device)
        pulls.index_add_(0, drawn, self.included[drawn] * canary * present)
        own = slice(self.first_input, self.first_input + len(self.included))
        sums[:, own] += clip_norms[:, None] * pulls
        return sums

    def record_bytes(self, record: Tensor) -> int:
        """As without canaries."""
        return self.inner.record_bytes(record)


@dataclass(frozen=True)
class ClientRun:
    """What DP-SGD on one client does, as dpfl.federated.averaging has it: settings of the run that is audited."""

    batch_size: int
    sampling: Sampling
    epochs: int
    learning_rate: float
    momentum: float
    clip_norm: float
    noise_multipliers: tuple[float, ...]
    seed: int


def image_scores(run: ClientRun, inputs: Tensor, labels: Tensor, classes: int, included: NDArray) -> NDArray:
    """Train a linear model on one client's records and the canaries; return the scores, (noises, canaries).

    inputs (records, features) float32, labels (records,). The client has records + canaries records; every noise
    multiplier of the run trains its own model, on the same batches and base noise. A score is the movement of the
    canary's weight over all steps, which adds up what an observer of every step sees.
    """
    records, canaries = len(labels), len(included)
    features = inputs.shape[1]
    padded = torch.zeros(records + canaries, features + canaries, dtype=inputs.dtype)
    padded[:records, :features] = inputs
    told = torch.cat([labels, classes + torch.arange(canaries)])
    module = nn.Linear(features + canaries, classes)
    bits = torch.as_tensor(included, dtype=inputs.dtype)
    rule = CanaryGradients(LinearGradients(module, cross_entropy), classes, features, bits)
    count = len(run.noise_multipliers)
    variants = Variants(torch.full((count,), run.clip_norm), torch.tensor(run.noise_multipliers, dtype=torch.float32))
    sgd = SGD(StackedGradients(rule, padded[0], 2**30), variants, run.learning_rate, run.momentum)
    size = (features + canaries + 1) * classes
    weights, velocity = torch.zeros(1, count, size), torch.zeros(1, count, size)
    everybody = records + canaries
    for epoch in range(1, run.epochs + 1):
        batches = epoch_batches(everybody, run.batch_size, run.sampling, seed=run.seed, client=0, epoch=epoch)

        def noise(group: int, step: int, epoch: int = epoch) -> Tensor:
            address = {"seed": run.seed, "client": 0, "epoch": epoch, "step": step}
            return base_noise(size, **address, dtype=weights.dtype, device=weights.device)

        expected = expected_batch_size(everybody, run.batch_size)
        sgd.epoch(weights, velocity, (padded, told), [batches], [expected], noise)
    return -weights[0, :, features : features + canaries].numpy().astype(np.float64)


@dataclass(frozen=True)
class MessageRun:
    """What one client without a trusted server sends: settings of the run that is audited."""

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
    from dpfl.federated.minibatch import iterates

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
    points = Points(step, clip, np.array(run.noise_stds))
    shift = _pull(run, canaries / len(targets)) / np.maximum(points.noise_std, 1e-12)[:, None]
    drawn = run.batch_size / len(targets)
    scores, before = np.zeros((count, canaries)), np.zeros((count, canaries))
    for weights in iterates(trials, points, protocol):
        here = weights[0, 0, features:, :].T.copy()
        seen = (here - before) / (_STEP_SIZE * np.maximum(points.noise_std, 1e-12)[:, None])
        scores += _log_law(seen, shift, drawn) - _log_law(seen, -shift, drawn)
        before = here
    return scores


def _pull(run: MessageRun, share: float) -> float:
    """Return how far a drawn canary moves a message: by its part of the mean, or, where the mean is clipped, by about
    its part of the norm of the canaries in the batch, `share` of the records being canaries."""
    if run.clipping is Clipping.RECORD:
        return run.clip_norm / run.batch_size
    return run.clip_norm / math.sqrt(max(1.0, run.batch_size * share))


def _log_law(seen: NDArray, shift: NDArray, drawn: float) -> NDArray:
    """Return the log density of (1 - drawn) N(0, 1) + drawn N(shift, 1) at `seen`, relative to N(0, 1)."""
    return np.logaddexp(math.log1p(-drawn) if drawn < 1 else -math.inf, math.log(drawn) + shift * seen - shift**2 / 2)
