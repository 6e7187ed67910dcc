import dataclasses
import json
import math

import pytest

from dpfl.accounting.guarantees import Guarantee
from dpfl.accounting.neighbouring import Neighbouring, Observer
from dpfl.accounting.samplers import FullBatch, Poisson, ShuffledEpochs
from dpfl.accounting.statements import Gaussian, PrivacyStatement

FIELDS = {
    "mechanism": Gaussian(),
    "sampler": Poisson(0.01),
    "neighbouring": Neighbouring.ZERO_OUT,
    "observer": Observer.EVERY_STEP,
    "records": 6000,
    "records_public": True,
    "clip_norm": 1.0,
    "noise_multiplier": 1.1,
    "steps": 100,
    "delta": 1e-5,
    "guarantee": Guarantee(0.9, 0.5, "one accountant", "another"),
    "note": "",
}
RUN = {"neighbouring": Neighbouring.ZERO_OUT, "records": 100, "delta": 1e-5}


def test_columns_carry_every_field_as_plain_values():
    columns = json.loads(json.dumps(PrivacyStatement(**FIELDS).columns()))
    for name in set(FIELDS) - {"mechanism", "sampler", "guarantee"}:
        assert columns[f"privacy_{name}"] == FIELDS[name]
    assert columns["privacy_sampling"] == "poisson" and columns["privacy_sample_rate"] == 0.01
    assert (columns["privacy_epsilon_proven"], columns["privacy_proven_by"]) == (0.9, "one accountant")
    assert (columns["privacy_epsilon_refuted"], columns["privacy_refuted_by"]) == (0.5, "another")
    assert json.loads(columns["privacy_mechanism"]) == {"kind": "Gaussian"}
    assert json.loads(columns["privacy_sampler"]) == {"kind": "Poisson", "sample_rate": 0.01}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("neighbouring", "another"),
        ("observer", "everybody"),
        ("records", 0),
        ("records", 10.5),
        ("clip_norm", 0.0),
        ("noise_multiplier", -1.0),
        ("steps", -1),
        ("delta", 1.0),
        ("guarantee", Guarantee(-0.1, 0.0, "", "")),
        ("guarantee", Guarantee(1.0, 2.0, "", "")),
    ],
)
def test_a_field_out_of_range_is_named(field, value):
    with pytest.raises(ValueError, match=field):
        PrivacyStatement(**{**FIELDS, field: value})


def test_without_noise_nothing_is_promised():
    statement = PrivacyStatement.of(Gaussian(), FullBatch(), noise_multiplier=0.0, steps=3, **RUN)
    assert statement.guarantee.upper == statement.guarantee.lower == math.inf
    assert str(statement.mechanism) == "none" and "no privacy" in statement.note


def test_an_epsilon_stands_as_proven_only_where_there_is_a_proof():
    run = {"noise_multiplier": 1.0, "steps": 40, **RUN}
    shuffled = PrivacyStatement.of(Gaussian(), ShuffledEpochs(10, 100), **run).columns()
    poisson = PrivacyStatement.of(Gaussian(), Poisson(0.1), **run).columns()
    assert poisson["privacy_epsilon_proven"] < shuffled["privacy_epsilon_proven"]
    assert not [name for name in shuffled if name in ("privacy_epsilon", "epsilon")]


def test_a_statement_cannot_be_altered():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PrivacyStatement(**FIELDS).delta = 0.5
