"""Image models of bhaskar2025, four kinds, each for 28 x 28 grey and 32 x 32 colour images.

The part that is trained is a torch module without buffers; the part before it is fixed and the same for every model of
a kind, so it is applied once to the dataset (`prepare`) instead of in every step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from enum import StrEnum

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpfl.data.image_shapes import CLASSES, COEFFICIENTS, COLOUR, GREY, SUBSAMPLING
from dpfl.errors import InputError
from dpfl.models.initial_weights import initialised


class ImageModel(StrEnum):
    """A model of bhaskar2025, Tables 2 to 5."""

    CNN_RELU = "cnn_relu"
    CNN_TANH = "cnn_tanh"
    SCATTER_LINEAR = "scatter_linear"
    SCATTER_CNN = "scatter_cnn"

    @property
    def reads_features(self) -> bool:
        """True where the model reads scattering features; the others read pixels in [0, 1]."""
        return self in (ImageModel.SCATTER_LINEAR, ImageModel.SCATTER_CNN)


class Normalisation(StrEnum):
    """Normalisations of one record's features, or pixels, before training."""

    CHANNEL = "channel"
    GROUPS27 = "groups27"
    NONE = "none"
    STANDARDISED = "standardised"

    def groups(self, model: ImageModel, channels: int) -> int:
        """Return the number of channel groups that lose their mean and are divided by their deviation; 0 for none.

        Features: a group a channel, 27 groups, none, or one group of everything. Pixels know only two ways: one group
        of everything (standardised), else they stay as they are.
        """
        if self is Normalisation.STANDARDISED:
            return 1
        if self is Normalisation.NONE or not model.reads_features:
            return 0
        return channels if self is Normalisation.CHANNEL else 27


TANH = (2.0, 2.0, 1.0)
"""Scale, inverse temperature and offset at which the tempered sigmoid is tanh."""


class TemperedSigmoid(nn.Module):
    """The bounded activation s * sigmoid(temp * x) - o of papernot2021; nn.Tanh is it at (2, 2, 1)."""

    def __init__(self, s: float, temp: float, o: float):
        super().__init__()
        self.s, self.temp, self.o = s, temp, o

    def forward(self, x: Tensor) -> Tensor:
        """Map x of any shape, element by element."""
        return self.s * torch.sigmoid(self.temp * x) - self.o

    def derivative(self, output: Tensor) -> Tensor:
        """Return the derivative where the activation took the value `output`."""
        sigmoid = (output + self.o) / self.s
        return self.s * self.temp * sigmoid * (1 - sigmoid)


class ChannelsLastMaxPool(nn.MaxPool2d):
    """nn.MaxPool2d with the channels last in memory: the same values, several times faster on a CPU.

    The result has its channels first again: Opacus 1.6 takes that for granted in a convolution that follows, and
    computes wrong gradients where it is not so.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, channels, height, width)."""
        return super().forward(x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)).contiguous()


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
    client: int = 0,
    tempered_sigmoid: tuple[float, float, float] = TANH,
) -> nn.Module:
    """Return the trained part of `model` for images of that shape, at the initial weights of (`seed`, `client`).

    The module maps prepared inputs (n, ...) to logits (n, 10). Initial weights: dpfl.models.initial_weights.
    `tempered_sigmoid`: scale, inverse temperature and offset of the activation, where the model has a bounded one.
    Pooling stands before the activation: both are monotone, so the order changes no value, only the cost.
    Raises InputError for another shape than (1, 28, 28) and (3, 32, 32), and for a sigmoid that does not rise.
    Source: bhaskar2025, section on models.
    """
    if tuple(image_shape) not in (GREY, COLOUR):
        raise InputError(f"images are {tuple(image_shape)}, should be {GREY} or {COLOUR} for the models of bhaskar2025")
    if min(tempered_sigmoid[:2]) <= 0:
        raise InputError(f"tempered_sigmoid: {list(tempered_sigmoid)} should have a scale and a temperature above 0")
    build_layers = _SCATTER if model.reads_features else _CNN
    activation: Callable[[], nn.Module] = functools.partial(TemperedSigmoid, *tempered_sigmoid)
    if model is ImageModel.CNN_RELU or tempered_sigmoid == TANH:
        activation = nn.ReLU if model is ImageModel.CNN_RELU else nn.Tanh
    if model is ImageModel.SCATTER_LINEAR:
        return initialised(functools.partial(_linear, image_shape), seed, client)
    return initialised(functools.partial(build_layers[tuple(image_shape)], activation), seed, client)


def prepare(model: ImageModel, inputs: Tensor, normalisation: Normalisation = Normalisation.CHANNEL) -> Tensor:
    """Return what the trained part reads, as float32: pixels, by default in [0, 1], or normalised scattering features.

    Pixels: uint8 (n, channels, height, width). Features: float (n, 81 * channels, ...). Normalising is a group norm
    without learnt scale: by default each channel of each record's features loses its own mean and is divided by its
    own deviation. The rule looks at one record only and has no parameters, so it costs no privacy and may be applied
    before training. Raises InputError where the channels do not divide into groups of one size.
    """
    scaled = inputs.float() if model.reads_features else inputs.float() / 255
    groups = normalisation.groups(model, inputs.shape[1])
    if groups == 0:
        return scaled
    if inputs.shape[1] % groups:
        raise InputError(f"normalisation: {inputs.shape[1]} channels do not make {groups} groups")
    return functional.group_norm(scaled, groups)


def _linear(image_shape: tuple[int, int, int]) -> nn.Module:
    """One dense layer on the scattering features."""
    channels, height, width = image_shape
    features = channels * COEFFICIENTS * (height // SUBSAMPLING) * (width // SUBSAMPLING)
    return nn.Sequential(nn.Flatten(), nn.Linear(features, CLASSES))


def _cnn_grey(activation: Callable[[], nn.Module]) -> nn.Module:
    """The small network of papernot2021: 26,010 parameters."""
    return nn.Sequential(
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
    )


def _cnn_colour(activation: Callable[[], nn.Module]) -> nn.Module:
    """The large network of papernot2021: three pairs of convolutions, 550,570 parameters."""
    layers: list[nn.Module] = []
    channels = COLOUR[0]
    for width in (32, 64, 128):
        layers += [nn.Conv2d(channels, width, 3, padding=1), activation()]
        layers += [nn.Conv2d(width, width, 3, padding=1), ChannelsLastMaxPool(2), activation()]
        channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 128), activation(), nn.Linear(128, CLASSES))


def _scatter_cnn_grey(activation: Callable[[], nn.Module]) -> nn.Module:
    """The network of tramer2021 on grey scattering features: 33,066 parameters."""
    return nn.Sequential(
        nn.Conv2d(COEFFICIENTS, 16, 3, stride=2, padding=1),
        activation(),
        nn.Conv2d(16, 32, 3, padding=1),
        activation(),
        nn.Flatten(),
        nn.Linear(512, 32),
        activation(),
        nn.Linear(32, CLASSES),
    )


def _scatter_cnn_colour(activation: Callable[[], nn.Module]) -> nn.Module:
    """The network of tramer2021 on colour scattering features: 187,210 parameters."""
    return nn.Sequential(
        nn.Conv2d(COLOUR[0] * COEFFICIENTS, 64, 3, padding=1),
        ChannelsLastMaxPool(2),
        activation(),
        nn.Conv2d(64, 64, 3, padding=1),
        activation(),
        nn.Flatten(),
        nn.Linear(1024, CLASSES),
    )


_CNN = {GREY: _cnn_grey, COLOUR: _cnn_colour}
_SCATTER = {GREY: _scatter_cnn_grey, COLOUR: _scatter_cnn_colour}


def softmax_regression(features: int, classes: int) -> nn.Linear:
    """Return the model for inputs (n, features), all its weights zero: it starts without a preference."""
    module = nn.utils.skip_init(nn.Linear, features, classes)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    return module
