from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.mechanisms.clipping import clip_factors


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1e30), min_size=1, max_size=20), st.floats(1e-3, 1e3))
def test_scaled_norms_stay_in_the_ball_and_small_ones_keep_their_size(norms, clip_norm):
    norms = torch.tensor(norms, dtype=torch.float64)
    factors = clip_factors(norms, clip_norm)
    assert bool((factors * norms <= clip_norm * (1 + 1e-15)).all())  # to the rounding of the product
    assert bool((factors[norms <= clip_norm - 1e-5] == 1).all())
    assert bool((factors > 0).all())


def test_an_infinite_norm_bound_changes_nothing():
    assert clip_factors(torch.tensor([0.0, 1.0, 1e30]), math.inf).tolist() == [1, 1, 1]


def test_a_gradient_that_is_not_finite_is_not_hidden():
    assert math.isnan(clip_factors(torch.tensor(math.nan), 1.0).item())
