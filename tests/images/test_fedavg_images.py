"""FedAvg on images as an entry of the grid: settings, noise by other accountants, and run tables."""

import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from opacus.accountants.utils import get_noise_multiplier
from scipy.stats import binomtest

from dpfl.accounting import dpsgd, gaussian_dp
from dpfl.accounting.poisson_gaussian import epsilon_interval
from dpfl.data.loading import load_images
from dpfl.engine.networks import Architecture, FeatureNorm, Pixels
from dpfl.engine.sgd import SGD, base_noise
from dpfl.errors import InputError
from dpfl.features.scattering import build_features
from dpfl.grid.training_job import Folders, TrainingJob
from dpfl.images import fedavg_images
from dpfl.images.fedavg import Schedule
from dpfl.images.fedavg_images import (
    DISTANCES,
    NOISE_BY_CLIENT,
    Accountant,
    CellStack,
    ClientRecords,
    FedavgCell,
    FedavgSettings,
    Metric,
    PlainBatches,
    calibrate,
    inputs_of,
)

SETTINGS = {
    "model": "cnn_tanh",
    "clients": 3,
    "client_share": 0.2,
    "batch_size": 16,
    "delta": 1e-5,
    "clip_norm": 1.0,
    "learning_rate": 0.3,
    "momentum": 0.5,
    "sampling": "shuffled_epochs",
}
MACHINE = {"device": "cpu", "threads": 1, "memory_gb": 0.5}


def _settings(**other) -> FedavgSettings:
    return FedavgSettings.of(SETTINGS, other, MACHINE)


def test_what_is_left_out_is_as_in_the_authors_code():
    settings = _settings()
    assert settings.client_records is ClientRecords.INDEPENDENT
    assert settings.plain_batches is PlainBatches.FIXED
    assert settings.accountant is Accountant.PRV
    assert (settings.network, settings.pixels) == (Architecture.AUTHORS, Pixels.AUTHORS)
    assert settings.feature_norm is FeatureNorm.LEARNT
    assert settings.measure is Metric.NONE


def test_clients_draw_their_records_each_for_itself_or_share_them_out():
    """Ten clients with a tenth each: of 1,000 records about 349 are with nobody (within 6 deviations of 9.6)."""
    independent = _settings(clients=10, client_share=0.1).shares(1000, seed=0)
    assert [len(share) for share in independent] == [100] * 10
    assert abs(1000 - len(np.unique(np.concatenate(independent))) - 1000 * 0.9**10) < 58
    disjoint = _settings(clients=10, client_share=0.1, client_records="disjoint").shares(1000, seed=0)
    assert len(np.unique(np.concatenate(disjoint))) == 1000


def test_batches_without_clipping_keep_their_order_or_are_shuffled():
    plain, private = (FedavgCell.of({"epsilon": e, "local_epochs": 1, "rounds": 1}) for e in (math.inf, 3.0))
    fixed = plain.batches(_settings(), 40)
    first, second = ([batch.tolist() for batch in fixed.epoch(epoch, seed=0, client=0)] for epoch in (1, 2))
    assert first == second == [list(range(16)), list(range(16, 32)), list(range(32, 40))]
    shuffled = plain.batches(_settings(plain_batches="shuffled"), 40)
    first, second = ([batch.tolist() for batch in shuffled.epoch(epoch, seed=0, client=0)] for epoch in (1, 2))
    assert first != second and sorted(itertools.chain(*first)) == list(range(40))
    assert not private.batches(_settings(sampling="poisson"), 40).fixed_order


def test_shares_are_one_a_client_and_a_single_client_has_everything():
    assert _settings().client_share == (0.2, 0.2, 0.2)
    assert _settings(client_share=[0.5, 0.2, 0.1]).client_share == (0.5, 0.2, 0.1)
    assert _settings(clients=1).client_share == (1.0,)
    assert _settings(clients=1, client_share=[0.3]).client_share == (0.3,)


def test_cells_list_the_epochs_of_each_round():
    given = {"epsilon": 3.0, "local_epochs": 2, "rounds": 3}
    constant = FedavgCell.of(given)
    assert constant.local_epochs == (2, 2, 2)
    assert constant.columns(given)["local_epochs"] == 2
    given = {"epsilon": 3.0, "local_epochs": [1, 3]}
    assert FedavgCell.of(given).columns(given) == {
        "epsilon": 3.0,
        "local_epochs": 0,
        "rounds": 2,
        "local_epochs_by_round": "[1, 3]",
    }


def test_a_cell_clips_where_there_is_noise_or_where_it_says_so():
    silent = {"epsilon": math.inf, "local_epochs": 1, "rounds": 1}
    assert FedavgCell.of({**silent, "epsilon": 3.0}).clips
    assert not FedavgCell.of(silent).clips
    clipped = FedavgCell.of({**silent, "clip": True})
    assert clipped.clips and not clipped.private


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"model": "resnet"}, "model"),
        ({"client_records": "own"}, "client_records"),
        ({"plain_batches": "sorted"}, "plain_batches"),
        ({"network": "resnet"}, "network"),
        ({"pixels": "raw"}, "pixels"),
        ({"sampling": "full_batch"}, "sampling"),
        ({"feature_norm": "groups81"}, "feature_norm"),
        ({"accountant": "gdp"}, "accountant"),
        ({"measure": "everything"}, "measure"),
        ({"clients": True}, "clients is True"),
        ({"clip_norm": 0}, "clip_norm"),
        ({"delta": 1.0}, "delta"),
        ({"momentum": 1.0}, "momentum"),
        ({"client_share": 1.5}, "client_share is 1.5"),
        ({"client_share": [0.5, 0.5]}, "client_share: 2 shares for 3 clients"),
    ],
)
def test_unusable_settings_are_named(settings, named):
    with pytest.raises(InputError, match=named):
        _settings(**settings)


@pytest.mark.parametrize(
    ("cell", "named"),
    [
        ({"epsilon": 3.0, "local_epochs": 0, "rounds": 2}, "local_epochs"),
        ({"epsilon": 3.0, "local_epochs": 1.5, "rounds": 2}, "local_epochs"),
        ({"epsilon": 3.0, "local_epochs": []}, "local_epochs"),
        ({"epsilon": 3.0, "local_epochs": [1, 2], "rounds": 3}, "rounds: 3"),
        ({"epsilon": 3.0, "local_epochs": 1, "rounds": 3, "clip": False}, "clip"),
    ],
)
def test_unusable_cells_are_named(cell, named):
    with pytest.raises(InputError, match=named):
        FedavgCell.of(cell)


# The noise that meets a cell's budget and what is stated of it, by accountants that are not the calibration's.


LINEAR = SETTINGS | {"dataset": "digits", "model": "scatter_linear"}

CELLS = (
    {"epsilon": 3.0, "local_epochs": 1, "rounds": 4},
    {"epsilon": 3.0, "local_epochs": 2, "rounds": 2},
    {"epsilon": math.inf, "local_epochs": 4, "rounds": 1},
)


def calibrated(cells=CELLS, records=300, **settings) -> pd.DataFrame:
    """The calibration of clients of 60 of 300 records each: four steps an epoch, 16 in all."""
    job = TrainingJob("bhaskar2025", "fedavg_images", "k3", {**LINEAR, **settings}, tuple(cells), (0, 1), MACHINE)
    return calibrate(job, {"records": {"train": records}})


@pytest.fixture(scope="module")
def calibration():
    return calibrated()


def test_calibration_meets_epsilon_by_the_accountant_that_it_names(calibration):
    assert calibration["noise_multiplier"].iloc[2] == 0
    assert calibration["privacy_records"].tolist() == [60] * 3
    assert calibration["privacy_steps"].tolist() == [16] * 3
    assert calibration["privacy_sample_rate"].tolist() == [16 / 60] * 3
    assert calibration["privacy_sampling"].tolist() == ["shuffled_epochs"] * 3
    assert calibration["privacy_clip_norm"].tolist() == [1.0, 1.0, math.inf]
    note = calibration["privacy_note"].iloc[0]
    assert "Poisson sampling by Opacus's PRV accountant, the batches are shuffled_epochs" in note
    assert calibration[NOISE_BY_CLIENT].tolist() == ["[]"] * 3
    sigma = calibration["noise_multiplier"].iloc[0]
    spent = dpsgd.epsilon(noise_multiplier=sigma, sample_rate=1 / 4, steps=16, delta=1e-5, accountant="prv")
    assert 2.99 <= spent <= 3.0
    # Shuffled batches carry no amplification: what is proven is far above what the noise was calibrated for.
    unamplified = gaussian_dp.epsilon(delta=1e-5, mu=2 / sigma)
    assert calibration["privacy_epsilon_proven"].iloc[0] == pytest.approx(unamplified, rel=1e-6) and unamplified > spent
    assert math.isinf(calibration["privacy_epsilon_proven"].iloc[2])


@pytest.mark.parametrize(
    ("records", "epsilon", "expected"),
    [
        (60_000, 1.2, 1.6602),
        (60_000, 2.7, 0.999),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((60_000, 2.93, 0.9595), (50_000, 7.53, 0.685), (50_000, 3.0, 0.997))
        ),
    ],
)
def test_calibration_gives_the_noise_that_opacus_gives_the_authors(records, epsilon, expected):
    """Opacus itself, asked as make_private_with_epsilon asks it, and the sheet's four digits."""
    cells = ({"epsilon": epsilon, "local_epochs": 1, "rounds": 20},)
    setting = {"clients": 10, "client_share": 0.1, "batch_size": 64, "sampling": "poisson"}
    noise = calibrated(cells, records, **setting)
    steps = -(-records // 640)
    asked = {"target_epsilon": epsilon, "target_delta": 1e-5, "sample_rate": 1 / steps, "epochs": 20}
    assert noise["noise_multiplier"].iloc[0] == get_noise_multiplier(**asked, accountant="prv")
    assert noise["noise_multiplier"].iloc[0] == pytest.approx(expected, abs=5.1e-4)
    assert noise["privacy_epsilon_proven"].iloc[0] < epsilon


def test_poisson_batches_spend_by_the_exact_accountant_less_than_by_moments():
    noise = calibrated(CELLS[:1], sampling="poisson").iloc[0]
    run = {"noise_multiplier": noise["noise_multiplier"], "sample_rate": 1 / 4, "steps": 16, "delta": 1e-5}
    low, high = epsilon_interval(**run)
    assert low * (1 - 1e-9) <= noise["privacy_epsilon_proven"] <= high * (1 + 1e-9) < 3.0
    assert noise["privacy_sampling"] == "poisson"


def test_balls_in_bins_have_as_many_bins_as_steps():
    """Four epochs, unamplified 4-fold Gaussian: proven is below that, and above nothing."""
    noise = calibrated(CELLS[:1], sampling="balls_in_bins").iloc[0]
    unamplified = gaussian_dp.epsilon(delta=1e-5, mu=2 / noise["noise_multiplier"])
    assert noise["privacy_sample_rate"] == 1 / 4 and noise["privacy_sampling"] == "balls_in_bins"
    assert 1.0 < noise["privacy_epsilon_proven"] < 0.9 * unamplified


def test_overlapping_clients_and_a_central_client_say_so(calibration):
    overlapping = calibrated(CELLS[:1], clients=8)
    assert "a record is with 1.6 of them" in overlapping["privacy_note"].iloc[0]
    assert "a record is with 0.6 of them" in calibration["privacy_note"].iloc[0]
    assert "overlap" not in calibrated(CELLS[:1], client_records="disjoint")["privacy_note"].iloc[0]
    assert calibration["privacy_note"].iloc[2].endswith("no privacy guarantee; every epoch has the same batches")
    central = calibrated(CELLS[2:], clients=1)
    assert central["privacy_records"].tolist() == [300]


@pytest.mark.slow
def test_clients_of_unequal_size_each_have_the_noise_of_their_own_rate():
    noise = calibrated(client_share=[0.5, 0.1], clients=2)
    by_client = json.loads(noise[NOISE_BY_CLIENT].iloc[0])
    for sigma, records in zip(by_client, (150, 30), strict=True):
        steps = -(-records // 16)
        alone = {"sample_rate": 1 / steps, "steps": 4 * steps, "delta": 1e-5, "accountant": "prv"}
        assert 2.99 <= dpsgd.epsilon(noise_multiplier=sigma, **alone) <= 3.0
    assert noise["noise_multiplier"].iloc[0] == max(by_client) == by_client[1]
    assert noise["privacy_records"].iloc[0] == 30
    assert "clients hold 30 to 150 records" in noise["privacy_note"].iloc[0]
    assert noise[NOISE_BY_CLIENT].iloc[2] == "[]"


def test_equal_shares_in_a_list_are_one_share(calibration):
    pd.testing.assert_frame_equal(calibrated(client_share=[0.2, 0.2, 0.2]), calibration)


def test_moments_ask_for_more_noise_and_the_exact_accountant_for_about_as_much(calibration):
    sigma = calibration["noise_multiplier"].iloc[0]
    assert calibrated(CELLS[:1], accountant="rdp")["noise_multiplier"].iloc[0] > 1.02 * sigma
    assert calibrated(CELLS[:1], accountant="pld")["noise_multiplier"].iloc[0] == pytest.approx(sigma, rel=5e-3)


# The noise that a calibration states is the noise that clients add.


def noise_table(*rows: tuple[float, str]) -> pd.DataFrame:
    """A calibration with these noise multipliers: the smallest client's, and a JSON list of each client's."""
    return pd.DataFrame(rows, columns=["noise_multiplier", NOISE_BY_CLIENT])


def test_variants_clip_and_add_noise_as_the_rows_of_their_cells_say():
    """Of five cells a stack holds four: noise by client, clipped without noise, noise in common, neither."""
    table = noise_table((2.3, "[1.1, 2.3]"), (9.0, "[8.0, 9.0]"), (0.0, "[]"), (1.7, "[]"), (0.0, "[]"))
    stack = CellStack((0, 2, 3, 4), (), Schedule(((1,),) * 4), (True, True, True, False))
    variants = fedavg_images._variants(_settings(clip_norm=0.5, clients=2), table, stack)
    assert torch.equal(variants.clip_norms, torch.tensor([0.5, 0.5, 0.5, math.inf]))
    assert torch.equal(variants.noise_multipliers, torch.tensor([[1.1, 0.0, 1.7, 0.0], [2.3, 0.0, 1.7, 0.0]]))
    assert torch.equal(variants.noise_std, torch.tensor([[0.55, 0.0, 0.85, 0.0], [1.15, 0.0, 0.85, 0.0]]))


def test_a_step_with_noise_ends_at_the_noise_of_its_client_from_one_without(bars, monkeypatch):
    """Clients of 60 and 30 records that are one batch each: learning_rate * sigma * C / records times the draws."""
    models, epoch = [], SGD.epoch

    def record(self, weights, *rest):
        epoch(self, weights, *rest)
        models.append(weights.clone())

    monkeypatch.setattr(SGD, "epoch", record)
    once = {"local_epochs": 1, "rounds": 1}
    cells = ({**once, "epsilon": math.inf}, {**once, "epsilon": 3.0}, {**once, "epsilon": math.inf, "clip": True})
    settings = SETTINGS | {"dataset": "digits", "clients": 2, "client_share": [0.2, 0.1], "batch_size": 500}
    job = TrainingJob("p", "fedavg_images", "j", {**settings, "clip_norm": 0.5}, cells, (4,), MACHINE)
    noise = noise_table((0.0, "[]"), (2.3, "[1.1, 2.3]"), (0.0, "[]")).assign(privacy_records=30)
    columns = pd.DataFrame([FedavgCell.of(cell).columns(cell) for cell in cells])
    fedavg_images.train(job, Folders(bars, bars), columns.join(noise), None, lambda done, total: None)
    clients = models[2:]  # the first two are the plain cell's, with batches of its own
    assert [len(client[0]) for client in clients] == [2, 2]
    for client, scale in enumerate((0.3 * 1.1 * 0.5 / 60, 0.3 * 2.3 * 0.5 / 30)):
        noisy, silent = clients[client][0]
        address = {"seed": 4, "client": client, "epoch": 1, "step": 0}
        draws = base_noise(len(noisy), **address, dtype=noisy.dtype, device=noisy.device)
        torch.testing.assert_close(silent - noisy, scale * draws, rtol=0, atol=1e-6)  # float32 weights below 1


SHUFFLED = LINEAR | {"plain_batches": "shuffled"}


def _job(cells=CELLS, seeds=(0, 1), **settings) -> TrainingJob:
    return TrainingJob(
        "bhaskar2025", "fedavg_images", "k3", {**SHUFFLED, **settings}, tuple(cells), tuple(seeds), MACHINE
    )


@pytest.fixture(scope="module")
def folders(bars, tmp_path_factory) -> Folders:
    features = tmp_path_factory.mktemp("features") / "features"
    build_features(bars, features, lambda done, total: None)
    return Folders(bars, features)


@pytest.fixture(scope="module")
def description(folders):
    return json.loads((folders.arrays / "description.json").read_text())


@pytest.fixture(scope="module")
def bars_calibration(description):
    return fedavg_images.calibrate(_job(), description)


def _silent(done, total):
    pass


def test_the_run_table_is_complete_and_models_learn(folders, bars_calibration):
    seen = []
    table = fedavg_images.train(_job(), folders, bars_calibration, None, lambda done, total: seen.append((done, total)))
    assert seen == [(epoch, 8) for epoch in range(1, 9)]
    assert table["seed"].tolist() == [0, 1] * 3
    assert table["rounds"].tolist() == [4, 4, 2, 2, 1, 1]
    assert set(table["status"]) == {"finished"}
    assert set(table["stand_in_for"]) == {"mnist"}
    assert set(table["data_note"]) == {"Not MNIST."}
    for _, row in table.iterrows():
        by_round = json.loads(row["accuracy_pct_by_round"])
        assert len(by_round) == row["rounds"]
        assert by_round[-1] == row["accuracy_pct"]
    # chance is 10 %; more than 25 % of 100 test records by guessing, in one of six runs: false alarm 2e-5
    assert (table["accuracy_pct"] > 25).all()
    assert {"privacy_epsilon_proven", "privacy_note", "noise_multiplier", "clip_norm", "paper"} <= set(table.columns)


@pytest.mark.parametrize("model", ["cnn_relu", "cnn_tanh", "scatter_cnn"])
def test_other_models_train(folders, bars_calibration, model):
    table = fedavg_images.train(_job(seeds=(0,), model=model), folders, bars_calibration, None, _silent)
    assert len(table) == 3
    assert set(table["model"]) == {model} and set(table["status"]) == {"finished"}
    # chance is 10 %; more than 25 % of 100 test records by guessing, without noise: false alarm 4e-6
    assert table["accuracy_pct"].iloc[2] > 25


@pytest.fixture
def trained_on(monkeypatch) -> list[list[np.ndarray]]:
    """The batches of every epoch of a client that SGD has trained on."""
    seen, epoch = [], SGD.epoch

    def record(self, weights, velocity, data, batches, *rest):
        seen.extend(batches)
        epoch(self, weights, velocity, data, batches, *rest)

    monkeypatch.setattr(SGD, "epoch", record)
    return seen


def _train_four_epochs(folders, description, **settings) -> pd.DataFrame:
    job = _job(CELLS[:2], seeds=(0,), **settings)
    table = fedavg_images.train(job, folders, fedavg_images.calibrate(job, description), None, _silent)
    assert set(table["status"]) == {"finished"}
    return table


@pytest.mark.parametrize(
    ("settings", "clients", "sizes"),
    [({"clients": 1}, 1, [16] * 18 + [12]), ({"clients": 8}, 8, [16, 16, 16, 12]), ({"batch_size": 500}, 3, [60])],
)
def test_one_client_overlap_and_short_batches(folders, description, trained_on, settings, clients, sizes):
    """Eight clients hold 480 of 300 records: they overlap."""
    table = _train_four_epochs(folders, description, **settings)
    assert [[len(batch) for batch in epoch] for epoch in trained_on] == [sizes] * 4 * clients
    # chance is 10 %; more than 25 % of 100 test records by guessing, in one of six runs: false alarm 2e-5
    assert (table["accuracy_pct"] > 25).all()


def test_poisson_batches_have_any_size(folders, description, trained_on):
    """Three clients, four epochs, 30 steps that each take each of 60 records by a coin of 1/30.

    False alarm of the sum 1e-6. None of 360 batches is empty with probability 1e-22.
    """
    _train_four_epochs(folders, description, sampling="poisson", batch_size=2)
    assert [len(epoch) for epoch in trained_on] == [30] * 12
    sizes = [len(batch) for epoch in trained_on for batch in epoch]
    assert binomtest(sum(sizes), 360 * 60, 1 / 30).pvalue > 1e-6 and 0 in sizes


def test_a_cell_is_the_same_alone_and_in_the_stack(folders, bars_calibration):
    settings = {"seeds": (1,), "model": "scatter_cnn"}
    stacked = fedavg_images.train(_job(**settings), folders, bars_calibration, None, _silent)
    for index in range(3):
        alone = fedavg_images.train(
            _job(CELLS[index : index + 1], **settings), folders, bars_calibration[index : index + 1], None, _silent
        )
        assert alone["accuracy_pct_by_round"].iloc[0] == stacked["accuracy_pct_by_round"].iloc[index]


def test_schedules_of_unequal_rounds_are_written_as_lists_and_leave_whole_numbers_whole(folders, description):
    cells = (
        {"epsilon": 3.0, "local_epochs": [1, 3], "rounds": 2},
        {"epsilon": 3.0, "local_epochs": [2, 2]},
        {"epsilon": 3.0, "local_epochs": 2, "rounds": 2},
    )
    job = _job(cells, seeds=(0,))
    noise = fedavg_images.calibrate(job, description)
    assert noise["noise_multiplier"].nunique() == 1
    table = fedavg_images.train(job, folders, noise, None, _silent)
    assert table["local_epochs"].tolist() == [0, 2, 2]
    assert table["rounds"].tolist() == [2, 2, 2]
    assert table["local_epochs_by_round"].tolist() == ["[1, 3]", "[2, 2]", "[2, 2]"]
    assert table["local_epochs"].dtype == np.int64
    by_round = table["accuracy_pct_by_round"].tolist()
    assert by_round[1] == by_round[2] != by_round[0]


@pytest.mark.slow
def test_clients_of_unequal_size_learn_with_noise_of_their_own(folders, description):
    settings = {"client_share": [0.5, 0.1], "clients": 2}
    job = _job(CELLS, seeds=(0,), **settings)
    noise = fedavg_images.calibrate(job, description)
    table = fedavg_images.train(job, folders, noise, None, _silent)
    assert set(table["status"]) == {"finished"}
    assert (table["accuracy_pct"] > 25).all()


def test_distances_are_measured_where_they_are_asked_for(folders, description, bars_calibration):
    silent = {"epsilon": math.inf, "local_epochs": 2, "rounds": 2}
    cells = ({**silent, "epsilon": 3.0, "clip": True}, {**silent, "clip": False}, {**silent, "clip": True})
    other = {**silent, "local_epochs": 4, "rounds": 1, "clip": False}
    job = _job((*cells, other), seeds=(0,), measure="distances", learning_rate=0.1)
    noise = fedavg_images.calibrate(job, description)
    assert noise["privacy_clip_norm"].tolist() == [1.0, math.inf, 1.0, math.inf]
    assert noise["noise_multiplier"].tolist()[1:] == [0, 0, 0]
    table = fedavg_images.train(job, folders, noise, None, _silent)
    assert table["clip"].tolist() == [True, False, True, False]
    private = {name: json.loads(table[name].iloc[0]) for name in DISTANCES}
    assert all(len(values) == 2 and min(values) > 0 for values in private.values())
    for kind in ("plain", "noiseless"):  # averaging three clients takes away some of the noise
        assert private[f"distance_to_{kind}"][0] < private[f"local_distance_to_{kind}"][0]
    assert json.loads(table["distance_to_plain"].iloc[1]) == [0.0, 0.0]
    assert json.loads(table["distance_to_noiseless"].iloc[3]) == []
    assert (table["local_accuracy_pct"] < table["accuracy_pct"]).any()
    assert table["local_accuracy_pct"].between(10, 100).all()
    assert "local_accuracy_pct" not in fedavg_images.train(_job(seeds=(0,)), folders, bars_calibration, None, _silent)


@pytest.mark.parametrize(
    ("model", "other"),
    [
        ("cnn_tanh", {"network": "cited"}),
        ("cnn_tanh", {"pixels": "unit_interval"}),
        ("cnn_tanh", {"client_records": "disjoint"}),
        ("cnn_tanh", {"plain_batches": "fixed"}),
        ("scatter_linear", {"feature_norm": "fixed"}),
        ("scatter_cnn", {"network": "cited"}),
    ],
)
def test_each_reading_of_an_open_setting_trains_another_model(folders, bars_calibration, model, other):
    cell, row = CELLS[2:], bars_calibration[2:]
    tables = [
        fedavg_images.train(_job(cell, (0,), model=model, learning_rate=0.1, **each), folders, row, None, _silent)
        for each in ({}, other)
    ]
    assert [set(table["status"]) for table in tables] == [{"finished"}] * 2
    assert tables[0]["accuracy_pct"].iloc[0] != tables[1]["accuracy_pct"].iloc[0]


@pytest.mark.parametrize(("model", "pixels"), [("cnn_tanh", "authors"), ("scatter_linear", "unit_interval")])
def test_inputs_of_some_rows_are_those_rows_of_all_inputs(folders, model, pixels):
    settings = FedavgSettings.of(SHUFFLED, {"model": model, "pixels": pixels}, MACHINE)
    data, rows = load_images(folders.arrays), np.array([3, 4, 90])
    inputs, labels = inputs_of(settings, folders, data, "train")
    some, own = inputs_of(settings, folders, data, "train", rows)
    assert torch.equal(some, inputs[rows]) and torch.equal(own, labels[rows])


class Stopped(Exception):
    pass


@pytest.mark.parametrize("stop_at", [1, *(pytest.param(k, marks=pytest.mark.slow) for k in (3, 4, 7)), 6])
def test_a_resumed_run_ends_with_the_same_bytes(folders, bars_calibration, tmp_path, stop_at):
    _resume(folders, bars_calibration, tmp_path, stop_at, measure="distances")


def test_a_resumed_run_in_bfloat16_ends_with_the_same_bytes(folders, bars_calibration, tmp_path):
    table = _resume(folders, bars_calibration, tmp_path, 3, precision="bfloat16")
    single = fedavg_images.train(_job(precision="float32"), folders, bars_calibration, None, _silent)
    assert set(table["precision"]) == {"bfloat16"} and set(single["precision"]) == {"float32"}
    assert (table["accuracy_pct_by_round"] != single["accuracy_pct_by_round"]).any()


def test_a_processor_without_bfloat16_is_named_before_it_starts(folders, bars_calibration, monkeypatch, caplog):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True}, raising=False)

    def stop(done, total):
        raise Stopped

    for precision, said in (("float32", False), ("bfloat16", True)):
        caplog.clear()
        with pytest.raises(Stopped):
            fedavg_images.train(_job(precision=precision), folders, bars_calibration, None, stop)
        assert ("no bfloat16 instructions" in caplog.text) is said


def _resume(folders, calibration, tmp_path, stop_at, **settings):
    """Stop a job, resume it, and ask again; return its table."""

    def stop(done, total):
        if done == stop_at:
            raise Stopped

    checkpoint = tmp_path / "run.checkpoint"
    job = _job(**settings)
    whole = fedavg_images.train(job, folders, calibration, None, _silent)
    with pytest.raises(Stopped):
        fedavg_images.train(job, folders, calibration, checkpoint, stop)
    seen = []
    resumed = fedavg_images.train(job, folders, calibration, checkpoint, lambda done, total: seen.append(done))
    assert seen[0] == stop_at + 1
    assert resumed.to_csv() == whole.to_csv()
    again = fedavg_images.train(job, folders, calibration, checkpoint, lambda done, total: seen.append("trained anew"))
    assert seen[-1] == 8
    assert again.to_csv() == whole.to_csv()
    return whole


def test_a_checkpoint_of_other_settings_is_not_used(folders, bars_calibration, tmp_path, caplog):
    checkpoint = tmp_path / "run.checkpoint"
    fedavg_images.train(_job(seeds=(0,)), folders, bars_calibration, checkpoint, _silent)
    other = _job(seeds=(0,), learning_rate=0.1)
    fresh = fedavg_images.train(other, folders, bars_calibration, None, _silent)
    assert fedavg_images.train(other, folders, bars_calibration, checkpoint, _silent).to_csv() == fresh.to_csv()
    assert "other settings" in caplog.text


def test_divergence_is_a_result(folders, bars_calibration):
    with np.errstate(all="ignore"):
        table = fedavg_images.train(_job(seeds=(0,), learning_rate=1e38), folders, bars_calibration, None, _silent)
    assert set(table["status"]) == {"diverged"}
    # the largest of outputs that are no numbers is the first: the class of a tenth of the records
    assert table["accuracy_pct"].tolist() == [10.0] * 3


def test_missing_features_are_named(folders, bars_calibration, tmp_path):
    with pytest.raises(InputError, match=r"train_x\.npy: no such file"):
        fedavg_images.train(_job(), Folders(folders.arrays, tmp_path), bars_calibration, None, _silent)
