from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from dpfl.accounting import isrl_dp
from dpfl.accounting.contraction import hockey_stick
from dpfl.catalog import load
from dpfl.papers.lowy2021 import errata
from dpfl.papers.lowy2021.tables import TABLES
from dpfl.reporting import tables
from dpfl.reporting.evidence import table
from dpfl.reporting.results import Results


@pytest.fixture(scope="module")
def rows():
    return errata.all_errata()


def exact(row, tolerance):
    """Two routes agree to a relative `tolerance`, and the print is off by more than three times that."""
    close = abs(row.independent - row.right) <= tolerance * abs(row.right)
    return close and abs(row.printed - row.right) > 3 * tolerance * abs(row.right)


def between(row):
    """What is found independently lies above the print and at most at the right bound."""
    return row.printed < row.independent <= row.right


# Relative: 1e-8 for formulas, 1e-3 for grids of the loss, 2e-2 for the bound on the clipped mean (its profile takes
# both directions as worst at once) and for the simulated leak (fixed draws; deviation 0.003 in 0.55).
TOLERANCES = {1: 1e-8, 2: 1e-3, 3: 2e-2, 4: 1e-8, 6: 2e-2}
SAMPLED = "drawn with replacement, n = 356, epsilon"


def exact_rows(rows):
    return [row for row in rows if row.erratum in TOLERANCES and not (row.erratum == 1 and SAMPLED in row.case)]


def test_all_six_are_there(rows):
    assert sorted({row.erratum for row in rows}) == [1, 2, 3, 4, 5, 6]
    assert len(exact_rows(rows)) == 13


def test_right_values_are_found_by_the_other_route_and_printed_ones_are_not(rows):
    for row in exact_rows(rows):
        assert exact(row, TOLERANCES[row.erratum]), row


def test_doctored_rows_are_caught(rows):
    for row in exact_rows(rows):
        tolerance = TOLERANCES[row.erratum]
        assert not exact(replace(row, right=row.right * (1 + 5 * tolerance)), tolerance), row
        assert not exact(replace(row, independent=row.independent * (1 - 5 * tolerance)), tolerance), row
        assert not exact(replace(row, printed=row.right), tolerance), row
    for row in (row for row in rows if row.erratum == 5):
        assert not between(replace(row, right=row.printed)), row
        assert not between(replace(row, printed=row.right)), row


def test_the_noise_of_the_theorem_suffices_and_is_33_to_55_times_loose(rows):
    looseness = [row.printed / row.right for row in rows if row.erratum == 1 and "full batches" in row.case]
    assert looseness == pytest.approx([55.1, 41.3, 36.9, 33.1], abs=0.05)


def test_with_replacement_too_it_suffices(rows):
    sampled = [row for row in rows if row.erratum == 1 and SAMPLED in row.case]
    assert [row.right for row in sampled] == pytest.approx([0.0253, 0.352], rel=3e-3)
    for row in sampled:
        # The bound is near: nine tenths of it are spent on a known data set.
        assert 0.9 * row.right < row.independent < row.right < 0.04 * row.printed


def test_the_later_script_spends_more_than_it_promises(rows):
    minibatch, local, meant = [row for row in rows if row.erratum == 2]
    assert minibatch.right == pytest.approx(3.67, abs=0.005) and minibatch.right > minibatch.printed
    assert local.right > 40 * local.printed
    assert meant.right == pytest.approx(4 * 65 * 35 / 356**2)


def test_other_counts_of_records_spend_no_less():
    assert errata.batches() == (37, 65)
    for records, batch in ((446, 65), (356, 52)):
        delta = 1 / records**2
        variance = isrl_dp.moments_variance(epsilon=3, delta=delta, lipschitz=1, rounds=35, records=records)
        size = {"noise_multiplier": float(variance**0.5) * batch, "batch_size": batch, "records": records}
        assert isrl_dp.with_replacement_known_epsilon(**size, steps=35, delta=delta) > 4.3


def test_clipping_the_mean_spends_a_thousand(rows):
    later, theorem = [row for row in rows if row.erratum == 3]
    assert later.right == pytest.approx(1300, rel=0.01) and later.printed == 1
    assert theorem.right > 17 * theorem.printed
    assert all(row.independent < row.right for row in (later, theorem))


def test_one_record_turns_the_clipped_mean_of_a_real_batch_around():
    # The case behind the independent value: all others pull to -1, the record by far the other way.
    batch, draws = 65, 20_000
    gradients = np.full(errata.TRAINING, -1.0)
    gradients[0] = 2.0 * batch
    slots = np.random.default_rng(0).integers(0, errata.TRAINING, (draws, batch))
    means = np.clip(gradients[slots].mean(axis=1), -1, 1)
    assert set(means) == {-1.0, 1.0}
    rate = 1 - (1 - 1 / errata.TRAINING) ** batch
    # 4.75 standard errors: false alarm 2e-6
    assert abs((means > 0).mean() - rate) < 4.75 * (rate * (1 - rate) / draws) ** 0.5


def test_no_experiment_has_enough_clients(rows):
    condition, fewest = [row for row in rows if row.erratum == 4]
    assert condition.right == pytest.approx(339, abs=0.5) and fewest.right == 383
    assert condition.printed < condition.right


def test_a_private_mechanism_exceeds_the_printed_group_delta(rows):
    groups = [row for row in rows if row.erratum == 5]
    assert len(groups) == 3 and all(between(row) for row in groups)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_that_mechanism_is_private(epsilon):
    laws = errata.answer_laws(3, epsilon, 1e-6)
    for one, other in pairwise(laws):
        assert hockey_stick(one, other, epsilon) <= 1e-6 * (1 + 1e-9)
        assert hockey_stick(other, one, epsilon) == pytest.approx(1e-6, rel=1e-6)


def test_the_leak_is_almost_total(rows):
    assert [row.right for row in rows if row.erratum == 6] == pytest.approx([0.55, 0.98], abs=0.005)


def test_the_table_needs_no_runs_and_can_be_laid_out(rows, tmp_path, monkeypatch):
    monkeypatch.setattr("dpfl.papers.lowy2021.tables.all_errata", lambda: rows)
    data = TABLES["errata"].data(Results(tmp_path))
    assert data.equals(table(rows)) and not data.isna().any(axis=None)
    page = TABLES["errata"].page(data)
    # A bar in a cell would break the Markdown table.
    assert not page.body.map(lambda cell: "|" in cell).any(axis=None)
    assert tables.latex(page, load("lowy2021").tables["errata"]["title"], "label")
