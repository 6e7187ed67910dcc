from __future__ import annotations

import pytest
import torch
from torch import nn

from dpfl.engine.gradients import PerRecordGradients
from dpfl.engine.layers import Convolution, Dense, GramConvolution, LayerGradients, gradient_rule
from dpfl.federated.pfl import cross_entropy
from dpfl.models.image import COLOUR, GREY, ImageModel, build

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


ELSEWHERE = {
    "grouped": lambda: nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(64, 5)),
    "circular": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(144, 5)
    ),
    "no bias": lambda: nn.Sequential(nn.Flatten(), nn.Linear(72, 5, bias=False)),
    "layer norm": lambda: nn.Sequential(nn.LayerNorm(6), nn.Flatten(), nn.Linear(72, 5)),
    "met twice": Twice,
    "own parameter": Scaled,
    "over positions": lambda: nn.Sequential(nn.Linear(6, 3), nn.Flatten(), nn.Linear(36, 5)),
}
CLOSED = {
    "dense": lambda: nn.Sequential(nn.Flatten(), nn.Linear(72, 5)),
    "strided, padded": lambda: nn.Sequential(nn.Conv2d(2, 40, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(360, 5)),
    "dilated": lambda: nn.Sequential(nn.Conv2d(2, 3, 2, dilation=2), nn.Tanh(), nn.Flatten(), nn.Linear(48, 5)),
    "oblong": lambda: nn.Sequential(nn.Conv2d(2, 9, (2, 5), (2, 1), (0, 1)), nn.Flatten(), nn.Linear(108, 5)),
    "deep": lambda: nn.Sequential(nn.Conv2d(2, 8, 3), nn.ELU(), nn.Conv2d(8, 30, 3), nn.Flatten(), nn.Linear(120, 5)),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_modules_without_closed_form_are_differentiated_record_by_record(name):
    assert isinstance(gradient_rule(ELSEWHERE[name]().double(), cross_entropy, RECORD), PerRecordGradients)


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("convolution", [Convolution, GramConvolution])
def test_closed_forms_equal_per_record_gradients(name, convolution):
    torch.manual_seed(0)
    module = CLOSED[name]().double()
    rule = gradient_rule(module, cross_entropy, RECORD)
    assert isinstance(rule, LayerGradients)
    for layer in rule.traced:  # both kinds of convolution on every one, whichever is the cheaper
        if isinstance(layer.rule, Convolution):
            object.__setattr__(layer, "rule", convolution(layer.rule.layer, layer.outputs))
    x = torch.randn(9, *RECORD.shape, dtype=torch.float64)
    batch = (x, torch.arange(9) % 5, torch.tensor([1.0] * 8 + [0.0], dtype=torch.float64))
    weights = rule.layout.flatten({name: each.detach() for name, each in module.named_parameters()})
    reference = PerRecordGradients(module, cross_entropy)
    for clip_norm in (0.1, 2.0, 1e6):
        bound = torch.tensor(clip_norm, dtype=torch.float64)
        ours = rule.clipped_sum(weights, batch, rule.prepare(x), bound)
        torch.testing.assert_close(ours, reference.clipped_sum(weights, batch, (), bound), rtol=0, atol=1e-13)


def test_models_of_the_paper_have_closed_forms_and_share_what_is_known_of_the_batch():
    for model in ImageModel:
        for shape in (GREY, COLOUR):
            record = torch.zeros(shape)
            if model.reads_features:
                record = torch.zeros(81 * shape[0], shape[1] // 4, shape[2] // 4)
            rule = gradient_rule(build(model, shape, 0), cross_entropy, record)
            assert isinstance(rule, LayerGradients)
            assert [layer.reads_batch for layer in rule.traced] == [True] + [False] * (len(rule.traced) - 1)
            assert rule.wide == (model is ImageModel.SCATTER_LINEAR)
            assert isinstance(rule.traced[-1].rule, Dense)
