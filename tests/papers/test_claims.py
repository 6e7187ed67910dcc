"""Claims of every paper: each has a check, or says why it is pending."""

import pytest

from dpfl.catalog import keys, load, module


@pytest.mark.parametrize("paper", keys())
def test_every_claim_is_either_checked_or_pending(paper):
    claims, checks = load(paper).claims, module(paper, "claims").CLAIMS
    assert set(checks) <= set(claims)
    assert all((key in checks) != ("pending" in claim) for key, claim in claims.items())
