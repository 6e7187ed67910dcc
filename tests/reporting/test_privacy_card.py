"""Privacy cards: what they say is what the columns say, rounded to the safe side."""

import math

import pandas as pd
import pytest

from dpfl.accounting import Poisson, ShuffledEpochs, WithReplacement
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.statements import ClippedMeanGaussian, Gaussian, PrivacyStatement
from dpfl.catalog import load
from dpfl.reporting import tables
from dpfl.reporting.privacy_card import card, private_runs, statement_facts, table_card
from dpfl.reporting.results import ORIGINS, Results, write_table
from dpfl.reporting.tables import TableRecipe

PAPER, TABLE = "bhaskar2025", "table_2"


def statement(sampler, noise, relation=Neighbouring.ZERO_OUT):
    run = {"records": 100, "noise_multiplier": noise, "steps": 50, "delta": 1e-5, "clip_norm": 0.5}
    return PrivacyStatement.of(Gaussian(), sampler, neighbouring=relation, **run).columns()


def rows_of(text):
    """The rows of each table of a card, as lists of cells."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [row for row in lines if not row[0].startswith(":")]


@pytest.mark.parametrize("claimed", [2.0, 20.0, math.inf, None, math.nan])
def test_a_statement_is_told_without_losing_a_bound(claimed):
    stated = statement(Poisson(0.1), 1.0)
    facts = statement_facts(stated, claimed)
    proven, exceeded = (float(facts[f"epsilon, {name}"].split()[2].rstrip(",")) for name in ("proven", "exceeded"))
    assert proven >= stated["privacy_epsilon_proven"] > stated["privacy_epsilon_refuted"] >= exceeded
    assert proven < 1.001 * stated["privacy_epsilon_proven"] and 2 < exceeded < 20
    judged = {2.0: "2 (refuted)", 20.0: "20 (proven)"}.get(claimed, "none")
    assert facts["epsilon, claimed"] == judged
    assert "clip norm 0.5; noise multiplier 1" in facts["Mechanism"] and "probability 0.1" in facts["Sampler"]


def test_no_noise_is_no_privacy_and_nothing_proven_is_said():
    facts = statement_facts(statement(Poisson(0.1), 0.0), None)
    assert facts["Mechanism"].startswith("no noise: no privacy") and facts["epsilon, proven"] == "none"
    facts = statement_facts(statement(Poisson(0.1), 1.0, Neighbouring.REPLACE_ONE), None)
    assert facts["Neighbouring data"] == "replace one: one record becomes another"


def test_a_card_is_a_title_rows_and_notes():
    text = card("Title", {"a": "1", "b": "2"}, ["one", "two"])
    assert text.startswith("**Title**\n\n") and text.endswith("\n- one\n- two\n")
    assert rows_of(text)[1:] == [["a", "1"], ["b", "2"]]


def runs():
    """Runs of three cells with two seeds each: Poisson, shuffled batches that claim the same epsilon, no privacy."""
    common = {"experiment": "fedavg_images", "dataset": "digits", "stand_in_for": "mnist", "model": "cnn_tanh"}
    cells = [(3.0, statement(Poisson(0.1), 2.0)), (3.0, statement(ShuffledEpochs(10, 100), 0.5))]
    cells.append((math.inf, statement(Poisson(0.1), 0.0)))
    return pd.DataFrame([{**common, "epsilon": e, "seed": s, **own} for e, own in cells for s in (0, 1)])


def test_a_table_has_a_row_for_each_private_setting():
    text = table_card(PAPER, TABLE, private_runs(runs()), ["A limit."])
    header, poisson, shuffled = rows_of(text)[-3:]
    verdicts = {"proven", "refuted", "unproven"}
    assert poisson[:2] == ["poisson", "3"] and shuffled[:2] == ["shuffled epochs", "3"]
    assert [row[header.index("the claim is")] for row in (poisson, shuffled)] == ["proven", "refuted"]
    assert {poisson[4], shuffled[4]} <= verdicts and poisson[header.index("steps")] == "50"
    facts = dict(row for row in rows_of(text) if len(row) == 2)
    assert facts["Runs"] == "4 with noise" and facts["Model"] == "CNN + tanh"
    assert "\n- A limit.\n" in text
    assert "stand-in for MNIST" in facts["Data"] and load(PAPER).url in facts["Paper"]


def test_settings_that_differ_in_no_digit_shown_have_one_row():
    """Two runs of one accountant may differ in the last digit of a bound."""
    near = runs()
    near.loc[near["seed"] == 1, "privacy_epsilon_proven"] *= 1 - 1e-12
    assert len(near.drop_duplicates("privacy_epsilon_proven")) == 5
    assert rows_of(table_card(PAPER, TABLE, private_runs(near))) == rows_of(
        table_card(PAPER, TABLE, private_runs(runs()))
    )


def test_a_note_of_some_runs_says_how_many_and_of_all_runs_does_not():
    notes = ["divisor 63; one client's budget"] * 3 + ["divisor 63"]
    text = table_card(PAPER, TABLE, private_runs(runs()).assign(privacy_note=notes))
    assert "\n- Divisor 63.\n- 3 of 4 runs: one client's budget.\n" in text
    assert text.index("Divisor 63") < text.index("noise multiplier")  # what limits the epsilons is above them


@pytest.mark.parametrize("given", [runs().assign(epsilon=math.nan), runs().drop(columns="epsilon")])
def test_runs_whose_noise_is_given_have_epsilons_without_a_claim(given):
    header, poisson, shuffled = rows_of(table_card(PAPER, TABLE, private_runs(given)))[-3:]
    stated = given["privacy_epsilon_proven"][0]
    assert float(poisson[header.index("proven")]) == pytest.approx(stated, rel=1e-3)
    for row in (poisson, shuffled):
        assert row[header.index("ε claimed")] == "none" and row[header.index("the claim is")] == ""


def test_the_epsilon_of_a_control_is_false_on_purpose_and_on_no_card():
    marked = runs().assign(known_bad=[True, False, False, False, False, False])
    assert private_runs(marked).index.tolist() == [1, 2, 3]
    mixed = marked.astype({"known_bad": object}).assign(known_bad=[True, math.nan, False, False, False, math.nan])
    assert private_runs(mixed).index.tolist() == [1, 2, 3]  # read with runs that were not attacked


def test_a_bound_that_was_unknown_when_runs_were_trained_is_the_one_of_today():
    sampler = WithReplacement(20, 100)
    run = {
        "records": 100,
        "noise_multiplier": 2.0,
        "steps": 50,
        "delta": 1e-5,
        "neighbouring": Neighbouring.REPLACE_ONE,
    }
    today = PrivacyStatement.of(ClippedMeanGaussian(), sampler, **run).columns()
    before = today | {"privacy_epsilon_refuted": 0.0, "privacy_refuted_by": "nothing"}
    other = runs().iloc[[0]].to_dict("records")[0]
    table = pd.DataFrame([other | before, other], index=[7, 3])
    known = private_runs(table)
    assert today["privacy_epsilon_refuted"] > 5 and known.index.tolist() == [7, 3]
    bounds = ["privacy_epsilon_refuted", "privacy_refuted_by"]
    assert known.loc[7, bounds].tolist() == [today[each] for each in bounds]
    assert known.loc[3].equals(table.loc[3]) and table.loc[7, "privacy_refuted_by"] == "nothing"


def test_a_model_without_a_name_is_that_of_its_experiment():
    own = private_runs(runs().assign(experiment="ldp_regression", model=["cnn_tanh", math.nan] * 3))
    facts = dict(row for row in rows_of(table_card(PAPER, TABLE, own)) if len(row) == 2)
    assert facts["Model"] == "CNN + tanh, that of experiment ldp regression"


def test_what_all_runs_note_of_their_own_epsilon_is_one_note():
    notes = ["noise for epsilon 0.5, of two; no more", "noise for epsilon 12, of two", "noise for epsilon 1e-05"]
    text = table_card(PAPER, TABLE, private_runs(runs()).assign(privacy_note=[*notes, notes[2]]))
    assert "\n- 2 of 4 runs: noise for its epsilon, of two.\n- 1 of 4 runs: no more.\n" in text
    assert "\n- 2 of 4 runs: noise for its epsilon.\n" in text


def test_notes_of_the_training_code_are_in_the_words_of_the_pages():
    notes = [
        "noise as published (moments) for epsilon 0.5, for n = 9 records; no more",
        "noise as published (advanced_composition) for epsilon 12",
        "1 rounds step beyond 2/beta and are accounted for by the relaxed diameter",
        "11 rounds step beyond 2/beta and are accounted for by the relaxed diameter",
    ]
    text = table_card(PAPER, TABLE, private_runs(runs()).assign(privacy_note=notes))
    for said in (
        "noise of the authors' later script, for n = 9 records.",
        "noise of Theorem 2.1.",
        "one round has a step above 2/beta, and its bound uses the relaxed diameter.",
        "11 rounds have a step above 2/beta, and their bound uses the relaxed diameter.",
    ):
        assert f"\n- 1 of 4 runs: {said}\n" in text


@pytest.mark.parametrize("kept", [runs().iloc[4:], pd.DataFrame()])
def test_a_table_without_private_runs_has_none(kept):
    assert private_runs(kept).empty


def test_a_table_that_names_its_runs_is_written_with_its_card(tmp_path, monkeypatch):
    write_table(runs(), tmp_path / "runs" / "job.csv.gz")
    results = Results(tmp_path, {PAPER: (tmp_path / "runs" / "job.csv.gz",)})
    compared = dict.fromkeys(tables.printed_columns(PAPER, TABLE), 1)
    named = pd.DataFrame({"cell": ["a", "b"], **compared, ORIGINS: ["job:0 job:1", "job:4"]})
    monkeypatch.setattr(tables, "recipe", lambda *_: TableRecipe(lambda results: named, tables.TableLayout))
    made = tables.make(PAPER, TABLE, results, tmp_path / "tables")
    assert made[-1].name == f"{PAPER}_{TABLE}.privacy.md"
    assert rows_of(made[-1].read_text())[-1][0] == "poisson" and "2 with noise" in made[-1].read_text()
    named[ORIGINS] = ["job:4", ""]
    assert tables.make(PAPER, TABLE, results, tmp_path / "tables") == made[:-1] and not made[-1].exists()
