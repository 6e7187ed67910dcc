"""The trainer of docs/howto/trainer.md, Opacus's own parts, goes through the attacks: right, and wrong in two ways."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dpfl.accounting.samplers import Sampling
from dpfl.attacks.claimed_training import check
from dpfl.engine.batches import BatchSampler

PAGE = Path(__file__).parents[2] / "docs/howto/trainer.md"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Secure RNG|Using a non-full backward hook"),
]


@pytest.fixture(scope="module")
def example() -> dict:
    """What the code of the page defines."""
    names: dict = {}
    exec(re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL).group(1), names)
    return names


def test_the_right_trainer_of_the_page_is_not_accused(example):
    assert example["evidence"].excess == pytest.approx(-0.23, abs=0.1)


def test_half_the_noise_is_found(example):
    trainer = example["OpacusTraining"]()
    trainer.noise_multiplier = 0.4
    assert check(trainer, example["claim"], trials=400).excess == pytest.approx(0.50, abs=0.1)


def test_poisson_epsilons_on_shuffled_batches_are_refuted(example):
    class Shuffled(example["OpacusTraining"]):
        def batches(self, records, generator):
            return torch.randperm(records, generator=generator).split(self.batch_size)

    claim = replace(example["claim"], sampler=BatchSampler(Sampling.SHUFFLED, 8, 64))
    assert check(Shuffled(), claim, trials=1000).excess == pytest.approx(0.30, abs=0.1)
