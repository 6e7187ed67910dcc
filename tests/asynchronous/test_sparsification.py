import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.asynchronous.async_sgd import largest_entries


@settings(max_examples=50, deadline=None)
@given(size=st.integers(1, 40), share=st.floats(0.01, 1.0), seed=st.integers(0, 5))
def test_what_is_kept_is_the_largest_and_unchanged(size, share, seed):
    update = torch.randn(2, size, generator=torch.Generator().manual_seed(seed))
    sent = largest_entries(update, share)
    kept = sent != 0
    assert kept.sum(1).tolist() == [int(np.ceil(share * size))] * 2
    assert torch.equal(sent[kept], update[kept])
    for row, mask in zip(update, kept, strict=True):
        if not mask.all():
            assert row[mask].abs().min() >= row[~mask].abs().max()


def test_everything_kept_is_the_update_itself():
    update = torch.randn(7)
    assert largest_entries(update, 1.0) is update


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5])
def test_a_share_out_of_range_is_named(share):
    with pytest.raises(ValueError, match="kept_share"):
        largest_entries(torch.ones(3), share)
