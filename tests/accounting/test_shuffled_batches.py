"""The worst pair of shuffled epochs: an integral, the mechanism itself simulated, and values worked out elsewhere."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_ndtr, ndtr

from dpfl.accounting import gaussian_dp
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.shuffled_batches import epoch_laws, unamplified_mu, worst_pair_epsilon

# (relation, sigma, records, batch, epochs, delta, low, high): the same pair and statistic by another implementation,
# confirmed by Monte Carlo with an exponential tilt.
REFERENCE = [
    ("zero_out", 1.0072, 6000, 64, 20, 1e-5, 12.7725841, 12.7731649),
    ("add_or_remove", 1.0072, 6000, 64, 20, 1e-6, 18.3139565, 18.3146022),
    ("zero_out", 1.7676, 6000, 64, 20, 1e-5, 1.9593330, 1.9597739),
    ("replace_one", 1.7676, 6000, 64, 20, 1e-5, 2.4882966, 2.4887477),
    ("add_or_remove", 0.5, 60000, 600, 1, 1e-5, 19.7673385, 19.7673836),
    ("zero_out", 2.0, 6000, 250, 20, 1e-6, 3.5984697, 3.5989274),
    ("replace_one", 4.0, 2000, 100, 100, 1e-6, 3.7456629, 3.7478158),
]


def _epsilon(sigma, batch, records, epochs, delta, relation) -> float:
    return worst_pair_epsilon(
        noise_multiplier=sigma,
        batch_size=batch,
        records=records,
        epochs=epochs,
        delta=delta,
        neighbouring=Neighbouring(relation),
    )


@pytest.mark.parametrize(("relation", "sigma", "records", "batch", "epochs", "delta", "low", "high"), REFERENCE)
def test_lower_bounds_meet_the_reference(relation, sigma, records, batch, epochs, delta, low, high):
    assert low <= _epsilon(sigma, batch, records, epochs, delta, relation) <= high


@pytest.mark.parametrize(("noise", "batches", "epsilon"), [(0.26, 2, 25.897435), (0.24, 5, 26.5), (1.0, 5, 2.0)])
def test_both_laws_of_an_epoch_lie_below_the_largest_step_s(noise, batches, epsilon):
    """A tail of P's near 1 keeps no digits of small cells: the law of Q||P was once above."""
    laws = epoch_laws(noise, 1, batches, 1, 1e-5, Neighbouring.REPLACE_ONE)
    z = np.linspace(-8, 8 + 4 / noise, 400_001)
    rest = (batches - 1) * log_ndtr(z)
    far, near = (np.exp(rest + log_ndtr(z - mean / noise)) for mean in (2.0, 0.0))
    exact = ((1 - far) - math.exp(epsilon) * (1 - near)).max(), (near - math.exp(epsilon) * far).max()
    for law, most in zip(laws, map(float, exact), strict=True):
        gained = float(law.masses @ np.maximum(-np.expm1(epsilon - law.losses), 0.0))
        assert 0.98 * most - 1e-3 < gained <= most * (1 + 1e-8)


@pytest.mark.parametrize(("relation", "delta"), [("zero_out", 1e-5), ("replace_one", 1e-5), ("zero_out", 1e-30)])
def test_one_epoch_agrees_with_the_hockey_stick_of_the_largest_step(relation, delta):
    sigma, steps = 0.9, 12
    other = 1.0 if relation == "zero_out" else 0.0

    def survival(z: float, mean: float) -> float:
        below = (steps - 1) * math.log(ndtr(z)) + math.log(ndtr(z - mean / sigma))
        return -math.expm1(below) if z < 5 else (steps - 1) * ndtr(-z) + ndtr(mean / sigma - z)

    def spent(epsilon: float) -> float:
        line = lambda z: survival(z, 2.0) - math.exp(epsilon) * survival(z, other)  # noqa: E731
        best = max(np.linspace(0, 30, 300), key=line)
        return -minimize_scalar(lambda z: -line(z), bounds=(best - 0.2, best + 0.2), options={"xatol": 1e-12}).fun

    exact = brentq(lambda epsilon: math.log(max(spent(epsilon), 1e-320)) - math.log(delta), 0.1, 60)
    found = _epsilon(sigma, 10, 120, 1, delta, relation)
    assert found == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize(("sigma", "room"), [(0.03, 0.02), (0.1, 1e-4), (1.0, 1e-4)])
def test_epochs_of_one_batch_are_gaussian(sigma, room):
    """From below; under the least noise the masses of the largest losses are below all floats and left out."""
    exact = float(gaussian_dp.epsilon(1e-5, math.sqrt(2) / sigma))
    assert exact * (1 - room) <= _epsilon(sigma, 100, 100, 2, 1e-5, "zero_out") <= exact


@pytest.mark.parametrize("relation", list(Neighbouring))
def test_the_mechanism_itself_shows_the_loss(relation):
    """Permute and add noise, n not divisible by the batch: P and Q of 'the largest step is above z' must differ by
    what one epoch is said to spend. Delta at that event, each estimate with 4.5 deviations: a false alarm in 1e5."""
    sigma, batch, records, draws = 0.8, 3, 11, 400_000
    generator = np.random.default_rng(7)
    steps = math.ceil(records / batch)

    def largest(record: float | None) -> np.ndarray:
        values = np.full(records if record is not None else records - 1, -1.0)
        places = generator.integers(0, values.size, draws)
        padded = np.zeros((draws, steps * batch))
        padded[:, : values.size] = values
        if record is not None:
            padded[np.arange(draws), places] = record
        sums = padded.reshape(draws, steps, batch).sum(axis=2)
        sizes = np.minimum(batch, records - batch * np.arange(steps))
        sums += sizes + generator.normal(0, sigma, sums.shape)
        return (sums[:, :-1] if relation is Neighbouring.ADD_OR_REMOVE else sums).max(axis=1)

    p = largest(1.0)
    q = largest(
        {Neighbouring.ZERO_OUT: 0.0, Neighbouring.REPLACE_ONE: -1.0, Neighbouring.ADD_OR_REMOVE: None}[relation]
    )
    epsilon = 0.7
    deltas = [np.mean(p > z) - math.exp(epsilon) * np.mean(q > z) for z in np.linspace(1, 4, 31)]
    best = float(max(deltas))
    error = 4.5 * (1 + math.exp(epsilon)) / math.sqrt(4 * draws)
    assert _epsilon(sigma, batch, records, 1, best + error, relation) <= epsilon
    assert _epsilon(sigma, batch, records, 1, best - error, relation) >= epsilon - 0.02


def test_without_amplification_the_bounds_are_gaussian():
    assert unamplified_mu(1.0072, 94, 20, Neighbouring.ZERO_OUT) == pytest.approx(4.4401667543681285, rel=1e-14)
    assert unamplified_mu(1.0072, 94, 20, Neighbouring.REPLACE_ONE) == pytest.approx(8.880333508736257, rel=1e-14)
    assert unamplified_mu(1.0072, 94, 20, Neighbouring.ADD_OR_REMOVE) == pytest.approx(9.928514694201748, rel=1e-14)
    assert unamplified_mu(2.0, 1, 9, Neighbouring.ADD_OR_REMOVE) == 1.5  # one batch: the sum moves by 1
