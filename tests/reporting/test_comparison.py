import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpfl.errors import InputError
from dpfl.reporting.comparison import comparison, metrics_of, settings_of, telling


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


def test_unpaired_runs_are_compared_by_welch():
    first, second = runs({"a": 50.0}, draw=1), runs({"a": 53.0}, seeds=range(50, 58), draw=2)
    [row] = comparison([("p", "e", first, second)]).to_dict("records")
    expected = stats.ttest_ind(second["accuracy_pct"], first["accuracy_pct"], equal_var=False)
    low, high = expected.confidence_interval(0.95)
    assert row["p_value"] == pytest.approx(expected.pvalue) and row["interval"] == pytest.approx((high - low) / 2)


def test_chance_alone_is_seldom_outside():
    """At most 5 % of families, whatever their number of cells; 200 families of 20 cells: 3.3 standard errors more."""
    found = 0
    for family in range(200):
        cells = {f"{'m' * length}": 50.0 for length in range(1, 21)}
        pair = runs(cells, draw=2 * family), runs(cells, draw=2 * family + 1)
        found += "outside chance" in verdicts(*pair).values()
    assert found <= 200 * 0.05 + 3.3 * math.sqrt(200 * 0.05 * 0.95)


def test_one_run_and_lacking_cells_are_named():
    first, second = runs({"a": 1.0, "b": 2.0}, seeds=[0]), runs({"b": 2.5, "c": 3.0}, seeds=[0])
    assert verdicts(first, second) == {"model a": "only in first", "model b": "one run", "model c": "only in second"}
    assert set(verdicts(first, first).values()) == {"identical"}


def test_a_constant_shift_without_scatter_is_outside():
    first = runs({"a": 50.0}, scatter=0.0)
    assert verdicts(first, first.assign(accuracy_pct=first["accuracy_pct"] + 1)) == {"all runs": "outside chance"}


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
