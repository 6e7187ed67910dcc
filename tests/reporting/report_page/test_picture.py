import math
from dataclasses import replace

import pandas as pd
import pytest

from dpfl.reporting.claims import range_text
from dpfl.reporting.report_page.agreement import Agreement, printed_numbers
from dpfl.reporting.report_page.claim_views import claim_views
from dpfl.reporting.report_page.epsilons import statements
from dpfl.reporting.report_page.picture import MOST_NAMED, SIZE, STYLES, WIDTH, case_picture, lead_picture, needed_range
from dpfl.reporting.rules import Status


def of(made):
    numbers = printed_numbers("bhaskar2025", "table_2", made[0] / "tables/bhaskar2025_table_2.csv")
    return numbers, statements(made[0], "bhaskar2025")


def test_printed_numbers_are_shown_where_some_are_comparable(made):
    numbers, known = of(made)
    picture = lead_picture(numbers, known)
    assert [mark.style for mark in picture.marks] == [
        "reproduced",
        "reproduced",
        "not-reproduced",
        "undecided",
        "single",
    ]
    assert [style for style, _ in picture.key] == ["reproduced", "not-reproduced", "single", "undecided"]
    assert "We ran 5 numbers, 4 of them several times. Of these 2 are reproduced:" in picture.caption
    assert "prediction interval of our runs. 1 interval is too wide to tell." in picture.caption
    assert picture.caption.endswith("Runs per point: 10 (2 points), 3 (1), 2 (1), 1 (1).")
    assert (picture.horizontal, picture.vertical) == ("published accuracy (%)", "our mean accuracy (%)")
    assert picture.marks[0].text.startswith("Table 2, MNIST, ") and ", (E, R) = (" in picture.marks[0].text


def test_the_key_names_no_shape_that_is_not_there_and_one_number_of_runs_is_said_alone(made):
    numbers, _ = of(made)
    picture = lead_picture(numbers[:2], [])
    assert [style for style, _ in picture.key] == ["reproduced"] and picture.caption.endswith("Runs per point: 10.")


def test_the_central_model_has_one_client(made):
    numbers, known = of(made)
    numbers[0] = replace(numbers[0], keys={**numbers[0].keys, "clients": "1"})
    assert ", one client: published" in lead_picture(numbers, known).marks[0].text


def test_a_number_above_the_print_is_above_the_diagonal(made):
    numbers, known = of(made)
    for mark, number in zip(lead_picture(numbers, known).marks, numbers[:5], strict=True):
        above = (SIZE - mark.y) - mark.x
        assert math.copysign(1, above) == math.copysign(1, number.difference) or abs(above) < 1


@pytest.mark.parametrize(
    ("printed", "ours", "ends"),
    [(100.0, 100.0, (100, 200)), (0.0, 0.0, (0, 1)), (0.0312, 0.0348, (0.031, 0.035)), (7.8, 98.6, (0, 100))],
)
def test_an_axis_has_the_numbers_of_any_unit(made, printed, ours, ends):
    numbers, known = of(made)
    one, other = (replace(numbers[0], printed=value, ours=value) for value in (printed, ours))
    labels = [float(tick.label) for tick in lead_picture([one, other], known).ticks]
    assert (labels[0], labels[-1]) == pytest.approx(ends)
    assert all(0 <= mark.x <= SIZE for mark in lead_picture([one, other], known).marks)


def test_a_number_on_stand_in_data_is_no_point_even_with_a_difference(made):
    numbers, known = of(made)
    stand_in = replace(numbers[0], agreement=Agreement.STAND_IN)
    assert len(lead_picture([stand_in, *numbers[1:5]], known).marks) == 4
    assert lead_picture([stand_in], []) is None


def test_epsilons_are_shown_where_no_number_is_comparable(made):
    numbers, known = of(made)
    picture = lead_picture(numbers[5:], known)
    assert {mark.style for mark in picture.marks} == {"proven", "refuted"}
    refuted = [m for m in picture.marks if m.style == "refuted" and "refuted 12.8" in m.text]
    assert all(SIZE - mark.y > mark.x for mark in refuted) and refuted, "a refuted claim is above the line"
    assert "1 of 3" in picture.caption


def test_all_marks_and_ticks_are_inside(made):
    numbers, known = of(made)
    for picture in (lead_picture(numbers, known), lead_picture([], known)):
        assert all(0 <= place <= SIZE for mark in picture.marks for place in (mark.x, mark.y))
        assert 2 <= len(picture.ticks) <= 8 and all(0 <= tick.place <= SIZE for tick in picture.ticks)


@pytest.mark.parametrize("largest", [7.0, 99.0, 640.0, 3e7])
def test_an_axis_of_any_length_has_a_few_round_ticks(made, largest):
    numbers, known = of(made)
    one = replace(numbers[0], printed=largest, unit=numbers[1].unit)
    ticks = lead_picture([one, *numbers[1:]], known).ticks
    assert 2 <= len(ticks) <= 8 and all(0 <= tick.place <= SIZE for tick in ticks)


def test_there_is_no_picture_of_nothing():
    assert lead_picture([], []) is None


def cases(*rows):
    """Cases of (status, estimate, low, high, within)."""
    columns = ["status", "estimate", "low", "high", "within"]
    table = pd.DataFrame(rows, columns=columns)
    return table.assign(case=[f"case {number}" for number in range(len(rows))])


def drawn(*rows, our_question=False, labels=None):
    return case_picture(cases(*rows), "points", str, our_question=our_question, labels=labels)


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, math.inf), (-math.inf, 1.25), (0.9, 1.1), (-3.22, 3.22), (2.0, 2.0), (1e-9, math.inf)]
)
def test_a_range_in_words_is_read_back(low, high):
    assert needed_range(range_text(low, high)) == (low, high)


def test_a_margin_in_words_is_left_out_of_the_range():
    assert needed_range("above 0, tested: above -1") == (0.0, math.inf)
    assert needed_range("") == (-math.inf, math.inf)


def test_a_case_lies_in_the_range_exactly_if_its_number_does():
    shown = drawn(("holds", 2.0, 1.5, 2.5, "above 0"), ("fails", -1.0, -1.2, -0.8, "above 0"))
    holds, fails = shown.lines
    assert holds.needed == fails.needed and holds.needed[0] + holds.needed[1] == WIDTH
    assert fails.x < holds.needed[0] < holds.x
    assert holds.interval[0] < holds.x < holds.interval[0] + holds.interval[1]
    assert (holds.style, fails.style) == ("holds", "fails") and shown.axis == "points"
    assert shown.key == (("holds", "shows it (1)"), ("fails", "contradicts it (1)"))
    assert (
        shown.caption == "Each mark is one of 2 cases with its 95 % interval. Shaded: the range that the claim needs."
    )


def test_few_cases_are_named_in_their_order_and_many_are_sorted():
    few = [("holds", float(number), math.nan, math.nan, "above 0") for number in range(MOST_NAMED)]
    assert [line.name for line in drawn(*few).lines] == [f"case {number}" for number in range(MOST_NAMED)]
    many = drawn(*few, ("open", 3.5, math.nan, math.nan, "above 0"))
    assert {line.name for line in many.lines} == {""} and "sorted" in many.caption
    assert [line.x for line in many.lines] == sorted((line.x for line in many.lines), reverse=True)
    assert [line.y for line in many.lines] == sorted(line.y for line in many.lines) and many.lines[-1].y < many.height


@pytest.mark.parametrize("count", [2, MOST_NAMED + 1])
def test_the_marked_case_alone_has_a_label_and_room_for_it(count):
    rows = [("fails" if number == 1 else "holds", float(number - 2), math.nan, math.nan, "above 0, margin 1")
            for number in range(count)]  # fmt: skip
    plain, marked = drawn(*rows), drawn(*rows, labels={"case 1": "the label"})
    assert {line.label for line in plain.lines} == {""}
    assert [line.label for line in marked.lines if line.label] == ["the label"]
    assert all(0 <= line.label_x <= WIDTH - 6.6 * len("the label") for line in marked.lines if line.label)
    place = next(index for index, line in enumerate(marked.lines) if line.label)
    moved = [after.y - before.y for after, before in zip(marked.lines, plain.lines, strict=True)]
    assert moved == pytest.approx([0] * place + [18] * (count - place)) and marked.height == plain.height + 18


def test_numbers_over_many_decades_have_a_logarithmic_axis():
    shown = drawn(*(("holds", 10.0**power, math.nan, math.nan, "at most 1") for power in (-6, -3, 0)))
    assert [line.x for line in shown.lines] == [0.0, WIDTH / 2, WIDTH]
    assert shown.ticks[0] == (0.0, "10⁻⁶") and shown.ticks[-1] == (WIDTH, "1")


def test_a_long_interval_does_not_squeeze_the_marks():
    shown = drawn(("holds", 1.0, -500.0, 500.0, "above 0"), ("holds", 2.0, 1.5, 2.5, "above 0"))
    assert shown.lines[0].interval == (0.0, WIDTH)
    assert shown.lines[1].x - shown.lines[0].x > WIDTH / 8


def test_a_case_that_is_not_counted_is_not_drawn():
    shown = drawn(("not counted", 9.0, 9.0, 9.0, math.nan), ("holds", 1.0, 1.0, 1.0, "above 0"))
    assert len(shown.lines) == 1 and shown.caption.startswith("The mark is the case.")


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [("not counted", 1.0, 1.0, 1.0, "")],
        [("holds", 1 - 2e-16, 1.0, 1.0, "1"), ("holds", 1.0, 1.0, 1.0, "1")],
        [("holds", math.inf, math.inf, math.inf, "above 0")],
    ],
    ids=["no case", "none counted", "equal but for rounding", "infinite"],
)
def test_cases_that_a_picture_cannot_tell_apart_have_none(rows):
    assert drawn(*rows) is None and case_picture(None, "", str, our_question=False) is None


def test_every_outcome_has_a_style_and_words_of_its_own():
    assert set(STYLES) == set(Status) - {Status.BESIDE}
    assert len(set(STYLES.values())) == len({style for style, _ in STYLES.values()}) == len(STYLES)


def test_a_question_says_what_a_yes_needs():
    assert "that a yes needs" in drawn(("holds", 1.0, 1.0, 1.0, "above 0"), our_question=True).caption


def test_a_claim_has_the_picture_of_its_own_cases(made):
    for view in claim_views(made[0], "asoodeh2020"):
        assert [line.text for line in view.drawn.lines] == [
            f"case {view.key[-1]}: 1.25, contradicts it",
            "another: 1.25, shows it",
        ]
