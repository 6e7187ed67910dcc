"""The rule on bfloat16, on run tables in which the answer is known."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats

from dpfl.papers.bhaskar2025.precision import (
    BUDGETS,
    COUNTED,
    MARGIN_PCT,
    PRECISIONS,
    SEEDS,
    draw_precision,
    is_equivalent,
    precision_cells,
    precision_message,
    precision_page,
)
from dpfl.reporting.results import Results

QUERY = (
    "table < 5 and rounds == 20 and (dataset == 'mnist' and epsilon > 2 or "
    "dataset == 'cifar10' and model == 'scatter_linear' and epsilon > 5)"
)


@pytest.fixture
def trained(as_runs, rows_of_runs):
    """A function (difference of bfloat16 by row, seeds) that stores the runs of the study in both precisions."""

    def make(difference, seeds=range(SEEDS), change=lambda rows: rows):
        tables = []
        for precision in PRECISIONS:
            rows = rows_of_runs(QUERY, seeds, noise_pct=0.2, study="precision")
            if precision == "bfloat16":
                rows["accuracy_pct"] += [difference(row) for row in rows.to_dict("records")]
            tables.append(change(rows.assign(precision=precision)))
        return precision_cells(as_runs(*tables))

    return make


def by_seed(mean, spread):
    """A difference with this mean over ten seeds, and this standard deviation."""
    draws = np.random.default_rng(0).standard_normal(SEEDS)
    draws = (draws - draws.mean()) / draws.std(ddof=1)
    return lambda row: mean + spread * draws[row["seed"]]


def test_nothing_ran(tmp_path):
    cells = precision_cells(Results(tmp_path))
    assert cells.empty and not is_equivalent(cells) and precision_message(cells) == ""
    assert precision_page(cells).notes[0].startswith("Undecided")
    plt.close(draw_precision(cells))


def test_equal_accuracies_are_equivalent_in_all_ten_cells(trained):
    cells = trained(by_seed(0.05, 0.1))
    assert len(cells) == BUDGETS * len(COUNTED) == 10 and set(cells["verdict"]) == {"equivalent"}
    assert is_equivalent(cells)
    assert "differ by 0.05 points at most (intervals up to ± 0.06); 10 of the 10 cells" in precision_message(cells)
    assert precision_page(cells).notes[0].startswith("bfloat16 is equivalent to float32. 10 of 10 cells ran")
    for known, end in ((cells, "± 0.3 points."), (cells[cells["model"] != "cnn_relu"], "Not run: MNIST, CNN + ReLU.")):
        figure = draw_precision(known)
        assert " ".join(figure.get_supxlabel().replace("\N{NO-BREAK SPACE}", " ").split()).endswith(end)
        plt.close(figure)


@pytest.mark.parametrize(("mean", "spread"), [(0.1, 0.3), (-0.2, 0.2), (0.29, 0.1), (0.0, 0.6), (0.5, 0.1)])
def test_a_verdict_is_that_of_two_one_sided_tests(trained, mean, spread):
    """Against scipy's tests of the same ten differences."""
    cells = trained(by_seed(mean, spread))
    sample = [by_seed(mean, spread)({"seed": seed}) for seed in range(SEEDS)]
    sides = [stats.ttest_1samp(sample, margin, alternative=side).pvalue
             for margin, side in ((-MARGIN_PCT, "greater"), (MARGIN_PCT, "less"))]  # fmt: skip
    assert (set(cells["verdict"]) == {"equivalent"}) is bool(max(sides) < 0.05)


def test_a_difference_beyond_the_margin_is_said(trained):
    cells = trained(lambda row: -1.0 - 0.01 * row["seed"] if row["model"] == "cnn_tanh" else 0.01 * row["seed"])
    assert set(cells.query("model == 'cnn_tanh'")["verdict"]) == {"different"} and not is_equivalent(cells)
    assert precision_page(cells).notes[0].startswith("bfloat16 is not shown")


def test_nine_seeds_are_not_judged(trained):
    cells = trained(by_seed(0.0, 0.05), seeds=range(SEEDS - 1))
    assert set(cells["verdict"]) == {"too few seeds"} and not is_equivalent(cells)
    assert precision_message(cells).endswith("no cell has the 10 seeds of the rule")


def test_a_cell_that_collapses_is_left_out_and_named(trained):
    chance = lambda rows: rows.assign(  # noqa: E731
        accuracy_pct=rows["accuracy_pct"].where((rows["model"] != "cnn_relu") | (rows["seed"] > 0), 9.8)
    )
    cells = trained(by_seed(0.0, 0.05), change=chance)
    assert set(cells.query("model == 'cnn_relu'")["verdict"]) == {"collapsed"} and is_equivalent(cells)
    assert "8 equivalent, 2 collapsed" in precision_page(cells).notes[0]


def test_a_cell_that_did_not_run_and_stand_ins_decide_nothing(trained, as_stand_in):
    cells = trained(by_seed(0.0, 0.05), change=lambda rows: rows[rows["dataset"] == "mnist"])
    assert set(cells["verdict"]) == {"equivalent"} and not is_equivalent(cells)
    cells = trained(by_seed(0.0, 0.05), change=as_stand_in)
    assert not is_equivalent(cells) and precision_message(cells) == ""
    assert any("Stand-in" in note for note in precision_page(cells).notes)
