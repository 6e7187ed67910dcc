from dpfl.papers.asoodeh2021.checks import CASES, decaying_schedule, random_stopping, relaxed, theorem2
from dpfl.reporting.evidence import passed, table


def test_theorem_2_is_not_loose_where_there_is_one_round():
    values = CASES[0] | {"n": 10}
    rows = table(theorem2(values, 0.0))
    assert passed(rows).all()
    assert rows["independent"].min() > 0.99 * rows["ours"].max()


def test_the_suffix_fails_and_the_formulas_hold():
    rows = table(random_stopping(CASES[1], 0.2))
    suffix = rows["case"].str.startswith("suffix")
    assert passed(rows[~suffix]).all()
    assert not passed(rows[suffix]).any()


def test_concave_runs_exceed_theorem_2_but_not_the_relaxed_bound():
    ordered, exact = relaxed(CASES[1], 0.0)
    assert exact.independent > ordered.independent
    assert exact.independent <= exact.ours


def test_a_decaying_schedule_is_below_its_bound():
    case = decaying_schedule(0.2)
    assert case.independent < 0.99 * case.ours
