"""One run of the theory studies: its statement by another accountant, the theorems' noise and steps, bad input."""

import math

import pytest

from dpfl.accounting import dpsgd, isrl_dp
from dpfl.accounting.samplers import FullBatch, Sampling, ShuffledEpochs
from dpfl.errors import InputError
from dpfl.experiments.ldp_theory.theory_settings import TheoryCell

SETTINGS = {
    "kind": "least_squares",
    "clients": 8,
    "records": 40,
    "features": 3,
    "condition": 2.0,
    "signal": 0.5,
    "target_noise": 0.25,
    "spread": 0.0,
    "strong_convexity": 0.0,
    "radius": 1.0,
    "scale": 1.0,
    "clip_norm": None,
    "sharpness": 0.0,
    "algorithm": "minibatch",
    "noise": "tight",
    "trust": "nobody",
    "risk": "population",
    "participants": [],
    "epsilon": 2.0,
    "delta": 1e-5,
    "rounds": 9,
    "repetitions": 1,
}


def run(**changes) -> TheoryCell:
    """The run with some settings changed."""
    return TheoryCell.of(SETTINGS, changes)


@pytest.mark.parametrize("algorithm", ["minibatch", "accelerated"])
def test_tight_full_batches_spend_the_budget_by_another_accountant(algorithm):
    statement = run(algorithm=algorithm).statement()
    spent = dpsgd.epsilon(
        noise_multiplier=statement.noise_multiplier,
        sample_rate=1.0,
        steps=statement.steps,
        delta=statement.delta,
        neighbouring=statement.neighbouring,
    )
    assert spent == pytest.approx(2.0, rel=2e-3)
    assert statement.guarantee.upper == pytest.approx(2.0, rel=1e-9)
    assert (statement.steps, statement.sampler) == (9, FullBatch())


def test_the_theorems_noise_as_printed_and_what_it_spends():
    full = run(noise="theorem").statement()
    variance = 256 * 9 * math.log(2.5 * 9 / 1e-5) * math.log(2 / 1e-5) / (40 * 2.0) ** 2
    assert full.noise_multiplier == pytest.approx(40 * math.sqrt(variance))
    full_batches = isrl_dp.epsilon(
        noise_multiplier=full.noise_multiplier, batch_size=40, records=40, steps=9, delta=1e-5, sampling=Sampling.FULL
    )
    assert full.guarantee.upper == pytest.approx(float(full_batches))
    assert full.guarantee.upper < 2.0
    once = run(algorithm="one_pass", noise="theorem", epsilon=0.5).statement()
    assert once.noise_multiplier == pytest.approx(math.sqrt(8 * math.log(1.25 / 1e-5)) / 0.5)
    assert once.guarantee.upper <= 0.5
    assert (once.steps, once.sampler) == (40, ShuffledEpochs(1, 40))


def test_one_pass_is_one_gaussian_mechanism():
    statement = run(algorithm="one_pass", epsilon=0.5).statement()
    spent = dpsgd.epsilon(
        noise_multiplier=statement.noise_multiplier,
        sample_rate=1.0,
        steps=1,
        delta=1e-5,
        neighbouring=statement.neighbouring,
    )
    assert spent == pytest.approx(0.5, rel=2e-3)


@pytest.mark.slow
def test_trust_orders_the_noise():
    noise = {
        trust: run(trust=trust, clients=20, rounds=2, features=1).statement().noise_multiplier
        for trust in ("nobody", "shuffler", "server")
    }
    assert noise["server"] == pytest.approx(noise["nobody"] / math.sqrt(20))
    assert noise["server"] < noise["shuffler"] < noise["nobody"]


def test_without_a_budget_there_is_no_privacy():
    statement = run(epsilon=math.inf).statement()
    assert statement.noise_multiplier == 0
    assert statement.guarantee.upper == math.inf


def test_step_sizes_of_the_proofs():
    """1/(4 beta) while noise allows, then D/(V sqrt R); beta is the largest eigenvalue, 4/7 with condition 2."""
    beta = 1 / (1 + 0.5**0.5 + 0.5)
    quiet = run(epsilon=1e6)
    assert quiet.step_size(0.0) == pytest.approx(1 / (4 * beta))
    loud = run(epsilon=0.01)
    multiplier = loud.statement().noise_multiplier
    deviation = multiplier * loud.bound / 40 * math.sqrt(3 / 8)
    assert loud.gradient_deviation(multiplier) == pytest.approx(deviation)
    assert loud.step_size(multiplier) == pytest.approx(1 / (deviation * 3))
    some = run(participants=[2, 6])
    assert some.gradient_deviation(0.0) == pytest.approx(math.sqrt((1 / 2 + 1 / 6) / 2) * some.bound)
    kink = run(kind="absolute")
    assert kink.step_size(0.0) == pytest.approx(1 / (kink.bound * 3))
    smooth = run(kind="absolute", sharpness=5.0)
    assert smooth.step_size(0.0) == pytest.approx(1 / (4 * 5 * beta))


def test_stages_fill_the_rounds():
    assert [stage.rounds for stage in run(algorithm="accelerated").stages(1.0)] == [9]
    several = run(algorithm="accelerated", strong_convexity=0.4, rounds=60).stages(1.0)
    assert len(several) > 1
    assert sum(stage.rounds for stage in several) == 60


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"rounds": 0}, "rounds"),
        ({"rounds": 2.5}, "rounds"),
        ({"participants": [9]}, "participants"),
        ({"participants": [0]}, "sizes"),
        ({"clip_norm": 0.1}, "clip_norm"),
        ({"kind": "cubic"}, "cubic"),
        ({"algorithm": "adam"}, "adam"),
        ({"trust": "shuffler", "noise": "theorem"}, "trust"),
        ({"trust": "server", "participants": [3]}, "trust"),
        ({"algorithm": "accelerated", "kind": "absolute"}, "sharpness"),
        ({"sharpness": 3.0}, "kink"),
        ({"signal": 3.0}, "signal"),
    ],
)
def test_bad_settings(changes, named):
    with pytest.raises(InputError, match=named):
        run(**changes).statement()


def test_noise_outside_a_theorem_is_refused():
    with pytest.raises(InputError, match="epsilon"):
        run(noise="theorem", epsilon=50.0).statement()
    with pytest.raises(InputError, match="epsilon"):
        run(noise="theorem", algorithm="one_pass", epsilon=2.0).statement()
