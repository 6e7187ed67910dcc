"""One run of the theory studies: its statement by another accountant, the theorems' noise and steps, bad input."""

import math

import pytest

from dpfl.accounting import dpsgd, local_privacy
from dpfl.accounting.samplers import FullBatch, Sampling, ShuffledEpochs, WithReplacement
from dpfl.convex.ldp_theory import TheoryCell
from dpfl.errors import InputError

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
    full_batches = local_privacy.epsilon(
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


def test_rounds_and_batches_of_theorem_2_1():
    """R = M min{n, (epsilon n)^2/d}, and K the least that the theorem allows, drawn with replacement."""
    cell = run(noise="theorem", rounds=None, theorem="2.1", batches="drawn", records=400, epsilon=2.0)
    least = 400 * 2.0 / (4 * math.sqrt(2 * 8 * 400 * math.log(2 / 1e-5)))
    assert (cell.steps, cell.batch_size) == (8 * 400, max(1, math.ceil(least)))
    statement = cell.statement()
    assert statement.sampler == WithReplacement(cell.batch_size, 400) and statement.guarantee.upper < 2.0
    variance = 256 * 3200 * math.log(2.5 * 3200 / 1e-5) * math.log(2 / 1e-5) / (400 * 2.0) ** 2
    assert statement.noise_multiplier == pytest.approx(cell.batch_size * math.sqrt(variance))
    noise, drawn = 3 * variance * cell.bound**2, cell.bound**2 / cell.batch_size
    assert cell.gradient_deviation(statement.noise_multiplier) == pytest.approx(math.sqrt((noise + drawn) / 8))
    few = run(rounds=None, theorem="2.1", epsilon=0.05, rounds_factor=2)
    assert few.steps == 2 * math.ceil(8 * (0.05 * 40) ** 2 / 3)
    strong = run(rounds=None, theorem="2.1", strong_convexity=0.5, records=400)
    inside = 0.5**2 * 8**2 * 2.0**2 * 400**3 / (3 * strong.bound**2)
    assert strong.steps == math.ceil(8 * 400 * math.log(inside))


def test_rounds_batches_and_smoothing_of_theorem_2_3():
    """K = epsilon n / sqrt(d M) makes both terms of R equal; the smoothing costs the rate (8)."""
    erm = {"algorithm": "accelerated", "rounds": None, "theorem": "2.3", "risk": "empirical", "records": 400}
    drawn = run(**erm, noise="theorem", batches="drawn")
    assert drawn.batch_size == math.ceil(2.0 * 400 / math.sqrt(3 * 8))
    assert drawn.steps == run(**erm).steps == math.ceil(math.sqrt(8) * 2.0 * 400 / math.sqrt(3))
    assert run(**{**erm, "algorithm": "minibatch"}).steps == drawn.steps
    kink = run(**erm, kind="absolute", sharpness=None)
    rate = math.sqrt(3 * math.log(2 / 1e-5)) / (2.0 * 400 * math.sqrt(8))
    assert 1 / (2 * kink.sharpness_number) == pytest.approx(rate)


def test_stages_of_theorem_2_3_are_calibrated_to_their_sum():
    """R_k = ceil(max{4 sqrt(2 beta/mu), 128 V^2/(3 mu LD 2^-(k+1))}) with V that of sum R_k rounds."""
    erm = {"algorithm": "accelerated", "rounds": None, "theorem": "2.3", "risk": "empirical", "strong_convexity": 0.5}
    cell = run(**erm, records=4000)
    rounds = cell.stage_rounds
    multiplier = cell.statement().noise_multiplier
    assert (cell.steps, cell.statement().steps) == (sum(rounds), sum(rounds)) and len(rounds) > 2
    square = cell.gradient_deviation(multiplier) ** 2
    for k, each in enumerate(rounds, start=1):
        least = max(4 * math.sqrt(2 * cell.smoothness / 0.5), 128 * square / (3 * 0.5 * cell.bound) * 2 ** (k + 1))
        assert each == math.ceil(least)
    assert [stage.rounds for stage in cell.stages(multiplier)] == list(rounds)
    assert run(**{**erm, "algorithm": "minibatch"}, records=4000, rounds_factor=4).steps == 4 * sum(rounds)
    with pytest.raises(InputError, match="no stage"):
        run(**erm, records=10).steps  # noqa: B018


def test_rounds_of_theorem_4_1_are_the_same_whoever_is_trusted():
    shuffled = {"rounds": None, "theorem": "4.1", "strong_convexity": 0.5, "records": 10}
    rounds = {run(**shuffled, trust=trust).steps for trust in ("nobody", "shuffler", "server")}
    assert rounds == {10**2 * 8 * 2**2}  # n^2 N epsilon^2 with M = N = 8


def test_one_pass_has_a_round_a_record_with_and_without_strong_convexity():
    for mu in (0.0, 0.4):
        cell = run(algorithm="one_pass", strong_convexity=mu, rounds=None)
        assert sum(stage.rounds for stage in cell.stages(1.0)) == cell.steps == 40


def test_linear_losses_take_the_longest_step_that_the_noise_allows():
    """They have no curvature: D/(V sqrt R) with L^2 in V^2; strongly convex, 1/(2 mu) at most."""
    linear = run(kind="linear", condition=1.0)
    assert linear.step_size(0.0) == pytest.approx(1 / 3)
    noisy = math.hypot(2.0 / 40 * math.sqrt(3 / 8), 1.0)
    assert linear.step_size(2.0) == pytest.approx(1 / (noisy * 3))
    strong = run(kind="linear", condition=1.0, strong_convexity=1.0, clip_norm=2.0)
    assert strong.step_size(1.0) == pytest.approx(0.5)
    assert strong.step_logarithm(1.0) == pytest.approx(math.log(9 / ((2.0 / 40) ** 2 * 3 / 8)))


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
        ({"rounds": None}, "rounds"),
        ({"rounds": None, "theorem": "2.1", "epsilon": math.inf}, "epsilon"),
        ({"theorem": "9.9"}, "theorem"),
        ({"batches": "drawn"}, "batches"),
        ({"batches": "drawn", "theorem": "2.1"}, "batches"),
        ({"kind": "linear", "risk": "empirical"}, "linear"),
        ({"sharpness": -1.0}, "sharpness"),
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
