"""Measure distances between models with and without noise when a round ends."""

from __future__ import annotations

import torch
from torch import Tensor

from dpfl.engine.sgd import StackedHyperparameters

UNCLIPPED_NOISELESS, NOISELESS = "plain", "noiseless"


def references(variants: StackedHyperparameters, local_epochs: tuple[tuple[int, ...], ...]) -> list[dict[str, int]]:
    """Return, for each variant, the variants with its schedule that a distance is measured to.

    "plain": neither clips nor adds noise, the SGD that bhaskar2025, Appendix A, compares with. "noiseless": clips as
    the private ones do and adds no noise, so that a distance to it is the work of noise alone. Variants share batches
    and initial models, as the bound there supposes. A kind that is not in the stack is left out.
    """
    silent = (variants.noise_std == 0).reshape(-1, len(local_epochs)).all(0).tolist()
    found: list[dict[str, int]] = []
    for schedule in local_epochs:
        kinds = {}
        for variant, clips in enumerate(variants.clipped.tolist()):
            if silent[variant] and local_epochs[variant] == schedule:
                kinds.setdefault(NOISELESS if clips else UNCLIPPED_NOISELESS, variant)
        found.append(kinds)
    return found


def distances(trained: Tensor, variants: list[int], kinds: list[dict[str, int]]) -> list[dict[str, float]]:
    """Return the Euclidean distances of some variants' parameters, at the end of a round of theirs.

    `trained` (clients, len(variants), parameters): what clients send; `variants`: their numbers; `kinds`: `references`
    of all variants. For each variant and kind: distance_to_<kind>, between the averages over clients, and
    local_distance_to_<kind>, the mean over clients of the distance between their own models.
    """
    found = []
    for index, variant in enumerate(variants):
        measured = {}
        for kind, reference in kinds[variant].items():
            difference = trained[:, index] - trained[:, variants.index(reference)]
            measured[f"distance_to_{kind}"] = _norms(difference.mean(0)).item()
            measured[f"local_distance_to_{kind}"] = _norms(difference).mean().item()
        found.append(measured)
    return found


def _norms(vectors: Tensor) -> Tensor:
    """Return Euclidean norms over the last axis, summed in float64."""
    return torch.linalg.vector_norm(vectors, dim=-1, dtype=torch.float64)
