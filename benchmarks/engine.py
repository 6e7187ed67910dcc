"""Speed of stacked private training as ratios measured in one run. One JSON object a line; exit 1 on a missed target.

Each ratio is the time that one record of one model takes in a loop over Opacus clients, a client a variant (per-record
gradients, clipping, noise, momentum; batches at hand), over the time that it takes here: one thread, batches of 64, and
the variants of a sweep, 3 budgets of which one is not private x 6 splits on grey images, 3 budgets on colour images.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from multiprocessing.queues import SimpleQueue

import numpy as np
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from dpfl.data.image_shapes import COLOUR, GREY
from dpfl.engine.cross_entropy import cross_entropy
from dpfl.engine.network_gradients import gradient_rule
from dpfl.engine.parameter_vector import ParameterVector
from dpfl.engine.per_record_gradients import StackedGradients
from dpfl.engine.sgd import SGD, StackedHyperparameters
from dpfl.mechanisms.noise import base_noise
from dpfl.models.image_models import ImageModel, build

BATCH = 64
LEARNING_RATE, MOMENTUM, NOISE_MULTIPLIER, CLIP_NORM = 0.3, 0.5, 1.0, 1.0
BUDGETS = (CLIP_NORM, CLIP_NORM, inf)  # clip norms: two private variants to one that is not
MEMORY_BYTES = 2 * 2**30
SPLITS = {GREY: 6, COLOUR: 1}
REPEATS = {GREY: 15, COLOUR: 5}
TARGETS = {
    (ImageModel.SCATTER_LINEAR, GREY): 14,
    (ImageModel.SCATTER_CNN, GREY): 6,
    (ImageModel.CNN_TANH, GREY): 4,
    (ImageModel.CNN_RELU, GREY): 4,
    (ImageModel.SCATTER_LINEAR, COLOUR): 8,
    (ImageModel.SCATTER_CNN, COLOUR): 2.5,
    (ImageModel.CNN_TANH, COLOUR): 2.2,
    (ImageModel.CNN_RELU, COLOUR): 2.2,
}
WORKERS, ROUNDS = 2, 31
WORKERS_TARGET = 1.8


@dataclass(frozen=True)
class Case:
    """A model on images of a shape, with one batch of made-up inputs."""

    model: ImageModel
    shape: tuple[int, int, int]

    @property
    def name(self) -> str:
        """Model and number of channels."""
        return f"{self.model}_{'grey' if self.shape == GREY else 'colour'}"

    @property
    def variants(self) -> int:
        """Models in the stack."""
        return len(BUDGETS) * SPLITS[self.shape]

    def module(self) -> nn.Module:
        """The model at its initial weights."""
        return build(self.model, self.shape, seed=0)

    def batch(self) -> tuple[Tensor, Tensor]:
        """Inputs and labels."""
        channels, height, width = self.shape
        fed = (81 * channels, height // 4, width // 4) if self.model.reads_features else self.shape
        return torch.randn(BATCH, *fed, generator=torch.Generator().manual_seed(0)), torch.arange(BATCH) % 10


def as_in_torch(layer: nn.Module) -> nn.Module:
    """Return torch's own layer in place of a faster one of ours."""
    return nn.MaxPool2d(layer.kernel_size, layer.stride) if isinstance(layer, nn.MaxPool2d) else layer


def opacus_step(case: Case) -> Callable[[], None]:
    """Return a step of every variant's Opacus client, one client after the other, with torch's own pooling."""
    x, y = case.batch()
    clients = []
    for _ in range(case.variants):
        model = GradSampleModule(nn.Sequential(*map(as_in_torch, case.module())))
        sgd = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
        private = {"noise_multiplier": NOISE_MULTIPLIER, "max_grad_norm": CLIP_NORM, "expected_batch_size": BATCH}
        clients.append((model, DPOptimizer(sgd, **private)))

    def step() -> None:
        for model, optimizer in clients:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    return step


def stacked_step(case: Case) -> Callable[[], None]:
    """Return a step of all variants of one client."""
    module, data = case.module(), case.batch()
    layout = ParameterVector.of(module)
    initial = layout.flatten({name: value.detach() for name, value in module.named_parameters()})
    weights = initial.repeat(1, case.variants, 1)
    velocity = torch.zeros_like(weights)
    clip_norms = torch.tensor(BUDGETS * SPLITS[case.shape])
    gradients = StackedGradients(gradient_rule(module, cross_entropy, data[0][0]), data[0][0], MEMORY_BYTES)
    sgd = SGD(
        gradients,
        StackedHyperparameters(clip_norms, torch.full_like(clip_norms, NOISE_MULTIPLIER)),
        LEARNING_RATE,
        MOMENTUM,
    )
    address = {"seed": 0, "client": 0, "epoch": 0, "dtype": weights.dtype, "device": weights.device}
    batches = [[np.arange(BATCH)]]

    def step() -> None:
        noise = lambda group, step: base_noise(layout.size, step=step, **address)  # noqa: E731
        sgd.epoch(weights, velocity, data, batches, [BATCH], noise)

    return step


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time of one run of `work`."""
    start = time.process_time()
    work()
    return time.process_time() - start


def peak_flops(repeats: int = 10) -> float:
    """Return the floating-point operations a second of a large matrix product or convolution, whichever has more: torch
    hands them to different libraries, and not every one knows every processor."""
    square = torch.randn(1024, 1024)
    images, filters = torch.randn(16, 64, 32, 32).to(memory_format=torch.channels_last), torch.randn(64, 64, 3, 3)
    products = 2 * 1024**3 / min(seconds(lambda: square @ square) for _ in range(repeats))
    convolve = lambda: nn.functional.conv2d(images, filters, padding=1)  # noqa: E731
    with FlopCounterMode(display=False) as counter:
        convolve()
    return max(products, counter.get_total_flops() / min(seconds(convolve) for _ in range(repeats)))


def training_flops(case: Case) -> int:
    """Return the floating-point operations of one model's forward and backward pass, without per-record norms."""
    module, (x, y) = case.module(), case.batch()
    with FlopCounterMode(display=False) as counter:
        nn.functional.cross_entropy(module(x), y).backward()
    return counter.get_total_flops()


def against_opacus(case: Case) -> dict:
    """Time a step of all variants by both in turn: a busy machine disturbs both alike. The shortest of each counts."""
    theirs, ours = opacus_step(case), stacked_step(case)
    theirs(), ours()
    pairs = [(seconds(theirs), seconds(ours)) for _ in range(REPEATS[case.shape])]
    opacus, stacked = (min(times) for times in zip(*pairs, strict=True))
    target = TARGETS[case.model, case.shape]
    result = {"name": f"opacus_over_stacked_{case.name}", "ratio": opacus / stacked, "target": f">= {target}"}
    if case.model is not ImageModel.SCATTER_LINEAR:  # its time goes into reading and writing weights
        result["share_of_peak"] = training_flops(case) * case.variants / stacked / peak_flops()
    return result


def worker(case: Case, rank: int, steps: int, barrier: multiprocessing.synchronize.Barrier, times: SimpleQueue) -> None:
    """Put the seconds that some steps take this worker alone and beside the other, the medians over rounds."""
    torch.set_num_threads(1)
    step = stacked_step(case)
    step()

    def clocked() -> float:
        start = time.perf_counter()
        for _ in range(steps):
            step()
        return time.perf_counter() - start

    alone, beside = [], []
    for _ in range(ROUNDS):
        for turn in range(WORKERS):
            barrier.wait()
            if turn == rank:
                alone.append(clocked())
        barrier.wait()
        beside.append(clocked())
    times.put((statistics.median(alone), statistics.median(beside)))


def two_workers(case: Case, steps: int) -> dict:
    """The work that two processes do in the time of one. In each round one works, then the other, then both: what slows
    the machine for longer than a round slows all three."""
    context = multiprocessing.get_context("spawn")
    barrier, times = context.Barrier(WORKERS), context.SimpleQueue()
    processes = [context.Process(target=worker, args=(case, rank, steps, barrier, times)) for rank in range(WORKERS)]
    for process in processes:
        process.start()
    alone, beside = zip(*(times.get() for _ in processes), strict=True)
    for process in processes:
        process.join()
    ratio = sum(alone) / max(beside)
    return {"name": f"two_workers_over_one_{case.name}", "ratio": ratio, "target": f">= {WORKERS_TARGET}"}


def main() -> int:
    """Run every benchmark; return the exit status."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    missed = False

    def report(result: dict) -> None:
        nonlocal missed
        print(json.dumps(result), flush=True)
        missed |= result["ratio"] < float(result["target"].removeprefix(">= "))

    for model, shape in TARGETS:
        report(against_opacus(Case(model, shape)))
    report(two_workers(Case(ImageModel.CNN_TANH, GREY), steps=5))
    report(two_workers(Case(ImageModel.SCATTER_LINEAR, GREY), steps=100))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
