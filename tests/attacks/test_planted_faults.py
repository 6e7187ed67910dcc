"""Ten of ten planted faults are found and right trainers are not accused."""

import pytest

from dpfl.attacks.conformance import CONFIDENCE, check
from dpfl.attacks.planted_faults import planted_faults

FAULTS = planted_faults()


def test_there_are_ten_kinds_of_fault():
    assert len({fault.kind for fault in FAULTS}) == 10


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.kind.__name__)
def test_a_fault_is_found(fault):
    assert check(fault.trainer, fault.claim).excess > 0


@pytest.mark.parametrize("claim", dict.fromkeys(fault.claim for fault in FAULTS), ids=lambda claim: claim.neighbouring)
def test_a_right_trainer_is_not_accused(claim):
    assert check(claim.conforming, claim, seed=1).excess <= 0


@pytest.mark.slow
def test_no_alarm_in_a_hundred_right_runs():
    # At CONFIDENCE = 1 - 1e-4 each, one alarm or more among 100 has probability 1 % at most.
    assert pytest.approx(1e-4) == 1 - CONFIDENCE
    claims = list(dict.fromkeys(fault.claim for fault in FAULTS))
    runs = [(claims[run % len(claims)], 10 + run) for run in range(100)]
    alarms = [run for run in runs if check(run[0].conforming, run[0], seed=run[1]).excess > 0]
    assert not alarms


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.kind.__name__)
def test_a_fault_is_found_with_other_seeds(fault):
    assert all(check(fault.trainer, fault.claim, seed=seed).excess > 0 for seed in range(1, 6))
