import math
from dataclasses import replace

import pytest

from dpfl.reporting.report_page.agreement import printed_numbers
from dpfl.reporting.report_page.epsilons import statements
from dpfl.reporting.report_page.picture import SIZE, lead_picture


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
