"""How clipping, noise and step sizes change in the course of a run: by segments of rounds, fixed before it starts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfl.accounting.tradeoff.segments import Segment
from dpfl.errors import InputError


@dataclass(frozen=True)
class Strategy:
    """One way of spending a budget; factors multiply the run's clip norm and sigma in segments of equal length.

    last_epoch: sigma / sqrt(E + 1) in the last of E epochs, times what the segments say. arsinh_scale: a over sigma of
    the noise a arsinh(N/a), infinite for Gaussian noise. kept_share: what compression keeps of an update's entries.
    budget_of: the strategy whose sigma is taken over, for a run that may spend more; None meets the budget itself.
    Nothing here looks at data or models, so the guarantee is known before the run (vandijk2023, section 5.2).
    """

    clip_factors: tuple[float, ...] = (1.0,)
    noise_factors: tuple[float, ...] = (1.0,)
    last_epoch: bool = False
    arsinh_scale: float = math.inf
    kept_share: float = 1.0
    budget_of: str | None = None

    @classmethod
    def of(cls, name: str, given: Mapping[str, Any]) -> Strategy:
        """Return the strategy that settings describe; raises InputError naming what is unknown or out of range."""
        unknown = set(given) - set(cls.__dataclass_fields__)
        if unknown:
            known = ", ".join(cls.__dataclass_fields__)
            raise InputError(f"strategies.{name}: {sorted(unknown)[0]} is unknown, should be one of {known}")
        strategy = cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in given.items()})
        factors = (*strategy.clip_factors, *strategy.noise_factors, strategy.arsinh_scale, strategy.kept_share)
        if not (strategy.clip_factors and strategy.noise_factors) or min(factors) <= 0 or strategy.kept_share > 1:
            raise InputError(f"strategies.{name}: factors and scales must be above 0, kept_share at most 1")
        return strategy

    def clip(self, rounds: int) -> NDArray[np.float64]:
        """Return each round's clip norm over the run's."""
        return _by_segment(self.clip_factors, rounds)

    def noise(self, rounds: int, epochs: int) -> NDArray[np.float64]:
        """Return each round's sigma over the run's; the last rounds / epochs rounds are the last epoch."""
        factors = _by_segment(self.noise_factors, rounds)
        if self.last_epoch:
            factors[rounds - rounds // epochs :] /= math.sqrt(epochs + 1)
        return factors

    def segments(self, *, sigma: float, p: float, rounds: int, epochs: int) -> list[Segment]:
        """Return what an accountant has to compose: runs of rounds with one sigma."""
        values, counts = np.unique(self.noise(rounds, epochs), return_counts=True)
        return [
            Segment(int(count), sigma * float(value), p, self.arsinh_scale)
            for value, count in zip(values, counts, strict=True)
        ]


def step_sizes(learning_rate: float, decay: float, rounds: int, epochs: int) -> NDArray[np.float64]:
    """Return the step size of each round, learning_rate / (1 + decay * epochs completed); constant within an epoch.

    learning_rate > 0, decay >= 0; raises InputError naming the one that is not. vandijk2023, Algorithm 1, line 4.
    """
    if not learning_rate > 0:
        raise InputError(f"learning_rate: is {learning_rate}, must be above 0")
    if not decay >= 0:
        raise InputError(f"step_decay: is {decay}, must be at least 0: step sizes diminish")
    return learning_rate / (1 + decay * (np.arange(rounds) // (rounds // epochs)))


def _by_segment(factors: Sequence[float], rounds: int) -> NDArray[np.float64]:
    """Return each round's factor, the rounds cut into as many segments as there are factors, as equal as can be."""
    parts = np.array_split(np.empty(rounds), len(factors))
    return np.concatenate([np.full(len(part), factor) for part, factor in zip(parts, factors, strict=True)])
