"""Private federated learning of image models: bhaskar2025, Algorithm 1, as an entry of the training grid."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

from dpfl.accounting import dpsgd
from dpfl.accounting.relations import Sampling
from dpfl.accounting.statement import PrivacyStatement
from dpfl.data.partition import random_shares
from dpfl.data.read import ImageData, load_images
from dpfl.engine import checkpoints
from dpfl.engine.batches import steps_per_epoch
from dpfl.engine.gradients import StackedGradients
from dpfl.engine.layers import gradient_rule
from dpfl.engine.sgd import Variants
from dpfl.errors import InputError
from dpfl.federated.averaging import FederatedAveraging, Schedule, State
from dpfl.grid import Folders, Sweep, is_private
from dpfl.models.image import ImageModel, build, image_model, prepare

RECORDS_AT_ONCE = 1000  # prepared together: bounds the memory beside the prepared data themselves
ACCOUNTANT = "rdp"  # Opacus's own default at the time: the paper does not name one, and its numbers fit


@dataclass(frozen=True)
class Settings:
    """What a sweep's settings and machine mean here. Raises InputError naming the first that cannot be used."""

    model: ImageModel
    clients: int
    client_share: float
    batch_size: int
    delta: float
    clip_norm: float
    learning_rate: float
    momentum: float
    sampling: Sampling
    device: torch.device
    threads: int
    memory_bytes: float

    @classmethod
    def of(cls, sweep: Sweep) -> Settings:
        """Read the settings and the machine of `sweep`."""
        given, machine = sweep.settings, sweep.machine
        if given["initialisation"] != "common":
            raise InputError(f"initialisation: {given['initialisation']!r} is unknown, should be 'common'")
        if given["sampling"] not in (Sampling.SHUFFLED, Sampling.POISSON):
            known = f"{Sampling.SHUFFLED} or {Sampling.POISSON}"
            raise InputError(f"sampling: {given['sampling']!r} is not done here, should be {known}")
        if machine["device"] != "cpu" and not torch.cuda.is_available():
            raise InputError(f"device: {machine['device']} is not there; set training.device to cpu")
        clients = int(given["clients"])
        return cls(
            model=image_model(given["model"]),
            clients=clients,
            client_share=1.0 if clients == 1 else float(given["client_share"]),
            batch_size=int(given["batch_size"]),
            delta=float(given["delta"]),
            clip_norm=float(given["clip_norm"]),
            learning_rate=float(given["learning_rate"]),
            momentum=float(given["momentum"]),
            sampling=Sampling(given["sampling"]),
            device=torch.device(machine["device"]),
            threads=int(machine["threads"]),
            memory_bytes=float(machine["memory_gb"]) * 2**30,
        )


def calibrate(sweep: Sweep, about: dict[str, Any]) -> pd.DataFrame:
    """Return the noise and the privacy statement of each cell of `sweep`: a row a cell, in order.

    Columns: the cell's keys, noise_multiplier (0 without privacy), privacy_*. The noise meets the cell's epsilon by
    Opacus's RDP accountant for Poisson samples at rate 1/ceil(n/B) over all epochs; the statement's note says how that
    relates to the batches that are really drawn. `about` is the dataset's, for its number of training records.
    Raises InputError for settings that cannot be used. Source: bhaskar2025, section on experiments.
    """
    settings = Settings.of(sweep)
    records = len(random_shares(about["records"]["train"], settings.clients, settings.client_share, sweep.seeds[0])[0])
    steps = steps_per_epoch(records, settings.batch_size)
    statements: dict[tuple[float, int], PrivacyStatement] = {}
    rows = []
    for cell in sweep.cells:
        key = (float(cell["epsilon"]), cell["local_epochs"] * cell["rounds"])
        if key not in statements:
            statements[key] = _statement(settings, records, key[0], key[1] * steps, private=is_private(cell))
        statement = statements[key]
        rows.append({**cell, "noise_multiplier": statement.noise_multiplier, **statement.columns()})
    return pd.DataFrame(rows)


def _statement(settings: Settings, records: int, epsilon: float, steps: int, *, private: bool) -> PrivacyStatement:
    """Return the statement of a client that takes `steps` steps on `records` records."""
    sample_rate = 1 / steps_per_epoch(records, settings.batch_size)
    if not private:
        return PrivacyStatement.not_private(
            sampling=settings.sampling, records=records, sample_rate=sample_rate, steps=steps
        )
    setting = {"sample_rate": sample_rate, "steps": steps, "delta": settings.delta}
    sigma = dpsgd.noise_multiplier(target_epsilon=epsilon, accountant=ACCOUNTANT, **setting)
    statement = dpsgd.statement(
        records=records, clip_norm=settings.clip_norm, noise_multiplier=sigma, note=_note(settings), **setting
    )
    return replace(statement, sampling=settings.sampling)


def _note(settings: Settings) -> str:
    """Say how the accounting relates to what is done."""
    if settings.sampling is Sampling.POISSON:
        note = "Poisson sampling, as accounted"
    else:
        note = (
            "accounted as Poisson sampling, as is common; the batches are in truth cut from a fresh permutation "
            "each epoch, for which this epsilon is not proven"
        )
    holders = settings.clients * settings.client_share
    if holders > 1 + 1e-9:
        note += (
            f"; one client's budget: clients overlap, a record lies with {holders:.3g} of them on average and spends "
            "the composition of their budgets"
        )
    return note


def train(
    sweep: Sweep,
    folders: Folders,
    calibration: pd.DataFrame,
    checkpoint: Path | None,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """Train every cell and seed of `sweep`; return the run table, a row a run, cells in order and seeds within.

    Metrics: accuracy_pct on the test set after the last round, and accuracy_pct_by_round (JSON list). A run whose
    weights left the numbers has status "diverged" and the accuracy that was measured all the same.
    `calibration` is `calibrate`'s table. With `checkpoint`, training resumes there and ends with the same bytes.
    Calls progress(epochs done, epochs in all). Raises InputError where data or settings cannot be used.
    """
    settings = Settings.of(sweep)
    torch.set_num_threads(settings.threads)
    data = load_images(folders.arrays)
    inputs = {part: _inputs(settings, folders, data, part) for part in ("train", "test")}
    schedule = Schedule(*(tuple(int(cell[key]) for cell in sweep.cells) for key in ("local_epochs", "rounds")))
    digest = _digest(sweep, calibration, data)
    restored = checkpoints.load(checkpoint, digest) if checkpoint else None
    finished: list[dict[str, Any]] = restored["finished"] if restored else []
    epochs = max(schedule.epochs)
    for seed in sweep.seeds[len(finished) :]:
        run = _federation(settings, sweep, data, inputs, calibration, schedule, seed)
        state = run.start()
        if restored and restored["running"]:
            state = _resumed(restored["running"], settings.device)
            restored = None
        while state.epoch < epochs:
            averaged = run.advance(state)
            if checkpoint and averaged:
                checkpoints.save(checkpoint, {"finished": finished, "running": state.plain()}, digest)
            progress(len(finished) * epochs + state.epoch, len(sweep.seeds) * epochs)
        finished.append({"accuracy_pct": state.accuracy_pct, "diverged": state.diverged})
        if checkpoint:
            checkpoints.save(checkpoint, {"finished": finished, "running": {}}, digest)
    return _table(sweep, data.about, calibration, finished)


def _inputs(settings: Settings, folders: Folders, data: ImageData, part: str) -> tuple[Tensor, Tensor]:
    """Return what the model reads and the labels of one part of the data, on the device."""
    labels = torch.from_numpy(np.array(getattr(data, f"{part}_y"))).to(settings.device)
    source = getattr(data, f"{part}_x")
    if settings.model.reads_features:
        path = folders.features / f"{part}_x.npy"
        if not path.is_file():
            raise InputError(f"{path}: no such file; compute the scattering features first (dpfl features)")
        source = np.load(path, mmap_mode="r", allow_pickle=False)
    if len(source) != len(labels):
        raise InputError(
            f"{folders.features}: {len(source)} {part} features, should be {len(labels)}; compute them anew"
        )
    inputs = torch.empty(source.shape, dtype=torch.float32, device=settings.device)
    for start in range(0, len(source), RECORDS_AT_ONCE):
        rows = slice(start, start + RECORDS_AT_ONCE)
        inputs[rows] = prepare(settings.model, torch.from_numpy(np.array(source[rows])))
    return inputs, labels


def _federation(
    settings: Settings,
    sweep: Sweep,
    data: ImageData,
    inputs: dict[str, tuple[Tensor, Tensor]],
    calibration: pd.DataFrame,
    schedule: Schedule,
    seed: int,
) -> FederatedAveraging:
    """Return the federation of one seed, its clients' shares and its initial model drawn."""
    shares = random_shares(len(data.train_y), settings.clients, settings.client_share, seed)
    accounted = int(calibration["privacy_records"].iloc[0])
    if any(len(share) < accounted for share in shares):
        raise InputError(f"a client has fewer than the {accounted} records that the noise was calibrated for")
    module = build(settings.model, data.train_x.shape[1:], seed).to(settings.device)
    rule = gradient_rule(module, cross_entropy, inputs["train"][0][0])
    private = torch.tensor([is_private(cell) for cell in sweep.cells])
    noise = torch.tensor(calibration["noise_multiplier"].to_numpy(), dtype=torch.float32)
    variants = Variants(
        torch.where(private, settings.clip_norm, math.inf).to(settings.device), noise.to(settings.device)
    )
    return FederatedAveraging(
        module=module,
        gradients=StackedGradients(rule, inputs["train"][0][0], settings.memory_bytes),
        variants=variants,
        schedule=schedule,
        shares=shares,
        train=inputs["train"],
        test=inputs["test"],
        batch_size=settings.batch_size,
        sampling=settings.sampling,
        learning_rate=settings.learning_rate,
        momentum=settings.momentum,
        seed=seed,
    )


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross entropy of each record, (n,), from logits (n, classes) and labels (n,)."""
    return functional.cross_entropy(logits, labels, reduction="none")


def _resumed(running: dict[str, Any], device: torch.device) -> State:
    """Return the state that a checkpoint holds, on the device."""
    state = State(**running)
    state.weights, state.velocity = state.weights.to(device), state.velocity.to(device)
    return state


def _digest(sweep: Sweep, calibration: pd.DataFrame, data: ImageData) -> str:
    """Return a hash of what decides the numbers: settings, noise, data, torch."""
    about = json.dumps(data.about, sort_keys=True)
    noise = calibration["noise_multiplier"].map(float.hex).tolist()
    text = json.dumps([sweep.digest(), noise, about, torch.__version__])
    return hashlib.sha256(text.encode()).hexdigest()


def _table(
    sweep: Sweep, about: dict[str, Any], calibration: pd.DataFrame, finished: list[dict[str, Any]]
) -> pd.DataFrame:
    """Return the run table."""
    rows = []
    for variant, (cell, noise) in enumerate(zip(sweep.cells, calibration.to_dict("records"), strict=True)):
        for seed, result in zip(sweep.seeds, finished, strict=True):
            by_round = result["accuracy_pct"][variant]
            rows.append(
                {
                    "paper": sweep.paper,
                    "sweep": sweep.name,
                    "dataset": sweep.dataset,
                    "stand_in_for": about["stand_in_for"] or "",
                    "data_note": about["note"],
                    "algorithm": sweep.algorithm,
                    **sweep.settings,
                    **cell,
                    "seed": seed,
                    "status": "diverged" if result["diverged"][variant] else "finished",
                    "accuracy_pct": by_round[-1],
                    "accuracy_pct_by_round": json.dumps(by_round),
                    "noise_multiplier": noise["noise_multiplier"],
                    **{key: value for key, value in noise.items() if key.startswith("privacy_")},
                }
            )
    return pd.DataFrame(rows)
