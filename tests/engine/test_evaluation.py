from __future__ import annotations

import math

import torch
from torch import nn

from dpfl.engine.evaluation import RECORDS_AT_ONCE, accuracy_pct


def test_counts_correct_predictions_of_every_model_over_all_chunks():
    count = 2 * RECORDS_AT_ONCE + 10
    inputs = torch.eye(2)[torch.arange(count) % 2]
    labels = torch.zeros(count, dtype=torch.long)
    labels[: count // 2] = inputs[: count // 2].argmax(1)
    identity, swapped, broken = torch.eye(2).flatten(), torch.eye(2).flip(0).flatten(), torch.full((4,), math.nan)
    weights = torch.stack([identity, swapped, broken])
    expected = [
        100 * int((labels == inputs.argmax(1)).sum()) / count,
        100 * int((labels == inputs.argmin(1)).sum()) / count,
    ]
    measured = accuracy_pct(nn.Linear(2, 2, bias=False), weights, inputs, labels)
    assert measured[:2] == expected
    assert 0 <= measured[2] <= 100
