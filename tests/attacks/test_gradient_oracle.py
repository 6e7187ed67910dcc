"""The oracle trains as the engine does: against its record-by-record rule, and against sums and laws written out."""

import numpy as np
import pytest
import torch
from scipy.stats import chi2, kstest
from torch import nn

from dpfl.accounting.samplers import Sampling
from dpfl.attacks.claimed_training import ChosenGradients, OracleTraining
from dpfl.engine.batches import BatchSampler
from dpfl.engine.noise import base_noise
from dpfl.engine.per_record_gradients import PerRecordGradients, StackedGradients
from dpfl.engine.sgd import SGD, StackedHyperparameters


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
