import math
from dataclasses import replace

import pandas as pd
import pytest

from dpfl.catalog import load
from dpfl.files import file_sha256
from dpfl.provenance.trace import conditions, rows_where
from dpfl.reporting.report_page.claim_views import (
    ANSWERS,
    STYLES,
    Trace,
    case_name,
    claim_views,
    claimed_words,
    deciding_case,
    row_conditions,
    shown_by,
    tally,
    trace_of,
    why_undecided,
)
from dpfl.reporting.report_page.contents import contents
from dpfl.reporting.report_page.render import html
from dpfl.reporting.results import read_csv
from dpfl.reporting.rules import Status, Verdict

WORDS = ["as stated", "weaker than stated", "refuted", "undecided", "not run"]
EVIDENCE = "claims/asoodeh2020_evidence.csv"
ROW = {"case": "k = 10", "estimate": 1.25, "low": 0.5, "high": 2.0, "n": 10, "adjusted_p": 0.002, "unit": "points"}
ROW |= {"target": 0.0, "our_question": False}


def test_every_verdict_has_a_word_a_colour_and_a_sign_of_its_own():
    assert list(STYLES) == list(Verdict)
    for part in ("word", "style", "sign"):
        assert len({getattr(style, part) for style in STYLES.values()}) == len(Verdict)


def test_claims_come_with_verdict_cases_and_places(made):
    views = claim_views(made[0], "asoodeh2020")
    assert [view.verdict.word for view in views] == WORDS
    assert [(place.kind, place.name) for place in views[0].places] == [("table", "errata"), ("figure", "figure_2")]
    assert views[1].settings == "In setting 1."
    assert views[0].part_of == "" and views[1].part_of == views[0].text
    assert [row.style for row in views[0].cases.rows] == ["c-fails", "c-holds"]
    assert "published" not in views[0].cases.columns, "a column that says nothing is left out"


def test_a_page_that_the_paper_no_longer_has_is_no_place(changed):
    folder = changed("claims/asoodeh2020.csv", lambda table: table.assign(places="tables/checks figures/figure_2"))
    assert [place.name for place in claim_views(folder, "asoodeh2020")[0].places] == ["figure_2"]


def test_the_tally_follows_the_order_of_the_verdicts(made):
    views = claim_views(made[0], "asoodeh2020")
    assert [(style.word, count) for style, count in tally([*views[2:], views[4]])] == [
        ("refuted", 1), ("undecided", 1), ("not run", 2)
    ]  # fmt: skip


def test_a_question_of_ours_is_answered_and_counted_nowhere(changed):
    asked = ["claim_2", "claim_3"]
    folder = changed("claims/asoodeh2020.csv", lambda table: table.assign(our_question=table["claim"].isin(asked)))
    views = claim_views(folder, "asoodeh2020")
    assert {view.key: view.verdict.word for view in views if view.our_question} == {
        "claim_2": "no",
        "claim_3": "undecided",
    }
    assert [style.word for style, _ in tally(views)] == ["as stated", "weaker than stated", "not run"]
    assert list(ANSWERS) == list(Verdict) and all(style.style == "asked" for style in ANSWERS.values())


def test_a_rule_says_what_decides_and_what_a_case_needs(made):
    rule = "The claim is about every case, so one case that contradicts it refutes it. In each case the number must be "
    assert {view.rule for view in claim_views(made[0], "asoodeh2020")} == {rule + "above its target."}


def test_the_figure_of_a_claim_is_the_first_that_its_cases_were_read_from(made):
    assert {view.figure for view in claim_views(made[0], "asoodeh2020")} == {"figure_2"}
    assert {view.figure for view in claim_views(made[0], "bhaskar2025")} == {""}


def test_the_deciding_case_is_one_line_with_its_numbers():
    assert deciding_case(ROW, "above 0") == (
        "k = 10: 1.25 points (0.5 to 2, 95 % interval of 10 runs); the claim needs above 0"
    )
    computed = {**ROW, "low": 1.25, "high": 1.25, "n": 0, "adjusted_p": math.nan, "unit": ""}
    assert deciding_case(computed, "at most 1") == "k = 10: 1.25 (computed); the claim needs at most 1"
    asked = {**computed, "our_question": True}
    assert deciding_case(asked, "at most 1") == "k = 10: 1.25 (computed); a yes needs at most 1"
    single = {**ROW, "low": math.nan, "high": math.nan, "n": 1, "adjusted_p": math.nan}
    assert deciding_case(single, "") == "k = 10: 1.25 points (one run)"
    assert deciding_case({**ROW, "case": ""}, "above 0") == ""


def test_the_long_reason_of_an_undecided_claim_is_behind_the_fold(made):
    page, views = html(contents(*made)), claim_views(made[0], "asoodeh2020")
    assert [view.in_short == view.reason for view in views] == [True, True, True, False, True]
    card = page[page.index('id="claim-asoodeh2020-claim_3"') :]
    first, folded = card[: card.index("</article>")].split('<div class="folds">')
    assert views[3].in_short in first and views[3].reason not in first and f"In numbers: {views[3].reason}" in folded


@pytest.mark.parametrize(
    ("within", "margin"),
    [("above 0, margin 1", "the margin (1 point)"), ("above 0, margin 0.5", "the margin"), ("above 0", "the margin")],
)
def test_an_undecided_claim_names_its_margin_unless_cases_have_their_own(made, within, margin):
    row = read_csv(made[0] / "claims" / "asoodeh2020.csv").set_index("claim").loc["claim_3"].to_dict()
    row |= {"margin": 1.0, "unit": "lead, in points =", "hold": 1, "fail": 0, "open": 3, "short": 1, "fail_alone": 0}
    said = why_undecided(row, pd.DataFrame({"within": [within, "above 0, tested: above -1"]}))
    short = f"In 1 case it falls short by more than chance, but perhaps by less than {margin}."
    assert said.endswith(f" {short} In 0 of 4 cases the number is on the claim's side.")
    assert why_undecided({**row, "verdict": "refuted"}, None) == ""
    # Decided if all runs were there: the reason says so, and "3 of the 3 cases show it" would not.
    assert why_undecided({**row, "reason": "So far as stated. Shown in all 3 cases. Its job was not run."}, None) == ""
    exists = why_undecided({**row, "scope": "exists", "hold": 0, "fail": 1, "open": 3}, None)
    assert exists.startswith("None of the 4 cases shows it, and one would be enough; 1 misses it by more than chance")


def test_what_was_not_run_is_said_of_an_undecided_claim(changed):
    left = "None of the 2 cases shows it. 4 more cases were not run. Of the 9 jobs behind all cases, 2 were not run."
    folder = changed(
        "claims/asoodeh2020.csv", lambda table: table.assign(reason=table["reason"].where(table.index != 3, left))
    )
    undecided = claim_views(folder, "asoodeh2020")[3]
    assert "4 more cases were not run. Of the 9 jobs behind all cases, 2 were not run." in undecided.in_short


def test_a_case_may_be_called_by_a_number(changed, made):
    number = {"case 0": "1", "case 3": "2", "another": "0.5"}
    folder = changed(
        "claims/asoodeh2020_evidence.csv",
        lambda table: table.assign(case=table["case"].map(number).fillna("7"), within="3"),
    )
    assert len(claim_views(folder, "asoodeh2020")) == len(claim_views(made[0], "asoodeh2020"))


def test_a_caveat_stands_beside_the_verdict(made, monkeypatch):
    monkeypatch.setitem(load("asoodeh2020").claims, "claim_0", {"caveat": "Only at epsilon = 1."})
    monkeypatch.setitem(load("asoodeh2020").claims, "claim_3", {"caveat": "Only at epsilon = 1."})
    views = claim_views(made[0], "asoodeh2020")
    assert [view.in_short.endswith(" Only at ε = 1.") for view in views] == [True, False, False, True, False]
    assert views[3].in_short.startswith("1 of the 2 cases shows it")


def test_what_the_deciding_case_is_hangs_on_the_verdict(made, changed):
    assert [view.decides for view in claim_views(made[0], "asoodeh2020")] == [
        "Deciding case", "Deciding case", "Counterexample", "Least certain case", "Deciding case"
    ]  # fmt: skip
    missed = changed("claims/asoodeh2020.csv", lambda table: table.assign(estimate=table["target"] - 100.0))
    assert [view.decides for view in claim_views(missed, "asoodeh2020")] == [
        "Strongest case against it", "Deciding case", "Counterexample", "Strongest case against it", "Deciding case"
    ]  # fmt: skip
    asked = changed("claims/asoodeh2020.csv", lambda table: table.assign(our_question=True))
    assert claim_views(asked, "asoodeh2020")[2].decides == "Deciding case"
    exists = changed("claims/asoodeh2020.csv", lambda table: table.assign(scope="exists"))
    assert claim_views(exists, "asoodeh2020")[3].decides == "Deciding case"


def test_a_unit_that_names_a_quantity_stands_before_its_number(changed):
    row = {**ROW, "unit": "delta ="}
    assert deciding_case(row, "at most 1") == (
        "k = 10: δ = 1.25 (0.5 to 2, 95 % interval of 10 runs); the claim needs at most 1"
    )
    folder = changed("claims/asoodeh2020.csv", lambda table: table.assign(unit="delta =", margin=0.5))
    view = claim_views(folder, "asoodeh2020")[0]
    assert view.cases.columns[2] == "estimate, δ" and view.rule.endswith("Margin: 0.5.")


def test_the_setting_that_tells_the_cases_apart_is_named():
    """Of 12 cases, those at 18 show it and one at 12.5; M and R tell nothing."""
    settings = [(m, r, e) for m in (12, 18, 25) for r in (35, 50) for e in (18, 12.5)]
    cases = [f"M = {m}, R = {r}, epsilon = {e}, noise (a, b = 2), published split" for m, r, e in settings]
    shows = [e == 18 or (m, r) == (25, 35) for m, r, e in settings]
    table = pd.DataFrame({"case": cases, "status": ["holds" if each else "open" for each in shows]})
    assert shown_by(table) == "Shown in 1 of 6 cases for ε = 12.5, 6 of 6 for ε = 18."
    words = table.assign(case=[f"{'mnist' if each else 'fashion_mnist'}, a = {n}" for n, each in enumerate(shows)])
    assert shown_by(words) == "Shown in 7 of 7 cases for MNIST, 0 of 5 for Fashion-MNIST."
    beside = pd.concat([table, table.assign(status=["not counted"] * 12)])
    assert shown_by(beside.replace("not counted", str(Status.BESIDE))) == shown_by(table)
    for nothing in (None, table.head(5), table.assign(status="open"), table.assign(status="holds")):
        assert shown_by(nothing) == ""
    even = table.assign(status=["holds" if m == 12 else "open" for m, _, _ in settings][::-1])
    assert shown_by(even).startswith("Shown in 0 of 4 cases for M = 12")


@pytest.mark.parametrize(
    ("estimate", "target", "claimed", "words"),
    [
        (0.5358964, 0.5358964 + 3.2e-13, "0.5359", "0.5359 (equal within 4e-13)"),
        (2.0, 2.0, "2", "2 (equal)"),
        (0.7672140070772, 0.7672140070810, "at most 0.7672", "at most 0.7672 (3.8e-12 below)"),
        (0.2581, 0.25805, "at most 0.2581", "at most 0.2581 (5e-05 above)"),
        (0.1593 + 3.9e-16, 0.1593, "at most 0.1593", "at most 0.1593 (equal within 4e-16)"),
        (math.inf, math.inf, "at most inf", "at most inf"),
        (0.07357, 0.07356, "0.07354 to 0.07358", "0.07354 to 0.07358"),
        (6.021, 7.115, "7.115", "7.115"),
        (1.25, 0.0, "above 0", "above 0"),
        (0.002659, 0.0002, "at most 0.0002", "at most 0.0002 (exceeded by a factor of 13)"),
        (0.0003999, 0.0002, "at most 0.0002", "at most 0.0002"),
        (0.5028, 0.0, "at most 1e-09", "at most 0 (our tolerance: 1e-09)"),
        (0.5, 0.5, "above 0.5, tested: above 1", "above 0.5 (equal), tested: above 1"),
    ],
)
def test_a_number_that_reads_like_its_claim_comes_with_the_distance(estimate, target, claimed, words):
    row = {"estimate": estimate, "low": estimate, "high": estimate, "target": target}
    assert claimed_words(claimed, row) == words
    tolerated = claimed_words(claimed, {**row, "margin": 1e-3})
    assert tolerated == (words.replace("above)", "above, within our tolerance)"))


@pytest.mark.parametrize("gap", [1e-13, 9.99e-5, 2.0000001e-7, 0.03])
def test_equal_within_is_never_less_than_the_distance(gap):
    row = {"estimate": gap, "low": gap, "high": gap, "target": 0.0}
    found = claimed_words(f"{gap:.4g}", row)
    assert gap <= float(found.partition("within ")[2].rstrip(")")) <= 2 * gap


def test_a_measured_number_that_reads_like_its_claim_is_left_as_it_is():
    row = {"estimate": 0.5, "low": 0.4, "high": 0.6, "target": 0.5}
    assert claimed_words("at most 0.5", row) == "at most 0.5"


def test_cases_that_do_not_count_are_told_from_the_others(changed):
    """Only the number in front is that of the verdict's sentence."""

    def beside(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(status=table["status"].where(table["case"] != "another", str(Status.BESIDE)))

    plain, fewer = (claim_views(changed(EVIDENCE, how), "asoodeh2020")[0] for how in (pd.DataFrame.copy, beside))
    assert plain.counted_in_words == "2 cases" and fewer.counted_in_words == "1 case, and 1 that does not count"


def test_a_refuted_claim_has_its_counterexample_marked(made):
    for view in claim_views(made[0], "asoodeh2020"):
        labels = [line.label for line in view.drawn.lines if line.label]
        assert view.marks_case == bool(labels) == view.is_refuted
        assert labels in ([], ["counterexample: 1.25; the claim needs above 0"])
    page = html(contents(*made))
    card = page[page.index('id="claim-asoodeh2020-claim_2"') :]
    card = card[: card.index("</article>")]
    assert card.count('<circle class="counter"') == 1 and "data-of" not in card and "The figure of 3 panels" in card


def test_the_label_of_a_counterexample_has_no_bracket_and_that_of_a_question_other_words(changed):
    """A bound of 0 with our tolerance is 0."""

    def bounded(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(within="at most 1e-09", estimate=-1.25)

    changed(EVIDENCE, bounded)
    for asked, label in (
        (False, "counterexample: −1.25; the claim needs"),
        (True, "deciding case: −1.25; a yes needs"),
    ):
        table = changed(
            "claims/asoodeh2020.csv", lambda rows, asked=asked: rows.assign(our_question=asked, estimate=-1.25)
        )
        [line] = [each for each in claim_views(table, "asoodeh2020")[2].drawn.lines if each.label]
        assert line.label == f"{label} at most 0"


def test_a_value_to_be_typed_keeps_its_hyphens(made):
    """A minus sign in a command or in a condition would find nothing."""
    view = replace(claim_views(made[0], "asoodeh2020")[0], text="a number of -0.5", trace=Trace("a -1.csv", ""))
    page = contents(*made)
    papers = tuple(replace(each, claims=(view,)) if each.claims else each for each in page.papers)
    shown = html(replace(page, papers=papers))
    assert "a number of −0.5" in shown and "dpfl trace &#39;a -1.csv&#39;" in shown and "−1.csv" not in shown


def test_no_verdict_before_the_claims_stage(made):
    assert claim_views(made[0], "lowy2021") == ()


@pytest.mark.parametrize(
    ("case", "shown"),
    [
        ("fashion_mnist, a = 4", "Fashion-MNIST, a = 4"),
        ("sigma = 2, epsilon = 1e-05", "σ = 2, ε = 10⁻⁵"),
        ("epsilon spent: mnist, a = 2", "ε spent: MNIST, a = 2"),
        ("5 digits of synthetic sums, mnist too", "5 digits of synthetic sums, mnist too"),
    ],
)
def test_cases_name_data_sets_and_quantities_as_readers_know_them(case, shown):
    assert case_name(case) == shown


TABLE = "tables/bhaskar2025_table_2.csv"


def test_the_command_names_the_file_from_the_project(made):
    trace = trace_of(made[0] / TABLE, made[0].parents[1])
    assert trace.command == f"dpfl trace results/demo/{TABLE}"
    assert trace.record_sha256 == file_sha256(made[0] / f"{TABLE}.record.json")


def test_a_file_without_a_record_says_so(made):
    assert trace_of(made[0] / "accounting/bhaskar2025.csv", made[0].parents[1]).record_sha256 == ""


def test_every_condition_finds_its_row_and_no_other(made):
    rows = read_csv(made[0] / TABLE)
    for where, (_, row) in zip(row_conditions(rows), rows.iterrows(), strict=True):
        [found] = rows_where(made[0] / TABLE, conditions(where))
        assert float(found["published_accuracy_pct"]) == row["published_accuracy_pct"]


def test_columns_that_cannot_be_asked_for_are_passed_over():
    rows = pd.DataFrame({"case": ["a, b", "a = b"], "n": [1, 2]})
    assert row_conditions(rows) == ["n=1", "n=2"]


def test_rows_that_nothing_tells_apart_have_no_condition():
    assert row_conditions(pd.DataFrame({"n": [1, 1], "same": ["x", "x"]})) == ["", ""]
