"""The last iterate of shuffled epochs and of uniform batches against exact laws and simulation."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from dpfl.accounting import gaussian_dp, hidden_state
from dpfl.accounting.hidden_state import (
    RestartSplit,
    UniformSteps,
    last_use,
    restart_epsilon,
    shuffled_delta,
    shuffled_epsilon,
    split_epsilon,
)

# Shuffled epochs with secret permutations.

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


# Batches of fixed size, drawn anew in every step.

UNIFORM_THRESHOLDS = np.linspace(-60, 60, 2401)


def attained_delta(epsilon, *, steps, rate, factor, noise, here, there):
    """delta at `epsilon` of a free quadratic whose record moves a step by `here` or `there` if it is in the batch."""
    powers = factor ** np.arange(steps)[::-1]
    spread = noise * math.sqrt(np.sum(powers**2))
    # Both tails for themselves: 1 - tail would lose the digits that e^epsilon multiplies.
    above, below = np.zeros((2, 2, UNIFORM_THRESHOLDS.size))
    for batch in itertools.product((0, 1), repeat=steps):
        chance = rate ** sum(batch) * (1 - rate) ** (steps - sum(batch))
        for place, move in enumerate((here, there)):
            reach = (move * np.sum(powers * batch) - UNIFORM_THRESHOLDS) / spread
            above[place] += chance * ndtr(reach)
            below[place] += chance * ndtr(-reach)
    growth = math.exp(epsilon)
    return max(np.max(above[0] - growth * above[1]), np.max(below[1] - growth * below[0]))


@settings(max_examples=3, deadline=None)
@example(steps=8, rate=0.5527458159264944, factor=1.0, noise=0.8125, replaced=True, delta=1e-2)
@given(
    steps=st.integers(2, 8),
    rate=st.floats(0.05, 0.9),
    factor=st.one_of(st.just(1.0), st.floats(0.1, 1)),
    noise=st.floats(0.8, 8),
    replaced=st.booleans(),
    delta=st.sampled_from([1e-2, 1e-4, 1e-6]),
)
def test_no_quadratic_violates_the_restart_or_composition(steps, rate, factor, noise, replaced, delta):
    run = UniformSteps(steps, rate, factor, noise, 2.0 if replaced else 1.0, math.inf)
    found = {restart_epsilon(run, delta), split_epsilon(run.composition(), rate, delta)}
    for epsilon in found:
        there = -1.0 if replaced else 0.0
        law = {"steps": steps, "rate": rate, "factor": factor, "noise": noise, "here": 1.0, "there": there}
        assert attained_delta(min(epsilon, 600.0), **law) <= delta * (1 + 1e-6)


@pytest.mark.parametrize(("noise", "rate", "steps"), [(2.0, 0.05, 50), (5.0, 0.3, 20)])
def test_composition_agrees_with_dp_accounting(noise, rate, steps):
    found = split_epsilon(RestartSplit(steps, 2 / noise, 0.0), rate, 1e-5)
    # A fixed-size batch with a record replaced is dominated by the symmetric pair whose remove direction is Poisson's.
    once = privacy_loss_distribution.from_gaussian_mechanism(
        noise / 2,
        sampling_prob=rate,
        value_discretization_interval=1e-4,
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
    )
    assert found >= once.self_compose(steps).get_epsilon_for_delta(1e-5) - 2e-3


# Upper ends of reference brackets: q = 1/94, 1880 steps, a record replaced; worked out by another discretisation.
@pytest.mark.parametrize(
    ("noise", "delta", "epsilon"),
    [(0.7, 1e-6, 76.5047992026638), (3.0, 1e-5, 1.647595014873335), (3.0, 1e-6, 1.8713449854153188)],
)
def test_composition_agrees_with_the_reference(noise, delta, epsilon):
    assert split_epsilon(RestartSplit(1880, 2 / noise, 0.0), 1 / 94, delta) == pytest.approx(epsilon, rel=1e-4)


@settings(max_examples=20)
@given(late=st.integers(1, 50), batch=st.floats(0.05, 1), shift=st.floats(0, 2), delta=st.floats(1e-9, 0.1))
def test_full_batches_are_a_gaussian(late, batch, shift, delta):
    mu = math.sqrt(late * batch**2 + shift**2)
    assert split_epsilon(RestartSplit(late, batch, shift), 1.0, delta) == pytest.approx(
        float(gaussian_dp.epsilon(delta, mu))
    )


def test_a_grid_of_losses_gives_the_shift_alone():
    tiny = split_epsilon(RestartSplit(1, 1e-6, 1.5), 0.01, 1e-5)
    assert tiny == pytest.approx(float(gaussian_dp.epsilon(1e-5, 1.5)), rel=1e-4)


@settings(max_examples=30)
@given(
    steps=st.integers(2, 60),
    late=st.integers(1, 59),
    share=st.floats(0.05, 0.9),
    factor=st.one_of(st.just(1.0), st.floats(0.2, 1)),
    diameter=st.floats(0.1, 100),
)
def test_a_split_absorbs_the_distance_at_the_restart(exact, steps, late, share, factor, diameter):
    late = min(late, steps - 1)
    split = UniformSteps(steps, 0.1, factor, 3.0, 1.0, diameter).split(late, share)
    apart = min(sum(factor**k for k in range(steps - late)), diameter)
    energy = exact.least_energy(factor, np.zeros(late), apart)
    assert split.shift_mu == pytest.approx(math.sqrt(energy / share) / 3.0, rel=1e-6)
    assert split.batch_mu == pytest.approx(2 / (3 * math.sqrt(1 - share)))


def test_contraction_makes_long_training_free():
    short, long = (
        restart_epsilon(UniformSteps(steps, 0.01, 0.99, 4.0, 2.0, math.inf), 1e-5) for steps in (10**4, 10**7)
    )
    assert long == pytest.approx(short, rel=0.02) and long < 0.7


@pytest.mark.parametrize(
    ("steps", "contraction", "noise", "delta"),
    [(10**4, 0.999, 1.0, 1e-10), (10**5, 0.9999, 1.0, 1e-9), (10**6, 0.99999, 2.0, 1e-8)],
)
def test_a_restart_is_found_where_rounding_on_the_finer_grid_outweighs_delta(steps, contraction, noise, delta):
    run = UniformSteps(steps, 100 / steps, contraction, noise, 2.0, math.inf)
    assert split_epsilon(run.composition(), run.sample_rate, delta) == math.inf
    assert 5 < restart_epsilon(run, delta) < 300


def test_one_step_cannot_restart():
    assert restart_epsilon(UniformSteps(1, 0.1, 1.0, 2.0, 1.0, 3.0), 1e-5) == math.inf


@pytest.mark.parametrize("delta", [1e-10, 1e-8, 1e-5])
@pytest.mark.parametrize(("steps", "mu", "shift"), [(1, 0.8, 0.3), (400, 0.05, 0.0), (10_000, 0.02, 0.7)])
def test_the_grid_is_safe_and_close_where_the_answer_is_known(steps, mu, shift, delta):
    found = split_epsilon(RestartSplit(steps, mu, shift), 1 - 1e-12, delta)  # on the grid, yet all but a full batch
    known = float(gaussian_dp.epsilon(delta, math.hypot(math.sqrt(steps) * mu, shift)))
    rounding = 2e-16 * steps / delta  # what the transforms may hide counts as spent
    assert known - 1e-9 <= found <= known * (1.003 + rounding)


def test_very_many_steps_hide_no_loss_behind_rounding():
    """The composition of ten million steps spends 0.078 to 0.107 at 1e-5; at 1e-9 rounding outweighs delta."""
    every_step = UniformSteps(10**7, 1e-6, 1.0, 1.0, 2.0, math.inf).composition()
    assert 0.078 < split_epsilon(every_step, 1e-6, 1e-5) < 0.2
    assert split_epsilon(every_step, 1e-6, 1e-9) == math.inf


def test_the_compass_finds_the_least_cost():
    """Of a bowl, from a corner."""
    found = hidden_state._compass(lambda i, j: 1 + (i - 9) ** 2 + (j - 3) ** 2, (0, 40), (60, 60))
    assert found == (9, 3)
