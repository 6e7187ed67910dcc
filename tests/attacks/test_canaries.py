"""Canaries as an entry of the grid: sound claims stand, the known-bad variant is refuted, wrong settings are named."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import binom, binomtest, norm
from torch import nn

from dpfl.accounting import FixedBatches, Poisson, gaussian_dp
from dpfl.accounting.samplers import Sampling
from dpfl.attacks import canaries, claimed_training
from dpfl.attacks.canaries import CanaryGradients, image_scores
from dpfl.attacks.hostile_mates import ClientRun
from dpfl.attacks.noise_family import StepEvidence, family_epsilon
from dpfl.attacks.one_run import coins
from dpfl.catalog import load
from dpfl.convex import federated_rounds, minibatch_sgd
from dpfl.data.arrays import build_arrays
from dpfl.data.loading import load_description
from dpfl.engine.per_record_gradients import gradient_rule
from dpfl.errors import InputError
from dpfl.grid.training_job import Folders, TrainingJob

REGRESSION = {
    "dataset": "diabetes", "clients": 3, "participating": 3, "standardise": [], "largest_epsilon": 10,
    "divergence_loss": 5e9, "step_exponents": {"minibatch": [-8, 1, 10], "local": [-10, 0, 10]},
    "clip_norms": [100.0], "canaries": 90, "noise": "tight", "sampling": "fixed_without_replacement",
}  # fmt: skip


@pytest.fixture(scope="module")
def diabetes(tmp_path_factory):
    """The folders of the stand-in for insurance."""
    folders = Folders.of(tmp_path_factory.mktemp("data"), "diabetes")
    build_arrays("diabetes", folders.arrays)
    return folders


def regression_job(*, epsilons=(1.0,), seeds=(0, 1, 2), **settings):
    """A job of the regression with canaries."""
    cells = tuple({"algorithm": "minibatch", "epsilon": epsilon} for epsilon in epsilons)
    given = {**load("lowy2021").settings, **REGRESSION, **settings}
    return TrainingJob("lowy2021", "canaries", "x_seeds0to2", given, cells, seeds)


def regression(folders, **changes):
    """Train with canaries; return calibration and run table."""
    job = regression_job(**changes)
    noise = canaries.calibrate(job, load_description(folders.arrays))
    return noise, canaries.train(job, folders, noise, None, lambda done, total: None)


@pytest.fixture(scope="module")
def message_runs(diabetes):
    """The noise, and three runs at each of two budgets."""
    return regression(diabetes, epsilons=(1.0, 10.0))


def test_where_records_are_clipped_no_claim_is_refuted_and_a_part_of_each_is_seen(message_runs):
    # A bound above its claim has probability at most 5 % for each of six.
    _, runs = message_runs
    assert len(runs) == 6 and not runs["known_bad"].any()
    assert (runs["epsilon_lower_bound"] / runs["claimed_epsilon"]).between(0.2, 1).all()


def test_with_the_same_noise_a_clipped_mean_is_refuted_in_every_run(diabetes):
    sound = canaries.calibrate(regression_job(), load_description(diabetes.arrays))
    noise, runs = regression(diabetes, clipping="mean")
    assert noise["noise_multiplier"].tolist() == sound["noise_multiplier"].tolist()
    assert runs["known_bad"].all() and (runs["epsilon_lower_bound"] > runs["claimed_epsilon"]).all()


def test_without_noise_every_guess_is_right(diabetes):
    _, runs = regression(diabetes, epsilons=(math.inf,), seeds=(0,), batch_size=116)
    assert (runs["right_guesses"] == runs["guesses"]).all()
    assert runs["claimed_epsilon"].item() == math.inf and runs["epsilon_lower_bound"].item() > 2


def test_a_row_names_the_batch_that_was_drawn_and_the_privacy_claimed(diabetes):
    noise, runs = regression(diabetes, seeds=(4,))
    assert runs["batch_size"].item() == noise["batch_size"].item()
    assert runs["claimed_epsilon"].item() == noise["privacy_epsilon_proven"].item()
    assert runs["experiment"].item() == "canaries" and runs["stand_in_for"].item() == "insurance"


def shares(runs, sampler, confidence=0.95):
    """Of every run and kind of evidence, the share of the stated epsilon that it shows."""
    found = []
    for run in runs.to_dict("records"):
        kinds = {name: StepEvidence.read(run, name) for name in ("chosen", "hostile", "one_run")}
        stated = {"steps": run["privacy_steps"], "delta": run["privacy_delta"], "confidence": confidence}
        found.append({
            name: family_epsilon(each, sampler, neighbouring=run["privacy_neighbouring"], **stated)
            / run["claimed_epsilon"]
            for name, each in kinds.items() if each
        })  # fmt: skip
    return pd.DataFrame(found)


def test_the_steps_of_messages_show_most_of_what_is_stated_and_no_more(diabetes):
    # A bound above its claim has probability at most 5 % for each of four (the seeds are fixed).
    noise, runs = regression(diabetes, epsilons=(5.0,), seeds=(0, 1))
    batch, records = int(noise["batch_size"].item()), int(noise["privacy_records"].item())
    found = shares(runs, FixedBatches(batch, records))
    assert found["chosen"].between(0.85, 1).all() and found["one_run"].between(0.3, 1).all() and len(found.columns) == 2


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"canaries": 600}, "canaries"), ({"clients": 1, "participating": 1, "canaries": 400}, "canaries")],
)
def test_more_canaries_than_records_are_refused(diabetes, settings, word):
    with pytest.raises(InputError, match=word):
        regression(diabetes, **settings)


def image_job(cells, **settings):
    """A job on a toy of scattering features."""
    given = {**load("bhaskar2025").settings, "dataset": "toy", "model": "scatter_linear", "clients": 10, "canaries": 40}
    machine = {"device": "cpu", "threads": 1, "memory_gb": 1}
    return TrainingJob("bhaskar2025", "canaries", "x_seed0", {**given, **settings}, cells, (0,), machine)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """800 images of noise with features of the right shape."""
    from dpfl.data.arrays import write_dataset

    folders = Folders.of(tmp_path_factory.mktemp("toy"), "toy")
    draw = np.random.default_rng(0)
    description = {"name": "toy", "title": "", "stand_in_for": "mnist", "note": "", "licence": "none",
             "records": {"train": 800, "test": 10}}  # fmt: skip
    arrays = {}
    for name, count in (("train", 800), ("test", 10)):
        arrays[f"{name}_x"] = draw.integers(0, 255, (count, 1, 28, 28)).astype(np.uint8)
        arrays[f"{name}_y"] = draw.integers(0, 10, count)
    write_dataset(folders.arrays, arrays, description)
    folders.features.mkdir(parents=True)
    np.save(folders.features / "train_x.npy", draw.normal(size=(800, 81, 7, 7)).astype(np.float32))
    return folders


@pytest.mark.slow
def test_an_image_model_s_claims_stand_and_more_budget_is_seen_better(toy):
    cells = tuple({"epsilon": epsilon, "local_epochs": 1, "rounds": 10} for epsilon in (0.5, 8.0, math.inf))
    job = image_job(cells)
    noise = canaries.calibrate(job, load_description(toy.arrays))
    runs = canaries.train(job, toy, noise, None, lambda done, total: None)
    assert (runs["epsilon_lower_bound"] <= runs["claimed_epsilon"]).all()
    drawn = Poisson(runs["privacy_sample_rate"].iloc[0])
    found = shares(runs[:2], drawn)
    assert found.shape == (2, 3) and (found.iloc[1] > 0.2).all()
    assert (shares(runs[:2], drawn, confidence=1 - 1e-6) < 1).all(axis=None)  # false alarm: six times 1e-6
    assert runs["right_guesses"].is_monotonic_increasing and runs["right_guesses"].iloc[-1] == runs["guesses"].iloc[-1]


@pytest.fixture(scope="module")
def image_runs(toy):
    """The noise, and eight runs of one step on all records."""
    cells = ({"epsilon": 8.0, "local_epochs": 1, "rounds": 1},)
    job = image_job(cells, batch_size=80, sampling="shuffled_epochs")
    noise = canaries.calibrate(job, load_description(toy.arrays))
    return noise, canaries.train(replace(job, seeds=tuple(range(8))), toy, noise, None, lambda done, total: None)


def test_one_step_on_all_records_is_not_refuted_and_a_part_of_its_claim_is_seen(image_runs):
    # A bound above its claim has probability at most 5 % for each of eight.
    _, runs = image_runs
    assert (runs["epsilon_lower_bound"] / runs["claimed_epsilon"]).between(0.2, 1).all()


def test_the_guesses_are_as_right_as_the_gaussian_mechanism_allows(image_runs):
    # Full batches, one epoch: a score is N(+-1/(2 sigma), 1), so the 10 highest of 40 are right with known probability.
    noise, runs = image_runs
    sigma = noise["noise_multiplier"].item()
    right = runs["right_guesses"].sum()
    draw = np.random.default_rng(1)
    bits = draw.integers(0, 2, (4000, 40))
    order = np.argsort(bits / sigma + draw.standard_normal(bits.shape), axis=1)
    sorted_bits = np.take_along_axis(bits, order, axis=1)
    expected = (sorted_bits[:, -10:].sum(1) + (1 - sorted_bits[:, :10]).sum(1)).mean() * 8
    deviation = (sorted_bits[:, -10:].sum(1) + (1 - sorted_bits[:, :10]).sum(1)).std() * math.sqrt(8)
    assert abs(right - expected) < 4 * deviation  # false alarm: below 1e-4
    assert gaussian_dp.epsilon(1e-5, 1 / sigma) == pytest.approx(noise["privacy_epsilon_proven"].item(), rel=0.01)


SCHEDULES = tuple({"epsilon": 2.0, "local_epochs": 1, "rounds": rounds} for rounds in (2, 3))


@pytest.fixture(scope="module")
def scheduled(toy):
    """The noise of both schedules."""
    return canaries.calibrate(image_job(SCHEDULES), load_description(toy.arrays))


@pytest.mark.parametrize(
    ("settings", "cells", "word"),
    [({"model": "scatter_cnn"}, 1, "model"), ({}, 2, "local_epochs"), ({"canaries": 90}, 1, "canaries")],
)
def test_what_canaries_cannot_be_put_into_is_named(toy, scheduled, settings, cells, word):
    with pytest.raises(InputError, match=word):
        canaries.train(image_job(SCHEDULES[:cells], **settings), toy, scheduled[:cells], None, lambda done, total: None)


def test_calibration_is_the_audited_algorithm_s(scheduled):
    from dpfl.images import fedavg_images

    own = fedavg_images.calibrate(image_job(SCHEDULES), {"records": {"train": 800}})
    pd.testing.assert_frame_equal(scheduled, own)


ASYNCHRONOUS = {
    "dataset": "digits", "study": "canaries", "clients": 30, "batch_size": 8, "epochs": 1, "canaries": 60,
    "trials": 500,
}  # fmt: skip


def asynchronous(digits, cells):
    """Train asynchronously with canaries; return calibration and run table."""
    machine = {"device": "cpu", "threads": 1, "memory_gb": 1}
    given = {**load("vandijk2023").settings, **ASYNCHRONOUS}
    job = TrainingJob("vandijk2023", "canaries", "x_seed0", given, tuple(cells), (0,), machine)
    noise = canaries.calibrate(job, load_description(digits.arrays))
    joined = noise.assign(batch_size=math.nan)  # as in the paper's table, where other jobs choose their batch
    return noise, canaries.train(job, digits, joined, None, lambda done, total: None)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("strategy", "last_epoch_unpaid"),
        ("sampling", "poisson"),
        ("preparation", "exact_pca"),
        ("strategy", "arsinh_2"),
    ],
)
def test_a_claim_of_other_messages_than_those_that_are_attacked_is_refused(digits, setting, value):
    with pytest.raises(InputError, match=f"{setting}: '{value}' is not attacked, should be"):
        asynchronous(digits, [{"epsilon": 2.0, "scenario": "synchronous", "preparation": "none", setting: value}])


def bounds_proven(runs, trials):
    """The bounds that the counts of `trials` trainings in each world prove at 95 %, by exact binomial intervals."""
    assert runs["positives"].eq(trials).all() and runs["confidence"].eq(0.95).all()
    assert runs["mates"].eq("hostile").all()
    for run in runs.to_dict("records"):
        right, wrong = (
            binomtest(int(run[f"{which}_positives"]), trials).proportion_ci(0.95, "exact")
            for which in ("true", "false")
        )
        yield max(0.0, math.log((right.low - run["privacy_delta"]) / wrong.high))


@pytest.mark.slow
def test_asynchronous_claims_stand_and_batch_normalisation_breaks_that_of_plain_inputs(digits):
    kinds = {"reordered_8": "none", "late_16_near": "none", "synchronous": "batch_normalised"}
    cells = [{"scenario": name, "preparation": kind, "epsilon": 1.0} for name, kind in kinds.items()]
    noise, runs = asynchronous(digits, cells)
    assert noise["privacy_epsilon_proven"].nunique() == 1 and runs["claimed_epsilon"].lt(1.0001).all()
    assert runs["known_bad"].tolist() == [False, False, True]
    assert (runs["epsilon_lower_bound"] > runs["claimed_epsilon"]).tolist() == [False, False, True]
    assert runs["scenario"].tolist() == list(kinds)
    assert list(bounds_proven(runs, 500)) == pytest.approx(runs["epsilon_lower_bound"].tolist(), rel=1e-9)
    batches = FixedBatches(8, int(runs["privacy_records"].iloc[0]))
    assert shares(runs[~runs["known_bad"]], batches)["chosen"].between(0.75, 1).all()
    assert runs["guesses"].eq(30).all() and "strategies" not in runs and runs["batch_size"].eq(8).all()


# What a row's counts prove, by routes of their own; and faults that the claim does not declare.


@pytest.mark.parametrize(("kind", "trials"), [("message", 4096), ("image", 1024)])
def test_a_bound_is_what_its_counts_prove_at_95_percent(request, kind, trials):
    _, runs = request.getfixturevalue(f"{kind}_runs")
    assert list(bounds_proven(runs, trials)) == pytest.approx(runs["epsilon_lower_bound"].tolist(), rel=1e-9)


def test_the_counts_are_of_the_trainings_called_by_their_likelihood_ratio(diabetes, monkeypatch):
    original, seen = canaries.message_observations, []
    monkeypatch.setattr(canaries, "message_observations", lambda *given: seen.append(original(*given)) or seen[-1])
    _, runs = regression(diabetes, epsilons=(1.0, 10.0), seeds=(0,))
    [(*noisy, _)] = seen
    for run, worlds in zip(runs.to_dict("records"), noisy, strict=True):
        assert run["statistic"] == "log_likelihood_ratio"
        rate, sigma = run["batch_size"] / run["privacy_records"], run["noise_multiplier"]
        # All other records contribute -1, as does the one in question in Q: in P it moves a step that draws it by 2.
        ratio = 1 - rate + rate * norm.pdf(worlds, 2, sigma) / norm.pdf(worlds, 0, sigma)
        called, falsely = np.log(ratio).sum(axis=(-2, -1))
        least, above = np.sort(called)[::-1][[run["true_positives"] - 1, run["true_positives"]]]
        assert (falsely >= least).sum() <= run["false_positives"] <= (falsely > above).sum()


def test_a_client_that_draws_the_record_for_every_message_is_refuted(diabetes, monkeypatch):
    """A planted fault, of which the noise and the claim know nothing."""
    original = federated_rounds._batches

    def batches(*given):
        rows = original(*given).copy()
        rows[~(rows == 0).any(axis=1), 0] = 0
        return rows

    monkeypatch.setattr(federated_rounds, "_batches", batches)
    _, runs = regression(diabetes, seeds=(0,))
    assert runs["epsilon_lower_bound"].item() > 2 * runs["claimed_epsilon"].item() and not runs["known_bad"].any()


def poisson_image(toy):
    """Train one model on Poisson batches of about half of the records; return its row of the run table."""
    job = image_job(({"epsilon": 2.0, "local_epochs": 1, "rounds": 2},), batch_size=40, sampling="poisson")
    noise = canaries.calibrate(job, load_description(toy.arrays))
    [row] = canaries.train(job, toy, noise, None, lambda done, total: None).to_dict("records")
    return row


def test_an_image_model_that_clips_to_ten_times_its_norm_is_refuted(toy, monkeypatch):
    """A planted fault."""
    original = claimed_training.clip_factors
    monkeypatch.setattr(claimed_training, "clip_factors", lambda norms, clips: original(norms, 10 * clips))
    row = poisson_image(toy)
    assert row["mates"] == "silent" and row["epsilon_lower_bound"] > row["claimed_epsilon"]


def test_what_asynchronous_clients_are_seen_to_send_decides_about_their_claim(digits, monkeypatch):
    def seen(run, records, trials):
        noise = run.noise_multiplier * np.random.default_rng(0).standard_normal((2, 4000, 1, run.rounds))
        drawn = np.ones_like(noise)
        return noise + np.array([6.0, 0.0])[:, None, None, None] * drawn, drawn

    monkeypatch.setattr(canaries, "chosen_observations", seen)
    monkeypatch.setattr(canaries, "EVIDENCE_CLIENTS", 1)
    cells = [{"scenario": "synchronous", "preparation": "none", "epsilon": 1.0}]
    _, runs = asynchronous(digits, cells)
    assert runs["positives"].item() == 4000
    assert runs["epsilon_lower_bound"].item() > 2 * runs["claimed_epsilon"].item()


# A threshold that was chosen for the claimed noise is seldom reached with less. Less noise shows in the steps.


def half_the_noise(row, shift):
    """Assert that the steps on chosen records show half of the noise, and the record at its full reach."""
    found = StepEvidence.read(row, "chosen")
    assert found.shift == shift and found.total / found.draws == pytest.approx(shift, rel=0.05)
    assert math.sqrt(found.squares / found.values) == pytest.approx(row["noise_multiplier"] / 2, rel=0.05)


def test_messages_with_half_the_noise_show_it(diabetes, monkeypatch):
    original = minibatch_sgd.draw_round

    def quiet(*given, **steps):
        drawn = original(*given, **steps)
        return replace(drawn, noise=drawn.noise / 2)

    monkeypatch.setattr(minibatch_sgd, "draw_round", quiet)
    _, runs = regression(diabetes, seeds=(0,))
    half_the_noise(runs.to_dict("records")[0], 2.0)


def test_an_image_model_with_half_the_noise_shows_it(toy, monkeypatch):
    original = claimed_training.base_noise
    monkeypatch.setattr(claimed_training, "base_noise", lambda *size, **address: original(*size, **address) / 2)
    half_the_noise(poisson_image(toy), 1.0)


def p_value(epsilon, delta, canaries, guesses, right):
    """The most probable that so many guesses are right: steinke2023, Theorem 5.2."""
    law = binom(guesses, math.exp(epsilon) / (1 + math.exp(epsilon)))
    i = np.arange(1, canaries + 1)
    worst = ((law.cdf(right - 1) - law.cdf(right - 1 - i)) / i).max()
    return law.sf(right - 1) + 2 * canaries * delta * worst


def proven_from_one_run(delta, **counts):
    """The epsilon whose p-value is 5 %, or 0."""
    if p_value(0.0, delta, **counts) > 0.05:
        return 0.0
    return brentq(lambda epsilon: p_value(epsilon, delta, **counts) - 0.05, 0, 50, xtol=1e-12)


def least_total(mu, canaries, guesses, right):
    """The least total probability with 5 % for so many right guesses under G_mu: mahloujifar2025, Theorem 3.2."""
    tails = [0.05]
    for i in range(right, 0, -1):
        guessed_right = min(1.0, (i * tails[-1] + sum(tails[:-1])) / canaries)
        guessed_wrong = ndtr(ndtri(guessed_right) - mu)
        tails.append(max(tails[-1], (canaries * guessed_wrong + sum(tails)) / (guesses - i + 1)))
    return tails[-1]


def proven_if_gaussian(delta, **counts):
    """The epsilon of the mu-GDP that the guesses only just refute, from its curve of delta; or 0."""
    if least_total(0.0, **counts) < 1:
        return 0.0
    mu = brentq(lambda mu: least_total(mu, **counts) - 1, 0, 20, xtol=1e-12)

    def excess(epsilon):
        return ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu) - delta

    return brentq(excess, 0, 50, xtol=1e-12)


@pytest.mark.parametrize(("kind", "canaries", "guesses"), [("message", 90, 44), ("image", 40, 20)])
def test_the_bounds_from_one_run_are_what_its_guesses_prove_at_95_percent(request, kind, canaries, guesses):
    _, runs = request.getfixturevalue(f"{kind}_runs")
    assert runs["canaries"].eq(canaries).all() and runs["guesses"].eq(guesses).all()
    assert (runs["one_run_lower_bound"] > 0).sum() >= 3
    told = ["one_run_lower_bound", "one_run_gaussian_lower_bound"]
    for (delta, right), same in runs.groupby(["privacy_delta", "right_guesses"]):
        counts = {"canaries": canaries, "guesses": guesses, "right": int(right)}
        expected = [proven_from_one_run(delta, **counts), proven_if_gaussian(delta, **counts)]
        assert same[told].to_numpy() == pytest.approx(np.tile(expected, (len(same), 1)), abs=1e-5)


# What canaries add to training, and what is read off: against sums written out.


CLASSES, FEATURES, CANARIES = 3, 4, 5


def rule(included):
    """The gradients of a linear model on 4 features, without and with 5 canaries."""

    def loss(logits, y):
        return nn.functional.cross_entropy(logits, y, reduction="none")

    inner = gradient_rule(model(), loss, torch.zeros(FEATURES))
    return inner, CanaryGradients(inner, CLASSES, torch.tensor(included))


def model():
    """A linear model that starts at 0."""
    module = nn.Linear(FEATURES, CLASSES)
    nn.init.zeros_(module.weight), nn.init.zeros_(module.bias)
    return module


def batch(labels, present=None):
    """A batch of random records; those of canaries have inputs 0."""
    torch.manual_seed(0)
    y = torch.tensor(labels)
    x = torch.randn(16, FEATURES)[: len(y)]
    x[y >= CLASSES] = 0
    return x, y, torch.tensor(present or [1.0] * len(labels))


def test_a_canary_that_is_in_pulls_by_the_clip_norm_and_nothing_else_changes():
    inner, own = rule([1.0, 0.0, 1.0, 1.0, 1.0])
    size = (FEATURES + 1) * CLASSES
    weights = torch.randn(2, size + CANARIES)
    clips = torch.tensor([0.5, 2.0])
    without = inner.clipped_sums(weights[:, :size], batch([0, 2, 1]), clips)
    # Records: three real, canary 0 (in), canary 1 (out), canary 2 twice (in, and once not present).
    sums = own.clipped_sums(weights, batch([0, 2, 1, 3, 4, 5, 5], [1.0] * 6 + [0.0]), clips)
    torch.testing.assert_close(sums[:, :size], without)
    torch.testing.assert_close(sums[:, size:], clips[:, None] * torch.tensor([1.0, 0, 1, 0, 0]))


def run(noise, **changes):
    """One client's training."""
    given = {"batch_size": 6, "sampling": Sampling.SHUFFLED, "epochs": 2, "learning_rate": 0.25, "momentum": 0.0,
             "clip_norm": 2.0, "noise_multipliers": noise, "seed": 3}  # fmt: skip
    return ClientRun(**given | changes)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_without_noise_every_draw_of_a_canary_shows_as_one_clip_norm(momentum):
    included = np.array([1, 0, 1, 0, 1])
    inputs, labels = torch.randn(7, FEATURES), torch.randint(0, CLASSES, (7,))
    scores, evidence = image_scores(
        run((0.0, 0.0), momentum=momentum), model(), inputs, labels, CLASSES, included
    )  # fmt: skip
    # 12 records in two batches of 6: each is in one an epoch, of two.
    for each in evidence:
        assert (each.draws, each.values, each.squares) == (6, 2 * 4, 0.0) and each.total == pytest.approx(6, rel=1e-5)
    assert scores.shape == (2, 5) and ((scores > 0) == included.astype(bool)).all()


def test_noise_hides_canaries_by_its_size():
    bits = coins(0, 200)
    inputs, labels = torch.zeros(10, FEATURES), torch.zeros(10, dtype=torch.int64)
    noises = (0.3, 30.0)
    given = run(noises, batch_size=210, epochs=1)
    scores, evidence = image_scores(given, model(), inputs, labels, CLASSES, bits)
    for own, each, noise in zip(scores, evidence, noises, strict=True):
        # One full batch: a score is (x - 1/2)/noise^2. Differences of two means of about 100 normal numbers, and a
        # mean of as many; six deviations.
        difference = (own[bits == 1].mean() - own[bits == 0].mean()) * noise**2
        assert abs(difference - 1) < 6 * noise / math.sqrt(50)
        assert abs(each.total / each.draws - 1) < 6 * noise / math.sqrt(each.draws)
        assert each.squares / each.values == pytest.approx(noise**2, rel=6 * math.sqrt(2 / each.values))


def test_coins_are_fair_and_addressed():
    assert coins(1, 50).tolist() == coins(1, 50).tolist() != coins(2, 50).tolist()
    assert abs(coins(0, 10_000).mean() - 0.5) < 0.02  # four deviations
