import numpy as np
import pytest
from scipy import stats

from dpfl.papers.bhaskar2025.sampling_study import SAMPLERS, sampling_cells
from dpfl.papers.bhaskar2025.tables import TABLES

CELLS = "table == 2 and model == 'scatter_linear' and epsilon < inf"
# Claimed, proven and refuted epsilon of each sampler at noise multiplier 1.0072, 94 steps an epoch, 20 epochs.
EPSILONS = {"shuffled_epochs": (28.1, 12.77), "poisson": (2.642, 2.640), "balls_in_bins": (2.505, 2.504)}


def three(rows_of_runs, seeds=range(4), query=CELLS, noise=0.2):
    """The same runs under each sampler, with accuracies shifted by a constant that differs by sampler."""
    for shift, (sampling, (proven, refuted)) in enumerate(EPSILONS.items()):
        runs = rows_of_runs(query, seeds, offset_pct=-0.1 * shift, noise_pct=noise, sampling=sampling, study="sampling")
        scale = runs["epsilon"] / 2.93
        yield runs.assign(
            privacy_sampling=sampling,
            privacy_epsilon_proven=proven * scale,
            privacy_epsilon_refuted=refuted * scale,
        )


def test_differences_are_paired_by_seed(as_runs, rows_of_runs):
    cells = sampling_cells(as_runs(*three(rows_of_runs)))
    assert len(cells) == 2 * 7 * 3 and list(cells["sampling"][:3]) == list(SAMPLERS)
    over = cells.groupby("sampling")["over_shuffled_pct"].unique()
    # The seeds' noise is the same for all samplers, so it cancels.
    assert over["poisson"] == pytest.approx(-0.1) and over["balls_in_bins"] == pytest.approx(-0.2)
    assert cells["over_shuffled_interval_pct"].to_numpy() == pytest.approx(0, abs=1e-10)
    assert cells["interval_pct"].max() > 0.1


def test_an_interval_is_that_of_the_differences(as_runs, rows_of_runs):
    tables = list(three(rows_of_runs, query=f"{CELLS} and epsilon > 2 and local_epochs == 1"))
    tables[1]["accuracy_pct"] += np.array([0.1, 0.2, 0.3, 0.6])
    cells = sampling_cells(as_runs(*tables)).query("sampling == 'poisson' and split == '(1, 20)'")
    [row] = cells.to_dict("records")
    extra = np.array([0.1, 0.2, 0.3, 0.6]) - 0.1
    assert row["over_shuffled_pct"] == pytest.approx(extra.mean())
    half = stats.t.ppf(0.975, 3) * extra.std(ddof=1) / 2
    assert row["over_shuffled_interval_pct"] == pytest.approx(half)


def test_all_splits_are_averaged_seed_by_seed(as_runs, rows_of_runs):
    tables = list(three(rows_of_runs, query=f"{CELLS} and epsilon > 2"))
    tables[1].loc[tables[1]["rounds"] == 1, "accuracy_pct"] += 0.6
    cells = sampling_cells(as_runs(*tables))
    [row] = cells.query("sampling == 'poisson' and split == 'all'").to_dict("records")
    assert row["runs"] == 4 and row["over_shuffled_pct"] == pytest.approx(-0.1 + 0.6 / 6)
    assert cells["split"].iloc[-1] == "all" and cells["split"].iloc[0] == "(1, 20)"


def test_a_seed_without_all_three_samplers_is_left_out(as_runs, rows_of_runs):
    tables = list(three(rows_of_runs))
    tables[2] = tables[2][tables[2]["seed"] < 2]
    cells = sampling_cells(as_runs(*tables))
    assert (cells["runs"] == 2).all()


def test_published_poisson_runs_and_those_of_the_study_count_once(as_runs, rows_of_runs):
    tables = list(three(rows_of_runs))
    assert (sampling_cells(as_runs(*tables, tables[1].assign(study="")))["runs"] == 4).all()


def test_the_page_says_what_is_claimed_proven_and_refuted(as_runs, rows_of_runs):
    page = TABLES["sampling"].page(sampling_cells(as_runs(*three(rows_of_runs))))
    assert page.notes[0].startswith(
        "What provable batches cost, MNIST, ScatterNet + linear, ε = 2.93, mean of all splits"
    )
    assert "Poisson -0.10 ± 0.00 points (proven ε 2.65)" in page.notes[0]
    first = page.body.iloc[0]
    assert tuple(first[["ε claimed", "ε proven", "ε at least", "Claim"]]) == ("2.93", "28.10", "12.77", "refuted")
    assert set(page.body.loc[page.body["Batches"] != "shuffled epochs", "Claim"]) == {"kept"}
    assert [heading for heading, _ in page.sections()] == [
        "MNIST, ScatterNet + linear, noise for ε = 2.93",
        "MNIST, ScatterNet + linear, noise for ε = 1.2",
    ]


def test_one_seed_has_no_interval_and_stand_ins_are_named(as_runs, rows_of_runs, as_stand_in):
    page = TABLES["sampling"].page(sampling_cells(as_runs(*map(as_stand_in, three(rows_of_runs, [0])))))
    assert not page.body["Over shuffled"].str.contains("±").any() and "A note." in page.notes
    assert page.headings[0].startswith("Digits (stand-in for MNIST)")


def test_without_the_study_the_page_says_so(as_runs, rows_of_runs):
    cells = sampling_cells(as_runs(rows_of_runs(CELLS, [0])))
    assert cells.empty and TABLES["sampling"].page(cells).notes == [
        "No seed ran with all three samplers at this scale."
    ]
