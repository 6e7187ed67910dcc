"""Budget of memory for gradients: a sweep's own, or what its machine has to give."""

from __future__ import annotations

from dataclasses import replace

from dpfl.grid.sweep import Sweep

GPU_SHARE = 0.8  # of what is free on a GPU goes to gradients; data, models and torch's own need the rest
CPU_GB = 1.0


def with_memory(sweep: Sweep) -> Sweep:
    """Return the sweep with a budget of memory: its own, or where it has none, most of what is free on its GPU.

    To be called where the sweep's GPU is held (`own_gpu`). A job on a CPU without a budget gets one gigabyte: it cannot
    know how many others share the machine.
    """
    if sweep.resources["memory_gb"] is not None:
        return sweep
    if sweep.resources["device"] == "cpu":
        return replace(sweep, resources={**sweep.resources, "memory_gb": CPU_GB})
    import torch

    free, _ = torch.cuda.mem_get_info()
    return replace(sweep, resources={**sweep.resources, "memory_gb": GPU_SHARE * free / 2**30})


def on_cpu(sweep: Sweep) -> Sweep:
    """Return the sweep for work that needs no GPU, whatever the sweep trains on: calibration asks for none."""
    return with_memory(replace(sweep, resources={**sweep.resources, "device": "cpu"}))
