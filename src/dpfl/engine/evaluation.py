"""Measure the accuracy of trained models on test data."""

from __future__ import annotations

import logging

import torch
from torch import Tensor, nn
from torch.func import functional_call

from dpfl.engine.parameter_vector import ParameterVector, aligned
from dpfl.engine.per_record_gradients import is_out_of_memory

_log = logging.getLogger(__name__)

RECORDS_AT_ONCE = 1000


@torch.no_grad()
def accuracy_pct(module: nn.Module, weights: Tensor, inputs: Tensor, labels: Tensor) -> list[float]:
    """Return the share of correct predictions, in percent, of each model of `weights` (models, parameters).

    `inputs` (n, ...) and `labels` (n,), n >= 1; raises ValueError where their lengths differ. A model whose outputs are
    not numbers is measured like any other. Where memory runs out, fewer records go together, and the log says so.
    """
    if len(inputs) != len(labels):
        raise ValueError(f"labels: {len(labels)} for {len(inputs)} inputs")
    layout, at_once = ParameterVector.of(module), RECORDS_AT_ONCE
    results: list[float] = []
    for flat in aligned(weights):
        parameters, correct, done = layout.views(flat), 0, 0
        while done < len(labels):
            here = slice(done, done + at_once)
            try:
                predicted = functional_call(module, parameters, (inputs[here],)).argmax(1)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or at_once == 1:
                    raise
                at_once //= 2
                _log.warning("out of memory: %d records are evaluated together", at_once)
                if weights.device.type == "cuda":
                    torch.cuda.empty_cache()
                continue
            correct += int((predicted == labels[here]).sum())
            done += at_once
        results.append(100 * correct / len(labels))
    return results
