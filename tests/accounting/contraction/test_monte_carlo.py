"""The algorithms themselves in 2, 3 and 5 dimensions on neighbouring data, and what a fixed test sees of the record.

Nothing is discretised: noisy gradients of quadratic losses, averaged, stepped, projected on a ball. Three samples in
ten choose a half-space across the direction in which record i differs; on the others, untouched by the choice, the
half-space's two frequencies give a Clopper-Pearson lower bound of E_{e^eps} between the released models. The chance
that one exceeds a true guarantee is at most 1e-6; the streams are addressed, so every run gives the same verdict.
test_simulation.py does the same in one dimension by exact propagation.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest
from scipy.stats import beta as beta_law

from dpfl.accounting.contraction import (
    contraction_factor,
    federated_delta,
    federated_delta_relaxed,
    federated_delta_strongly_convex,
    federated_random_stop_bound,
    federated_random_stop_delta,
    federated_suffix_stop_delta,
    pnsgd_gaussian_delta,
    pnsgd_random_stop_bound,
    pnsgd_random_stop_delta,
    theta,
)
from dpfl.randomness import generator

EPSILON = np.array([0.0, 0.25, 0.5, 1.0])
FALSE_ALARM = 1e-6
SAMPLES, CHOOSING = 300_000, 90_000
LIPSCHITZ = 1.0
SEED = 1


@dataclass(frozen=True)
class Setting:
    """n quadratic losses on a ball, m of them a round; `place` is record i's (from 1), or None to draw the order.

    A loss's gradient is hessian * w + slope with the Hessian diagonal: `along` in the first coordinate, in which
    record i differs, `across` in the others. `pull` is the share of what LIPSCHITZ leaves the other records' slopes,
    whose directions are random. What is wanted of the models is their first coordinate: a half-space needs no more.
    """

    dimensions: int
    n: int
    eta: float | tuple[float, ...]
    sigma: float | tuple[float, ...]
    radius: float
    place: int | None = None
    m: int = 1
    along: float = 0.0
    across: float = 0.0
    pull: float = 0.0

    @property
    def rounds(self) -> int:
        return self.n // self.m

    def schedule(self, name: str) -> np.ndarray:
        """eta or sigma, one a round."""
        return np.broadcast_to(np.asarray(getattr(self, name), dtype=float), self.rounds)

    def losses(self, sign: int) -> tuple[np.ndarray, np.ndarray]:
        """Hessians and slopes, shape (n, d) each; record i is the last but for a `place`, its slope has this sign."""
        hessian = np.full((self.n, self.dimensions), self.across)
        hessian[:, 0] = self.along
        slope = generator(SEED, "split").normal(size=hessian.shape)
        slope *= self.pull * self._spare(hessian) / np.linalg.norm(slope, axis=1, keepdims=True)
        i = self.n - 1 if self.place is None else self.place - 1
        # Only as convex as the claim assumes of all: the rest of LIPSCHITZ goes into the slope.
        hessian[i] = max(min(self.along, self.across), 0.0)
        slope[i] = 0.0
        slope[i, 0] = sign * self._spare(hessian)[i, 0]
        if np.any(np.abs(hessian).max(axis=1) * self.radius + np.linalg.norm(slope, axis=1) > LIPSCHITZ * (1 + 1e-12)):
            pytest.fail("a gradient exceeds LIPSCHITZ on the ball")
        return hessian, slope

    def _spare(self, hessian: np.ndarray) -> np.ndarray:
        """What the Hessian leaves of LIPSCHITZ anywhere on the ball."""
        return LIPSCHITZ - np.abs(hessian).max(axis=1, keepdims=True) * self.radius


@lru_cache(maxsize=2)
def models(setting: Setting, sign: int) -> np.ndarray:
    """The first coordinate of every round's model in SAMPLES independent runs from the centre, (rounds, SAMPLES)."""
    hessian, slope = setting.losses(sign)
    order = np.broadcast_to(np.arange(setting.n), (SAMPLES, setting.n))
    if setting.place is None:
        order = generator(SEED, "batches", sign + 1).permuted(order, axis=1)
    w = np.zeros((SAMPLES, setting.dimensions))
    history = np.empty((setting.rounds, SAMPLES))
    for t, (eta, sigma) in enumerate(zip(setting.schedule("eta"), setting.schedule("sigma"), strict=True)):
        batch = order[:, t * setting.m : (t + 1) * setting.m]
        gradients = sigma * generator(SEED, "noise", sign + 1, t).normal(size=(*batch.shape, w.shape[1]))
        gradients += hessian[batch] * w[:, None] + slope[batch]
        w -= eta * gradients.mean(axis=1)
        w /= np.maximum(np.linalg.norm(w, axis=1, keepdims=True) / setting.radius, 1.0)
        history[t] = w[:, 0]
    return history


def last(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """The last models under the two neighbours."""
    return models(setting, 1)[-1], models(setting, -1)[-1]


def stopped(setting: Setting, first: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The models after a round drawn uniformly from first..T, every run its own."""
    released = []
    for sign in (1, -1):
        tau = generator(SEED, "participants", sign + 1).integers(first - 1, setting.rounds, SAMPLES)
        released.append(models(setting, sign)[tau, np.arange(SAMPLES)])
    return released[0], released[1]


def leak(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Lower confidence bounds at each EPSILON of the larger of E(P||Q) and E(Q||P)."""
    chosen = [_best_test(epsilon, p[:CHOOSING], q[:CHOOSING]) for epsilon in EPSILON]
    fresh = {1: p[CHOOSING:], -1: q[CHOOSING:]}
    bounds = []
    for epsilon, (order, side, threshold) in zip(EPSILON, chosen, strict=True):
        more, less = (np.count_nonzero(side * fresh[arm] > threshold) for arm in (order, -order))
        count = SAMPLES - CHOOSING
        low = beta_law.ppf(FALSE_ALARM / 2, more, count - more + 1) if more else 0.0
        high = beta_law.isf(FALSE_ALARM / 2, less + 1, count - less) if less < count else 1.0
        bounds.append(low - np.exp(epsilon) * high)
    return np.array(bounds)


def _best_test(epsilon: float, p: np.ndarray, q: np.ndarray) -> tuple[int, int, float]:
    """Which of (P, Q) and (Q, P), which side and which threshold look best on the samples that may choose."""
    best = []
    for side in (1, -1):
        upper, lower = np.sort(side * p), np.sort(side * q)
        grid = np.linspace(min(upper[0], lower[0]), max(upper[-1], lower[-1]), 801)[:-1]
        in_p, in_q = (1 - np.searchsorted(law, grid, side="right") / len(law) for law in (upper, lower))
        for order, gain in ((1, in_p - np.exp(epsilon) * in_q), (-1, in_q - np.exp(epsilon) * in_p)):
            best.append((gain.max(), order, side, grid[gain.argmax()]))
    return max(best)[1:]


def smoothness(setting: Setting) -> dict[str, float]:
    """The largest and the least curvature, under the names of the claims; a linear loss is smooth with any beta."""
    return {
        "smoothness": max(setting.along, setting.across, 0.5),
        "strong_convexity": min(setting.along, setting.across),
    }


def pnsgd_case(setting: Setting) -> dict:
    """The arguments of the claims of asoodeh2020 but for record i's place."""
    case = {"n": setting.n, "eta": setting.eta, "sigma": setting.sigma, "lipschitz": LIPSCHITZ}
    return case | smoothness(setting) | {"diameter": 2 * setting.radius}


def federated_case(setting: Setting) -> dict:
    """The arguments of the claims of asoodeh2021."""
    case = {"n": setting.n, "m": setting.m, "eta": setting.eta, "sigma": setting.sigma}
    return case | {"lipschitz": LIPSCHITZ, "radius": setting.radius}


PNSGD = [
    Setting(2, 1, 4.0, 1.0, 0.5, place=1),
    Setting(2, 3, 1.0, 1.0, 0.5, place=2),
    Setting(3, 4, 2.0, 0.5, 0.5, place=3, across=0.5, pull=0.5),
    Setting(5, 4, 0.5, 1.0, 1.0, place=3, along=0.2, across=0.5, pull=0.3),
    Setting(2, 4, 0.7, 1.0, 0.5, place=2, along=0.2, across=0.5),
    Setting(5, 3, 4.0, 0.5, 0.5, place=2, across=0.5, pull=0.2),
    Setting(3, 3, 4.0, 0.3, 0.5, place=2, along=0.5),  # eta = 2/beta: every step is a reflection
    Setting(3, 3, 2.0, 0.3, 0.5, place=2, along=0.5, across=0.5),  # M = 0: the next step forgets everything
]
FEDERATED = [
    Setting(2, 6, 1.0, 1.0, 0.5, m=2),
    Setting(3, 6, (4.0, 2.0, 1.0), (1.0, 0.7, 0.5), 0.5, m=2, across=0.5, pull=0.3),
    Setting(5, 4, 0.5, 1.0, 1.0, along=0.2, across=0.5, pull=0.3),
    Setting(2, 9, (0.3, 0.6, 1.2), (1.2, 0.8, 0.5), 0.5, m=3, across=0.3, pull=0.5),
    Setting(3, 4, 1.0, 0.7, 0.5, m=2, along=0.5, across=0.8),
    Setting(3, 6, 2.0, 0.7, 0.5, m=2, along=1.0),  # eta = 2/beta: every step of the others is a reflection
    Setting(5, 6, 3.0, 1.0, 0.25, m=3, across=0.5, pull=0.2),
]
SUFFIX = 0.6


def slow_but(settings: list, *fast: int) -> list:
    """The settings as cases, of which those with other places than `fast` are slow ones."""
    return [
        case if place in fast else pytest.param(*(case if isinstance(case, tuple) else [case]), marks=pytest.mark.slow)
        for place, case in enumerate(settings)
    ]


@pytest.mark.parametrize("dimensions", slow_but([2, 3, 5], 1))
def test_the_measurement_finds_all_but_the_statistical_error_of_a_gaussian_mechanism(dimensions):
    """One step in a ball too large to matter: the half-space is the best of all tests, the leak theta(2L/sigma)."""
    measured = leak(*last(Setting(dimensions, 1, 1.0, 1.0, 100.0, place=1)))
    exact = theta(EPSILON, 2.0)
    assert np.all(measured <= exact) and np.all(measured >= exact - 0.02)


@pytest.mark.parametrize("setting", slow_but(PNSGD, 3))
def test_pnsgd_leaks_no_more_than_claimed(setting):
    case = pnsgd_case(setting)
    assert np.all(leak(*last(setting)) <= pnsgd_gaussian_delta(EPSILON, i=setting.place, **case))
    claimed = pnsgd_random_stop_delta(EPSILON, i=setting.place, **case)
    assert np.all(leak(*stopped(setting)) <= claimed)
    assert np.all(claimed <= pnsgd_random_stop_bound(EPSILON, **case) * (1 + 1e-12))


@pytest.mark.parametrize("setting", slow_but(FEDERATED, 1))
def test_federated_rounds_leak_no_more_than_claimed(setting):
    case = federated_case(setting)
    measured = leak(*last(setting))
    assert np.all(measured <= federated_delta(EPSILON, **case))
    assert np.all(measured <= federated_delta_strongly_convex(EPSILON, **case, **smoothness(setting)))
    claimed = federated_random_stop_delta(EPSILON, **case)
    assert np.all(leak(*stopped(setting)) <= claimed)
    assert np.all(claimed <= federated_random_stop_bound(EPSILON, **case) * (1 + 1e-12))
    first = int(np.ceil(SUFFIX * setting.rounds))
    assert np.all(leak(*stopped(setting, first)) <= federated_suffix_stop_delta(EPSILON, alpha=SUFFIX, **case))


@pytest.mark.parametrize(("setting", "smallest"), slow_but([(PNSGD[0], 0.9), (PNSGD[2], 0.55), (PNSGD[6], 0.65)], 1))
def test_pnsgd_leaks_more_than_half_of_what_is_claimed(setting, smallest):
    """So a claim that lost a factor 2 would be caught; `smallest` is the share met at every epsilon <= 0.5."""
    claimed = pnsgd_gaussian_delta(EPSILON, i=setting.place, **pnsgd_case(setting))
    assert np.all((leak(*last(setting)) > smallest * claimed)[EPSILON <= 0.5])


@pytest.mark.parametrize(
    ("setting", "smallest"),
    [
        (FEDERATED[1], 0.5),
        pytest.param(FEDERATED[3], 0.45, marks=pytest.mark.slow),
        pytest.param(FEDERATED[6], 0.35, marks=pytest.mark.slow),
    ],
)
def test_federated_rounds_leak_more_than_half_of_what_is_claimed(setting, smallest):
    case = federated_case(setting)
    claims = federated_delta(EPSILON, **case), federated_random_stop_delta(EPSILON, **case)
    for released, claimed in zip((last(setting), stopped(setting)), claims, strict=True):
        measured = leak(*released)
        assert measured[0] > 0.5 * claimed[0] and np.all(measured[:2] > smallest * claimed[:2])


@pytest.mark.parametrize("dimensions", slow_but([2, 3, 5], 0))
@pytest.mark.parametrize(("eta", "sigma", "strong_convexity"), [(8.0, 1.0, 0.0), (2.65, 0.3, 0.3)])
def test_too_long_steps_leak_more_than_the_printed_theorem_claims(dimensions, eta, sigma, strong_convexity):
    """beta = 0.5 and eta > 2/(beta + rho): the printed M is no Lipschitz constant of the step, eta beta - 1 is."""
    setting = Setting(dimensions, 2, eta, sigma, 0.5, place=1, along=0.5, across=strong_convexity)
    printed = np.sqrt(1 - 2 * eta * 0.5 * strong_convexity / (0.5 + strong_convexity))
    first, links = theta(EPSILON, 2 / sigma), np.array([printed, eta * 0.5 - 1]) / (eta * sigma)
    claimed, mended = first * theta(EPSILON, links[:, None])
    measured = leak(*last(setting))
    assert measured[0] > claimed[0]
    assert np.all(measured <= mended)
    with pytest.raises(ValueError, match=r"^eta "):
        contraction_factor(eta, 0.5, strong_convexity)


@pytest.mark.parametrize("dimensions", slow_but([2, 3], 0))
def test_concave_losses_leak_more_than_the_claim_for_convex_ones(dimensions):
    """Steps drive two models apart, five times where eta = 8; the wider diameter 2 (radius + eta L) covers that."""
    setting = Setting(dimensions, 2, 8.0, 1.0, 0.5, along=-0.5, across=0.0)
    case, measured = federated_case(setting), leak(*last(setting))
    assert measured[0] > federated_delta(EPSILON, **case)[0]
    assert np.all(measured <= federated_delta_relaxed(EPSILON, **case))
