"""The four image models of bhaskar2025, each for 28 x 28 grey and 32 x 32 colour images.

The part that is trained is a torch module without buffers; the part before it is fixed and the same for every model of
a kind, so it is applied once to the whole data set (`prepare`) instead of in every step.
"""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpfl.engine.randomness import torch_seed
from dpfl.errors import InputError
from dpfl.features.scattering import COEFFICIENTS, SUBSAMPLING

CLASSES = 10
GREY, COLOUR = (1, 28, 28), (3, 32, 32)


class ImageModel(StrEnum):
    """A model of bhaskar2025, Tables 2 to 5."""

    CNN_RELU = "cnn_relu"
    CNN_TANH = "cnn_tanh"
    SCATTER_LINEAR = "scatter_linear"
    SCATTER_CNN = "scatter_cnn"

    @property
    def reads_features(self) -> bool:
        """Whether the model reads scattering features; the others read pixels in [0, 1]."""
        return self in (ImageModel.SCATTER_LINEAR, ImageModel.SCATTER_CNN)


class TemperedSigmoid(nn.Module):
    """The bounded activation s * sigmoid(temp * x) - o of Papernot et al. 2021; the default (2, 2, 1) is tanh."""

    def __init__(self, s: float = 2.0, temp: float = 2.0, o: float = 1.0):
        super().__init__()
        # sigmoid(z) = (1 + tanh(z/2))/2: this form is exactly tanh at the default
        self.amplitude, self.steepness, self.shift = s / 2, temp / 2, s / 2 - o

    def forward(self, x: Tensor) -> Tensor:
        """Map x of any shape, element by element."""
        if (self.amplitude, self.steepness, self.shift) == (1, 1, 0):
            return torch.tanh(x)
        return self.amplitude * torch.tanh(self.steepness * x) + self.shift


class MaxPool(nn.MaxPool2d):
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


def build(model: ImageModel, image_shape: tuple[int, int, int], seed: int) -> nn.Module:
    """Return the trained part of `model` for images of that shape, at the initial weights addressed by `seed`.

    The module maps prepared inputs (n, ...) to logits (n, 10). Initial weights follow torch's defaults.
    Pooling stands before the activation: both are monotone, so the order changes no value, only the cost.
    Raises InputError for another shape than (1, 28, 28) and (3, 32, 32). Source: bhaskar2025, section on models.
    """
    if tuple(image_shape) not in (GREY, COLOUR):
        raise InputError(f"images are {tuple(image_shape)}, should be {GREY} or {COLOUR} for the models of bhaskar2025")
    build_layers = _SCATTER if model.reads_features else _CNN
    activation = nn.ReLU if model is ImageModel.CNN_RELU else TemperedSigmoid
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(torch_seed(seed, "initial_model"))
        if model is ImageModel.SCATTER_LINEAR:
            return _linear(image_shape)
        return build_layers[tuple(image_shape)](activation)


def prepare(model: ImageModel, inputs: Tensor) -> Tensor:
    """Return what the trained part reads, as float32: pixels in [0, 1], or scattering features of unit variance.

    Pixels: uint8 (n, channels, height, width). Features: float (n, 81 * channels, ...); each channel of each record
    loses its own mean and is divided by its own deviation (group norm, one group a channel, no learnt scale). The rule
    looks at one record only and has no parameters, so it costs no privacy and may be applied before training.
    """
    if model.reads_features:
        return functional.group_norm(inputs.float(), inputs.shape[1])
    return inputs.float() / 255


def _linear(image_shape: tuple[int, int, int]) -> nn.Module:
    """One dense layer on the scattering features."""
    channels, height, width = image_shape
    features = channels * COEFFICIENTS * (height // SUBSAMPLING) * (width // SUBSAMPLING)
    return nn.Sequential(nn.Flatten(), nn.Linear(features, CLASSES))


def _cnn_grey(activation: type[nn.Module]) -> nn.Module:
    """The small network of Papernot et al. 2021: 26,010 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        MaxPool(2, stride=1),
        activation(),
        nn.Conv2d(16, 32, 4, stride=2),
        MaxPool(2, stride=1),
        activation(),
        nn.Flatten(),
        nn.Linear(512, 32),
        activation(),
        nn.Linear(32, CLASSES),
    )


def _cnn_colour(activation: type[nn.Module]) -> nn.Module:
    """The large network of Papernot et al. 2021: three pairs of convolutions, 550,570 parameters."""
    layers: list[nn.Module] = []
    channels = COLOUR[0]
    for width in (32, 64, 128):
        layers += [nn.Conv2d(channels, width, 3, padding=1), activation()]
        layers += [nn.Conv2d(width, width, 3, padding=1), MaxPool(2), activation()]
        channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 128), activation(), nn.Linear(128, CLASSES))


def _scatter_cnn_grey(activation: type[nn.Module]) -> nn.Module:
    """The network of Tramer and Boneh 2021 on grey scattering features: 33,066 parameters."""
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


def _scatter_cnn_colour(activation: type[nn.Module]) -> nn.Module:
    """The network of Tramer and Boneh 2021 on colour scattering features: 187,210 parameters."""
    return nn.Sequential(
        nn.Conv2d(COLOUR[0] * COEFFICIENTS, 64, 3, padding=1),
        MaxPool(2),
        activation(),
        nn.Conv2d(64, 64, 3, padding=1),
        activation(),
        nn.Flatten(),
        nn.Linear(1024, CLASSES),
    )


_CNN = {GREY: _cnn_grey, COLOUR: _cnn_colour}
_SCATTER = {GREY: _scatter_cnn_grey, COLOUR: _scatter_cnn_colour}
