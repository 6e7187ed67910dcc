"""Train one cell of bhaskar2025 by Opacus and torch alone, and hold its accuracy against the pipeline's runs.

    python benchmarks/opacus_loop.py train --data data --dataset mnist --model cnn_tanh --epsilon 2.93 \\
        --local-epochs 1 --rounds 20 --seed 0 >> loop.jsonl
    python benchmarks/opacus_loop.py compare loop.jsonl results/paper/runs/bhaskar2025/mnist_*.csv.gz

The training is written from the facts that are known about the authors' public code, and imports nothing of dpfl:
Opacus's PrivacyEngine with its default accountant and tolerance, its DPDataLoader and GradSampleModule, torch's own
layers and SGD, kymatio's scattering of raw pixels. One client, one model and one batch go at a time.

A client's records are drawn without replacement and independently of the other clients. Batches without privacy are
the records in one fixed order. The optimiser is new for each client and round; the server takes the plain mean of the
clients' weights; every round's average is measured on the whole test set.

The rule of `compare`, written before the runs that it judges: a cell agrees if the two means differ by at most two
standard deviations of their difference, s * sqrt(1/m + 1/n) for m runs of the loop and n of the pipeline, where s is
their pooled standard deviation. One run a side decides nothing. `p` is Student's two-sided p of the same difference:
with few runs two standard deviations are exceeded more often than in 5 % of all cases where the laws are the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D
from numpy.typing import NDArray
from opacus import PrivacyEngine
from scipy.stats import ttest_ind
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

MODELS = ("scatter_linear", "scatter_cnn", "cnn_tanh", "cnn_relu")
BATCH_SIZE, DELTA, CLIP_NORM = 64, 1e-5, 1.0
PIXELS = {  # mean and deviation of each channel
    "mnist": ([0.1307], [0.3081]),
    "fashion_mnist": ([0.5], [0.5]),
    "cifar10": ([0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]),
}
PIXELS |= {"digits": PIXELS["mnist"], "digits_rgb": PIXELS["cifar10"]}  # they stand in for these
READING = {"batch_size": BATCH_SIZE, "delta": DELTA, "clip_norm": CLIP_NORM, "sampling": "poisson",
           "plain_batches": "fixed", "client_records": "independent", "accountant": "prv", "network": "authors",
           "pixels": "authors", "feature_norm": "learnt", "client_share": 0.1, "precision": "float32"}  # fmt: skip
"""The pipeline's names for what this loop does: runs with other settings are not compared."""
DEVIATIONS = 2
"""The standard deviations of `compare`."""


@dataclass(frozen=True)
class Cell:
    """One run: the settings that a table of the paper varies, and the optimiser's."""

    dataset: str
    model: str
    epsilon: float
    local_epochs: int
    rounds: int
    clients: int = 10
    seed: int = 0
    learning_rate: float = 0.3
    momentum: float = 0.5

    @property
    def private(self) -> bool:
        """Whether the cell clips and adds noise."""
        return math.isfinite(self.epsilon)


@dataclass
class Draws:
    """Everything that is random: initial weights (torch's own law), shares, Poisson batches and noise, a seed each."""

    seed: int
    shares: np.random.Generator = field(init=False)
    weights: int = field(init=False)
    batches: torch.Generator = field(init=False)
    noise: torch.Generator = field(init=False)

    def __post_init__(self):
        shares, rest = np.random.SeedSequence(self.seed).spawn(2)
        self.weights, batches, noise = (int(word) for word in rest.generate_state(3))
        self.shares = np.random.default_rng(shares)
        self.batches, self.noise = (torch.Generator().manual_seed(word) for word in (batches, noise))


def network(model: str, shape: tuple[int, int, int]) -> nn.Sequential:
    """Return a model for images of `shape`, (1, 28, 28) or (3, 32, 32): pixels or scattering features to 10 logits."""
    colour, act = shape[0] == 3, nn.ReLU if model == "cnn_relu" else nn.Tanh
    if model == "scatter_linear":
        size = 243 * 64 if colour else 81 * 49
        layers = [nn.Flatten(), nn.GroupNorm(27, size), nn.Linear(size, 10)]
    elif model == "scatter_cnn" and colour:
        layers = [nn.GroupNorm(27, 243), nn.Conv2d(243, 64, 3, padding=1), act(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(64, 64, 3, padding=1), act(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 10)]
    elif model == "scatter_cnn":
        layers = [nn.GroupNorm(27, 81), nn.Conv2d(81, 16, 3, stride=2, padding=1), act(), nn.MaxPool2d(2, stride=1)]
        layers += [nn.Conv2d(16, 32, 3, padding=1), act(), nn.MaxPool2d(2, stride=1), nn.Flatten()]
        layers += [nn.Linear(128, 32), act(), nn.Linear(32, 10)]
    elif colour:
        layers, before = [], 3
        for width in (32, 64, 128):
            layers += [nn.Conv2d(before, width, 3, padding=1), act()]
            layers += [nn.Conv2d(width, width, 3, padding=1), act(), nn.AvgPool2d(2)]
            before = width
        layers += [nn.Conv2d(128, 256, 3, padding=1), act(), nn.Conv2d(256, 10, 3, padding=1)]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    else:
        layers = [nn.Conv2d(1, 16, 8, stride=2), act(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(16, 32, 4, stride=2, padding=1), act(), nn.MaxPool2d(2), nn.Flatten()]
        layers += [nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10)]  # ReLU whatever the others are
    return nn.Sequential(*layers)


def inputs(model: str, dataset: str, images: NDArray[np.uint8], cache: Path) -> Tensor:
    """Return what `model` reads of images (n, channels, height, width): standardised pixels or features."""
    if model.startswith("scatter"):
        return scattered(images, cache)
    mean, deviation = (torch.tensor(each).view(-1, 1, 1) for each in PIXELS[dataset])
    return (torch.from_numpy(np.array(images)).float() / 255 - mean) / deviation


def scattered(images: NDArray[np.uint8], cache: Path) -> Tensor:
    """Return the scattering coefficients of raw pixels, (n, 81 * channels, height / 4, width / 4), kept in `cache`."""
    path = cache / f"{hashlib.sha256(np.ascontiguousarray(images)).hexdigest()[:16]}.npy"
    if not path.exists():
        transform = ScatteringTorch2D(J=2, L=8, shape=images.shape[2:])
        chunks = torch.from_numpy(np.array(images)).float().split(500)
        features = torch.cat([transform(chunk.contiguous()).flatten(1, 2) for chunk in chunks])
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}.npy")
        np.save(unfinished, features.numpy())
        unfinished.replace(path)
    return torch.from_numpy(np.load(path, mmap_mode="c"))


def load(cell: Cell, data: Path, cache: Path) -> tuple[TensorDataset, TensorDataset]:
    """Return training and test records from the plain numpy files DATA/arrays/DATASET/{train,test}_{x,y}.npy."""
    arrays = {name: np.load(data / "arrays" / cell.dataset / f"{name}.npy", mmap_mode="r") for name in
              ("train_x", "train_y", "test_x", "test_y")}  # fmt: skip
    return tuple(
        TensorDataset(
            inputs(cell.model, cell.dataset, arrays[f"{part}_x"], cache),
            torch.from_numpy(np.array(arrays[f"{part}_y"])),
        )
        for part in ("train", "test")
    )


def shares(records: int, clients: int, draw: np.random.Generator) -> list[list[int]]:
    """Return each client's records: max(n/k, n/10) of n, without replacement, independent of the other clients'."""
    size = max(records // clients, records // 10)
    return [list(set(draw.choice(records, size, replace=False).tolist())) for _ in range(clients)]


def step(module: nn.Module, optimiser: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
    """Take one step on a batch: log-softmax, negative log-likelihood, mean of the batch."""
    optimiser.zero_grad()
    functional.nll_loss(functional.log_softmax(module(x), 1), y).backward()
    optimiser.step()


def made_private(cell: Cell, sgd: torch.optim.SGD, module: nn.Module, loader: DataLoader, noise: float | None,
                 draws: Draws) -> tuple[nn.Module, torch.optim.Optimizer, DataLoader]:  # fmt: skip
    """Return Opacus's module, optimiser and loader; `noise` None: the multiplier that meets the cell's epsilon."""
    given = {"module": module, "optimizer": sgd, "data_loader": loader, "max_grad_norm": CLIP_NORM}
    given |= {"noise_generator": draws.noise}
    if noise is not None:
        return PrivacyEngine().make_private(**given, noise_multiplier=noise)
    budget = {"target_epsilon": cell.epsilon, "target_delta": DELTA, "epochs": cell.local_epochs * cell.rounds}
    return PrivacyEngine().make_private_with_epsilon(**given, **budget)


def client_round(cell: Cell, module: nn.Module, records: TensorDataset, noise: float | None, draws: Draws) -> float:
    """Train `module` in place for one round of a client; return the noise multiplier (0 without privacy).

    An empty Poisson batch has a gradient of nan; at n records it comes with probability exp(-64) for n far above 64.
    """
    loader = DataLoader(records, batch_size=BATCH_SIZE, generator=draws.batches)
    optimiser = torch.optim.SGD(module.parameters(), lr=cell.learning_rate, momentum=cell.momentum)
    if cell.private:
        module, optimiser, loader = made_private(cell, optimiser, module, loader, noise, draws)
        noise = optimiser.noise_multiplier
    for _ in range(cell.local_epochs):
        for x, y in loader:
            step(module, optimiser, x, y)
    return noise if cell.private else 0.0


def accuracy_pct(module: nn.Module, test: TensorDataset) -> float:
    """Return the percentage of test records that the model puts into their class."""
    with torch.no_grad():
        right = sum((module(x).argmax(1) == y).sum().item() for x, y in DataLoader(test, batch_size=1000))
    return 100 * right / len(test)


def initial(cell: Cell, shape: tuple[int, int, int], draws: Draws) -> dict[str, Tensor]:
    """Return the one initial model of all clients, by torch's default law."""
    with torch.random.fork_rng():
        torch.manual_seed(draws.weights)
        return network(cell.model, shape).state_dict()


def federated(cell: Cell, shape: tuple[int, int, int], train: TensorDataset, test: TensorDataset, *,
              weights: dict[str, Tensor], held: list[list[int]], draws: Draws,
              noise: float | None = None) -> tuple[dict[str, Tensor], list[float], float]:  # fmt: skip
    """Return the last average, the accuracy of every round's average in per cent, and the noise multiplier.

    `held`: the records of each client. `noise`: the multiplier, if it is not to be found for the cell's epsilon. All
    clients hold equally many records, so that what Opacus finds for the first holds for all.
    """
    records = [TensorDataset(*(part[own] for part in train.tensors)) for own in held]
    accuracies = []
    for _ in range(cell.rounds):
        sent = []
        for own in records:
            module = network(cell.model, shape)
            module.load_state_dict(weights)
            noise = client_round(cell, module, own, noise, draws)
            sent.append({name: tensor.detach() for name, tensor in module.state_dict().items()})
        weights = {name: torch.stack([each[name] for each in sent]).mean(0) for name in weights}
        module = network(cell.model, shape)
        module.load_state_dict(weights)
        accuracies.append(accuracy_pct(module, test))
    return weights, accuracies, noise


def trained(cell: Cell, data: Path, cache: Path) -> dict[str, object]:
    """Return a run as one line: the cell, accuracy by round in per cent, noise multiplier and seconds."""
    train, test = load(cell, data, cache)
    start, draws = time.perf_counter(), Draws(cell.seed)
    shape = (3, 32, 32) if cell.dataset in ("cifar10", "digits_rgb") else (1, 28, 28)
    held = shares(len(train), cell.clients, draws.shares)
    weights = initial(cell, shape, draws)
    _, accuracies, noise = federated(cell, shape, train, test, weights=weights, held=held, draws=draws)
    found = {"accuracy_pct": accuracies[-1], "accuracy_pct_by_round": accuracies, "noise_multiplier": noise}
    return asdict(cell) | found | {"opacus_seconds": time.perf_counter() - start}


def compared(loop: pd.DataFrame, pipeline: pd.DataFrame) -> list[dict[str, object]]:
    """Return a line for each cell of `loop`: both sides' accuracy, the means' difference and whether they agree.

    Both tables have a row a run with the columns of Cell and accuracy_pct, `pipeline` also those of READING. Runs of
    `pipeline` with other settings do not count, nor do those of tables without accuracy (distances); a run that several
    tables hold counts once.
    """
    names = [each.name for each in fields(Cell)]
    keys = [name for name in names if name != "seed"]
    pipeline = pipeline[(pipeline[list(READING)] == list(READING.values())).all(axis=1)]
    pipeline = pipeline.dropna(subset="accuracy_pct").drop_duplicates(names)
    lines = []
    for key, runs in loop.groupby(keys):
        ours = pipeline.loc[(pipeline[keys] == list(key)).all(axis=1), "accuracy_pct"].to_numpy()
        theirs = runs["accuracy_pct"].to_numpy()
        line = dict(zip(keys, key, strict=True)) | {"loop": theirs.tolist(), "pipeline": ours.tolist(), "agree": None}
        if min(len(theirs), len(ours)) > 0 and len(theirs) + len(ours) > 2:
            test = ttest_ind(theirs, ours)
            difference = theirs.mean() - ours.mean()
            line["difference"] = difference
            if difference or theirs.std() or ours.std():  # else all runs are alike, and there is nothing to test
                line |= {"deviations": test.statistic, "p": test.pvalue}
            line["agree"] = bool(difference == 0 or abs(test.statistic) <= DEVIATIONS)
        lines.append(line)
    return lines


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    top = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = top.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train", help="train one cell and print it as a JSON line")
    train.add_argument("--data", type=Path, default=Path("data"), help="the pipeline's data folder")
    train.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "opacus_loop",
                       help="keeps kymatio's features")  # fmt: skip
    train.add_argument("--dataset", required=True, choices=list(PIXELS))
    train.add_argument("--model", required=True, choices=MODELS)
    train.add_argument("--epsilon", type=float, required=True, help="inf: without privacy")
    train.add_argument("--local-epochs", type=int, required=True)
    train.add_argument("--rounds", type=int, required=True)
    for name, kind in (("clients", int), ("seed", int), ("learning_rate", float), ("momentum", float)):
        train.add_argument(f"--{name.replace('_', '-')}", type=kind, default=getattr(Cell, name))
    compare = commands.add_parser("compare", help="print a line a cell; exit 1 if a cell does not agree")
    compare.add_argument("loop", type=Path, help="lines of `train`")
    compare.add_argument("tables", type=Path, nargs="+", help="run tables of the pipeline")
    return top


def main() -> int:
    """Print JSON lines; return 1 if a cell of `compare` does not agree."""
    given = parser().parse_args()
    if given.command == "train":
        torch.set_num_threads(1)
        warnings.filterwarnings("ignore", message="Secure RNG turned off|Full backward hook is firing")
        cell = Cell(**{each.name: getattr(given, each.name) for each in fields(Cell)})
        print(json.dumps(trained(cell, given.data, given.cache)), flush=True)
        return 0
    tables = pd.concat([pd.read_csv(path) for path in given.tables], ignore_index=True)
    lines = compared(pd.DataFrame(map(json.loads, given.loop.read_text().splitlines())), tables)
    for line in lines:
        print(json.dumps(line, default=lambda number: number.item()), flush=True)  # pandas 2 keeps numpy's numbers
    return int(any(line["agree"] is False for line in lines))


if __name__ == "__main__":
    sys.exit(main())
