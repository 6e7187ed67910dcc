"""Messages of asoodeh2021's figures follow the numbers: each case turns one around."""

import math

import pandas as pd
import pytest

from dpfl.papers.asoodeh2021 import messages


@pytest.mark.parametrize(("factor", "words"), [(1.0, "contraction changes nothing"), (1.3, "by up to 30 %")])
def test_the_published_curves_are_compared_with_one_round(factor, words):
    rows = [{"panel": "published", "form": form, "q": 0.1, "epsilon": 0.5, "delta": 0.01 * ratio}
            for form, ratio in (("closed", factor), ("alone", 1.0))]  # fmt: skip
    assert words in messages.theorem(pd.DataFrame(rows), closed_form="closed", one_round="alone")


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_the_cost_of_noise_has_the_powers_that_were_planted(power):
    rows = [
        {"study": "price", "dataset": "mnist", "batch_size": 1, "users": n, "noise_std": sigma}
        | {"excess_risk": 1e-4 + (sigma**2) ** power / n, "idle_excess_risk": 1.0}
        for n in (1000, 4000, 16000)
        for sigma in (0.0, 0.5, 1.0, 2.0)
    ]
    text = messages.price(pd.DataFrame(rows))
    assert text == f"The cost of noise grows as σ² to the power {power:.2f} and falls as n to the power -1.00"
    assert messages.price(pd.DataFrame(rows).query("noise_std == 0")) == ""


def test_risks_beyond_the_published_bound_are_counted():
    data = pd.DataFrame({"exponent": [math.nan, 0.9, 1.1], "excess_risk": [0.1, 0.2, 0.3], "bound_as_printed": 0.25})
    assert "power 0.90 to 1.10" in messages.dimension(data) and "but 1 of 3 risks exceed it" in messages.dimension(data)
    assert "no risk exceeds it" in messages.dimension(data.assign(bound_as_printed=1.0))
    assert messages.dimension(data.assign(exponent=math.nan)) == ""


def test_changes_without_replacement_are_told_with_and_without_noise():
    data = pd.DataFrame(
        {"noise_std": [0.0, 0.0, 0.5], "difference": [-0.4, -0.1, 0.01], "with_replacement": [1.0, 1.0, 1.0],
         "interval": [0.1, 0.2, 0.1]}
    )  # fmt: skip
    text = messages.sampling(data)
    assert "no noise -40.0 to -10.0 % (1 of 2 beyond chance)" in text and "with noise +1.0 % (0 of 1" in text


def test_hiding_gains_what_its_risk_is_below_the_shown_one():
    rows = [
        {"dataset": "mnist", "users": 10, "epsilon": epsilon, "way": way, "excess_risk": risk}
        for epsilon in (1.0, 2.0, math.inf)
        for way, risk in (("hidden", 0.2), ("shown", 0.201), ("composed", 0.1 if epsilon < 2 else 0.3))
    ]
    data = pd.DataFrame(rows)
    text = messages.frontier(data)
    assert "models gains nothing; fresh batches" in text and text.endswith("have less risk at 1 of 2 points")
    apart = data.assign(excess_risk=data["excess_risk"].where(data["way"] != "shown", 0.4))
    assert "changes the risk by up to 50 %" in messages.frontier(apart)
    assert messages.frontier(data.query("way == 'hidden'")) == ""


def test_settings_in_which_hiding_lowers_epsilon_are_counted_by_users_a_round():
    data = pd.DataFrame({"m": [1, 1, 100], "gain": [1.5, 1.0, 1.0]})
    assert "in 1 of 2 settings with m = 1 and in 0 of 1 settings with m = 100" in messages.hiding(data)


def test_the_best_way_without_trust_is_compared_with_the_best_of_a_trusted_aggregator():
    rows = [
        {"dataset": "mnist", "epsilon": epsilon, "trust": trust, "excess_risk": risk, "accuracy_pct": accuracy}
        for epsilon in (0.5, 8.0, math.inf)
        for trust, risk, accuracy in (
            ("trusted aggregator", 0.01, 80.0), ("trusted aggregator", 0.5, 60.0),
            ("no trust outside the client", 0.08, 79.0), ("no trust outside the client", 0.9, 50.0),
        )
    ]  # fmt: skip
    text = messages.five_papers(pd.DataFrame(rows))
    assert text.startswith("At ε = 0.5 ") and "has 8 times the excess risk" in text and "1.0 points less" in text
    assert messages.five_papers(pd.DataFrame(rows).query("trust == 'trusted aggregator'")) == ""
    assert messages.five_papers(pd.DataFrame(rows).query("epsilon == inf")) == ""
