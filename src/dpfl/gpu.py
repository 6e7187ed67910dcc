"""Use a GPU by torch: refuse if there is none, compute in full single precision, name what decides its bits."""

from __future__ import annotations

import os
from typing import Any

from dpfl.errors import InputError

_ENVIRONMENT = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
"""cuBLAS repeats its bits with a fixed workspace; batches of many lengths leave no holes in memory that can grow."""


def prepare() -> None:
    """Set torch up for training on a GPU, before CUDA starts: no TF32, which torch allows convolutions on its own,
    products of bfloat16 added up in float32, and of cuDNN's algorithms those that repeat their bits.

    The environment is set where it says nothing else. Raises InputError as `require`.
    """
    import torch

    for name, value in _ENVIRONMENT.items():
        if not {name, name.replace("_CUDA", "")} & set(os.environ):  # PYTORCH_ALLOC_CONF is the newer name
            os.environ[name] = value
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    require()


def require() -> None:
    """Raise InputError where torch can use no GPU, with the reason as far as it is known."""
    import torch

    if torch.cuda.is_available():
        return
    reason = " on this machine: train on the CPU (training.device: cpu, or --device cpu)"
    if torch.version.cuda is None:
        reason = f", as torch {torch.__version__} is built without CUDA: install one that has it (docs/howto/gpu.md)"
    raise InputError(f"torch finds no GPU{reason}")


def facts() -> dict[str, Any]:
    """Return what decides the bits of a GPU's noise and sums: its model, and the versions of CUDA and cuDNN."""
    import torch

    name, cudnn = torch.cuda.get_device_name(), torch.backends.cudnn.version()
    return {"gpu": name, "cuda": torch.version.cuda, "cudnn": cudnn}
