"""Right trainers are not accused, and what a check finds names the statistic that gave a fault away."""

import pytest

from dpfl.accounting.neighbouring import Neighbouring
from dpfl.attacks.claimed_training import CONFIDENCE, check
from dpfl.attacks.planted_faults import SeedReused, poisson_claim

CLAIMS = [
    poisson_claim(),
    poisson_claim(neighbouring=Neighbouring.REPLACE_ONE, noise_multiplier=1.5),
    poisson_claim(neighbouring=Neighbouring.ADD_OR_REMOVE, records=32, batch_size=2, epochs=1),
]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.neighbouring)
def test_a_right_trainer_is_not_accused(claim):
    assert check(claim.conforming, claim, seed=1).excess <= 0


def test_the_evidence_names_what_gave_a_fault_away():
    evidence = check(SeedReused(**vars(CLAIMS[0].conforming)), CLAIMS[0], trials=500)
    assert evidence.statistic == "repeated_noise" and evidence.excess > 0
    assert evidence.errors.positives == 500 and evidence.errors.true_positives > 400


@pytest.mark.slow
@pytest.mark.parametrize("block", range(5))
def test_no_alarm_in_a_hundred_right_runs(block):
    # At CONFIDENCE = 1 - 1e-4 each, one alarm or more among 5 blocks of 20 has probability 1 % at most.
    assert pytest.approx(1e-4) == 1 - CONFIDENCE
    runs = [(CLAIMS[run % len(CLAIMS)], 10 + run) for run in range(20 * block, 20 * block + 20)]
    alarms = [run for run in runs if check(run[0].conforming, run[0], seed=run[1]).excess > 0]
    assert not alarms
