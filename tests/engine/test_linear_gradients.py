import pytest
import torch
from torch import nn

from dpfl.engine.per_record_gradients import (
    LinearGradients,
    ParameterVector,
    PerRecordGradients,
    cross_entropy,
    gradient_rule,
    is_linear,
)

LINEAR = [nn.Linear(6, 3), nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), nn.Sequential(nn.Linear(6, 3), nn.Identity())]
OTHERS = [
    nn.Linear(6, 3, bias=False),
    nn.Sequential(nn.Linear(6, 3), nn.Tanh()),
    nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 3)),
    nn.Sequential(nn.Flatten(2), nn.Linear(6, 3)),
    nn.Conv2d(1, 1, 1),
]


def test_linear_modules_are_told_from_others():
    assert all(is_linear(module) for module in LINEAR)
    assert not any(is_linear(module) for module in OTHERS)


@pytest.mark.parametrize("loss", [cross_entropy, lambda z, y: (z - torch.eye(3).double()[y]).square().sum(1)])
def test_sums_equal_those_record_by_record_for_any_loss(loss):
    module = LINEAR[1].double()
    draw = torch.Generator().manual_seed(0)
    weights = torch.randn(4, ParameterVector.of(module).size, generator=draw, dtype=torch.float64)
    x = torch.randn(9, 2, 3, generator=draw, dtype=torch.float64)
    batch = (x, torch.arange(9) % 3, torch.tensor([1.0] * 8 + [0.0], dtype=torch.float64))
    clip_norms = torch.tensor([1e6, 2.0, 0.1, float("inf")], dtype=torch.float64)
    rule = gradient_rule(module, loss, x[0])
    assert isinstance(rule, LinearGradients)
    expected = PerRecordGradients(module, loss).clipped_sums(weights, batch, clip_norms)
    torch.testing.assert_close(rule.clipped_sums(weights, batch, clip_norms), expected, rtol=0, atol=1e-13)
    norms = rule.clipped_sums(weights[2:3], tuple(part[:1] for part in batch), clip_norms[2:3]).norm()
    assert float(norms) == pytest.approx(0.1, rel=1e-14)


def test_a_stack_changes_nothing_but_rounding():
    """At the size of the papers' model: 3,969 features, in float32."""
    module = nn.Linear(3969, 10)
    draw = torch.Generator().manual_seed(0)
    weights = 0.01 * torch.randn(7, 39_700, generator=draw)
    rule, clip_norms = LinearGradients(module, cross_entropy), torch.tensor([1.0, 0.5, float("inf"), 1, 1, 2, 3])
    for count in (1, 7, 64):
        batch = torch.randn(count, 3969, generator=draw), torch.arange(count) % 10, torch.ones(count)
        together = rule.clipped_sums(weights, batch, clip_norms)
        for chosen in ([0], [3], [6, 0, 1]):
            alone = rule.clipped_sums(weights[chosen], batch, clip_norms[chosen])
            torch.testing.assert_close(alone, together[chosen], rtol=0, atol=1e-6 * float(together.abs().max()))


def test_a_model_that_is_not_finite_leaves_the_others_bit_for_bit():
    weights = torch.randn(3, 21, generator=torch.Generator().manual_seed(0))
    broken = weights.clone()
    broken[1] = float("nan")
    rule, batch = LinearGradients(LINEAR[0], cross_entropy), (torch.randn(5, 6), torch.arange(5) % 3, torch.ones(5))
    clean, found = (rule.clipped_sums(each, batch, torch.ones(3)) for each in (weights, broken))
    assert torch.equal(found[[0, 2]], clean[[0, 2]])
    assert torch.isnan(found[1]).all()
