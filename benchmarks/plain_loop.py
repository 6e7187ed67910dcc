"""Train one cell of each image model twice: by the engine, and by a plain loop that knows nothing of it.

The loop has one client, one model and one batch at a time: Opacus's per-record gradients, a clip and a sum, torch's
own SGD, layers as bhaskar2025 lists them, kymatio's features. With the engine's draws (shares, initial weights,
batches, noise) the weights must agree up to rounding; with draws of its own, accuracy, training loss and length of the
update must have the same law, by Welch's test. A cell without privacy (`--epsilon inf`) shuffles its epochs, neither
clips nor adds noise, and is held against the engine's draws only. It runs on the digits that stand in for MNIST, or,
with `--data FOLDER --dataset mnist`, on the arrays and features of a data folder, with the published cell's settings.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from opacus.accountants.utils import get_noise_multiplier
from plain_fedavg import EngineDraws, OwnDraws, Run, Task, measured, plain_inputs, plain_run
from scipy.stats import ttest_ind

from dpfl.data.arrays import build_arrays
from dpfl.data.loading import load_description, load_images
from dpfl.experiments import fedavg_images
from dpfl.features.scattering import build_features
from dpfl.files import checked_content
from dpfl.grid.sweep import Folders, Sweep

CELL = {"epsilon": 8.0, "rounds": 4, "local_epochs": 1}
SETTINGS = {
    "clients": 3, "client_share": 0.2, "batch_size": 32, "delta": 1e-5, "clip_norm": 1.0, "learning_rate": 0.3,
    "momentum": 0.5, "sampling": "poisson", "initialisation": "common",
}  # fmt: skip
PUBLISHED_CELL = CELL | {"epsilon": 2.93, "rounds": 20}
PUBLISHED = SETTINGS | {"clients": 10, "client_share": 0.1, "batch_size": 64}
MODELS = ("scatter_linear", "scatter_cnn", "cnn_tanh", "cnn_relu")
MEASURES = ("accuracy_pct", "training_loss", "update_norm")
SAME_DRAWS = 1e-5
"""Relative distance that rounding explains, in one seed at least. Where it decides a ReLU or a pooling, a CNN run ends
3e-4 to 5e-3 apart, as do two plain loops 1e-7 apart at first. A fault of the law is in every seed."""
LEVEL = 0.01 / (len(MODELS) * len(MEASURES))
"""Least p of one comparison: where all laws are the same, one of them is below it with probability 1 % at most."""
MACHINE = {"device": "cpu", "threads": 1, "memory_gb": 1.0}


def opacus_noise(task: Task) -> float:
    """Return the noise multiplier that Opacus's own search finds for a client's records."""
    steps = math.ceil(task.share / task.settings["batch_size"])
    law = {"sample_rate": 1 / steps, "steps": steps * task.cell["rounds"] * task.cell["local_epochs"]}
    target = {"target_epsilon": task.cell["epsilon"], "target_delta": task.settings["delta"]}
    return get_noise_multiplier(**target, **law, accountant="rdp", epsilon_tolerance=1e-4)


def engine_run(task: Task, seed: int, scratch: Path) -> Run:
    """Return the result of dpfl's own training: weights of its last checkpoint, accuracy and noise of its run table."""
    sweep = Sweep("bhaskar2025", "fedavg_images", f"plain_{seed}", task.settings, (task.cell,), (seed,), MACHINE)
    checkpoint, kept = scratch / f"{task.settings['model']}_{seed}.ckpt", []

    def keep(done: int, total: int) -> None:
        if done == total:
            payload = checked_content(checkpoint.read_bytes()).partition(b"\n")[2]
            kept.append(torch.load(io.BytesIO(payload), weights_only=True)["running"]["weights"][0, 0])

    calibration = fedavg_images.calibrate(sweep, load_description(task.folders.arrays))
    row = fedavg_images.train(sweep, task.folders, calibration, checkpoint, keep).iloc[0]
    run = measured(task, EngineDraws(task, seed), kept[0], row["noise_multiplier"])
    return replace(run, accuracy_pct=row["accuracy_pct"])


def distance(one: Run, other: Run) -> float:
    """Return the relative Euclidean distance of two runs' weights."""
    return ((one.weights - other.weights).norm() / other.weights.norm()).item()


def same_draws(task: Task, engine: list[Run]) -> list[tuple[float, Run]]:
    """Return the plain loop's runs on the draws of the engine's, of seeds 0, 1, ..., each with its distance."""
    plain = [plain_run(task, EngineDraws(task, seed), run.noise_multiplier) for seed, run in enumerate(engine)]
    return [(distance(ours, theirs), theirs) for ours, theirs in zip(engine, plain, strict=True)]


def own_draws(engine: list[Run], plain: list[Run]) -> dict[str, dict[str, float]]:
    """Return mean and deviation of each measure over seeds; the means' difference, engine's less the plain loop's, in
    its own standard deviations; and its two-sided p by Welch's test."""
    found = {}
    for name in MEASURES:
        ours, theirs = (np.array([getattr(run, name) for run in runs]) for runs in (engine, plain))
        test = ttest_ind(ours, theirs, equal_var=False)
        found[name] = {"engine": ours.mean(), "engine_deviation": ours.std(ddof=1), "plain": theirs.mean()}
        found[name] |= {"plain_deviation": theirs.std(ddof=1), "deviations": test.statistic, "p": test.pvalue}
    return found


def stand_in(root: Path, dataset: str = "digits") -> Folders:
    """Write the arrays and features of a stand-in below `root`; return their folders."""
    folders = Folders.of(root, dataset)
    build_arrays(dataset, folders.arrays)
    build_features(folders.arrays, folders.features, lambda done, total: None)
    return folders


def tasks(folders: Folders, settings: dict, cell: dict, models: list[str]) -> Iterator[Task]:
    """Yield the task of each model; kymatio's features are computed once for those that read them."""
    data = load_images(folders.arrays)
    labels, inputs = [torch.from_numpy(np.array(part)) for part in (data.train_y, data.test_y)], {}
    for model in models:
        reads = model.startswith("scatter")
        if reads not in inputs:
            inputs = {reads: [plain_inputs(model, part) for part in (data.train_x, data.test_x)]}
        train, test = zip(inputs[reads], labels, strict=True)
        share = int(settings["client_share"] * len(labels[0]))
        yield Task(folders, {**settings, "model": model}, cell, train, test, data.train_x.shape[1:], share)


def compared(task: Task, seeds: range, scratch: Path) -> dict[str, object]:
    """Return how far engine and plain loop are apart: `same_draws`, `own_draws` and `noise_ratio` (the engine's noise
    over Opacus's; nan without privacy), both accuracies on the same draws, and whether weights and laws agree."""
    sigma = opacus_noise(task) if task.private else math.nan
    engine = [engine_run(task, seed, scratch) for seed in seeds]
    same, theirs = zip(*same_draws(task, engine[:2]), strict=True)
    own = own_draws(engine, [plain_run(task, OwnDraws(seed), sigma) for seed in seeds]) if task.private else {}
    agree = min(same) <= SAME_DRAWS and all(measure["p"] >= LEVEL for measure in own.values())
    return {
        "noise_ratio": engine[0].noise_multiplier / sigma,
        "same_draws": same,
        "own_draws": own,
        "accuracy_pct": [(ours.accuracy_pct, run.accuracy_pct) for ours, run in zip(engine, theirs, strict=False)],
        "agree": agree,
    }


def main() -> int:
    """Print a JSON line a model; return 1 where weights or laws do not agree."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="a data folder of dpfl; without it, the digits of scikit-learn")
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--seeds", type=int, default=4, help="of each side, at least 2")
    parser.add_argument("--rounds", type=int, help="fewer than the cell's; the noise is calibrated to them")
    parser.add_argument("--epsilon", type=float, help="other than the cell's; inf is a cell without privacy")
    given = parser.parse_args()
    torch.set_num_threads(1)
    failed, seeds = False, range(given.seeds)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        folders = Folders.of(given.data, given.dataset) if given.data else stand_in(scratch, given.dataset)
        settings, cell = (PUBLISHED, PUBLISHED_CELL) if given.data else (SETTINGS, CELL)
        cell = {**cell, "rounds": given.rounds or cell["rounds"], "epsilon": given.epsilon or cell["epsilon"]}
        for task in tasks(folders, {**settings, "dataset": given.dataset}, cell, given.models):
            start, found = time.process_time(), compared(task, seeds, scratch)
            failed |= not found["agree"]
            named = {"model": task.settings["model"], "dataset": given.dataset, **cell}
            print(json.dumps(named | found | {"cpu_seconds": time.process_time() - start}), flush=True)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
