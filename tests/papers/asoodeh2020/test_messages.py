"""Messages of asoodeh2020's figures follow the numbers: each case turns one around."""

import math

import pandas as pd

from dpfl.papers.asoodeh2020 import messages
from dpfl.papers.asoodeh2020.figures import LEAST, SHOWN_EPSILON, WAYS


def deltas(**routes: float) -> pd.DataFrame:
    rows = [
        {"i": i, "epsilon": epsilon, "route": route, "delta": delta * (1 if i == 1 or epsilon < 1 else 0.01)}
        for i in (1, 20)
        for epsilon in (0.5, 1.0)
        for route, delta in routes.items()
    ]
    return pd.DataFrame(rows)


def test_a_bound_below_theorem_4_is_named_with_its_record_and_epsilon():
    data = deltas(theorem_4=0.1, proposition_1=0.4, optimal_shift=0.3, shifted_gdp=0.2)
    assert messages.curves(data).startswith("Theorem 4 proves the smallest δ of the four bounds")
    late = (data["i"] == 20) & (data["epsilon"] == 1.0) & (data["route"] == "shifted_gdp")
    text = messages.curves(data.assign(delta=data["delta"].where(~late, 1e-9)))
    assert "always for record 1;" in text and "record 20 from ε = 1 on (shifted interpolation)" in text


def test_a_stop_that_bounds_nothing_is_said_so():
    rows = [
        {"contraction": contraction, "route": route, "delta": delta}
        for contraction, bound in (("figure_2", 0.01), ("weak", 8000.4))
        for route, delta in (("theorem_4", 0.25), ("bound", bound))
    ]
    text = messages.stopping(pd.DataFrame(rows))
    assert "by 0.01 instead of 0.25" in text and "weak contraction it gives 8,000, which says nothing" in text
    fine = messages.stopping(pd.DataFrame(rows).assign(delta=lambda data: data["delta"].clip(upper=0.25)))
    assert "says nothing" not in fine


def test_bounds_are_counted_where_later_steps_hide_a_record():
    data = pd.DataFrame(
        {"later_steps": [0, 1, 4, 4], "smallest": ["composition", "theorem_4", "theorem_4", "shifted_interpolation"]}
    )
    assert (
        messages.bounds(data)
        == "Smallest of four bounds on ε, in 3 settings: Theorem 4 in 2 and shifted interpolation in 1"
    )


def test_places_count_the_last_records_and_what_evens_them_out():
    rows = [
        {"law": "gaussian", "epsilon": 1.0, "variant": variant, "n": 1000, "later": later, "delta": delta}
        for variant, values in (("last", (1e-5, 1e-8, 1e-20)), ("permuted", (1e-10,) * 3), ("random", (2e-10,) * 3))
        for later, delta in zip((0, 9, 99), values, strict=True)
    ]
    data, given = pd.DataFrame(rows), {"shown_epsilon": SHOWN_EPSILON, "least_delta": LEAST}
    text = messages.places(data, **given)
    assert "the last 10 of 1,000 records" in text and "δ up to 1e-05" in text and "at most 2e-10" in text
    worse = data.assign(delta=data["delta"].where(data["variant"] != "random", 1e-3))
    assert "spreads" not in messages.places(worse, **given)
    assert messages.places(data.assign(delta=1e-30), **given) == ""


def test_the_way_with_the_least_risk_is_that_of_the_most_panels():
    rows = [
        {"dataset": "mnist", "model": "m", "law": law, "order": order, "release": release, "epsilon": epsilon}
        | {"excess_risk": 1.0 if (order, release) == best else 10.0 if release == "last" else 20.0}
        for law, best in (("a", ("permuted", "last")), ("b", ("permuted", "last")), ("c", ("sorted", "random")))
        for order, release in WAYS
        for epsilon in (1.0, math.inf)
    ]
    text = messages.utility(pd.DataFrame(rows), WAYS)
    assert "the last model of a secret order has the least excess risk in 2 of 3 panels, 20 times below" in text
    assert messages.utility(pd.DataFrame(rows).query("epsilon == inf"), WAYS) == ""
