import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from dpfl.catalog import keys, load
from dpfl.errors import InputError
from dpfl.reporting.errata import HEADINGS, ErratumKind, Numbers, errata, errata_page, errata_recipe
from dpfl.reporting.results import Results
from dpfl.reporting.tables import html_page


@pytest.fixture
def paper(monkeypatch):
    """A paper with one entry of each of three kinds, whose functions return what they are given."""
    texts = {"printed_form": "a {x:g}", "corrected_form": "b", "case": "x = {x:g}, twice {twice:g}", "source": "route"}
    entries = {
        "loose_one": {**texts, "kind": "loose", "number": 2, "arguments": [{"x": 1.0}, {"x": 2.0}]},
        "wrong_one": {**texts, "kind": "wrong", "number": 3, "arguments": [{"x": 4.0}]},
        "silence": {"kind": "unstated", "number": 1, "printed_form": "nothing", "corrected_form": "", "case": ""},
    }

    class Functions:
        @staticmethod
        def loose_one(x):
            return Numbers(3 * x, x, np.float64(x), {"twice": 2 * x})

        @staticmethod
        def wrong_one(x):
            return Numbers.simulated(3 * x, x, [x - 1, x, x + 1], {"twice": 2 * x})

    key = keys()[0]
    changed = replace(load(key), errata=entries)
    monkeypatch.setattr("dpfl.reporting.errata.load", lambda asked: changed)
    monkeypatch.setattr("dpfl.reporting.errata.module", lambda asked, name: Functions)
    return key


def test_a_row_a_case_errors_first(paper):
    data = errata(paper)
    assert data["kind"].tolist() == ["wrong", "loose", "loose", "unstated"]
    assert data["case"].tolist() == ["x = 4, twice 8", "x = 1, twice 2", "x = 2, twice 4", ""]
    assert data["printed"].tolist()[:3] == [12.0, 3.0, 6.0] and data["printed_form"].iloc[0] == "a 4"
    assert data[["printed", "corrected", "independent"]].isna().all(axis=1).tolist() == [False, False, False, True]


def test_a_value_that_is_shown_takes_the_place_of_its_argument(paper, monkeypatch):
    spelled = SimpleNamespace(
        loose_one=lambda x: Numbers(x, x, x, {"twice": 2 * x}),
        wrong_one=lambda x: Numbers(x, x, x, {"x": 5, "twice": 6}),
    )
    monkeypatch.setattr("dpfl.reporting.errata.module", lambda asked, name: spelled)
    assert errata(paper)["case"].iloc[0] == "x = 5, twice 6"


def test_a_reader_sees_headings_and_no_number_where_there_is_none(paper):
    page = errata_page(errata(paper))
    assert [heading for heading, _ in page.sections()] == [HEADINGS[kind] for kind in ("wrong", "loose", "unstated")]
    assert page.body["Independent value"].tolist() == ["4 ± 2.5 at 95 % (route)", "1 (route)", "2 (route)", ""]
    assert page.body["Published gives"].iloc[-1] == "" and HEADINGS[ErratumKind.LOOSE] in html_page(page, "title")


def test_a_kind_that_does_not_exist_is_refused(paper):
    load_entries = errata.__globals__["load"](paper).errata
    load_entries["wrong_one"]["kind"] = "rong"
    with pytest.raises(ValueError, match="rong"):
        errata(paper)


def test_the_recipe_needs_no_runs(paper, tmp_path):
    recipe = errata_recipe(paper)
    pd.testing.assert_frame_equal(recipe.data(Results(tmp_path)), errata(paper))


def test_a_file_without_entries_is_one_line(monkeypatch):
    monkeypatch.setattr("dpfl.reporting.errata.load", lambda key: SimpleNamespace(errata={}))
    with pytest.raises(InputError, match=r"sixth2026/errata\.yaml has no entry"):
        errata("sixth2026")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (None, "errata.py has no function off, which errata.yaml names"),
        (lambda: 1.0, "errata.yaml: off: its function in errata.py: got an unexpected keyword argument 'n'"),
        (lambda n, m: 1.0, "errata.yaml: off: its function in errata.py: missing a required argument: 'm'"),
        (lambda n: 1.0, "errata.py: off returned a float; it must return Numbers"),
        (lambda n: Numbers("many", 1, 1), "errata.py: off returned printed 'many'; it must be a number"),
        (lambda n: Numbers(1, None, 1), "errata.py: off returned corrected None; it must be a number"),
        (lambda n: Numbers(1, 1, [1]), "errata.py: off returned independent [1]; it must be a number"),
        (lambda n: Numbers(1, 1, 1, {}, 2, "wide"), "errata.py: off returned interval 'wide'; it must be a number"),
    ],
)
def test_a_slip_in_the_function_of_an_entry_is_one_line(monkeypatch, function, said):
    entry = {"kind": "wrong", "number": 1, "arguments": [{"n": 3}]}
    monkeypatch.setattr("dpfl.reporting.errata.load", lambda key: SimpleNamespace(errata={"off": entry}))
    monkeypatch.setattr("dpfl.reporting.errata.module", lambda key, name: SimpleNamespace(off=function))
    with pytest.raises(InputError, match=re.escape(said)) as refused:
        errata("sixth2026")
    assert "\n" not in str(refused.value)
