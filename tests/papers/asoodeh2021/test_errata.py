import pytest

from dpfl.papers.asoodeh2021.errata import all_errata

ROWS = all_errata()


def numbered(number):
    return [row for row in ROWS if row.erratum == number]


def test_all_seven_are_there():
    assert sorted({row.erratum for row in ROWS}) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("number", [1, 4, 5, 6, 7])
def test_right_forms_agree_with_the_other_route(number):
    for row in numbered(number):
        assert row.independent == pytest.approx(row.right, rel=1e-4)


@pytest.mark.parametrize("number", [2, 3])
def test_what_really_happens_lies_between_the_printed_value_and_the_right_bound(number):
    (row,) = numbered(number)
    assert 1.5 * row.printed < row.independent < row.right


def test_the_simulated_risk_is_that_of_averaged_noise():
    # Without the projection |w|^2/2 has mean d sigma^2/(2 T) = 2.5e-3; five runs of d = 100 scatter by 6 %.
    (row,) = numbered(2)
    assert row.independent == pytest.approx(2.5e-3, rel=0.3)


def test_inert_contraction_and_broken_rounds():
    assert all(row.printed == pytest.approx(row.right, rel=2e-4) for row in numbered(5))
    assert [row.right / row.printed for row in numbered(4)] == pytest.approx([0.9, 1.2], rel=1e-4)
