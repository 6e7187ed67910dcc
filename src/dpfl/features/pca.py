"""Principal components of images: exact, or of private inputs by a second-moment matrix released once with noise.

The exact ones are the same on every machine but for the last digits of the eigenvectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpfl.accounting.numerics import integer, real
from dpfl.errors import InputError
from dpfl.mechanisms import clip_vectors

Array = NDArray[np.float64]

BRIGHTEST = 255.0
CHUNK_IMAGES = 4096


@dataclass(frozen=True)
class PrincipalComponents:
    """Pixels in [0, 1] to scores: (pixels - mean) @ axes, axes (pixels, components) orthonormal, widest first.

    An axis's sign makes its largest entry, in absolute value, positive. `explained_share` is the part of the fitted
    images' variance that the components keep.
    """

    mean: Array
    axes: Array
    explained_share: float

    @classmethod
    def fit(cls, images: NDArray[np.uint8], components: int) -> PrincipalComponents:
        """Return the first `components` of uint8 images (n, ...), by the eigenvectors of their covariance.

        Sums and products of integer pixels are exact, so the covariance does not depend on the order of summation.
        Raises InputError if there are not as many components.
        """
        pixels = int(np.prod(images.shape[1:]))
        if not 1 <= components <= min(pixels, len(images) - 1):
            raise InputError(
                f"components: {components} of {len(images)} images with {pixels} pixels; "
                f"there are 1 to {min(pixels, len(images) - 1)}"
            )
        total, products = np.zeros(pixels), np.zeros((pixels, pixels))
        for first in range(0, len(images), CHUNK_IMAGES):
            chunk = images[first : first + CHUNK_IMAGES].reshape(-1, pixels).astype(np.float64)
            total += chunk.sum(axis=0)
            products += chunk.T @ chunk
        covariance = (products - np.outer(total, total) / len(images)) / (len(images) - 1)
        variances, vectors = np.linalg.eigh(covariance)
        axes = vectors[:, ::-1][:, :components]
        largest = axes[np.abs(axes).argmax(axis=0), np.arange(components)]
        share = variances[::-1][:components].sum() / variances.sum()
        return cls(total / len(images) / BRIGHTEST, np.ascontiguousarray(axes * np.sign(largest)), float(share))

    def scores(self, images: NDArray[np.uint8]) -> Array:
        """Return the scores of uint8 images (n, ...), shape (n, components)."""
        return (images.reshape(len(images), -1) / BRIGHTEST - self.mean) @ self.axes


def noisy_second_moments(inputs: Tensor, *, bound: float, noise_multiplier: float, noise: Tensor) -> Tensor:
    """Return the mean of x x^T over `inputs` (n, features), n >= 1, as (features, features), with symmetric noise.

    `bound` > 0 is the norm to which each record is clipped. `noise` are standard normal draws (features, features), of
    which the upper triangle is used; `noise_multiplier` >= 0 is the noise in units of sqrt(2) bound^2, the Frobenius
    norm by which replacing a record moves the sum. Raises ValueError naming bound or noise_multiplier.
    Source: vandijk2023, section 2.7; dwork2014.

    Formal guarantee: one release of a Gaussian mechanism, G_{1/noise_multiplier}-DP for one record replaced (the
    triangle's norm is at most the matrix's). What is computed from it, components and projections included, costs
    nothing more. `len(inputs)` is taken as public.
    """
    bound = real("bound", bound, above=0)
    noise_multiplier = real("noise_multiplier", noise_multiplier, at_least=0)
    clipped = clip_vectors(inputs, bound)
    upper = noise.triu()
    symmetric = upper + upper.triu(1).T
    return (clipped.T @ clipped + math.sqrt(2) * bound**2 * noise_multiplier * symmetric) / len(inputs)


def principal_components(second_moments: Tensor, components: int) -> Tensor:
    """Return the eigenvectors of the largest eigenvalues as columns, (features, components), signs made definite.

    Of each vector the entry of largest magnitude is positive. Raises ValueError where `components` is not an integer of
    at least 1, InputError where it exceeds the number of features.
    """
    count = integer("components", components, at_least=1)
    if count > len(second_moments):
        raise InputError(f"components: is {count}, must be at most the {len(second_moments)} features")
    vectors = torch.linalg.eigh(second_moments).eigenvectors[:, -count:].flip(1)
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    return vectors * largest.sign()
