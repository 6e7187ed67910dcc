"""Image models of bhaskar2025, four kinds, each for 28 x 28 grey and 32 x 32 colour images, in two readings.

The paper's text cites networks and leaves settings open; its authors' public code fixes them, and differs from the
cited networks. `network`, `pixels` and `feature_norm` choose between the two, one by one.

The part that is trained is a torch module without buffers; the part before it is fixed and the same for every model of
a kind, so it is applied once to the dataset (`prepare`) instead of in every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpfl.data.datasets import CLASSES, COEFFICIENTS, COLOUR, GREY, feature_shape
from dpfl.errors import InputError
from dpfl.randomness import generator

# Define the trained half of a normalisation: a scale and a shift for each channel.


class ScaleShift(nn.Module):
    """Multiply each channel of x (n, channels, ...) by a learnt scale, and add a learnt shift.

    nn.GroupNorm(groups, channels) is functional.group_norm(x, groups), which nothing trains, then this: so the first
    half may be applied to a dataset once, before training. `weight` (channels,) begins at 1, `bias` (channels,) at 0.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Map x (n, channels, ...) to the same shape."""
        axes = (self.channels, *[1] * (x.ndim - 2))
        return x * self.weight.view(axes) + self.bias.view(axes)


# Initial weights of modules, drawn from an address instead of torch's global generator.


def initialised(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Return the module that `build` makes, its weights drawn by the address (seed, "initial_model").

    Dense and convolutional layers, in order: weight and bias uniform on (-1/sqrt(f), 1/sqrt(f)) with f the inputs of
    an output, torch's default law. Scales begin at 1 and shifts at 0. torch's global generator is neither read nor
    changed. Raises ValueError for a module with other parameters. Source: torch's documentation of Linear and Conv2d.
    """
    with torch.device("meta"):
        module = build()
    module = module.to_empty(device="cpu")
    draw = generator(seed, "initial_model")
    for layer in module.modules():
        own = dict(layer.named_parameters(recurse=False))
        if isinstance(layer, ScaleShift):
            with torch.no_grad():
                layer.weight.fill_(1), layer.bias.zero_()  # pyright: ignore[reportUnusedExpression]
            continue
        if own and not isinstance(layer, nn.Linear | nn.Conv2d):
            raise ValueError(f"build: {type(layer).__name__} has parameters; only Linear and Conv2d are drawn here")
        for parameter in own.values():
            bound = 1 / math.sqrt(cast("Tensor", layer.weight)[0].numel())
            drawn = draw.uniform(-bound, bound, size=tuple(parameter.shape))
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(drawn))
    return module


GROUPS = 27
"""Groups of the group norm in the authors' code: 3 channels of grey scattering features each, 9 of colour ones."""


class ImageModel(StrEnum):
    """A model of bhaskar2025, Tables 2 to 5."""

    CNN_RELU = "cnn_relu"
    CNN_TANH = "cnn_tanh"
    SCATTER_LINEAR = "scatter_linear"
    SCATTER_CNN = "scatter_cnn"

    @property
    def reads_features(self) -> bool:
        """True if the model reads scattering features; the others read pixels."""
        return self in (ImageModel.SCATTER_LINEAR, ImageModel.SCATTER_CNN)


class Architecture(StrEnum):
    """Networks: from the authors' code, or cited by the paper's text."""

    AUTHORS = "authors"
    CITED = "cited"


class Pixels(StrEnum):
    """Scale of what models and scattering read.

    AUTHORS: CNNs read pixels standardised by constants of the data set (PIXEL_CONSTANTS), the scattering transform
    reads raw pixels from 0 to 255. UNIT_INTERVAL: both read pixels in [0, 1].
    """

    AUTHORS = "authors"
    UNIT_INTERVAL = "unit_interval"


class FeatureNorm(StrEnum):
    """Group norm of the scattering features.

    LEARNT: 27 groups, then a scale and a shift that are trained with the rest. FIXED: a group a channel, and nothing
    is learnt.
    """

    LEARNT = "learnt"
    FIXED = "fixed"


PIXEL_CONSTANTS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "mnist": ((0.1307,), (0.3081,)),
    "fashion_mnist": ((0.5,), (0.5,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
}
"""Mean and deviation by channel, of pixels in [0, 1], by which the authors' code standardises each data set."""


class ChannelsLastMaxPool(nn.MaxPool2d):
    """nn.MaxPool2d with the channels last in memory: the same values, several times faster on a CPU.

    The result has its channels first again: Opacus 1.6 takes that for granted in a convolution that follows, and
    computes wrong gradients where it is not so.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, channels, height, width)."""
        return cast("Tensor", super().forward(x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2))).contiguous()


def image_model(name: str) -> ImageModel:
    """Return the model of that name. Raises InputError naming the known ones."""
    try:
        return ImageModel(name)
    except ValueError:
        raise InputError(f"model: {name!r} is unknown, should be one of {', '.join(ImageModel)}") from None


def build(
    model: ImageModel,
    image_shape: tuple[int, int, int],
    seed: int,
    network: Architecture = Architecture.AUTHORS,
    feature_norm: FeatureNorm = FeatureNorm.LEARNT,
) -> nn.Module:
    """Return the trained part of `model` for images of that shape, at the initial weights of `seed`.

    The module maps prepared inputs (n, ...) to logits (n, 10). Initial weights: `initialised`.
    Max-pooling stands before the activation: both are monotone, so the order changes no value, only the cost. Average
    pools stand after it, as in the code, for there the order matters.
    Raises InputError for another shape than (1, 28, 28) and (3, 32, 32).
    Source: bhaskar2025, section on models; the authors' code; papernot2021 and tramer2021 for the cited networks.
    """
    shape = cast("tuple[int, int, int]", tuple(image_shape))
    if shape not in (GREY, COLOUR):
        raise InputError(f"images are {shape}, should be {GREY} or {COLOUR} for the models of bhaskar2025")

    def layers() -> nn.Module:
        activation = nn.ReLU if model is ImageModel.CNN_RELU else nn.Tanh
        if not model.reads_features:
            return nn.Sequential(*_CNN[network, shape](activation))
        channels, height, width = feature_shape(shape)
        learnt = feature_norm is FeatureNorm.LEARNT
        if model is ImageModel.SCATTER_CNN:
            own = [ScaleShift(channels)] if learnt else []
            return nn.Sequential(*own, *_SCATTER_CNN[network, shape](activation))
        features = channels * height * width
        own = [ScaleShift(features)] if learnt else []
        return nn.Sequential(nn.Flatten(), *own, nn.Linear(features, CLASSES))

    return initialised(layers, seed)


def prepare(
    model: ImageModel,
    inputs: Tensor,
    dataset: str,
    pixels: Pixels = Pixels.AUTHORS,
    feature_norm: FeatureNorm = FeatureNorm.LEARNT,
) -> Tensor:
    """Return what the trained part reads, as float32: scaled pixels, or group-normalised scattering features.

    Pixels: uint8 (n, channels, height, width). Features: float (n, 81 * channels, ...) of pixels in [0, 1]; the
    scattering transform is homogeneous, so those of raw pixels are 255 times as large. `dataset` names the pixel
    constants: a data set, or for a stand-in the data set that it stands in for. The rule looks at one record only and
    has no parameters, so it costs no privacy and may be applied before training.
    Raises InputError if the data set has no constants, and if the channels do not divide into 27 groups.
    Source: the authors' code of bhaskar2025.
    """
    if not model.reads_features:
        return _standardised(inputs.float() / 255, dataset) if pixels is Pixels.AUTHORS else inputs.float() / 255
    scaled = inputs.float() * 255 if pixels is Pixels.AUTHORS else inputs.float()
    groups = GROUPS if feature_norm is FeatureNorm.LEARNT else inputs.shape[1]
    if inputs.shape[1] % groups:
        raise InputError(f"feature_norm: {inputs.shape[1]} channels do not make {groups} groups; set it to fixed")
    return functional.group_norm(scaled, groups)


def _standardised(pixels: Tensor, dataset: str) -> Tensor:
    """Return pixels (n, channels, height, width) in [0, 1] less the data set's mean, over its deviation."""
    if dataset not in PIXEL_CONSTANTS:
        known = ", ".join(PIXEL_CONSTANTS)
        raise InputError(f"pixels: authors has constants for {known}, not for {dataset}; set it to unit_interval")
    mean, deviation = (pixels.new_tensor(each)[:, None, None] for each in PIXEL_CONSTANTS[dataset])
    return (pixels - mean) / deviation


Activation = Callable[[], nn.Module]


def _authors_cnn_grey(activation: Activation) -> list[nn.Module]:
    """10,650 parameters; the activation after the first dense layer is ReLU in both models."""
    return [
        nn.Conv2d(1, 16, 8, stride=2),
        ChannelsLastMaxPool(2),
        activation(),
        nn.Conv2d(16, 32, 4, stride=2, padding=1),
        ChannelsLastMaxPool(2),
        activation(),
        nn.Flatten(),
        nn.Linear(32, 32),
        nn.ReLU(),
        nn.Linear(32, CLASSES),
    ]


def _authors_cnn_colour(activation: Activation) -> list[nn.Module]:
    """All convolutional: eight convolutions, average pools, and the mean over the last map; 605,226 parameters."""
    layers: list[nn.Module] = []
    channels = COLOUR[0]
    for width in (32, 64, 128):
        layers += [nn.Conv2d(channels, width, 3, padding=1), activation()]
        layers += [nn.Conv2d(width, width, 3, padding=1), activation(), nn.AvgPool2d(2)]
        channels = width
    layers += [nn.Conv2d(channels, 256, 3, padding=1), activation(), nn.Conv2d(256, CLASSES, 3, padding=1)]
    return [*layers, nn.AvgPool2d(4), nn.Flatten()]


def _authors_scatter_cnn_grey(activation: Activation) -> list[nn.Module]:
    """20,778 parameters, without scale and shift of the features."""
    return [
        nn.Conv2d(COEFFICIENTS, 16, 3, stride=2, padding=1),
        ChannelsLastMaxPool(2, stride=1),
        activation(),
        nn.Conv2d(16, 32, 3, padding=1),
        ChannelsLastMaxPool(2, stride=1),
        activation(),
        nn.Flatten(),
        nn.Linear(128, 32),
        activation(),
        nn.Linear(32, CLASSES),
    ]


def _authors_scatter_cnn_colour(activation: Activation) -> list[nn.Module]:
    """179,530 parameters, without scale and shift of the features."""
    return [
        nn.Conv2d(COLOUR[0] * COEFFICIENTS, 64, 3, padding=1),
        ChannelsLastMaxPool(2),
        activation(),
        nn.Conv2d(64, 64, 3, padding=1),
        ChannelsLastMaxPool(2),
        activation(),
        nn.Flatten(),
        nn.Linear(256, CLASSES),
    ]


def _cited_cnn_grey(activation: Activation) -> list[nn.Module]:
    """The small network of papernot2021: 26,010 parameters."""
    return [
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        ChannelsLastMaxPool(2, stride=1),
        activation(),
        nn.Conv2d(16, 32, 4, stride=2),
        ChannelsLastMaxPool(2, stride=1),
        activation(),
        nn.Flatten(),
        nn.Linear(512, 32),
        activation(),
        nn.Linear(32, CLASSES),
    ]


def _cited_cnn_colour(activation: Activation) -> list[nn.Module]:
    """The large network of papernot2021: three pairs of convolutions, 550,570 parameters."""
    layers: list[nn.Module] = []
    channels = COLOUR[0]
    for width in (32, 64, 128):
        layers += [nn.Conv2d(channels, width, 3, padding=1), activation()]
        layers += [nn.Conv2d(width, width, 3, padding=1), ChannelsLastMaxPool(2), activation()]
        channels = width
    return [*layers, nn.Flatten(), nn.Linear(2048, 128), activation(), nn.Linear(128, CLASSES)]


def _cited_scatter_cnn_grey(activation: Activation) -> list[nn.Module]:
    """The network of tramer2021 on grey scattering features: 33,066 parameters."""
    return [
        nn.Conv2d(COEFFICIENTS, 16, 3, stride=2, padding=1),
        activation(),
        nn.Conv2d(16, 32, 3, padding=1),
        activation(),
        nn.Flatten(),
        nn.Linear(512, 32),
        activation(),
        nn.Linear(32, CLASSES),
    ]


def _cited_scatter_cnn_colour(activation: Activation) -> list[nn.Module]:
    """The network of tramer2021 on colour scattering features: 187,210 parameters."""
    return [
        nn.Conv2d(COLOUR[0] * COEFFICIENTS, 64, 3, padding=1),
        ChannelsLastMaxPool(2),
        activation(),
        nn.Conv2d(64, 64, 3, padding=1),
        activation(),
        nn.Flatten(),
        nn.Linear(1024, CLASSES),
    ]


_CNN = {
    (Architecture.AUTHORS, GREY): _authors_cnn_grey,
    (Architecture.AUTHORS, COLOUR): _authors_cnn_colour,
    (Architecture.CITED, GREY): _cited_cnn_grey,
    (Architecture.CITED, COLOUR): _cited_cnn_colour,
}
_SCATTER_CNN = {
    (Architecture.AUTHORS, GREY): _authors_scatter_cnn_grey,
    (Architecture.AUTHORS, COLOUR): _authors_scatter_cnn_colour,
    (Architecture.CITED, GREY): _cited_scatter_cnn_grey,
    (Architecture.CITED, COLOUR): _cited_scatter_cnn_colour,
}


def softmax_regression(features: int, classes: int) -> nn.Linear:
    """Return the model for inputs (n, features), all its weights zero: it starts without a preference."""
    module = cast("nn.Linear", nn.utils.skip_init(nn.Linear, features, classes))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    return module
