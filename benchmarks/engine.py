"""Speed of stacked private training by itself, on one thread: the share of a core's peak that it reaches, the share of
its time that products take, and what two processes do in the time of one. One JSON object a line; exit 1 on a missed
target. For other programs see peers.py.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from multiprocessing.queues import SimpleQueue

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from dpfl.accounting.samplers import Sampling
from dpfl.data.datasets import CLASSES, COLOUR, GREY, feature_shape
from dpfl.engine.batches import BatchSampler
from dpfl.engine.networks import ImageModel, build
from dpfl.engine.per_record_gradients import ParameterVector, StackedGradients, cross_entropy, gradient_rule
from dpfl.engine.sgd import SGD, StackedHyperparameters, base_noise
from dpfl.randomness import generator

RECORDS, BATCH = 6000, 64
LEARNING_RATE, MOMENTUM, CLIP_NORM, NOISE = 0.3, 0.5, 1.0, 1.0
BUDGETS = (CLIP_NORM, CLIP_NORM, inf)  # clip norms: two private models to one that is not
SPLITS = {GREY: 6, COLOUR: 1}
MEMORY_BYTES = 2**30
SHARE_STEPS, SHARE_ROUNDS = {GREY: 5, COLOUR: 2}, 5
SHARE_TARGETS = {GREY: 0.2, COLOUR: 0.6}
PRODUCTS = [f"aten::{name}" for name in ("mm", "bmm", "addmm", "addmv_", "convolution_backward", "mkldnn_convolution")]
WORKERS, ROUNDS = 2, 31
WORKERS_TARGET = 1.8

Batches = Sequence[NDArray[np.int64]]


@dataclass(frozen=True)
class Case:
    """A model on images of a shape."""

    model: ImageModel
    shape: tuple[int, int, int]

    @property
    def name(self) -> str:
        """Model and kind of images."""
        return f"{self.model}_{'grey' if self.shape == GREY else 'colour'}"

    def module(self) -> nn.Sequential:
        """The model at its initial weights."""
        return build(self.model, self.shape, seed=0)

    def torch_module(self) -> nn.Sequential:
        """The same with torch's own pooling in place of our faster one."""
        layers = (
            nn.MaxPool2d(each.kernel_size, each.stride) if isinstance(each, nn.MaxPool2d) else each
            for each in self.module()
        )
        return nn.Sequential(*layers)

    def data(self) -> tuple[Tensor, Tensor]:
        """Inputs and labels: random, for time does not depend on what they show."""
        reads = feature_shape(self.shape) if self.model.reads_features else self.shape
        drawn = generator(0, "preparation").standard_normal((RECORDS, *reads), dtype=np.float32)
        return torch.from_numpy(drawn), torch.arange(RECORDS) % CLASSES

    def batches(self) -> Batches:
        """Poisson batches of an epoch."""
        return BatchSampler(Sampling.POISSON, BATCH, RECORDS).epoch(1, seed=0, client=0, records=RECORDS)


class Stack:
    """Private training here, of the models of a job or of one."""

    def __init__(self, case: Case, noise: float, clip_norms: tuple[float, ...], precision: torch.dtype = torch.float32):
        module, self.data = case.module(), case.data()
        self.layout, self.steps = ParameterVector.of(module), 0
        initial = self.layout.flatten({name: value.detach() for name, value in module.named_parameters()})
        self.weights = initial.repeat(1, len(clip_norms), 1)
        self.velocity = torch.zeros_like(self.weights)
        record = self.data[0][0]
        gradients = StackedGradients(gradient_rule(module, cross_entropy, record, precision), record, MEMORY_BYTES)
        norms = torch.tensor(clip_norms)
        self.sgd = SGD(gradients, StackedHyperparameters(norms, torch.full_like(norms, noise)), LEARNING_RATE, MOMENTUM)
        self.models = len(clip_norms)

    @classmethod
    def of_job(cls, case: Case) -> Stack:
        """The models of a job: each budget and split."""
        return cls(case, NOISE, BUDGETS * SPLITS[case.shape])

    def train(self, batches: Batches) -> None:
        """Train on some batches."""
        self.steps += 1
        address = {"seed": 0, "client": 0, "epoch": self.steps, "dtype": torch.float32, "device": self.weights.device}
        self.sgd.epoch(
            self.weights,
            self.velocity,
            self.data,
            [list(batches)],
            [BATCH],
            lambda _group, step: base_noise(self.layout.size, step=step, **address),
        )

    def vector(self) -> NDArray[np.float32]:
        """The weights of the first model."""
        return self.weights[0, 0].numpy()


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


def training_flops(case: Case) -> float:
    """Return the floating-point operations of one model's forward and backward pass of a record, without its norm."""
    x, y = (each[:BATCH] for each in case.data())
    with FlopCounterMode(display=False) as counter:
        nn.functional.cross_entropy(case.module()(x), y).backward()
    return counter.get_total_flops() / BATCH


def share_of_peak(case: Case) -> dict:
    """Return the share of a core's peak that training the models of a job reaches; the fastest round counts."""
    stack, batches = Stack.of_job(case), case.batches()[: SHARE_STEPS[case.shape]]
    stack.train(batches)
    fastest = min(seconds(lambda: stack.train(batches)) for _ in range(SHARE_ROUNDS))
    flops = training_flops(case) * stack.models * sum(map(len, batches))
    target = SHARE_TARGETS[case.shape]
    return {"name": f"share_of_peak_{case.name}", "ratio": flops / fastest / peak_flops(), "target": f">= {target}"}


def products_share(case: Case, precision: torch.dtype) -> dict:
    """Return the share of the processor time that convolutions and matrix products take in a step of a job's models.

    Faster products, as those of AMX, can make training 1/(1 - share) times as fast at most. It has no target.
    """
    stack, batches = (
        Stack(case, NOISE, BUDGETS * SPLITS[case.shape], precision),
        case.batches()[: SHARE_STEPS[case.shape]],
    )
    stack.train(batches)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        stack.train(batches)
    spent = {each.key: each.self_cpu_time_total for each in profiled.key_averages()}
    name = f"products_share_{case.name}_{str(precision).removeprefix('torch.')}"
    return {"name": name, "ratio": sum(spent.get(each, 0.0) for each in PRODUCTS) / sum(spent.values())}


def worker(case: Case, rank: int, steps: int, barrier: multiprocessing.synchronize.Barrier, times: SimpleQueue) -> None:
    """Put the seconds that some steps take this worker alone and beside the other, the medians over rounds."""
    torch.set_num_threads(1)
    stack, batches = Stack.of_job(case), case.batches()[:steps]
    stack.train(batches[:1])

    def clocked() -> float:
        start = time.perf_counter()
        stack.train(batches)
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
    torch.set_num_threads(1)
    missed = False

    def report(result: dict) -> None:
        nonlocal missed
        print(json.dumps(result), flush=True)
        missed |= result["ratio"] < float(result.get("target", ">= 0").removeprefix(">= "))

    for shape in (GREY, COLOUR):
        for model in (ImageModel.SCATTER_CNN, ImageModel.CNN_TANH, ImageModel.CNN_RELU):
            report(share_of_peak(Case(model, shape)))
    for shape, precisions in ((GREY, (torch.float32,)), (COLOUR, (torch.float32, torch.bfloat16))):
        for model in ImageModel:
            for precision in precisions:
                report(products_share(Case(model, shape), precision))
    report(two_workers(Case(ImageModel.CNN_TANH, GREY), steps=5))
    report(two_workers(Case(ImageModel.SCATTER_LINEAR, GREY), steps=90))
    return int(missed)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # no argument is known
    sys.exit(main())
