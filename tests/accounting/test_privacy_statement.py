from __future__ import annotations

import dataclasses
import json
import math

import pytest

from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.privacy_statement import PrivacyStatement
from dpfl.accounting.samplers import Sampling

FIELDS = {
    "mechanism": "subsampled Gaussian",
    "sampling": Sampling.POISSON,
    "neighbouring": Neighbouring.ADD_OR_REMOVE,
    "records": 6000,
    "sample_rate": 0.01,
    "clip_norm": 1.0,
    "noise_multiplier": 1.1,
    "steps": 100,
    "delta": 1e-5,
    "epsilon_rdp": 0.9,
    "epsilon_pld": math.nan,
    "note": "",
}


def test_columns_carry_every_field_as_plain_values():
    columns = PrivacyStatement(**FIELDS).columns()
    assert list(columns) == [f"privacy_{name}" for name in FIELDS]
    assert columns["privacy_sampling"] == "poisson"
    assert type(columns["privacy_neighbouring"]) is str
    assert math.isnan(json.loads(json.dumps(columns))["privacy_epsilon_pld"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sampling", "poisson"),
        ("neighbouring", "replace_one"),
        ("records", 0),
        ("records", 10.5),
        ("sample_rate", 1.01),
        ("clip_norm", 0.0),
        ("noise_multiplier", -1.0),
        ("steps", -1),
        ("delta", 1.0),
        ("epsilon_rdp", -0.1),
    ],
)
def test_a_field_out_of_range_is_named(field, value):
    with pytest.raises(ValueError, match=field):
        PrivacyStatement(**{**FIELDS, field: value})


def test_without_noise_nothing_is_promised():
    statement = PrivacyStatement.not_private(sampling=Sampling.FULL, records=10, sample_rate=1.0, steps=3)
    assert statement.epsilon_rdp == statement.epsilon_pld == math.inf
    assert statement.noise_multiplier == 0
    assert "no privacy" in statement.note


def test_a_statement_cannot_be_altered():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PrivacyStatement(**FIELDS).delta = 0.5
