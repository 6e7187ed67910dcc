import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.data_loader import DPDataLoader
from scipy import stats
from torch.utils.data import DataLoader, TensorDataset

from dpfl.accounting.samplers import BallsInBins, FixedBatches, Poisson, Sampling, ShuffledEpochs
from dpfl.engine import batches as engine_batches
from dpfl.engine.batches import BatchSampler, accounted_sampler, batch_and_noise

FALSE_ALARM = 1e-9
"""Chance that a right sampler fails one statistical test below (the seeds are fixed)."""
KINDS = Sampling.POISSON, Sampling.BALLS_IN_BINS, Sampling.SHUFFLED, Sampling.FIXED


def samplers(*kinds):
    return st.builds(BatchSampler, st.sampled_from(kinds), st.integers(1, 700), st.integers(2, 500))


def drawn(sampler: BatchSampler, epoch: int = 0, **address) -> list[list[int]]:
    address = {"seed": 1, "client": 2, **address}
    return [batch.tolist() for batch in sampler.epoch(epoch, **address)]


@settings(max_examples=100, deadline=None)
@given(samplers(*KINDS), st.integers(0, 5))
def test_every_epoch_has_its_steps_and_no_record_twice_in_one(sampler, epoch):
    batches = drawn(sampler, epoch)
    assert len(batches) == sampler.steps_per_epoch == int(np.ceil(sampler.public_records / sampler.batch_size))
    for batch in batches:
        assert len(set(batch)) == len(batch) and set(batch) <= set(range(sampler.public_records))


@settings(max_examples=100, deadline=None)
@given(samplers(Sampling.SHUFFLED, Sampling.BALLS_IN_BINS))
def test_shuffled_and_thrown_epochs_use_every_record_once(sampler):
    assert sorted(record for batch in drawn(sampler) for record in batch) == list(range(sampler.public_records))


@settings(max_examples=50, deadline=None)
@given(samplers(Sampling.SHUFFLED, Sampling.FIXED))
def test_batches_of_a_fixed_size_have_it(sampler):
    sizes = [len(batch) for batch in drawn(sampler)]
    whole = sizes if sampler.sampling is Sampling.FIXED else sizes[:-1]
    size = min(sampler.batch_size, sampler.public_records)
    assert set(whole) <= {size} and max(sizes) == size


@settings(max_examples=100, deadline=None)
@given(samplers(*KINDS))
def test_neighbours_with_n_and_n_minus_1_records_have_one_rate_one_divisor_and_the_same_batches_else(sampler):
    n = sampler.public_records
    all_records = drawn(sampler)
    without = [batch.tolist() for batch in sampler.epoch(0, seed=1, client=2, records=n - 1)]
    assert without == [[record for record in batch if record != n - 1] for batch in all_records]


def test_the_papers_setting():
    for kind in KINDS:
        sampler = BatchSampler(kind, 64, 6000)
        assert (sampler.steps_per_epoch, sampler.divisor) == (94, 64 if kind is Sampling.FIXED else 63)
    opacus = DPDataLoader.from_data_loader(DataLoader(TensorDataset(torch.zeros(6000)), batch_size=64))
    assert BatchSampler(Sampling.POISSON, 64, 6000).sample_rate == opacus.sample_rate == 1 / 94
    assert BatchSampler(Sampling.BALLS_IN_BINS, 64, 6000).sample_rate == 1 / 94
    for records, batch_size in ((6000, 64), (5000, 64), (60_000, 640), (6400, 64), (50, 64), (90, 64)):
        loader = DataLoader(TensorDataset(torch.zeros(records)), batch_size=batch_size)
        expected = int(records * DPDataLoader.from_data_loader(loader).sample_rate + 1e-9)  # as PrivacyEngine has it
        assert BatchSampler(Sampling.POISSON, batch_size, records).divisor == expected


def test_a_fixed_order_is_the_same_in_every_epoch_and_only_for_batches_that_are_cut():
    fixed = BatchSampler(Sampling.SHUFFLED, 8, 20, fixed_order=True)
    assert drawn(fixed, 1) == drawn(fixed, 2, seed=9) == [list(range(8)), list(range(8, 16)), list(range(16, 20))]
    with pytest.raises(ValueError, match="fixed_order"):
        BatchSampler(Sampling.POISSON, 8, 20, fixed_order=True)


@pytest.mark.parametrize("kind", KINDS)
def test_records_are_used_at_the_stated_rate_and_independently_of_one_another(kind):
    """Counts of 32 records and of a pair of them in the first step of 3,000 epochs."""
    sampler = BatchSampler(kind, 8, 32)
    used = np.zeros((3000, 32))
    for epoch in range(len(used)):
        used[epoch, drawn(sampler, epoch)[0]] = 1
    for count in used.sum(axis=0).astype(int):
        assert stats.binomtest(int(count), len(used), sampler.sample_rate).pvalue > FALSE_ALARM
    both = int((used[:, 3] * used[:, 17]).sum())
    rate = sampler.sample_rate**2
    if kind in (Sampling.SHUFFLED, Sampling.FIXED):  # of a batch of fixed size
        rate = sampler.sample_rate * 7 / 31
    assert stats.binomtest(both, len(used), rate).pvalue > FALSE_ALARM


@pytest.mark.parametrize("kind", [Sampling.POISSON, Sampling.BALLS_IN_BINS])
def test_sizes_of_random_batches_have_their_law(kind):
    """Chi-square of batch sizes: Binomial(n, rate) for coins, and in each bin."""
    sampler = BatchSampler(kind, 8, 40)
    sizes = np.array([len(drawn(sampler, epoch, seed=3)[-1]) for epoch in range(5000)])
    law, edges = stats.binom(40, sampler.sample_rate), np.arange(3, 15)  # cells of at least 50 expected counts
    observed = np.histogram(np.clip(sizes, 3, 14), bins=np.append(edges, 15))[0]
    mass = np.diff(np.concatenate([[0], law.cdf(edges[:-1]), [1]]))
    assert stats.chisquare(observed, mass * len(sizes)).pvalue > FALSE_ALARM


def test_a_record_falls_into_bins_uniformly_anew_each_epoch_and_apart_from_others():
    sampler = BatchSampler(Sampling.BALLS_IN_BINS, 8, 40)
    bins = np.empty((4000, 40), dtype=int)
    for epoch in range(len(bins)):
        for step, batch in enumerate(drawn(sampler, epoch)):
            bins[epoch, batch] = step
    for one, other in ((bins[:-1, 0], bins[1:, 0]), (bins[:, 0], bins[:, 1])):
        table = stats.contingency.crosstab(one, other).count
        assert table.shape == (5, 5) and stats.chisquare(table.ravel()).pvalue > FALSE_ALARM


def test_empty_batches_occur_and_are_kept():
    for kind in (Sampling.POISSON, Sampling.BALLS_IN_BINS):
        epochs = [drawn(BatchSampler(kind, 1, 2), epoch) for epoch in range(50)]
        assert all(len(batches) == 2 for batches in epochs)
        assert any(not batch for batches in epochs for batch in batches)


@pytest.mark.parametrize("kind", KINDS)
def test_draws_are_addressed(kind):
    sampler = BatchSampler(kind, 25, 50)
    assert drawn(sampler) == drawn(sampler)
    others = [drawn(sampler), drawn(sampler, seed=5), drawn(sampler, client=5), drawn(sampler, 5)]
    assert len({str(batches) for batches in others}) == 4


def test_arguments_out_of_range_are_named():
    for name, arguments in (
        ("sampling", (Sampling.FULL, 2, 5)),
        ("batch_size", (Sampling.POISSON, 0, 5)),
        ("public_records", (Sampling.POISSON, 2, 0)),
    ):
        with pytest.raises(ValueError, match=name):
            BatchSampler(*arguments)
    with pytest.raises(ValueError, match="records: 6"):
        BatchSampler(Sampling.SHUFFLED, 2, 5).epoch(0, seed=0, client=0, records=6)


def test_a_step_of_fixed_size_and_its_noise_are_addressed():
    rows, noise = batch_and_noise(3, 1, 2, 4, records=50, batch_size=10, features=7)
    again = batch_and_noise(3, 1, 2, 4, records=50, batch_size=10, features=7)
    assert len(set(rows.tolist())) == 10 and noise.shape == (7,)
    assert np.array_equal(rows, again[0]) and np.array_equal(noise, again[1])
    assert not np.array_equal(noise, batch_and_noise(3, 1, 2, 5, records=50, batch_size=10, features=7)[1])


def test_the_accountants_know_every_sampling_that_is_drawn():
    """100 records in batches of 7; for a client with fewer records than a batch, the batch is its records."""
    known = {
        Sampling.POISSON: (Poisson(1 / 15), Poisson(1.0)),
        Sampling.BALLS_IN_BINS: (BallsInBins(15), BallsInBins(1)),
        Sampling.SHUFFLED: (ShuffledEpochs(7, 100), ShuffledEpochs(3, 3)),
        Sampling.FIXED: (FixedBatches(7, 100), FixedBatches(3, 3)),
    }
    assert set(known) == set(engine_batches._BY_EPOCH)
    for sampling, expected in known.items():
        assert tuple(accounted_sampler(BatchSampler(sampling, 7, records)) for records in (100, 3)) == expected
        assert expected[0].sampling is sampling


def test_a_sampling_without_an_accountant_is_refused(monkeypatch):
    """A new way of drawing, which nobody told the accountants of, never passes for another one."""
    monkeypatch.setattr(engine_batches, "_BY_EPOCH", tuple(Sampling))
    for sampling in (Sampling.FULL, Sampling.WITH_REPLACEMENT):
        with pytest.raises(ValueError, match=f"sampling: {sampling} batches have no accountant"):
            accounted_sampler(BatchSampler(sampling, 7, 100))
