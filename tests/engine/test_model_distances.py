import math

import pytest
import torch

from dpfl.engine.sgd import StackedHyperparameters, distances, references

SCHEDULES = ((2, 1), (2, 1), (2, 1), (3,), (2, 1))
VARIANTS = StackedHyperparameters(
    torch.tensor([1.0, math.inf, 1.0, math.inf, math.inf]), torch.tensor([[1.0, 0, 0, 0, 0]] * 2)
)


def test_references_have_no_noise_and_the_same_schedule():
    both = {"plain": 1, "noiseless": 2}
    assert references(VARIANTS, SCHEDULES) == [both, both, both, {"plain": 3}, both]


def test_a_variant_with_noise_on_any_client_is_no_reference():
    noise = torch.tensor([[0.0, 0.0], [0.0, 1.0]])
    assert references(StackedHyperparameters(torch.ones(2), noise), ((1,), (1,))) == [{"noiseless": 0}] * 2


def test_distances_of_known_vectors():
    """Two clients, private at (3, 4) and (-3, 4), reference at 0: each 5 away, their average 4."""
    trained = torch.zeros(2, 2, 2)
    trained[:, 0] = torch.tensor([[3.0, 4.0], [-3.0, 4.0]])
    found = distances(trained, [0, 7], [{"plain": 7}, *[{}] * 7])
    assert found == [{"distance_to_plain": pytest.approx(4), "local_distance_to_plain": pytest.approx(5)}, {}]
