import pytest

from dpfl.papers.lowy2021.tables import TABLES


def test_differences_are_paired_within_trials(results):
    data = TABLES["paired_differences"].data(results(gap=1.0))
    private = data[data["epsilon"] < float("inf")]
    # The trials' own spread (0.1) cancels in the pairs: the interval of a constant gap is zero.
    assert private["difference"].tolist() == pytest.approx([1.0, 1.0])
    assert private["interval"].max() < 1e-12
    assert (private["minibatch_better_trials"] == 20).all() and (data["trials"] == 20).all()


def test_the_noise_table_says_how_loose_the_noise_is(results):
    data = TABLES["noise"].data(results(epsilon_pld=0.1))
    assert len(data) == 4
    assert sorted(data["times_looser"]) == pytest.approx([10, 10, 100, 100])


def test_pages_name_the_stand_in(results):
    for recipe in (TABLES["paired_differences"], TABLES["noise"]):
        page = recipe.page(recipe.data(results(stand_in_for="insurance")))
        assert any("stands in for insurance" in note for note in page.notes)
        assert not any("stands in" in note for note in recipe.page(recipe.data(results())).notes)
