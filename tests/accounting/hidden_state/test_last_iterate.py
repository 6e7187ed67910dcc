"""The least bound on the last iterate, and convex problems in `guarantee`."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from dpfl.accounting import ConvexProblem, Phase, gaussian_dp, guarantee, guarantee_of_phases, noise_multiplier
from dpfl.accounting.contraction.pnsgd import Law, NoisyPass, worst_epsilon
from dpfl.accounting.hidden_state import Batches, Bound, last_iterate_epsilon, shifted_interpolation_mu
from dpfl.accounting.samplers import BallsInBins, FixedBatches, FullBatch, Poisson, ShuffledEpochs

# The least bound on the last iterate, and convex problems in `guarantee`.

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


@pytest.mark.parametrize("diameter", [0.7, 7.0])  # in the smaller set the steps after the use leave next to nothing
def test_one_shuffled_epoch_of_single_records_is_asoodeh2020s_permuted_pass(diameter):
    theory = {"lipschitz": 1.5, "smoothness": 2.0, "strong_convexity": 0.0, "diameter": diameter}
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


def test_without_contraction_or_a_set_one_shuffled_epoch_hides_nothing_by_contraction():
    found = run(batches="shuffled_epochs", steps=10)
    assert found.bounds[Bound.CONTRACTION] == pytest.approx(found.bounds[Bound.COMPOSITION], rel=1e-7)


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


# Convex problems in `guarantee`: against the functions of the hidden state, quadratics and Monte Carlo; refusals.


@pytest.mark.parametrize(("rate", "strong", "attained"), [(1.5, 0.0, True), (2.0, 0.0, True), (1.5, 0.5, False)])
def test_steps_that_turn_around_attain_nothing(rate, strong, attained):
    """A step contracts by 1 - rate x curvature, curvatures from `strong` to 1."""
    problem = ConvexProblem(smoothness=1.0, learning_rate=rate, lipschitz=1.0, strong_convexity=strong)
    assert problem.attained is attained


PROBLEM = ConvexProblem(smoothness=1.0, learning_rate=0.5, lipschitz=1.0, strong_convexity=0.4)
STEPS = {"noise_multiplier": 3.0, "steps": 200, "delta": 1e-5, "observer": "last_iterate"}
SAMPLERS = [FullBatch(), ShuffledEpochs(60, 600), FixedBatches(60, 600)]


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@pytest.mark.parametrize(
    ("sampler", "batches"), [(SAMPLERS[1], "shuffled_epochs"), (SAMPLERS[2], "fixed_without_replacement")]
)
def test_the_bound_is_that_of_the_hidden_state(sampler, batches, relation):
    run = STEPS | {"steps": 60}
    found = guarantee(sampler, **run, neighbouring=relation, convex=PROBLEM)
    setting = {name: run[name] for name in ("noise_multiplier", "steps", "delta")}
    theory = {"step_size": 0.5, "smoothness": 1.0, "lipschitz": 1.0, "strong_convexity": 0.4}
    hidden = last_iterate_epsilon(
        batches=batches, records=600, batch_size=60, neighbouring=relation, **setting, **theory
    )
    seen = guarantee(sampler, **run, neighbouring=relation)
    assert found.upper == min(hidden.epsilon, seen.upper) < seen.upper
    assert "last iterate" in found.upper_by and found.lower == 0.0


@pytest.mark.parametrize(
    ("strong", "relation", "move"), [(0.4, "zero_out", 1), (0.4, "replace_one", 2), (0.0, "zero_out", 1)]
)
def test_a_quadratic_attains_the_bound_of_full_batches(strong, relation, move):
    """w <- w - eta (m w + b + noise), b moved by the record: the last iterate is normal, its mu a geometric series."""
    problem = ConvexProblem(smoothness=1.0, learning_rate=0.5, lipschitz=1.0, strong_convexity=strong)
    found = guarantee(FullBatch(), **STEPS, neighbouring=relation, convex=problem)
    powers = (1 - 0.5 * strong) ** np.arange(STEPS["steps"])
    mu = move * powers.sum() / (STEPS["noise_multiplier"] * math.sqrt(np.square(powers).sum()))
    exact = float(gaussian_dp.epsilon(1e-5, mu))
    assert found.upper == pytest.approx(exact, rel=1e-6) and found.lower <= exact * (1 + 1e-6)
    assert found.lower == pytest.approx(found.upper, rel=1e-8)


@pytest.mark.parametrize(("rate", "strong", "steps"), [(1.9, 1.0, 10), (1.9, 1.0, 2), (1.5, 1.0, 5), (1.9, 0.5, 5)])
def test_of_steps_that_turn_around_no_epsilon_is_said_to_be_exceeded(rate, strong, steps):
    """The shifts of a record alternate: what quadratics spend is far below shifted interpolation."""
    problem = ConvexProblem(smoothness=1.0, learning_rate=rate, lipschitz=1.0, strong_convexity=strong)
    found = guarantee(FullBatch(), **STEPS | {"steps": steps}, convex=problem)
    assert found.lower == 0.0 < found.upper
    for curvature in (strong, 1.0):
        powers = (1 - rate * curvature) ** np.arange(steps)
        mu = abs(powers.sum()) / (STEPS["noise_multiplier"] * math.sqrt(np.square(powers).sum()))
        assert float(gaussian_dp.epsilon(1e-5, mu)) < 0.5 * found.upper


def test_projected_quadratics_do_not_violate_the_bound():
    """On an interval, full batches: one-sided tests of the last iterate by 200,000 runs; false alarm 1e-6 (4.9)."""
    steps, sigma, records, delta = 30, 1.0, 10, 1e-2
    problem = ConvexProblem(smoothness=1.0, learning_rate=0.5, lipschitz=1.0, diameter=0.1, records=records)
    run = {"noise_multiplier": sigma, "steps": steps, "delta": delta, "observer": "last_iterate"}
    found = guarantee(FullBatch(), **run, convex=problem)
    assert found.upper < guarantee(FullBatch(), **run).upper / 2 and found.lower == 0.0
    normal, runs = np.random.default_rng(3).standard_normal, 200_000
    ends = []
    for shift in (1.0, 0.0):
        w = np.zeros(runs)
        for _ in range(steps):
            w = np.clip(w + 0.5 / records * (shift + sigma * normal(runs)), -0.05, 0.05)
        ends.append(w)
    for threshold in np.quantile(ends[0], [0.5, 0.7, 0.9]):
        p, q = ((end > threshold).mean() for end in ends)
        error = math.sqrt(p * (1 - p) / runs) + math.exp(found.upper) * math.sqrt(q * (1 - q) / runs)
        assert p - math.exp(found.upper) * q - delta <= norm.isf(1e-6) * error


@settings(max_examples=10, deadline=None)
@given(
    sampler=st.sampled_from(SAMPLERS[:2]),
    strong=st.floats(0, 1),
    diameter=st.one_of(st.just(math.inf), st.floats(0.01, 10)),
    steps=st.integers(1, 300),
)
def test_hiding_never_spends_more_than_showing(sampler, strong, diameter, steps):
    problem = ConvexProblem(
        smoothness=1.0, learning_rate=1.0, lipschitz=2.0, strong_convexity=strong, diameter=diameter, records=600
    )
    run = STEPS | {"steps": steps}
    found = guarantee(sampler, **run, convex=problem)
    assert found.lower <= found.upper <= guarantee(sampler, **run).upper


def test_samplers_without_a_proof_keep_their_bound():
    for sampler, relation in (
        (Poisson(0.1), "zero_out"),
        (BallsInBins(10), "zero_out"),
        (SAMPLERS[1], "add_or_remove"),
    ):
        found = guarantee(sampler, **STEPS, neighbouring=relation, convex=PROBLEM)
        assert found.upper == guarantee(sampler, **STEPS, neighbouring=relation).upper


@pytest.mark.parametrize("sampler", SAMPLERS[:2])
def test_noise_meets_its_target_and_is_less_than_without_hiding(sampler):
    run = {"steps": 200, "delta": 1e-5, "observer": "last_iterate"}
    noise = noise_multiplier(sampler, target_epsilon=1.0, **run, convex=PROBLEM)
    assert 1 - 2e-5 <= guarantee(sampler, noise_multiplier=noise, **run, convex=PROBLEM).upper <= 1
    assert noise < 0.9 * noise_multiplier(sampler, target_epsilon=1.0, **run)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="convex"):
        guarantee(FullBatch(), **(STEPS | {"observer": "every_step"}), convex=PROBLEM)
    bounded = ConvexProblem(smoothness=1.0, learning_rate=0.5, lipschitz=1.0, diameter=1.0)
    with pytest.raises(ValueError, match="records"):
        guarantee(FullBatch(), **STEPS, convex=bounded)


PHASES = [Phase(FullBatch(), 3.0, 200), Phase(FullBatch(), 5.0, 400)]
HIDDEN = {"delta": 1e-5, "observer": "last_iterate", "convex": PROBLEM}


@pytest.mark.parametrize(("relation", "move"), [("zero_out", 1), ("replace_one", 2)])
def test_phases_of_full_batches_compose_as_gaussian_dp(relation, move):
    """By the hidden state's own function, and against the exact mu of a quadratic over both phases: never below it."""
    found = guarantee_of_phases(PHASES, **HIDDEN, neighbouring=relation)
    mus = [
        shifted_interpolation_mu(steps=phase.steps, contraction=0.8, noise_over_shift=phase.noise_multiplier / move)
        for phase in PHASES
    ]
    assert found.upper == pytest.approx(float(gaussian_dp.epsilon(1e-5, math.hypot(*mus))))
    powers = 0.8 ** np.arange(600)[::-1]
    noise = np.repeat([3.0, 5.0], [200, 400])
    exact = move * powers.sum() / math.sqrt(np.square(powers * noise).sum())
    assert found.upper >= float(gaussian_dp.epsilon(1e-5, exact)) and found.lower == 0.0
    assert found.upper < guarantee_of_phases(PHASES, delta=1e-5, neighbouring=relation).upper / 3


def test_equal_phases_in_a_row_are_one_run():
    halves = [Phase(FullBatch(), 3.0, 100)] * 2
    setting = HIDDEN | {"noise_multiplier": 3.0, "steps": 200}
    assert guarantee_of_phases(halves, **HIDDEN) == guarantee(FullBatch(), **setting)
    assert guarantee_of_phases([Phase(SAMPLERS[2], 3.0, 100)] * 2, **HIDDEN) == guarantee(SAMPLERS[2], **setting)


def test_phases_without_a_proof_are_refused():
    with pytest.raises(ValueError, match="convex: no proof composes the last iterates of phases of ShuffledEpochs"):
        guarantee_of_phases([PHASES[0], Phase(SAMPLERS[1], 3.0, 200)], **HIDDEN)
    with pytest.raises(ValueError, match="convex"):
        guarantee_of_phases(PHASES, **(HIDDEN | {"observer": "every_step"}))


def test_the_last_iterate_is_rounded_up():
    """At 60 digits delta(epsilon) of two full batches is at most delta at the answer; rounded to nearest it was above.

    Contraction 1 and the noise of two steps: mu = sqrt(2)/noise, delta(e) = Phi(mu/2 - e/mu) - e^e Phi(-mu/2 - e/mu).
    """
    noise, delta = 59.83731673460452, 1e-100
    problem = ConvexProblem(smoothness=1, learning_rate=0.5, lipschitz=1)
    found = guarantee(
        FullBatch(), noise_multiplier=noise, steps=2, delta=delta, observer="last_iterate", convex=problem
    ).upper
    with mp.workdps(160):
        mu, epsilon = mp.sqrt(2) / mp.mpf(noise), mp.mpf(found)
        spent = mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)
        assert mp.mpf(delta) * (1 - mp.mpf("1e-8")) < spent <= mp.mpf(delta)


def test_a_problem_has_the_records_of_its_sampler():
    """A batch of all records is a full batch, whose size would else be the problem's."""
    problem = {"smoothness": 1, "learning_rate": 0.5, "lipschitz": 1, "diameter": 1}
    run = {"noise_multiplier": 1, "steps": 50, "delta": 1e-5, "observer": "last_iterate"}
    with pytest.raises(ValueError, match=r"^convex: records is 1, but the sampler has 100$"):
        guarantee(FixedBatches(100, 100), **run, convex=ConvexProblem(**problem, records=1))
    same = guarantee(FixedBatches(100, 100), **run, convex=ConvexProblem(**problem, records=100))
    assert same.upper == guarantee(FullBatch(), **run, convex=ConvexProblem(**problem, records=100)).upper
    phases = [Phase(FixedBatches(100, 100), 1, 50)]
    with pytest.raises(ValueError, match=r"^convex: records is 1, but"):
        guarantee_of_phases(phases, delta=1e-5, observer="last_iterate", convex=ConvexProblem(**problem, records=1))
