"""`dpfl account`: one line of a table, exit 1 where the claim is refuted, one line of error for wrong options."""

from __future__ import annotations

import subprocess
import sys

import pytest

RUN = ["--noise-multiplier", "1.0072", "--steps", "1880", "--delta", "1e-5"]


def _dpfl(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dpfl", "account", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_a_shuffled_claim_is_refuted():
    shuffled = ["--sampler", "shuffled_epochs", "--batch-size", "64", "--records", "6000"]
    answer = _dpfl(*shuffled, *RUN, "--claimed-epsilon", "2.93")
    assert answer.returncode == 1
    header, row = answer.stdout.strip().splitlines()
    cells = dict(zip(header.split(" | "), row.split(" | "), strict=True))
    assert cells["claimed"] == "2.93 (refuted)"
    assert float(cells["proven"]) == pytest.approx(28.096, abs=1e-3)
    assert float(cells["at least"]) == pytest.approx(12.773, abs=1e-3)


def test_a_proven_claim_passes():
    answer = _dpfl("--sampler", "balls_in_bins", "--steps-per-epoch", "94", *RUN, "--claimed-epsilon", "2.6")
    assert answer.returncode == 0
    assert "2.50499" in answer.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sampler", "bingo"], "sampler must be one of"),
        (["--sampler", "poisson"], "needs --sample-rate"),
        (["--sampler", "poisson", "--sample-rate", "2"], "sample_rate"),
        (["--sampler", "full_batch", "--records", "3"], "no option of its own"),
    ],
)
def test_wrong_options_are_one_line(options, message):
    answer = _dpfl(*options, *RUN)
    assert answer.returncode == 2
    assert message in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1
