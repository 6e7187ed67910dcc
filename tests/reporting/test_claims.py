import pytest

from dpfl.catalog import keys, load, module
from dpfl.reporting.claims import Outcome, counted, write


@pytest.mark.parametrize(
    ("holds", "of", "outcome"),
    [(3, 3, Outcome.HOLDS), (2, 3, Outcome.IN_PART), (0, 3, Outcome.FAILS), (0, 0, Outcome.NOT_TESTABLE)],
)
def test_a_count_decides_the_outcome(holds, of, outcome):
    verdict = counted(holds, of, "columns")
    assert verdict.outcome is outcome and "columns" in verdict.evidence


@pytest.mark.parametrize("key", keys())
def test_every_claim_has_a_check_or_a_reason_and_not_both(key):
    checks, claims = module(key, "claims").CLAIMS, load(key).claims
    assert set(checks) <= set(claims)
    for name, claim in claims.items():
        assert claim["text"] and claim["settled_by"]
        assert (name in checks) != bool(claim.get("pending")), name


def test_verdicts_are_written_as_data_and_as_a_page(tmp_path):
    import pandas as pd

    row = {"paper": "p", "claim": "c", "text": "a < b", "settled_by": "s", "outcome": "holds", "evidence": "3 of 3"}
    csv, page = write("p", pd.DataFrame([row]), tmp_path)
    assert pd.read_csv(csv).to_dict("records") == [row]
    assert "a &lt; b" in page.read_text()
