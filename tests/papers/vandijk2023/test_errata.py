import pytest

from dpfl.papers.vandijk2023 import errata


@pytest.mark.parametrize(
    ("row", "printed", "right"),
    [
        (errata.epsilon_delta_curve(), 0.0, 0.7282),
        (errata.renyi_sign(), -0.5, 1.5),
        (errata.loss_within_epsilon(), 0.127, 0.375),
        (errata.expected_rounds(), 0.625, 0.3125),
        (errata.concentrated("A0", 64), 250.0, 4450.0),
        (errata.concentrated("A1", 2), 7.8125, 9.464),
        (errata.optimistic_h(), 4.76e-8, 6.63e-7),
    ],
    ids=lambda value: str(value.erratum) if hasattr(value, "erratum") else "",
)
def test_printed_and_right_values(row, printed, right):
    assert row.printed == pytest.approx(printed, rel=2e-3, abs=1e-12)
    assert row.right == pytest.approx(right, rel=2e-3, abs=0)
    assert row.independent == pytest.approx(row.right, rel=1e-4, abs=0)


@pytest.mark.parametrize("epsilon", [1.5, 3.0])
def test_the_worst_group_lies_between_the_printed_and_the_right_delta(epsilon):
    row = errata.group_delta(epsilon)
    assert row.printed < row.independent < row.right


@pytest.mark.slow
def test_all_eight_are_there_and_the_accountants_differ(results):
    data = results.table("vandijk2023", "errata")
    assert sorted(data["erratum"].unique()) == [1, 2, 3, 4, 5, 6, 7, 8]
    poisson = data[data["erratum"] == 7].iloc[0]
    assert poisson["printed"] == pytest.approx(3.18, abs=0.005)
    assert poisson["right"] == pytest.approx(2.75, abs=0.005)
    assert poisson["independent"] == pytest.approx(poisson["right"], abs=0.02)
    limit = data[data["erratum"] == 7].iloc[1]
    assert limit["printed"] == pytest.approx(limit["independent"], rel=1e-6)
    assert limit["printed"] == pytest.approx(3.23, abs=0.01)
