import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpfl.randomness import address_key, generator, torch_seed

ADDRESSES = st.tuples(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["partition", "batches", "noise"]),
    st.integers(0, 99),
    st.integers(0, 99),
    st.integers(0, 9999),
)


@given(ADDRESSES, ADDRESSES)
def test_different_addresses_have_different_keys(one, other):
    assert (address_key(*one) == address_key(*other)) == (one == other)


@given(ADDRESSES)
def test_a_torch_seed_fits_torch(address):
    assert 0 <= torch_seed(*address) < 2**63


def test_a_draw_depends_on_its_address_alone():
    first = generator(1, "noise", 2, 3, 4).standard_normal(5)
    generator(1, "noise", 2, 3, 5).standard_normal(1000)
    assert np.array_equal(generator(1, "noise", 2, 3, 4).standard_normal(5), first)


def test_draws_are_the_same_in_another_process():
    program = "from dpfl.randomness import generator; print(generator(7, 'noise', 1).integers(2**62))"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert int(told) == generator(7, "noise", 1).integers(2**62)


def test_first_draws_of_neighbouring_addresses_are_independent():
    """2,000 first draws along a client's steps: uniform by KS and uncorrelated; false alarm below 1e-6 each."""
    draws = np.array([generator(0, "noise", 1, 1, step).random() for step in range(2000)])
    assert stats.kstest(draws, "uniform").pvalue > 1e-6
    correlation = np.corrcoef(draws[:-1], draws[1:])[0, 1]
    assert abs(correlation) < stats.norm.isf(5e-7) / np.sqrt(len(draws))
