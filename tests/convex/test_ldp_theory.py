"""The theory jobs: noise, steps and rounds of the theorems; run tables against plain recomputation."""

import io
import json
import math

import numpy as np
import pandas as pd
import pytest

from dpfl.accounting import dpsgd, local_privacy
from dpfl.accounting.samplers import FullBatch, Sampling, ShuffledEpochs, WithReplacement
from dpfl.convex import ldp_theory, synthetic_problems
from dpfl.convex.ldp_theory import TheoryCell
from dpfl.errors import InputError
from dpfl.grid.training_job import Folders, TrainingJob
from dpfl.randomness import generator
from dpfl.reporting.results import read_csv, write_csv

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
    "delta": 1e-5,
    "rounds": 9,
    "repetitions": 1,
}


def run(**changes) -> TheoryCell:
    """The run with some settings changed."""
    return TheoryCell.of(SETTINGS, {"epsilon": 2.0} | changes)


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


def test_the_scales_of_three_stages_by_hand():
    """gamma_k = max{2 beta, sqrt(mu V^2 R_k (R_k + 1)(R_k + 2)/(3 Delta_k))}, the gap Delta_k being L D/2^k = 4, 2, 1.

    beta = mu = D = 1 and L = 4; with noise of deviation 1 on one coordinate of 4 clients' messages V^2 = 1/4.
    """
    own = {"features": 1, "condition": 1.0, "strong_convexity": 1.0, "clip_norm": 4.0, "clients": 4, "rounds": 42}
    cell = run(algorithm="accelerated", **own)
    stages = cell.stages(10.0)  # times L/K = 4/40
    assert [stage.rounds for stage in stages] == [6, 12, 24]
    by_hand = [math.sqrt(7), math.sqrt(91), math.sqrt(1300)]
    assert [stage.gamma.item() for stage in stages] == pytest.approx(by_hand, rel=1e-12)
    assert [stage.gamma.item() for stage in cell.stages(0.0)] == [2.0, 2.0, 2.0]


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


@pytest.mark.parametrize("clients", [49, 93])
def test_all_clients_take_part_whatever_their_number(clients):
    """Of these numbers 1 / (1 / N) is not N, and a federation of whom all take part has fewer rounds."""
    erm = {"algorithm": "accelerated", "rounds": None, "theorem": "2.3", "risk": "empirical", "records": 400}
    steps = run(**erm, clients=clients).steps
    assert steps == math.ceil(math.sqrt(clients) * 2.0 * 400 / math.sqrt(3))
    assert run(**erm, clients=clients, participants=[clients - 1]).steps > 10 * steps


def test_the_condition_of_theorem_2_3_can_ask_for_larger_batches():
    erm = {"algorithm": "accelerated", "rounds": None, "theorem": "2.3", "risk": "empirical", "records": 5000}
    many = run(**erm, noise="theorem", batches="drawn", features=10_000, clients=100, epsilon=1.0)
    balanced, asked = 5000 / math.sqrt(10_000 * 100), 5000 / (4 * math.sqrt(2 * many.steps * math.log(2 / 1e-5)))
    assert balanced == 5 and many.batch_size == math.ceil(asked) == 12 and many.steps == 500


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


# The theory jobs: run table, stacking, determinism, and risks against a plain recomputation.


JOB = SETTINGS | {"dataset": "synthetic", "study": "toy", "clients": 5, "records": 16, "features": 2, "spread": 0.2}
JOB |= {"clip_norm": 2.5, "rounds": 6, "repetitions": 2}
CELLS = (
    {"algorithm": "minibatch", "epsilon": 2.0, "participants": []},
    {"algorithm": "minibatch", "epsilon": math.inf, "participants": []},
    {"algorithm": "minibatch", "epsilon": 2.0, "participants": [1, 5]},
    {"algorithm": "accelerated", "epsilon": 2.0, "participants": []},
    {"algorithm": "one_pass", "epsilon": 2.0, "participants": []},
)


@pytest.fixture
def folders(tmp_path) -> Folders:
    """The description of the synthetic dataset."""
    description = {
        "name": "synthetic",
        "title": "Synthetic",
        "stand_in_for": None,
        "note": "",
        "licence": "",
        "records": {},
    }
    (tmp_path / "description.json").write_text(json.dumps(description))
    return Folders(tmp_path, tmp_path / "features")


def trained(folders: Folders, cells=CELLS, seeds=(0, 1, 5), progress=lambda done, total: None, **changes):
    """Calibrate, write and read the noise as the pipeline does, and train."""
    job = TrainingJob("lowy2021", "ldp_theory", "toy", {**JOB, **changes}, tuple(cells), tuple(seeds))
    path = folders.arrays / "noise.csv"
    write_csv(ldp_theory.calibrate(job, {}), path)
    return ldp_theory.train(job, folders, read_csv(path), None, progress)


def test_the_run_table(folders):
    seen = []
    table = trained(folders, progress=lambda done, total: seen.append((done, total)))
    assert len(table) == 15
    assert list(table["seed"]) == [0, 1, 5] * 5
    assert set(table["status"]) == {"finished"}
    assert set(table["experiment"]) == {"ldp_theory"}
    assert seen[-1] == (34, 34)  # 6 + 6 + 6 + 16 rounds of four stacks: the first two cells are one
    privacy = table[[column for column in table if column.startswith("privacy_")]]
    assert privacy.notna().all().all()
    np.testing.assert_allclose(table.query("epsilon == 2.0")["privacy_epsilon_proven"], 2.0)


def test_same_inputs_same_bytes(folders):
    texts = []
    for _ in range(2):
        stream = io.StringIO()
        write_csv(trained(folders), stream)
        texts.append(stream.getvalue())
    assert texts[0] == texts[1]


def test_neither_the_other_cells_nor_the_other_seeds_matter(folders):
    whole = trained(folders)
    alone = trained(folders, cells=CELLS[2:3], seeds=(5,))
    expected = whole[(whole["participants"] == "[1, 5]") & (whole["seed"] == 5)]
    # A stack of one model takes another path through the matrix products: equal to rounding.
    np.testing.assert_allclose(alone["excess_risk"], expected["excess_risk"], rtol=1e-12)
    pair = trained(folders, cells=CELLS[:2], seeds=(1,))
    same = whole[(whole["algorithm"] == "minibatch") & (whole["participants"] == "[5]") & (whole["seed"] == 1)]
    np.testing.assert_array_equal(pair["excess_risk"].to_numpy(), same["excess_risk"].to_numpy())


def test_small_stacks_change_nothing(folders, monkeypatch):
    whole = trained(folders)
    monkeypatch.setattr(ldp_theory, "STACK_BYTES", 1)
    pd.testing.assert_frame_equal(trained(folders), whole)


def test_risk_of_gradient_descent_by_a_plain_loop(folders):
    """Without noise: mean of all iterates, steps of 1/(4 beta) on all records, risk by the closed form."""
    table = trained(folders, cells=CELLS[1:2], seeds=(3,), spread=0.0)
    problem = synthetic_problems.Problem("least_squares", 5, 16, 2, 1.0, condition=2.0, signal=0.5)
    drawn = synthetic_problems.draw(problem, 3)
    h = np.array([2.0, 1.0]) / 3.0
    weights, total = np.zeros(2), np.zeros(2)
    for _ in range(6):
        weights = weights - drawn.x.T @ (drawn.x @ weights - drawn.y) / 80 / (4 * h[0])
        total += weights / 6
    best = np.full(2, 0.5 / math.sqrt(2))
    assert table["excess_risk"].item() == pytest.approx(h @ (total - best) ** 2 / 2, rel=1e-10)
    assert table["start_risk"].item() == pytest.approx(h @ best**2 / 2)


NOISY = {"records": 60, "rounds": 60, "spread": 0.0}
"""Rounds beyond the 32 whose draws share an address."""


def noisy_gradients(seed, repetition, sigma, lift, once):
    """Return a function (w, r): the mean of five clients' messages in round r, on all records or `once` on one each."""
    drawn = synthetic_problems.draw(synthetic_problems.Problem("least_squares", 5, 60, 2, 1.0, condition=2.0), seed)
    x, y = drawn.x.reshape(5, 60, 2), drawn.y.reshape(5, 60)
    if once:
        order = np.stack([generator(seed, "batches", client).permutation(60) for client in range(5)])
        x, y = np.take_along_axis(x, order[..., None], 1), np.take_along_axis(y, order, 1)

    def at(w, r):
        own_x, own_y = (x[:, r : r + 1], y[:, r : r + 1]) if once else (x, y)
        means = np.mean((own_x @ w - own_y)[..., None] * own_x, axis=1)
        # The sum of five clients' noise over five has the deviation sigma/sqrt(5), and is drawn at once.
        noise = generator(seed, "noise", round=r // 32).standard_normal((32, 2, 2))[r % 32, repetition]
        return np.mean(means, axis=0) + sigma / math.sqrt(5) * noise + lift * w

    return at


def in_ball(w) -> np.ndarray:
    return w / max(1.0, np.linalg.norm(w))


def algorithm_1(gradient, beta, mu, square) -> np.ndarray:
    """lowy2021's Algorithm 1 in 60 rounds with the proofs' steps; `square` is V^2, and D = 1."""
    eta = min(1 / (4 * beta), 1 / math.sqrt(60 * square))
    if mu:
        eta = min(1 / (2 * beta), math.log(max(2, 60 * mu**2 / square)) / (60 * mu))
    w, total, above = np.zeros(2), np.zeros(2), 0.0
    for r in range(60):
        w = in_ball(w - eta * gradient(w, r))
        gamma = (1 - mu * eta) ** -(r + 1.0)
        total, above = total + gamma * w, above + gamma
    return total / above


def algorithm_2(gradient, beta, mu, square) -> np.ndarray:
    """lowy2021's Algorithm 2 in 60 rounds; with mu = 1/2 three stages, each about twice the last, from the gap L D."""
    w_ag, round = np.zeros(2), 0
    for k, rounds in enumerate((9, 17, 34) if mu else (60,)):
        cube = rounds * (rounds + 1) * (rounds + 2)
        scale = mu * square / (2.5 / 2**k) if mu else 2 * square
        gamma = max(2 * beta, math.sqrt(scale * cube / 3))
        w = w_ag
        for r in range(1, rounds + 1):
            alpha, eta = 2 / (r + 1), 4 * gamma / (r * (r + 1))
            w_md = (1 - alpha) * (mu + eta) * w_ag + alpha * ((1 - alpha) * mu + eta) * w
            w_md = w_md / (eta + (1 - alpha**2) * mu)
            pull = alpha * mu * w_md + ((1 - alpha) * mu + eta) * w
            w = in_ball((pull - alpha * gradient(w_md, round)) / (mu + eta))
            w_ag = alpha * w + (1 - alpha) * w_ag
            round += 1
    return w_ag


@pytest.mark.parametrize("mu", [0.0, 0.5])
@pytest.mark.parametrize(
    ("algorithm", "plain"), [("minibatch", algorithm_1), ("accelerated", algorithm_2), ("one_pass", algorithm_2)]
)
def test_the_calibrated_noise_is_in_the_run_by_a_plain_loop(folders, algorithm, plain, mu):
    """Two budgets in one stack, two repetitions: a client's noise has the deviation noise_multiplier L/K, L = 2.5."""
    cells = [{"algorithm": algorithm, "epsilon": epsilon} for epsilon in (2.0, 0.5)]
    table = trained(folders, cells=cells, seeds=(3, 4), strong_convexity=mu, **NOISY)
    noise = read_csv(folders.arrays / "noise.csv")
    once, h = algorithm == "one_pass", np.array([2.0, 1.0]) / 3.0
    lift = mu - h[1] if mu else 0.0
    best = h * 0.5 / math.sqrt(2) / (h + lift)
    assert noise["batch_size"].tolist() == ([1, 1] if once else [60, 60])
    for epsilon, multiplier in zip((2.0, 0.5), noise["noise_multiplier"], strict=True):
        sigma = multiplier * 2.5 / (1 if once else 60)
        square = (2 * sigma**2 + (2.5**2 if once else 0.0)) / 5
        for seed in (3, 4):
            gradients = [noisy_gradients(seed, repetition, sigma, lift, once) for repetition in (0, 1)]
            outputs = [plain(gradient, h[0] + lift, mu, square) for gradient in gradients]
            risk = np.mean([(h + lift) @ (w - best) ** 2 / 2 for w in outputs])
            own = table[(table["epsilon"] == epsilon) & (table["seed"] == seed)]
            assert own["excess_risk"].item() == pytest.approx(risk, rel=1e-10)


def test_a_family_of_linear_losses_is_one_stack_and_equals_a_plain_loop(folders, monkeypatch):
    """Without noise, on full batches: the weighted mean of the iterates of w -> Pi[w - eta (mu w - mean record)]."""
    family = [{"signal": signal, "epsilon": math.inf} for signal in (0.9, 0.3)]
    own = {"kind": "linear", "condition": 1.0, "strong_convexity": 1.0, "clip_norm": 2.0, "spread": 0.0}
    stacks = []
    whole = ldp_theory._outputs
    monkeypatch.setattr(ldp_theory, "_outputs", lambda *given: stacks.append(len(given[0])) or whole(*given))
    table = trained(folders, cells=family, seeds=(3,), **own)
    assert stacks == [2]
    for signal, risk in zip((0.9, 0.3), table["excess_risk"], strict=True):
        problem = synthetic_problems.Problem("linear", 5, 16, 2, 1.0, signal=signal, strong_convexity=1.0)
        pull, best = synthetic_problems.draw(problem, 3).x.mean(axis=0), np.full(2, signal / math.sqrt(2))
        step = 0.5  # 1/(2 mu): without noise the logarithm does not bind
        weights, total, above = np.zeros(2), np.zeros(2), 0.0
        for r in range(6):
            weights = weights - step * (weights - pull)
            weights /= max(1.0, np.linalg.norm(weights))
            gamma = (1 - step) ** -(r + 1.0)
            total, above = total + gamma * weights, above + gamma
        assert risk == pytest.approx(np.sum((total / above - best) ** 2) / 2, rel=1e-10)


def test_the_table_says_what_the_step_and_the_rounds_rest_on(folders):
    cell = {"noise": "theorem", "epsilon": 2.0, "batches": "drawn"}
    own = {"rounds": None, "theorem": "2.1", "spread": 0.0, "strong_convexity": 0.4}
    row = trained(folders, cells=[cell], seeds=(0,), **own).iloc[0]
    assert row["theorem"] == "2.1" and row["rounds"] == row["privacy_steps"] > 80 and row["batch_size"] == 1
    assert row["step_logarithm"] > 0 and row["smoothness"] > 0.4 and row["mean_inverse_participants"] == 0.2


def test_empirical_risk_is_never_negative(folders):
    kinds = {"least_squares": 0.0, "logistic": 0.0, "absolute": 8.0}
    for kind, sharpness in kinds.items():
        own = {"kind": kind, "sharpness": sharpness, "spread": 0.0, "risk": "empirical", "strong_convexity": 0.0}
        table = trained(folders, cells=CELLS[:4], clip_norm=None, **own)
        assert (table["excess_risk"] >= -1e-14).all()
        assert (table["start_risk"] > 0).all()


@pytest.mark.slow
def test_a_shuffler_buys_risk(folders):
    cells = [{"trust": trust, "epsilon": 0.5} for trust in ("nobody", "shuffler")]
    crowd = {"clients": 30, "rounds": 12, "features": 1, "spread": 0.0, "condition": 1.0, "repetitions": 8}
    table = trained(folders, cells=cells, seeds=range(8), records=100, strong_convexity=1.0, **crowd)
    risks = table.groupby("trust")["excess_risk"].mean()
    assert risks["shuffler"] < risks["nobody"] / 2
