from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpfl.accounting.samplers import Sampling
from dpfl.engine.batches import epoch_batches, expected_batch_size, steps_per_epoch
from dpfl.errors import InputError


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 500), st.integers(1, 700), st.integers(0, 5))
def test_shuffled_epochs_use_every_record_once(records, batch_size, epoch):
    batches = epoch_batches(records, batch_size, Sampling.SHUFFLED, seed=1, client=2, epoch=epoch)
    assert len(batches) == steps_per_epoch(records, batch_size)
    assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
    assert sorted(np.concatenate(batches)) == list(range(records))


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_expected_batch_size_is_the_exact_floor_and_never_zero(records, batch_size):
    steps = steps_per_epoch(records, batch_size)
    assert (
        expected_batch_size(records, batch_size) * steps
        <= records
        < (expected_batch_size(records, batch_size) + 1) * steps
    )
    assert expected_batch_size(records, batch_size) >= 1


def test_the_papers_setting():
    assert steps_per_epoch(6000, 64) == 94
    assert expected_batch_size(6000, 64) == int(6000 * (1 / 94)) == 63


def test_poisson_batches_have_the_law_of_independent_coins():
    records, batch_size = 40, 8
    epochs = [epoch_batches(records, batch_size, Sampling.POISSON, seed=3, client=0, epoch=e) for e in range(2000)]
    sizes = np.array([len(batch) for epoch in epochs for batch in epoch])
    assert sizes.min() == 0 or sizes.min() < 3
    law = stats.binom(records, 1 / 5)
    edges = np.arange(3, 15)  # cells of at least 50 expected counts
    seen = np.histogram(np.clip(sizes, 3, 14), bins=np.append(edges, 15))[0]
    mass = np.diff(np.concatenate([[0], law.cdf(edges[:-1]), [1]]))
    # chi-square: false alarm 1e-9
    assert stats.chisquare(seen, mass * len(sizes)).pvalue > 1e-9
    use = np.bincount(np.concatenate([batch for epoch in epochs for batch in epoch]), minlength=records)
    assert stats.chisquare(use).pvalue > 1e-9
    assert all(len(set(batch)) == len(batch) for batch in epochs[0])


def test_empty_poisson_batches_occur_and_are_kept():
    epochs = [epoch_batches(2, 1, Sampling.POISSON, seed=0, client=0, epoch=e) for e in range(50)]
    assert all(len(epoch) == 2 for epoch in epochs)
    assert any(len(batch) == 0 for epoch in epochs for batch in epoch)


def test_draws_are_addressed():
    def order(**address):
        address = {"seed": 0, "client": 0, "epoch": 0, **address}
        return epoch_batches(50, 50, Sampling.SHUFFLED, **address)[0].tolist()

    assert order() == order()
    assert len({tuple(order(**other)) for other in ({}, {"seed": 1}, {"client": 1}, {"epoch": 1})}) == 4


def test_refuses_other_samplings():
    with pytest.raises(InputError, match="full_batch"):
        epoch_batches(5, 2, Sampling.FULL, seed=0, client=0, epoch=0)
