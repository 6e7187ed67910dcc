"""How well trained models do on data that they have not seen."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from dpfl.engine.layout import Layout, aligned

RECORDS_AT_ONCE = 1000


@torch.no_grad()
def accuracy_pct(module: nn.Module, weights: Tensor, inputs: Tensor, labels: Tensor) -> list[float]:
    """Return the share of correct predictions, in percent, of each model of `weights` (models, parameters).

    `inputs` (n, ...) and `labels` (n,), n >= 1. A model whose outputs are not numbers is measured like any other.
    """
    layout = Layout.of(module)
    results = []
    for flat in aligned(weights):
        parameters = layout.views(flat)
        correct = sum(
            int((functional_call(module, parameters, (x,)).argmax(1) == y).sum())
            for x, y in zip(inputs.split(RECORDS_AT_ONCE), labels.split(RECORDS_AT_ONCE), strict=True)
        )
        results.append(100 * correct / len(labels))
    return results
