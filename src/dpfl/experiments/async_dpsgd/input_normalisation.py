"""Normalisation of the inputs before training, from statistics that all clients reveal once."""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpfl.features.pca import noisy_second_moments, principal_components
from dpfl.mechanisms.private_moments import Moments, noisy_moments
from dpfl.randomness import generator

CLIPPED_SHARE = 0.5
"""Statistics clip records to this share of the largest norm that entries in [0, 1] can have: few images exceed it."""
LEAST_DEVIATION = 0.1
"""Features that vary less, in a scale where they lie in [0, 1], are not blown up further."""


class InputNormalisation(StrEnum):
    """Normalisations of inputs; exact statistics leak, and so do those of a batch. A record's own cost nothing."""

    NONE = "none"
    NORMALISED = "normalised"
    NORMALISED_EXACTLY = "normalised_exactly"
    DP_PCA = "dp_pca"
    EXACT_PCA = "exact_pca"
    LAYER = "layer_normalised"
    """Each record by the mean and deviation of its own features."""
    BATCH = "batch_normalised"
    """In training by the means and deviations of the record's batch, in tests by those of all training records."""

    @property
    def is_private(self) -> bool:
        """True where noisy statistics are released."""
        return self in (InputNormalisation.NORMALISED, InputNormalisation.DP_PCA)

    @property
    def is_exact(self) -> bool:
        """True where exact statistics are used."""
        return self in (InputNormalisation.NORMALISED_EXACTLY, InputNormalisation.EXACT_PCA)

    @property
    def release(self) -> str:
        """Name of the release."""
        return "a Gaussian release of " + ("moments" if self is InputNormalisation.NORMALISED else "second moments")


def prepare(
    preparation: InputNormalisation,
    train: Tensor,
    test: Tensor,
    shares: list[NDArray[np.int64]],
    *,
    sigma: float,
    components: int,
    seed: int,
) -> tuple[Tensor, Tensor]:
    """Return train and test inputs (n, features), entries in [0, 1], prepared with the mean of the clients' statistics.

    Each client clips its records to CLIPPED_SHARE of the largest norm and adds noise sigma (over the sensitivity; 0
    takes exact statistics), addressed by (seed, "preparation", client). BATCH leaves the training inputs to
    `normalised`, batch by batch.
    Formal guarantee: that of one client's release, see dpfl.mechanisms.private_moments and dpfl.features.pca;
    LAYER releases nothing and keeps every guarantee, for a record's input depends on that record alone; none for BATCH.
    """
    if preparation is InputNormalisation.NONE:
        return train, test
    if preparation is InputNormalisation.LAYER:
        return normalised(train, 1), normalised(test, 1)
    if preparation is InputNormalisation.BATCH:
        return train, normalised(test, 0, by=train)
    features = train.shape[1]
    normalises = preparation in (InputNormalisation.NORMALISED, InputNormalisation.NORMALISED_EXACTLY)
    statistics = []
    for client, share in enumerate(shares):
        inputs, draw = train[torch.from_numpy(share)], generator(seed, "preparation", client)
        if normalises:
            noise = torch.from_numpy(draw.standard_normal(2 * features)).to(train.dtype)
            bound = CLIPPED_SHARE * math.sqrt(2 * features)
            moments = noisy_moments(inputs, bound=bound, noise_multiplier=sigma, noise=noise)
            statistics.append(torch.stack([moments.first, moments.second]))
        else:
            noise = torch.from_numpy(draw.standard_normal((features, features))).to(train.dtype)
            bound = CLIPPED_SHARE * math.sqrt(features)
            statistics.append(noisy_second_moments(inputs, bound=bound, noise_multiplier=sigma, noise=noise))
    mean = torch.stack(statistics).mean(0)
    if normalises:
        moments = Moments(*mean)
        return moments.normalise(train, LEAST_DEVIATION), moments.normalise(test, LEAST_DEVIATION)
    directions = principal_components(mean, components)
    return train @ directions, test @ directions


def normalised(inputs: Tensor, axis: int, *, by: Tensor | None = None) -> Tensor:
    """Return inputs (n, features) less the mean over an axis of `by` (themselves, if None), over its deviation there.

    Deviations below LEAST_DEVIATION count as that. Source: vandijk2023, section 2.7: over records (axis 0) batch
    normalisation, over a record's features (axis 1) layer normalisation.
    """
    source = inputs if by is None else by
    deviation = source.std(axis, correction=0, keepdim=True).clamp(min=LEAST_DEVIATION)
    return (inputs - source.mean(axis, keepdim=True)) / deviation
