"""Time the training step of image models on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from math import inf
from statistics import geometric_mean, median

import numpy as np
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from dpfl import gpu
from dpfl.data.datasets import CLASSES, COLOUR, GREY, feature_shape
from dpfl.engine.cross_entropy import cross_entropy
from dpfl.engine.memory_budget import GPU_SHARE
from dpfl.engine.network_gradients import gradient_rule
from dpfl.engine.parameter_vector import ParameterVector
from dpfl.engine.per_record_gradients import StackedGradients
from dpfl.engine.sgd import SGD, StackedHyperparameters
from dpfl.mechanisms.noise import base_noise
from dpfl.models.image_models import ImageModel, build
from dpfl.pipeline.cost import BASE_MB, UnitCost
from dpfl.randomness import generator

KINDS = tuple(f"fedavg_images/{model}/{colour}" for model in ImageModel for colour in ("grey", "colour"))
BATCH = 64
CLIENTS = {"cpu": 1, "cuda": 10}  # in a stack: a GPU trains them together
FEW, MANY = 3, 18  # models of each: one budget without privacy to two with
FIXED_SECONDS = 6.0  # imports, data and a little of everything
MEMORY_BYTES = 2**30


def measure(kinds: Iterable[str], seconds: float, device: str = "cpu") -> dict[str, UnitCost]:
    """Return the unit costs of `kinds` of image models on this machine, within about `seconds` altogether.

    A kind's step is timed on a small and a large stack: what they differ by is the cost of records, the rest that of a
    step. Time is processor time of one thread on a CPU, which a busy machine disturbs least, and time on the clock on a
    GPU. Raises InputError where torch cannot use the device.
    """
    if device == "cuda":
        gpu.prepare()
    kinds = [kind for kind in kinds if kind in KINDS]
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return {kind: _unit(kind, seconds / len(kinds), torch.device(device)) for kind in kinds}
    finally:
        torch.set_num_threads(before)


def slowdown(measured: dict[str, UnitCost], shipped: dict[str, UnitCost]) -> float:
    """Return how many times as long this machine takes as that of the shipped table, by what both have measured."""
    ratios = [_typical(unit) / _typical(shipped[kind]) for kind, unit in measured.items() if kind in shipped]
    return geometric_mean(ratios) if ratios else 1.0


def stacked_step(kind: str, models: int, device: torch.device) -> Callable[[], None]:
    """Return a training step of a stack of `models`: batch, clipped gradients, noise, momentum."""
    _, model, colour = kind.split("/")
    shape = GREY if colour == "grey" else COLOUR
    reads = feature_shape(shape) if ImageModel(model).reads_features else shape
    drawn = generator(0, "preparation").standard_normal((8 * BATCH, *reads), dtype=np.float32)
    inputs = torch.from_numpy(drawn).to(device)
    labels = (torch.arange(8 * BATCH) % CLASSES).to(device)
    module = build(ImageModel(model), shape, seed=0).to(device)
    layout = ParameterVector.of(module)
    flat = layout.flatten({name: value.detach() for name, value in module.named_parameters()})
    clients = CLIENTS[device.type]
    weights = flat.repeat(clients, models, 1)
    velocity = torch.zeros_like(weights)
    clip_norms = torch.tensor([inf if index % 3 == 0 else 1.0 for index in range(models)], device=device)
    gradients = StackedGradients(gradient_rule(module, cross_entropy, inputs[0]), inputs[0], _memory_bytes(device))
    sgd = SGD(gradients, StackedHyperparameters(clip_norms, torch.ones_like(clip_norms)), 0.01, 0.5)
    address = {"seed": 0, "epoch": 0, "dtype": weights.dtype, "device": weights.device}

    def noise(group: int, step: int) -> torch.Tensor:
        return base_noise(layout.size, client=group, step=step, **address)

    def step() -> None:
        sgd.epoch(weights, velocity, (inputs, labels), [[np.arange(BATCH)]] * clients, [BATCH] * clients, noise)

    return step


def _memory_bytes(device: torch.device) -> float:
    """Return the budget for gradients: on a GPU what training takes there without one of its own."""
    if device.type == "cpu":
        return MEMORY_BYTES
    torch.cuda.empty_cache()  # what an earlier stack held
    return GPU_SHARE * torch.cuda.mem_get_info()[0]


def flops_of_a_record(kind: str) -> tuple[int, float]:
    """Return a model's number of parameters and the operations of one record's plain gradient."""
    _, model, colour = kind.split("/")
    shape = GREY if colour == "grey" else COLOUR
    reads = feature_shape(shape) if ImageModel(model).reads_features else shape
    module = build(ImageModel(model), shape, seed=0)
    with FlopCounterMode(display=False) as counter:
        functional.cross_entropy(module(torch.zeros(BATCH, *reads)), torch.zeros(BATCH, dtype=torch.int64)).backward()
    return sum(each.numel() for each in module.parameters()), counter.get_total_flops() / BATCH


def _unit(kind: str, seconds: float, device: torch.device) -> UnitCost:
    """Time one kind for about `seconds`."""
    parameters, flops = flops_of_a_record(kind)
    batch = BATCH * CLIENTS[device.type]
    few = _time(stacked_step(kind, FEW, device), seconds / 2, device)
    record = few / (batch * FEW)
    if few * MANY / FEW < seconds / 4:  # else records are all that counts
        many = _time(stacked_step(kind, MANY, device), seconds / 2, device)
        record = min(record, max(0.0, (many - few) / (batch * (MANY - FEW))))
    return UnitCost(kind, FIXED_SECONDS, few - FEW * batch * record, record, BASE_MB, parameters, flops)


def _time(step: Callable[[], None], seconds: float, device: torch.device) -> float:
    """Return the median time of a step, after a first one that does not count."""
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    times: list[float] = []
    start = time.perf_counter()
    step()
    while not times or time.perf_counter() - start < seconds:
        if device.type == "cuda":
            torch.cuda.synchronize()
        before = clock()
        step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(clock() - before)
    return median(times)


def _typical(unit: UnitCost) -> float:
    """Return the time of a step of a stack in the middle."""
    return unit.step_seconds + unit.record_seconds * BATCH * 9
