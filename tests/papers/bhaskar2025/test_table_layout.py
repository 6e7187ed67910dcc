"""The page of identification: its notes on scores as they are computed, and on scores with known numbers."""

import math

import pandas as pd
import pytest

from dpfl.papers.bhaskar2025 import identification
from dpfl.papers.bhaskar2025.identification import CHOSEN, scores
from dpfl.papers.bhaskar2025.table_layout import identification_page, numbers
from dpfl.reporting.results import Results

LINEAR = "table == 2 and model == 'scatter_linear'"
ROW = {
    "candidate": CHOSEN, "dataset": "mnist", "ran_on": "mnist", "stand_in": False, "model": "cnn_tanh", "cells": 18,
    "runs_least": 3, "runs_most": 3, "effect_pct": 0.0, "misfit_pct": 1.5, "misfit_last_pct": 20.0,
    "discrepancy_pct": 0.9, "gain": 0.0, "chance_low": math.nan, "chance_high": math.nan,
}  # fmt: skip


@pytest.fixture(autouse=True)
def few_chances(monkeypatch):
    """Draw the range of chance 60 times only."""
    monkeypatch.setattr(identification, "CHANCES", 60)


def rival(candidate: str, gain: float, **more) -> dict:
    """Another candidate, whose gains by chance lie between -4 and 1."""
    return {**ROW, "candidate": candidate, "gain": gain, "chance_low": -4.0, "chance_high": 1.0, **more}


def notes(*rows: dict) -> str:
    return " ".join(identification_page(pd.DataFrame(rows)).notes)


def test_a_row_has_its_numbers_with_signs_and_a_dash_where_there_is_none():
    other = rival("batch size 32", -12.345, effect_pct=-0.456, runs_most=5, misfit_last_pct=math.nan)
    body = identification_page(pd.DataFrame([ROW, other])).body
    assert body.iloc[0].tolist() == [
        CHOSEN, "mnist", "CNN + tanh", "18 (3)", "+0.00", "1.50", "20.00", "0.90", "+0.0", "–"
    ]  # fmt: skip
    assert body.iloc[1].tolist()[3:] == ["18 (3 to 5)", "-0.46", "1.50", "–", "0.90", "-12.3", "-4.0 to +1.0"]
    assert numbers(pd.Series([1.25, math.nan]), "{:.2f}") == ["1.25", "–"]


def test_a_candidate_is_told_from_the_chosen_settings_beyond_chance_alone():
    text = notes(
        ROW, rival("a", 1.5), rival("b", 0.5), rival("c", -4.5), rival("d", -3.0), rival("e", -9.0, chance_low=math.nan)
    )
    assert (
        "MNIST, CNN + tanh: best fit among the chosen settings and 5 others: a (+1.5); runner-up: b (+0.5). Told from "
        "the chosen settings by more than chance: better: a; worse: c; not known for lack of shared seeds: e." in text
    )
    assert "1 other: the chosen settings (+0.0); runner-up: b (-0.5)" in notes(ROW, rival("b", -0.5))
    assert "by more than chance: none." in notes(ROW, rival("b", -0.5))


def test_all_models_together_add_the_gains_of_candidates_that_ran_on_each():
    """Gains of a: 3 - 1, of b: 1 + 0.5, the chosen settings 0; c did not run on the second, d has no third there."""
    first = [ROW, rival("a", 3.0), rival("b", 1.0), rival("c", 50.0)]
    second = [{**row, "model": "cnn_relu"} for row in (ROW, rival("a", -1.0), rival("b", 0.5))]
    third = [{**row, "model": "scatter_cnn"} for row in (ROW, rival("a", 99.0))]
    together = (
        "All 2 with two rivals or more together, candidates that ran on each: best fit a (+2.0), runner-up b (+1.5)."
    )
    assert together in notes(*first, *second, *third)
    assert "together, candidates" not in notes(*first, *third)


def test_the_last_column_names_the_nearest_candidate_of_those_that_ran_all_cells():
    near = rival("near", -2.0, misfit_last_pct=4.0, misfit_pct=7.0)
    text = notes(ROW, near, rival("far", 2.0, misfit_last_pct=19.0), rival("few", 1.0, misfit_last_pct=0.5, cells=4))
    assert (
        "MNIST, CNN + tanh, (20, 1): the chosen settings miss the published values by 20.00 points on average, the "
        "nearest other candidate (near) by 4.00, at 7.00 where R > 1 (chosen: 1.50)." in text
    )
    assert "(20, 1): the chosen" not in notes(ROW, rival("few", 1.0, cells=4))


def test_computed_scores_name_the_best_and_the_runner_up(as_runs, rows_of_runs):
    cnn = "table == 2 and model == 'scatter_cnn' and local_epochs in [1, 20] and epsilon < inf"
    table = scores(
        as_runs(
            rows_of_runs(f"{LINEAR} or {cnn}", range(3), noise_pct=0.1),
            rows_of_runs(LINEAR, [0], offset_pct=-1, batch_size=32),
            rows_of_runs(cnn, [0], offset_pct=-2, batch_size=32),
            rows_of_runs(f"{LINEAR} and epsilon < inf", [0], offset_pct=0.4, delta=1e-6),
            rows_of_runs(cnn, [0], offset_pct=-9, sampling="shuffled_epochs"),
        )
    )
    batch = table[table["candidate"] == "batch size 32"]
    text = " ".join(identification_page(table).notes)
    assert "MNIST, ScatterNet + linear: best fit among the chosen settings and 2 others: the chosen" in text
    assert "; runner-up: delta 1e-06 (" in text
    assert f"best fit the chosen settings (+0.0), runner-up batch size 32 ({batch['gain'].sum():+.1f})" in text
    assert "MNIST, ScatterNet + linear, (20, 1): the chosen settings miss" in text


def test_a_better_candidate_is_named(as_runs, rows_of_runs):
    chosen = rows_of_runs(LINEAR, [0, 1], offset_pct=0.5, noise_pct=0.05)
    better = rows_of_runs(LINEAR, [0], normalisation="groups27")
    text = " ".join(identification_page(scores(as_runs(chosen, better))).notes)
    assert "1 other: normalisation groups27 (+" in text
    assert "by more than chance: better: normalisation groups27." in text


def test_a_model_of_which_no_other_setting_ran_is_named(as_runs, rows_of_runs):
    other = rows_of_runs("table == 2 and model == 'cnn_relu'", [0])
    tried = [rows_of_runs(LINEAR, [0]), rows_of_runs(LINEAR, [0], batch_size=32)]
    said = "With the chosen settings alone, so that nothing says which fit, were run: mnist, CNN + ReLU."
    assert said in identification_page(scores(as_runs(other, *tried))).notes
    notes = identification_page(scores(as_runs(*tried))).notes
    assert not any(note.startswith("With the chosen settings alone") for note in notes)


def test_stand_ins_are_not_comparable(as_runs, rows_of_runs, as_stand_in):
    chosen, other = rows_of_runs(LINEAR, [0]), rows_of_runs(LINEAR, [0], offset_pct=-1, batch_size=32)
    page = identification_page(scores(as_runs(as_stand_in(chosen), as_stand_in(other))))
    assert "not comparable and left out on stand-in data (digits)" in " ".join(page.notes)
    assert set(page.body["Gain"]) == {"–"} and page.body["Effect"].tolist() == ["-1.00", "+0.00"]


def test_without_runs_the_page_says_so(tmp_path):
    page = identification_page(scores(Results(tmp_path)))
    assert page.notes[0].startswith("Nothing was run") and page.body.empty
