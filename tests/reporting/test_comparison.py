import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpfl.errors import InputError
from dpfl.reporting.comparison import comparison, metrics_of, settings_of, telling

FAMILIES = 30
"""Of simulated comparisons of a law with itself."""


def runs(means, seeds=range(5), scatter=1.0, draw=0, **settings):
    """A run table: a cell for each (model, mean), its runs scattered by a law of their seeds."""
    rows = []
    for model, mean in means.items():
        noise = np.random.default_rng([draw, len(model)]).normal(0, scatter, 100)
        for seed in seeds:
            place = {"paper": "p", "job": "j", "experiment": "e", "model": model, "clients": 10, **settings}
            rows.append({**place, "seed": seed, "accuracy_pct": mean + noise[seed], "noise_multiplier": 1.0})
    return pd.DataFrame(rows)


def verdicts(first, second, **options):
    frame = comparison([("p", "e", first, second)], **options)
    return dict(zip(frame["cell"], frame["verdict"], strict=True))


def test_settings_stand_before_the_seed_and_metrics_after():
    table = runs({"a": 1.0})
    assert settings_of(table) == ["model", "clients"] and metrics_of(table) == ["accuracy_pct"]


def test_seeds_pair_what_scatter_would_hide():
    """Runs of one seed share their draws: a shift of a tenth of the scatter is seen."""
    first = runs({"a": 50.0}, scatter=1.0)
    second = first.assign(accuracy_pct=first["accuracy_pct"] + 0.1 + 0.001 * first["seed"])
    assert set(verdicts(first, second).values()) == {"outside chance"}
    other = second.assign(seed=second["seed"] + 50)
    assert set(verdicts(first, other).values()) == {"inside chance"}


def test_unpaired_runs_are_compared_by_welchs_statistic():
    """With the degrees of freedom of the fewer runs, four, for which the test never exceeds its level."""
    first, second = runs({"a": 50.0}, draw=1), runs({"a": 53.0}, seeds=range(50, 58), draw=2)
    [row] = comparison([("p", "e", first, second)]).to_dict("records")
    expected = stats.ttest_ind(second["accuracy_pct"], first["accuracy_pct"], equal_var=False)
    assert row["p_value"] == pytest.approx(2 * stats.t.sf(abs(expected.statistic), 4), rel=0.02)
    error = row["difference"] / expected.statistic
    assert row["interval"] == pytest.approx(stats.t.ppf(0.975, 4) * error, rel=0.02)
    assert expected.pvalue < row["p_value"] and row["interval"] > error * stats.t.ppf(0.975, 4)


def families_outside(families):
    """How many families of 20 cells of one law have a cell outside chance."""
    found = 0
    for family in range(families):
        cells = {f"{'m' * length}": 50.0 for length in range(1, 21)}
        pair = runs(cells, draw=2 * family), runs(cells, draw=2 * family + 1)
        found += "outside chance" in verdicts(*pair).values()
    return found


def test_chance_alone_is_seldom_outside():
    """At most 5 % of families, whatever their number of cells. This test is wrong once in 10^6 at most.

    Without Holm's correction 64 % of them would be, and the test would pass once in 10^3.
    """
    assert families_outside(FAMILIES) <= stats.binom.ppf(1 - 1e-6, FAMILIES, 0.05)


@pytest.mark.slow
def test_chance_alone_is_seldom_outside_many_families():
    """Their number is at most 3.3 standard errors above 5 %.

    Deterministic at these draws; at others, 5 % exactly would fail with probability 1.2e-3.
    """
    assert families_outside(200) <= 200 * 0.05 + 3.3 * math.sqrt(200 * 0.05 * 0.95)


def counted(seeds, records, right, draw, cells=60):
    """A run table of accuracies that are counts of right answers, each `right` alone: no two sources differ."""
    answers = np.random.default_rng([draw, records]).binomial(records, right, (cells, seeds))
    place = {"paper": "p", "job": "j", "experiment": "e"}
    return pd.DataFrame(
        {**place, "model": f"m{cell}", "seed": seed, "accuracy_pct": 100 * answers[cell, seed] / records}
        for cell, seed in np.ndindex(answers.shape)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "records", "right"), [(2, 360, 0.9), (3, 100, 0.95), (3, 360, 0.995)])
def test_counts_of_right_answers_are_seldom_outside(seeds, records, right):
    """At most 5 % of families of 60 cells: equal changes are common there. This test is wrong once in 10^6 at most."""
    found = 0
    for family in range(FAMILIES):
        pair = (counted(seeds, records, right, 2 * family + side) for side in (0, 1))
        found += "outside chance" in verdicts(*pair).values()
    assert found <= stats.binom.ppf(1 - 1e-6, FAMILIES, 0.05)


@pytest.mark.slow
def test_unpaired_runs_of_unequal_scatter_are_seldom_outside():
    """3 runs of a wide law against 12 of a narrow one, where Welch's degrees of freedom give too many small p-values.

    This test is wrong once in 10^6 at most.
    """
    cells = 2_000
    rng = np.random.default_rng(3)
    place = {"paper": "p", "job": "j", "experiment": "e"}
    tables = [
        pd.DataFrame(
            {**place, "model": f"m{cell}", "seed": seed, "accuracy_pct": 50 + scatter * rng.standard_normal()}
            for cell in range(cells)
            for seed in seeds
        )
        for seeds, scatter in ((range(3), 1.0), (range(50, 62), 0.5))
    ]
    below = (comparison([("p", "e", *tables)])["p_value"] < 0.005).sum()
    assert below <= stats.binom.ppf(1 - 1e-6, cells, 0.005)


def test_no_p_value_is_below_that_before_rounding():
    """Against Student's test of the numbers that were rounded, for steps from far above to far below the scatter."""
    rng = np.random.default_rng(0)
    for step in (0.001, 0.1, 1.0, 3.0):
        cells, seeds = 60, 4
        plain = 50 + rng.standard_normal((2, cells, seeds)) + np.array([0, 2]).reshape(2, 1, 1)
        rounded = step * np.round(plain / step)
        place = {"paper": "p", "job": "j", "experiment": "e"}
        first, second = (
            pd.DataFrame(
                {**place, "model": f"m{cell}", "seed": seed, "accuracy_pct": side[cell, seed]}
                for cell, seed in np.ndindex(cells, seeds)
            )
            for side in rounded
        )
        found = comparison([("p", "e", first, second)])
        before = stats.ttest_rel(plain[1], plain[0], axis=1).pvalue
        judged = found["p_value"].notna().to_numpy()
        assert judged.any() and (found["p_value"].to_numpy()[judged] >= before[judged]).all()


def test_equal_changes_can_be_chance():
    first = runs({"a": 90.0}, seeds=range(3)).assign(accuracy_pct=[90.01, 90.05, 90.11])
    [one_step, far] = (first.assign(accuracy_pct=first["accuracy_pct"] + change) for change in (0.01, 20.0))
    assert set(verdicts(first, one_step).values()) == {"inside chance"}
    assert set(verdicts(first, far).values()) == {"outside chance"}


def test_errors_of_rounding_are_no_difference():
    first = runs({"a": 50.0}, scatter=1.0)
    assert set(verdicts(first, first.assign(accuracy_pct=first["accuracy_pct"] + 1e-9)).values()) == {"inside chance"}


def test_fewer_than_three_seeds_and_lacking_cells_are_named():
    first, second = runs({"a": 1.0, "b": 2.0}, seeds=[0]), runs({"b": 2.5, "c": 3.0}, seeds=[0])
    assert verdicts(first, second) == {"model a": "only in first", "model b": "undecided", "model c": "only in second"}
    assert set(verdicts(runs({"a": 10.0}, range(2)), runs({"a": 90.0}, range(2), draw=1)).values()) == {"undecided"}
    assert set(verdicts(first, first).values()) == {"identical"}


def test_a_cell_that_reached_no_number_in_one_source_is_named_and_is_not_lacking():
    first = runs({"a": 1.0, "b": 2.0})
    for lost in (math.nan, math.inf):
        second = first.assign(accuracy_pct=first["accuracy_pct"].where(first["model"] == "b", lost))
        assert verdicts(first, second) == {"model a": "without a number in one", "model b": "identical"}
        assert verdicts(second, second) == {"model a": "identical", "model b": "identical"}


def test_one_number_from_all_seeds_is_undecided():
    """Two numbers tell neither the step of their metric nor its scatter."""
    first = runs({"a": 50.0}, scatter=0.0)
    assert verdicts(first, first.assign(accuracy_pct=first["accuracy_pct"] + 1)) == {"all runs": "undecided"}


def test_a_setting_that_no_two_runs_share_is_what_is_compared():
    first, second = runs({"a": 50.0}, sampling="poisson"), runs({"a": 50.0}, sampling="shuffled")
    frame = comparison([("p", "e", first, second)])
    assert frame.attrs["compared"] == {"p e": ["sampling"]} and len(frame) == 1
    both = comparison([("p", "e", first, pd.concat([second, first], ignore_index=True))])
    assert both.attrs["compared"] == {}
    assert list(both["cell"] + ": " + both["verdict"]) == [
        "sampling poisson: identical",
        "sampling shuffled: only in second",
    ]


def test_numbers_are_settings_whatever_their_type():
    first = runs({"a": 50.0})
    second = first.assign(clients=first["clients"].astype(float))
    assert set(verdicts(first, second).values()) == {"identical"}


def test_a_metric_that_is_not_measured_is_refused():
    with pytest.raises(InputError, match="no cell in common that measures test_loss"):
        comparison([("p", "e", runs({"a": 1.0}), runs({"a": 1.0}))], metric="test_loss")
    with pytest.raises(InputError, match="no cell in common"):
        comparison([("p", "e", runs({"a": 1.0, "b": 1.0}), runs({"c": 1.0}))])


def test_columns_that_follow_from_others_are_not_named():
    cells = pd.DataFrame({"same": [1, 1, 1], "model": ["a", "a", "b"], "copy": ["x", "x", "y"], "epsilon": [1, 2, 1]})
    assert telling(cells) == ["model", "epsilon"]
