import math

import pytest
import torch
from torch import nn

from dpfl.engine.sgd import RECORDS_AT_ONCE, accuracy_pct


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


class Greedy(nn.Linear):
    """A model for which memory runs out beyond some records."""

    def forward(self, x):
        if len(x) > 300:
            raise MemoryError
        return super().forward(x)


def test_fewer_records_go_together_where_memory_runs_out(caplog):
    inputs = torch.randn(2 * RECORDS_AT_ONCE + 10, 2, generator=torch.Generator().manual_seed(0))
    labels, weights = inputs.argmax(1), torch.eye(2).flatten().repeat(3, 1)
    labels[:100] = 0
    expected = accuracy_pct(nn.Linear(2, 2, bias=False), weights, inputs, labels)
    assert accuracy_pct(Greedy(2, 2, bias=False), weights, inputs, labels) == expected
    assert [record.message for record in caplog.records] == [
        f"out of memory: {count} records are evaluated together" for count in (500, 250)
    ]


def test_every_input_has_a_label():
    with pytest.raises(ValueError, match="labels: 3 for 4 inputs"):
        accuracy_pct(nn.Linear(2, 2), torch.zeros(1, 6), torch.zeros(4, 2), torch.zeros(3))


def test_other_errors_of_a_model_are_not_taken_for_a_lack_of_memory():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        accuracy_pct(nn.Linear(3, 2, bias=False), torch.zeros(1, 6), torch.zeros(4, 2), torch.zeros(4))
