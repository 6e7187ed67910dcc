"""Messages of minibatch SGD without a trusted server, with every record chosen by the attacker; no torch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Sampling
from dpfl.algorithms.minibatch_sgd import minibatch_sgd
from dpfl.attacks.canary_messages import MessageRun
from dpfl.attacks.distinguishers import StepLaw
from dpfl.attacks.worst_pair import WorstPair, worst_pair
from dpfl.engine.federated_rounds import Clipping, Hyperparameters, Participation, Protocol, Trials
from dpfl.models.glm import Square

_STEP_SIZE = 1e-9


def message_pair(run: MessageRun) -> WorstPair:
    """Return the worst pair for a replaced record; where the mean is clipped, mates are silent: they would hide it."""
    pair = worst_pair(run.sampling, Neighbouring.REPLACE_ONE)
    return replace(pair, mates=0.0) if run.clipping is Clipping.MEAN else pair


def message_law(run: MessageRun, records: int, noise_std: float) -> StepLaw:
    """Return what a message sees of the record: in clip norms over the batch size, that of the noise included.

    Where the mean is clipped a record that is drawn moves it by the clip norm, batch_size times more.
    """
    with_replacement = run.sampling is Sampling.WITH_REPLACEMENT
    rate, draws = (1 / records, run.batch_size) if with_replacement else (run.batch_size / records, 1)
    reach = run.batch_size if run.clipping is Clipping.MEAN else 1
    shifts = tuple(reach * shift for shift in message_pair(run).shifts)
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
        loss=Square(), rounds=run.rounds, participation=Participation((1,)), batch_size=run.batch_size,
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
