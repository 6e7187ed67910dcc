import pytest
import torch
from torch import nn

from dpfl.engine.gradients import PerRecordGradients
from dpfl.models.softmax import SoftmaxGradients, softmax_regression


def cross_entropy(logits, labels):
    return nn.functional.cross_entropy(logits, labels, reduction="none")


def test_the_model_starts_at_zero():
    module = softmax_regression(7, 3)
    assert module.weight.shape == (3, 7) and not module.weight.any() and not module.bias.any()


@pytest.mark.parametrize("clip_norm", [0.3, 2.0, float("inf")])
def test_sums_equal_those_of_per_record_differentiation(clip_norm):
    draw = torch.Generator().manual_seed(0)
    module = softmax_regression(5, 4).double()
    weights = torch.randn(3, 24, generator=draw, dtype=torch.float64)
    x, y = torch.randn(9, 5, generator=draw, dtype=torch.float64), torch.arange(9) % 4
    batch, clips = (x, y, torch.ones(9, dtype=torch.float64)), torch.full((3,), clip_norm, dtype=torch.float64)
    expected = PerRecordGradients(module, cross_entropy).clipped_sums(weights, batch, clips)
    torch.testing.assert_close(
        SoftmaxGradients(module).clipped_sums(weights, batch, clips), expected, rtol=0, atol=1e-13
    )
