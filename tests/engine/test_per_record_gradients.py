import itertools

import pytest
import torch
from torch import nn

from dpfl.engine.per_record_gradients import (
    PerRecordGradients,
    StackedGradients,
    activations,
    cross_entropy,
    gradient_rule,
)
from dpfl.errors import InputError

RULES = {
    "any module": lambda module, record: PerRecordGradients(module, cross_entropy),
    "layers": lambda module, record: gradient_rule(module, cross_entropy, record),
}
MODULES = {
    "dense": lambda: nn.Sequential(nn.Flatten(), nn.Linear(50, 5)),
    "convolution": lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(27, 5)),
}


def _problem(make, groups: int = 2, variants: int = 3, count: int = 7):
    draw = torch.Generator().manual_seed(0)
    module = make().double()
    size = sum(parameter.numel() for parameter in module.parameters())
    weights = torch.randn(groups, variants, size, generator=draw, dtype=torch.float64)
    x = torch.randn(groups, count, 2, 5, 5, generator=draw, dtype=torch.float64)
    y = torch.randint(5, (groups, count), generator=draw)
    return module, weights, x, y


def _by_hand(module, weights, x, y, clip_norm):
    """Loop over the records with plain autograd."""
    nn.utils.vector_to_parameters(weights, module.parameters())
    total = torch.zeros_like(weights)
    for record, label in zip(x, y, strict=True):
        loss = nn.functional.cross_entropy(module(record[None]), label[None])
        gradient = torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(module.parameters()))])
        total += gradient * min(1.0, clip_norm / float(gradient.norm()))
    return total


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("records_at_once", [1000, 14, 3, 1])
def test_sums_equal_a_loop_over_records_however_the_stack_is_split(rule, kind, records_at_once):
    module, weights, x, y = _problem(MODULES[kind])
    clip_norms = torch.tensor([1.0, float("inf"), 0.3], dtype=torch.float64)
    present = torch.ones(x.shape[:2], dtype=torch.float64)
    present[1, 4:] = 0
    stacked = StackedGradients(RULES[rule](module, x[0, 0]), x[0, 0], 1e9)
    stacked.records_at_once = records_at_once
    sums = stacked(weights, (x, y, present), clip_norms)
    for group, count in ((0, 7), (1, 4)):
        for variant, clip_norm in enumerate(clip_norms):
            expected = _by_hand(module, weights[group, variant], x[group, :count], y[group, :count], float(clip_norm))
            torch.testing.assert_close(sums[group, variant], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("kind", "value"), [*itertools.product(MODULES, [float("nan"), float("inf")]), ("dense", 1e300)]
)
@pytest.mark.parametrize("records_at_once", [1000, 3])
def test_a_record_that_cannot_be_clipped_adds_nothing_to_clipped_sums_and_shows_in_others(
    rule, kind, value, records_at_once
):
    """Its gradient is not finite, or its norm's square overflows: without it the sum must be the same."""
    module, weights, x, y = _problem(MODULES[kind])
    clip_norms = torch.tensor([1.0, float("inf"), 0.3], dtype=torch.float64)
    present = torch.ones(x.shape[:2], dtype=torch.float64)
    stacked = StackedGradients(RULES[rule](module, x[0, 0]), x[0, 0], 1e9)
    stacked.records_at_once = records_at_once
    absent = present.clone()
    absent[0, 2] = 0
    expected = stacked(weights, (x, y, absent), clip_norms)
    x = x.clone()
    x[0, 2] *= value
    sums = stacked(weights, (x, y, present), clip_norms)
    torch.testing.assert_close(sums[:, [0, 2]], expected[:, [0, 2]], rtol=0, atol=1e-12)
    assert not (sums[0, 1].isfinite() & (sums[0, 1].abs() < 1e290)).all()


def test_a_model_that_is_not_finite_gets_no_clipped_gradient():
    module, weights, x, y = _problem(MODULES["dense"])
    weights[0, 0, 3] = float("inf")
    stacked = StackedGradients(RULES["layers"](module, x[0, 0]), x[0, 0], 1e9)
    sums = stacked(weights, (x, y, torch.ones(x.shape[:2], dtype=x.dtype)), torch.ones(3, dtype=x.dtype))
    assert (sums[0, 0] == 0).all()
    assert sums.isfinite().all() and (sums[0, 1] != 0).any()


def test_a_stack_gives_every_model_what_it_gets_alone():
    module, weights, x, y = _problem(MODULES["convolution"])
    stacked = StackedGradients(gradient_rule(module, cross_entropy, x[0, 0]), x[0, 0], 1e9)
    batch, clip_norms = (x, y, torch.ones(x.shape[:2], dtype=torch.float64)), torch.tensor([1.0, 0.5, float("inf")])
    sums = stacked(weights, batch, clip_norms)
    for variant in range(3):
        alone = stacked(weights[:, variant : variant + 1], batch, clip_norms[variant : variant + 1])
        torch.testing.assert_close(alone[:, 0], sums[:, variant], rtol=0, atol=1e-13)


def test_no_records_give_zero():
    module, weights, x, y = _problem(MODULES["dense"])
    stacked = StackedGradients(PerRecordGradients(module, cross_entropy), x[0, 0], 1e9)
    sums = stacked(weights, (x[:, :0], y[:, :0], torch.ones(2, 0, dtype=torch.float64)), torch.ones(3))
    assert not sums.any()


def test_a_budget_without_room_for_one_record_is_refused_with_the_size_that_is_needed():
    module, _, x, _ = _problem(MODULES["dense"])
    with pytest.raises(InputError, match="memory_gb: one record's gradient needs"):
        StackedGradients(PerRecordGradients(module, cross_entropy), x[0, 0], 100)


class Hungry:
    """A rule for whose sums memory is short above so many records of one model."""

    def __init__(self, rule, room: int, error: Exception):
        self.rule, self.room, self.error, self.seen = rule, room, error, []

    def record_bytes(self, record):
        return self.rule.record_bytes(record)

    def clipped_sums(self, weights, batch, clip_norms):
        self.seen.append(len(weights) * len(batch[0]))
        if self.seen[-1] > self.room:
            raise self.error
        return self.rule.clipped_sums(weights, batch, clip_norms)


NO_MEMORY = [
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 99 bytes"),
]


@pytest.mark.parametrize("error", NO_MEMORY, ids=lambda error: type(error).__name__)
def test_where_memory_runs_out_fewer_models_go_together_and_the_log_says_so(error, caplog):
    module, weights, x, y = _problem(MODULES["dense"])
    batch, clip_norms = (x, y, torch.ones(x.shape[:2], dtype=torch.float64)), torch.tensor([1.0, 0.5, float("inf")])
    rule = gradient_rule(module, cross_entropy, x[0, 0])
    expected = StackedGradients(rule, x[0, 0], 1e9)(weights, batch, clip_norms)
    hungry = Hungry(rule, 3, error)
    stacked = StackedGradients(hungry, x[0, 0], 1e9)
    torch.testing.assert_close(stacked(weights, batch, clip_norms), expected, rtol=0, atol=1e-12)
    assert "out of memory: from here on" in caplog.text
    assert stacked.records_at_once <= 3
    hungry.seen.clear()
    stacked(weights, batch, clip_norms)
    assert max(hungry.seen) <= 3  # it has learnt


def test_one_record_that_does_not_fit_and_other_errors_are_said():
    module, weights, x, y = _problem(MODULES["dense"])
    batch = (x, y, torch.ones(x.shape[:2], dtype=torch.float64))
    rule = gradient_rule(module, cross_entropy, x[0, 0])
    with pytest.raises(InputError, match="does not fit"):
        StackedGradients(Hungry(rule, 0, MemoryError()), x[0, 0], 1e9)(weights, batch, torch.ones(3))
    with pytest.raises(RuntimeError, match="shapes"):
        StackedGradients(Hungry(rule, 0, RuntimeError("shapes differ")), x[0, 0], 1e9)(weights, batch, torch.ones(3))


def test_activations_are_counted_once_a_module():
    module, _, x, _ = _problem(MODULES["convolution"])
    assert activations(module, x[0, 0]) == 27 + 27 + 27 + 5
