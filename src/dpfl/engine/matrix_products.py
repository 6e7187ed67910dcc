"""Multiply large matrices in single precision by the library with the wider vectors on a CPU."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

LARGE = 2**21  # multiplications; oneDNN takes 20 us to begin


def product(left: Tensor, right: Tensor, *, stacked: bool = False) -> Tensor:
    """Return left @ right; `stacked`: it is of several models, and each shall get the bits that it gets alone.

    oneDNN adds the products of an entry one after the other, so that no entry depends on how many there are: MKL's do.

    torch leaves products of single precision to MKL, which keeps AVX-512 to Intel's processors; oneDNN has it on all.
    torch turns to oneDNN under a setting that permits rounding of the factors to bfloat16. oneDNN does that on
    processors that multiply bfloat16 matrices in one instruction, where MKL would continue; elsewhere all stays in
    single precision. For one thread at a time: the setting is the process's.
    """
    single = left.device.type == "cpu" and left.dtype is torch.float32
    if not single or not (stacked or left.numel() * right.shape[-1] >= LARGE) or not _keeps_precision():
        return left @ right
    setting = torch.backends.mkldnn.matmul
    before, setting.fp32_precision = setting.fp32_precision, "bf16"
    try:
        return left @ right
    finally:
        setting.fp32_precision = before


def multiplies_bfloat16(device: str) -> bool:
    """Return whether a device has instructions for it; a GPU of torch's, or this processor. Without them it is slow."""
    if device != "cpu":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    has = getattr(torch.cpu, "get_capabilities", dict)()
    return any(has.get(each, False) for each in ("avx512_bf16", "amx_bf16", "bf16"))


@cache
def _keeps_precision() -> bool:
    """Return whether torch knows this processor to have nothing that oneDNN could round for."""
    has = getattr(torch.cpu, "get_capabilities", dict)()
    return has.get("avx512_f", False) and not any(has.get(each, True) for each in ("amx_tile", "amx_bf16", "avx10_2"))
