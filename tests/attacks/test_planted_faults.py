"""Ten of ten planted faults are found, each by its claim, at a confidence of 1 - 1e-4."""

import pytest

from dpfl.accounting import dpsgd
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.attacks.claimed_training import check
from dpfl.attacks.planted_faults import planted_faults, poisson_claim

TRIALS = {
    "NoiseHalved": 1000, "ClipAfterAveraging": 500, "NoiseOncePerRound": 500, "BatchRepeated": 1000,
    "SeedReused": 500, "SamplingRateWrong": 2000, "NoiseOnOneLayer": 500, "LastBatchUnclipped": 1000,
    "ForgottenSensitivity": 2000, "DivisorLeaksN": 500,
}  # fmt: skip
"""Trainings in each world that expose a fault; the slow test has the 2000 of `check` for all, and more seeds."""


@pytest.fixture(scope="module")
def faults():
    return {fault.kind.__name__: fault for fault in planted_faults()}


def test_there_are_ten_kinds_of_fault_and_their_settings_are_the_right_ones(faults):
    assert len(faults) == 10 and set(faults) == set(TRIALS)
    for fault in faults.values():
        assert vars(fault.trainer) == vars(fault.claim.conforming)
        assert type(fault.trainer) is not type(fault.claim.conforming)


def test_a_claim_is_what_the_accountant_proves():
    claim = poisson_claim(neighbouring=Neighbouring.REPLACE_ONE, epochs=2, noise_multiplier=1.5)
    for epsilon, delta in claim.claims[:2]:
        proven = dpsgd.epsilon(
            noise_multiplier=1.5, sample_rate=1 / 16, steps=32, delta=delta, neighbouring="replace_one"
        )
        assert epsilon == pytest.approx(float(proven), rel=1e-9)


@pytest.mark.parametrize(("name", "trials"), TRIALS.items())
def test_a_fault_is_found(faults, name, trials):
    assert check(faults[name].trainer, faults[name].claim, trials=trials).excess > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIALS)
def test_a_fault_is_found_with_other_seeds(faults, name):
    assert all(check(faults[name].trainer, faults[name].claim, seed=seed).excess > 0 for seed in range(6))
