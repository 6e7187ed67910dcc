import itertools
import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from dpfl.accounting import gaussian_dp
from dpfl.accounting.hidden_state import RestartSplit, UniformSteps, restart_epsilon, split_epsilon

THRESHOLDS = np.linspace(-60, 60, 2401)


def attained_delta(epsilon, *, steps, rate, factor, noise, here, there):
    """delta at `epsilon` of a free quadratic whose record moves a step by `here` or `there` if it is in the batch."""
    powers = factor ** np.arange(steps)[::-1]
    spread = noise * math.sqrt(np.sum(powers**2))
    # Both tails for themselves: 1 - tail would lose the digits that e^epsilon multiplies.
    above, below = np.zeros((2, 2, THRESHOLDS.size))
    for batch in itertools.product((0, 1), repeat=steps):
        chance = rate ** sum(batch) * (1 - rate) ** (steps - sum(batch))
        for place, move in enumerate((here, there)):
            reach = (move * np.sum(powers * batch) - THRESHOLDS) / spread
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


def test_one_step_cannot_restart():
    assert restart_epsilon(UniformSteps(1, 0.1, 1.0, 2.0, 1.0, 3.0), 1e-5) == math.inf


@pytest.mark.parametrize("delta", [1e-10, 1e-8, 1e-5])
@pytest.mark.parametrize(("steps", "mu", "shift"), [(1, 0.8, 0.3), (400, 0.05, 0.0), (10_000, 0.02, 0.7)])
def test_the_grid_is_safe_and_close_where_the_answer_is_known(steps, mu, shift, delta):
    found = split_epsilon(RestartSplit(steps, mu, shift), 1 - 1e-12, delta)  # on the grid, yet all but a full batch
    known = float(gaussian_dp.epsilon(delta, math.hypot(math.sqrt(steps) * mu, shift)))
    assert known - 1e-9 <= found <= known * 1.003
