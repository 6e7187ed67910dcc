import numpy as np
import torch
from scipy import stats

from dpfl.mechanisms.noise import arsinh_noise


def test_an_infinite_scale_leaves_the_noise_alone():
    draws = torch.randn(5, 100, generator=torch.Generator().manual_seed(0))
    scales = torch.tensor([2.0, float("inf"), 0.5, float("inf"), 1.0])[:, None]
    changed = arsinh_noise(draws, scales)
    assert torch.equal(changed[[1, 3]], draws[[1, 3]])
    assert arsinh_noise(draws, torch.full((5, 1), float("inf"))) is draws
    np.testing.assert_allclose(changed[2], 0.5 * np.arcsinh(draws[2].numpy() / 0.5), rtol=1e-5)


def test_the_law_is_that_of_the_accountant():
    # The noise is below y with probability Phi(a sinh(y/a)/sigma): Kolmogorov-Smirnov at a false-alarm rate of 1e-6.
    sigma, scale = 1.3, 1.3
    draws = sigma * torch.randn(20_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    noise = arsinh_noise(draws, torch.tensor(scale, dtype=torch.float64)).numpy()
    assert stats.kstest(noise, lambda y: stats.norm.cdf(scale * np.sinh(y / scale) / sigma)).pvalue > 1e-6
    assert stats.kstest(noise, lambda y: stats.norm.cdf(y / sigma)).pvalue < 1e-6
