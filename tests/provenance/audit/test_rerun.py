"""Runs trained again: what is compared, what is left out and said, and what a changed run looks like."""

import json
import shutil

import pandas as pd
import pytest

from dpfl.errors import InputError
from dpfl.files import record_path
from dpfl.grid import configuration, expansion
from dpfl.provenance.audit import rerun
from dpfl.provenance.audit.findings import Audit


@pytest.fixture
def again(project):
    """A function that trains runs of the tiny project again and returns the audit."""

    def run(count=1, seed=0):
        settings = configuration.read(project.results / "config.yaml")
        seen = Audit()
        rerun.check_reruns(seen, project.root, settings, expansion.expand(settings), count, seed)
        return seen

    return run


def test_an_honest_run_comes_out_the_same_to_the_last_digit(again):
    seen = again(count=1)
    assert seen.findings == [] and seen.checked["runs trained again"] == 1
    assert [note for note in seen.notes if note.startswith("trained again, the same to the last digit")]


def test_the_seed_decides_which_runs_are_drawn(again, monkeypatch):
    drawn = []

    def note(run, data):
        drawn.append(run.name)
        raise InputError("not trained here")

    monkeypatch.setattr(rerun, "_train_again", note)
    for seed in (1, 1, 2, 3, 4, 5):
        assert "cannot be trained again: not trained here" in again(seed=seed).findings[0].problem
    assert drawn[0] == drawn[1] and len(set(drawn)) > 1


def test_noise_that_does_not_follow_from_the_settings_is_found(again, project):
    for path in project.runs:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        table["noise_multiplier"] = table["noise_multiplier"].replace("0.0", "9.9")
        table.to_csv(path, index=False)
    problems = [finding.problem for finding in again(count=4).findings]
    assert len(problems) == 2 and all("noise multiplier 9.9, calibrated again it is 0" in each for each in problems)


def test_without_data_nothing_is_trained_and_the_reason_is_said(again, project):
    shutil.rmtree(project.root / "data")
    seen = again()
    assert seen.checked == {} and seen.findings == []
    assert seen.notes == ["could not be trained again here: 4 runs (the data of digits are not on this machine)"]


def test_runs_that_took_long_are_left_out(again, monkeypatch):
    monkeypatch.setattr(rerun, "MOST_SECONDS", 0)
    assert "a seed took more than 0 s" in again().notes[0]


def rewrite_records(project, change):
    """Let the records of the run tables say something else."""
    for path in map(record_path, project.runs):
        record = json.loads(path.read_text())
        change(record)
        path.write_text(json.dumps(record))


def test_a_run_of_a_gpu_is_trained_on_the_cpu_where_there_is_none_and_that_is_said(again, project, monkeypatch):
    monkeypatch.setattr(rerun, "_has", lambda device: device == "cpu")
    rewrite_records(project, lambda record: record["host"].update(device="cuda"))
    (note,) = again().notes
    assert "trained again, the same" in note
    assert "(across a change of platform: device cuda to cpu)" in note
    monkeypatch.setattr(rerun, "_GPU_SECONDS", 0)
    assert "a seed took more than 0 s on cuda" in again().notes[0]


def test_another_torch_is_said(again, project):
    rewrite_records(project, lambda record: record["software"].update(torch="1.0.0"))
    assert "across a change of platform: torch 1.0 to" in again().notes[0]
