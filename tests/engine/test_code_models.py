"""The models of bhaskar2025's code in the stack, against Opacus's own per-record gradients of torch's own modules."""

import copy
import warnings

import pytest
import torch
from opacus import GradSampleModule
from torch import nn
from torch.func import vmap

from dpfl.engine.layers import _keeps_precision
from dpfl.engine.per_record_gradients import (
    LayerGradients,
    LinearGradients,
    PerRecordGradients,
    aligned,
    cross_entropy,
    gradient_rule,
)

CLIP_NORMS = (0.1, float("inf"), 3.0, 1e6)


def _opacus(module, data):
    """Every record's gradient, (n, parameters)."""
    sampled = GradSampleModule(copy.deepcopy(module), loss_reduction="sum")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        nn.functional.cross_entropy(sampled(data[0]), data[1], reduction="sum").backward()
    return torch.cat([each.grad_sample.flatten(1) for each in sampled.parameters()], 1)


def _clipped(gradients, clip_norm):
    return (gradients * (clip_norm / gradients.norm(dim=1)).clamp(max=1)[:, None]).sum(0)


def _problem(code_model, models=1):
    labels = torch.arange(len(code_model.inputs)) % 10
    rule = gradient_rule(code_model.ours, cross_entropy, code_model.inputs[0])
    assert isinstance(rule, LayerGradients | LinearGradients)
    weights = torch.cat([each.detach().flatten() for each in code_model.ours.parameters()]).repeat(models, 1)
    present = torch.ones(len(labels), dtype=torch.float64)
    return rule, weights, (code_model.inputs, labels, present)


def test_clipped_sums_are_opacus_own(code_model):
    rule, weights, batch = _problem(code_model, len(CLIP_NORMS))
    gradients = _opacus(code_model.reference, (code_model.raw, batch[1]))
    assert gradients.norm(dim=1).min() > CLIP_NORMS[0]
    sums = rule.clipped_sums(weights, batch, torch.tensor(CLIP_NORMS, dtype=torch.float64))
    for ours, clip_norm in zip(sums, CLIP_NORMS, strict=True):
        torch.testing.assert_close(ours, _clipped(gradients, clip_norm), rtol=0, atol=1e-12)


def test_models_in_a_stack_get_what_they_get_alone_and_record_by_record(code_model):
    rule, weights, batch = _problem(code_model, 3)
    weights = weights + 0.05 * torch.randn(weights.shape, dtype=torch.float64)
    clip_norms = torch.tensor(CLIP_NORMS[:3], dtype=torch.float64)
    together = rule.clipped_sums(weights, batch, clip_norms)
    slow = PerRecordGradients(code_model.ours, cross_entropy).clipped_sums(weights, batch, clip_norms)
    torch.testing.assert_close(together, slow, rtol=0, atol=1e-11)
    for model in range(3):
        one = slice(model, model + 1)
        alone = rule.clipped_sums(weights[one], batch, clip_norms[one])[0]
        torch.testing.assert_close(alone, together[model], rtol=0, atol=1e-12)


@pytest.mark.parametrize("precision", [None, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_model_has_the_same_bits_alone_and_in_any_stack(code_model, precision):
    if not _keeps_precision():
        pytest.skip("torch leaves products to a library that rounds by position on this processor")
    clip_norms = torch.tensor([1.0, 0.3, float("inf"), 2.0, float("inf"), 0.7])
    rule = gradient_rule(code_model.ours.float(), cross_entropy, code_model.inputs[0].float(), precision)
    weights = torch.cat([each.detach().flatten() for each in code_model.ours.parameters()])
    weights = aligned(weights + 0.01 * torch.randn(6, len(weights)))
    for count in (6, 1):
        batch = code_model.inputs[:count].float(), torch.arange(count) % 10, torch.ones(count)
        together = rule.clipped_sums(weights, batch, clip_norms)
        for chosen in ([0], [2], [4, 1], [0, 3, 5], [5, 4, 3, 2, 1]):
            found = rule.clipped_sums(aligned(weights[chosen]), batch, clip_norms[chosen])
            assert torch.equal(found, together[chosen])


@pytest.mark.parametrize("code_model", [("tanh", "grey"), ("linear", "grey"), ("cnn", "grey")], indirect=True)
def test_bfloat16_moves_sums_by_its_rounding_alone(code_model):
    """And not by less: it runs. Sums of clipped gradients of 40 records."""
    labels = torch.arange(40) % 10
    inputs = torch.randn(40, *code_model.shape)
    weights = torch.cat([each.detach().flatten() for each in code_model.ours.float().parameters()])[None]
    clip_norms, batch = torch.tensor([1.0]), (inputs, labels, torch.ones(40))
    single, half = (
        gradient_rule(code_model.ours, cross_entropy, inputs[0], precision).clipped_sums(weights, batch, clip_norms)
        for precision in (None, torch.bfloat16)
    )
    assert half.dtype is torch.float32
    assert 2**-14 < (single - half).norm() / len(labels) < 0.03


def test_a_record_alone_has_the_norm_that_clips_it(code_model):
    rule, weights, batch = _problem(code_model)
    alone = tuple(part[:1] for part in batch)
    plain = rule.clipped_sums(weights, alone, torch.tensor([float("inf")]).double()).norm()
    for clip_norm in (plain / 3, plain * 0.999, plain * 1.001):
        found = rule.clipped_sums(weights, alone, clip_norm[None]).norm()
        assert float(found) == pytest.approx(float(min(clip_norm, plain)), rel=1e-11)
        assert found <= clip_norm


def test_absent_records_add_nothing(code_model):
    rule, weights, batch = _problem(code_model, 2)
    clip_norms = torch.tensor([0.5, float("inf")], dtype=torch.float64)
    batch[2][-2:] = 0
    fewer = tuple(part[:-2] for part in batch)
    torch.testing.assert_close(
        rule.clipped_sums(weights, batch, clip_norms), rule.clipped_sums(weights, fewer, clip_norms), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("code_model", [("cnn", "grey"), ("tanh", "colour")], indirect=True, ids="_".join)
def test_models_go_together_under_vmap_as_on_a_gpu(code_model):
    """Not LayerGradients.clipped_sums itself, which takes another way on a CPU."""
    rule, weights, batch = _problem(code_model, 2)
    bounds = torch.tensor([0.5, float("inf")], dtype=torch.float64)
    views = list(rule.layout.views(weights).values())
    over_models = vmap(rule._clipped_sum, (0, 0, None, None))(views, bounds, *rule._shared_cache(batch))
    torch.testing.assert_close(over_models, rule.clipped_sums(weights, batch, bounds), rtol=0, atol=1e-12)
