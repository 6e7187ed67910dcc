import pytest
import torch
from torch import nn
from torch.nn import functional

from dpfl.engine.networks import ScaleShift


def _grey(activation):
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2),
        activation(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 4, stride=2, padding=1),
        activation(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def _colour(activation):
    layers = []
    for channels, width in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(channels, width, 3, padding=1), activation()]
        layers += [nn.Conv2d(width, width, 3, padding=1), activation(), nn.AvgPool2d(2)]
    layers += [nn.Conv2d(128, 256, 3, padding=1), activation(), nn.Conv2d(256, 10, 3, padding=1)]
    return nn.Sequential(*layers, nn.AvgPool2d(4), nn.Flatten())


def _features_grey(first):
    return nn.Sequential(
        first,
        nn.Conv2d(81, 16, 3, stride=2, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(128, 32),
        nn.Tanh(),
        nn.Linear(32, 10),
    )


def _features_colour(first):
    return nn.Sequential(
        first,
        nn.Conv2d(243, 64, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


PIXELS = {
    ("relu", "grey"): lambda: _grey(nn.ReLU),
    ("tanh", "grey"): lambda: _grey(nn.Tanh),
    ("relu", "colour"): lambda: _colour(nn.ReLU),
    ("tanh", "colour"): lambda: _colour(nn.Tanh),
}
FEATURES = {
    ("linear", "grey"): lambda first: nn.Sequential(nn.Flatten(), first(3969), nn.Linear(3969, 10)),
    ("linear", "colour"): lambda first: nn.Sequential(nn.Flatten(), first(15552), nn.Linear(15552, 10)),
    ("cnn", "grey"): lambda first: _features_grey(first(81)),
    ("cnn", "colour"): lambda first: _features_colour(first(243)),
}
SHAPES = {"grey": (1, 28, 28), "colour": (3, 32, 32)}
FEATURE_SHAPES = {"grey": (81, 7, 7), "colour": (243, 8, 8)}


class CodeModel:
    """A model of bhaskar2025's code as we train it, and as torch has it: with nn.GroupNorm in front of features."""

    def __init__(self, name, count=6):
        torch.manual_seed(0)
        kind, images = name
        self.reads_pixels = name in PIXELS
        self.shape = SHAPES[images] if self.reads_pixels else FEATURE_SHAPES[images]
        raw = torch.randn(count, *self.shape, dtype=torch.float64)
        if self.reads_pixels:
            self.ours, self.inputs = PIXELS[name]().double(), raw
            self.reference, self.raw = self.ours, raw
            return
        self.ours = FEATURES[name](ScaleShift).double()
        self.reference, self.raw = FEATURES[name](lambda channels: nn.GroupNorm(27, channels)).double(), raw
        for there, here in zip(self.reference.parameters(), self.ours.parameters(), strict=True):
            there.data.copy_(here.data.add_(0.1 * torch.randn_like(here)))
        flat = kind == "linear"
        self.inputs = functional.group_norm(raw.flatten(1) if flat else raw, 27).view_as(raw)


@pytest.fixture(params=[*PIXELS, *FEATURES], ids="_".join)
def code_model(request):
    """A model of the code with its inputs, at weights that are not the initial ones of a scale and a shift."""
    return CodeModel(request.param)
