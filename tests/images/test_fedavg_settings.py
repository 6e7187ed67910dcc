import itertools
import math

import numpy as np
import pytest

from dpfl.engine.networks import Architecture, FeatureNorm, Pixels
from dpfl.errors import InputError
from dpfl.images.fedavg_images import Accountant, ClientRecords, FedavgCell, FedavgSettings, Metric, PlainBatches

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
