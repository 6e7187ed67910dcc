"""Shapes of images and of their scattering features, which models, features and the plan's costs share."""

from __future__ import annotations

GREY, COLOUR = (1, 28, 28), (3, 32, 32)
"""Channels, height and width of the images that the papers' models read."""

CLASSES = 10

SCALES = 2
"""J of the scattering transform: what it gives is subsampled by 2**J."""
ANGLES = 8
"""L of the scattering transform: orientations of its wavelets."""
COEFFICIENTS = 1 + SCALES * ANGLES + ANGLES**2
"""Coefficients of an input channel up to the second order: 81. The count of the second order holds for J = 2."""
SUBSAMPLING = 2**SCALES


def feature_shape(image_shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return channels, height and width of the scattering features of images of that shape."""
    channels, height, width = image_shape
    return COEFFICIENTS * channels, height // SUBSAMPLING, width // SUBSAMPLING
