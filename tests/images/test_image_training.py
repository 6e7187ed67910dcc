import json
import math

import numpy as np
import pytest
import torch

from dpfl.data.loading import load_images
from dpfl.errors import InputError
from dpfl.features.scattering import build_features
from dpfl.grid.training_job import Folders, TrainingJob
from dpfl.images import fedavg_images
from dpfl.images.fedavg_images import DISTANCES, FedavgSettings, inputs_of

SETTINGS = {
    "dataset": "digits",
    "model": "scatter_linear",
    "clients": 3,
    "client_share": 0.2,
    "batch_size": 16,
    "delta": 1e-5,
    "clip_norm": 1.0,
    "learning_rate": 0.3,
    "momentum": 0.5,
    "sampling": "shuffled_epochs",
    "plain_batches": "shuffled",
}
MACHINE = {"device": "cpu", "threads": 1, "memory_gb": 0.5}
CELLS = (
    {"epsilon": 3.0, "local_epochs": 1, "rounds": 4},
    {"epsilon": 3.0, "local_epochs": 2, "rounds": 2},
    {"epsilon": math.inf, "local_epochs": 4, "rounds": 1},
)


def _job(cells=CELLS, seeds=(0, 1), **settings) -> TrainingJob:
    return TrainingJob(
        "bhaskar2025", "fedavg_images", "k3", {**SETTINGS, **settings}, tuple(cells), tuple(seeds), MACHINE
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
def calibration(description):
    return fedavg_images.calibrate(_job(), description)


def _silent(done, total):
    pass


def test_the_run_table_is_complete_and_models_learn(folders, calibration):
    seen = []
    table = fedavg_images.train(_job(), folders, calibration, None, lambda done, total: seen.append((done, total)))
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
def test_other_models_train(folders, calibration, model):
    table = fedavg_images.train(_job(seeds=(0,), model=model), folders, calibration, None, _silent)
    assert len(table) == 3
    assert set(table["model"]) == {model}


@pytest.mark.parametrize(
    "settings", [{"clients": 1}, {"clients": 8}, {"batch_size": 500}, {"sampling": "poisson", "batch_size": 2}]
)
def test_one_client_overlap_short_batches_and_poisson(folders, description, settings):
    job = _job(CELLS[:2], seeds=(0,), **settings)
    table = fedavg_images.train(job, folders, fedavg_images.calibrate(job, description), None, _silent)
    assert set(table["status"]) == {"finished"}
    assert table["accuracy_pct"].between(0, 100).all()


def test_a_cell_is_the_same_alone_and_in_the_stack(folders, calibration):
    settings = {"seeds": (1,), "model": "scatter_cnn"}
    stacked = fedavg_images.train(_job(**settings), folders, calibration, None, _silent)
    for index in range(3):
        alone = fedavg_images.train(
            _job(CELLS[index : index + 1], **settings), folders, calibration[index : index + 1], None, _silent
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


def test_distances_are_measured_where_they_are_asked_for(folders, description, calibration):
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
    assert "local_accuracy_pct" not in fedavg_images.train(_job(seeds=(0,)), folders, calibration, None, _silent)


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
def test_each_reading_of_an_open_setting_trains_another_model(folders, calibration, model, other):
    cell, row = CELLS[2:], calibration[2:]
    tables = [
        fedavg_images.train(_job(cell, (0,), model=model, learning_rate=0.1, **each), folders, row, None, _silent)
        for each in ({}, other)
    ]
    assert [set(table["status"]) for table in tables] == [{"finished"}] * 2
    assert tables[0]["accuracy_pct"].iloc[0] != tables[1]["accuracy_pct"].iloc[0]


@pytest.mark.parametrize(("model", "pixels"), [("cnn_tanh", "authors"), ("scatter_linear", "unit_interval")])
def test_inputs_of_some_rows_are_those_rows_of_all_inputs(folders, model, pixels):
    settings = FedavgSettings.of(SETTINGS, {"model": model, "pixels": pixels}, MACHINE)
    data, rows = load_images(folders.arrays), np.array([3, 4, 90])
    inputs, labels = inputs_of(settings, folders, data, "train")
    some, own = inputs_of(settings, folders, data, "train", rows)
    assert torch.equal(some, inputs[rows]) and torch.equal(own, labels[rows])


class Stopped(Exception):
    pass


@pytest.mark.parametrize("stop_at", [1, *(pytest.param(k, marks=pytest.mark.slow) for k in (3, 4, 7)), 6])
def test_a_resumed_run_ends_with_the_same_bytes(folders, calibration, tmp_path, stop_at):
    _resume(folders, calibration, tmp_path, stop_at, measure="distances")


def test_a_resumed_run_in_bfloat16_ends_with_the_same_bytes(folders, calibration, tmp_path):
    table = _resume(folders, calibration, tmp_path, 3, precision="bfloat16")
    single = fedavg_images.train(_job(precision="float32"), folders, calibration, None, _silent)
    assert set(table["precision"]) == {"bfloat16"} and set(single["precision"]) == {"float32"}
    assert (table["accuracy_pct_by_round"] != single["accuracy_pct_by_round"]).any()


def test_a_processor_without_bfloat16_is_named_before_it_starts(folders, calibration, monkeypatch, caplog):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True}, raising=False)

    def stop(done, total):
        raise Stopped

    for precision, said in (("float32", False), ("bfloat16", True)):
        caplog.clear()
        with pytest.raises(Stopped):
            fedavg_images.train(_job(precision=precision), folders, calibration, None, stop)
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


def test_a_checkpoint_of_other_settings_is_not_used(folders, calibration, tmp_path, caplog):
    checkpoint = tmp_path / "run.checkpoint"
    fedavg_images.train(_job(seeds=(0,)), folders, calibration, checkpoint, _silent)
    other = _job(seeds=(0,), learning_rate=0.1)
    fresh = fedavg_images.train(other, folders, calibration, None, _silent)
    assert fedavg_images.train(other, folders, calibration, checkpoint, _silent).to_csv() == fresh.to_csv()
    assert "other settings" in caplog.text


def test_divergence_is_a_result(folders, calibration):
    with np.errstate(all="ignore"):
        table = fedavg_images.train(_job(seeds=(0,), learning_rate=1e38), folders, calibration, None, _silent)
    assert table["status"].iloc[2] == "diverged"
    assert table["accuracy_pct"].between(0, 100).all()


def test_missing_features_are_named(folders, calibration, tmp_path):
    with pytest.raises(InputError, match=r"train_x\.npy: no such file"):
        fedavg_images.train(_job(), Folders(folders.arrays, tmp_path), calibration, None, _silent)
