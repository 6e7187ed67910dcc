"""`dpfl check`: a line for each claim, exit 1 where one is refuted, one line of error for what cannot be used."""

import json
import sys

import pytest

from dpfl.cli import main

CLAIM = {"noise_multiplier": 1.0072, "steps": 1880, "delta": 1e-5, "epsilon": 2.93}
POISSON = {**CLAIM, "name": "coins", "sampler": "poisson", "sample_rate": 1 / 94}
SHUFFLED = {**CLAIM, "name": "shuffled", "sampler": "shuffled_epochs", "batch_size": 64, "records": 6000}
CLAIMED = "--claimed-epsilon=1"
FULL = {
    **SHUFFLED, "name": "all", "sampler": "fixed_without_replacement", "batch_size": 6000,
    "neighbouring": "add_or_remove",
}  # fmt: skip
LOG = "noise_multiplier,sample_rate,num_steps\n1.0072,0.010638297872340425,1880\n"


@pytest.fixture
def check(monkeypatch, capsys, tmp_path):
    """A function that runs `dpfl check` on a file of the given text and returns status, rows and errors."""

    def run(name: str, text: str, *options: str) -> tuple[int, list[dict[str, str]], str]:
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(sys, "argv", ["dpfl", "check", str(tmp_path / name), *options])
        with pytest.raises(SystemExit) as caught:
            main()
        output, errors = capsys.readouterr()
        header, *rows = [line.split(" | ") for line in output.strip().splitlines()] or [[]]
        return caught.value.code or 0, [dict(zip(header, row, strict=True)) for row in rows], errors

    return run


def claims(*entries: dict) -> str:
    """The text of a claims file."""
    return json.dumps({"schema": "dpfl-claims/1", "claims": list(entries)})


def test_every_claim_has_its_line(check):
    status, rows, _ = check("claims.json", claims(POISSON, SHUFFLED, {**SHUFFLED, "observer": "last_iterate"}))
    assert status == 1
    assert [row["verdict"] for row in rows] == ["proven", "refuted", "unproven"]
    # 12.772584: reference value of the worst pair of shuffled epochs at these settings.
    assert float(rows[1]["at least"]) == pytest.approx(12.7726, abs=1e-3)
    assert "worst pair" in rows[1]["why"]


def test_a_name_cannot_forge_a_line_or_reach_the_terminal(check):
    _, rows, _ = check("claims.json", claims({**POISSON, "name": "a\x1b[2J | b\n | proven"}))
    assert [row["claim"] for row in rows] == [r"a\x1b[2J \x7c b \x7c proven"]


def test_nothing_refuted_is_success(check):
    status, rows, _ = check("claims.json", claims(POISSON))
    assert status == 0 and rows[0]["claim"] == "coins"


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        (["--sampler", "poisson"], "proven"),
        (["--sampler", "shuffled_epochs", "--batch-size", "64", "--records", "6000"], "refuted"),
    ],
)
def test_a_log_is_checked_as_its_batches_were_drawn(check, options, verdict):
    wanted = ["--delta", "1e-5", "--claimed-epsilon", "2.93"]
    for name, text in [("log.csv", LOG), ("state.json", json.dumps({"history": [[1.0072, 1 / 94, 1880]]}))]:
        status, rows, _ = check(name, text, *options, *wanted)
        assert [row["verdict"] for row in rows] == [verdict]
        assert status == int(verdict == "refuted")


OF_BATCHES = ["--batch-size=64", "--records=6000"]


@pytest.mark.parametrize(
    ("options", "right"),
    [
        (["--sampler=fixed_without_replacement", *OF_BATCHES], "0.0106667 (batch_size / records) or 0.0106383 (1 / "),
        (["--sampler=with_replacement", *OF_BATCHES], "0.0106667 (batch_size / records) or 0.0106383 (1 / "),
        (["--sampler=shuffled_epochs", *OF_BATCHES], "0.0106667 (batch_size / records) or 0.0106383 (1 / "),
        (["--sampler=balls_in_bins", "--steps-per-epoch=94"], "0.0106383 (1 / steps_per_epoch)"),
        (["--sampler=full_batch"], "1 (all records)"),
    ],
)
def test_no_verdict_rests_on_ignoring_the_rate_of_the_log(check, options, right):
    for name, text in [
        ("log.csv", "noise_multiplier,sample_rate,num_steps\n1.0072,0.5,1880\n"),
        ("log.jsonl", '{"noise_multiplier": 1.0072, "sample_rate": 0.5, "num_steps": 1880}\n'),
        ("state.json", '{"history": [[1.0072, 0.5, 1880]], "mechanism": "rdp"}'),
    ]:
        status, rows, errors = check(name, text, *options, "--delta=1e-5", "--claimed-epsilon=2000")
        assert (status, rows) == (2, []) and len(errors.strip().splitlines()) == 1
        assert "sample_rate is 0.5 in the log" in errors and f"it should be {right}" in errors


EPOCHS = "noise_multiplier,sample_rate\n" + "1.0,0.0625\n" * 3
OF_ROUNDS = '{"noise_multiplier": 1.0, "sample_rate": 0.0625, "rounds": 3, "local_epochs": 16}'
STARTS_ANEW = "noise_multiplier,sample_rate,num_steps\n" + "".join(f"1,0.1,{count}\n" for count in (16, 32, 48, 16, 32))
OF_EPOCHS = ["--sampler=poisson", "--delta=1e-5", "--claimed-epsilon=2.8062"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("log.csv", EPOCHS, "does not say how many steps a row is"),
        ("log.csv", EPOCHS.replace("rate", "rate,epoch", 1).replace("25\n", "25,1\n"), "'epoch' is not of a log"),
        ("log.jsonl", '{"noise_multiplier": 1, "sample_rate": 0.0625, "batches": 16}\n', "'batches' is not of a log"),
        ("s.json", '{"history": [[1, 0.0625, 3]], "rounds": 3, "local_epochs": 16}', "'rounds', 'local_epochs' is not"),
        ("s.json", '{"history": [[1, 0.0625, 16], [1, 0.0625, 32], [1, 0.0625, 48]]}', "(96 together)"),
        ("s.json", '{"privacy_accountant_state_dict": {"history": [[1, 0.0625, 16]]}}', "write the state alone"),
        ("run.pth", "", "is a checkpoint, not text: write the state alone"),
        ("log.csv", "sigma,q\n1,0.1\n", "has no column noise_multiplier"),
        ("log.jsonl", OF_ROUNDS, "'rounds', 'local_epochs' is not of a log, whose names are noise_multiplier"),
        ("log.jsonl", OF_ROUNDS, "in its place num_steps, or --steps-per-row, should say all steps of the row"),
        ("log.json", OF_ROUNDS, "'rounds', 'local_epochs' may be a count of steps"),
        ("log.json", f"[{OF_ROUNDS}, {OF_ROUNDS}]", "'rounds', 'local_epochs' may be a count of steps"),
        ("log.json", f'{{"history": [{OF_ROUNDS}]}}', "'rounds', 'local_epochs' may be a count of steps"),
        ("log.json", '{"epochs": 3}', 'as JSON a log is {"history": [[noise_multiplier, sample_rate, num_steps]'),
        ("log.json", "[1, 2]", 'as JSON a log is {"history": [[noise_multiplier, sample_rate, num_steps]'),
        ("log.csv", STARTS_ANEW, "num_steps rises from row to row, up to 48"),
        ("s.json", '{"history": [[1, 0.1, 16], [1, 0.1, 48], [1, 0.1, 16]]}', "rises from row to row, up to 48"),
    ],
)
def test_no_verdict_rests_on_a_guessed_number_of_steps(check, name, text, message):
    status, rows, errors = check(name, text, *OF_EPOCHS)
    assert (status, rows) == (2, []) and message in errors and len(errors.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "option"),
    [
        (EPOCHS, "--steps-per-row=16"),
        ("noise_multiplier,sample_rate,num_steps\n1,0.0625,16\n1,0.0625,32\n1,0.0625,48\n", "--num-steps=cumulative"),
    ],
)
def test_three_epochs_are_refuted_as_their_48_steps(check, text, option):
    """3.2405: dp_accounting's PLD of 48 steps at rate 1/16 and noise 1, delta 1e-5."""
    status, rows, _ = check("log.csv", text, *OF_EPOCHS, option)
    assert (status, rows[0]["verdict"], rows[0]["steps"]) == (1, "refuted", "48")
    assert float(rows[0]["proven"]) == pytest.approx(3.2405, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("claims.json", claims(POISSON), ["--steps-per-row", "1"], "leave out --steps-per-row"),
        ("s.json", '{"history": [[1, 0.1, 3]]}', ["--steps-per-row", "1"], "leave out --steps-per-row"),
        ("log.csv", LOG, [], "does not say --sampler and --delta and --claimed-epsilon"),
        ("log.csv", LOG, ["--sampler=poisson", "--delta=2", CLAIMED], "delta must be below 1"),
        ("log.csv", LOG, ["--sampler=poisson", "--delta=.1", CLAIMED, "--records=3"], "leave out --records"),
        ("log.csv", LOG, ["--sampler=shuffled_epochs", "--delta=.1", CLAIMED], "needs batch_size and records"),
        ("claims.json", claims(POISSON), ["--delta", "1e-5"], "leave out --delta"),
        ("claims.json", claims({**POISSON, "delta": 2}), [], "claim 1: delta must be below 1"),
        ("claims.json", claims({**POISSON, "neighbouring": "near"}), [], "neighbouring must be one of"),
        ("claims.json", claims(FULL), [], "claim all: batch_size must be below records = 6000 under add_or"),
        ("claims.json", "[]", [], "not a file of claims"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_line(check, name, text, options, message):
    status, _, errors = check(name, text, *options)
    assert status == 2
    assert message in errors
    assert len(errors.strip().splitlines()) == 1


def test_many_phases_are_counted_in_one_cell(check):
    """Every other step another noise: what is joined is what is alike, not what is adjacent."""
    log = "noise_multiplier,sample_rate,num_steps\n" + "1.0,0.01,1\n1.2,0.01,1\n" * 60
    _, rows, _ = check("log.csv", log, "--sampler=poisson", "--delta=1e-5", "--claimed-epsilon=3")
    assert (rows[0]["sampler"], rows[0]["steps"]) == ("120 phases, 2 kinds", "120")
