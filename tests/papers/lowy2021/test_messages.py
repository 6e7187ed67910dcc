"""Messages of lowy2021's figures follow the numbers: each case turns one around."""

import math

import pandas as pd
import pytest

from dpfl.papers.lowy2021 import messages

NAMES = {"moments": "noise of the later script", "tight": "tight noise"}


def losses(local: float) -> pd.DataFrame:
    rows = [
        {"dataset": "insurance", "clients": 3, "noise": "tight", "clipping": clipping, "epsilon": epsilon}
        | {"algorithm": algorithm, "test_loss": loss, "epsilon_spent": 0.5 * epsilon}
        for clipping in ("mean", "record")
        for epsilon in (1.0, 2.0, math.inf)
        for algorithm, loss in (("minibatch", 5.0), ("local", local if epsilon < 2 else 9.0))
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("local", "share"), [(6.0, "all 2"), (4.0, "1 of 2")])
def test_points_at_which_minibatch_is_better_are_counted(local, share):
    text = messages.figure_2(losses(local))
    assert text.endswith(f"at {share} points of the authors' protocol and {share} points with every record clipped")
    assert messages.figure_2(losses(local).query("algorithm == 'local'")) == ""


def test_a_run_spends_a_share_of_what_is_asked():
    data = losses(6.0)
    assert messages.spent(data, NAMES) == "Of the ε asked for, a run spends 50 % under tight noise"
    more = data.assign(noise="moments", epsilon_spent=data["epsilon"] * data["epsilon"] * 20)
    assert "2000 to over 1,000 % under the noise of the later script" in messages.spent(more, NAMES)
    assert messages.spent(data.query("epsilon == inf"), NAMES) == ""


def test_larger_errors_of_local_sgd_count_beyond_their_interval():
    data = pd.DataFrame(
        {"algorithm": "local", "epsilon": [1.0, 2.0, 1.0, math.inf], "noise": ["moments", "moments", "tight", "tight"],
         "difference_pct": [0.5, -0.2, 2.0, 9.0], "difference_interval_pct": 0.3}
    )  # fmt: skip
    text = messages.mnist(data, NAMES)
    assert (
        "in 2 of 3 cases: by -0.2 to 0.5 points under the noise of the later script, by 2.0 points under tight" in text
    )
    assert messages.mnist(data.query("epsilon == inf"), NAMES) == ""


@pytest.mark.parametrize(("gap", "worse", "better"), [(-1.0, 1, 0), (1.0, 0, 1), (0.1, 0, 0)])
def test_acceleration_is_judged_at_the_theorems_rounds(gap, worse, better):
    data = pd.DataFrame(
        {"theorem": [True, False], "epsilon": 1.0, "plain_minus_this": [gap, -9.0], "difference_interval": 0.2}
    )
    assert f"in {worse} of 1 problems and less in {better}" in messages.acceleration(data)
    assert messages.acceleration(data.query("not theorem")) == ""


@pytest.mark.parametrize(("slope", "share"), [(-0.2, "all 1"), (-0.6, "0 of 1")])
def test_one_pass_says_what_differing_clients_cost_and_where_the_risk_falls_slowly(slope, share):
    data = pd.DataFrame(
        {"federation": ["alike", "different"], "noise": "tight", "problem": "convex", "axis": "clients", "ratio": 1.1,
         "slope": slope, "slope_interval": 0.1, "exponent": -0.5}
    )  # fmt: skip
    assert "by +10 %;" in messages.one_pass(data) and f"in {share} panels" in messages.one_pass(data)
    assert messages.one_pass(data.query("federation == 'alike'")) == ""


@pytest.mark.parametrize(("power", "share"), [(-0.7, "all 1"), (-1.05, "all 1"), (-1.5, "0 of 1")])
def test_a_fitted_power_agrees_between_the_terms_powers_up_to_its_interval(power, share):
    data = pd.DataFrame(
        {"study": ["bounds_convex"] * 2, "axis": "clients", "noise": "tight", "risk_power": power, "risk_interval": 0.1,
         "statistical_power": -0.5, "private_power": -1.0, "applies": [True, False]}
    )  # fmt: skip
    text = messages.rates(data, {"theorem": "the theorem's noise", "tight": "least noise"})
    assert f"in {share} panels with least noise" in text and "1 of 2 points are within the theorem's conditions" in text
    assert "conditions" not in messages.rates(data.assign(study="rates_convex"), {"tight": "least noise"})


@pytest.mark.parametrize(("ratio", "free"), [(1.0, True), (30.0, False)])
def test_privacy_is_free_only_if_no_ratio_exceeds_one(ratio, free):
    data = pd.DataFrame(
        {"study": "free_convex", "axis": ["records", "clients"], "ratio": [ratio, 40.0], "ratio_interval": 0.2,
         "power": [0.5, 0.05], "power_interval": 0.1}
    )  # fmt: skip
    assert messages.free(data).startswith("Privacy is not free") != free
    assert ("in 1 of 2 lines" in messages.free(data)) != free


def test_trust_is_compared_with_a_trusted_server():
    data = pd.DataFrame(
        {"clients": 16, "rounds": 8, "trust": ["nobody", "shuffler", "server"], "excess_risk": [5.0, 0.6, 0.5]}
    )
    text = messages.shuffle(data)
    assert "is 1.2 times" in text and text.endswith("if nobody is trusted, 10 times")
    assert messages.shuffle(data.query("trust != 'server'")) == ""


@pytest.mark.parametrize(("ratio", "verb"), [(1.05, "decides"), (1.5, "does not decide")])
def test_the_mean_of_the_inverse_decides_if_no_twin_differs_beyond_chance(ratio, verb):
    data = pd.DataFrame(
        {"law": ["fixed", "random"], "same_inverse_ratio": [math.nan, ratio],
         "same_inverse_ratio_interval": [math.nan, 0.1], "same_mean_ratio": [math.nan, 2.0]}
    )  # fmt: skip
    assert messages.availability(data).startswith(
        f"The mean of 1/M {verb} the risk"
    ) and "2.00 times" in messages.availability(data)
    assert messages.availability(data.query("law == 'fixed'")) == ""
