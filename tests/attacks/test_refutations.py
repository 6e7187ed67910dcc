"""What the attacks must show: proven epsilons reached, the shuffled claim and repeated noise refuted."""

import pytest
import torch

from dpfl.accounting import dpsgd, gaussian_dp
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Sampling
from dpfl.attacks.claimed_training import ClaimedTraining, OracleTraining
from dpfl.attacks.lower_bounds import (
    best_statistics,
    repeated_noise,
    simulate,
    strongest_test,
)
from dpfl.attacks.planted_faults import poisson_claim
from dpfl.engine.batches import BatchSampler
from dpfl.randomness import address_key, generator


def attack(claim, trials, points, *, simulated=100_000, confidence=0.95):
    """The strongest test against `points` on trainings of the engine, its threshold chosen on simulated ones."""
    seen = tuple(claim.seen(claim.conforming, trials, world=world, seed=1) for world in (0, 1))
    shape = (simulated, *seen[0].shape[1:])
    design = tuple(simulate(claim.law, shape, world=world, seed=9) for world in (0, 1))
    return seen, strongest_test(design, seen, best_statistics(claim.law), points, confidence)


def test_full_batches_reach_seven_tenths_of_the_proven_epsilon():
    claim = poisson_claim(batch_size=256, epochs=1, noise_multiplier=2.0)
    _, evidence = attack(claim, 2**16, ((0.0, 1e-3),))
    proven = gaussian_dp.epsilon(1e-3, 0.5)
    assert 0.7 * proven < evidence.excess < proven


@pytest.mark.parametrize(
    ("neighbouring", "batch_size", "epochs", "noise_multiplier"),
    [
        (Neighbouring.ZERO_OUT, 128, 1, 1.5),
        pytest.param(Neighbouring.REPLACE_ONE, 128, 2, 4.0, marks=pytest.mark.slow),
    ],
)
def test_poisson_batches_reach_seven_tenths_of_the_proven_epsilon(neighbouring, batch_size, epochs, noise_multiplier):
    claim = poisson_claim(
        neighbouring=neighbouring, batch_size=batch_size, epochs=epochs, noise_multiplier=noise_multiplier
    )
    delta = 1e-3
    proven = {point: epsilon for epsilon, point in claim.claims}[delta]
    _, evidence = attack(claim, 2**16, ((0.0, delta),))
    assert 0.7 * proven < evidence.excess < proven


def shuffled(claimed, records=6000, batch_size=64, epochs=20):
    """bhaskar2025's federation of ten MNIST clients with its shuffled batches, and what it claims."""
    sampler = BatchSampler(Sampling.SHUFFLED, batch_size, records)
    return ClaimedTraining(sampler, Neighbouring.ZERO_OUT, epochs, 1.0, 1.0072, ((claimed, 1e-5),))


def test_the_poisson_epsilon_of_shuffled_batches_is_refuted():
    # Five epochs of 94 steps, on fewer records than the paper's: the law depends on the number of steps alone.
    claimed = dpsgd.epsilon(noise_multiplier=1.0072, sample_rate=1 / 94, steps=5 * 94, delta=1e-5)
    claim = shuffled(float(claimed), records=376, batch_size=4, epochs=5)
    _, evidence = attack(claim, 2048, claim.claims, simulated=8192)
    assert evidence.excess > 0.3


@pytest.mark.slow
def test_the_published_claim_of_shuffled_batches_is_refuted():
    # Claimed: 2.93 by RDP, 2.64 by PLD. The pair's own epsilon is 12.7726 (shared reference values, samplers.json).
    claim = shuffled(2.93)
    _, evidence = attack(claim, 2048, claim.claims, simulated=8192)
    assert evidence.excess > 0.3


class TwoMessages(OracleTraining):
    """Two steps whose noise comes from two addresses of a federation: (client, epoch, step) of seed 0."""

    addresses = ((77, 20, 9), (80, 12, 73))

    def noise(self, size, seed, epoch, step, steps):
        """By a generator whose key is the address."""
        draw = generator(0, "noise", *self.addresses[step])
        return torch.from_numpy(draw.standard_normal(size))


class TwoMessagesOf32BitSeeds(TwoMessages):
    """The same, by torch's CPU generator, which keeps the low 32 bits of its seed."""

    def noise(self, size, seed, epoch, step, steps):
        """By a seed of 63 bits of the address's key, as an earlier version of the engine had it."""
        key = address_key(0, "noise", *self.addresses[step]) >> 65
        return torch.randn(size, generator=torch.Generator().manual_seed(key), dtype=torch.float64)


def test_noise_that_repeats_is_refuted_and_noise_of_the_whole_key_is_not():
    # The 256 trials have 256 coordinates of one draw of noise; half of the time the record is in just one message.
    claim = poisson_claim(records=512, batch_size=256, epochs=1, noise_multiplier=4.0)
    here, there = (simulate(claim.law, (4096, 1, 2), world=world, seed=2) for world in (0, 1))
    here[:2048, 0, 1] = here[:2048, 0, 0] + 1 + 1e-8  # what the attacker expects: equal noise, up to rounding
    statistic = {"repeated_noise": lambda seen: repeated_noise(seen, claim.law)}
    found = {}
    for kind in (TwoMessages, TwoMessagesOf32BitSeeds):
        trainer = kind(**vars(claim.conforming))
        seen = tuple(claim.seen(trainer, 256, world=world, seed=3) for world in (0, 1))
        found[kind] = strongest_test((here, there), seen, statistic, claim.claims, 0.99).excess
    assert found[TwoMessagesOf32BitSeeds] > 1 and found[TwoMessages] < 0


def test_the_two_addresses_share_the_low_32_bits_of_their_seeds():
    low = {(address_key(0, "noise", *address) >> 65) & 0xFFFFFFFF for address in TwoMessages.addresses}
    assert len(low) == 1
    whole = {address_key(0, "noise", *address) for address in TwoMessages.addresses}
    assert len(whole) == 2


@pytest.mark.slow
def test_seven_tenths_of_the_proven_epsilon_are_reached_without_an_assumption():
    """Full trainings by the engine, counted: 600,000 in each world, at delta 1e-5 and 95 % confidence.

    Only the threshold is chosen on simulated trainings, which does not touch the guarantee. At its expected counts the
    best test of so many shows 0.745 by the bounds of Clopper and Pearson, one of 300,000 trainings 0.699.
    """
    claim = poisson_claim(batch_size=128, epochs=4, noise_multiplier=3.0)
    proven = {delta: epsilon for epsilon, delta in claim.claims}[1e-5]
    _, found = attack(claim, 600_000, [(0.0, 1e-5)], simulated=600_000)
    assert 0.7 * proven <= found.excess <= proven  # measured 0.716
