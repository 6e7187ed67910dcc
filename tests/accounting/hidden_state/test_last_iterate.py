import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting import gaussian_dp
from dpfl.accounting.contraction.pnsgd import Law, NoisyPass, worst_epsilon
from dpfl.accounting.hidden_state import Batches, Bound, last_iterate_epsilon, shifted_interpolation_mu

RUN = {
    "records": 600,
    "batch_size": 60,
    "steps": 40,
    "noise_multiplier": 2.0,
    "delta": 1e-5,
    "step_size": 0.5,
    "smoothness": 1.0,
    "lipschitz": 1.0,
}


def run(**changes):
    return last_iterate_epsilon(**(RUN | {"batches": "cyclic"} | changes))


def test_full_batches_are_the_gaussian_of_shifted_interpolation():
    found = run(batches="full_batch", batch_size=600, strong_convexity=0.2)
    mu = shifted_interpolation_mu(steps=40, contraction=0.9, noise_over_shift=2.0)
    assert found.epsilon == pytest.approx(float(gaussian_dp.epsilon(1e-5, mu)))
    assert found.bound is Bound.SHIFTED_INTERPOLATION
    assert found.bounds[Bound.COMPOSITION] == pytest.approx(float(gaussian_dp.epsilon(1e-5, math.sqrt(40) / 2)))


def test_replacing_a_record_moves_twice_as_far():
    one = run(neighbouring="zero_out", noise_multiplier=2.0, diameter=1.0)
    two = run(neighbouring="replace_one", noise_multiplier=4.0, diameter=2.0)
    assert one.epsilon == pytest.approx(two.epsilon, rel=1e-12)


def test_one_shuffled_epoch_of_single_records_is_asoodeh2020s_permuted_pass():
    theory = {"lipschitz": 1.5, "smoothness": 2.0, "strong_convexity": 0.0, "diameter": 0.7}
    expected = worst_epsilon(1e-5, NoisyPass(80, Law.GAUSSIAN, eta=0.6, permuted=True, **theory), scale=3.0)
    found = last_iterate_epsilon(
        batches="shuffled_epochs",
        steps=80,
        records=80,
        batch_size=1,
        noise_multiplier=2.0,
        delta=1e-5,
        step_size=0.6,
        neighbouring="replace_one",
        **theory,
    )
    assert found.bounds[Bound.CONTRACTION] == pytest.approx(expected, rel=1e-7)


@settings(max_examples=12, deadline=None)
@given(
    batches=st.sampled_from(["cyclic", "shuffled_epochs"]),
    steps=st.integers(1, 200),
    noise=st.floats(0.5, 20),
    diameter=st.one_of(st.just(math.inf), st.floats(0.01, 10)),
    convexity=st.floats(0, 1),
    relation=st.sampled_from(["zero_out", "replace_one"]),
)
def test_the_answer_is_the_least_of_its_bounds(batches, steps, noise, diameter, convexity, relation):
    found = run(
        batches=batches,
        steps=steps,
        noise_multiplier=noise,
        diameter=diameter,
        strong_convexity=convexity,
        neighbouring=relation,
    )
    assert found.epsilon == min(found.bounds.values()) == found.bounds[found.bound]
    assert found.epsilon <= found.bounds[Bound.COMPOSITION]
    if batches == "shuffled_epochs":
        one_of_two = min(found.bounds[Bound.CONTRACTION], found.bounds[Bound.SHIFTED_INTERPOLATION])
        assert found.bounds[Bound.CONTRACTION_AND_SHIFTS] <= one_of_two * (1 + 1e-6) + 1e-8


def test_a_secret_order_spends_less_than_a_public_one():
    assert run(batches="shuffled_epochs").epsilon < 0.9 * run(batches="cyclic").epsilon


@pytest.mark.parametrize("batches", ["cyclic", "shuffled_epochs"])
def test_a_short_last_batch_makes_an_epoch_longer_and_contracts_less(batches):
    found = run(batches=batches, records=570, batch_size=60, steps=40, strong_convexity=0.4)
    # Ten steps an epoch, the last batch half as long: half the strong convexity, and fewer records at the end.
    whole = run(batches=batches, strong_convexity=0.2)
    if batches == "cyclic":
        assert found == whole
    else:
        assert 0.9 * whole.epsilon < found.epsilon < whole.epsilon


def test_uniform_batches_take_composition_or_a_restart():
    convex = run(batches="fixed_without_replacement", noise_multiplier=4.0)
    assert convex.bound is Bound.COMPOSITION
    strongly = run(batches="fixed_without_replacement", noise_multiplier=4.0, strong_convexity=0.5, steps=4000)
    assert strongly.bound is Bound.SHIFTED_INTERPOLATION and strongly.epsilon < strongly.bounds[Bound.COMPOSITION] / 3


@pytest.mark.parametrize("batches", list(Batches))
def test_no_step_spends_nothing_and_ten_million_a_finite_epsilon(batches):
    size = 600 if batches is Batches.FULL else 60
    assert run(batches=batches, steps=0, batch_size=size).epsilon == 0.0
    found = run(batches=batches, steps=10**7, batch_size=size, noise_multiplier=50.0, diameter=5.0)
    assert 0 < found.epsilon < 50


def test_what_one_choice_of_batches_excludes_is_named():
    with pytest.raises(ValueError, match="batch_size must be records = 600"):
        run(batches="full_batch", batch_size=60)
    with pytest.raises(ValueError, match="delta must be at least 1e-10"):
        run(batches="fixed_without_replacement", delta=1e-11)


def test_add_or_remove_is_known_for_full_batches():
    found = run(batches="full_batch", batch_size=600, neighbouring="add_or_remove")
    assert found.epsilon == run(batches="full_batch", batch_size=600, neighbouring="zero_out").epsilon
