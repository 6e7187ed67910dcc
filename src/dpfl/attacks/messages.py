"""Attack what clients send: minibatch SGD of silos, and asynchronous DP-SGD."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Sampling
from dpfl.asynchronous.async_sgd import Federation, NoiseSchedule, Observer, replay, run_guarded
from dpfl.asynchronous.events import Network, simulate
from dpfl.attacks.lower_bounds import StepLaw, WorstPair, worst_pair
from dpfl.attacks.noise_family import StepEvidence
from dpfl.convex.federated_rounds import Clipping, Hyperparameters, Participation, Protocol, Trials
from dpfl.convex.minibatch_sgd import minibatch_sgd
from dpfl.convex.problems import Loss, Square
from dpfl.engine.networks import softmax_regression
from dpfl.engine.per_record_gradients import LinearGradients, cross_entropy

# Attack the messages of noisy minibatch SGD with canaries.

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


def message_scores(
    run: MessageRun, x: NDArray, y: NDArray, included: NDArray
) -> tuple[NDArray[np.float64], list[StepEvidence]]:
    """Run noisy minibatch SGD for linear regression on one client; return scores (noises, canaries) and evidence.

    x (records, features), y (records,): the client's records; canaries come on top, each with an input of its own. A
    canary's gradient points along it, up or down as its coin says: so the two worlds differ by a replaced record, and
    by 2 clip_norm before the mean. A score adds up over the messages how much likelier the coordinate is with the coin
    up than down, by the law of one message: mostly the record is not drawn, and only the noise is seen. A model without
    noise, on the same batches, shows which messages drew it: the evidence is of these, and the others show the noise.
    """

    canaries, features = len(included), x.shape[1]
    signs = 2.0 * np.asarray(included) - 1.0
    wide = np.zeros((len(y) + canaries, features + canaries))
    wide[: len(y), :features] = x
    wide[len(y) + np.arange(canaries), features + np.arange(canaries)] = 1.0
    targets = np.concatenate([y, _PULL * run.clip_norm * signs])
    trials = Trials((run.seed,), wide[None], targets[None], np.array([0, len(targets)]))
    protocol = Protocol(
        loss=cast("Loss", Square()), rounds=run.rounds, participation=Participation((1,)), batch_size=run.batch_size,
        repetitions=1, sampling=run.sampling, clipping=run.clipping,
    )  # fmt: skip
    stds = np.array(run.noise_stds)
    points = Hyperparameters(
        np.full(len(stds) + 1, _STEP_SIZE), np.full(len(stds) + 1, run.clip_norm), np.append(stds, 0.0)
    )
    before, messages = np.zeros((len(stds) + 1, canaries)), []
    for weights in minibatch_sgd(trials, points, protocol):
        here = weights[0, 0, features:, :].T.copy()
        messages.append((here - before) / _STEP_SIZE)
        before = here
    *noisy, silent = np.stack(messages, axis=-1)  # (canaries, rounds) each
    drawn, unit = np.abs(silent) > 0.5 * run.clip_norm / run.batch_size, run.batch_size / run.clip_norm
    scores, evidence = np.zeros((len(stds), canaries)), []
    for own, std, score in zip(noisy, np.maximum(stds, 1e-12), scores, strict=True):
        shift = np.array(_pull(run, canaries / len(targets)) / std)
        law = partial(log_law, drawn=run.batch_size / len(targets))
        score[:] = (law(own / std, shift) - law(own / std, -shift)).sum(axis=1)
        evidence.append(StepEvidence.of((signs[:, None] * own)[drawn] * unit, own[~drawn] * unit, 1.0))
    return scores, evidence


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


# Messages of minibatch SGD without a trusted server, with every record chosen by the attacker; no torch.


def message_pair(run: MessageRun) -> WorstPair:
    """Return the worst pair for a replaced record; where the mean is clipped, mates are silent: they would hide it."""
    pair = worst_pair(run.sampling, Neighbouring.REPLACE_ONE)
    return replace(pair, mates=0.0) if run.clipping is Clipping.MEAN else pair


def message_law(run: MessageRun, records: int, noise_std: float) -> StepLaw:
    """Return what a message sees of the record: in clip norms over the batch size, with the noise's.

    Where the mean is clipped a record that is drawn moves it by the clip norm, batch_size times more.
    """
    with_replacement = run.sampling is Sampling.WITH_REPLACEMENT
    rate, draws = (1 / records, run.batch_size) if with_replacement else (run.batch_size / records, 1)
    reach = run.batch_size if run.clipping is Clipping.MEAN else 1
    shifts = cast("tuple[float, float]", tuple(reach * shift for shift in message_pair(run).shifts))
    return StepLaw.of(run.sampling, rate, shifts, noise_std * run.batch_size / run.clip_norm, draws)


def message_observations(run: MessageRun, records: int, trials: int) -> NDArray[np.float64]:
    """Run minibatch SGD `trials` times in each world; return (noises, worlds, trials, 1, rounds).

    One client of `records` records sends a message per round, seen in clip norms over the batch size, relative to the
    sum of a batch of mates. Trials are repetitions, with batches and noise of their own, which several noises share.
    """
    pair = message_pair(run)
    gradients = [pair.gradients(records, 1, world=world, clip_norm=run.clip_norm)[0] for world in (0, 1)]
    targets = -np.stack(gradients)  # the square loss has the slope -y at w = 0
    stacked = Trials(
        (2 * run.seed, 2 * run.seed + 1), np.ones((2, records, 1)), targets, np.array([0, records])
    )  # fmt: skip
    protocol = Protocol(
        loss=cast("Loss", Square()), rounds=run.rounds, participation=Participation((1,)), batch_size=run.batch_size,
        repetitions=trials, sampling=run.sampling, clipping=run.clipping,
    )  # fmt: skip
    count = len(run.noise_stds)
    points = Hyperparameters(np.full(count, _STEP_SIZE), np.full(count, run.clip_norm), np.array(run.noise_stds))
    before, observations = np.zeros((2, trials, count)), []
    for weights in minibatch_sgd(stacked, points, protocol):
        here = weights[:, :, 0, :].copy()
        observations.append((before - here) / _STEP_SIZE)
        before = here
    messages = np.moveaxis(np.stack(observations, axis=-1), 2, 0) * (run.batch_size / run.clip_norm)
    return (messages - pair.mates * run.batch_size)[:, :, :, None, :]


# Attack what the clients of asynchronous DP-SGD send, by the code that trains them (dpfl.asynchronous.async_sgd).
#
# Twice, as every attack here: on records that the attacker chooses, with a client of its own for every trial, so that
# one run of the program is as many trainings; and with canaries among real records, half of a client's fates guessed
# about. A third run, on chosen records alone, measures how far each record moves a message. The attacker sees every
# noisy sum, of late and lost updates too. Batches have a fixed size, one record is replaced.

PAIR = worst_pair(Sampling.FIXED, Neighbouring.REPLACE_ONE)
_LENGTH = 1e3
"""Length of a chosen record's gradient over the clip norm: it is always clipped."""
_FEATURES = 64
"""Features of the chosen records where the batch normalises them: they move together."""
_CANARY = 10.0
"""Length of a canary's input: its gradient is clipped, but moves the model too little to be learnt by heart."""


@dataclass(frozen=True)
class AsyncMessageRun:
    """Settings of the run that is attacked.

    `noise_multiplier` is over the clip norm, on a batch's sum. normalise: as of Federation, batch normalisation where
    it is set: then no guarantee holds, and the records are chosen to show that.
    """

    network: Network
    rounds: int
    epochs: int
    batch_size: int
    clip_norm: float
    noise_multiplier: float
    learning_rate: float
    seed: int
    normalise: Callable[[Tensor], Tensor] | None = None


class _ChosenSlope:
    """A loss whose gradient at the only logit is the label, whatever the model: the attacker chooses gradients."""

    def derivative(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the labels, in the shape of logits (models, 1, n)."""
        return labels.expand_as(logits)


def chosen_observations(
    run: AsyncMessageRun, records: int, trials: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Run the program once with 2 `trials` clients of `records` chosen records; return what is seen, and 1 where the
    record in question was drawn, else 0, both (worlds, trials, 1, rounds).

    Half of the clients are in world P, half in Q (dpfl.attacks.lower_bounds, hostile mates). A round is seen in clip
    norms, relative to a batch of mates; with batch normalisation, along the direction in which all features move.
    Clients have batches and noise of their own and gradients that no model changes, so trials are independent.
    """
    inputs, labels = _chosen_records(run, records)
    shares = [np.arange(records) + world * records for world in (0, 1) for _ in range(trials)]
    module = softmax_regression(inputs.shape[1], 1)
    rule = LinearGradients(module, cast("Any", _ChosenSlope()))
    federation = _federation(run, rule, module, shares, (inputs, labels))
    seen, drawn = np.empty((2 * trials, 1, run.rounds)), np.empty((2 * trials, 1, run.rounds))
    mates = run.batch_size * PAIR.mates

    def observe(client: int, number: int, sums: Tensor) -> None:
        told = float(sums[0, -1]) / run.clip_norm - mates
        along = float(sums[0, :-1].sum()) / math.sqrt(_FEATURES) / run.clip_norm
        seen[client, 0, number] = along if run.normalise else told
        drawn[client, 0, number] = int(shares[client][0]) in federation.batch(client, number)

    _run(run, federation, observe)
    return seen.reshape(2, trials, 1, run.rounds), drawn.reshape(2, trials, 1, run.rounds)


def chosen_law(run: AsyncMessageRun, records: int) -> StepLaw:
    """Return the law of what a round of `chosen_observations` shows, one of `records` being the record in question."""
    shifts = PAIR.shifts
    if run.normalise:
        inputs, labels = _chosen_records(run, records)
        module, shifts = softmax_regression(inputs.shape[1], 1), []
        for world in (0, 1):
            rows = slice(world * records, world * records + run.batch_size)
            x, y = run.normalise(inputs[rows]), labels[rows]
            zero, clip = torch.zeros(1, _FEATURES + 1), torch.tensor([run.clip_norm])
            sums = LinearGradients(module, cast("Any", _ChosenSlope())).clipped_sums(
                zero, (x, y, torch.ones(len(x))), clip
            )
            shifts.append(float(sums[0, :-1].sum()) / math.sqrt(_FEATURES) / run.clip_norm)
    return StepLaw.of(
        Sampling.FIXED, run.batch_size / records, cast("tuple[float, float]", tuple(shifts)), run.noise_multiplier
    )


def _chosen_records(run: AsyncMessageRun, records: int) -> tuple[Tensor, Tensor]:
    """Return the records of world P, then of Q, the one in question first in each.

    Gradients are along the bias alone, but where batches are normalised: there the record's features are above or below
    the mates', who are all alike, and so move what the mates' features become.
    """
    first = torch.zeros(2, records)
    first[:, 0] = 1
    if run.normalise:
        side = torch.tensor([1.0, -1.0])[:, None] * first
        return (0.5 + 0.5 * side).reshape(-1, 1).repeat(1, _FEATURES), torch.full((2 * records,), _LENGTH)
    worlds = torch.tensor(PAIR.canary)[:, None]
    gradients = torch.where(first > 0, worlds, PAIR.mates).reshape(-1)
    return torch.zeros(2 * records, 1), _LENGTH * run.clip_norm * gradients


def chosen_evidence(run: AsyncMessageRun, records: int, clients: int) -> StepEvidence:
    """Run the program once with `clients` clients of `records` chosen records; return what the messages show.

    Each record has a direction of its own, along which it pulls as far as clipping lets it. So a message shows the pull
    of every record of its batch, and in all other directions the noise: as much as batch_size trainings that follow one
    record. Not for batch normalisation, which mixes the directions.
    """
    inputs, labels = _LENGTH * torch.eye(records), torch.full((records,), run.clip_norm)
    module = softmax_regression(records, 1)
    rule = LinearGradients(module, cast("Any", _ChosenSlope()))
    federation = _federation(run, rule, module, [np.arange(records)] * clients, (inputs, labels))
    with_record: list[NDArray] = []
    noise: list[NDArray] = []

    def observe(client: int, number: int, sums: Tensor) -> None:
        along = sums[0, :-1].numpy().astype(np.float64) / run.clip_norm
        drawn = np.isin(np.arange(records), federation.batch(client, number).numpy())
        with_record.append(along[drawn])
        noise.append(along[~drawn])

    _run(run, federation, observe)
    return StepEvidence.of(np.concatenate(with_record), np.concatenate(noise), 1.0)


def canary_scores(
    run: AsyncMessageRun,
    inputs: Tensor,
    labels: Tensor,
    shares: Sequence[NDArray[np.int64]],
    included: NDArray[np.int64],
    classes: int,
) -> tuple[NDArray[np.float64], StepEvidence]:
    """Run the program once with canaries among the clients' records; return their scores (canaries,) and evidence.

    inputs (n, features), labels (n,), shares: real records, by client. The canaries are dealt to the clients and take
    the places of as many records; each has an input of its own, up or down as its coin says, so the worlds differ by a
    replaced record. At the first model its gradient is C (p - label)/|p - label| along that input, p uniform. A score
    adds up over the messages how much likelier the weights' part along it is with the coin up than down, by the law of
    one message. The evidence is of the messages that drew a canary; the others show the noise.
    """
    coins, (count, features) = np.array_split(np.asarray(included), len(shares)), inputs.shape
    most = max(map(len, coins))
    wide = torch.cat([inputs, inputs.new_zeros(count, most)], dim=1)
    canaries, own_shares, places = [], [], []
    for share, own in zip(shares, coins, strict=True):
        rows = torch.zeros(len(own), features + most)
        rows[torch.arange(len(own)), features + torch.arange(len(own))] = _CANARY * (2 * torch.from_numpy(own) - 1)
        places.append(len(wide) + sum(map(len, canaries)) + np.arange(len(own)))
        canaries.append(rows)
        own_shares.append(np.concatenate([share[: len(share) - len(own)], places[-1]]))
    records = len(shares[0])
    data = (torch.cat([wide, *canaries]), torch.cat([labels, labels.new_zeros(len(included))]))
    module = softmax_regression(features + most, classes)
    federation = _federation(run, LinearGradients(module, cross_entropy), module, own_shares, data)
    pull = torch.full((classes,), 1 / classes)
    pull[0] -= 1
    pull /= pull.norm()
    scores, shift = [np.zeros(len(own)) for own in coins], np.array(1 / max(run.noise_multiplier, 1e-12))
    law = partial(log_law, drawn=run.batch_size / records)
    with_canary: list[NDArray] = []
    noise: list[NDArray] = []

    def observe(client: int, number: int, sums: Tensor) -> None:
        weights = sums[0, : classes * (features + most)].reshape(classes, -1)[:, features:]
        along = (pull @ weights)[: len(coins[client])].numpy().astype(np.float64) / run.clip_norm
        drawn = np.isin(places[client], federation.batch(client, number).numpy())
        with_canary.append((along * (2.0 * coins[client] - 1))[drawn])
        noise.append(along[~drawn])
        scores[client] += law(along * shift, shift) - law(along * shift, -shift)

    _run(run, federation, observe)
    return np.concatenate(scores), StepEvidence.of(np.concatenate(with_canary), np.concatenate(noise), 1.0)


def _federation(
    run: AsyncMessageRun, rule: LinearGradients, module: torch.nn.Linear, shares: list[NDArray[np.int64]],
    data: tuple[Tensor, Tensor],
) -> Federation:  # fmt: skip
    """Return the clients as the code that trains takes them."""
    return Federation(
        module=module, rule=rule, shares=shares, train=data, test=(data[0][:1], torch.zeros(1, dtype=torch.int64)),
        mix=(1 / len(shares),) * len(shares), batch_sizes=(run.batch_size,) * run.rounds, sampling=Sampling.FIXED,
        seed=run.seed, normalise=run.normalise,
    )  # fmt: skip


def _run(run: AsyncMessageRun, federation: Federation, observe: Observer) -> None:
    """Carry the program out, by the code that trains."""

    def each(value: float) -> Tensor:
        return torch.full((run.rounds, 1), value)

    postures = NoiseSchedule(
        clip_norms=each(run.clip_norm), noise_std=each(run.clip_norm * run.noise_multiplier),
        arsinh_scales=each(math.inf), step_sizes=each(run.learning_rate), kept_shares=(1.0,), batch_clips=(False,),
        adaptive_clips=(None,),
    )  # fmt: skip
    course = {"lengths": [Fraction(1)] * run.rounds, "epochs": run.epochs}
    if run.network.max_distance is not None:
        run_guarded(federation, run.network, postures, lambda: None, observe=observe, **course)
        return
    program = simulate(run.network, clients=len(federation.shares), seed=run.seed, **course)
    replay(federation, program, postures, lambda: None, observe)
