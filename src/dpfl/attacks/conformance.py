"""The check of a private training against its claim: an attack with a stated rate of false alarms."""

from __future__ import annotations

from dpfl.attacks.claimed_training import ClaimedTraining
from dpfl.attacks.distinguishers import statistics
from dpfl.attacks.gradient_oracle import Trainer
from dpfl.attacks.threshold_choice import Evidence, strongest_test

CONFIDENCE = 1 - 1e-4
"""Of 100 conforming trainers, one or more is refuted with probability 1 % at most."""


def check(
    trainer: Trainer, claim: ClaimedTraining, *, trials: int = 2000, seed: int = 0, confidence: float = CONFIDENCE
) -> Evidence:
    """Attack `trainer` as if it were what `claim` says; an excess above 0 refutes one of the claimed epsilons.

    `trials` trainings in each world choose the statistic and its threshold, as many more are counted.
    Guarantee: a trainer that satisfies the claims, with independent trials, is refuted with probability
    1 - confidence at most. What is not refuted is not proven: the attack sees what its statistics see.
    """
    design, evaluation = (
        tuple(claim.seen(trainer, trials, world=world, seed=2 * seed + part) for world in (0, 1)) for part in (0, 1)
    )
    return strongest_test(design, evaluation, statistics(claim.law), claim.claims, confidence)
