"""Speed of lowy2021's experiments against a plain numpy loop of the published protocol, measured in one run.

The data are made up, in the shape of the real ones. The loop trains one run after the other; a sample of its runs is
timed and extrapolated linearly, for all its runs of one algorithm take the same steps. One JSON object a line; exit 1
when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpfl.convex import ldp_classification, ldp_regression
from dpfl.data import datasets
from dpfl.data.arrays import write_dataset
from dpfl.grid import configuration, expansion
from dpfl.grid.training_job import Folders, TrainingJob

Slope = Callable[[np.ndarray, np.ndarray], np.ndarray]
SAMPLE = {"insurance": 25, "mnist": 1}
"""Runs of each algorithm that the loop is timed on, out of hundreds."""


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time of one call: what the work itself takes on a shared machine."""
    start = time.process_time()
    work()
    return time.process_time() - start


def loop_minibatch(clients: list, rounds: int, batch: int, slope: Slope, point: tuple, rng: np.random.Generator):
    """One run of noisy minibatch SGD: the batch's mean gradient is clipped, noise added, the sum stepped along."""
    step, clip, sigma = point
    weights = np.zeros(clients[0][0].shape[1])
    for _ in range(rounds):
        total = np.zeros_like(weights)
        for x, y in clients:
            rows = rng.integers(len(y), size=batch)
            gradient = x[rows].T @ slope(x[rows] @ weights, y[rows]) / batch
            gradient /= max(1.0, np.linalg.norm(gradient) / clip)
            total += gradient + sigma * rng.standard_normal(len(weights))
        weights -= step * total
    return weights


def loop_local(clients: list, rounds: int, batch: int, slope: Slope, point: tuple, rng: np.random.Generator):
    """One run of noisy local SGD: `batch` steps on single records a client and round, then the mean over clients."""
    step, clip, sigma = point
    server = np.zeros(clients[0][0].shape[1])
    for _ in range(rounds):
        results = []
        for x, y in clients:
            weights = server.copy()
            for row in rng.integers(len(y), size=batch):
                gradient = slope(x[row] @ weights, y[row]) * x[row]
                gradient /= max(1.0, np.linalg.norm(gradient) / clip)
                weights -= step * (gradient + sigma * rng.standard_normal(len(weights)))
            results.append(weights)
        server = np.mean(results, axis=0)
    return server


def loop_seconds(job: TrainingJob, batch: int, records: int, features: int, clients: int, slope: Slope) -> float:
    """Return the loop's time for all runs of ONE trial: points x budgets x repetitions of both algorithms."""
    rng = np.random.default_rng(0)
    y = np.sign(rng.normal(size=records))
    data = [(rng.normal(size=(records, features)), y) for _ in range(clients)]
    settings, total = job.settings, 0.0
    sample = SAMPLE[job.dataset]
    for name, run in (("minibatch", loop_minibatch), ("local", loop_local)):
        steps = settings["step_exponents"][name][2]
        budgets = sum(cell["algorithm"] == name for cell in job.cells)
        runs = steps * len(settings["clip_norms"]) * budgets * settings["repetitions"]
        point = (1e-6, 1.0, 0.1)

        def timed(run: Callable = run, point: tuple = point) -> None:
            for _ in range(sample):
                run(data, settings["rounds"], batch, slope, point, rng)

        total += runs / sample * seconds(timed)
    return total


def first_job(experiment: str, **wanted: Any) -> TrainingJob:
    """Return the published job of an experiment whose settings are as wanted."""
    jobs = expansion.expand(configuration.resolve({"scale": "paper", "papers": ["lowy2021"]}))
    return next(
        job
        for job in jobs
        if job.experiment == experiment and all(job.settings[name] == value for name, value in wanted.items())
    )


def description(name: str, records: dict[str, int]) -> dict[str, Any]:
    """Return the description of drawn arrays that have the form of a dataset's."""
    texts = {"name": name, "title": "Made up", "stand_in_for": None, "note": "", "licence": ""}
    return {**texts, "records": records, "columns": list(datasets.load(name).columns)}


def insurance(folder: Path) -> Iterator[dict]:
    """Fig. 2 with N = 3: 20 trials, all budgets, grids and repetitions, on a table of 1,338 records."""
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.integers(0, largest + 1, 1338) for largest in (64, 1, 53, 5, 1, 3)])
    arrays = {"x": x.astype(float), "y": rng.lognormal(9, 0.9, 1338)}
    write_dataset(folder, arrays, description("insurance", {"all": 1338}))
    job = first_job("ldp_regression", clients=3, noise="advanced_composition", clipping="record")
    calibration = ldp_regression.calibrate(job, {"records": {"all": 1338}})
    ours = seconds(lambda: ldp_regression.train(job, Folders(folder, folder), calibration, None, lambda *_: None))
    batch = int(calibration["batch_size"].iloc[0])
    loop = loop_seconds(job, batch, 356, 7, 3, lambda scores, targets: scores - targets)
    trials = len(job.seeds)
    yield _result("lowy_insurance_loop_over_ours_per_trial", loop / (ours / trials), ">= 20", loop, ours / trials)
    yield _result("lowy_insurance_20_trials_over_2_minutes", ours * 20 / trials / 120, "<= 1", 120, ours)


def mnist(folder: Path) -> Iterator[dict]:
    """MNIST with M = 25, R = 35: one trial of 20, on images of noise, the components included."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(60_000) % 10).astype(np.int64)
    images = rng.integers(0, 256, (60_000, 1, 28, 28), dtype=np.uint8)
    arrays = {"train_x": images, "train_y": labels, "test_x": images[:10], "test_y": labels[:10]}
    write_dataset(folder, arrays, description("mnist", {"train": 60_000, "test": 10}))
    whole = first_job("ldp_classification", participating=25, rounds=35, split="published")
    job = TrainingJob(whole.paper, whole.experiment, whole.name, whole.settings, whole.cells, whole.seeds[:1])
    noise = {"batch_size": job.settings["batch_size"], "noise_multiplier": 1.0}  # how much changes no time
    rows = pd.DataFrame([{**cell, **noise} for cell in job.cells])
    ours = seconds(lambda: ldp_classification.train(job, Folders(folder, folder), rows, None, lambda *_: None))
    loop = loop_seconds(
        job, 443, 1238, 50, 25, lambda scores, targets: -targets / (1 + np.exp(np.minimum(targets * scores, 500)))
    )
    yield _result("lowy_mnist_loop_over_ours_per_trial", loop / ours, ">= 20", loop, ours)
    yield _result("lowy_mnist_20_trials_over_20_minutes", 20 * ours / 1200, "<= 1", 1200, 20 * ours)


def _result(name: str, ratio: float, target: str, theirs: float, ours: float) -> dict:
    """One line of output."""
    return {"name": name, "ratio": ratio, "target": target, "reference_seconds": theirs, "ours_seconds": ours}


def met(result: dict) -> bool:
    """Return whether a result meets its target."""
    sign, bound = result["target"].split()
    return result["ratio"] <= float(bound) if sign == "<=" else result["ratio"] >= float(bound)


def main() -> int:
    """Run every benchmark; return the exit status."""
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        for work in (insurance, mnist):
            for result in work(Path(folder) / work.__name__):
                print(json.dumps(result), flush=True)
                missed |= not met(result)
    return int(missed)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # no argument is known
    sys.exit(main())
