"""`dpfl account`: one line of a table, exit 1 where the claim is refuted, one line of error for wrong options."""

import sys

import numpy as np
import pytest

from dpfl.accounting import Phase, Poisson, privacy_curve
from dpfl.cli import account_commands, main

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
        (["--sampler", "with_replacement", "--batch-size", "1" + 20 * "0", "--records", "9"], "batch_size must be at"),
    ],
)
def test_wrong_options_are_one_line(account, options, message):
    status, _, errors = account(*options, *RUN)
    assert status == 2
    assert message in errors
    assert len(errors.strip().splitlines()) == 1


CONVEX = ["--smoothness", "1", "--learning-rate", "0.5", "--lipschitz", "1", "--strong-convexity", "0.4"]
HIDDEN = ["--sampler", "full_batch", "--noise-multiplier", "3", "--steps", "200", "--delta", "1e-5"]


def test_more_steps_than_can_be_composed_are_refused_and_do_not_look_like_a_refutation(account):
    status, _, errors = account("--sampler", "poisson", "--sample-rate", "0.01", *RUN, "--steps", "1" + 20 * "0")
    assert status == 2 and "steps must be at most 70368744177664" in errors


def test_numbers_beyond_the_memory_are_one_line(account, monkeypatch):
    monkeypatch.setattr(account_commands, "_judged", lambda *_: np.empty((2**20, 2**30)))
    status, _, errors = account("--sampler", "poisson", "--sample-rate", "0.01", *RUN)
    assert status == 2 and errors.startswith("dpfl: the memory does not suffice (Unable to allocate 8.00 PiB")
    assert len(errors.strip().splitlines()) == 1


@pytest.mark.parametrize("options", [["--sampler", "full_batch"], ["--sampler", "fixed_without_replacement"]])
@pytest.mark.parametrize("noise", ["1e-20", "1e-150"])
def test_noise_that_hides_nothing_proves_and_refutes_nothing_of_the_last_iterate(account, options, noise):
    batch = ["--batch-size", "10"] if options[1] != "full_batch" else []
    status, output, errors = account(
        *options, *batch, "--records", "100", "--noise-multiplier", noise, "--steps", "50", "--delta", "1e-5",
        "--claimed-epsilon", "1e305", "--observer", "last_iterate", *CONVEX,
    )  # fmt: skip
    assert not errors and "(refuted)" not in output and status == 0


def test_a_convex_problem_hides_its_steps_from_who_sees_the_last_iterate(account):
    """Contraction 0.8: mu = sqrt((1 + 0.8)/(1 - 0.8))/3 = 1 for many steps, an epsilon of 4.3772 at 1e-5."""
    status, output, _ = account(*HIDDEN, *CONVEX, "--observer", "last_iterate", "--records", "600")
    assert status == 0 and " | 4.37718 | 4.37717 | " in output  # the same value, rounded up and down


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (CONVEX, "convex is of use against the observer last_iterate"),
        (["--observer", "last_iterate", "--smoothness", "1"], "--learning-rate is missing"),
        (["--observer", "last_iterate", *CONVEX, "--diameter", "1"], "records must be given"),
    ],
)
def test_a_wrong_problem_is_one_line(account, options, message):
    status, _, errors = account(*HIDDEN, *options)
    assert status == 2 and message in errors and len(errors.strip().splitlines()) == 1


POISSON = ["--sampler", "poisson", "--sample-rate", "0.010638297872340425", *RUN]


def test_what_a_test_may_reach_stands_in_the_same_table(account):
    """0.2305704 and 0.0431963: the accountant's own, which its tests compare; here only their place and rounding."""
    status, output, _ = account(*POISSON, "--advantage", "--fpr", "0.01")
    assert status == 0
    header, row = output.strip().splitlines()
    cells = dict(zip(header.split(" | "), row.split(" | "), strict=True))
    curve = privacy_curve([Phase(Poisson(0.010638297872340425), 1.0072, 1880)])
    for name, exact in (("advantage", curve.advantage()), ("TPR at FPR 0.01", curve.true_positive_rate(0.01))):
        low, high = map(float, cells[name].split(" to "))
        assert low <= exact.lower <= exact.upper <= high <= low * 1.0001
    assert "advantage" not in account(*POISSON)[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fpr", "1.5"], "--fpr': Input should be less than or equal to 1"),
        (["--claimed-epsilon", "-1"], "--claimed-epsilon': Input should be greater than or equal to 0"),
        (["--fpr", "0.1", "--observer", "last_iterate"], "for the observer every_step only"),
    ],
)
def test_a_wrong_question_about_tests_is_one_line(account, options, message):
    status, output, errors = account(*POISSON, *options)
    assert status == 2 and not output
    assert message in errors and len(errors.strip().splitlines()) == 1
