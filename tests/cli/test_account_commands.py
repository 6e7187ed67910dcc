"""`dpfl account`: one line of a table, exit 1 where the claim is refuted, one line of error for wrong options."""

from __future__ import annotations

import sys

import pytest

from dpfl.cli import main

RUN = ["--noise-multiplier", "1.0072", "--steps", "1880", "--delta", "1e-5"]


@pytest.fixture
def account(monkeypatch, capsys):
    """A function that runs `dpfl account` with options and returns its status, output and errors."""

    def run(*options: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dpfl", "account", *options])
        with pytest.raises(SystemExit) as caught:
            main()
        return caught.value.code or 0, *capsys.readouterr()

    return run


def test_a_shuffled_claim_is_refuted(account):
    shuffled = ["--sampler", "shuffled_epochs", "--batch-size", "64", "--records", "6000"]
    status, output, _ = account(*shuffled, *RUN, "--claimed-epsilon", "2.93")
    assert status == 1
    header, row = output.strip().splitlines()
    cells = dict(zip(header.split(" | "), row.split(" | "), strict=True))
    assert cells["claimed"] == "2.93 (refuted)"
    assert float(cells["proven"]) == pytest.approx(28.096, abs=1e-3)
    assert float(cells["at least"]) == pytest.approx(12.773, abs=1e-3)


def test_a_proven_claim_passes(account):
    status, output, _ = account(
        "--sampler", "balls_in_bins", "--steps-per-epoch", "94", *RUN, "--claimed-epsilon", "2.6"
    )
    assert status == 0
    assert "2.50499" in output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sampler", "bingo"], "sampler must be one of"),
        (["--sampler", "poisson"], "needs sample_rate"),
        (["--sampler", "poisson", "--sample-rate", "2"], "sample_rate"),
        (["--sampler", "full_batch", "--records", "3"], "no setting of its own"),
    ],
)
def test_wrong_options_are_one_line(account, options, message):
    status, _, errors = account(*options, *RUN)
    assert status == 2
    assert message in errors
    assert len(errors.strip().splitlines()) == 1
