"""What an attacker sees of a claimed training has the law that its statistics assume."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ks_2samp

from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Sampling
from dpfl.attacks.claimed_training import ClaimedTraining
from dpfl.attacks.lower_bounds import log_likelihood_ratio, simulate
from dpfl.engine.batches import BatchSampler

SETTINGS = {
    "sampler": BatchSampler(Sampling.SHUFFLED, 8, 20), "neighbouring": Neighbouring.ZERO_OUT, "epochs": 2,
    "clip_norm": 0.5, "noise_multiplier": 1.2, "claims": (),
}  # fmt: skip


@pytest.mark.parametrize("world", [0, 1])
@pytest.mark.parametrize("neighbouring", list(Neighbouring))
@pytest.mark.parametrize("sampling", [Sampling.SHUFFLED, Sampling.POISSON, Sampling.BALLS_IN_BINS])
def test_the_engine_s_training_is_seen_by_the_law_that_is_simulated(sampling, neighbouring, world):
    # The last batch of a shuffled epoch is shorter than others, so the record is in it less often: 1 in 5, not 1 in 3;
    # the ratio treats steps alike. 18 comparisons, each with a false-alarm rate of 1e-4.
    claim = ClaimedTraining(**SETTINGS | {"sampler": BatchSampler(sampling, 8, 20), "neighbouring": neighbouring})
    seen = claim.seen(claim.conforming, 1500, world=world, seed=4)
    assert seen.shape == (1500, 2, 3)
    simulated = simulate(claim.law, (6000, 2, 3), world=world, seed=1)
    assert ks_2samp(*(log_likelihood_ratio(each, claim.law) for each in (seen, simulated))).pvalue > 1e-4


@pytest.mark.parametrize("neighbouring", [Neighbouring.ZERO_OUT, Neighbouring.ADD_OR_REMOVE])
def test_without_noise_the_record_is_seen_in_clip_norms(neighbouring):
    quiet = ClaimedTraining(**SETTINGS | {"noise_multiplier": 0.0, "neighbouring": neighbouring})
    for world, shift in ((0, 2), (1, 1)):
        seen = quiet.seen(quiet.conforming, 25, world=world, seed=0)
        np.testing.assert_allclose(np.sort(seen, axis=-1), np.broadcast_to([0, 0, shift], seen.shape), atol=1e-7)


def test_stacks_and_worlds_have_seeds_of_their_own():
    seeds = []

    def trainer(gradients, seed):
        seeds.append(seed)
        return np.zeros((len(gradients), 2, 3))

    claim = ClaimedTraining(**SETTINGS)
    for seed in (0, 1):
        for world in (0, 1):
            assert claim.seen(trainer, 50, world=world, seed=seed).shape == (50, 2, 3)
    assert sorted(seeds) == list(range(12))  # 20 trials a stack, three stacks


@pytest.mark.parametrize(
    "wrong",
    [{"epochs": 0}, {"clip_norm": 0.0}, {"noise_multiplier": -1.0}, {"sampler": BatchSampler(Sampling.FIXED, 2, 4)}],
)
def test_fields_are_named(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(ClaimedTraining(**SETTINGS), **wrong)
