"""The rebuilt protocol against the plain loop: intervals by another route, verdicts that can fail, equal noise."""

import math
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpfl.convex.problems import Square
from dpfl.convex.silo_jobs import ClientCounts, LdpPlan, LdpSettings, noise_multiplier
from dpfl.grid import configuration, expansion
from dpfl.papers.lowy2021 import authors_protocol
from dpfl.papers.lowy2021.authors_protocol import AGREES, DIFFERS, DRAWS, TABLES, UNDECIDED, agreement, reference

BUDGETS = (0.5, 1.0, 2.5, 5.0, 7.5, 10.0, math.inf)


def measured(as_runs, losses, clients=3, dataset="insurance"):
    """The page's data of one algorithm and budget."""
    row = {"experiment": "ldp_regression", "dataset": dataset, "stand_in_for": "", "clients": clients}
    row |= {"noise": "advanced_composition", "clipping": "mean", "algorithm": "minibatch", "epsilon": 10.0}
    row |= {"privacy_epsilon_proven": 200.0}
    rows = [{**row, "seed": seed, "test_loss": loss} for seed, loss in enumerate(losses)]
    return TABLES["authors_protocol"].data(as_runs(pd.DataFrame(rows)))


@pytest.fixture
def loop(monkeypatch):
    """A plain loop of 40 trials whose losses are known one by one, in units of 1e6."""
    losses = np.random.default_rng(1).normal(36.0, 3.0, 40)
    cell = {3: {"minibatch": {10.0: [losses.mean(), losses.std(ddof=1)]}}}
    known = {draws: {"trials": 40, "losses": cell} for draws in DRAWS}
    monkeypatch.setattr(authors_protocol, "reference", lambda: known)
    return losses


@pytest.mark.parametrize(("shift", "verdict"), [(0.0, AGREES), (0.5, DIFFERS), (0.1, UNDECIDED)])
def test_the_difference_has_welchs_interval_and_a_verdict(as_runs, loop, shift, verdict):
    ours = np.random.default_rng(2).normal(36.0 * (1 + shift), 2.0, 60)
    [row] = measured(as_runs, 1e6 * ours).to_dict("records")
    low, high = stats.ttest_ind(ours, loop, equal_var=False).confidence_interval(0.95)
    for draws in DRAWS:
        difference, half = row[f"{draws}_difference"], row[f"{draws}_interval"]
        assert difference - half == pytest.approx(low / loop.mean(), rel=1e-9)
        assert difference + half == pytest.approx(high / loop.mean(), rel=1e-9)
        assert row[f"{draws}_agrees"] == verdict


def test_the_page_counts_verdicts_and_says_whose_noise_it_is(as_runs, loop):
    data = measured(as_runs, 1e6 * loop)
    page = TABLES["authors_protocol"].page(data)
    assert page.body["agrees, shared"].tolist() == [AGREES]
    assert "with shared draws, of 1 rows: yes 1, no 0, not decided 0." in page.notes[-3]
    assert "(95 %) ours is above it in 0, below it in 0." in page.notes[-3]
    for shift, counts in ((1.5, "above it in 1, below it in 0"), (0.5, "above it in 0, below it in 1")):
        moved = TABLES["authors_protocol"].page(measured(as_runs, shift * 1e6 * loop))
        assert counts in moved.notes[-3]
    assert page.notes[-1].endswith("N = 3: not known, as one of them or the plain loop was not run.")
    assert any("before the split (446, 134)" in note for note in page.notes)


def test_what_shared_draws_do_to_the_comparison_is_counted(as_runs, loop):
    minibatch = measured(as_runs, 1e6 * loop)
    data = pd.concat([minibatch, minibatch.assign(algorithm="local", test_loss=1.5 * minibatch["test_loss"])])
    data["own_test_loss"] = [2.0, 2.8]
    said = TABLES["authors_protocol"].page(data).notes[-1]
    assert "N = 3, ε = 10: ours 1.50; shared draws 1.00; own draws 1.40" in said and "at 1 of 1 budgets" in said


def test_nothing_is_said_where_the_loop_was_not_run(as_runs, loop):
    for changes in ({"dataset": "diabetes"}, {"clients": 10}):
        data = measured(as_runs, [36e6, 37e6], **changes)
        assert data["shared_agrees"].tolist() == [""] and data["shared_test_loss"].isna().all()
        assert "nan" not in " ".join(TABLES["authors_protocol"].page(data).body.iloc[0])


@pytest.mark.parametrize(
    ("difference", "interval", "verdict"),
    [(0.05, 0.04, AGREES), (-0.05, 0.06, UNDECIDED), (-0.2, 0.09, DIFFERS), (0.0, 0.34, UNDECIDED)],
)
def test_a_wide_interval_never_agrees(difference, interval, verdict):
    assert agreement(difference, interval) == verdict


def test_the_loop_was_run_for_both_federations_at_every_budget_of_the_grid():
    for draws in DRAWS:
        losses = reference()[draws]["losses"]
        assert reference()[draws]["trials"] >= 10 and set(losses) == {3, 10}
        for clients in losses:
            assert set(losses[clients]) == {"minibatch", "local"}
            assert all(set(each) == set(BUDGETS) for each in losses[clients].values())


@pytest.mark.parametrize(("clients", "before", "training"), [(3, 446, 356), (10, 134, 105)])
def test_the_plain_loop_and_the_grid_have_the_same_noise(clients, before, training):
    loop = runpy.run_path(str(Path(__file__).with_name("authors_logic.py")))
    jobs = expansion.expand(configuration.resolve({"scale": "paper", "papers": ["lowy2021"]}))
    [job] = [s for s in jobs if s.settings.get("clipping") == "mean" and s.settings.get("clients") == clients
               and s.experiment == "ldp_regression"]  # fmt: skip
    plan = LdpPlan.of(LdpSettings.of(job.settings), [], Square(), ClientCounts(clients, before, training))
    for algorithm in ("minibatch", "local"):
        for epsilon in BUDGETS[:-1]:
            ours = noise_multiplier(plan.noise, plan.calibrated_messages(algorithm), epsilon)
            theirs = loop["noise_std"](algorithm, epsilon, plan.protocol.batch_size, before, training)
            assert ours == pytest.approx(theirs, rel=1e-12)
