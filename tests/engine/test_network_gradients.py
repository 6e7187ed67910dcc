import copy

import pytest
import torch
from torch import nn
from torch.func import vmap

from dpfl.data.datasets import COLOUR, GREY
from dpfl.engine.networks import ImageModel, build
from dpfl.engine.per_record_gradients import (
    LayerGradients,
    LinearGradients,
    PerRecordGradients,
    StackedGradients,
    cross_entropy,
    gradient_rule,
)

RECORD = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class Twice(nn.Module):
    """A layer that the forward pass meets twice: its gradient is not one product."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(72, 72), nn.Linear(72, 5)

    def forward(self, x):
        return self.head(self.layer(self.layer(x.flatten(1))))


class Scaled(nn.Module):
    """A parameter outside every known layer."""

    def __init__(self):
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.tensor(2.0)), nn.Linear(72, 5)

    def forward(self, x):
        return self.head(self.scale * x.flatten(1))


def _twice_in_sequence() -> nn.Module:
    layer = nn.Linear(72, 72)
    return nn.Sequential(nn.Flatten(), layer, layer, nn.Linear(72, 5))


ELSEWHERE = {
    "grouped": lambda: nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(64, 5)),
    "circular": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(144, 5)
    ),
    "no bias": lambda: nn.Sequential(nn.Flatten(), nn.Linear(72, 5, bias=False)),
    "layer norm": lambda: nn.Sequential(nn.LayerNorm(6), nn.Flatten(), nn.Linear(72, 5)),
    "other activation": lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.ELU(), nn.Flatten(), nn.Linear(64, 5)),
    "padded pool": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.MaxPool2d(2, padding=1), nn.Flatten(), nn.Linear(36, 5)
    ),
    "met twice": Twice,
    "twice in a sequence": _twice_in_sequence,
    "own parameter": Scaled,
    "over positions": lambda: nn.Sequential(nn.Linear(6, 3), nn.Flatten(), nn.Linear(36, 5)),
}
CLOSED = {
    "dense": lambda: nn.Sequential(nn.Flatten(), nn.Linear(72, 9), nn.Tanh(), nn.Linear(9, 5)),
    "one layer": lambda: nn.Sequential(nn.Conv2d(2, 5, 6), nn.Tanh(), nn.Flatten()),
    "pooled first": lambda: nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(2, 4, 2), nn.Flatten(), nn.Linear(16, 5)),
    "strided, padded": lambda: nn.Sequential(nn.Conv2d(2, 40, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(360, 5)),
    "deep": lambda: nn.Sequential(
        nn.Sequential(nn.Conv2d(2, 8, 3), nn.Tanh()),
        nn.Conv2d(8, 30, 2),
        nn.MaxPool2d(2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(120, 5),
    ),
}


def without_derivative(logits, labels):
    """A loss that autograd has to differentiate."""
    return cross_entropy(logits, labels)


def _problem(name: str, loss=cross_entropy):
    torch.manual_seed(0)
    module = CLOSED[name]().double()
    rule = gradient_rule(module, loss, RECORD)
    assert isinstance(rule, LayerGradients)
    weights = rule.layout.flatten({name: each.detach() for name, each in module.named_parameters()})
    weights = weights + 0.1 * torch.randn(4, len(weights), dtype=torch.float64)
    present = torch.tensor([1.0] * 8 + [0.0], dtype=torch.float64)
    batch = torch.randn(9, *RECORD.shape, dtype=torch.float64), torch.arange(9) % 5, present
    return rule, PerRecordGradients(module, loss), weights, batch


@pytest.mark.parametrize("name", ELSEWHERE)
def test_modules_without_closed_form_are_differentiated_record_by_record(name):
    assert isinstance(gradient_rule(ELSEWHERE[name]().double(), cross_entropy, RECORD), PerRecordGradients)


def _one_by_one(module, data, clip_norm):
    """The sum of clipped gradients by torch's own differentiation, one record after the other."""
    total = 0
    for x, y in zip(*data, strict=True):
        module.zero_grad()
        nn.functional.cross_entropy(module(x[None]), y[None]).backward()
        gradient = torch.cat([parameter.grad.reshape(-1) for parameter in module.parameters()])
        total = total + gradient * min(1.0, clip_norm / gradient.norm())
    return total


@pytest.mark.parametrize("name", ELSEWHERE)
def test_any_module_has_the_sums_of_its_records_alone(name):
    torch.manual_seed(0)
    module = ELSEWHERE[name]().double()
    alone = copy.deepcopy(module)
    rule = gradient_rule(module, cross_entropy, RECORD)
    data = torch.randn(4, *RECORD.shape, dtype=torch.float64), torch.arange(4) % 5
    weights = rule.layout.flatten({name: each.detach() for name, each in module.named_parameters()})
    clip_norms = torch.tensor([0.1, 3.0, torch.inf], dtype=torch.float64)
    sums = rule.clipped_sums(weights.repeat(3, 1), (*data, torch.ones(4, dtype=torch.float64)), clip_norms)
    for ours, clip_norm in zip(sums, clip_norms.tolist(), strict=True):
        torch.testing.assert_close(ours, _one_by_one(alone, data, clip_norm), rtol=0, atol=1e-13)


@pytest.mark.parametrize("loss", [cross_entropy, without_derivative])
@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms_equal_per_record_gradients(name, loss):
    rule, reference, weights, batch = _problem(name, loss)
    clip_norms = torch.tensor([0.1, torch.inf, 2.0, 1e6], dtype=torch.float64)
    ours = rule.clipped_sums(weights, batch, clip_norms)
    torch.testing.assert_close(ours, reference.clipped_sums(weights, batch, clip_norms), rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", CLOSED)
def test_single_precision_gives_the_same_up_to_its_rounding(name):
    rule, _, weights, batch = _problem(name)
    clip_norms = torch.tensor([0.1, torch.inf, 2.0, 1e6], dtype=torch.float64)
    single = rule.clipped_sums(weights.float(), (batch[0].float(), batch[1], batch[2].float()), clip_norms.float())
    torch.testing.assert_close(single.double(), rule.clipped_sums(weights, batch, clip_norms), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", CLOSED)
def test_every_model_gets_what_it_gets_alone_and_the_same_bits_where_no_layer_is_shared(name):
    rule, _, weights, batch = _problem(name)
    clip_norms = torch.tensor([0.1, torch.inf, 2.0, 0.5], dtype=torch.float64)
    together = rule.clipped_sums(weights, batch, clip_norms)
    for model in range(4):
        one = slice(model, model + 1)
        alone = rule.clipped_sums(weights[one], batch, clip_norms[one])[0]
        own = rule.trained[0] != 0 or rule.layers[0].forms_gradients
        torch.testing.assert_close(alone, together[model], rtol=0, atol=0 if own else 1e-13)


@pytest.mark.parametrize("at_once", [1, 3])
def test_first_layers_go_together_as_far_as_their_outputs_fit(at_once, monkeypatch):
    rule, _, weights, batch = _problem("strided, padded")
    assert not rule.layers[0].forms_gradients
    bounds = torch.tensor([0.1, torch.inf, 2.0, 0.5], dtype=torch.float64)
    whole, seen = rule.clipped_sums(weights, batch, bounds), []
    monkeypatch.setattr(
        "dpfl.engine.per_record_gradients.MODELS_AT_ONCE", at_once * len(batch[0]) * rule.layers[0].output_size
    )
    forward = rule.layers[0].forward
    monkeypatch.setattr(
        rule.layers[0], "forward", lambda *known: seen.append(len(known[1][0])) or forward(*known), raising=False
    )
    torch.testing.assert_close(rule.clipped_sums(weights, batch, bounds), whole, rtol=0, atol=1e-13)
    assert seen == {1: [40] * 4, 3: [120, 40]}[at_once]


def test_one_model_that_left_the_numbers_leaves_the_others_theirs():
    rule, _, weights, batch = _problem("strided, padded")
    bounds = torch.tensor([0.1, torch.inf, 2.0, 0.5], dtype=torch.float64)
    expected = rule.clipped_sums(weights, batch, bounds)
    weights[1] = torch.nan
    found = rule.clipped_sums(weights, batch, bounds)
    assert found[1].isnan().all()
    torch.testing.assert_close(found[[0, 2, 3]], expected[[0, 2, 3]], rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", CLOSED)
def test_the_same_sums_come_under_vmap_as_on_other_devices(name):
    rule, _, weights, batch = _problem(name)
    bounds = torch.tensor([0.1, torch.inf, 2.0, 1e6], dtype=torch.float64)
    shared = rule.layers[0].cache_inputs(batch[0]) if rule.trained[0] == 0 else None
    views = list(rule.layout.views(weights).values())
    over_models = vmap(rule._clipped_sum, (0, 0, None, None))(views, bounds, batch, shared)
    torch.testing.assert_close(over_models, rule.clipped_sums(weights, batch, bounds), rtol=0, atol=1e-13)


@pytest.mark.parametrize("shape", [GREY, COLOUR], ids=["grey", "colour"])
@pytest.mark.parametrize("model", ImageModel)
def test_models_of_the_paper_have_closed_forms_that_other_devices_can_form_too(model, shape):
    """Device "meta" takes the way of a GPU, vmap over clients and models, and computes shapes alone."""
    reads = (81 * shape[0], shape[1] // 4, shape[2] // 4) if model.reads_features else shape
    x = torch.empty(2, 5, *reads, device="meta")
    module = build(model, shape, 0).to("meta")
    rule = gradient_rule(module, cross_entropy, x[0, 0])
    assert isinstance(rule, LinearGradients if model is ImageModel.SCATTER_LINEAR else LayerGradients)
    weights = torch.empty(2, 4, sum(each.numel() for each in module.parameters()), device="meta")
    labels, present = torch.empty(2, 5, dtype=torch.int64, device="meta"), torch.empty(2, 5, device="meta")
    # Not by calling it: that also looks at the values for an overflow, and "meta" has none.
    sums = StackedGradients(rule, x[0, 0], 2**30)._sums(weights, (x, labels, present), torch.empty(4, device="meta"))
    assert sums.shape == weights.shape
