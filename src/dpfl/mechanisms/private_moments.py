"""Release mean and variance of the inputs once, with Gaussian noise, for normalisation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dpfl.accounting.arguments import real
from dpfl.mechanisms.clipping import clip_vectors


@dataclass(frozen=True)
class Moments:
    """First and second moment of each feature, both of shape (features,)."""

    first: Tensor
    second: Tensor

    def normalise(self, inputs: Tensor, least_deviation: float) -> Tensor:
        """Return inputs (n, features) minus the mean, over the deviation or `least_deviation` where that is more."""
        deviation = (self.second - self.first.square()).clamp(min=least_deviation**2).sqrt()
        return (inputs - self.first) / deviation


def noisy_moments(inputs: Tensor, *, bound: float, noise_multiplier: float, noise: Tensor) -> Moments:
    """Return the moments of `inputs` (n, features), n >= 1, from a sum of clipped (x, x^2) with Gaussian noise.

    `bound` > 0 is the norm to which each record's vector (x, x^2) of length 2 * features is clipped; `noise` are
    standard normal draws of that length; `noise_multiplier` >= 0 is the noise in units of the sensitivity 2 * bound of
    the sum to the replacement of a record. Raises ValueError naming bound or noise_multiplier.
    Source: vandijk2023, section 2.7.

    Formal guarantee: one release of a Gaussian mechanism, G_{1/noise_multiplier}-DP for one record replaced. Training
    on inputs normalised by the result composes with it; normalising by exact moments (noise_multiplier 0) is covered by
    no guarantee. `len(inputs)` is taken as public.
    """
    bound = real("bound", bound, above=0)
    noise_multiplier = real("noise_multiplier", noise_multiplier, at_least=0)
    vectors = torch.cat([inputs, inputs.square()], dim=1)
    clipped = clip_vectors(vectors, bound)
    first, second = ((clipped.sum(0) + 2 * bound * noise_multiplier * noise) / len(inputs)).chunk(2)
    return Moments(first, second)
