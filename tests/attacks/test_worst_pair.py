import numpy as np
import pytest

from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Sampling
from dpfl.attacks.lower_bounds import worst_pair


@pytest.mark.parametrize(
    ("sampling", "neighbouring", "shifts"),
    [
        # Hostile mates contribute -1, so a drawn record adds 2 to a batch of them where it contributes +1.
        (Sampling.SHUFFLED, Neighbouring.ZERO_OUT, (2, 1)),
        (Sampling.SHUFFLED, Neighbouring.ADD_OR_REMOVE, (2, 1)),  # the removed record's slot stays empty
        (Sampling.SHUFFLED, Neighbouring.REPLACE_ONE, (2, 0)),
        (Sampling.BALLS_IN_BINS, Neighbouring.REPLACE_ONE, (1, -1)),
        (Sampling.FIXED, Neighbouring.REPLACE_ONE, (2, 0)),
        (Sampling.WITH_REPLACEMENT, Neighbouring.ZERO_OUT, (2, 1)),
        (Sampling.POISSON, Neighbouring.ZERO_OUT, (1, 0)),
        (Sampling.POISSON, Neighbouring.ADD_OR_REMOVE, (1, 0)),
        (Sampling.POISSON, Neighbouring.REPLACE_ONE, (1, -1)),
    ],
)
def test_what_a_step_gains_by_the_record(sampling, neighbouring, shifts):
    assert worst_pair(sampling, neighbouring).shifts == shifts


def test_gradients_differ_in_one_record_of_each_trial_and_are_clipped_to_the_pair():
    pair = worst_pair(Sampling.SHUFFLED, Neighbouring.ZERO_OUT)
    here, there = (pair.gradients(5, 3, world=world, clip_norm=2.0) for world in (0, 1))
    assert ((here != there) == np.eye(3, 5, dtype=bool)).all()
    clipped = np.clip(here, -2, 2)
    assert clipped.diagonal().tolist() == [2, 2, 2] and clipped.sum() == 2 * (3 - 12)
    assert there.diagonal().tolist() == [0, 0, 0]


def test_a_removed_record_is_gone_and_more_trials_than_records_are_refused():
    pair = worst_pair(Sampling.SHUFFLED, Neighbouring.ADD_OR_REMOVE)
    without = pair.gradients(5, 3, world=1, clip_norm=1.0)
    assert without.shape == (3, 4) and (without < -1).all()
    with pytest.raises(ValueError, match="trials"):
        pair.gradients(5, 6, world=0, clip_norm=1.0)
