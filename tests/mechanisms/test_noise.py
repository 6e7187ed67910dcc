from __future__ import annotations

import pytest
import torch
from scipy import stats

from dpfl.mechanisms.noise import base_noise

CPU = torch.device("cpu")
# Kolmogorov-Smirnov at this level: a right generator fails with this probability, and 1 case in 500 billion in all
FALSE_ALARM = 1e-12


def _draw(dtype=torch.float32, **address) -> torch.Tensor:
    address = {"seed": 0, "client": 0, "epoch": 1, "step": 0, **address}
    return base_noise(50_000, **address, dtype=dtype, device=CPU)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_law_is_standard_normal(dtype):
    draws = _draw(dtype).double().numpy()
    assert stats.kstest(draws, "norm").pvalue > FALSE_ALARM
    for scale in (2 / 3, 3 / 2):
        assert stats.kstest(draws, "norm", args=(0, scale)).pvalue < FALSE_ALARM


def test_same_address_same_draws_and_other_addresses_are_uncorrelated():
    assert torch.equal(_draw(), _draw())
    for other in ({"seed": 1}, {"client": 1}, {"epoch": 2}, {"step": 1}):
        # correlation of independent draws: standard deviation 1/sqrt(50000) = 0.0045; 7 of them: false alarm 3e-12
        assert abs(torch.corrcoef(torch.stack([_draw(), _draw(**other)]))[0, 1]) < 7 * 0.0045


def test_every_coordinate_is_standard_normal_over_addresses():
    # First, last and some coordinates between: one wrong scale must not hide among the others. 8 tests at 1e-12 each.
    draws = [base_noise(101, seed=0, client=c, epoch=e, step=s, dtype=torch.float64, device=CPU)
             for c in range(10) for e in range(10) for s in range(30)]  # fmt: skip
    for coordinate in torch.stack(draws)[:, [0, 1, 15, 16, 50, 63, 99, 100]].T.numpy():
        assert stats.kstest(coordinate, "norm").pvalue > FALSE_ALARM
        for scale in (2 / 3, 3 / 2):
            assert stats.kstest(coordinate, "norm", args=(0, scale)).pvalue < FALSE_ALARM
