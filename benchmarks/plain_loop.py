"""Train one private cell of each image model twice: by the engine, and by a plain loop that knows nothing of it.

The loop has one client, one model and one batch at a time: Opacus's per-record gradients, a clip and a sum, torch's
own SGD, layers as bhaskar2025 lists them, kymatio's features. It is compared in two ways: with the engine's draws
(shares, initial weights, batches, noise) the weights must agree up to rounding; with draws of its own, torch's and
numpy's streams, the accuracies must agree over seeds. Without arguments it runs on the digits that stand in for MNIST;
`--data FOLDER --dataset mnist` takes the arrays of a data folder, with the published cell's settings.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D
from numpy.typing import NDArray
from opacus import GradSampleModule
from opacus.accountants.utils import get_noise_multiplier
from torch import Tensor, nn

from dpfl.data.arrays import build_arrays
from dpfl.data.loading import ImageData, load_images
from dpfl.experiments import fedavg_images
from dpfl.features.scattering import build_features
from dpfl.files import checked_content
from dpfl.grid.sweep import Folders, Sweep
from dpfl.mechanisms.noise import base_noise
from dpfl.models.image_models import ImageModel, build
from dpfl.randomness import generator

CELL = {"epsilon": 8.0, "rounds": 4, "local_epochs": 1}
SETTINGS = {
    "clients": 3, "client_share": 0.2, "batch_size": 32, "delta": 1e-5, "clip_norm": 1.0, "learning_rate": 0.3,
    "momentum": 0.5, "sampling": "shuffled_epochs", "initialisation": "common",
}  # fmt: skip
PUBLISHED_CELL = {"epsilon": 2.93, "rounds": 20, "local_epochs": 1}
PUBLISHED = SETTINGS | {"clients": 10, "client_share": 0.1, "batch_size": 64}
MODELS = ("scatter_linear", "scatter_cnn", "cnn_tanh", "cnn_relu")
SAME_SEEDS = 1  # of which runs with the same draws are compared: they agree exactly or not at all
MACHINE = {"device": "cpu", "threads": 1, "memory_gb": 1.0}


@dataclass(frozen=True)
class Run:
    """What a run ended with: the last average as one vector, and its accuracy on the test set in percent."""

    weights: Tensor
    accuracy_pct: float
    noise_multiplier: float


class EngineDraws:
    """The draws of the engine, by their addresses."""

    def __init__(self, model: str, shape: tuple[int, int, int], seed: int):
        self.model, self.shape, self.seed = model, shape, seed

    def shares(self, records: int, sizes: list[int]) -> list[NDArray[np.int64]]:
        """One permutation, cut."""
        order = generator(self.seed, "partition").permutation(records)
        return np.split(order[: sum(sizes)], np.cumsum(sizes)[:-1])

    def initialise(self, module: nn.Module) -> None:
        """Copy the engine's initial weights, parameter by parameter in order."""
        theirs = build(ImageModel(self.model), self.shape, self.seed).parameters()
        with torch.no_grad():
            for own, given in zip(module.parameters(), theirs, strict=True):
                own.copy_(given)

    def order(self, client: int, epoch: int, records: int) -> NDArray[np.int64]:
        """A permutation of a client's records."""
        return generator(self.seed, "batches", client, epoch).permutation(records)

    def noise(self, size: int, client: int, epoch: int, step: int) -> Tensor:
        """Standard normal draws."""
        address = {"seed": self.seed, "client": client, "epoch": epoch, "step": step}
        return base_noise(size, **address, dtype=torch.float32, device=torch.device("cpu"))


class OwnDraws:
    """Draws that have nothing in common with the engine's: numpy's and torch's default streams, in turn."""

    def __init__(self, seed: int):
        self.numpy, self.torch, self.seed = np.random.default_rng(seed), torch.Generator().manual_seed(seed), seed

    def shares(self, records: int, sizes: list[int]) -> list[NDArray[np.int64]]:
        """One permutation, cut."""
        order = self.numpy.permutation(records)
        return np.split(order[: sum(sizes)], np.cumsum(sizes)[:-1])

    def initialise(self, module: nn.Module) -> None:
        """Torch's own initial weights, by every layer's own routine."""
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            for layer in module:
                if hasattr(layer, "reset_parameters"):
                    layer.reset_parameters()

    def order(self, client: int, epoch: int, records: int) -> NDArray[np.int64]:
        """A permutation of a client's records."""
        return self.numpy.permutation(records)

    def noise(self, size: int, client: int, epoch: int, step: int) -> Tensor:
        """Standard normal draws."""
        return torch.randn(size, generator=self.torch)


def plain_model(model: str, shape: tuple[int, int, int]) -> nn.Sequential:
    """Return torch's own layers of a model, pooling after the activation. Source: bhaskar2025, section on models;
    Papernot et al. 2021, Tables 1 and 2; Tramer and Boneh 2021, Tables 8 and 9."""
    act = nn.ReLU if model == "cnn_relu" else nn.Tanh
    colour = shape[0] == 3
    if model == "scatter_linear":
        return nn.Sequential(nn.Flatten(), nn.Linear(243 * 64 if colour else 81 * 49, 10))
    if model == "scatter_cnn" and colour:
        first = [nn.Conv2d(243, 64, 3, 1, 1), act(), nn.MaxPool2d(2), nn.Conv2d(64, 64, 3, 1, 1), act()]
        return nn.Sequential(*first, nn.Flatten(), nn.Linear(1024, 10))
    if model == "scatter_cnn":
        first = [nn.Conv2d(81, 16, 3, 2, 1), act(), nn.Conv2d(16, 32, 3, 1, 1), act()]
    elif colour:
        first, channels = [], 3
        for width in (32, 64, 128):
            first += [nn.Conv2d(channels, width, 3, 1, 1), act(), nn.Conv2d(width, width, 3, 1, 1), act()]
            first, channels = [*first, nn.MaxPool2d(2)], width
        return nn.Sequential(*first, nn.Flatten(), nn.Linear(2048, 128), act(), nn.Linear(128, 10))
    else:
        first = [
            nn.Conv2d(1, 16, 8, 2, 3),
            act(),
            nn.MaxPool2d(2, 1),
            nn.Conv2d(16, 32, 4, 2),
            act(),
            nn.MaxPool2d(2, 1),
        ]
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(512, 32), act(), nn.Linear(32, 10))


def plain_inputs(model: str, images: NDArray[np.uint8]) -> Tensor:
    """Return pixels in [0, 1], or kymatio's features with every channel of every record standardised."""
    pixels = torch.from_numpy(np.array(images)).float() / 255
    if not model.startswith("scatter"):
        return pixels
    scattering = ScatteringTorch2D(J=2, L=8, shape=tuple(pixels.shape[2:]))
    features = torch.cat([scattering(part.contiguous()).flatten(1, 2) for part in pixels.split(500)])
    mean = features.mean((2, 3), keepdim=True)
    return (features - mean) / (features.var((2, 3), unbiased=False, keepdim=True) + 1e-5).sqrt()


def clipped_sum(model: GradSampleModule, x: Tensor, y: Tensor, clip_norm: float) -> Tensor:
    """Return the sum over records of their gradients, each scaled to norm at most `clip_norm`, as one vector."""
    model.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(model(x), y).backward()  # Opacus undoes the mean's division itself
    each = torch.cat([parameter.grad_sample.flatten(1) for parameter in model.parameters()], 1)
    return (each * (clip_norm / each.norm(dim=1)).clamp(max=1)[:, None]).sum(0)


def client_round(
    model: GradSampleModule, data: tuple[Tensor, Tensor], settings: dict, sigma: float,
    draws: EngineDraws | OwnDraws, client: int, epochs: range,
) -> None:  # fmt: skip
    """Train a client's model in place on its own records: DP-SGD with momentum, the divisor being the batch size."""
    x, y = data
    size, clip_norm = min(settings["batch_size"], len(y)), settings["clip_norm"]
    sgd = torch.optim.SGD(model.parameters(), lr=settings["learning_rate"], momentum=settings["momentum"])
    for epoch in epochs:
        order = draws.order(client, epoch, len(y))
        for step, first in enumerate(range(0, len(y), size)):
            rows = torch.from_numpy(order[first : first + size])
            total = clipped_sum(model, x[rows], y[rows], clip_norm)
            total = (total + sigma * clip_norm * draws.noise(len(total), client, epoch, step)) / size
            parts = total.split([parameter.numel() for parameter in model.parameters()])
            for parameter, part in zip(model.parameters(), parts, strict=True):
                parameter.grad = part.view_as(parameter)
            sgd.step()


def opacus_noise(records: int, settings: dict, cell: dict) -> float:
    """Return the noise multiplier that Opacus's own search finds for a client's records."""
    steps = math.ceil(records / settings["batch_size"])
    return get_noise_multiplier(
        target_epsilon=cell["epsilon"], target_delta=settings["delta"], sample_rate=1 / steps,
        steps=steps * cell["rounds"] * cell["local_epochs"], accountant="rdp", epsilon_tolerance=1e-4,
    )  # fmt: skip


def plain_run(
    data: ImageData, inputs: tuple[Tensor, Tensor], settings: dict, cell: dict, draws: EngineDraws | OwnDraws,
    sigma: float,
) -> Run:  # fmt: skip
    """Return the result of federated averaging of one cell by the plain loop."""
    y, test_y = (torch.from_numpy(np.array(labels)) for labels in (data.train_y, data.test_y))
    shares = draws.shares(len(y), [int(settings["client_share"] * len(y))] * settings["clients"])
    module = plain_model(settings["model"], data.train_x.shape[1:])
    draws.initialise(module)
    server = nn.utils.parameters_to_vector(module.parameters()).detach()
    for round in range(cell["rounds"]):
        epochs = range(1 + round * cell["local_epochs"], 1 + (round + 1) * cell["local_epochs"])
        sent = []
        for client, share in enumerate(shares):
            model = GradSampleModule(plain_model(settings["model"], data.train_x.shape[1:]))
            nn.utils.vector_to_parameters(server.clone(), model.parameters())
            client_round(model, (inputs[0][share], y[share]), settings, sigma, draws, client, epochs)
            sent.append(nn.utils.parameters_to_vector(model.parameters()).detach())
        server = torch.stack(sent).mean(0)
    nn.utils.vector_to_parameters(server, module.parameters())
    with torch.no_grad():
        correct = torch.cat([module(part).argmax(1) for part in inputs[1].split(1000)]) == test_y
    return Run(server, 100 * correct.double().mean().item(), sigma)


def engine_runs(folders: Folders, settings: dict, cell: dict, seeds: list[int], scratch: Path) -> list[Run]:
    """Return the results of dpfl's own training of the cell, one a seed; the weights from its last checkpoint."""
    description = json.loads((folders.arrays / "description.json").read_text())
    runs = []
    for seed in seeds:
        sweep = Sweep("bhaskar2025", "fedavg_images", f"plain_{seed}", settings, (cell,), (seed,), MACHINE)
        checkpoint, kept = scratch / f"{settings['model']}_{seed}.ckpt", []

        def keep(done: int, total: int, checkpoint: Path = checkpoint, kept: list = kept) -> None:
            if done == total:
                payload = checked_content(checkpoint.read_bytes()).partition(b"\n")[2]
                kept.append(torch.load(io.BytesIO(payload), weights_only=True)["running"]["weights"][0, 0])

        calibration = fedavg_images.calibrate(sweep, description)
        table = fedavg_images.train(sweep, folders, calibration, checkpoint, keep)
        runs.append(Run(kept[0], float(table["accuracy_pct"].iloc[0]), float(table["noise_multiplier"].iloc[0])))
    return runs


def compare(folders: Folders, model: str, settings: dict, cell: dict, seeds: int, scratch: Path) -> dict[str, float]:
    """Return how the two differ.

    noise_multiplier: the engine's over Opacus's. With the engine's draws: weights, the largest relative distance of
    the last averages, and same_draws_pct, the largest difference of their accuracies. With own draws: means and
    deviations over seeds, and deviations, the difference of the means in standard deviations of that difference.
    """
    settings, data = {**settings, "model": model}, load_images(folders.arrays)
    inputs = plain_inputs(model, data.train_x), plain_inputs(model, data.test_x)
    shape, numbers = data.train_x.shape[1:], list(range(seeds))
    engine = engine_runs(folders, settings, cell, numbers, scratch)
    run = (data, inputs, settings, cell)
    sigma = opacus_noise(int(settings["client_share"] * len(data.train_y)), settings, cell)
    same = [
        plain_run(*run, EngineDraws(model, shape, seed), engine[seed].noise_multiplier) for seed in numbers[:SAME_SEEDS]
    ]
    own = [plain_run(*run, OwnDraws(1000 + seed), sigma) for seed in numbers]
    ours, theirs = ([run.accuracy_pct for run in runs] for runs in (engine, own))
    error = math.sqrt((statistics.variance(ours) + statistics.variance(theirs)) / seeds)
    pairs = list(zip(engine, same, strict=False))
    return {
        "noise_multiplier": engine[0].noise_multiplier / sigma,
        "weights": max(((a.weights - b.weights).norm() / b.weights.norm()).item() for a, b in pairs),
        "same_draws_pct": max(abs(a.accuracy_pct - b.accuracy_pct) for a, b in pairs),
        "engine_pct": statistics.mean(ours), "engine_deviation": statistics.stdev(ours),
        "plain_pct": statistics.mean(theirs), "plain_deviation": statistics.stdev(theirs),
        "deviations": abs(statistics.mean(ours) - statistics.mean(theirs)) / error,
    }  # fmt: skip


def stand_in(root: Path, dataset: str = "digits") -> Folders:
    """Write the arrays and features of a stand-in below `root`; return their folders."""
    folders = Folders.of(root, dataset)
    build_arrays(dataset, folders.arrays)
    build_features(folders.arrays, folders.features, lambda done, total: None)
    return folders


def main() -> int:
    """Print a JSON line a model; return 1 where weights or accuracies do not agree."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="a data folder of dpfl; without it, the digits of scikit-learn")
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        folders = Folders.of(given.data, given.dataset) if given.data else stand_in(scratch, given.dataset)
        for model in given.models:
            settings, cell = (PUBLISHED, PUBLISHED_CELL) if given.data else (SETTINGS, CELL)
            settings = {**settings, "dataset": given.dataset}
            found = compare(folders, model, settings, cell, given.seeds, scratch)
            failed |= found["same_draws_pct"] > 1 or found["deviations"] > 2
            print(json.dumps({"model": model, "dataset": given.dataset, **found}), flush=True)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
