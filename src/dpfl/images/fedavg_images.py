"""Private federated learning of image models: bhaskar2025, Algorithm 1, as an entry of the training grid."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator, model_validator
from torch import Tensor

from dpfl.accounting import dpsgd
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Sampling
from dpfl.accounting.statements import Gaussian, PrivacyStatement
from dpfl.data.loading import ImageData, load_images
from dpfl.data.partition import random_shares
from dpfl.engine import checkpoints
from dpfl.engine.batches import BatchSampler, accounted_sampler
from dpfl.engine.layers import Precision, multiplies_bfloat16
from dpfl.engine.networks import Architecture, FeatureNorm, ImageModel, Pixels, build, prepare
from dpfl.engine.per_record_gradients import ParameterVector, StackedGradients, cross_entropy, gradient_rule
from dpfl.engine.sgd import NOISELESS, UNCLIPPED_NOISELESS, StackedHyperparameters
from dpfl.errors import InputError
from dpfl.grid.run_table import calibrated, run_table
from dpfl.grid.settings import Choice, Count, Epsilon, Positive, Probability, Settings, Several, among
from dpfl.images.fedavg import FederatedAveraging, Schedule, State

if TYPE_CHECKING:
    from dpfl.grid.training_job import Folders, TrainingJob

# Settings and cells of a federated averaging job on images.


class ClientRecords(StrEnum):
    """Ways in which clients come by their shares of the training records."""

    INDEPENDENT = "independent"
    """Each client draws its own share of all records, so that clients overlap."""
    DISJOINT = "disjoint"
    """Slices of one permutation, as long as the shares add up to at most 1."""


class PlainBatches(StrEnum):
    """Order of the batches of cells that do not clip."""

    FIXED = "fixed"
    """The same batches in every epoch."""
    SHUFFLED = "shuffled"
    """A fresh permutation in every epoch."""


class Accountant(StrEnum):
    """Calibration of the noise, see dpfl.accounting.dpsgd."""

    PRV = "prv"
    RDP = "rdp"
    PLD = "pld"


class Metric(StrEnum):
    """Measures besides accuracy."""

    NONE = "none"
    DISTANCES = "distances"


class FedavgSettings(Settings):
    """A job's settings and resources. `client_share`: one number, or one a client; a single client has all records.

    Defaults are those of the authors' code. `sampling` draws the batches of cells that clip, `plain_batches` says how
    those of plain SGD, which has no guarantee to prove, follow one another.
    """

    model: Choice[ImageModel]
    clients: Count
    client_share: Several[Annotated[float, Field(gt=0, le=1)]]
    batch_size: Count
    delta: Probability
    clip_norm: Positive
    learning_rate: Positive
    momentum: Annotated[float, Field(ge=0, lt=1)]
    sampling: Annotated[Choice[Sampling], among(Sampling.POISSON, Sampling.BALLS_IN_BINS, Sampling.SHUFFLED)] = (
        Sampling.POISSON
    )
    plain_batches: Choice[PlainBatches] = PlainBatches.FIXED
    client_records: Choice[ClientRecords] = ClientRecords.INDEPENDENT
    accountant: Choice[Accountant] = Accountant.PRV
    network: Choice[Architecture] = Architecture.AUTHORS
    pixels: Choice[Pixels] = Pixels.AUTHORS
    feature_norm: Choice[FeatureNorm] = FeatureNorm.LEARNT
    precision: Choice[Precision] = Precision.FLOAT32
    measure: Choice[Metric] = Metric.NONE
    device: str
    threads: Count
    memory_gb: Positive

    @field_validator("client_share", mode="before")
    @classmethod
    def _share_of_each(cls, value: Any, info: ValidationInfo) -> Any:
        """Return one share a client."""
        clients = info.data.get("clients", 1)
        if not isinstance(value, list | tuple):
            return (1.0,) if clients == 1 else (value,) * clients
        if len(value) != clients:
            raise ValueError(
                f"client_share: {len(value)} shares for {clients} clients; list one for each, or one number"
            )
        return value

    @field_validator("device")
    @classmethod
    def _is_there(cls, value: str) -> str:
        """Raise ValueError for a device that this machine lacks."""
        if value != "cpu" and not torch.cuda.is_available():
            raise ValueError(f"device: {value} is not there; set training.device to cpu")
        return value

    def shares(self, records: int, seed: int) -> list[NDArray[np.int64]]:
        """Return each client's indices into the `records` training records."""
        independent = self.client_records is ClientRecords.INDEPENDENT
        return random_shares(records, self.clients, self.client_share, seed, independent=independent)

    @property
    def memory_bytes(self) -> float:
        """Memory that the training may take, in bytes."""
        return self.memory_gb * 2**30


class FedavgCell(Settings):
    """One variant of a job: `local_epochs` has the epochs E_r of each round.

    local_epochs is given as a number for `rounds` rounds, or as a list with a number for each. epsilon inf adds no
    noise. clip is given where it differs from "clip exactly where there is noise": true for a run without noise.
    """

    epsilon: Epsilon
    rounds: Count | None = None
    local_epochs: Annotated[Several[Count], Field(min_length=1)]
    clip: bool | None = None

    @field_validator("local_epochs", mode="before")
    @classmethod
    def _epochs_of_each(cls, value: Any, info: ValidationInfo) -> Any:
        """Return the epochs of each round."""
        rounds = info.data.get("rounds")
        return value if rounds is None or isinstance(value, list | tuple) else (value,) * rounds

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise ValueError where keys do not go together."""
        if self.rounds not in (None, len(self.local_epochs)):
            raise ValueError(f"rounds: {self.rounds} are not the {len(self.local_epochs)} that local_epochs lists")
        if self.private and not self.clips:
            raise ValueError(f"clip: false has no privacy, but epsilon is {self.epsilon}; leave clip out")
        return self

    @property
    def clips(self) -> bool:
        """True where gradients are clipped."""
        return self.private if self.clip is None else self.clip

    @property
    def private(self) -> bool:
        """True where noise is added."""
        return not math.isinf(self.epsilon)

    def batches(self, settings: FedavgSettings, records: int) -> BatchSampler:
        """Return the sampler of the cell's batches, for a client with `records` records."""
        if self.clips:
            return BatchSampler(settings.sampling, settings.batch_size, records)
        fixed = settings.plain_batches is PlainBatches.FIXED
        return BatchSampler(Sampling.SHUFFLED, settings.batch_size, records, fixed_order=fixed)

    def columns(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the cell that was `given` as table columns: its keys, rounds, and local_epochs_by_round (JSON list).

        local_epochs is a whole number in every table: 0 where it differs between rounds.
        """
        constant = len(set(self.local_epochs)) == 1
        return {
            **given,
            "local_epochs": self.local_epochs[0] if constant else 0,
            "rounds": len(self.local_epochs),
            "local_epochs_by_round": json.dumps(self.local_epochs),
        }


# The noise that meets each cell's budget, and what it guarantees.

NOISE_BY_CLIENT = "privacy_noise_multiplier_by_client"


def calibrate(job: TrainingJob, description: Mapping[str, Any]) -> pd.DataFrame:
    """Return the noise and the privacy statement of each cell of `job`: a row for each cell, in order.

    Columns: the cell's (FedavgCell.columns), noise_multiplier (0 without privacy), privacy_*. The noise meets the
    cell's epsilon, which is the claim, by the accountant of the settings, for Poisson samples at rate 1/ceil(n/B) over
    all epochs; the statement says what is proven and refuted for the batches that are really drawn. A client's number
    of records n is public, so neighbours differ in one record's contribution (zero_out), and sampling rate and divisor
    are the same for both. Where clients differ in size each has the noise that meets the budget at its own rate and
    number of steps: privacy_noise_multiplier_by_client (JSON list, else empty), and all the rest is the smallest
    client's. `description` is the dataset's, for its number of training records.
    Raises InputError for settings that cannot be used. Source: bhaskar2025, section on experiments.
    """
    settings = FedavgSettings.of(job.settings, job.resources)
    sizes = [len(share) for share in settings.shares(description["records"]["train"], job.seeds[0])]
    rows = []
    for given in job.cells:
        cell = FedavgCell.of(given)
        noise = [_noise_multiplier(settings, cell, size) for size in sizes]
        smallest = min(sizes)
        stated = _statement(settings, cell, sizes, smallest, noise[sizes.index(smallest)])
        by_client = noise if cell.private and len(set(sizes)) > 1 else []
        own = {"noise_multiplier": stated.noise_multiplier, **stated.columns(), NOISE_BY_CLIENT: json.dumps(by_client)}
        rows.append({**cell.columns(given), **own})
    return pd.DataFrame(rows)


def _noise_multiplier(settings: FedavgSettings, cell: FedavgCell, records: int) -> float:
    """Return the noise of a client with `records` records; 0 without privacy."""
    if not cell.private:
        return 0.0
    batches = BatchSampler(Sampling.POISSON, settings.batch_size, records)
    poisson = {"sample_rate": batches.sample_rate, "delta": settings.delta}
    steps = sum(cell.local_epochs) * batches.steps_per_epoch
    return _calibrated(cell.epsilon, steps, settings.accountant.value, **poisson)


@cache
def _calibrated(epsilon: float, steps: int, accountant: str, sample_rate: float, delta: float) -> float:
    """Return the least noise for Poisson samples, once for all cells that share it."""
    run = {"sample_rate": sample_rate, "steps": steps, "delta": delta}
    return float(dpsgd.noise_multiplier(target_epsilon=epsilon, accountant=accountant, **run))


def _statement(
    settings: FedavgSettings, cell: FedavgCell, sizes: list[int], records: int, noise_multiplier: float
) -> PrivacyStatement:
    """Return the statement of a client with `records` records."""
    batches = cell.batches(settings, records)
    return PrivacyStatement.of(
        Gaussian(),
        accounted_sampler(batches),
        neighbouring=Neighbouring.ZERO_OUT,
        records=records,
        clip_norm=settings.clip_norm if cell.clips else math.inf,
        noise_multiplier=noise_multiplier,
        steps=sum(cell.local_epochs) * batches.steps_per_epoch,
        delta=settings.delta,
        note=_note(settings, cell, sizes),
    )


def _note(settings: FedavgSettings, cell: FedavgCell, sizes: list[int]) -> str:
    """Say how the guarantee relates to what is done."""
    if not cell.clips:
        return "every epoch has the same batches" if cell.batches(settings, min(sizes)).fixed_order else ""
    note = f"divisor {cell.batches(settings, min(sizes)).divisor}; the noise is calibrated for Poisson sampling"
    note += f" by {_ACCOUNTANTS[settings.accountant]}"
    if settings.sampling is not Sampling.POISSON:
        note += f", the batches are {settings.sampling}"
    if settings.precision is Precision.BFLOAT16:
        note += "; gradients are bfloat16, their norms and clipped sums float32"
    if len(set(sizes)) > 1:
        note += (
            f"; clients hold {min(sizes)} to {max(sizes)} records, each has the noise that meets the budget at its own "
            "sampling rate, and what is said here is the smallest client's"
        )
    if settings.clients > 1 and (settings.client_records is ClientRecords.INDEPENDENT or _overlap(settings)):
        note += (
            "; one client's budget: clients overlap, a record is with "
            f"{sum(settings.client_share):.3g} of them on average and spends the composition of its holders' budgets"
        )
    return note


_ACCOUNTANTS = {
    Accountant.PRV: "Opacus's PRV accountant",
    Accountant.RDP: "Opacus's RDP accountant",
    Accountant.PLD: "the PLD accountant",
}


def _overlap(settings: FedavgSettings) -> bool:
    """Return whether disjoint shares are impossible."""
    return sum(settings.client_share) > 1 + 1e-9


_log = logging.getLogger(__name__)

RECORDS_AT_ONCE = 1000  # prepared together: bounds the memory beside the prepared data themselves
DISTANCES = [f"{whose}distance_to_{kind}" for kind in (UNCLIPPED_NOISELESS, NOISELESS) for whose in ("", "local_")]


def train(
    job: TrainingJob,
    folders: Folders,
    calibration: pd.DataFrame,
    checkpoint: Path | None,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """Train every cell and seed of `job`; return the run table, a row for each run, cells in order and seeds within.

    Metrics: accuracy_pct on the test set after the last round, and accuracy_pct_by_round (JSON list). A run whose
    weights left the numbers has status "diverged" and the accuracy that was measured all the same; it touches no other
    run. With the setting measure: distances there are also local_accuracy_pct, the mean accuracy of the clients' own
    models just before the last average, and Euclidean distances between parameters, JSON lists by round:
    distance_to_plain of the averages, and local_distance_to_plain of the clients' own models before they are averaged
    (mean over clients), to the cell of this job with the same schedule that neither clips nor adds noise (epsilon
    .inf); distance_to_noiseless and local_distance_to_noiseless likewise to the one that clips without noise (epsilon
    .inf, clip: true). A list is empty where the job has no such cell that
    shares the run's batches: noise alone is to make the difference.
    `calibration` is `calibrate`'s table. With `checkpoint`, training resumes there and ends with the same bytes.
    Calls progress(epochs done, epochs in all). Raises InputError where data or settings cannot be used.
    """
    settings = FedavgSettings.of(job.settings, job.resources)
    torch.set_num_threads(settings.threads)
    if settings.precision is Precision.BFLOAT16 and not multiplies_bfloat16(settings.device):
        _log.warning("precision: this machine has no bfloat16 instructions, so that float32 would be quicker")
    data = load_images(folders.arrays)
    inputs = {part: inputs_of(settings, folders, data, part) for part in ("train", "test")}
    columns = [FedavgCell.of(cell).columns(cell) for cell in job.cells]
    noise = calibrated(calibration, columns)
    sizes = [len(share) for share in settings.shares(len(data.train_y), job.seeds[0])]
    tasks = [(seed, stack) for seed in job.seeds for stack in stacks(settings, job, sizes)]
    epochs = [max(stack.schedule.epochs) for _, stack in tasks]
    digest = _digest(job, calibration, data)
    restored = checkpoints.load(checkpoint, digest) if checkpoint else None
    finished: list[dict[str, Any]] = restored["finished"] if restored else []
    for seed, stack in tasks[len(finished) :]:
        run = _federation(settings, data, inputs, calibration, stack, seed)
        state = run.start()
        if restored and restored["running"]:
            state = _resumed(restored["running"], settings.device)
        restored = None
        done = len(finished)
        while state.epoch < epochs[done]:
            averaged = run.advance(state)
            if checkpoint and averaged:
                checkpoints.save(checkpoint, {"finished": finished, "running": state.plain()}, digest)
            progress(sum(epochs[:done]) + state.epoch, sum(epochs))
        finished.append({name: getattr(state, name) for name in ("accuracy_pct", "diverged", "measured")})
        if checkpoint:
            checkpoints.save(checkpoint, {"finished": finished, "running": {}}, digest)
    results = {
        (index, seed): _result(settings, result, place)
        for (seed, stack), result in zip(tasks, finished, strict=True)
        for place, index in enumerate(stack.cells)
    }
    return run_table(job, data.description, noise, results, [{**job.settings, **own} for own in columns])


@dataclass(frozen=True)
class CellStack:
    """The cells, by index in their job, that share batches and are trained together."""

    cells: tuple[int, ...]
    samplers: tuple[BatchSampler, ...]
    """The sampler of each client."""
    schedule: Schedule
    clips: tuple[bool, ...]


def stacks(settings: FedavgSettings, job: TrainingJob, sizes: Sequence[int]) -> list[CellStack]:
    """Return a job's cells by how they draw their batches, for clients with so many records."""
    cells = [FedavgCell.of(cell) for cell in job.cells]
    found: dict[tuple[BatchSampler, ...], list[int]] = {}
    for index, cell in enumerate(cells):
        found.setdefault(tuple(cell.batches(settings, size) for size in sizes), []).append(index)
    return [
        CellStack(
            tuple(indices),
            samplers,
            Schedule(tuple(cells[index].local_epochs for index in indices)),
            tuple(cells[index].clips for index in indices),
        )
        for samplers, indices in found.items()
    ]


def _result(settings: FedavgSettings, result: dict[str, Any], index: int) -> dict[str, Any]:
    """Return the columns of one run's metrics, of what a seed's stack of cells gave."""
    by_round = result["accuracy_pct"][index]
    return {
        "status": "diverged" if result["diverged"][index] else "finished",
        "accuracy_pct": by_round[-1],
        "accuracy_pct_by_round": json.dumps(by_round),
        **_measured(settings, result["measured"][index]),
    }


def inputs_of(
    settings: FedavgSettings, folders: Folders, data: ImageData, part: str, rows: NDArray[np.int64] | None = None
) -> tuple[Tensor, Tensor]:
    """Return what the model reads and the labels of one part of the data, or of some of its rows, on the device.

    Raises InputError if the scattering features are missing or of another data set.
    """
    rows = np.arange(len(getattr(data, f"{part}_y"))) if rows is None else rows
    labels = torch.from_numpy(getattr(data, f"{part}_y")[rows]).to(settings.device)
    source = getattr(data, f"{part}_x")
    if settings.model.reads_features:
        path = folders.features / f"{part}_x.npy"
        if not path.is_file():
            raise InputError(f"{path}: no such file; compute the scattering features first (dpfl features)")
        images, source = len(source), np.load(path, mmap_mode="r", allow_pickle=False)
        if len(source) != images:
            raise InputError(
                f"{folders.features}: {len(source)} {part} features, should be {images}; compute them again"
            )
    inputs = torch.empty((len(rows), *source.shape[1:]), dtype=torch.float32, device=settings.device)
    dataset = data.description["stand_in_for"] or data.description["name"]
    for start in range(0, len(rows), RECORDS_AT_ONCE):
        chunk = slice(start, start + RECORDS_AT_ONCE)
        raw = torch.from_numpy(np.asarray(source[rows[chunk]]))
        inputs[chunk] = prepare(settings.model, raw, dataset, settings.pixels, settings.feature_norm)
    return inputs, labels


def _federation(
    settings: FedavgSettings,
    data: ImageData,
    inputs: dict[str, tuple[Tensor, Tensor]],
    calibration: pd.DataFrame,
    stack: CellStack,
    seed: int,
) -> FederatedAveraging:
    """Return the federation of one stack and seed, its clients' shares and its initial model drawn."""
    shares = settings.shares(len(data.train_y), seed)
    accounted = int(calibration["privacy_records"].iloc[0])
    if any(len(share) < accounted for share in shares):
        raise InputError(f"a client has fewer than the {accounted} records that the noise was calibrated for")
    module = build(settings.model, data.train_x.shape[1:], seed, settings.network, settings.feature_norm)
    initial = ParameterVector.of(module).flatten(dict(module.named_parameters())).detach()
    module = module.to(settings.device)
    rule = gradient_rule(module, cross_entropy, inputs["train"][0][0], settings.precision.passes)
    return FederatedAveraging(
        module=module,
        gradients=StackedGradients(rule, inputs["train"][0][0], settings.memory_bytes),
        variants=_variants(settings, calibration, stack),
        schedule=stack.schedule,
        shares=shares,
        initial=initial.to(settings.device),
        train=inputs["train"],
        test=inputs["test"],
        samplers=stack.samplers,
        learning_rate=settings.learning_rate,
        momentum=settings.momentum,
        seed=seed,
        measure=settings.measure is Metric.DISTANCES,
    )


def _variants(settings: FedavgSettings, calibration: pd.DataFrame, stack: CellStack) -> StackedHyperparameters:
    """Return what a stack's cells clip and what noise each client adds in each."""
    clips, own = torch.tensor(stack.clips), calibration.iloc[list(stack.cells)]
    noise = [
        json.loads(by_client) or [common] * settings.clients
        for by_client, common in zip(own[NOISE_BY_CLIENT], own["noise_multiplier"], strict=True)
    ]
    return StackedHyperparameters(
        torch.where(clips, settings.clip_norm, math.inf).to(settings.device),
        torch.tensor(noise, dtype=torch.float32, device=settings.device).T,
    )


def _resumed(running: dict[str, Any], device: str) -> State:
    """Return the state that a checkpoint holds, on the device."""
    state = State(**running)
    state.weights, state.velocity = state.weights.to(device), state.velocity.to(device)
    return state


def _digest(job: TrainingJob, calibration: pd.DataFrame, data: ImageData) -> str:
    """Return a hash of what decides the numbers: settings, noise, data, torch."""
    description = json.dumps(data.description, sort_keys=True)
    noise = [calibration["noise_multiplier"].map(float.hex).tolist(), calibration[NOISE_BY_CLIENT].tolist()]
    text = json.dumps([job.digest(), noise, description, torch.__version__])
    return hashlib.sha256(text.encode()).hexdigest()


def _measured(settings: FedavgSettings, found: dict[str, list[float]]) -> dict[str, Any]:
    """Return the columns of what was measured beside accuracy; none where that was not asked for."""
    if settings.measure is not Metric.DISTANCES:
        return {}
    lists = {name: json.dumps(found.get(name, [])) for name in DISTANCES}
    return {"local_accuracy_pct": found["local_accuracy_pct"][0], **lists}
