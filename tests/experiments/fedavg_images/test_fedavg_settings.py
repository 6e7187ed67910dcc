import math

import pytest

from dpfl.errors import InputError
from dpfl.experiments.fedavg_images.fedavg_settings import (
    Accountant,
    FedavgCell,
    FedavgSettings,
    Initialisation,
    Metric,
)
from dpfl.models.image_models import Normalisation

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


def test_what_is_left_out_has_a_default():
    settings = _settings()
    assert settings.initialisation is Initialisation.COMMON
    assert settings.accountant is Accountant.RDP
    assert settings.normalisation is Normalisation.CHANNEL
    assert settings.measure is Metric.NONE
    assert settings.tempered_sigmoid == (2, 2, 1)


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
        ({"initialisation": "own"}, "initialisation"),
        ({"sampling": "full_batch"}, "sampling"),
        ({"normalisation": "groups81"}, "normalisation"),
        ({"accountant": "gdp"}, "accountant"),
        ({"measure": "everything"}, "measure"),
        ({"tempered_sigmoid": [2, 2]}, "tempered_sigmoid"),
        ({"clients": True}, "clients is True"),
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
