"""The rule on the noise that the published values fit, on run tables in which the answer is known."""

import matplotlib.pyplot as plt
import pytest

from dpfl.papers.bhaskar2025.noise_fit import CANDIDATES, decide, draw_noise, noise_cells, noise_message, noise_page
from dpfl.reporting.results import Results

COUNTED = "table in [2, 3] and epsilon == 1.2"


@pytest.fixture
def tried(as_runs, rows_of_runs):
    """A function (offset of an epsilon and a row, query) that stores the runs of every candidate."""

    def make(offset, query=COUNTED, change=lambda rows: rows):
        tables = []
        for epsilon in CANDIDATES:
            study = "" if epsilon == CANDIDATES[0] else "noise_fit"
            rows = rows_of_runs(query, [0], study=study)
            rows["accuracy_pct"] += [offset(epsilon, row) for row in rows.to_dict("records")]
            tables.append(change(rows.assign(epsilon=epsilon, privacy_noise_multiplier=2 / epsilon)))
        return noise_cells(as_runs(*tables))

    return make


def nearest(at, slope=10.0):
    """Our accuracy grows with epsilon, and meets the published value at `at`."""
    return lambda epsilon, row: slope * (epsilon - at)


def test_48_cells_count_with_every_candidate(tmp_path):
    cells = noise_cells(Results(tmp_path))
    assert len(cells) == 48 * len(CANDIDATES)
    decision = decide(cells)
    assert (decision.missing, decision.counted, decision.fits) == (48, 48, False)
    assert noise_page(cells).notes[0].startswith("Undecided: 48 of 48") and noise_message(cells) == ""
    plt.close(draw_noise(cells))


@pytest.mark.parametrize("at", CANDIDATES[1:])
def test_the_noise_that_meets_the_published_values_is_found(tried, at):
    cells = tried(nearest(at))
    decision = decide(cells)
    assert decision.fits and decision.best == at and decision.medians_pct[at] == pytest.approx(0)
    assert set(decision.by_dataset.values()) == set(decision.by_model.values()) == {at}
    page = noise_page(cells)
    end = " (the largest that we tried)" if at == CANDIDATES[-1] else ""
    assert page.notes[0].startswith(f"By the rule, the noise of ε = {at:g}{end} fits the published values at ε = 1.2. ")
    assert noise_message(cells) == (
        f"By the rule, the published accuracy at ε = 1.2 fits the noise of ε = {at:g}: median distance 0.00 instead of "
        f"{10 * (at - 1.2):.2f} points"
    )
    assert page.body.iloc[-1][f"ε = {at:g}, σ = {2 / at:.3f}"] == "0.00 (+0.00)"
    plt.close(draw_noise(cells))


def test_the_papers_own_epsilon_is_never_said_to_fit_better_than_itself(tried):
    decision = decide(tried(nearest(1.2)))
    assert decision.best == 1.2 and not decision.fits


@pytest.mark.parametrize(("slope", "fits"), [(3.4, True), (3.2, False)])
def test_half_a_point_has_to_be_gained(tried, slope, fits):
    assert decide(tried(nearest(1.35, slope))).fits is fits


@pytest.mark.parametrize(("models", "fits"), [(["cnn_relu"], True), (["cnn_relu", "cnn_tanh"], False)])
def test_three_of_four_models_have_to_agree(tried, models, fits):
    """Some models meet the published values at 1.2, the others at 1.8."""
    cells = tried(lambda epsilon, row: 10 * (epsilon - (1.2 if row["model"] in models else 1.8)))
    decision = decide(cells)
    assert sum(each == 1.8 for each in decision.by_model.values()) == 4 - len(models)
    assert decision.fits is fits
    if not fits:
        assert noise_message(cells).startswith("No single noise")


def test_both_data_sets_have_to_agree(tried):
    cells = tried(lambda epsilon, row: 10 * (epsilon - (1.2 if row["dataset"] == "mnist" else 1.8)))
    assert not decide(cells).fits


def test_a_missing_cell_and_stand_ins_leave_it_undecided(tried, as_stand_in):
    """The first fifth of the rows is lost; then all run on a stand-in."""
    cells = tried(nearest(1.5), change=lambda rows: rows.iloc[1:])
    assert decide(cells).missing == 1 and not decide(cells).fits
    cells = tried(nearest(1.5), change=as_stand_in)
    assert decide(cells).missing == 48 and "digits" in noise_page(cells).notes[-1]
