"""Asynchronous DP-SGD as an entry of the grid: calibration, run tables, and the noise of a client's rounds."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import ndtr

from dpfl.accounting import dpsgd, gaussian_dp
from dpfl.accounting.tradeoff import dpsgd_guarantee
from dpfl.accounting.tradeoff.curves import Segment, segments_epsilon
from dpfl.asynchronous import async_dpsgd
from dpfl.asynchronous.async_dpsgd import ClientPrivacy
from dpfl.asynchronous.async_sgd import AdaptiveClip
from dpfl.asynchronous.schedules import AsyncSettings, step_sizes
from dpfl.catalog import load
from dpfl.engine.sgd import base_noise
from dpfl.errors import InputError
from dpfl.grid.training_job import Folders, TrainingJob

MACHINE = {"device": "cpu", "threads": 1, "memory_gb": 1}
ENTRY = {"dataset": "digits", "study": "test", "clients": 3, "batch_size": 20, "epochs": 2, "learning_rate": 0.5}
SETTINGS = {**load("vandijk2023").settings, **ENTRY}
CELLS = (
    {"epsilon": 4.0, "scenario": "synchronous"},
    {"epsilon": math.inf, "scenario": "synchronous"},
    {"epsilon": 4.0, "scenario": "reordered_2"},
)
FIXED = {"sampling": "fixed_without_replacement", "neighbouring": "replace_one"}


def training_job(cells=CELLS, seeds=(0, 1), **settings) -> TrainingJob:
    return TrainingJob("vandijk2023", "async_dpsgd", "t", {**SETTINGS, **settings}, tuple(cells), tuple(seeds), MACHINE)


@pytest.fixture
def folders(bars) -> Folders:
    return Folders(bars, bars)


def calibrated(cells=CELLS, **settings) -> pd.DataFrame:
    return async_dpsgd.calibrate(training_job(cells, **settings), {"records": {"train": 300}})


def trained(folders, own=None, checkpoint=None, progress=lambda done, total: None) -> pd.DataFrame:
    own = own or training_job()
    return async_dpsgd.train(
        own, folders, async_dpsgd.calibrate(own, {"records": {"train": 300}}), checkpoint, progress
    )


def test_fixed_batches_are_calibrated_by_the_composed_operator():
    table = calibrated()
    sigma = table["noise_multiplier"][0] / 2
    spent = float(dpsgd_guarantee(n=100, m=20, epochs=2, sigma=sigma, adversary="A0").epsilon(1e-5))
    assert spent == pytest.approx(4.0, rel=2e-3) and spent <= 4.0 * (1 + 1e-6)
    assert table["privacy_epsilon_proven"][0] <= 4.0
    assert table["privacy_sampling"][0] == FIXED["sampling"] and table["privacy_neighbouring"][0] == "replace_one"
    assert table[["privacy_records", "privacy_steps"]].iloc[0].tolist() == [100, 10]
    assert math.isinf(table["privacy_epsilon_proven"][1])


def test_asynchrony_changes_neither_noise_nor_guarantee():
    table = calibrated().drop(columns="scenario")
    pd.testing.assert_series_equal(table.iloc[0], table.iloc[2], check_names=False)
    assert "post-processing" in table["privacy_note"][0]


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_poisson_batches_spend_their_budget_as_dp_accounting_says(relation):
    cells = [{"epsilon": 4.0, "sampling": "poisson", "neighbouring": relation}]
    [row] = calibrated(cells).to_dict("records")
    run = {"noise_multiplier": row["noise_multiplier"], "sample_rate": 0.2, "steps": 10, "delta": 1e-5}
    assert row["privacy_epsilon_proven"] == pytest.approx(dpsgd.epsilon(**run, neighbouring=relation), rel=1e-4)
    assert 4.0 * (1 - 2e-5) <= row["privacy_epsilon_proven"] <= 4.0


def test_a_given_sigma_grows_with_the_batch():
    cells = [{"sigma": 1.5, "batch_factor": factor, "scaling": "rounds"} for factor in (1, 2)]
    table = calibrated(cells)
    assert table["noise_multiplier"].tolist() == [3.0, 6.0]
    assert table["privacy_steps"].tolist() == [10, 8]  # 4 epochs of two batches of 40 in 100 records
    for row, segment in zip(table.to_dict("records"), (Segment(10, 1.5, 0.2), Segment(8, 3.0, 0.4)), strict=True):
        assert row["privacy_epsilon_proven"] == pytest.approx(segments_epsilon([segment], 1e-5), rel=1e-9)


@pytest.mark.parametrize(("scaling", "rounds"), [("epochs", 4), ("step_size", 4), ("rounds", 8)])
def test_larger_batches_keep_what_they_are_said_to_keep(scaling, rounds):
    own = training_job([{"batch_factor": factor, "scaling": scaling, "epsilon": math.inf} for factor in (1, 2)])
    small, large = async_dpsgd._plans(own, 300)
    assert (small.posture.rounds, large.posture.rounds) == (10, rounds)
    assert large.learning_rate == small.learning_rate * (2 if scaling == "step_size" else 1)
    steps = [step_sizes(plan.learning_rate, plan.step_decay, plan.posture.course) for plan in (small, large)]
    if scaling == "rounds":  # the last epoch of the small batches and the last two of the large ones: alike
        assert steps[1][-1] == pytest.approx(steps[0][0] / (1 + 0.05 * 3))


def test_strategies_meet_the_budget_and_the_unpaid_one_does_not():
    names = ("constant", "falling_noise", "last_epoch", "arsinh_4", "sparse_10", "last_epoch_unpaid")
    table = calibrated([{"strategy": name, "epsilon": 4.0} for name in names]).set_index(pd.Index(names))
    gaussian = table["privacy_epsilon_proven"].drop(["arsinh_4", "last_epoch_unpaid"])
    assert (gaussian <= 4.0).all() and (gaussian > 3.99).all()
    assert table["privacy_epsilon_proven"]["last_epoch_unpaid"] > 5
    assert table["noise_multiplier"]["last_epoch_unpaid"] == table["noise_multiplier"]["constant"]
    sigma = table["noise_multiplier"]["last_epoch"] / 2
    parts = [Segment(5, sigma, 0.2), Segment(5, sigma / math.sqrt(3), 0.2)]
    assert segments_epsilon(parts, 1e-5) == pytest.approx(table["privacy_epsilon_proven"]["last_epoch"], rel=1e-3)


def test_arsinh_noise_meets_the_budget_along_one_axis_and_proves_nothing():
    [row] = calibrated([{"strategy": "arsinh_4", "epsilon": 4.0}]).to_dict("records")
    assert math.isinf(row["privacy_epsilon_proven"]) and "one axis" in row["privacy_proven_by"]
    rounds = Segment(10, row["noise_multiplier"] / 2, 0.2, arsinh_scale=4.0)
    along_one_axis = segments_epsilon([rounds], 1e-5)
    assert along_one_axis == pytest.approx(4.0, rel=1e-3)
    assert f"such moves spend at most {along_one_axis:.3g}" in row["privacy_note"]
    assert "arsinh" in row["privacy_mechanism"]


def test_batches_by_segment_are_composed_each_with_its_own_rate(folders):
    cells = [{"strategy": name, "epsilon": 4.0} for name in ("constant", "growing_batch")]
    table = calibrated(cells, epochs=3)
    sigma = table["noise_multiplier"][1] / 2
    # 100 records a client, batches of 20: an epoch each of batches of 10, 20 and 40.
    parts = [Segment(10, sigma, 0.1), Segment(5, sigma, 0.2), Segment(2, sigma, 0.4)]
    assert segments_epsilon(parts, 1e-5) == pytest.approx(table["privacy_epsilon_proven"][1], rel=1e-9)
    assert table["privacy_epsilon_proven"][1] == pytest.approx(4.0, rel=1e-3) and table["privacy_steps"][1] == 17
    assert "batches of 10, 20, 40" in table["privacy_note"][1] and "batches of" not in table["privacy_note"][0]
    alone = trained(folders, training_job(cells[1:], seeds=(0,), epochs=3))
    assert alone["status"][0] == "finished" and len(json.loads(alone["accuracy_pct_by_epoch"][0])) == 3


def test_preparation_is_part_of_the_budget():
    names = ("none", "normalised", "normalised_exactly")
    table = calibrated([{"preparation": name, "epsilon": 4.0} for name in names]).set_index(pd.Index(names))
    release = Segment(1, 1 / float(gaussian_dp.mu(0.8, 1e-5)), 1.0)
    updates = Segment(10, table["noise_multiplier"]["normalised"] / 2, 0.2)
    assert segments_epsilon([release, updates], 1e-5) == pytest.approx(4.0, rel=1e-3)
    assert table["noise_multiplier"]["normalised"] > table["noise_multiplier"]["none"]
    assert math.isinf(table["privacy_epsilon_proven"]["normalised_exactly"])
    assert "no guarantee covers" in table["privacy_note"]["normalised_exactly"]


def test_runs_learn_and_say_everything(folders):
    table = trained(folders)
    assert table[["scenario", "epsilon", "seed"]].to_numpy().tolist()[:2] == [
        ["synchronous", 4.0, 0], ["synchronous", 4.0, 1],
    ]  # fmt: skip
    assert (table["status"] == "finished").all() and (table["accuracy_pct"] > 30).all()
    assert (table.loc[table["epsilon"] == math.inf, "accuracy_pct"] >= 90).all()
    by_epoch = table["accuracy_pct_by_epoch"].map(json.loads)
    assert by_epoch.map(len).eq(2).all() and by_epoch.map(lambda each: each[-1]).equals(table["accuracy_pct"])
    assert (table["data_note"] == "Not MNIST.").all() and table["max_staleness"].isna().all()
    late = table[table["scenario"] == "reordered_2"]
    assert (late["simulated_rounds"] > 10).all() and (late["delay"] == 2.0).all()
    assert not [column for column in table if "seconds" in column]


def test_what_the_chapter_describes_trains_and_keeps_the_statement(folders):
    """Guards, subsets, judged weights, adaptive clip norms, clipped means and layers: one epsilon, other models."""
    cells = [{"epsilon": 4.0, "scenario": "synchronous"} | changed for changed in (
        {}, {"max_distance": 0.05, "broadcast_loss": 0.5}, {"participation": 0.4}, {"mixing": "judged"},
        {"strategy": "adaptive_clip"}, {"strategy": "batch_clip"}, {"preparation": "layer_normalised"},
    )]  # fmt: skip
    table = trained(folders, training_job(cells, seeds=(0,)))
    assert (table["status"] == "finished").all() and table["privacy_epsilon_proven"].nunique() == 1
    assert table["accuracy_pct"].nunique() == len(cells)
    guarded, asked = table.iloc[1], table.iloc[2]
    assert (guarded["max_distance"], asked["participation"]) == (0.05, 0.4)
    assert asked["simulated_rounds"] > 2 * table["simulated_rounds"][0]
    leaking = trained(folders, training_job([cells[0] | {"preparation": "batch_normalised"}], seeds=(0,)))
    assert math.isinf(leaking["privacy_epsilon_proven"].item())


def test_clients_with_random_labels_are_the_first_and_weigh_less_if_judged(folders):
    labels, shares = np.arange(300) % 10, np.split(np.random.default_rng(0).permutation(300), 5)
    changed = async_dpsgd._labels(labels.copy(), shares, 0.4, 3)
    assert [float((changed[share] == labels[share]).mean()) > 0.5 for share in shares] == [False] * 2 + [True] * 3
    assert (async_dpsgd._labels(labels.copy(), shares, 0.0, 3) == labels).all()
    cells = [{"mixing": mixing, "mislabelled": 0.6, "epsilon": math.inf} for mixing in ("uniform", "judged")]
    equal, judged = trained(folders, training_job(cells, seeds=(0,), clients=5, epochs=1, learning_rate=2.0))[
        "accuracy_pct"
    ]
    assert judged > equal


def test_a_cell_is_the_same_alone_and_in_any_company(folders):
    # One cell alone may round differently in the stacked products: accuracies move by single records.
    whole = trained(folders).set_index(["scenario", "epsilon", "seed"])["accuracy_pct"]
    for cell in CELLS:
        alone = trained(folders, training_job([cell], seeds=(1,)))["accuracy_pct"][0]
        assert abs(alone - whole[cell["scenario"], cell["epsilon"], 1]) <= 1.0


class Stop(Exception):
    """Raised to interrupt a training run."""


def test_training_resumes_with_the_same_bytes(folders, tmp_path):
    whole, seen = trained(folders), []
    checkpoint = tmp_path / "run.pt"

    def interrupt(done, total):
        seen.append((done, total))
        if done == 75:
            raise Stop

    with pytest.raises(Stop):
        trained(folders, checkpoint=checkpoint, progress=interrupt)
    assert checkpoint.exists() and seen[-1] == (75, 120)
    resumed = []
    again = trained(folders, checkpoint=checkpoint, progress=lambda done, total: resumed.append(done))
    pd.testing.assert_frame_equal(again, whole)
    assert resumed[0] > 30  # the first stack was not trained again


def test_a_diverging_run_says_so(folders):
    cells = [{"epsilon": math.inf, "learning_rate": 1e39}]
    assert trained(folders, training_job(cells, seeds=(0,)))["status"].tolist() == ["diverged"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"clients": 0}, "clients is 0"),
        ({"batch_size": 101}, "batch_size: is 101"),
        ({"clients": 301}, "clients: is 301"),
        ({"batch_factor": 1.5}, "batch_factor is 1.5"),
        ({"delay": True}, "delay is True"),
        ({"epochs": 0}, "epochs"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"sigma": 0.0}, "sigma"),
        ({"scaling": "all"}, "scaling"),
        ({"strategy": "best"}, "strategy: 'best' is unknown, should be one of constant"),
        ({"scenario": "war"}, "scenario: 'war' is unknown"),
        ({"scenarios": {"synchronous": {"dely": 1}}}, "scenarios.synchronous: dely"),
        ({"scenarios": {"synchronous": {"delay": -1.0}}}, "delay: is -1.0"),
        ({"scenarios": {"synchronous": {"speed_spread": 0.0}}}, "speed_spread: is 0.0"),
        ({"scenarios": {"synchronous": {"update_loss": 1.0}}}, "no update ever reaches the server"),
        ({"sampling": "shuffled_epochs"}, "sampling"),
        ({"neighbouring": "zero_out"}, "neighbouring"),
        ({"sampling": "poisson", "neighbouring": "add_or_remove"}, "neighbouring: add_or_remove is not kept"),
        ({"sampling": "poisson", "strategy": "falling_noise"}, "fixed size only"),
        ({"sampling": "poisson", "preparation": "dp_pca"}, "fixed size only"),
        *(
            (
                {"sampling": "poisson", "neighbouring": "zero_out", "preparation": each},
                "exact statistics have no statement",
            )
            for each in ("normalised_exactly", "exact_pca", "batch_normalised")
        ),
        ({"preparation_share": 1.0}, "preparation_share"),
        ({"participation": 0.0}, "participation: is 0"),
        ({"max_distance": -1.0}, "max_distance: is -1"),
        ({"mixing": "best"}, "mixing"),
        ({"mislabelled": 1.0}, "mislabelled"),
        ({"delta": "2/N"}, "delta"),
        ({"sampling": "poisson", "neighbouring": "zero_out", "strategy": "batch_clip"}, "fixed size only"),
    ],
)
def test_settings_that_cannot_be_used_are_one_line(changed, words):
    with pytest.raises(InputError, match=f"^[^\n]*{words}[^\n]*$"):
        calibrated([{"scenario": "synchronous"} | {k: v for k, v in changed.items() if k != "scenarios"}],
                   **{k: v for k, v in changed.items() if k == "scenarios"})  # fmt: skip


def test_a_client_that_never_reports_stops_the_run(folders):
    scenarios = {"synchronous": {"update_loss": 0.99}}
    with pytest.raises(InputError, match="client 0 never reports"):
        trained(folders, training_job([{"scenario": "synchronous"}], scenarios=scenarios))


def test_weights_and_bytes_do_not_depend_on_global_randomness(folders):
    torch.manual_seed(1)
    one = trained(folders, training_job(CELLS[:1], seeds=(0,)))
    torch.manual_seed(2)
    pd.testing.assert_frame_equal(one, trained(folders, training_job(CELLS[:1], seeds=(0,))))


# The noise of a client's rounds: what it adds is what its statement says, in units of the sensitivity.


CLIENT = {"clients": 3, "batch_size": 20, "epochs": 2, "learning_rate": 0.5, "epsilon": 4.0}

POISSON = {"sampling": "poisson", "neighbouring": "zero_out"}


def privacy(**settings) -> ClientPrivacy:
    return ClientPrivacy.of(AsyncSettings.of({**load("vandijk2023").settings, **CLIENT, **settings}), records=100)


@pytest.mark.parametrize(
    ("run", "moves"), [(FIXED, 2.0), ({**POISSON, "neighbouring": "replace_one"}, 2.0), (POISSON, 1.0)]
)
def test_noise_over_the_clip_norm_counts_how_far_one_record_moves_a_sum(run, moves):
    own = privacy(**run, sigma=1.5, clip_norm=0.25)
    stated = own.statement(own.round_sigma())
    assert stated.noise_multiplier == 1.5 * moves
    assert (stated.clip_norm, stated.steps, stated.records) == (0.25, 10, 100)


@pytest.mark.parametrize("run", [FIXED, POISSON])
def test_a_calibrated_round_spends_the_budget_and_not_more(run):
    own = privacy(**run)
    assert 3.9 < own.statement(own.round_sigma()).guarantee.upper <= 4.0
    assert own.statement(0.9 * own.round_sigma()).guarantee.upper > 4.0


def test_without_a_budget_nothing_is_added_and_nothing_proven():
    own = privacy(**FIXED, epsilon=math.inf)
    assert own.round_sigma() == 0 and not own.private
    assert math.isinf(own.statement(0.0).guarantee.upper)


@pytest.mark.parametrize("preparation", ["normalised_exactly", "exact_pca", "batch_normalised"])
def test_exact_statistics_leave_nothing_proven(preparation):
    own = privacy(**FIXED, preparation=preparation)
    assert math.isinf(own.statement(own.round_sigma()).guarantee.upper)


@pytest.mark.parametrize(
    ("run", "named"),
    [
        ({**POISSON, "neighbouring": "add_or_remove"}, "neighbouring"),
        ({**FIXED, "neighbouring": "zero_out"}, "neighbouring"),
        ({**FIXED, "batch_size": 101}, "batch_size"),
        ({**FIXED, "strategy": "nobody"}, "strategy"),
        ({**POISSON, "strategy": "batch_clip"}, "fixed size only"),
        ({**POISSON, "strategy": "adaptive_clip"}, "fixed size only"),
        ({**FIXED, "strategy": "s", "strategies": {"s": {"adaptive_quantile": 0.5, "last_epoch": True}}}, "one Gauss"),
        ({**FIXED, "strategy": "s", "strategies": {"s": {"adaptive_quantile": 0.5, "batch_clip": True}}}, "one by one"),
    ],
)
def test_what_has_no_proof_is_refused(run, named):
    with pytest.raises(InputError, match=named):
        privacy(**run)


def test_a_budget_that_no_accountant_covers_is_refused_and_given_noise_has_nothing_proven_there():
    with pytest.raises(InputError, match="delta must be at least 1e-10, got 1e-12, for batches of fixed size"):
        privacy(**FIXED, delta=1e-12).round_sigma()
    own = privacy(**FIXED, delta=1e-12, sigma=1.5)
    assert math.isinf(own.statement(own.round_sigma()).guarantee.upper)


def test_a_delta_in_records_is_that_of_a_client():
    assert privacy(**FIXED, delta="1/N").delta == 0.01 and privacy(**FIXED, delta="1/(10 N)").delta == 0.001
    with pytest.raises(InputError, match="delta"):
        privacy(**FIXED, delta="2/N")


def test_an_adaptive_clip_norm_is_paid_for_within_each_round():
    """Sum and count are one Gaussian mechanism: their mu^2 add up to the round's 1/sigma^2."""
    plain, adaptive = (privacy(**FIXED, strategy=name) for name in ("constant", "adaptive_clip"))
    sigma = adaptive.round_sigma()
    assert sigma == plain.round_sigma()
    count = adaptive.strategy.adaptive_clip(sigma)
    assert 1 / (sigma * adaptive.strategy.sum_noise) ** 2 + 1 / count.count_std**2 == pytest.approx(1 / sigma**2)
    stated = adaptive.statement(sigma)
    assert stated.guarantee == plain.statement(sigma).guarantee and "noisy count" in stated.note


def test_batch_clipping_states_the_guarantee_of_its_own_sensitivity():
    clipped, plain = (privacy(**FIXED, strategy=name) for name in ("batch_clip", "constant"))
    assert clipped.round_sigma() == plain.round_sigma()
    assert "mean gradient is clipped" in clipped.statement(1.0).note


def test_layer_normalisation_costs_nothing():
    own, plain = (privacy(**FIXED, preparation=name) for name in ("layer_normalised", "none"))
    assert own.statement(2.0).guarantee == plain.statement(2.0).guarantee


# The noise that is stated is the noise that a run adds.


def test_a_preparation_has_the_noise_of_its_share_of_the_budget(folders, monkeypatch):
    """The share of 0.3 of epsilon 4 is 1.2: 1/sigma solves Phi(m/2 - 1.2/m) - e^1.2 Phi(-m/2 - 1.2/m) = delta."""
    given, prepare = [], async_dpsgd.prepare

    def record(preparation, *inputs, sigma, **others):
        given.append((preparation, sigma))
        return prepare(preparation, *inputs, sigma=sigma, **others)

    monkeypatch.setattr(async_dpsgd, "prepare", record)
    names = ("normalised", "dp_pca", "normalised_exactly", "exact_pca", "none")
    cells = [{"preparation": name, "epsilon": 4.0} for name in names]
    cells += [{"preparation": "normalised", "epsilon": math.inf}]
    job = training_job(cells, seeds=(0,), batch_size=100, epochs=1, preparation_share=0.3)
    trained(folders, job)
    m = brentq(lambda m: ndtr(m / 2 - 1.2 / m) - math.exp(1.2) * ndtr(-m / 2 - 1.2 / m) - 1e-5, 0.1, 2, xtol=1e-14)
    assert [name for name, _ in given] == [*names, "normalised"]
    assert [sigma for _, sigma in given] == pytest.approx([1 / m, 1 / m, 0, 0, 0, 0], rel=1e-8, abs=0)


def test_what_clients_send_first_differs_between_cells_by_the_noise_of_each(folders, monkeypatch):
    """One model, one batch: sums differ by the draws of the round, times sigma, times the sensitivity 2C = 1/2."""
    sent, replay = [], async_dpsgd.replay

    def observed(*run):
        sent.append({})
        return replay(*run, lambda client, round, sums: sent[-1].setdefault((client, round), sums.clone()))

    monkeypatch.setattr(async_dpsgd, "replay", observed)
    cells = [{"sigma": 9.0, "scenario": "late_1"}, {"epsilon": math.inf}, {"sigma": 1.5}, {"sigma": 0.5}]
    trained(folders, training_job(cells, seeds=(3,), batch_size=100, epochs=1, clip_norm=0.25))
    for client in range(3):
        silent, *noisy = sent[1][client, 0]
        address = {"seed": 3, "client": client, "epoch": 0, "step": 0}
        draws = base_noise(len(silent), **address, dtype=silent.dtype, device=silent.device)
        for sums, std in zip(noisy, (0.75, 0.25), strict=True):
            torch.testing.assert_close(sums - silent, std * draws, rtol=0, atol=1e-5)  # float32 sums below 25


def postures(strategies, noise, **cell):
    """The rounds of stacked cells, each with a strategy: 2 epochs of 100 records in batches of 50, clip norm 1/2."""
    cells = [{**cell, "strategy": f"s{k}"} for k in range(len(strategies))]
    named = {"constant": {}} | {f"s{k}": strategy for k, strategy in enumerate(strategies)}
    settings = {"batch_size": 50, "clip_norm": 0.5, "step_decay": 1.0, "strategies": named}
    return async_dpsgd._postures(async_dpsgd._plans(training_job(cells, **settings), 300), np.array(noise))


@pytest.mark.parametrize(
    ("strategy", "clip_norms", "noise_std"),
    [
        ({}, [0.5] * 4, [1.0] * 4),
        ({"batch_factors": [0.5, 1.0]}, [0.5] * 6, [1.0] * 6),  # four batches of 25, two of 50
        ({"noise_factors": [3.0, 1.0]}, [0.5] * 4, [3.0, 3.0, 1.0, 1.0]),
        ({"clip_factors": [1.0, 0.5]}, [0.5, 0.5, 0.25, 0.25], [1.0, 1.0, 0.5, 0.5]),
        ({"clip_factors": [1.0, 0.5], "noise_factors": [3.0, 1.0]}, [0.5, 0.5, 0.25, 0.25], [3.0, 3.0, 0.5, 0.5]),
        ({"last_epoch": True}, [0.5] * 4, [1.0, 1.0, 3**-0.5, 3**-0.5]),
        ({"last_epoch": True, "budget_of": "constant"}, [0.5] * 4, [1.0, 1.0, 3**-0.5, 3**-0.5]),
        ({"adaptive_quantile": 0.5}, [0.5] * 4, [0.9**-0.5] * 4),
        ({"kept_share": 0.1}, [0.5] * 4, [1.0] * 4),
        ({"batch_clip": True}, [0.5] * 4, [1.0] * 4),
    ],
)
def test_rounds_clip_and_add_noise_as_their_strategy_says(strategy, clip_norms, noise_std):
    """Twice the clip norm is the noise of a round, times the factors of its segment."""
    own = postures([strategy], [2.0])
    np.testing.assert_allclose(own.clip_norms, np.array(clip_norms)[:, None], rtol=1e-6)
    np.testing.assert_allclose(own.noise_std, np.array(noise_std)[:, None], rtol=1e-6)
    assert own.arsinh_scales.shape == own.noise_std.shape and own.arsinh_scales.isinf().all()


def test_arsinh_noise_has_its_scale_in_units_of_each_rounds_noise():
    segments = {"clip_factors": [1.0, 0.5], "noise_factors": [3.0, 1.0]}
    own = postures([{"arsinh_scale": 4.0}, {"arsinh_scale": 4.0, **segments}], [2.0, 2.0])
    np.testing.assert_allclose(own.noise_std.T, [[1.0, 1.0, 1.0, 1.0], [3.0, 3.0, 0.5, 0.5]], rtol=1e-6)
    np.testing.assert_allclose(own.arsinh_scales.T, [[4.0, 4.0, 4.0, 4.0], [12.0, 12.0, 2.0, 2.0]], rtol=1e-6)


def test_every_column_of_a_stack_is_its_cells():
    """The third cell's sigma is 3, of which its sum has 3/sqrt(0.9) and its count 3/sqrt(0.1)."""
    kinds = [{"arsinh_scale": 4.0}, {"arsinh_scale": 4.0}, {"adaptive_quantile": 0.3}]
    own = postures([*kinds, {"kept_share": 0.1}, {"batch_clip": True}], [2.0, 0.0, 6.0, 4.0, 8.0])
    np.testing.assert_allclose(own.noise_std, [[1.0, 0.0, 3 * 0.9**-0.5, 2.0, 4.0]] * 4, rtol=1e-6)
    np.testing.assert_allclose(own.arsinh_scales, [[4.0, *[math.inf] * 4]] * 4, rtol=1e-6)  # without noise: none
    np.testing.assert_allclose(own.step_sizes, [[0.5] * 5] * 2 + [[0.25] * 5] * 2, rtol=1e-6)
    assert own.kept_shares == (1.0, 1.0, 1.0, 0.1, 1.0) and own.batch_clips == (False,) * 4 + (True,)
    assert own.adaptive_clips == (None, None, AdaptiveClip(0.3, 0.2, pytest.approx(3 * 0.1**-0.5)), None, None)
