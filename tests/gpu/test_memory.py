"""Stacks are cut to a budget of memory: what goes together never exceeds it, on 16, 24, 80 and 140 GB and below."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dpfl.data.datasets import COLOUR, GREY
from dpfl.engine.networks import ImageModel, build
from dpfl.engine.per_record_gradients import StackedGradients, gradient_rule
from dpfl.errors import InputError
from dpfl.images.fedavg_images import cross_entropy

MODELS = [(model, shape) for model in ImageModel for shape in (GREY, COLOUR)]


class Counting:
    """A rule whose gradient of a record is the record's number; notes how many go together."""

    def __init__(self, bytes_a_record):
        self.bytes_a_record, self.largest = bytes_a_record, 0

    def record_bytes(self, record):
        """What was given."""
        return self.bytes_a_record

    def clipped_sums(self, weights, batch, clip_norms):
        """The sum of the records that are present, the same for every model."""
        self.largest = max(self.largest, len(weights) * len(batch[0]))
        return (batch[0][:, 0] * batch[2]).sum().expand(len(weights), 1).clone()


def rule_of(model, shape):
    """A model's own rule, and a record that it reads."""
    reads = (81 * shape[0], shape[1] // 4, shape[2] // 4) if model.reads_features else shape
    record = torch.zeros(reads)
    return gradient_rule(build(model, shape, seed=0), cross_entropy, record), record


@settings(max_examples=50, deadline=None)
@given(
    groups=st.integers(1, 4),
    variants=st.integers(1, 20),
    length=st.integers(1, 90),
    bytes_a_record=st.integers(1, 1000),
    budget=st.integers(1, 300_000),
)
def test_what_goes_together_fits_and_the_sums_are_whole(groups, variants, length, bytes_a_record, budget):
    rule = Counting(bytes_a_record)
    if budget < bytes_a_record:
        with pytest.raises(InputError, match="memory_gb"):
            StackedGradients(rule, torch.zeros(1), budget)
        return
    stacked = StackedGradients(rule, torch.zeros(1), budget)
    x = torch.arange(groups * length, dtype=torch.float64).view(groups, length, 1)
    batch = (x, torch.zeros(groups, length), torch.ones(groups, length, dtype=torch.float64))
    sums = stacked(torch.zeros(groups, variants, 1, dtype=torch.float64), batch, torch.ones(variants))
    assert rule.largest * bytes_a_record <= budget
    assert torch.equal(sums, x.sum(1, keepdim=True).expand(groups, variants, 1))


@pytest.mark.parametrize(("model", "shape"), MODELS)
@pytest.mark.parametrize("gigabytes", [16, 24, 80, 140])
def test_every_model_fits_every_gpu_and_uses_it(model, shape, gigabytes):
    rule, record = rule_of(model, shape)
    budget = 0.8 * gigabytes * 2**30
    at_once = StackedGradients(rule, record, budget).records_at_once
    assert at_once * rule.record_bytes(record) <= budget
    assert (at_once + 1) * rule.record_bytes(record) > budget
    assert at_once >= 64, "not even one model's batch"


@pytest.mark.parametrize(("model", "shape"), MODELS)
def test_a_record_is_counted_with_at_least_what_its_tensors_must_hold(model, shape):
    """A layer's output and the gradient there are alive at once: a bound from below. Flattening makes no new tensor."""
    rule, record = rule_of(model, shape)
    module = build(model, shape, seed=0)
    outputs = []
    for each in module.modules():
        if not list(each.children()) and not isinstance(each, nn.Flatten):
            each.register_forward_hook(lambda _module, _inputs, output: outputs.append(output.numel()))
    module(record[None])
    assert rule.record_bytes(record) >= 4 * 2 * max(outputs) and math.isfinite(rule.record_bytes(record))
