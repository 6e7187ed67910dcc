"""What a record spends: the law of its clients against draws of the partition, and compositions by another route."""

import math

import numpy as np
import pandas as pd
import pytest

from dpfl.accounting import dpsgd
from dpfl.catalog import load
from dpfl.data.partition import random_shares
from dpfl.papers.bhaskar2025 import overlap
from dpfl.reporting.display_names import at_most


@pytest.fixture(scope="module")
def mnist():
    """What is spent of the larger budget, by number of clients."""
    return overlap.budgets("mnist").query("epsilon == 2.93").set_index("clients")


def test_a_quarter_of_the_records_lies_with_two_or_more_of_ten_clients(mnist):
    ten = mnist.loc[10]
    # Binomial(10, 0.1): 0.9^10 and 1 - 0.9^10 - 0.9^9.
    assert ten["share_none"] == pytest.approx(0.34868, abs=1e-5)
    assert ten["share_several"] == pytest.approx(0.26390, abs=1e-5) and ten["holders_quarter"] == 2
    assert ten["epsilon_client"] <= 2.93 < ten["epsilon_quarter"] and ten["share_above"] == pytest.approx(
        ten["share_several"]
    )
    assert ten["noise_multiplier"] == pytest.approx(0.9595, abs=1e-3)  # Opacus's PRV at these settings


def test_more_clients_spend_more_of_a_record_and_not_of_a_client(mnist):
    rows = mnist.sort_index()
    assert rows["epsilon_client"].nunique() == 1
    for name in ("epsilon_mean", "epsilon_quarter", "epsilon_most", "share_above"):
        assert rows[name].is_monotonic_increasing, name
    assert rows.loc[100, "holders_mean"] == 10 and rows.loc[100, "holders_quarter"] == 12


def test_a_composition_is_that_of_opacus(mnist):
    run = overlap.training("mnist", 2.93)
    opacus = dpsgd.epsilon(
        noise_multiplier=run.noise_multiplier, sample_rate=1 / 94, steps=2 * 20 * 94, delta=1e-5, accountant="prv"
    )
    assert overlap.spent(run, 2) == pytest.approx(opacus, abs=0.02) and overlap.spent(run, 0) == 0


@pytest.mark.parametrize("clients", [10, 25, 100])
def test_the_law_of_holders_is_that_of_the_partition(clients):
    law = overlap.holders(clients, 0.1, 60_000)
    shares = random_shares(60_000, clients, 0.1, seed=0, independent=True)
    counts = sum(np.bincount(share, minlength=60_000) for share in shares)
    assert counts.mean() == pytest.approx(law.mean)
    seen = np.bincount(counts, minlength=clients + 1) / 60_000
    # Each share of records has a deviation below sqrt(0.25 / 60000) = 0.002: 5 of them, at most 26 numbers.
    assert np.abs(seen - law.law).max() < 0.0103
    assert (counts >= law.quarter).mean() > 0.24 and (counts > law.quarter).mean() < 0.25
    assert abs(counts.max() - law.most) <= 2
    assert math.fsum(law.law) == pytest.approx(1)


def test_the_mean_over_records_weighs_every_number(mnist):
    run = overlap.training("mnist", 2.93)
    draws = np.random.default_rng(0).binomial(25, 0.1, 20_000)
    spent = np.array([overlap.spent(run, number) for number in range(draws.max() + 1)])
    # Deviation of the mean of 20000 draws: below 2.1/141 = 0.015; five of them.
    assert mnist.loc[25, "epsilon_mean"] == pytest.approx(spent[draws].mean(), abs=0.075)


def test_a_card_has_what_a_record_of_two_clients_spends(mnist):
    cell = {"dataset": "mnist", "clients": 10, "epsilon": 2.93, "runs": 3, "stand_in": False}
    (note,) = overlap.record_notes(pd.DataFrame([cell, {**cell, "epsilon": math.inf}, {**cell, "epsilon": 1.2}]))
    several = math.ceil(100 * mnist.loc[10, "epsilon_quarter"]) / 100
    assert note == (
        "MNIST: each client draws a tenth of the records. Records with two clients or more: 26.4 % with 10 clients. A "
        "quarter of the records are with at least 2 of 10 clients. A record with just this number spends an ε of at "
        f"most {several:.2f} where 2.93 is published, 1.73 where 1.2 is published for one client."
    )
    (many,) = overlap.record_notes(pd.DataFrame([cell, {**cell, "clients": 100}]))
    twelve = math.ceil(100 * mnist.loc[100, "epsilon_quarter"]) / 100
    assert "with at least 2 of 10, 12 of 100 clients. A" in many
    assert f"at most {several:.2f} and {twelve:.2f} where 2.93 is published for one client" in many
    for change in ({"stand_in": True}, {"runs": 0}, {"clients": 1}, {"epsilon": math.inf}):
        assert overlap.record_notes(pd.DataFrame([{**cell, **change}])) == []


@pytest.mark.parametrize("number", [2, *(pytest.param(other, marks=pytest.mark.slow) for other in (3, 4))])
def test_the_smaller_budget_is_that_of_ten_clients_and_the_captions_have_what_two_clients_spend(number):
    facts = load("bhaskar2025").tables[f"table_{number}"]
    rows = overlap.budgets(facts["settings"]["dataset"]).query("clients == 10")
    larger, smaller = rows.sort_values("epsilon", ascending=False).itertuples()
    assert smaller.clients == 10 and smaller.holders_quarter == larger.holders_quarter == 2
    two = [at_most(row.epsilon_quarter, places=2) for row in (larger, smaller)]
    words = f"spends {two[0]} for a published {larger.epsilon:g} and {two[1]} for {smaller.epsilon:g} (table"
    assert words in " ".join(facts["caption"].split())


def test_the_page_has_the_client_and_the_record_side_by_side(mnist):
    page = overlap.overlap_page(mnist.reset_index())
    row = page.body.iloc[0]
    assert (row["k"], row["ε published"], row["with two clients or more"]) == ("10", "2.93", "26.4 %")
    assert float(row["ε of a client (Claim 1)"]) <= 2.93 and row["ε of a record, upper quartile (clients)"].endswith(
        " (2)"
    )
    assert row["Records above the published ε"] == "26.4 %"
    assert load("bhaskar2025").settings["client_records"] == "independent"
