import pytest

from dpfl.catalog import recipes
from dpfl.papers.lowy2021.tables import TABLES

OWN = ("paired_differences", "noise", "price", "authors_protocol", "mnist_differences")
RECIPES = recipes("lowy2021", "tables")


def test_the_page_of_mnist_says_what_its_splits_protect(results):
    page = TABLES["mnist_differences"].page(TABLES["mnist_differences"].data(results(gap=1.0)))
    [published] = [note for note in page.notes if note.startswith("Published split")]
    assert "not to replace an image" in published and "fitted on the private images" in published


def test_mnist_says_what_the_scripts_budgets_are_on_the_datas_rows(results):
    data = TABLES["mnist_differences"].data(results())
    row = data[data["epsilon"] == 1.0].iloc[0]
    proven, refuted = (row[f"minibatch_epsilon_of_rows_{end}"] for end in ("proven", "refuted"))
    assert 1.0 < refuted <= proven < 18.0  # a budget of 1 is exceeded, one of 18 is kept
    [note] = [note for note in TABLES["mnist_differences"].page(data).notes if "On the data's rows" in note]
    assert note.endswith("So counted, the later script's budgets, each once for every split, are: 2 proven, 2 refuted.")


def test_the_noise_table_says_how_loose_the_noise_is(results):
    data = TABLES["noise"].data(results(epsilon_proven=0.1)).query("clipping == 'record'")
    assert len(data) == 3 * 4
    assert sorted(set(data["times_looser"])) == pytest.approx([10, 180])


def test_the_noise_table_says_what_becomes_of_an_epsilon(results):
    """18 is proven of what spends 18 at most, 1 is refuted by a pair that spends 16.2, and open above it 0.9 of 1.1."""
    for spent, verdicts in ((18.0, {1.0: "refuted", 18.0: "proven"}), (1.1, {1.0: "unproven", 18.0: "proven"})):
        data = TABLES["noise"].data(results(epsilon_proven=spent)).query("clipping == 'record'")
        shown = TABLES["noise"].page(data).body["ε asked is"]
        assert dict(zip(data["epsilon"], shown, strict=True)) == verdicts
        assert data["epsilon_refuted"].to_numpy() == pytest.approx(0.9 * spent)


def test_pages_name_the_stand_in(results):
    made = results(stand_in_for="insurance")
    for name in OWN:
        page = RECIPES[name].page(RECIPES[name].data(made))
        assert any("stands in for insurance" in note for note in page.notes)
    real = results()
    for name in OWN:
        page = RECIPES[name].page(RECIPES[name].data(real))
        assert not any("stands in" in note for note in page.notes)
        assert not page.body.map(lambda cell: "nan" in cell).any(axis=None), name
