import pytest
import torch
from torch.func import grad, vmap

from dpfl.engine.per_record_gradients import cross_entropy


def by_autograd(logits, labels):
    """The derivative as torch differentiates the loss itself."""
    return grad(lambda values: cross_entropy(values, labels).sum())(logits)


@pytest.mark.parametrize("size", [1e-8, 1.0, 50.0])
def test_the_derivative_is_that_of_autograd(size):
    logits = size * torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(7) % 4
    torch.testing.assert_close(
        cross_entropy.derivative(logits, labels), by_autograd(logits, labels), rtol=0, atol=1e-15
    )


def test_models_that_share_records_have_classes_before_records():
    logits, labels = torch.randn(3, 4, 7, dtype=torch.float64), torch.arange(7) % 4
    output_gradients = cross_entropy.derivative(logits, labels)
    for model, gradients in zip(logits, output_gradients, strict=True):
        torch.testing.assert_close(gradients, by_autograd(model.T, labels).T, rtol=0, atol=1e-15)


def test_the_derivative_works_under_vmap():
    logits, labels = torch.randn(3, 7, 4), torch.arange(7) % 4
    expected = torch.stack([cross_entropy.derivative(each, labels) for each in logits])
    torch.testing.assert_close(vmap(cross_entropy.derivative, (0, None))(logits, labels), expected)
