"""Claimed trainings: what an attacker sees, checks of right trainers, and an oracle that trains as the engine does."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chi2, ks_2samp, kstest
from torch import nn

from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Sampling
from dpfl.attacks.claimed_training import (
    CONFIDENCE,
    ChosenGradients,
    ClaimedTraining,
    OracleTraining,
    check,
    independent_statistics,
)
from dpfl.attacks.lower_bounds import log_likelihood_ratio, simulate
from dpfl.attacks.planted_faults import SeedReused, poisson_claim
from dpfl.engine.batches import BatchSampler
from dpfl.engine.per_record_gradients import PerRecordGradients, StackedGradients
from dpfl.engine.sgd import SGD, StackedHyperparameters, base_noise

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


@pytest.mark.parametrize("neighbouring", list(Neighbouring))
@pytest.mark.parametrize("sampling", [Sampling.SHUFFLED, Sampling.POISSON])
def test_a_place_that_all_trials_of_a_stack_miss_is_not_averaged_over_epochs(sampling, neighbouring):
    claim = ClaimedTraining(**SETTINGS | {"sampler": BatchSampler(sampling, 8, 20), "neighbouring": neighbouring})
    shared = sampling is Sampling.SHUFFLED and neighbouring is Neighbouring.ADD_OR_REMOVE
    assert ("repeated_batches" in independent_statistics(claim)) is not shared


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


# Right trainers are not accused, and what a check finds names the statistic that gave a fault away.


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


# The oracle trains as the engine does: against its record-by-record rule, and against sums and laws written out.


class Linear(nn.Module):
    """A module whose output is its weights' product with the input: with that as loss, the gradient is the input."""

    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(features, dtype=torch.float64))

    def forward(self, x):
        """x . w of each record."""
        return x @ self.weight


def engine_rule(features):
    """The engine's own rule, record by record, for gradients that are inputs."""
    return PerRecordGradients(Linear(features), lambda prediction, label: prediction)


def training(sampling=Sampling.SHUFFLED, epochs=2, noise_multiplier=0.0):
    """A training of 12 records in 3 steps."""
    return OracleTraining(BatchSampler(sampling, 4, 12), epochs, 1.0, noise_multiplier)


def test_each_model_s_sum_is_that_of_the_engine_s_rule_along_its_coordinate():
    draw = torch.Generator().manual_seed(0)
    gradients = 3 * torch.randn(6, 3, generator=draw, dtype=torch.float64)
    present = torch.tensor([1, 1, 0, 1, 1, 1.0], dtype=torch.float64)
    clips = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)
    labels = torch.zeros(6)
    sums = ChosenGradients().clipped_sums(torch.zeros(3, 3), (gradients, labels, present), clips)
    for model in range(3):
        inputs = torch.zeros(6, 3, dtype=torch.float64)
        inputs[:, model] = gradients[:, model]
        batch = (inputs, labels, present)
        torch.testing.assert_close(
            sums[model], engine_rule(3).clipped_sums(torch.zeros(1, 3).double(), batch, clips[[model]])[0]
        )


@pytest.mark.parametrize("sampling", [Sampling.SHUFFLED, Sampling.POISSON, Sampling.BALLS_IN_BINS])
def test_one_trial_is_the_engine_s_training_of_one_model(sampling):
    trained = training(sampling, noise_multiplier=0.7)
    gradients = np.random.default_rng(0).normal(size=(1, 12))
    inputs = torch.from_numpy(gradients.T.copy())
    stacked = StackedGradients(engine_rule(1), inputs[0], 2**30)
    sgd = SGD(stacked, StackedHyperparameters(torch.ones(1), torch.full((1,), 0.7)), 1.0, 0.0)
    weights, velocity = torch.zeros(2, 1, 1, 1, dtype=torch.float64)
    for epoch in (1, 2):
        batches = trained.sampler.epoch(epoch, seed=5, client=0)

        def noise(group, step, epoch=epoch):
            address = {"seed": 5, "client": 0, "epoch": epoch, "step": step}
            return base_noise(1, **address, dtype=torch.float64, device=torch.device("cpu"))

        sgd.epoch(weights, velocity, (inputs, torch.zeros(12)), [batches], [4], noise)
    seen = trained(gradients, 5)
    assert seen.shape == (1, 2, 3)
    assert seen.sum() == pytest.approx(-weights.item(), rel=1e-6)  # the multipliers there are in single precision


def test_without_noise_an_epoch_adds_up_to_every_record_once():
    gradients = np.where(np.eye(12), 50.0, -50.0)
    np.testing.assert_allclose(training()(gradients, 1).sum(-1), (1 - 11) / 4, rtol=1e-6)


def test_noise_is_normal_and_independent_between_trials_and_steps():
    # Two tests of 9600 draws, each with a false-alarm rate of 1e-4.
    seen = 4 * training(noise_multiplier=1.5, epochs=400)(np.zeros((8, 12)), 3)
    assert kstest(seen.ravel() / 1.5, "norm").pvalue > 1e-4
    correlations = np.corrcoef(seen.reshape(8, -1))[np.triu_indices(8, 1)]
    assert chi2.sf(seen[0].size * np.square(correlations).sum(), len(correlations)) > 1e-4
