"""Minibatch against local SGD by trial: scipy on the same rows, Holm by hand, and rows that are not there."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpfl.accounting import WithReplacement, guarantee
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.papers.lowy2021.comparisons import (
    CLASSIFICATION,
    REGRESSION,
    mnist_differences,
    mnist_pairs,
    paired,
    paired_differences,
    price,
    trials,
)
from dpfl.reporting.results import NotRunError, Results, write_csv


def kept(made: Results, folder, condition: str) -> Results:
    """The runs that meet a condition, as the only ones."""
    write_csv(made.runs("lowy2021").drop(columns="origin").query(condition), folder / "kept.csv")
    return Results(folder, {"lowy2021": (folder / "kept.csv",)})


def test_differences_are_paired_within_trials(results):
    data = paired_differences(results(gap=1.0))
    private = data[(data["epsilon"] < math.inf) & (data["clipping"] == "record")]
    # The trials' own spread (0.1) cancels in the pairs: what is left is that of the budgets (0.014).
    assert private["difference"].tolist() == pytest.approx([1.0] * 6, abs=0.02)
    assert private["interval"].max() < 0.01 and (private["holm_p_value"] < 1e-6).all()
    assert (private["minibatch_better_trials"] == 20).all() and (data["trials"] == 20).all()
    assert data.loc[data["epsilon"] == math.inf, "holm_p_value"].isna().all()


@pytest.mark.parametrize("compare", [paired_differences, mnist_pairs])
def test_a_row_is_scipys_paired_test_on_its_own_runs(results, compare):
    """A gap of a third of the scatter between budgets, so that p-values are no extremes."""
    made = results(gap=0.004, mean_gap=-0.004)
    data, runs = compare(made), made.runs("lowy2021")
    metric = "test_loss" if compare is paired_differences else "test_error_pct"
    kind = ["noise", "clipping"] if compare is paired_differences else ["noise", "split"]
    assert len(data) == (4 if compare is paired_differences else 2) * 3
    for row in data.to_dict("records"):
        same = np.logical_and.reduce([runs[name] == row[name] for name in [*kind, "epsilon"]])
        own = runs[runs[metric].notna() & same]
        minibatch, local = (own[own["algorithm"] == name].set_index("seed")[metric] for name in ("minibatch", "local"))
        test = stats.ttest_rel(local, minibatch)
        low, high = test.confidence_interval(0.9)
        assert (row["difference"], row["interval"]) == pytest.approx(((low + high) / 2, (high - low) / 2))
        assert row["p_value"] == pytest.approx(test.pvalue)
        assert row["minibatch_better_trials"] == (local > minibatch).sum()
        assert (row[f"minibatch_{metric}"], row[f"local_{metric}"]) == pytest.approx((minibatch.mean(), local.mean()))
    private = data[data["epsilon"] < math.inf]
    for _, family in private.groupby(kind):
        smaller, larger = sorted(family["p_value"])
        assert sorted(family["holm_p_value"]) == pytest.approx([min(1, 2 * smaller), min(1, max(2 * smaller, larger))])


def test_a_trial_that_one_algorithm_lacks_is_left_out_of_both_means(results, tmp_path):
    made = results(gap=1.0)
    whole = paired_differences(made)
    fewer = paired_differences(kept(made, tmp_path, "algorithm == 'local' or seed >= 5 or noise != 'tight'"))
    tight = whole["noise"] == "tight"
    assert fewer.loc[tight, "trials"].eq(15).all() and fewer.loc[~tight, "trials"].eq(20).all()
    own = made.runs("lowy2021").query("noise == 'tight' and epsilon == 1 and algorithm == 'local' and seed >= 5")
    cell = fewer[tight & (fewer["epsilon"] == 1.0)].iloc[0]
    assert cell["local_test_loss"] == pytest.approx(own["test_loss"].mean())
    alone = paired_differences(kept(made, tmp_path, "algorithm == 'local'"))
    assert alone["trials"].eq(0).all() and alone["minibatch_epsilon_spent"].isna().all()


def test_mnist_is_also_held_against_local_sgd_without_privacy(results):
    made = results(gap=1.0)
    data = mnist_differences(made)
    # Minibatch at 18: 5 + 10/18; local without privacy: 6.
    assert data.loc[data["epsilon"] == 18, "free_difference"].tolist() == pytest.approx([1 - 10 / 18] * 2, abs=0.02)
    assert set(data["split"]) == {"published", "disjoint"} and (data["difference"] > 0.9).all()
    runs = made.runs("lowy2021").query("split == 'disjoint'").set_index("seed")
    minibatch = runs.query("algorithm == 'minibatch' and epsilon == 1")["test_error_pct"]
    free = runs.query("algorithm == 'local' and epsilon == inf")["test_error_pct"]
    low, high = stats.ttest_rel(free, minibatch).confidence_interval(0.9)
    row = data[(data["split"] == "disjoint") & (data["epsilon"] == 1)].iloc[0]
    assert (row["free_difference"], row["free_interval"]) == pytest.approx(((low + high) / 2, (high - low) / 2))


def test_the_price_is_the_difference_to_the_run_without_privacy(results):
    made = results(gap=1.0)
    data = price(made).query("algorithm == 'minibatch' and noise == 'tight'")
    assert data["epsilon"].tolist() == [1.0, 18.0]
    assert data["difference"].tolist() == pytest.approx([10.0, 10 / 18], abs=0.02)
    assert data["free_test_loss"].tolist() == pytest.approx([5.0, 5.0], abs=0.1)
    runs = made.runs("lowy2021").query("algorithm == 'minibatch' and noise == 'tight'").set_index("seed")
    losses = {epsilon: group["test_loss"] for epsilon, group in runs.groupby("epsilon")}
    low, high = stats.ttest_rel(losses[18.0], losses[math.inf]).confidence_interval(0.9)
    last = data.iloc[1]
    assert (last["difference"], last["interval"]) == pytest.approx(((low + high) / 2, (high - low) / 2))
    assert last["epsilon_spent"] == 0.1 and last["test_loss"] == pytest.approx(losses[18.0].mean())


def test_on_rows_half_as_long_as_the_clip_norm_the_noise_is_worth_twice_as_much(results):
    data = mnist_differences(results())
    private, free = data[data["epsilon"] < math.inf], data[data["epsilon"] == math.inf]
    for algorithm in ("minibatch", "local"):
        proven, refuted = (private[f"{algorithm}_epsilon_of_rows_{end}"] for end in ("proven", "refuted"))
        run = {"steps": 35, "delta": 1e-5, "neighbouring": Neighbouring.REPLACE_ONE}
        known = guarantee(WithReplacement(37, 356), noise_multiplier=4.0, **run)
        assert proven.tolist() == pytest.approx([known.upper] * 4)
        assert refuted.tolist() == pytest.approx([known.lower] * 4)
        assert free[[f"{algorithm}_epsilon_of_rows_{end}" for end in ("proven", "refuted")]].isna().all(axis=None)


def test_runs_whose_means_were_clipped_have_a_price_of_their_own(results):
    data = price(results(mean_gap=9.0)).query("algorithm == 'local'")
    largest = data.groupby("clipping")["difference"].max()
    assert largest["record"] < 11.1 < 17.8 < largest["mean"]


@pytest.mark.parametrize(
    ("compare", "condition", "reason"),
    [
        (price, "epsilon < inf", "needs runs without it"),
        (mnist_differences, "epsilon < inf or algorithm == 'minibatch'", "needs minibatch SGD, and local SGD"),
        (mnist_differences, "algorithm == 'local'", "needs minibatch SGD, and local SGD"),
    ],
)
def test_what_a_table_lacks_is_said(results, tmp_path, compare, condition, reason):
    with pytest.raises(NotRunError, match=reason):
        compare(kept(results(), tmp_path, condition))


def test_one_trial_has_no_interval_and_no_test():
    assert math.isnan(paired(pd.Series([1.0]), pd.Series([2.0]))["interval"])
    assert math.isnan(paired(pd.Series([1.0]), pd.Series([2.0]))["p_value"])


def test_equal_differences_are_decided_without_a_test():
    same = pd.Series([1.0, 2.0, 3.0])
    assert paired(same, same)["p_value"] == 1.0 and paired(same, same + 1)["p_value"] == 0.0
    assert paired(same, same.where(same > 1))["trials"] == 2


def test_experiments_are_told_apart(results):
    made = results()
    regression, classification = trials(made, REGRESSION), trials(made, CLASSIFICATION)
    assert set(regression["experiment"]) == {"ldp_regression"} and regression["clients"].tolist()[0] == 3
    assert regression["clients"].dtype == int and "split" not in regression and "clients" not in classification
    assert list(dict.fromkeys(regression["noise"])) == ["advanced_composition", "moments", "tight"]


def test_without_runs_it_says_so(tmp_path):
    with pytest.raises(NotRunError, match="no run of lowy2021's ldp_regression in this configuration"):
        trials(Results(tmp_path), REGRESSION)
