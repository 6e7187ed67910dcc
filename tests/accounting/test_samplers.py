"""Samplers refuse what cannot be drawn."""

import dataclasses
import math

import pytest

from dpfl.accounting import sampler_accountants
from dpfl.accounting.guarantees import Phase, guarantee, guarantee_of_phases, noise_multiplier
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.sampler_accountants import Run, SamplerAccountant, accountant, accounts_for, unamplified
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
    assert {type(one) for one in made} <= set(SAMPLERS.values())
    assert all("sampling" not in dataclasses.asdict(one) for one in made)


def test_every_sampler_has_an_accountant_and_a_second_one_is_refused():
    for kind in SAMPLERS.values():
        fields = {each.name: 1 for each in dataclasses.fields(kind)}
        run = Run(kind(**fields), 1.0, 1, 1e-5, Neighbouring.ZERO_OUT)
        assert accountant(run).sampler == run.sampler
        with pytest.raises(ValueError, match=f"kinds: {kind.__name__} has an accountant"):
            accounts_for(kind)(SamplerAccountant)


@dataclasses.dataclass(frozen=True)
class Cyclic:
    """Batches in a public order, `steps_per_epoch` of them: every record in a known one of them."""

    steps_per_epoch: int


def test_a_sampler_is_added_by_its_class_and_its_accountant(monkeypatch):
    """Every question about a run is answered for it, and right: it is Gaussian DP of one use an epoch, exactly."""
    monkeypatch.setattr(sampler_accountants, "_ACCOUNTANTS", dict(sampler_accountants._ACCOUNTANTS))

    @accounts_for(Cyclic)
    class CyclicAccountant(SamplerAccountant):
        expected_uses = property(lambda self: 1 / self.sampler.steps_per_epoch)
        steps_per_epoch = property(lambda self: self.sampler.steps_per_epoch)

        def unamplified_mu(self):
            return math.sqrt(math.ceil(self.run.steps / self.steps_per_epoch)) / self.run.noise_multiplier

        def lower(self):
            return unamplified(self.unamplified_mu(), self.run.delta)

    epochs = guarantee(FullBatch(), noise_multiplier=2.0, steps=3, delta=1e-5)
    run = {"noise_multiplier": 2.0, "steps": 15, "delta": 1e-5}
    found = guarantee(Cyclic(5), **run)
    assert found.upper == pytest.approx(epochs.upper, rel=1e-12) and found.lower == found.upper
    noise = noise_multiplier(Cyclic(5), target_epsilon=found.upper, steps=15, delta=1e-5)
    assert noise == pytest.approx(2.0, rel=1e-9)
    both = guarantee_of_phases([Phase(Cyclic(5), 2.0, 10), Phase(FullBatch(), 2.0, 1)], delta=1e-5)
    assert both.upper == pytest.approx(epochs.upper, rel=1e-5)
    assert sampler_accountants.sample_rate(Cyclic(5)) == 0.2


def test_samplers_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Poisson(0.1).sample_rate = 0.2
