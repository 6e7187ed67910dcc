import pytest

from dpfl.papers.asoodeh2020.errata import all_errata


def test_right_forms_agree_with_the_other_route_and_printed_ones_do_not():
    rows = {(row.erratum, row.case): row for row in all_errata()}
    assert sorted({number for number, _ in rows}) == [1, 2, 3, 4, 5]
    for row in rows.values():
        assert row.printed != pytest.approx(row.right, rel=1e-3, abs=0)
        if row.erratum != 5:
            assert row.independent == pytest.approx(row.right, rel=2e-3, abs=0)
    vacuous = next(row for row in rows.values() if row.erratum == 5)
    assert vacuous.printed > 1 >= vacuous.right >= vacuous.independent
