"""Messages of bhaskar2025's figures follow the numbers: each case turns one around."""

import json
import math

import pandas as pd
import pytest

from dpfl.papers.bhaskar2025 import messages


def cells_of(**last: float) -> pd.DataFrame:
    """Two lines of splits at 90 % with one epoch; `last` is what they have with twenty."""
    rows = [
        {"dataset": "mnist", "model": model, "epsilon": 1.2, "local_epochs": epochs, "runs": 3}
        | {"run_accuracies_pct": json.dumps([value - 1, value, value + 5])}
        for model, end in last.items()
        for epochs, value in ((1, 90.0), (20, end))
    ]
    return pd.DataFrame(rows)


def test_splits_count_the_lines_in_which_twenty_epochs_lose():
    text = messages.splits(cells_of(a=40.0, b=89.0))
    assert (
        text == "20 local epochs a round are less accurate than 1 in all 2 lines that ran both, by 1.0 to 50.0 points"
    )
    assert "in 1 of 2 lines" in messages.splits(cells_of(a=40.0, b=91.0))
    assert messages.splits(cells_of(a=40.0, b=91.0).query("local_epochs == 1")) == ""
    assert messages.splits(cells_of(a=40.0).assign(runs=0)) == ""


def test_the_difference_that_changes_most_is_named_and_bimodal_cells_count_for_nothing():
    effects = (("pixels", -2.0, 81.0), ("network", 1.0, 81.0), ("network", 60.0, 141.0), ("all", 9.0, 81.0))
    least = {"code_least_pct": 80.0, "text_least_pct": 80.0, "text_most_pct": 81.0}
    rows = [{"difference": name, "effect_pct": effect, "code_most_pct": most} | least for name, effect, most in effects]
    text = messages.readings(pd.DataFrame(rows), {"pixels": "PIXELS", "network": "NETWORK"})
    assert "Of 2 differences" in text and "most: PIXELS, by 2.0 points" in text
    assert messages.readings(pd.DataFrame(rows).query("code_most_pct > 100"), {}) == ""


@pytest.mark.parametrize(("power", "bound"), [(-0.5, 1.0), (0.0, 9.0)])
def test_distances_give_the_power_of_the_clients_and_the_printed_bound(power, bound):
    rows = [
        {"reference": "noiseless", "round": "first", "ran_on": "mnist", "model": "m", "epsilon": 1.2, "clients": k}
        | {"local_epochs": 1, "distance": k**power, "local_distance": 5.0}
        | {"bound_epochs": bound if k == 10 else math.nan, "bound_steps": 9.0}
        for k in (10, 40, 160)
    ]
    text = messages.distances(pd.DataFrame(rows))
    assert f"as k to the power {power:.2f}" in text and "in all 1 cells with E in steps" in text
    assert f"exceeded in {int(bound < 5)} with E in passes" in text


@pytest.mark.parametrize("refuted", [1.0, 9.0])
def test_a_claim_is_false_if_a_lower_bound_exceeds_it(refuted):
    rows = [
        {
            "ran_on": "mnist",
            "model": "m",
            "epsilon": 2.0,
            "split": "all",
            "sampling": sampling,
            "over_shuffled_pct": over,
        }
        | {"epsilon_proven": 20.0, "epsilon_refuted": refuted}
        for sampling, over in (("shuffled_epochs", 0.0), ("poisson", -0.5), ("balls_in_bins", 0.25))
    ]
    text = messages.sampling(pd.DataFrame(rows))
    assert ("the claim ε = 2 (at least 9" in text) == (refuted > 2) and text.startswith("No ε is") == (refuted < 2)
    assert "by -0.50 to +0.25 points" in text
    assert "accuracy" not in messages.sampling(pd.DataFrame(rows).query("sampling == 'shuffled_epochs'"))
