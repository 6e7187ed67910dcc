"""Find principal components of private inputs from a second-moment matrix that is released once with noise."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dpfl.accounting.arguments import integer, real
from dpfl.errors import InputError
from dpfl.mechanisms.clipping import clip_vectors


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
