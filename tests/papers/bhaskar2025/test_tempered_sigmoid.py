import math

import pytest
from scipy import stats

from dpfl.models.image_models import TemperedSigmoid
from dpfl.papers.bhaskar2025.tables import TABLES
from dpfl.papers.bhaskar2025.tempered_sigmoid import DIVISOR, SigmoidReading, decide, expected_cells, tempered_cells

COUNTED = "table == 3 and model in ['cnn_tanh', 'scatter_cnn']"


def both(rows_of_runs, factor, divisor, query=COUNTED, seeds=range(3), noise=0.0):
    """Runs with both readings, so far from the print."""
    return (
        rows_of_runs(query, seeds, offset_pct=factor, noise_pct=noise),
        rows_of_runs(query, seeds, offset_pct=divisor, tempered_sigmoid=DIVISOR),
    )


def test_the_divisor_is_tanh_of_a_quarter():
    torch = pytest.importorskip("torch")
    x = torch.linspace(-9, 9, 101, dtype=torch.float64)
    assert torch.allclose(TemperedSigmoid(*DIVISOR)(x), torch.tanh(x / 4), atol=1e-12)


def test_the_rule_counts_36_cells():
    assert len(expected_cells()) == 36


def test_the_divisor_is_chosen_where_it_is_nearer_everywhere(as_runs, rows_of_runs):
    cells = tempered_cells(as_runs(*both(rows_of_runs, 3.0, 1.0, noise=0.2)))
    assert len(cells) == 36 * 4 and set(cells["left_out"]) == {"none", "0", "1", "2"}
    decision = decide(cells)
    assert decision.reading is SigmoidReading.DIVISOR and len(decision.gains_pct) == 6 and not decision.missing
    whole = cells[cells["left_out"] == "none"]
    gains = whole.groupby(["model", "epsilon"])["gain_pct"].mean()
    half = stats.t.ppf(0.975, 5) * gains.std() / math.sqrt(6)
    assert decision.interval_pct == pytest.approx(half) and decision.mean_pct == pytest.approx(gains.mean())
    assert decision.least_pct < decision.mean_pct < decision.most_pct
    page = TABLES["tempered_sigmoid"].page(cells)
    assert "is a divisor" in page.notes[0] and "still show tanh(x)" in page.notes[0] and len(page.body) == 36


def test_the_factor_stays_where_it_is_nearer_or_nothing_can_tell(as_runs, rows_of_runs):
    assert decide(tempered_cells(as_runs(*both(rows_of_runs, 1.0, 3.0)))).reading is SigmoidReading.FACTOR
    factor, divisor = both(rows_of_runs, 3.0, 1.0)
    # Nearer by 2 points in five columns, further by 20 in one: the interval takes in 0.
    divisor.loc[(divisor["model"] == "cnn_tanh") & (divisor["epsilon"] == 1.2), "accuracy_pct"] += 22
    decision = decide(tempered_cells(as_runs(factor, divisor)))
    assert decision.reading is SigmoidReading.FACTOR and abs(decision.mean_pct) < decision.interval_pct


def test_a_gain_by_the_last_split_alone_is_not_enough(as_runs, rows_of_runs):
    factor, divisor = both(rows_of_runs, 1.0, 1.1)
    divisor.loc[divisor["rounds"] == 1, "accuracy_pct"] -= 1.1
    decision = decide(tempered_cells(as_runs(factor, divisor)))
    assert decision.mean_pct - decision.interval_pct > 0 and decision.without_last_pct < 0
    assert decision.reading is SigmoidReading.FACTOR


@pytest.mark.parametrize(
    ("query", "seeds", "missing"), [(f"{COUNTED} and rounds > 1", range(3), 6), (COUNTED, [0], 36)]
)
def test_nothing_is_decided_before_all_cells_and_seeds_ran(as_runs, rows_of_runs, query, seeds, missing):
    decision = decide(tempered_cells(as_runs(*both(rows_of_runs, 3.0, 1.0, query, seeds))))
    assert decision.reading is SigmoidReading.UNDECIDED and decision.missing == missing


def test_other_data_are_shown_and_do_not_count(as_runs, rows_of_runs, as_stand_in):
    mnist = "table == 2 and model == 'cnn_tanh' and local_epochs == 1"
    cells = tempered_cells(as_runs(*map(as_stand_in, both(rows_of_runs, 3.0, 1.0, mnist, [0]))))
    assert len(cells) == 3 and cells["gain_pct"].isna().all()
    page = TABLES["tempered_sigmoid"].page(cells)
    assert page.notes[0].startswith("Undecided: none of the 36") and "Stand-in data (digits)" in page.notes[1]
    assert set(page.body["Published"]) == {"–"}


def test_without_runs_the_page_is_undecided(as_runs):
    cells = tempered_cells(as_runs())
    assert cells.empty and TABLES["tempered_sigmoid"].page(cells).notes[0].startswith("Undecided")
