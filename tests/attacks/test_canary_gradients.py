"""What canaries add to training, and what is read off: against sums written out."""

import math

import numpy as np
import torch
from torch import nn

from dpfl.accounting.samplers import Sampling
from dpfl.attacks.canaries import CanaryGradients, ClientRun, image_scores
from dpfl.attacks.one_run import coins
from dpfl.engine.per_record_gradients import gradient_rule

CLASSES, FEATURES, CANARIES = 3, 4, 5


def rule(included):
    """The gradients of a linear model on 4 features, without and with 5 canaries."""

    def loss(logits, y):
        return nn.functional.cross_entropy(logits, y, reduction="none")

    inner = gradient_rule(model(), loss, torch.zeros(FEATURES))
    return inner, CanaryGradients(inner, CLASSES, torch.tensor(included))


def model():
    """A linear model that starts at 0."""
    module = nn.Linear(FEATURES, CLASSES)
    nn.init.zeros_(module.weight), nn.init.zeros_(module.bias)
    return module


def batch(labels, present=None):
    """A batch of random records; those of canaries have inputs 0."""
    torch.manual_seed(0)
    y = torch.tensor(labels)
    x = torch.randn(16, FEATURES)[: len(y)]
    x[y >= CLASSES] = 0
    return x, y, torch.tensor(present or [1.0] * len(labels))


def test_a_canary_that_is_in_pulls_by_the_clip_norm_and_nothing_else_changes():
    inner, own = rule([1.0, 0.0, 1.0, 1.0, 1.0])
    size = (FEATURES + 1) * CLASSES
    weights = torch.randn(2, size + CANARIES)
    clips = torch.tensor([0.5, 2.0])
    without = inner.clipped_sums(weights[:, :size], batch([0, 2, 1]), clips)
    # Records: three real, canary 0 (in), canary 1 (out), canary 2 twice (in, and once not present).
    sums = own.clipped_sums(weights, batch([0, 2, 1, 3, 4, 5, 5], [1.0] * 6 + [0.0]), clips)
    torch.testing.assert_close(sums[:, :size], without)
    torch.testing.assert_close(sums[:, size:], clips[:, None] * torch.tensor([1.0, 0, 1, 0, 0]))


def run(noise, **changes):
    """One client's training."""
    given = {"batch_size": 6, "sampling": Sampling.SHUFFLED, "epochs": 2, "learning_rate": 0.25, "momentum": 0.0,
             "clip_norm": 2.0, "noise_multipliers": noise, "seed": 3}  # fmt: skip
    return ClientRun(**given | changes)


def test_without_noise_and_momentum_a_score_is_the_number_of_steps_times_step_and_clip_norm():
    included = np.array([1, 0, 1, 0, 1])
    inputs, labels = torch.randn(7, FEATURES), torch.randint(0, CLASSES, (7,))
    scores = image_scores(run((0.0, 0.0)), model(), inputs, labels, CLASSES, included)
    # 12 records in two batches of 6: each is in one a epoch, and a step is 0.25 * 2 / 6.
    np.testing.assert_allclose(scores, np.tile(included * 2 * 0.25 * 2.0 / 6, (2, 1)), atol=1e-6)


def test_noise_hides_canaries_by_its_size():
    bits = coins(0, 200)
    inputs, labels = torch.zeros(10, FEATURES), torch.zeros(10, dtype=torch.int64)
    scores = image_scores(run((0.3, 30.0), batch_size=210, epochs=1), model(), inputs, labels, CLASSES, bits)
    far, near = (own[bits == 1].mean() - own[bits == 0].mean() for own in scores / 0.25 * 210 / 2)
    # Differences of two means of about 100 normal scores: 1 +- 0.3/sqrt(50), 1 +- 30/sqrt(50); six deviations.
    assert abs(far - 1) < 6 * 0.3 / math.sqrt(50) and abs(near - 1) < 6 * 30 / math.sqrt(50)


def test_coins_are_fair_and_addressed():
    assert coins(1, 50).tolist() == coins(1, 50).tolist() != coins(2, 50).tolist()
    assert abs(coins(0, 10_000).mean() - 0.5) < 0.02  # four deviations
