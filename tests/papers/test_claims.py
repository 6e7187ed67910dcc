"""Claims of every paper: each has the function that makes its cases, or says why it is pending."""

import pytest

from dpfl.catalog import keys, load
from dpfl.reporting.claims import check_of


@pytest.mark.parametrize("paper", keys())
def test_every_claim_is_either_checked_or_pending(paper):
    for key, claim in load(paper).claims.items():
        assert (check_of(paper, key) is None) == ("pending" in claim), key
