"""Attacks on training, as an entry of the training grid: lower bounds on epsilon beside the one that is claimed.

With the setting `model`, a client of fedavg_images trains, with `scenario` the clients of async_dpsgd, else one of
ldp_regression; noise and claim are theirs. Each is attacked twice: by many trainings on gradients that the attacker
chooses, and by one on the real records with `canaries` among them, where half of them are guessed about, a quarter on
each side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpfl.accounting import gaussian_dp
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Sampling
from dpfl.asynchronous import async_dpsgd
from dpfl.asynchronous.schedules import AsyncSettings, InputNormalisation
from dpfl.attacks.claimed_training import ClaimedTraining
from dpfl.attacks.hostile_mates import ClientRun, hostile_mates_evidence
from dpfl.attacks.lower_bounds import (
    StepLaw,
    Worlds,
    WorstPair,
    best_statistics,
    log_likelihood_ratio,
    simulate,
    strongest_test,
)
from dpfl.attacks.messages import PAIR as CHOSEN
from dpfl.attacks.messages import (
    AsyncMessageRun,
    MessageRun,
    canary_scores,
    chosen_evidence,
    chosen_law,
    chosen_observations,
    message_law,
    message_observations,
    message_pair,
    message_scores,
)
from dpfl.attacks.noise_family import StepEvidence
from dpfl.attacks.one_run import coins, epsilon_lower_bound, mu_lower_bound, right_guesses
from dpfl.convex import ldp_regression
from dpfl.convex.federated_rounds import Clipping
from dpfl.convex.ldp_regression import RegressionSettings
from dpfl.convex.silo_jobs import LdpAlgorithm, LdpCell
from dpfl.data.datasets import CLASSES
from dpfl.data.loading import load_description, load_images, load_table
from dpfl.data.partition import random_shares, split
from dpfl.engine.batches import BatchSampler
from dpfl.engine.networks import ImageModel, build
from dpfl.engine.per_record_gradients import (
    Batch,
    GradientRule,
    ParameterVector,
    StackedGradients,
    cross_entropy,
    gradient_rule,
)
from dpfl.engine.sgd import SGD, base_noise
from dpfl.errors import InputError
from dpfl.grid.run_table import calibrated, run_table
from dpfl.grid.settings import Count, Settings
from dpfl.images import fedavg_images
from dpfl.images.fedavg_images import FedavgCell, FedavgSettings, inputs_of

if TYPE_CHECKING:
    from dpfl.grid.training_job import Folders, TrainingJob

# Canaries in private training: records that the worst adversary would choose, in with probability 1/2 each.
#
# Every canary has a direction of its own in which no other record's gradient points, and there it pulls as far as
# clipping lets a record pull. What training adds up along that direction is its score.


class CanaryGradients:
    """The gradients of a model, where a record with a label from `classes` on is a canary.

    The weights are the model's, then one for each canary, which the model does not read: the gradient of canary c is
    clip_norm along weight c of these, where every other record's gradient is 0. Canaries that are `out` add nothing.
    This is `zero_out` neighbouring, which has the dominating pair of add_or_remove.
    """

    def __init__(self, inner: GradientRule, classes: int, included: Tensor) -> None:
        self.inner, self.classes, self.included = inner, classes, included

    def clipped_sums(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Return the sums of the records, then the sums of the canaries; shape (variants, parameters + canaries)."""
        x, y, present = batch
        canary = y >= self.classes
        labels = torch.where(canary, 0, y)
        model = weights[:, : -len(self.included)].contiguous()
        sums = self.inner.clipped_sums(model, (x, labels, present * ~canary), clip_norms)
        drawn = torch.where(canary, y - self.classes, 0)
        pulls = torch.zeros(len(self.included), dtype=x.dtype, device=x.device)
        pulls.index_add_(0, drawn, self.included[drawn] * canary * present)
        return torch.cat([sums, clip_norms[:, None] * pulls], 1)

    def record_bytes(self, record: Tensor) -> int:
        """As without canaries."""
        return self.inner.record_bytes(record)


def image_scores(
    run: ClientRun, module: nn.Module, inputs: Tensor, labels: Tensor, classes: int, included: NDArray
) -> tuple[NDArray[np.float64], list[StepEvidence]]:
    """Train `module` from its weights on one client's records and the canaries; return scores and evidence, by noise.

    inputs (records, ...) float32, labels (records,). The client has records + canaries records; every noise multiplier
    of the run trains its own model, on the same batches and base noise. A score, of (noises, canaries), is the log
    likelihood ratio of what the canary's weight showed in every step. The evidence is of the steps that drew canaries
    that are in; those that are out show the noise.
    """
    records, canaries = len(labels), len(included)
    padded = torch.cat([inputs, inputs.new_zeros(canaries, *inputs.shape[1:])])
    extended_labels = torch.cat([labels, classes + torch.arange(canaries)])
    bits = torch.as_tensor(included, dtype=inputs.dtype)
    rule = CanaryGradients(gradient_rule(module, cross_entropy, padded[0]), classes, bits)
    count = len(run.noise_multipliers)
    sgd = SGD(StackedGradients(rule, padded[0], 2**30), run.variants, run.learning_rate, run.momentum)
    start = ParameterVector.of(module).flatten(dict(module.named_parameters())).detach()
    weights = torch.cat([start, start.new_zeros(canaries)]).repeat(1, count, 1)
    velocity = torch.zeros_like(weights)
    sampler = BatchSampler(run.sampling, run.batch_size, records + canaries)
    shape = canaries, run.epochs, sampler.steps_per_epoch
    seen, drawn = np.empty((count, *shape)), np.zeros(shape, dtype=bool)
    for epoch in range(run.epochs):
        address = {"seed": run.seed, "client": 0, "epoch": epoch + 1}
        for step, batch in enumerate(sampler.epoch(epoch + 1, seed=run.seed, client=0)):
            before = velocity[0, :, len(start) :].clone()
            draws = base_noise(weights.shape[-1], **address, step=step, dtype=weights.dtype, device=weights.device)
            sgd.epoch(weights, velocity, (padded, extended_labels), [[batch]], [sampler.divisor], lambda *_, z=draws: z)
            sums = (velocity[0, :, len(start) :] - run.momentum * before) * (sampler.divisor / run.clip_norm)
            seen[:, :, epoch, step] = sums.numpy()
            drawn[batch[batch >= records] - records, epoch, step] = True
    inside = np.asarray(included).astype(bool)
    scores, evidence = np.empty((count, canaries)), []
    for own, noise_multiplier, score in zip(seen, run.noise_multipliers, scores, strict=True):
        law = StepLaw.of(run.sampling, 1 / sampler.steps_per_epoch, (1.0, 0.0), noise_multiplier)
        score[:] = log_likelihood_ratio(own, law)
        evidence.append(StepEvidence.of(own[inside][drawn[inside]], own[~inside], 1.0))
    return scores, evidence


CONFIDENCE = 0.95
TRIALS = 1024
"""Trainings of an image model in each world."""
MESSAGE_TRIALS = 4096
"""Trainings of minibatch SGD in each world."""
SIMULATED = 8192
"""Simulated trainings in each world, by which the threshold is chosen."""
EVIDENCE_CLIENTS = 128
"""Clients of asynchronous DP-SGD whose records each have a direction of their own."""
REAL_TRAININGS = 8
"""Trainings of the real network with hostile mates."""
SIMULATION_SEED = 2**32


class CanarySettings(Settings):
    """The setting that is added to the audited experiment's settings: how many records are canaries."""

    canaries: Count


class TrialSettings(Settings):
    """The setting that is added where async_dpsgd is audited: trainings on chosen records in each world."""

    trials: Count


def calibrate(job: TrainingJob, description: Mapping[str, Any]) -> pd.DataFrame:
    """Return the noise of each cell, as the audited algorithm calibrates it where every record is clipped.

    With clipping: mean the noise stays that of clipping: record, which the claim is made for: a known-bad variant. So
    does it with preparation: batch_normalised, where the claim is that of plain inputs.
    Raises InputError where settings cannot be used, and of asynchronous DP-SGD for what is not attacked: the messages
    are those of a constant noise on batches of fixed size, on plain or batch-normalised inputs.
    """
    if _is_image(job):
        return fedavg_images.calibrate(job, description)
    if _is_asynchronous(job):
        for cell in job.cells:
            _require_attacked({**job.settings, **cell})
        plain = [
            {name: "none" if name == "preparation" else value for name, value in cell.items()} for cell in job.cells
        ]
        table = async_dpsgd.calibrate(replace(job, cells=tuple(plain)), description)
        return table.assign(preparation=[cell["preparation"] for cell in job.cells])
    return ldp_regression.calibrate(replace(job, settings={**job.settings, "clipping": "record"}), description)


def _require_attacked(settings: Mapping[str, Any]) -> None:
    """Raise InputError for asynchronous DP-SGD whose claim would be of other messages than those that are attacked."""
    attacked = {
        "strategy": ("constant",),
        "sampling": (str(Sampling.FIXED),),
        "preparation": ("none", str(InputNormalisation.BATCH)),
    }
    for name, values in attacked.items():
        value = str(settings.get(name, values[0]))
        if value not in values:
            raise InputError(f"{name}: {value!r} is not attacked, should be {' or '.join(values)}")


def train(
    job: TrainingJob,
    folders: Folders,
    calibration: pd.DataFrame,
    checkpoint: Path | None,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """Return the run table, a row a (cell, seed). `checkpoint` is not used: a seed takes minutes at most.

    claimed_epsilon is that of the statement; every bound below holds at `confidence`, each by itself.
    - epsilon_lower_bound: from `positives` trainings in each of two neighbouring worlds on gradients that the attacker
      chooses (dpfl.attacks.lower_bounds, for the statement's sampler and relation; mates: whether the other records are
      "hostile" or "silent"). `statistic` called true_positives of one world rightly and false_positives of the other
      wrongly; its threshold was chosen on simulated trainings. Assumes nothing on the law of what is released.
    - one_run_lower_bound: from one training on the real records with `canaries` among them, half of them guessed about
      (`guesses`, of which right_guesses are right): Steinke, Nasr, Jagielski 2023.
    - one_run_gaussian_lower_bound: from the same guesses, were the trade-off curve Gaussian: Mahloujifar, Melis,
      Chaudhuri 2025.
    The columns chosen_*, hostile_* and one_run_shift to one_run_squares are evidence (StepEvidence): family_epsilon
    takes it, for the bound that assumes Gaussian noise and the stated sampler. hostile_* is of the real network with
    hostile mates (dpfl.attacks.hostile_mates; of image models on Poisson batches). The others are of the steps of the
    trainings above; chosen_* of async_dpsgd of a training whose chosen records each have a direction of their own.
    Raises InputError where settings or data cannot be used.
    """
    noise = calibrated(calibration, job.cells)
    results: dict[tuple[int, int], dict[str, Any]] = {}
    for done, seed in enumerate(job.seeds):
        progress(done, len(job.seeds))
        included = coins(seed, CanarySettings.of(job.settings).canaries)
        attack = _asynchronous if _is_asynchronous(job) else _images if _is_image(job) else _messages
        for index, (own, evidence, found) in enumerate(attack(job, folders, calibration, seed, included)):
            claim = {
                "claimed_epsilon": noise[index]["privacy_epsilon_proven"],
                "known_bad": _is_known_bad(job, job.cells[index]),
            }
            one_run = _one_run(noise[index]["privacy_delta"], own, included) | evidence.columns("one_run")
            results[index, seed] = claim | found | one_run
    settings = [
        {**job.settings, **cell, "batch_size": _batch_size(job, own)}
        for cell, own in zip(job.cells, noise, strict=True)
    ]
    for lists in ("scenarios", "strategies"):  # of the whole paper
        settings = [{name: value for name, value in each.items() if name != lists} for each in settings]
    return run_table(job, load_description(folders.arrays), noise, results, settings)


def _is_known_bad(job: TrainingJob, cell: Mapping[str, Any]) -> bool:
    """Return whether a cell's claim is known to be false."""
    if _is_asynchronous(job):
        return cell["preparation"] == InputNormalisation.BATCH
    return not _is_image(job) and RegressionSettings.of(job.settings).clipping is Clipping.MEAN


def is_known_bad(job: TrainingJob, cell: Mapping[str, Any]) -> bool:
    """Return whether a cell is a control: `train` marks it as known_bad, for the claim that it states is false."""
    return _is_known_bad(job, cell)


def _is_asynchronous(job: TrainingJob) -> bool:
    """Return whether asynchronous DP-SGD is audited."""
    return "scenario" in job.settings


def _batch_size(job: TrainingJob, noise: Mapping[str, Any]) -> int:
    """Return the batch that a cell's calibration chose, or the job's: a paper's noise table has gaps for others."""
    chosen = noise.get("batch_size")
    return int(job.settings["batch_size"] if chosen is None or pd.isna(chosen) else chosen)


def _is_image(job: TrainingJob) -> bool:
    """Return whether an image model is audited."""
    return "model" in job.settings


Attacked = Iterable[tuple[NDArray[np.float64], StepEvidence, dict[str, Any]]]
"""Of every cell, the scores of the canaries, what their steps show, and the columns from chosen records."""


def _images(
    job: TrainingJob, folders: Folders, calibration: pd.DataFrame, seed: int, included: NDArray[np.int64]
) -> Attacked:
    """Attack an image model: the first client trains without averaging, which only hides."""
    settings = FedavgSettings.of(job.settings, job.resources)
    torch.set_num_threads(settings.threads)
    if settings.model is not ImageModel.SCATTER_LINEAR:
        raise InputError(f"model: {settings.model} has no canaries; they are for scatter_linear")
    data = load_images(folders.arrays)
    rows = np.sort(settings.shares(len(data.train_y), seed)[0][: _real(calibration, included)])
    inputs, labels = inputs_of(settings, folders, data, "train", rows)
    epochs = {sum(FedavgCell.of(cell).local_epochs) for cell in job.cells}
    if len(epochs) > 1:
        raise InputError(f"local_epochs: cells with canaries train for one number of epochs, not {sorted(epochs)}")
    run = ClientRun(
        settings.batch_size, settings.sampling, epochs.pop(), settings.learning_rate, settings.momentum,
        settings.clip_norm, tuple(calibration["noise_multiplier"]), seed,
    )  # fmt: skip
    module = build(settings.model, data.train_x.shape[1:], seed, settings.network, settings.feature_norm)
    found = _image_attacks(job, calibration, seed)
    if settings.sampling is Sampling.POISSON:
        real = hostile_mates_evidence(run, module, inputs[0], len(rows) + len(included), REAL_TRAININGS)
        found = [one | evidence.columns("hostile") for one, evidence in zip(found, real, strict=True)]
    return zip(*image_scores(run, module, inputs, labels, CLASSES, included), found, strict=True)


def _messages(
    job: TrainingJob, folders: Folders, calibration: pd.DataFrame, seed: int, included: NDArray[np.int64]
) -> Attacked:
    """Attack the messages of minibatch SGD. Every client has its part of the canaries and is seen by its own messages,
    before the server adds others to them; each adds noise of its own, so the clients together are one run.
    """
    settings = RegressionSettings.of(job.settings)
    clients = settings.clients
    trial = split(load_table(folders.arrays), clients, list(settings.standardise), seed)
    scores, evidence = [], []
    for client, own in enumerate(np.array_split(included, clients)):
        first = int(trial.starts[client])
        rows = slice(first, first + _real(calibration, own))
        run = _message_run(job, calibration, clients * seed + client)
        found = message_scores(run, trial.train_x[rows], trial.train_y[rows], own)
        scores.append(found[0])
        evidence.append(found[1])
    together = (reduce(add, each) for each in zip(*evidence, strict=True))
    return zip(np.concatenate(scores, axis=1), together, _message_attacks(job, calibration, seed), strict=True)


def _image_attacks(job: TrainingJob, calibration: pd.DataFrame, seed: int) -> list[dict[str, Any]]:
    """Return what trainings on chosen gradients show of every cell, with the first client's sampler and noise."""
    settings, found = FedavgSettings.of(job.settings, job.resources), []
    if settings.sampling is Sampling.FIXED:
        raise InputError(f"sampling: {settings.sampling} has no attack on an image model; take one by epochs or coins")
    for cell, noise in zip(map(FedavgCell.of, job.cells), calibration.to_dict("records"), strict=True):
        sampler = BatchSampler(settings.sampling, settings.batch_size, int(noise["privacy_records"]))
        claim = ClaimedTraining(
            sampler,
            Neighbouring(noise["privacy_neighbouring"]),
            sum(cell.local_epochs),
            settings.clip_norm,
            noise["noise_multiplier"],
            ((noise["privacy_epsilon_proven"], noise["privacy_delta"]),),
        )
        seen = tuple(claim.seen(claim.conforming, TRIALS, world=world, seed=seed) for world in (0, 1))
        drawn = claim.seen(replace(claim, noise_multiplier=0.0).conforming, TRIALS, world=0, seed=seed)
        found.append(_two_worlds(claim.law, cast("Worlds", seen), drawn, claim.pair, noise["privacy_delta"]))
    return found


def _message_attacks(job: TrainingJob, calibration: pd.DataFrame, seed: int) -> list[dict[str, Any]]:
    """Return what messages of a client whose records the attacker chooses show of every cell."""
    records = int(calibration["privacy_records"].iloc[0])
    run = _message_run(job, calibration, seed)
    *seen, (drawn, _) = message_observations(replace(run, noise_stds=(*run.noise_stds, 0.0)), records, MESSAGE_TRIALS)
    deltas = calibration["privacy_delta"]
    return [
        _two_worlds(message_law(run, records, noise_std), tuple(worlds), drawn, message_pair(run), delta)
        for noise_std, worlds, delta in zip(run.noise_stds, seen, deltas, strict=True)
    ]


def _two_worlds(
    law: StepLaw, seen: Worlds, silent: NDArray[np.float64], pair: WorstPair, delta: float
) -> dict[str, Any]:
    """Return the columns of the bounds from observations in two worlds; `silent`: those of world P without noise, with
    the same draws of records, so that it shows which steps drew the one in question."""
    shape = (SIMULATED, *seen[0].shape[1:])
    design = tuple(simulate(law, shape, world=world, seed=SIMULATION_SEED) for world in (0, 1))
    tried = best_statistics(law)
    evidence = strongest_test(cast("Worlds", design), seen, tried, ((0.0, delta),), CONFIDENCE)
    shift = law.shifts[0]
    steps = StepEvidence.of(np.sign(shift) * seen[0][np.abs(silent) > 0.5], seen[1], abs(shift))
    return {
        "mates": "hostile" if pair.mates else "silent",
        "statistic": evidence.statistic,
        "positives": evidence.errors.positives,
        "true_positives": evidence.errors.true_positives,
        "false_positives": evidence.errors.false_positives,
        "confidence": CONFIDENCE,
        "epsilon_lower_bound": max(0.0, evidence.excess),
        **steps.columns("chosen"),
    }


def _one_run(delta: float, scores: NDArray[np.float64], included: NDArray[np.int64]) -> dict[str, Any]:
    """Return the columns of the bounds from one training with canaries."""
    guesses = 2 * (len(included) // 4)
    right = right_guesses(scores, included, guesses)
    counts = {"canaries": len(included), "guesses": guesses, "right": right}
    mu = mu_lower_bound(**counts, confidence=CONFIDENCE)
    return {
        "guesses": guesses,
        "right_guesses": right,
        "one_run_lower_bound": epsilon_lower_bound(delta=delta, **counts, confidence=CONFIDENCE),
        "one_run_gaussian_lower_bound": float(gaussian_dp.epsilon(delta, mu)),
    }


def _asynchronous(
    job: TrainingJob, folders: Folders, calibration: pd.DataFrame, seed: int, included: NDArray[np.int64]
) -> Attacked:
    """Return the scores of the canaries of every cell, and what runs on chosen records show of it.

    Every cell has randomness of its own: a client's batches and noise do not depend on the network, so with the same
    seed the messages on chosen records would be the same in every scenario.
    """
    torch.set_num_threads(int(job.resources["threads"]))
    data, found = load_images(folders.arrays), []
    inputs, labels = async_dpsgd.features(data.train_x), torch.from_numpy(np.array(data.train_y))
    trials = TrialSettings.of(job.settings).trials
    rows = zip(job.cells, calibration.to_dict("records"), strict=True)
    for index, (cell, noise) in enumerate(rows):
        given = AsyncSettings.of(async_dpsgd.given(job, cell))
        plan = async_dpsgd.AsyncCell.of(given, len(labels))
        own, records = plan.posture, plan.posture.records
        run = AsyncMessageRun(
            network=plan.network, rounds=own.rounds, epochs=own.epochs, batch_size=own.batch_size,
            clip_norm=own.clip_norm, noise_multiplier=noise["noise_multiplier"], learning_rate=plan.learning_rate,
            seed=len(job.cells) * seed + index, normalise=async_dpsgd.batch_rule(own.preparation),
        )  # fmt: skip
        shares = [share[:records] for share in random_shares(len(labels), plan.clients, 1 / plan.clients, seed)]
        seen, drawn = chosen_observations(run, records, trials)
        bounds = _two_worlds(chosen_law(run, records), tuple(seen), drawn[0], CHOSEN, noise["privacy_delta"])
        if run.normalise is None:
            bounds |= chosen_evidence(run, records, EVIDENCE_CLIENTS).columns("chosen")
        found.append((*canary_scores(run, inputs, labels, shares, included, async_dpsgd.CLASSES), bounds))
    return found


def _message_run(job: TrainingJob, calibration: pd.DataFrame, seed: int) -> MessageRun:
    """Return what one client sends; raises InputError where another algorithm is asked for."""
    settings = RegressionSettings.of(job.settings)
    if any(LdpCell.of(cell).algorithm is not LdpAlgorithm.MINIBATCH for cell in job.cells):
        raise InputError("algorithm: canaries are for minibatch")
    clip, batch = settings.clip_norms[0], int(calibration["batch_size"].iloc[0])
    return MessageRun(
        settings.rounds, batch, settings.sampling, settings.clipping, clip,
        tuple(calibration["noise_multiplier"] * clip / batch), seed,
    )  # fmt: skip


def _real(calibration: pd.DataFrame, included: NDArray[np.int64]) -> int:
    """Return how many records are no canaries; raises InputError where there are more canaries than records."""
    records = int(calibration["privacy_records"].iloc[0])
    if len(included) > records:
        raise InputError(f"canaries: {len(included)} of a client's {records} records cannot be canaries; take fewer")
    return records - len(included)
