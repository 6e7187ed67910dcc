"""Principal components of images, exact and the same on every machine but for the last digits of the eigenvectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpfl.errors import InputError

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
        Raises InputError where there are not as many components.
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
