"""Compress what a client sends by dropping small entries."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dpfl.accounting.arguments import real


def largest_entries(update: Tensor, kept_share: float) -> Tensor:
    """Return `update` (..., n) with its ceil(kept_share * n) entries of largest magnitude, the others 0.

    `kept_share` in (0, 1]; 1 returns `update` itself. Of equal magnitudes at the edge, torch.topk decides.
    Raises ValueError naming kept_share. Source: vandijk2023, section 2.4 (footnote).

    Formal guarantee: post-processing, so applied to a noisy update it costs no privacy. Applied before the noise it
    would have no bounded sensitivity.
    """
    share = real("kept_share", kept_share, above=0, at_most=1)
    if share == 1:
        return update
    kept = math.ceil(share * update.shape[-1])
    indices = update.abs().topk(kept, dim=-1, sorted=False).indices
    return torch.zeros_like(update).scatter_(-1, indices, update.gather(-1, indices))
