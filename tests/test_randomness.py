"""Addresses, keys and streams; Philox is recomputed here from its definition (Salmon et al. 2011)."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpfl.randomness import address_key, generator, standard_normal

ADDRESSES = st.tuples(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["partition", "batches", "noise"]),
    st.integers(0, 99),
    st.integers(0, 99),
    st.integers(0, 9999),
)
MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
WEYL = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
FALSE_ALARM = 1e-9


def philox(low, high, block):
    """Return the 4 x 64 bits of one block, (4, n), for keys of two 64-bit halves (n,); numpy counts blocks from 1."""
    keys = [np.array(low, dtype=np.uint64), np.array(high, dtype=np.uint64)]
    counter = [np.full_like(keys[0], block + 1), *(np.zeros_like(keys[0]) for _ in range(3))]
    for _ in range(10):
        high0, low0 = _product(counter[0], MULTIPLIERS[0])
        high1, low1 = _product(counter[2], MULTIPLIERS[1])
        counter = [high1 ^ counter[1] ^ keys[0], low1, high0 ^ counter[3] ^ keys[1], low0]
        keys = [key + np.uint64(step) for key, step in zip(keys, WEYL, strict=True)]
    return np.stack(counter)


def _product(factor, constant):
    """Return the high and low 64 bits of the product."""
    mask, shift, constant = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(constant)
    parts = [(factor & mask) * (constant & mask), (factor >> shift) * (constant & mask)]
    parts += [(factor & mask) * (constant >> shift), (factor >> shift) * (constant >> shift)]
    middle = (parts[0] >> shift) + (parts[1] & mask) + (parts[2] & mask)
    return parts[3] + (parts[1] >> shift) + (parts[2] >> shift) + (middle >> shift), factor * constant


def halves(keys):
    """Return the low and high 64 bits of 128-bit keys."""
    return [key % 2**64 for key in keys], [key >> 64 for key in keys]


@given(ADDRESSES, ADDRESSES)
def test_different_addresses_have_different_keys(one, other):
    assert (address_key(*one) == address_key(*other)) == (one == other)


@given(ADDRESSES)
def test_a_generator_is_philox_with_the_whole_key(address):
    low, high = halves([address_key(*address)])
    expected = np.concatenate([philox(low, high, block)[:, 0] for block in range(3)])
    assert np.array_equal(generator(*address).bit_generator.random_raw(12), expected)


@pytest.mark.slow
def test_no_draw_is_repeated_on_2_to_the_20_addresses():
    """The first 128 bits of every stream differ. A seed of 32 bits would repeat about 128 of them, and is seen to."""
    keys = [address_key(0, "noise", client, epoch, step)
            for client in range(128) for epoch in range(64) for step in range(128)]  # fmt: skip
    first = philox(*halves(keys), 0)
    assert len(np.unique(first[:2].T.copy().view("V16"))) == 2**20
    short = philox([key % 2**32 for key in keys], np.zeros(2**20, dtype=np.uint64), 0)
    assert 80 < 2**20 - len(np.unique(short[:2].T.copy().view("V16"))) < 180  # Poisson(128): 1e-5


@pytest.mark.parametrize("size", [1, 2, 7, 8, 70_000])
def test_single_precision_is_box_and_mullers_transform_of_the_stream(size):
    out = np.empty(size, dtype=np.float32)
    standard_normal(out, 3, "noise", 1, 4, 1)
    expected, first = np.empty(size), 0
    bits = generator(3, "noise", 1, 4, 1).bit_generator
    while first < size:
        count = min(2**16, size - first)
        pairs = math.ceil(count / 2)
        words = bits.random_raw(pairs).view(np.uint32).astype(np.float64)
        radius = np.sqrt(-2 * np.log((words[:pairs] + 0.5) / 2**32))
        angle = 2 * np.pi * words[pairs:] / 2**32
        both = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
        expected[first : first + count] = both[:count]
        first += count
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-3)  # near radius 0 one rounding of u moves it by 3e-4
    assert np.abs(out - expected).mean() < 1e-6


def test_double_precision_is_the_generators():
    out = np.empty(11)
    standard_normal(out, 3, "noise", 1)
    assert np.array_equal(out, generator(3, "noise", 1).standard_normal(11))


@pytest.mark.parametrize("out", [np.empty(4, dtype=np.float16), np.empty((2, 2)), np.empty(8)[::2]])
def test_what_cannot_be_filled_is_named(out):
    with pytest.raises(ValueError, match="out"):
        standard_normal(out, 0, "noise")


def test_tails_are_those_of_a_normal_law():
    """Counts beyond 0 to 4.5 deviations among 4 million single-precision draws, two-sided binomial."""
    out = np.empty(2**22, dtype=np.float32)
    standard_normal(out, 0, "noise")
    for bound in np.arange(0, 4.6, 0.5):
        for beyond in ((out > bound).sum(), (out < -bound).sum()):
            assert stats.binomtest(int(beyond), len(out), stats.norm.sf(bound)).pvalue > FALSE_ALARM


def test_a_draw_depends_on_its_address_alone():
    first = generator(1, "noise", 2, 3, 4).standard_normal(5)
    generator(1, "noise", 2, 3, 5).standard_normal(1000)
    assert np.array_equal(generator(1, "noise", 2, 3, 4).standard_normal(5), first)


def test_draws_are_the_same_in_another_process():
    program = "from dpfl.randomness import generator; print(generator(7, 'noise', 1).integers(2**62))"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert int(printed) == generator(7, "noise", 1).integers(2**62)


def test_first_draws_of_neighbouring_addresses_are_independent():
    """2,000 first draws along a client's steps: uniform by KS and uncorrelated."""
    draws = np.array([generator(0, "noise", 1, 1, step).random() for step in range(2000)])
    assert stats.kstest(draws, "uniform").pvalue > FALSE_ALARM
    correlation = np.corrcoef(draws[:-1], draws[1:])[0, 1]
    assert abs(correlation) < stats.norm.isf(FALSE_ALARM / 2) / np.sqrt(len(draws))
