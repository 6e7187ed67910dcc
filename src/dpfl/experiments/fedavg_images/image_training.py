"""Private federated learning of image models: bhaskar2025, Algorithm 1, as an entry of the training grid."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpfl.algorithms.fedavg import FederatedAveraging, Schedule, State
from dpfl.data.loading import ImageData, load_images
from dpfl.engine import checkpoints
from dpfl.engine.batches import BatchSampler
from dpfl.engine.clip_bounds import Precision
from dpfl.engine.cross_entropy import cross_entropy
from dpfl.engine.matrix_products import multiplies_bfloat16
from dpfl.engine.model_distances import NOISELESS, UNCLIPPED_NOISELESS
from dpfl.engine.network_gradients import gradient_rule
from dpfl.engine.parameter_vector import ParameterVector
from dpfl.engine.per_record_gradients import StackedGradients
from dpfl.engine.sgd import StackedHyperparameters
from dpfl.errors import InputError
from dpfl.experiments.fedavg_images.fedavg_noise import NOISE_BY_CLIENT
from dpfl.experiments.fedavg_images.fedavg_settings import FedavgCell, FedavgSettings, Metric
from dpfl.experiments.shared.run_table import calibrated, run_table
from dpfl.grid.sweep import Folders, Sweep
from dpfl.models.image_models import build, prepare

_log = logging.getLogger(__name__)

RECORDS_AT_ONCE = 1000  # prepared together: bounds the memory beside the prepared data themselves
DISTANCES = [f"{whose}distance_to_{kind}" for kind in (UNCLIPPED_NOISELESS, NOISELESS) for whose in ("", "local_")]


def train(
    sweep: Sweep,
    folders: Folders,
    calibration: pd.DataFrame,
    checkpoint: Path | None,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """Train every cell and seed of `sweep`; return the run table, a row a run, cells in order and seeds within.

    Metrics: accuracy_pct on the test set after the last round, and accuracy_pct_by_round (JSON list). A run whose
    weights left the numbers has status "diverged" and the accuracy that was measured all the same; it touches no other
    run. With the setting measure: distances there are also local_accuracy_pct, the mean accuracy of the clients' own
    models just before the last average, and Euclidean distances between parameters, JSON lists by round:
    distance_to_plain of the averages, and local_distance_to_plain of the clients' own models before they are averaged
    (mean over clients), to the cell of this sweep with the same schedule that neither clips nor adds noise (epsilon
    .inf); distance_to_noiseless and local_distance_to_noiseless likewise to the one that clips without noise (epsilon
    .inf, clip: true). A list is empty where the sweep has no such cell that
    shares the run's batches: noise alone is to make the difference.
    `calibration` is `calibrate`'s table. With `checkpoint`, training resumes there and ends with the same bytes.
    Calls progress(epochs done, epochs in all). Raises InputError where data or settings cannot be used.
    """
    settings = FedavgSettings.of(sweep.settings, sweep.resources)
    torch.set_num_threads(settings.threads)
    if settings.precision is Precision.BFLOAT16 and not multiplies_bfloat16(settings.device):
        _log.warning("precision: this machine has no bfloat16 instructions, so that float32 would be quicker")
    data = load_images(folders.arrays)
    inputs = {part: inputs_of(settings, folders, data, part) for part in ("train", "test")}
    columns = [FedavgCell.of(cell).columns(cell) for cell in sweep.cells]
    noise = calibrated(calibration, columns)
    sizes = [len(share) for share in settings.shares(len(data.train_y), sweep.seeds[0])]
    jobs = [(seed, stack) for seed in sweep.seeds for stack in stacks(settings, sweep, sizes)]
    epochs = [max(stack.schedule.epochs) for _, stack in jobs]
    digest = _digest(sweep, calibration, data)
    restored = checkpoints.load(checkpoint, digest) if checkpoint else None
    finished: list[dict[str, Any]] = restored["finished"] if restored else []
    for seed, stack in jobs[len(finished) :]:
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
        for (seed, stack), result in zip(jobs, finished, strict=True)
        for place, index in enumerate(stack.cells)
    }
    return run_table(sweep, data.description, noise, results, [{**sweep.settings, **own} for own in columns])


@dataclass(frozen=True)
class CellStack:
    """The cells, by index in their sweep, that share batches and are trained together."""

    cells: tuple[int, ...]
    samplers: tuple[BatchSampler, ...]
    """The sampler of each client."""
    schedule: Schedule
    clips: tuple[bool, ...]


def stacks(settings: FedavgSettings, sweep: Sweep, sizes: Sequence[int]) -> list[CellStack]:
    """Return a sweep's cells by how they draw their batches, for clients with so many records."""
    cells = [FedavgCell.of(cell) for cell in sweep.cells]
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
                f"{folders.features}: {len(source)} {part} features, should be {images}; compute them anew"
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


def _resumed(running: dict[str, Any], device: torch.device) -> State:
    """Return the state that a checkpoint holds, on the device."""
    state = State(**running)
    state.weights, state.velocity = state.weights.to(device), state.velocity.to(device)
    return state


def _digest(sweep: Sweep, calibration: pd.DataFrame, data: ImageData) -> str:
    """Return a hash of what decides the numbers: settings, noise, data, torch."""
    description = json.dumps(data.description, sort_keys=True)
    noise = [calibration["noise_multiplier"].map(float.hex).tolist(), calibration[NOISE_BY_CLIENT].tolist()]
    text = json.dumps([sweep.digest(), noise, description, torch.__version__])
    return hashlib.sha256(text.encode()).hexdigest()


def _measured(settings: FedavgSettings, found: dict[str, list[float]]) -> dict[str, Any]:
    """Return the columns of what was measured beside accuracy; none where that was not asked for."""
    if settings.measure is not Metric.DISTANCES:
        return {}
    lists = {name: json.dumps(found.get(name, [])) for name in DISTANCES}
    return {"local_accuracy_pct": found["local_accuracy_pct"][0], **lists}
