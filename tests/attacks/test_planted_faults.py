"""Ten of ten planted faults are found, each by its claim, at a confidence of 1 - 1e-4."""

import pytest

from dpfl.accounting import dpsgd
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.attacks.conformance import check
from dpfl.attacks.planted_faults import planted_faults, poisson_claim

FAULTS = planted_faults()


def test_there_are_ten_kinds_of_fault_and_their_settings_are_the_right_ones():
    assert len({fault.kind for fault in FAULTS}) == 10
    for fault in FAULTS:
        assert vars(fault.trainer) == vars(fault.claim.conforming)
        assert type(fault.trainer) is not type(fault.claim.conforming)


def test_a_claim_is_what_the_accountant_proves():
    claim = poisson_claim(neighbouring=Neighbouring.REPLACE_ONE, epochs=2, noise_multiplier=1.5)
    for epsilon, delta in claim.claims[:2]:
        proven = dpsgd.epsilon(
            noise_multiplier=1.5, sample_rate=1 / 16, steps=32, delta=delta, neighbouring="replace_one"
        )
        assert epsilon == pytest.approx(float(proven), rel=1e-9)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.kind.__name__)
def test_a_fault_is_found(fault):
    assert check(fault.trainer, fault.claim).excess > 0


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.kind.__name__)
def test_a_fault_is_found_with_other_seeds(fault):
    assert all(check(fault.trainer, fault.claim, seed=seed).excess > 0 for seed in range(1, 6))
