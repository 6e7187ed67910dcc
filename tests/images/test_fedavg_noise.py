"""The noise that meets a cell's budget and what is stated of it, by accountants that are not the calibration's."""

import json
import math

import pandas as pd
import pytest
from opacus.accountants.utils import get_noise_multiplier

from dpfl.accounting import dpsgd, gaussian_dp
from dpfl.accounting.poisson_gaussian import epsilon_interval
from dpfl.errors import InputError
from dpfl.grid.training_job import TrainingJob
from dpfl.images.fedavg_images import NOISE_BY_CLIENT, calibrate

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
}
MACHINE = {"device": "cpu", "threads": 1, "memory_gb": 0.5}
CELLS = (
    {"epsilon": 3.0, "local_epochs": 1, "rounds": 4},
    {"epsilon": 3.0, "local_epochs": 2, "rounds": 2},
    {"epsilon": math.inf, "local_epochs": 4, "rounds": 1},
)


def calibrated(cells=CELLS, records=300, **settings) -> pd.DataFrame:
    """The calibration of clients of 60 of 300 records each: four steps an epoch, 16 in all."""
    job = TrainingJob("bhaskar2025", "fedavg_images", "k3", {**SETTINGS, **settings}, tuple(cells), (0, 1), MACHINE)
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
    [(60_000, 2.93, 0.9595), (60_000, 1.2, 1.6602), (60_000, 2.7, 0.999), (50_000, 7.53, 0.685), (50_000, 3.0, 0.997)],
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


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"clip_norm": 0}, "clip_norm"), ({"client_share": [0.2]}, "client_share"), ({"delta": 1.0}, "delta")],
)
def test_settings_that_cannot_be_are_one_line(settings, word):
    with pytest.raises(InputError, match=word) as refused:
        calibrated(CELLS[:1], **settings)
    assert "\n" not in str(refused.value)
