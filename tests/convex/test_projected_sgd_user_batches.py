import numpy as np
import pytest
from scipy import stats

from dpfl.accounting.samplers import Sampling
from dpfl.convex.problems import FactoredRecords
from dpfl.convex.projected_sgd import BLOCK, UserSampling, batches

FALSE_ALARM = 1e-6
SEEDS = (0, 5, 9)
RECORDS = FactoredRecords.of(np.arange(1.0, 61.0)[:, None], np.zeros(60))


def drawn(draw: UserSampling, users: int, size: int, blocks: int = 1) -> np.ndarray:
    """Which records (0..59) the rounds read, (seeds, rounds, batch)."""
    source = batches(RECORDS, draw, SEEDS, users, size)
    return np.concatenate([source(block).norms for block in range(blocks)], axis=1).astype(int) - 1


def test_one_pass_takes_every_user_once():
    rounds = drawn(UserSampling.ONE_PASS, 48, 2)[:, :24]
    for own in rounds:
        assert sorted(own.ravel()) == list(range(48))
    assert not np.array_equal(rounds[0], rounds[1])


def test_fresh_batches_hold_no_user_twice_and_favour_none():
    rounds = drawn(UserSampling.FRESH, 30, 6, blocks=40)
    assert all(len(set(batch)) == 6 for batch in rounds.reshape(-1, 6))
    counts = np.bincount(rounds.ravel(), minlength=30)
    # Without replacement counts vary less than multinomial ones: the test errs on the quiet side.
    assert stats.chisquare(counts).pvalue > FALSE_ALARM
    assert set(rounds.ravel()) == set(range(30))


@pytest.mark.parametrize(("draw", "population"), [(UserSampling.NEW_USERS, 60), (UserSampling.WITH_REPLACEMENT, 30)])
def test_slots_are_uniform_and_independent(draw, population):
    rounds = drawn(draw, 30, 4, blocks=40)
    assert stats.chisquare(np.bincount(rounds.ravel(), minlength=population)).pvalue > FALSE_ALARM
    pairs = rounds[..., 0] * population + rounds[..., 1]
    repeats = (rounds[..., 0] == rounds[..., 1]).sum()
    assert stats.binomtest(int(repeats), pairs.size, 1 / population).pvalue > FALSE_ALARM


def test_a_block_does_not_depend_on_those_before():
    source, again = (batches(RECORDS, UserSampling.FRESH, SEEDS, 60, 3) for _ in range(2))
    source(0)
    assert np.array_equal(source(4).norms, again(4).norms)
    assert source(4).direction.shape == (3, BLOCK, 3, 1)


def test_samplings_and_participation():
    assert [draw.sampling for draw in UserSampling] == [
        Sampling.SHUFFLED, Sampling.SHUFFLED, Sampling.FIXED, Sampling.WITH_REPLACEMENT,
    ]  # fmt: skip
    assert [draw.once for draw in UserSampling] == [True, True, False, False]
