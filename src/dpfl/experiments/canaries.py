"""Runs with canaries, as an entry of the training grid: a lower bound on epsilon beside the one that is claimed.

With the setting `model`, a client of fedavg_images trains, else one of ldp_regression; noise and claim are theirs. The
setting `canaries` counts them; half of them are guessed about, a quarter on each side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from dpfl.accounting.samplers import Sampling
from dpfl.attacks.canary_gradients import ClientRun, image_scores
from dpfl.attacks.canary_messages import MessageRun, message_scores
from dpfl.attacks.one_run import coins, epsilon_lower_bound, right_guesses
from dpfl.data.loading import load_description, load_images, load_table
from dpfl.data.non_iid_blocks import split
from dpfl.data.partition import random_shares
from dpfl.engine.federated_rounds import Clipping
from dpfl.errors import InputError
from dpfl.experiments import ldp_regression
from dpfl.experiments.fedavg_images import fedavg_noise
from dpfl.experiments.fedavg_images.fedavg_settings import FedavgCell, FedavgSettings
from dpfl.experiments.shared.run_table import calibrated, run_table
from dpfl.grid.sweep import Folders, Sweep
from dpfl.models.image_models import prepare

CONFIDENCE = 0.95


def calibrate(sweep: Sweep, description: Mapping[str, Any]) -> pd.DataFrame:
    """Return the noise of each cell, as the audited algorithm calibrates it where every record is clipped.

    With clipping: mean the noise stays that of clipping: record, which the claim is made for: the known-bad variant.
    Raises InputError where settings cannot be used.
    """
    if _is_image(sweep):
        return fedavg_noise.calibrate(sweep, description)
    return ldp_regression.calibrate(replace(sweep, settings={**sweep.settings, "clipping": "record"}), description)


def train(
    sweep: Sweep,
    folders: Folders,
    calibration: pd.DataFrame,
    checkpoint: Path | None,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """Return the run table, a row a (cell, seed): guesses, right_guesses, epsilon_lower_bound at `confidence`, and
    claimed_epsilon, that of the statement (see dpfl.auditing). `checkpoint` is not used: a seed takes minutes at most.

    Raises InputError where settings or data cannot be used.
    """
    noise = calibrated(calibration, sweep.cells)
    results: dict[tuple[int, int], dict[str, Any]] = {}
    for done, seed in enumerate(sweep.seeds):
        progress(done, len(sweep.seeds))
        included = coins(seed, int(sweep.settings["canaries"]))
        score = _image_scores if _is_image(sweep) else _message_scores
        scores = score(sweep, folders, calibration, seed, included)
        for index, own in enumerate(scores):
            results[index, seed] = _result(sweep, noise[index], own, included)
    settings = [
        {**sweep.settings, **cell, "batch_size": int(own.get("batch_size", sweep.settings["batch_size"]))}
        for cell, own in zip(sweep.cells, noise, strict=True)
    ]
    return run_table(sweep, load_description(folders.arrays), noise, results, settings)


def _is_image(sweep: Sweep) -> bool:
    """Return whether an image model is audited."""
    return "model" in sweep.settings


def _image_scores(
    sweep: Sweep, folders: Folders, calibration: pd.DataFrame, seed: int, included: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the scores of every cell: the first client trains without averaging, which only hides."""
    settings = FedavgSettings.of(sweep)
    torch.set_num_threads(settings.threads)
    if sweep.settings["model"] != "scatter_linear":
        raise InputError(f"model: {sweep.settings['model']} has no canaries; they are for scatter_linear")
    data = load_images(folders.arrays)
    share = random_shares(len(data.train_y), settings.clients, settings.client_share, seed)[0]
    rows = np.sort(share[: _real(calibration, included)])
    features = np.load(folders.features / "train_x.npy", mmap_mode="r", allow_pickle=False)
    inputs = prepare(settings.model, torch.from_numpy(np.array(features[rows])), settings.normalisation).flatten(1)
    labels = torch.from_numpy(data.train_y[rows])
    epochs = {sum(FedavgCell.of(cell).local_epochs) for cell in sweep.cells}
    if len(epochs) > 1:
        raise InputError(f"local_epochs: cells with canaries train for one number of epochs, not {sorted(epochs)}")
    run = ClientRun(
        settings.batch_size, settings.sampling, epochs.pop(), settings.learning_rate, settings.momentum,
        settings.clip_norm, tuple(calibration["noise_multiplier"]), seed,
    )  # fmt: skip
    return image_scores(run, inputs, labels, int(data.train_y.max()) + 1, included)


def _message_scores(
    sweep: Sweep, folders: Folders, calibration: pd.DataFrame, seed: int, included: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the scores of every cell. Every client has its part of the canaries and is seen by its own messages,
    before the server adds others to them; each adds noise of its own, so the clients together are one run.
    """
    settings, clients = sweep.settings, int(sweep.settings["clients"])
    if any(cell["algorithm"] != "minibatch" for cell in sweep.cells):
        raise InputError("algorithm: canaries are for minibatch")
    trial = split(load_table(folders.arrays), clients, list(settings["standardise"]), seed)
    clip, batch = float(settings["clip_norms"][0]), int(calibration["batch_size"].iloc[0])
    scores = []
    for client, own in enumerate(np.array_split(included, clients)):
        first = int(trial.starts[client])
        rows = slice(first, first + _real(calibration, own))
        run = MessageRun(
            int(settings["rounds"]), batch, Sampling(settings["sampling"]), Clipping(settings["clipping"]), clip,
            tuple(calibration["noise_multiplier"] * clip / batch), clients * seed + client,
        )  # fmt: skip
        scores.append(message_scores(run, trial.train_x[rows], trial.train_y[rows], own))
    return np.concatenate(scores, axis=1)


def _real(calibration: pd.DataFrame, included: NDArray[np.int64]) -> int:
    """Return how many records are no canaries; raises InputError where there are more canaries than records."""
    records = int(calibration["privacy_records"].iloc[0])
    if len(included) > records:
        raise InputError(f"canaries: {len(included)} of a client's {records} records cannot be canaries; take fewer")
    return records - len(included)


def _result(
    sweep: Sweep, noise: Mapping[str, Any], scores: NDArray[np.float64], included: NDArray[np.int64]
) -> dict[str, Any]:
    """Return the columns of one run's guesses."""
    guesses = 2 * (len(included) // 4)
    right = right_guesses(scores, included, guesses)
    counts = {"canaries": len(included), "guesses": guesses, "right": right}
    bound = epsilon_lower_bound(delta=noise["privacy_delta"], **counts, confidence=CONFIDENCE)
    return {
        "guesses": guesses,
        "right_guesses": right,
        "confidence": CONFIDENCE,
        "epsilon_lower_bound": bound,
        "claimed_epsilon": noise["privacy_epsilon_proven"],
        "known_bad": sweep.settings.get("clipping") == Clipping.MEAN,
    }
