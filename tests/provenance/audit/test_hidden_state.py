"""The recursion over rounds against the closed forms and sums that calibrate such runs."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting.contraction.federated import FederatedRelease, release_epsilon
from dpfl.accounting.contraction.pnsgd import Law, NoisyPass, worst_epsilon
from dpfl.provenance.audit.numbers import Hidden, hidden_epsilon

DELTA = 1e-5


@settings(max_examples=15, deadline=None)
@given(
    noise=st.floats(0.3, 3.0),
    rounds=st.integers(1, 60),
    batch=st.sampled_from([1, 8]),
    step=st.one_of(st.none(), st.floats(0.05, 9.0)),
    radius=st.floats(0.1, 4.0),
    convexity=st.floats(0.01, 0.3),
    share=st.floats(0.0, 1.0),
)
def test_the_recursion_is_the_closed_form_of_the_federated_algorithm(
    noise, rounds, batch, step, radius, convexity, share
):
    first = 1 + round(share * (rounds - 1))
    theory = {"radius": radius, "smoothness": 0.25 + convexity, "strong_convexity": convexity, "first_stop": first}
    run = Hidden(noise_multiplier=noise, rounds=rounds, batch_size=batch, step=step, lipschitz=1.0, **theory)
    eta = [1 / (convexity * t) for t in range(1, rounds + 1)] if step is None else step
    release = FederatedRelease(n=rounds * batch, m=batch, eta=eta, lipschitz=1.0, **theory)
    known = release_epsilon(DELTA, release, sigma=noise / math.sqrt(batch))
    assert hidden_epsilon(run, DELTA) == pytest.approx(known, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("law", list(Law))
@pytest.mark.parametrize("permuted", [True, False])
@pytest.mark.parametrize("stops", [True, False])
def test_the_recursion_is_the_worst_place_of_the_one_pass_algorithm_and_other_noise_is_not(law, permuted, stops):
    run = Hidden(
        noise_multiplier=0.5, rounds=300, batch_size=1, step=0.1, lipschitz=1.0, radius=0.3, smoothness=0.4,
        strong_convexity=0.1, first_stop=1 if stops else 300, permuted=permuted, laplace=law is Law.LAPLACE,
        relaxed=False,
    )  # fmt: skip
    scale = 0.5 / (math.sqrt(2) if run.laplace else 1.0)
    theory = {"eta": 0.1, "lipschitz": 1.0, "smoothness": 0.4, "strong_convexity": 0.1, "diameter": 0.6}
    known = worst_epsilon(DELTA, NoisyPass(300, law, permuted=permuted, random_stop=stops, **theory), scale=scale)
    assert hidden_epsilon(run, DELTA) == pytest.approx(known, rel=1e-6)
    for change in (0.95, 1.05):
        other = hidden_epsilon(replace(run, noise_multiplier=change * 0.5), DELTA)
        assert abs(other / known - 1) > 0.01


def test_a_secret_order_and_a_secret_stop_hide_more_than_neither():
    run = Hidden(0.6, 200, 1, 0.5, 1.0, 0.2, 0.35, 0.1, 200, permuted=False)
    worst = hidden_epsilon(run, DELTA)
    assert hidden_epsilon(replace(run, permuted=True), DELTA) < worst
    assert hidden_epsilon(replace(run, first_stop=1), DELTA) < worst


@pytest.mark.parametrize("change", [{"first_stop": 50}, {"first_stop": 1, "step": None}])
def test_a_public_order_without_a_known_worst_place_is_refused(change):
    with pytest.raises(ValueError, match="permuted"):
        replace(Hidden(0.6, 200, 1, 0.5, 1.0, 0.2, 0.35, 0.1, 200, permuted=False), **change)
