import math

import pytest

from dpfl.papers.lowy2021.tables import TABLES

OWN = ("paired_differences", "noise", "price", "authors_protocol", "mnist_differences")


def test_differences_are_paired_within_trials(results):
    data = TABLES["paired_differences"].data(results(gap=1.0))
    private = data[(data["epsilon"] < math.inf) & (data["clipping"] == "record")]
    # The trials' own spread (0.1) cancels in the pairs: what is left is that of the budgets (0.014).
    assert private["difference"].tolist() == pytest.approx([1.0] * 6, abs=0.02)
    assert private["interval"].max() < 0.01 and (private["holm_p_value"] < 1e-6).all()
    assert (private["minibatch_better_trials"] == 20).all() and (data["trials"] == 20).all()
    assert data.loc[data["epsilon"] == math.inf, "holm_p_value"].isna().all()


def test_mnist_is_also_held_against_local_sgd_without_privacy(results):
    data = TABLES["mnist_differences"].data(results(gap=1.0)).query("epsilon == 18")
    # Minibatch at 18: 5 + 10/18; local without privacy: 6.
    assert data["free_difference"].tolist() == pytest.approx([1 - 10 / 18] * 2, abs=0.02)
    assert set(data["split"]) == {"published", "disjoint"} and (data["difference"] > 0.9).all()
    [published] = [note for note in TABLES["mnist_differences"].page(data).notes if note.startswith("Published split")]
    assert "not to replace an image" in published and "fitted on the private images" in published


def test_the_price_is_the_difference_to_the_run_without_privacy(results):
    data = TABLES["price"].data(results(gap=1.0)).query("algorithm == 'minibatch' and noise == 'tight'")
    assert data["epsilon"].tolist() == [1.0, 18.0]
    assert data["difference"].tolist() == pytest.approx([10.0, 10 / 18], abs=0.02)
    assert data["free_test_loss"].tolist() == pytest.approx([5.0, 5.0], abs=0.1)


def test_the_noise_table_says_how_loose_the_noise_is(results):
    data = TABLES["noise"].data(results(epsilon_proven=0.1)).query("clipping == 'record'")
    assert len(data) == 3 * 4
    assert sorted(set(data["times_looser"])) == pytest.approx([10, 180])


def test_pages_name_the_stand_in(results):
    made = results(stand_in_for="insurance")
    for name in OWN:
        page = TABLES[name].page(TABLES[name].data(made))
        assert any("stands in for insurance" in note for note in page.notes)
    real = results()
    for name in OWN:
        page = TABLES[name].page(TABLES[name].data(real))
        assert not any("stands in" in note for note in page.notes)
        assert not page.body.map(lambda cell: "nan" in cell).any(axis=None), name
