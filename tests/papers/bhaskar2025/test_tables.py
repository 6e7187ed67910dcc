import pandas as pd

from dpfl.papers.bhaskar2025.tables import TABLES
from dpfl.reporting.results import Results


def test_pages_say_what_was_not_run(tmp_path):
    for name in [f"table_{number}" for number in (2, 3, 4, 5)]:
        recipe = TABLES[name]
        page = recipe.page(recipe.data(Results(tmp_path)))
        ours = page.body[page.body[""] == "ours"]
        assert (ours.iloc[:, 4:] == "not run").all(axis=None), name
        assert any("cells were not run" in note for note in page.notes)
        assert len(page.body) == 36


def test_a_page_names_stand_in_noise_and_number_of_runs(tmp_path):
    data = TABLES["table_2"].data(Results(tmp_path))
    data.loc[0:7, ["runs", "accuracy_pct", "interval_pct"]] = [2, 90.0, 1.5]
    data.loc[0:7, "stand_in"] = True
    data.loc[0:7, ["ran_on", "data_note", "sampling"]] = ["digits", "A note.", "shuffled_epochs"]
    data.loc[0:7, ["noise_multiplier", "delta", "epsilon_rdp", "epsilon_pld"]] = [1.007, 1e-5, 2.93, 2.6]
    page = TABLES["table_2"].page(data)
    assert "90.00 ± 1.50 (2)" in page.body.to_string() and "stand-in" in page.body.to_string()
    notes = " ".join(page.notes)
    for words in ("digits stands in for mnist", "A note.", "1.0070", "by PLD 2.600", "shuffled epochs", "of 10 runs"):
        assert words in notes, words
    assert isinstance(page.body, pd.DataFrame)
