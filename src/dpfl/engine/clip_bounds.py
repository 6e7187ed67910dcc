"""Bound what rounding can add to a clipped record, and divide it out.

docs/clipping_precision.md has the lemma. In short: what one record adds to a sum is, in real numbers, a product of
numbers that the computer holds: its factor times a gradient that was formed, or its scaled gradients at a layer's
output times the layer's inputs. Every layer returns an upper bound on the squared norm of just that, but for a relative
error of a known number of roundings, which `sure_factors` divides out of all records alike.
"""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor

from dpfl.mechanisms import clip_factors


class Precision(StrEnum):
    """Arithmetic of a model's values and gradients; norms, sums, noise and weights are single precision."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"

    @property
    def passes(self) -> torch.dtype:
        """The type of values and gradients."""
        return getattr(torch, self)


BLOCK = 64  # numbers whose squares are summed at once


def unit(dtype: torch.dtype) -> float:
    """Return the largest relative error of rounding to nearest: 2^-53, 2^-24, 2^-8 for bfloat16."""
    return torch.finfo(dtype).eps / 2


def rounding(terms: int, dtype: torch.dtype) -> float:
    """Return gamma_n = n u / (1 - n u): a product of n factors (1 + e), each |e| <= u, or their inverses, differs from
    1 by at most that, and so does a sum of n products from the exact one, relative to the sum of their magnitudes, in
    whatever order it is formed. Source: higham2002, Lemma 3.1 and section 3.1."""
    errors = terms * unit(dtype)
    return errors / (1 - errors)


def accurate(values: Tensor) -> Tensor:
    """Return values in the precision of norms and sums: single where they are bfloat16, else their own."""
    return values.float() if values.dtype is torch.bfloat16 else values


def squared_norms(vectors: Tensor) -> Tensor:
    """Return |g|^2 of each of `vectors` (n, numbers), in their precision, with an error of `norm_roundings(numbers)`
    roundings: squares are summed in blocks, then over blocks, so that the error does not grow with their number."""
    numbers = vectors.shape[1]
    whole = numbers - numbers % BLOCK if numbers > BLOCK else 0
    rest = vectors[:, whole:].square().sum(1)
    if not whole:
        return rest
    blocks = torch.linalg.vector_norm(vectors[:, :whole].unflatten(1, (-1, BLOCK)), dim=2).square()
    return _sum(blocks) + rest


def _sum(numbers: Tensor) -> Tensor:
    """Return the sums over the second axis of (n, numbers), in blocks as `squared_norms`."""
    while numbers.shape[1] > BLOCK:
        whole = numbers.shape[1] - numbers.shape[1] % BLOCK
        blocks = numbers[:, :whole].unflatten(1, (-1, BLOCK)).sum(2)
        numbers = torch.cat([blocks, numbers[:, whole:].sum(1, keepdim=True)], 1)
    return numbers.sum(1)


def norm_roundings(numbers: int) -> int:
    """Return how many roundings a squared norm of so many numbers may have gone through (`squared_norms`): a square, a
    root and a square again, and the sums of each level of blocks."""
    roundings = 4
    while numbers > BLOCK:
        roundings, numbers = roundings + BLOCK, numbers // BLOCK + 1
    return roundings + numbers


def sure_factors(squares: Tensor, clip_norm: Tensor, roundings: int) -> Tensor:
    """Return factors, in (0, 1], for records whose squared norms are at most `squares` (1 + gamma), gamma that of so
    many roundings; the clip norm C broadcasts to them, infinity means no clipping.

    Formal guarantee: a factor times the norm is at most C, for the real numbers that the factor and the norm stand for,
    also after each product of the factor and a number has been rounded once.
    """
    excess = (1 + rounding(roundings, squares.dtype)) ** 0.5 * (1 + rounding(8, squares.dtype))
    return clip_factors(squares.sqrt() * excess, clip_norm)
