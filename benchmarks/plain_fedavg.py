"""Federated averaging as a plain loop: one client, one model and one batch at a time, and nothing of dpfl's engine.

Opacus's per-record gradients, a clip and a sum, torch's own SGD, layers as bhaskar2025 lists them, kymatio's features.
What is random comes from outside: the engine's own draws, by address, or draws of the same law by other routines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D
from numpy.typing import NDArray
from opacus import GradSampleModule
from torch import Tensor, nn

from dpfl.grid.sweep import Folders
from dpfl.mechanisms.noise import base_noise
from dpfl.models.image_models import ImageModel, build
from dpfl.randomness import generator

LOSS_RECORDS = 5000


@dataclass(frozen=True)
class Run:
    """What a run ended with: the last average as one vector, its accuracy on the test set, its mean cross-entropy on
    the first LOSS_RECORDS training records, and its Euclidean distance from the initial weights."""

    weights: Tensor
    accuracy_pct: float
    training_loss: float
    update_norm: float
    noise_multiplier: float


@dataclass(frozen=True)
class Task:
    """A cell, its settings, the data as the plain loop reads them (inputs, labels), and a client's records of them."""

    folders: Folders
    settings: dict
    cell: dict
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    shape: tuple[int, int, int]
    share: int

    @property
    def private(self) -> bool:
        """Whether the cell clips and adds noise."""
        return math.isfinite(self.cell["epsilon"])


class EngineDraws:
    """The engine's draws, by address: the permutation that shares are cut from, initial weights, batches, noise."""

    def __init__(self, task: Task, seed: int):
        self.task, self.seed = task, seed

    def order(self, records: int) -> NDArray[np.int64]:
        return generator(self.seed, "partition").permutation(records)

    def initialise(self, module: nn.Module) -> None:
        theirs = build(ImageModel(self.task.settings["model"]), self.task.shape, self.seed).parameters()
        with torch.no_grad():
            for own, given in zip(module.parameters(), theirs, strict=True):
                own.copy_(given)

    def batches(self, client: int, epoch: int, records: int, steps: int) -> list[NDArray[np.int64]]:
        draw = generator(self.seed, "batches", client, epoch)
        if not self.task.private:
            size = self.task.settings["batch_size"]
            return np.split(draw.permutation(records), range(size, records, size))
        return [np.flatnonzero(draw.random(records) < 1 / steps) for _ in range(steps)]

    def noise(self, size: int, client: int, epoch: int, step: int) -> Tensor:
        address = {"seed": self.seed, "client": client, "epoch": epoch, "step": step}
        return base_noise(size, **address, dtype=torch.float32, device=torch.device("cpu"))


class OwnDraws:
    """Draws of the same law by numpy's and torch's own routines, in turn. Weights and noise have a seed each: from one
    seed torch makes both of the same words, and the first step's noise depends on the initial weights."""

    def __init__(self, seed: int):
        numbers, self.weights, noise = (int(state) for state in np.random.SeedSequence(seed).generate_state(3))
        self.numpy, self.torch = np.random.default_rng(numbers), torch.Generator().manual_seed(noise)

    def order(self, records: int) -> NDArray[np.int64]:
        return self.numpy.permutation(records)

    def initialise(self, module: nn.Module) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(self.weights)
            for layer in (layer for layer in module if isinstance(layer, nn.Linear | nn.Conv2d)):
                layer.reset_parameters()

    def batches(self, client: int, epoch: int, records: int, steps: int) -> list[NDArray[np.int64]]:
        sizes = self.numpy.binomial(records, 1 / steps, steps)
        return [self.numpy.choice(records, size, replace=False) for size in sizes]

    def noise(self, size: int, client: int, epoch: int, step: int) -> Tensor:
        return torch.randn(size, generator=self.torch)


def plain_model(task: Task) -> nn.Sequential:
    """Return torch's own layers of a model, pooling after the activation. Source: bhaskar2025, section on models;
    Papernot et al. 2021, Tables 1 and 2; Tramer and Boneh 2021, Tables 8 and 9."""
    model, colour = task.settings["model"], task.shape[0] == 3
    act = nn.ReLU if model == "cnn_relu" else nn.Tanh

    def conv(*sizes: int) -> list[nn.Module]:
        return [nn.Conv2d(*sizes), act()]

    def dense(inputs: int, width: int) -> list[nn.Module]:
        return [nn.Flatten(), nn.Linear(inputs, width), act(), nn.Linear(width, 10)]

    if model == "scatter_linear":
        layers = [nn.Flatten(), nn.Linear(243 * 64 if colour else 81 * 49, 10)]
    elif model == "scatter_cnn" and colour:
        layers = [*conv(243, 64, 3, 1, 1), nn.MaxPool2d(2), *conv(64, 64, 3, 1, 1), nn.Flatten(), nn.Linear(1024, 10)]
    elif model == "scatter_cnn":
        layers = [*conv(81, 16, 3, 2, 1), *conv(16, 32, 3, 1, 1), *dense(512, 32)]
    elif colour:
        pairs = [(*conv(a, b, 3, 1, 1), *conv(b, b, 3, 1, 1)) for a, b in ((3, 32), (32, 64), (64, 128))]
        layers = [layer for pair in pairs for layer in (*pair, nn.MaxPool2d(2))] + dense(2048, 128)
    else:
        layers = [*conv(1, 16, 8, 2, 3), nn.MaxPool2d(2, 1), *conv(16, 32, 4, 2), nn.MaxPool2d(2, 1), *dense(512, 32)]
    return nn.Sequential(*layers)


def plain_inputs(model: str, images: NDArray[np.uint8]) -> Tensor:
    """Return pixels in [0, 1], or kymatio's features with every channel of every record standardised."""
    pixels = torch.from_numpy(np.array(images)).float() / 255
    if not model.startswith("scatter"):
        return pixels
    scattering = ScatteringTorch2D(J=2, L=8, shape=tuple(pixels.shape[2:]))
    parts = [scattering(part.contiguous()).flatten(1, 2) for part in pixels.split(500)]
    return nn.functional.instance_norm(torch.cat(parts))


def mean_gradient(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of the mean loss, as one vector."""
    loss = nn.functional.cross_entropy(model(x), y)
    return nn.utils.parameters_to_vector(torch.autograd.grad(loss, list(model.parameters())))


def clipped_sum(model: GradSampleModule, x: Tensor, y: Tensor, clip_norm: float) -> Tensor:
    """Return the sum over records of their gradients, each scaled to norm at most `clip_norm`, as one vector."""
    model.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(model(x), y).backward()  # Opacus undoes the mean's division itself
    each = torch.cat([parameter.grad_sample.flatten(1) for parameter in model.parameters()], 1)
    return (each * (clip_norm / each.norm(dim=1)).clamp(max=1)[:, None]).sum(0)


def client_round(task: Task, server: Tensor, records: NDArray[np.int64], sigma: float, draws: EngineDraws | OwnDraws,
                 client: int, epochs: range) -> Tensor:  # fmt: skip
    """Return a client's model after DP-SGD with momentum on Poisson samples of its records, noisy sums divided by B;
    without privacy, after SGD with momentum on shuffled epochs."""
    x, y = (part[records] for part in task.train)
    model = GradSampleModule(plain_model(task)) if task.private else plain_model(task)
    nn.utils.vector_to_parameters(server.clone(), model.parameters())
    size, clip_norm = task.settings["batch_size"], task.settings["clip_norm"]
    sgd = torch.optim.SGD(model.parameters(), lr=task.settings["learning_rate"], momentum=task.settings["momentum"])
    for epoch in epochs:
        for step, rows in enumerate(draws.batches(client, epoch, len(y), math.ceil(len(y) / size))):
            if task.private:
                total = clipped_sum(model, x[rows], y[rows], clip_norm)  # empty with probability below 1e-13 here
                gradient = (total + sigma * clip_norm * draws.noise(len(total), client, epoch, step)) / size
            else:
                gradient = mean_gradient(model, x[rows], y[rows])
            parts = gradient.split([parameter.numel() for parameter in model.parameters()])
            for parameter, part in zip(model.parameters(), parts, strict=True):
                parameter.grad = part.view_as(parameter)
            sgd.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def measured(task: Task, draws: EngineDraws | OwnDraws, weights: Tensor, sigma: float) -> Run:
    """Return the run that ended at `weights`, measured by the plain model."""
    module = plain_model(task)
    draws.initialise(module)
    moved = weights - nn.utils.parameters_to_vector(module.parameters()).detach()
    nn.utils.vector_to_parameters(weights.clone(), module.parameters())
    with torch.no_grad():
        correct = torch.cat([module(part).argmax(1) for part in task.test[0].split(1000)]) == task.test[1]
        x, y = (part[:LOSS_RECORDS] for part in task.train)
        loss = nn.functional.cross_entropy(torch.cat([module(part) for part in x.split(1000)]), y).item()
    return Run(weights, 100 * correct.double().mean().item(), loss, moved.norm().item(), sigma)


def plain_run(task: Task, draws: EngineDraws | OwnDraws, sigma: float) -> Run:
    """Return the result of federated averaging of one cell by the plain loop."""
    order, module, epochs_each = draws.order(len(task.train[1])), plain_model(task), task.cell["local_epochs"]
    draws.initialise(module)
    server = nn.utils.parameters_to_vector(module.parameters()).detach()
    for round in range(task.cell["rounds"]):
        epochs = range(1 + round * epochs_each, 1 + (round + 1) * epochs_each)
        shares = [order[client * task.share : (client + 1) * task.share] for client in range(task.settings["clients"])]
        sent = [client_round(task, server, own, sigma, draws, client, epochs) for client, own in enumerate(shares)]
        server = torch.stack(sent).mean(0)
    return measured(task, draws, server, sigma)
