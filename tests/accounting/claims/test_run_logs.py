"""Logs of runs: the same history from CSV, JSON lines and an accountant's state; wrong rows are named."""

import json
from pathlib import Path

import pytest
from opacus.accountants import RDPAccountant

from dpfl.accounting.external_claims import Entry, history_of, phases_on, poisson_phases, read_rows
from dpfl.accounting.guarantees import Phase
from dpfl.accounting.samplers import BallsInBins, FixedBatches, Poisson, ShuffledEpochs
from dpfl.errors import InputError

STEPS = [(1.0, 0.1)] * 3 + [(1.5, 0.1)] * 2
HISTORY = [Entry(1.0, 0.1, 3), Entry(1.5, 0.1, 2)]


@pytest.fixture
def accountant():
    """Opacus's accountant after the steps."""
    accountant = RDPAccountant()
    for noise, rate in STEPS:
        accountant.step(noise_multiplier=noise, sample_rate=rate)
    return accountant


def test_a_row_per_step_joins_to_the_history(tmp_path, accountant):
    rows = tmp_path / "log.csv"
    rows.write_text("noise_multiplier,sample_rate\n" + "".join(f"{n},{q}\n" for n, q in STEPS))
    lines = tmp_path / "log.jsonl"
    lines.write_text("".join(json.dumps({"noise_multiplier": n, "sample_rate": q}) + "\n" for n, q in STEPS))
    state = json.loads(json.dumps(accountant.state_dict()))
    each = {"steps_per_row": 1}
    assert read_rows(rows, **each) == read_rows(lines, **each) == history_of(state, Path("state.json")) == HISTORY


def test_rows_that_are_epochs_have_the_steps_that_are_stated(tmp_path):
    rows = tmp_path / "log.csv"
    rows.write_text("noise_multiplier,sample_rate\n" + "1,0.0625\n" * 3)
    assert read_rows(rows, steps_per_row=16) == [Entry(1.0, 0.0625, 48)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.csv", "noise_multiplier,sample_rate\n1.0,0.0625\n1.0,0.0625\n1.0,0.0625\n"),
        ("log.jsonl", '{"noise_multiplier": 1.0, "sample_rate": 0.0625}\n' * 3),
    ],
)
def test_rows_of_unknown_length_are_refused(tmp_path, name, text):
    """Three epochs of 16 steps were three steps: the claim 2.8062 was proven of a run that spends 3.2405."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match="does not say how many steps a row is"):
        read_rows(path)


RISING = [[1.0, 0.0625, 16], [1.0, 0.0625, 32], [1.2, 0.0625, 48]]


def test_steps_so_far_are_never_added(tmp_path):
    """16, 32 and 48 steps are 48 or 96: nobody but the user knows."""
    rows = tmp_path / "log.csv"
    rows.write_text("noise_multiplier,sample_rate,num_steps\n" + "".join(f"{n},{q},{t}\n" for n, q, t in RISING))
    reads = [
        lambda **which: read_rows(rows, **which),
        lambda **which: history_of({"history": RISING}, Path("state.json"), **which),
        lambda **which: history_of({"history": RISING, "mechanism": "rdp"}, Path("state.json"), **which),
    ]
    for read in reads:
        with pytest.raises(InputError, match=r"rises from row to row, up to 48: .*\(96 together\)"):
            read()
        assert read(num_steps="cumulative") == [Entry(1.0, 0.0625, 32), Entry(1.2, 0.0625, 16)]
        assert read(num_steps="per_row") == [Entry(1.0, 0.0625, 48), Entry(1.2, 0.0625, 48)]


def test_a_state_as_opacus_writes_it_needs_no_word_on_its_steps(accountant):
    for _ in range(7):
        accountant.step(noise_multiplier=2.0, sample_rate=0.1)
    state = {**accountant.state_dict(), "history": accountant.history[1:]}
    assert history_of(json.loads(json.dumps(state)), Path("s.json")) == [Entry(1.5, 0.1, 2), Entry(2.0, 0.1, 7)]


@pytest.mark.parametrize(
    ("more", "message"),
    [({"rounds": 3, "local_epochs": 16}, "'rounds', 'local_epochs' is not of a log"), ({"mechanism": "mine"}, "mech")],
)
def test_a_state_that_says_more_is_refused(more, message):
    with pytest.raises(InputError, match=message):
        history_of({"history": [[1.0, 0.0625, 3]], **more}, Path("state.json"))


def test_options_that_contradict_the_log_are_refused(tmp_path):
    rows = tmp_path / "log.csv"
    rows.write_text("noise_multiplier,sample_rate,num_steps\n1,0.1,32\n1,0.1,16\n")
    for options, message in [
        ({"steps_per_row": 1}, "leave out --steps-per-row"),
        ({"num_steps": "cumulative"}, "falls"),
        ({"num_steps": "x"}, "--num-steps must be one of"),
    ]:
        with pytest.raises(InputError, match=message):
            read_rows(rows, **options)
    rows.write_text("noise_multiplier,sample_rate\n1,0.1\n")
    for options, message in [
        ({"num_steps": "per_row", "steps_per_row": 1}, "leave out --num-steps"),
        ({"steps_per_row": 0}, "steps_per_row must be at least 1"),
    ]:
        with pytest.raises(InputError, match=message):
            read_rows(rows, **options)


def test_a_history_becomes_phases(accountant):
    expected = (Phase(Poisson(0.1), 1.0, 3), Phase(Poisson(0.1), 1.5, 2))
    assert poisson_phases(accountant.history) == poisson_phases(HISTORY) == expected
    assert phases_on(FixedBatches(10, 100), HISTORY) == tuple(
        Phase(FixedBatches(10, 100), entry.noise_multiplier, entry.num_steps) for entry in HISTORY
    )


@pytest.mark.parametrize("sampler", [BallsInBins(2), ShuffledEpochs(50, 100)])
def test_noise_that_changes_within_an_epoch_is_refused(sampler):
    with pytest.raises(ValueError, match="after 3 steps, within an epoch of 2"):
        phases_on(sampler, HISTORY)
    assert len(phases_on(sampler, [Entry(1.0, 0.5, 4), Entry(2.0, 0.5, 3)])) == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("log.csv", "noise_multiplier,sample_rate,num_steps\n", "holds no step"),
        ("log.csv", "noise_multiplier,sample_rate\n1,0.1\n0,0.1\n", "line 3: noise_multiplier must be above 0"),
        ("log.csv", "noise_multiplier,sample_rate\n1,2\n", "line 2: sample_rate must be at most 1"),
        ("log.csv", "noise_multiplier,sample_rate\n1\n", "line 2: has fewer cells than the header"),
        ("log.csv", "noise_multiplier,sample_rate,num_steps\n1,0.1,8\n1,0.2\n", "line 3: has fewer cells"),
        ("log.csv", "noise_multiplier,sample_rate,num_steps\n1,0.1,1,880\n", "line 2: has more cells"),
        ("log.csv", "noise_multiplier,sample_rate,num_steps\n1,0.1,\n", "line 2: num_steps must be a real number"),
        ("log.csv", "epoch,noise_multiplier,sample_rate,epsilon\n0,1,0.1,2\n", "'epoch', 'epsilon' is not of a log"),
        ("log.csv", "noise_multiplier,sample_rate,num_steps,batches\n1,0.1,3,16\n", "'batches' is not of a log"),
        ("log.csv", "noise_multiplier,sample_rate,Total_Steps\n1,0.1,188000\n", "'Total_Steps' is not of a log"),
        ("log.jsonl", '{"noise_multiplier": 1, "sample_rate": 0.1, "rounds": 9}\n', "'rounds' is not of a log"),
        ("log.csv", "noise_multiplier;sample_rate;num_steps\n1;0.1;3\n", "with commas in between, and this one reads"),
        (
            "log.jsonl",
            '{"noise_multiplier": 1, "sample_rate": 1, "num_steps": 9}\n{"noise_multiplier": 2, "sample_rate": 1}\n',
            "line 2: num_steps must be a real number",
        ),
        ("log.csv", "noise_multiplier,sample_rate\nx,0.1\n", "line 2: noise_multiplier must be a real number"),
        ("log.csv", "noise_multiplier,sample_rate\n1_0,0.1\n", "line 2: noise_multiplier must be a real number"),
        ("log.csv", "noise_multiplier,noise_multiplier,sample_rate\n1,5,0.1\n", "a column stands twice"),
        ("log.jsonl", '{"noise_multiplier": 1, "noise_multiplier": 5, "sample_rate": 1}\n', "line 1: key 'noise_mul"),
        ("log.jsonl", '{"noise_multiplier": true, "sample_rate": 1}\n', "noise_multiplier must be a real number"),
        ("log.csv", "sigma,q\n1,0.1\n", "has no column noise_multiplier and no column sample_rate"),
        ("log.jsonl", '{"noise_multiplier": 1, "sample_rate": 0.1}\n[1]\n', "line 2: should be a JSON object"),
        ("log.csv", "noise_multiplier,sample_rate\n" + "1" * 200_000 + ",0.1\n", "line 2: field larger"),
        ("log.jsonl", "[" * 100_000, "line 1: should be a JSON object"),
        ("log.jsonl", "x\n", "line 1: should be a JSON object"),
        ("log.jsonl", None, "cannot read"),
    ],
)
def test_a_wrong_row_is_one_line(tmp_path, name, text, message):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    counted = text is None or "num_steps" in text
    with pytest.raises(InputError, match=message) as caught:
        read_rows(path, steps_per_row=None if counted else 1)
    assert "\n" not in str(caught.value)


def test_the_mark_that_excel_writes_first_is_no_part_of_a_name(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("noise_multiplier,sample_rate\n1,0.1\n", encoding="utf-8-sig")
    assert read_rows(path, steps_per_row=1) == [Entry(1.0, 0.1, 1)]


@pytest.mark.parametrize("history", [3, [3], [[1, 0.1]], [[1, 0.1, 2.5]], [[1, 0.1, 10**400]], []])
def test_a_wrong_state_is_refused(history):
    with pytest.raises(InputError, match=r"state\.json"):
        history_of({"history": history}, Path("state.json"))
