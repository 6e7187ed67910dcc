"""Private training here against other programs, and against training without privacy, in one run: `make bench-peers`.

The same model, weights, inputs and true Poisson batches (rate 64/6000), one thread. Each program runs in a process of
its own and takes some steps when it is its turn: what slows the machine slows all. Before anything counts, one step
without noise has to move the weights alike in all that clip. One JSON object a line: what it ran on, then, for each
model and program, records a second of processor time, the share of a core's peak that their forward and backward passes
are, memory at its peak above that at rest, and `ratio`, ours over theirs in records a second. Exit 1 where a target is
missed. docs/write_speed.py makes docs/speed.md from these lines.

Each program has its best layout: SGD without privacy has the channels last. Opacus has them first, because the norms of
Opacus 1.6.0 are wrong with channels last. It is taught how the records' gradients of a scale and a shift follow from
what it hooks. All but `ours_alone` also run in bfloat16 (`_bfloat16`): torch's programs by its autocast, and JAX with
values and gradients cast to it. `ratio` compares programs of one precision.

`ours` trains the stack of a job (3 budgets, one of them not private, x 6 splits on grey images; 3 budgets on colour
ones), whose models share batches, and a record counts for each model. `ours_alone` trains one, as the others do.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
import warnings
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from engine import (
    BATCH,
    BUDGETS,
    CLIP_NORM,
    LEARNING_RATE,
    MOMENTUM,
    NOISE,
    SPLITS,
    Batches,
    Case,
    Stack,
    peak_flops,
    training_flops,
)
from jax_peer import Jax
from numpy.typing import NDArray
from torch import nn

from dpfl.data.datasets import COLOUR, GREY
from dpfl.engine.networks import ImageModel, ScaleShift
from dpfl.provenance.record import host, software

STEPS, ROUNDS = {GREY: 10, COLOUR: 2}, 7
RULE = {"clip_norm": CLIP_NORM, "divisor": BATCH, "learning_rate": LEARNING_RATE, "momentum": MOMENTUM}
TOLERANCE, TOLERANCE_BFLOAT16 = 1e-3, 0.1  # of the largest change of a weight in one step
PRIVATE_TARGET = 3.0
PLAIN_TARGETS = {GREY: 2.0, COLOUR: 0.6}
OPACUS_TARGETS = {(model, GREY): 8.0 for model in ImageModel} | {
    (ImageModel.SCATTER_LINEAR, shape): 15.0 for shape in (GREY, COLOUR)
}
"""Against Opacus's hooks; PRIVATE_TARGET where there is none."""
BFLOAT16 = "_bfloat16"
"""How the names of programs end that run in it."""


class Torch:
    """SGD without privacy, and what Opacus makes of it. `kind`: plain, opacus, opacus_ghost or opacus_fast."""

    models = 1

    def __init__(self, case: Case, noise: float, kind: str, *, bfloat16: bool):
        self.inputs, self.labels = case.data()
        self.module: Any = case.torch_module()
        self.optimizer: Any = torch.optim.SGD(self.module.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
        self.loss: Any = nn.functional.cross_entropy
        self.bfloat16 = bfloat16
        if kind == "plain" and self.inputs.ndim == 4:
            self.module = self.module.to(memory_format=torch.channels_last)
            self.inputs = self.inputs.contiguous(memory_format=torch.channels_last)
        if kind != "plain":
            _teach_opacus()
        if kind == "opacus":
            from opacus import GradSampleModule
            from opacus.optimizers import DPOptimizer

            self.module = GradSampleModule(self.module)
            self.optimizer = DPOptimizer(self.optimizer, **_opacus(noise))
        elif kind != "plain":
            from opacus.grad_sample import GradSampleModuleFastGradientClipping
            from opacus.optimizers import DPOptimizerFastGradientClipping
            from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

            ghost = kind == "opacus_ghost"
            self.module = GradSampleModuleFastGradientClipping(
                self.module, max_grad_norm=CLIP_NORM, use_ghost_clipping=ghost
            )
            self.optimizer = DPOptimizerFastGradientClipping(self.optimizer, **_opacus(noise))
            self.loss = DPLossFastGradientClipping(self.module, self.optimizer, nn.CrossEntropyLoss())

    def train(self, batches: Batches) -> None:
        """Train on some batches."""
        for rows in batches:
            index = torch.from_numpy(rows)
            self.optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=self.bfloat16):
                logits = self.module(self.inputs[index])
            self.loss(logits.float(), self.labels[index]).backward()
            self.optimizer.step()

    def vector(self) -> NDArray[np.float32]:
        """The weights."""
        return torch.cat([each.detach().flatten() for each in self.module.parameters()]).numpy()


def _teach_opacus() -> None:
    """Give Opacus the gradients and norms of ScaleShift, which it would else differentiate record by record."""
    from opacus.grad_sample import register_grad_sampler, register_norm_sampler

    def of_records(layer: ScaleShift, activations: list, d: torch.Tensor) -> dict:
        products, positions = d * activations[0], tuple(range(2, d.ndim))
        sums = [each.sum(positions) if positions else each for each in (products, d)]
        return dict(zip((layer.weight, layer.bias), sums, strict=True))

    def norms(layer: ScaleShift, activations: list, d: torch.Tensor) -> dict:
        return {each: sums.norm(dim=1) for each, sums in of_records(layer, activations, d).items()}

    register_grad_sampler(ScaleShift)(of_records)
    register_norm_sampler(ScaleShift)(norms)


def _opacus(noise: float) -> dict[str, Any]:
    """Return the options of Opacus's optimizers."""
    return {"noise_multiplier": noise, "max_grad_norm": CLIP_NORM, "expected_batch_size": BATCH}


def _program(case: Case, noise: float, name: str) -> Any:
    """Return the program of that name."""
    bfloat16 = name.endswith(BFLOAT16)
    if name.startswith("ours"):
        clip_norms = (CLIP_NORM,) if name == "ours_alone" else BUDGETS * SPLITS[case.shape]
        return Stack(case, noise, clip_norms, torch.bfloat16 if bfloat16 else torch.float32)
    if name.startswith("jax"):
        most = max(map(len, case.batches()))
        return Jax(case.torch_module(), case.data(), most, RULE | {"noise": noise, "bfloat16": bfloat16})
    return Torch(case, noise, name.removesuffix(BFLOAT16), bfloat16=bfloat16)


_IN_BOTH = ("ours", "opacus", "opacus_ghost", "opacus_fast", "jax", "plain")
PROGRAMS = (*_IN_BOTH, "ours_alone", *(f"{name}{BFLOAT16}" for name in _IN_BOTH))


def work(name: str, case: Case, line: Connection) -> None:
    """Answer requests of `measured` in a process of its own."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    batches = case.batches()
    quiet = _program(case, 0.0, name)
    before = quiet.vector().copy()
    quiet.train(batches[:1])
    line.send(quiet.vector() - before)
    del quiet
    program = _program(case, NOISE, name)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    at_rest = _memory_mb("VmRSS")
    program.train([max(batches, key=len), *batches[:2]])
    line.send((_memory_mb("VmHWM") - at_rest, program.models))
    while (chosen := line.recv()) is not None:
        start = time.process_time()
        program.train(batches[chosen])
        line.send(time.process_time() - start)


def _memory_mb(name: str) -> float:
    """Return what Linux says of this process's memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(each.split()[1]) / 1024 for each in lines if each.startswith(f"{name}:"))


def measured(case: Case) -> dict[str, dict[str, float]]:
    """Return records a second, the share of a core's peak and peak memory of each program on a model.

    Raises ValueError where a program that clips takes another step than the others.
    """
    context = multiprocessing.get_context("spawn")
    lines, processes = {}, []
    for name in PROGRAMS:
        lines[name], theirs = context.Pipe()
        processes.append(context.Process(target=work, args=(name, case, theirs), daemon=True))
        processes[-1].start()
    moved = {name: line.recv() for name, line in lines.items()}
    for name in [each for each in PROGRAMS if not each.startswith("plain")]:
        off = np.abs(moved[name] - moved["ours"]).max() / np.abs(moved["ours"]).max()
        if off > (TOLERANCE_BFLOAT16 if name.endswith(BFLOAT16) else TOLERANCE):
            raise ValueError(f"{case.name}: {name} takes another step than ours, by {off:.1e} of the largest change")
    peaks = {name: line.recv() for name, line in lines.items()}
    batches, steps = case.batches(), STEPS[case.shape]
    fastest, peak = dict.fromkeys(PROGRAMS, 0.0), 0.0
    for turn in range(ROUNDS):
        peak = max(peak, peak_flops())
        chosen = slice(turn * steps, (turn + 1) * steps)
        records = sum(map(len, batches[chosen]))
        for name, line in lines.items():
            line.send(chosen)
            fastest[name] = max(fastest[name], records * peaks[name][1] / line.recv())
    for line, process in zip(lines.values(), processes, strict=True):
        line.send(None)
        process.join()
    share = training_flops(case) / peak
    return {
        name: {"records_per_second": speed, "share_of_peak": speed * share, "peak_memory_mb": peaks[name][0]}
        for name, speed in fastest.items()
    }


def _instructions() -> list[str]:
    """Return this processor's sets of instructions that decide how fast matrices are multiplied."""
    has = torch.cpu.get_capabilities()
    known = ("avx2", "avx512_f", "avx512_bf16", "amx_bf16", "amx_fp16", "neon", "bf16")
    return [each for each in known if has.get(each)]


def main() -> int:
    """Print a line for each model and program; return the exit status."""
    os.environ |= {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    torch.set_num_threads(1)
    print(
        json.dumps(
            {
                "name": "measured_on",
                **host("cpu", 1),
                **software(),
                "jax": version("jax"),
                "instructions": _instructions(),
            }
        ),
        flush=True,
    )
    missed = False
    for shape in (GREY, COLOUR):
        for model in ImageModel:
            case = Case(model, shape)
            found = measured(case)
            for name, each in found.items():
                ours = f"ours{BFLOAT16}" if name.endswith(BFLOAT16) else "ours"
                ratio = found[ours]["records_per_second"] / each["records_per_second"]
                target = PLAIN_TARGETS[shape] if name.startswith("plain") else PRIVATE_TARGET
                if name == "opacus":
                    target = OPACUS_TARGETS.get((model, shape), PRIVATE_TARGET)
                result = {"name": f"ours_over_{name}_{case.name}", "case": case.name, "program": name, "ratio": ratio}
                result |= each
                if not name.startswith("ours"):
                    result["target"] = f">= {target:g}"
                    missed |= ratio < target
                print(json.dumps(result), flush=True)
    return int(missed)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # no argument is known
    sys.exit(main())
