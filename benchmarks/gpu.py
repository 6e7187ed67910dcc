"""Measure stacked private training on a GPU, with torch set as `dpfl train` sets it. One JSON object a line.

    python benchmarks/gpu.py                              every piece on the GPU, each for about a minute
    python benchmarks/gpu.py throughput --seconds 600     one of them
    python benchmarks/gpu.py --device cpu --seconds 20    all of them in miniature, where there is no GPU

peak         operations a second of large matrix products, by precision: what throughput is held against
throughput   by model: records a second, share of the peak, launches' share of a step; then the time of Tables 2 to 5
precision    by model and precision: error of clipped gradient sums against double precision, beside the noise added
memory       by model and card: the most that a stack held, as a share of the budget; exits 1 where it held more
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

import numpy as np
import torch

from dpfl import gpu
from dpfl.data.datasets import COLOUR, GREY, feature_shape
from dpfl.engine.networks import ImageModel, build
from dpfl.engine.per_record_gradients import ParameterVector, StackedGradients, cross_entropy, gradient_rule
from dpfl.engine.sgd import SGD, StackedHyperparameters, base_noise
from dpfl.grid import configuration, expansion
from dpfl.grid.training_job import GPU_SHARE
from dpfl.pipeline.cost import cost_key, work_of
from dpfl.pipeline.cost_fitting import KINDS, flops_of_a_record
from dpfl.randomness import generator

BATCH, CLIENTS, MODELS = 64, 10, 18
GIBIBYTES = (14, 22, 75, 135)  # free on cards of 16, 24, 80 and 141 GB
PRECISIONS = {"float32": "highest", "tf32": "high", "bfloat16": "medium"}
TABLE_MINUTES = 30


@dataclass
class Setting:
    """Models of a kind for several clients on a device, with one batch each."""

    kind: str
    device: torch.device
    clients: int
    models: int
    memory_bytes: float
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        _, model, colour = self.kind.split("/")
        shape = GREY if colour == "grey" else COLOUR
        reads = feature_shape(shape) if ImageModel(model).reads_features else shape
        records = self.clients * BATCH
        drawn = generator(0, "preparation").standard_normal((records, *reads), dtype=np.float32)
        self.inputs = torch.from_numpy(drawn).to(self.device, self.dtype)
        self.labels = (torch.arange(records) % 10).to(self.device)
        module = build(ImageModel(model), shape, seed=0).to(self.device, self.dtype)
        self.layout = ParameterVector.of(module)
        flat = self.layout.flatten({name: value.detach() for name, value in module.named_parameters()})
        self.weights = flat.repeat(self.clients, self.models, 1)
        bounds = [inf if place % 3 == 0 else 1.0 for place in range(self.models)]
        self.clip_norms = torch.tensor(bounds, device=self.device, dtype=self.dtype)
        self.rule = gradient_rule(module, cross_entropy, self.inputs[0])
        self.gradients = StackedGradients(self.rule, self.inputs[0], self.memory_bytes)

    def sums(self) -> torch.Tensor:
        """Return the clipped gradient sums of every client and model."""
        x = self.inputs.unflatten(0, (self.clients, BATCH))
        present = torch.ones(self.clients, BATCH, device=self.device, dtype=self.dtype)
        return self.gradients(self.weights, (x, self.labels.view(self.clients, BATCH), present), self.clip_norms)

    def step(self) -> Callable[[], None]:
        """Return one whole step of training."""
        noises = torch.ones(self.clients, self.models, device=self.device)
        sgd = SGD(self.gradients, StackedHyperparameters(self.clip_norms, noises), 0.01, 0.5)
        velocity = torch.zeros_like(self.weights)
        batches = [[np.arange(client * BATCH, (client + 1) * BATCH)] for client in range(self.clients)]
        address = {"seed": 0, "epoch": 0, "dtype": self.dtype, "device": self.device}

        def noise(group: int, step: int) -> torch.Tensor:
            return base_noise(self.layout.size, client=group, step=step, **address)

        expected = [BATCH] * self.clients
        return lambda: sgd.epoch(self.weights, velocity, (self.inputs, self.labels), batches, expected, noise)


def seconds(work: Callable[[], object], device: torch.device, limit: float) -> float:
    """Return the shortest time of `work` on the clock, within about `limit` seconds, a first run apart."""
    start, best = time.perf_counter(), inf
    work()
    while best == inf or time.perf_counter() - start < limit:
        _synchronise(device)
        before = time.perf_counter()
        work()
        _synchronise(device)
        best = min(best, time.perf_counter() - before)
    return best


def peak(device: torch.device, limit: float) -> Iterator[dict]:
    """Operations a second of large matrix products."""
    for name in PRECISIONS:
        yield {"name": f"peak_{name}", "tflops": _peak(name, device, limit / len(PRECISIONS)) / 1e12}


def throughput(device: torch.device, limit: float) -> Iterator[dict]:
    """Records a second by model, and how long Tables 2 to 5 take at that."""
    best = _peak("float32", device, limit / 20)
    share, memory_bytes = 0.9 * limit / len(KINDS), _free_bytes(device) * GPU_SHARE
    total, records = 0.0, _paper_records()
    for kind in KINDS:
        clients, models = (CLIENTS, MODELS) if device.type == "cuda" else (1, 3)
        setting = Setting(kind, device, clients, models, memory_bytes)
        took = seconds(setting.step(), device, 0.8 * share)
        small = seconds(Setting(kind, device, 1, 1, 2**30).step(), device, 0.2 * share)
        rate = clients * models * BATCH / took
        flops = flops_of_a_record(kind)[1] * rate
        total += records[kind] / rate
        yield {
            "name": f"throughput_{kind}",
            "records_per_second": round(rate),
            "tflops": flops / 1e12,
            "share_of_peak": flops / best,
            "launches_share": small / took,  # near 1: a stack takes as long as one model, so launches are what counts
        }
    minutes = total / 60
    yield {"name": "tables_2_to_5_minutes", "ratio": minutes, "target": f"<= {TABLE_MINUTES}"}


def precision(device: torch.device, limit: float) -> Iterator[dict]:
    """Error of the sums of one step, as a share of the sums and of the noise that DP-SGD adds to them (sigma 1)."""
    for kind in KINDS:
        exact = Setting(kind, device, 1, 3, 2**30, torch.float64).sums()
        for name in PRECISIONS if device.type == "cuda" else ["float32"]:
            with _at(name):
                found = Setting(kind, device, 1, 3, 2**30).sums().double()
            error = (found - exact)[:, 1:].norm(dim=-1)  # those that clip
            noise = exact.shape[-1] ** 0.5
            yield {
                "name": f"precision_{kind}_{name}",
                "relative_error": float((error / exact[:, 1:].norm(dim=-1)).max()),
                "error_over_noise": float(error.max()) / noise,
            }


def memory(device: torch.device, limit: float) -> Iterator[dict]:
    """What a step holds on each card; on a CPU by the engine's own count alone, for it cannot be asked."""
    whole = _free_bytes(device)
    for kind in KINDS:
        for gibibytes in GIBIBYTES:
            budget = GPU_SHARE * gibibytes * 2**30
            if device.type != "cuda":
                setting = Setting(kind, device, 1, 1, budget)
                held = setting.gradients.records_at_once * setting.rule.record_bytes(setting.inputs[0])
                yield {"name": f"memory_{kind}_{gibibytes}", "ratio": held / budget, "target": "<= 1"}
            elif gibibytes * 2**30 <= whole:
                yield {"name": f"memory_{kind}_{gibibytes}", **_held(kind, device, gibibytes, budget)}


def _paper_records() -> dict[str, float]:
    """Return the gradients of one record that Tables 2 to 5 take of each kind of model at scale paper, no studies."""
    config = configuration.resolve({"scale": "paper", "papers": ["bhaskar2025"]})
    found: dict[str, float] = defaultdict(float)
    for job in expansion.expand(config):
        if "study" not in job.settings:
            found[cost_key(job)] += work_of(job).records
    return found


def _held(kind: str, device: torch.device, gibibytes: int, budget: float) -> dict:
    """Run a stack too large for the budget on a GPU that is given no more memory than that."""
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, gibibytes * 2**30 / total))
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    setting = Setting(kind, device, CLIENTS, MODELS, budget)
    planned = setting.gradients.records_at_once
    before = torch.cuda.memory_allocated()
    setting.sums()
    held = torch.cuda.max_memory_allocated() - before
    used = min(planned, CLIENTS * MODELS * BATCH) * setting.rule.record_bytes(setting.inputs[0])
    torch.cuda.set_per_process_memory_fraction(1.0)
    shrunk = setting.gradients.records_at_once < planned
    return {"ratio": held / budget, "target": "<= 1", "held_over_planned": held / used, "ran_out": shrunk}


def _peak(name: str, device: torch.device, limit: float) -> float:
    """Return the operations a second of one large square product."""
    size = 8192 if device.type == "cuda" else 512
    dtype = torch.bfloat16 if name == "bfloat16" else torch.float32
    square = torch.randn(size, size, device=device).to(dtype)
    with _at(name):
        return 2 * size**3 / seconds(lambda: square @ square, device, limit)


@contextmanager
def _at(name: str) -> Iterator[None]:
    """Let single-precision products and convolutions use a precision of PRECISIONS."""
    before, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision(PRECISIONS[name])
    torch.backends.cudnn.allow_tf32 = name != "float32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32 = convolutions


def _free_bytes(device: torch.device) -> float:
    """Return the memory that is free on a GPU; on a CPU what a job may use by default."""
    if device.type == "cpu":
        return 2.0**30
    torch.cuda.empty_cache()  # what an earlier piece held and nothing needs any more
    return float(torch.cuda.mem_get_info(device)[0])


def _synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


PIECES = {"peak": peak, "throughput": throughput, "precision": precision, "memory": memory}


def met(result: dict) -> bool:
    """Return whether a result has no target or is within it."""
    return "target" not in result or result["ratio"] <= float(result["target"].removeprefix("<= "))


def main() -> int:
    """Run the pieces that are asked for; return the exit status: on a CPU no target of time counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pieces", nargs="*", choices=[*PIECES, []], default=[])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, help="of a piece on a GPU (60), of all together on a CPU (20)")
    options = parser.parse_args()
    chosen = options.pieces or list(PIECES)
    device = torch.device(options.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    else:
        gpu.prepare()
    limit = options.seconds or 60.0 if device.type == "cuda" else (options.seconds or 20.0) / (2 * len(chosen))
    missed = False
    for piece in chosen:
        for result in PIECES[piece](device, limit):
            print(json.dumps({**result, "device": options.device}), flush=True)
            missed |= not met(result) and (device.type == "cuda" or "minutes" not in result["name"])
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
