import math

import numpy as np
import pytest

from dpfl.accounting import dpsgd
from dpfl.data.partition import random_shares
from dpfl.papers.bhaskar2025 import overlap
from dpfl.papers.bhaskar2025.tables import TABLES


@pytest.fixture(scope="module")
def mnist():
    return overlap.budgets("mnist").set_index("clients")


def test_ten_clients_share_nothing_and_spend_the_budget(mnist):
    ten = mnist.loc[10]
    assert ten["holders_mean"] == 1 and ten["holders_most"] == 1 and ten["share_above_one"] == 0
    assert ten["epsilon_mean_rdp"] == ten["epsilon_typical_rdp"] == ten["epsilon_most_rdp"] <= 2.93
    assert ten["epsilon_typical_pld"] == pytest.approx(2.64, abs=0.01)
    assert ten["noise_multiplier"] == pytest.approx(1.007, abs=1e-3)


def test_a_record_of_a_hundred_clients_spends_several_budgets(mnist):
    hundred = mnist.loc[100]
    assert hundred["holders_mean"] == 10
    assert hundred["epsilon_typical_pld"] == pytest.approx(9.49, abs=0.01)  # as in the errata
    rows = mnist.sort_index()
    for name in ("mean_rdp", "typical_rdp", "typical_pld", "most_rdp", "most_pld"):
        assert rows[f"epsilon_{name}"].is_monotonic_increasing, name
    assert (rows["epsilon_typical_pld"] < rows["epsilon_typical_rdp"]).all()
    assert (rows["epsilon_most_rdp"] >= rows["epsilon_mean_rdp"]).all()


@pytest.mark.parametrize("clients", [25, 50, 100])
def test_the_law_of_holders_is_that_of_the_partition(clients):
    law = overlap.holders(clients, 0.1, 60_000)
    counts = sum(np.bincount(share, minlength=60_000) for share in random_shares(60_000, clients, 0.1, seed=0))
    assert counts.mean() == pytest.approx(law.mean)
    seen = np.bincount(counts, minlength=clients + 1) / 60_000
    # Each share of records has a deviation below sqrt(0.25 / 60000) = 0.002: 5 of them, at most 26 numbers.
    assert np.abs(seen - law.law).max() < 0.0103
    assert (counts > 1).mean() == pytest.approx(law.share_above_one, abs=0.0103)
    assert abs(counts.max() - law.most) <= 2
    assert math.fsum(law.law) == pytest.approx(1)


def test_disjoint_clients_leave_records_out_where_they_do_not_cover_all():
    law = overlap.holders(4, 0.1, 1000)
    assert law.law == pytest.approx((0.6, 0.4)) and law.most == 1 and law.share_above_one == 0


def test_the_mean_over_records_weighs_every_number(mnist):
    run, law = overlap.training("mnist", 2.93), overlap.holders(25, 0.1, 60_000)
    draws = np.random.default_rng(0).binomial(25, 0.1, 20_000)
    spent = [
        dpsgd.epsilon(
            noise_multiplier=run.noise_multiplier, sample_rate=run.sample_rate, steps=int(number) * run.steps,
            delta=run.delta, accountant="rdp",
        ) for number in range(draws.max() + 1)
    ]  # fmt: skip
    # Deviation of the mean of 20000 draws: below 2.1/141 = 0.015; five of them.
    assert mnist.loc[25, "epsilon_mean_rdp"] == pytest.approx(np.array(spent)[draws].mean(), abs=0.075)
    assert len(law.law) == 26


def test_the_page_shows_both_accountants(mnist):
    page = TABLES["overlap"].page(mnist.reset_index())
    assert page.body["ε at the mean number"].iloc[-1] == "10.24 / 9.49"
    assert page.body["Records with two or more"].iloc[0] == "0.0 %"
