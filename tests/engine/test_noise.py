import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpfl.engine.noise import arsinh_noise, base_noise, cuda_stream
from dpfl.randomness import address_key

CPU = torch.device("cpu")
FALSE_ALARM = 1e-12
"""Chance that a right generator fails one statistical test below."""


def _draw(size=50_000, dtype=torch.float32, **address) -> torch.Tensor:
    address = {"seed": 0, "client": 0, "epoch": 1, "step": 0, **address}
    return base_noise(size, **address, dtype=dtype, device=CPU)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_law_is_standard_normal(dtype):
    draws = _draw(dtype=dtype).double().numpy()
    assert stats.kstest(draws, "norm").pvalue > FALSE_ALARM
    for scale in (2 / 3, 3 / 2):
        assert stats.kstest(draws, "norm", args=(0, scale)).pvalue < FALSE_ALARM


def test_every_coordinate_is_standard_normal_over_addresses():
    # First, last and some coordinates between: one wrong scale must not hide among the others.
    draws = [_draw(101, client=c, epoch=e, step=s) for c in range(10) for e in range(10) for s in range(30)]
    for coordinate in torch.stack(draws).double()[:, [0, 1, 15, 16, 50, 51, 99, 100]].T.numpy():
        assert stats.kstest(coordinate, "norm").pvalue > FALSE_ALARM
        for scale in (2 / 3, 3 / 2):
            assert stats.kstest(coordinate, "norm", args=(0, scale)).pvalue < FALSE_ALARM


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_addresses_are_uncorrelated(dtype):
    """All pairs of 256 addresses that differ in seed, client, epoch or step; a repeat would have correlation 1."""
    size, bits = 4096, range(4)
    draws = torch.stack([_draw(size, dtype, seed=seed, client=client, epoch=epoch, step=step)
                         for seed in bits for client in bits for epoch in bits for step in bits])  # fmt: skip
    pairs = torch.corrcoef(draws.double())[tuple(torch.triu_indices(256, 256, 1))]
    assert pairs.abs().max() < stats.norm.isf(FALSE_ALARM / 2 / len(pairs)) / size**0.5
    assert stats.kstest(pairs.numpy() * size**0.5, "norm").pvalue > FALSE_ALARM


def test_the_same_address_has_the_same_bytes_whatever_is_drawn_between():
    first = _draw(777)
    _draw(10_000, step=3)
    assert torch.equal(_draw(777), first)


@given(st.integers(0, 2**128 - 1))
def test_a_gpus_stream_holds_124_bits_of_the_key(key):
    seed, offset = cuda_stream(key)
    assert 0 <= seed < 2**64 and 0 <= offset < 2**62 and offset % 4 == 0
    assert seed + (offset // 4 << 64) == key % 2**124


def test_an_infinite_scale_leaves_the_noise_alone():
    draws = _draw(500).view(5, 100)
    scales = torch.tensor([2.0, float("inf"), 0.5, float("inf"), 1.0])[:, None]
    changed = arsinh_noise(draws, scales)
    assert torch.equal(changed[[1, 3]], draws[[1, 3]])
    assert arsinh_noise(draws, torch.full((5, 1), float("inf"))) is draws
    np.testing.assert_allclose(changed[2], 0.5 * np.arcsinh(draws[2].numpy() / 0.5), rtol=1e-5)


def test_the_law_of_arsinh_noise_is_that_of_the_accountant():
    # The noise is below y with probability Phi(a sinh(y/a) / noise_std)
    noise_std, scale = 1.3, 1.3
    draws = noise_std * _draw(20_000, torch.float64)
    noise = arsinh_noise(draws, torch.tensor(scale, dtype=torch.float64)).numpy()
    assert stats.kstest(noise, lambda y: stats.norm.cdf(scale * np.sinh(y / scale) / noise_std)).pvalue > 1e-6
    assert stats.kstest(noise, lambda y: stats.norm.cdf(y / noise_std)).pvalue < 1e-6


class Stream:
    """What stands for a generator on a GPU: it notes how it is set, and is drawn from by `torch.randn` alone."""

    def __init__(self, device):
        self.device = device

    def manual_seed(self, seed):
        self.seed = seed
        return self

    def set_offset(self, offset):
        self.offset = offset


def test_on_a_gpu_the_address_s_stream_is_drawn_from_at_its_offset(monkeypatch):
    """The stream's place decides that two steps share no noise; tests/gpu draws from it on a real one."""
    monkeypatch.setattr(torch, "Generator", Stream)
    monkeypatch.setattr(torch, "randn", lambda size, generator, dtype, device: (size, generator, dtype, device))
    address = {"seed": 3, "client": 5, "epoch": 7, "step": 11}
    size, stream, dtype, device = base_noise(13, **address, dtype=torch.float64, device=torch.device("cuda"))
    key = address_key(3, "noise", 5, 7, 11)
    assert (stream.seed, stream.offset) == (key % 2**64, 4 * (key >> 64 & 2**60 - 1))
    assert (size, dtype, device, stream.device) == (13, torch.float64, torch.device("cuda"), torch.device("cuda"))
