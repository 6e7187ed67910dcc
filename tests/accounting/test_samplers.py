"""Samplers refuse what cannot be drawn."""

import dataclasses

import pytest

from dpfl.accounting.samplers import (
    SAMPLERS,
    BallsInBins,
    FixedBatches,
    FullBatch,
    Poisson,
    Sampling,
    ShuffledEpochs,
    WithReplacement,
)


def test_with_replacement_takes_more_slots_than_records():
    assert WithReplacement(30, 10).batch_size == 30


def test_steps_of_an_epoch_count_the_shorter_last_batch():
    assert [ShuffledEpochs(64, n).steps_per_epoch for n in (6000, 6016, 6017)] == [94, 94, 95]


def test_every_key_leads_to_a_class_that_names_it():
    assert set(SAMPLERS) == set(Sampling)
    for key in Sampling:
        assert SAMPLERS[key].sampling is key
    made = Poisson(0.1), FixedBatches(1, 2), WithReplacement(1, 2), ShuffledEpochs(1, 2), BallsInBins(1), FullBatch()
    assert {type(one) for one in made} == set(SAMPLERS.values())
    assert all("sampling" not in dataclasses.asdict(one) for one in made)


def test_samplers_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Poisson(0.1).sample_rate = 0.2
