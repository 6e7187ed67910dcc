"""Records that are each other's hostile mates: what a right training shows, and planted faults."""

import math

import pytest
import torch
from scipy.stats import chi2, norm
from torch import nn

from dpfl.accounting.samplers import Sampling
from dpfl.attacks import hostile_mates
from dpfl.attacks.hostile_mates import ClientRun, hostile_mates_evidence
from dpfl.engine.networks import initialised
from dpfl.engine.per_record_gradients import StackedGradients

FALSE_ALARM = 1e-6
"""Chance that correct code fails one of the statistical tests below (their seeds are fixed)."""
NOISES = (0.5, 2.0)


def shown(**changes):
    """Four trainings of a network with a hidden layer, 20 epochs of 8 steps, on copies of one image of 6 pixels."""
    given = {
        "batch_size": 10, "sampling": Sampling.POISSON, "epochs": 20, "learning_rate": 0.2, "momentum": 0.5,
        "clip_norm": 0.5, "noise_multipliers": NOISES, "seed": 2,
    }  # fmt: skip
    module = initialised(lambda: nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)), 0)
    image = 10 * torch.tensor([1.0, -2.0, 0.5, 3.0, -1.0, 2.0])
    return hostile_mates_evidence(ClientRun(**given | changes), module, image, 80, 4)


def test_a_clipped_record_moves_a_step_by_the_clip_norm_through_the_stated_noise():
    for evidence, noise in zip(shown(), NOISES, strict=True):
        assert evidence.draws > 60  # of 640 steps, 0.37 draw one record
        far = norm.isf(FALSE_ALARM) * noise / math.sqrt(evidence.draws)
        assert abs(evidence.total / evidence.draws - 1) < far
        tails = chi2.ppf([FALSE_ALARM, 1 - FALSE_ALARM], evidence.values)
        assert tails[0] < evidence.squares / noise**2 < tails[1]


def test_without_noise_the_reach_is_the_clip_norm():
    [evidence] = shown(noise_multipliers=(0.0,))
    assert evidence.draws > 60 and evidence.total / evidence.draws == pytest.approx(1, abs=1e-3)
    assert evidence.squares < 1e-6 * evidence.values


def test_clipping_to_twice_the_norm_shows(monkeypatch):
    original = StackedGradients.__call__
    monkeypatch.setattr(StackedGradients, "__call__", lambda self, *given: 2 * original(self, *given))
    [evidence] = shown(noise_multipliers=(0.0,))
    assert evidence.total / evidence.draws == pytest.approx(2, abs=2e-3)


def test_half_the_noise_shows(monkeypatch):
    original = hostile_mates.base_noise
    monkeypatch.setattr(hostile_mates, "base_noise", lambda *size, **address: original(*size, **address) / 2)
    [evidence] = shown(noise_multipliers=(1.0,))
    assert evidence.squares / evidence.values == pytest.approx(0.25, rel=0.1)
