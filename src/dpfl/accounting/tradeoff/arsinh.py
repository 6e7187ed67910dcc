"""Noise a arsinh(N/a), N Gaussian: lighter tails than N, and its privacy cost."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from dpfl.accounting.arguments import real, reals
from dpfl.accounting.roots import root
from dpfl.accounting.tradeoff.privacy_loss import PrivacyLoss, Tails, composed, subsampled_tails


def arsinh_guarantee(*, scale: float, sigma: float, p: float = 1.0, rounds: int = 1, shift: float = 1.0) -> PrivacyLoss:
    """Return the guarantee of `rounds` subsampled rounds, noise scale * arsinh(N/scale), N ~ Normal(0, sigma^2).

    The noisy value is a scalar that a record moves by `shift`. For scale >= sigma the density is log-concave
    and smaller moves are covered too. In d dimensions the noise is not rotation invariant: this is the
    guarantee for a move along one axis. scale >= shift/300, sigma and shift > 0, p in (0, 1].
    Raises ValueError naming the argument. Source: vandijk2023 section 5.2.
    """
    return PrivacyLoss.of(composed(subsampled_tails(arsinh_tails(scale, sigma, shift), p), rounds))


def arsinh_delta(epsilon: ArrayLike, *, scale: float, sigma: float, shift: float = 1.0) -> NDArray[np.float64]:
    """The delta of one unsampled round at epsilon in [0, 700], any shape; exact up to the roots of the loss.

    Arguments and errors as `arsinh_guarantee`.
    Source: vandijk2023 section 5.2.
    """
    epsilon = reals("epsilon", epsilon, at_least=0, at_most=700)
    upper, lower = arsinh_tails(scale, sigma, shift)(epsilon)
    return np.maximum(upper - np.exp(epsilon) * lower, 0.0)[()]


def arsinh_tails(scale: float, sigma: float, shift: float = 1.0) -> Tails:
    """The law of the privacy loss of the noise against itself moved by `shift`; arguments as `arsinh_guarantee`.

    The loss is odd about shift/2. Where scale < sigma it need not be monotone: from the left it falls from
    +inf to a dip at -turn, rises to a hump at +turn and falls from there on, so it can exceed epsilon twice.
    Source: derived from vandijk2023 section 5.2.
    """
    scale, sigma = real("scale", scale, above=0), real("sigma", sigma, above=0)
    shift = real("shift", shift, above=0)
    if scale < shift / 300:
        raise ValueError(f"scale must be at least shift/300 = {shift / 300}, got {scale}")
    noise = _ArsinhNoise(scale, sigma, shift)
    turn = noise.turning_point()
    hump = float(noise.loss(np.array(turn)))

    def tails(epsilon: NDArray) -> tuple[NDArray, NDArray]:
        epsilon = np.asarray(epsilon, dtype=np.float64)
        far = noise.reach(epsilon)
        left = root(lambda w, eps: noise.loss(w) - eps, np.minimum(-far, -turn), -turn, epsilon)
        upper, lower = (np.array(noise.below(left + side)) for side in (shift / 2, -shift / 2))
        twice = epsilon < hump
        if np.any(twice):
            eps = epsilon[twice]
            rise = root(lambda w, eps: noise.loss(w) - eps, 0.0, turn, eps)
            fall = root(lambda w, eps: noise.loss(w) - eps, turn, np.maximum(far[twice], turn), eps)
            upper[twice] += noise.between(rise + shift / 2, fall + shift / 2)
            lower[twice] += noise.between(rise - shift / 2, fall - shift / 2)
        return upper, lower

    return tails


class _ArsinhNoise:
    """The noise, and the loss of one move; w is the noisy value measured from the middle of the two hypotheses."""

    def __init__(self, scale: float, sigma: float, shift: float) -> None:
        self.scale, self.sigma, self.shift = scale, sigma, shift
        self.steepness = scale**2 / (2 * sigma**2) * np.sinh(shift / scale)

    def loss(self, w: NDArray) -> NDArray[np.float64]:
        """ln f(w + shift/2) - ln f(w - shift/2)."""
        high, low = (w + self.shift / 2) / self.scale, (w - self.shift / 2) / self.scale
        return _log_cosh(high) - _log_cosh(low) - self.steepness * np.sinh(2 * w / self.scale)

    def reach(self, epsilon: NDArray) -> NDArray[np.float64]:
        """A distance beyond which the loss is certainly outside (-epsilon, epsilon)."""
        return self.scale / 2 * np.arcsinh((epsilon + self.shift / self.scale) / self.steepness) * (1 + 1e-12)

    def turning_point(self) -> float:
        """The w >= 0 where the loss has its hump; 0 where it falls throughout."""
        middle, ratio = np.cosh(self.shift / self.scale), 8 * self.sigma**2 / self.scale**2
        height = ratio / (2 * (middle + np.sqrt(middle**2 + ratio)))
        return float(self.scale / 2 * np.arccosh(height)) if height > 1 else 0.0

    def below(self, y: NDArray) -> NDArray[np.float64]:
        """The probability that the noise is below y."""
        return ndtr(self.scale * np.sinh(y / self.scale) / self.sigma)

    def between(self, low: NDArray, high: NDArray) -> NDArray[np.float64]:
        """The probability that the noise is between; taken in the tail where both are, to keep digits."""
        flip = np.where(low > 0, -1.0, 1.0)
        return flip * (self.below(flip * high) - self.below(flip * low))


def _log_cosh(x: NDArray) -> NDArray[np.float64]:
    """ln cosh x, without overflow."""
    return np.abs(x) + np.log1p(np.exp(-2 * np.abs(x))) - np.log(2.0)
