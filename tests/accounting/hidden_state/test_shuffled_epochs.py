import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting import gaussian_dp
from dpfl.accounting.hidden_state import last_use, shuffled_delta, shuffled_epsilon

EPSILONS = (0.0, 0.1, 0.3, 1.0, 2.0)
THRESHOLDS = np.linspace(-25, 25, 501)
BOUNDS = ("shifted", "contraction", "minimum")


def schedules(steps, period):
    """All equally likely use patterns of one record in `steps` steps of shuffled epochs, the last one cut short."""
    epochs = math.ceil(steps / period)
    for places in itertools.product(range(period), repeat=epochs):
        marks = np.zeros(epochs * period)
        marks[[epoch * period + place for epoch, place in enumerate(places)]] = 1
        yield marks[:steps]


def mixture(exact, factor, steps, period, base, **law):
    """Half-line probabilities with the record, averaged over all orders, and without it."""
    with_record = [exact.half_line(factor, base + uses, **law) for uses in schedules(steps, period)]
    return np.mean(with_record, axis=0), exact.half_line(factor, np.full(steps, base), **law)


@settings(max_examples=60, deadline=None)
@given(
    factor=st.one_of(st.just(1.0), st.floats(0.1, 1)),
    period=st.integers(1, 4),
    extra=st.integers(0, 3),
    epochs=st.integers(1, 3),
    noise=st.floats(0.5, 5),
)
def test_no_order_of_a_free_quadratic_violates_the_mean(exact, factor, period, extra, epochs, noise):
    steps = epochs * period + min(extra, period - 1)
    one, two = mixture(exact, factor, steps, period, 0.0, noise=noise, thresholds=THRESHOLDS)
    places = last_use(
        steps=steps,
        steps_per_epoch=period,
        short_batch=1.0,
        contraction=factor,
        noise_over_shift=noise,
        diameter_over_shift=math.inf,
    )
    assert places.chance.sum() == pytest.approx(1.0)
    for epsilon in EPSILONS:
        attained = exact.half_line_delta(epsilon, one, two)
        for bound in BOUNDS:
            assert attained <= shuffled_delta(epsilon, places, link=math.inf, bound=bound) + 1e-12


@settings(max_examples=12, deadline=None)
@given(
    factor=st.one_of(st.just(1.0), st.floats(0.3, 1)),
    period=st.integers(1, 3),
    epochs=st.integers(1, 2),
    extra=st.integers(0, 1),
    diameter=st.floats(0.5, 6),
    noise_share=st.floats(0.1, 1.5),
    base=st.floats(-1, 1),
)
def test_no_order_of_a_projected_quadratic_violates_a_bound(
    exact, factor, period, epochs, extra, diameter, noise_share, base
):
    noise, steps = noise_share * diameter, epochs * period + min(extra, period - 1)
    inside = np.linspace(-diameter / 2, diameter / 2, 31)[1:-1]
    one, two = mixture(exact, factor, steps, period, base, noise=noise, thresholds=inside, diameter=diameter, nodes=200)
    places = last_use(
        steps=steps,
        steps_per_epoch=period,
        short_batch=1.0,
        contraction=factor,
        noise_over_shift=noise,
        diameter_over_shift=diameter,
    )
    for epsilon in EPSILONS:
        attained = exact.half_line_delta(epsilon, one, two)
        for bound in BOUNDS:
            spent = shuffled_delta(epsilon, places, link=factor * diameter / noise, bound=bound)
            assert attained <= spent + 1e-11


def test_one_epoch_without_contraction_of_distance_is_exact_for_one_step():
    places = last_use(
        steps=1, steps_per_epoch=4, short_batch=1.0, contraction=1.0, noise_over_shift=2.0, diameter_over_shift=math.inf
    )
    # One step of an epoch of four: the record is in it with chance 1/4, else the step says nothing.
    assert shuffled_delta(0.3, places, link=math.inf) == pytest.approx(float(gaussian_dp.delta(0.3, 0.5)) / 4)


def test_one_epoch_in_known_numbers():
    places = last_use(
        steps=3, steps_per_epoch=3, short_batch=1.0, contraction=1.0, noise_over_shift=2.0, diameter_over_shift=math.inf
    )
    np.testing.assert_allclose(places.shifted_mu, 0.5 / np.sqrt([3, 2, 1]))
    np.testing.assert_allclose(places.used_mu, 0.5)
    np.testing.assert_array_equal(places.tail, [2, 1, 0])
    delta = gaussian_dp.delta(0.4, 0.5 / np.sqrt([3, 2, 1])).mean()
    assert shuffled_delta(0.4, places, link=math.inf, bound="shifted") == pytest.approx(delta, rel=1e-12)
    kept = gaussian_dp.delta(0.4, 1.5) ** np.array([2, 1, 0]) * gaussian_dp.delta(0.4, 0.5)
    assert shuffled_delta(0.4, places, link=1.5, bound="contraction") == pytest.approx(kept.mean(), rel=1e-12)


@settings(max_examples=15)
@given(delta=st.floats(1e-12, 0.5), noise=st.floats(0.3, 20), period=st.integers(1, 20), epochs=st.integers(1, 5))
def test_epsilon_inverts_delta(delta, noise, period, epochs):
    places = last_use(
        steps=period * epochs,
        steps_per_epoch=period,
        short_batch=1.0,
        contraction=0.99,
        noise_over_shift=noise,
        diameter_over_shift=5.0,
    )
    for bound in BOUNDS:
        epsilon = shuffled_epsilon(delta, places, link=5 / noise, bound=bound)
        assert shuffled_delta(epsilon, places, link=5 / noise, bound=bound) <= delta * (1 + 1e-9)
        if epsilon > 1e-6:
            assert shuffled_delta(epsilon - 1e-6, places, link=5 / noise, bound=bound) > delta * (1 - 1e-9)


def test_an_unknown_bound_is_named():
    places = last_use(
        steps=3, steps_per_epoch=3, short_batch=1.0, contraction=1.0, noise_over_shift=2.0, diameter_over_shift=math.inf
    )
    with pytest.raises(ValueError, match="bound"):
        shuffled_delta(0.4, places, link=1.0, bound="luck")


def test_a_short_last_batch_holds_its_share_of_the_records():
    whole = {"steps_per_epoch": 4, "contraction": 1.0, "noise_over_shift": 2.0, "diameter_over_shift": math.inf}
    np.testing.assert_allclose(last_use(steps=8, short_batch=0.5, **whole).chance, np.array([2, 2, 2, 1]) / 7)
    cut = last_use(steps=6, short_batch=0.5, **whole)  # two steps into the second epoch
    np.testing.assert_allclose(cut.chance, np.append(np.array([2, 2, 2, 1]) / 7 * 3 / 7, [2 / 7, 2 / 7]))
    np.testing.assert_array_equal(cut.tail, [5, 4, 3, 2, 1, 0])
