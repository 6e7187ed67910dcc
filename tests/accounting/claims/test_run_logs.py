"""Logs of runs: the same history from CSV, JSON lines and an accountant's state; wrong rows are named."""

import json
from pathlib import Path

import pytest
from opacus.accountants import RDPAccountant

from dpfl.accounting.claims.run_logs import Entry, history_of, phases_on, poisson_phases, read_rows
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
    rows.write_text("step,noise_multiplier,sample_rate\n" + "".join(f"{i},{n},{q}\n" for i, (n, q) in enumerate(STEPS)))
    lines = tmp_path / "log.jsonl"
    lines.write_text("".join(json.dumps({"noise_multiplier": n, "sample_rate": q}) + "\n" for n, q in STEPS))
    state = json.loads(json.dumps(accountant.state_dict()))
    assert read_rows(rows) == read_rows(lines) == history_of(state, Path("state.json")) == HISTORY


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
        ("log.csv", "noise_multiplier,sample_rate\n", "holds no step"),
        ("log.csv", "noise_multiplier,sample_rate\n1,0.1\n0,0.1\n", "line 3: noise_multiplier must be above 0"),
        ("log.csv", "noise_multiplier,sample_rate\n1,2\n", "line 2: sample_rate must be at most 1"),
        ("log.csv", "noise_multiplier,sample_rate\n1\n", "line 2: has fewer cells than the header"),
        ("log.csv", "noise_multiplier,sample_rate,num_steps\n1,0.1,8\n1,0.2\n", "line 3: has fewer cells"),
        ("log.csv", "noise_multiplier,sample_rate,num_steps\n1,0.1,1,880\n", "line 2: has more cells"),
        ("log.csv", "noise_multiplier,sample_rate,num_steps\n1,0.1,\n", "line 2: num_steps must be a real number"),
        ("log.csv", "noise_multiplier,sample_rate,steps\n1,0.1,188000\n", "call the column steps num_steps"),
        (
            "log.csv",
            "noise_multiplier,sample_rate,Total_Steps\n1,0.1,188000\n",
            "call the column Total_Steps num_steps",
        ),
        ("log.csv", "noise_multiplier,sample_rate,nIter\n1,0.1,5\n2,0.1,5\n", "call the column nIter num_steps"),
        ("log.jsonl", '{"noise_multiplier": 1, "sample_rate": 0.1, "steps": 9}\n', "call the column steps num_steps"),
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
        ("log.csv", "sigma,q\n1,0.1\n", "line 2: noise_multiplier must be a real number"),
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
    with pytest.raises(InputError, match=message) as caught:
        read_rows(path)
    assert "\n" not in str(caught.value)


def test_the_mark_that_excel_writes_first_is_no_part_of_a_name(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("noise_multiplier,sample_rate\n1,0.1\n", encoding="utf-8-sig")
    assert read_rows(path) == [Entry(1.0, 0.1, 1)]


@pytest.mark.parametrize("history", [3, [3], [[1, 0.1]], [[1, 0.1, 2.5]], [[1, 0.1, 10**400]], []])
def test_a_wrong_state_is_refused(history):
    with pytest.raises(InputError, match=r"state\.json"):
        history_of({"history": history}, Path("state.json"))
