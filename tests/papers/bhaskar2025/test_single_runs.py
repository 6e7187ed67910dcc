import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpfl.papers.bhaskar2025 import single_runs as module
from dpfl.papers.bhaskar2025.paper_runs import published_cells
from dpfl.papers.bhaskar2025.single_runs import (
    MNIST_LABELS,
    Column,
    averaged_interval,
    left_over,
    mean_is_a_share,
    scatter,
    single_runs,
)

LINEAR = "table < 5 and model == 'scatter_linear'"


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    """Draw chance 200 times, at 16 numbers of averaged runs."""
    monkeypatch.setattr(module, "DRAWS", 200)
    monkeypatch.setattr(module, "AVERAGED", np.geomspace(0.05, 200, 16))


def columns(averaged, seed, number=9, misfit=0.3, tilt=0.2):
    """Columns whose published values are means of so many runs, off by an offset and a tilt."""
    rng = np.random.default_rng(seed)
    made = []
    for place in range(number):
        truth, sd = rng.normal(95, 1, 6), rng.uniform(0.1, 0.4, 6)
        shared = rng.normal(0, 0.2, (10, 1))
        ours = truth + sd * rng.standard_normal((10, 6)) + shared
        spread = np.sqrt(sd**2 + 0.2**2)
        printed = truth + misfit + tilt * np.arange(6) + spread * rng.standard_normal((averaged, 6)).mean(axis=0)
        made.append(Column.of(ours, printed, place))
    return made


def test_single_runs_are_told_from_means_of_ten():
    single, ten = columns(1, 0), columns(10, 0)
    assert scatter(single, 1, 10)[1] < 0.01 < 0.05 < scatter(single, 1, 1)[1]
    assert scatter(ten, 1, 1)[1] > 0.99 and scatter(ten, 1, 10)[1] > 0.01
    low, high = averaged_interval(single, 1)
    assert low < 1 < high < 10
    low, high = averaged_interval(ten, 1)
    assert 1 < low < 10


@pytest.mark.slow
@pytest.mark.parametrize("averaged", [1, 10])
def test_chance_is_uniform_where_the_reading_holds(averaged):
    # 120 trials: their share below 0.1 exceeds 0.25 with probability below 1e-5 where the test is right.
    found = np.array([scatter(columns(averaged, seed, number=3), 1, averaged)[1] for seed in range(120)])
    assert (found < 0.1).mean() < 0.25 and (found > 0.9).mean() < 0.25 and 0.35 < found.mean() < 0.65


def test_what_is_left_over_is_the_weighted_residual_of_a_fit():
    rng = np.random.default_rng(3)
    differences, variances = rng.normal(size=(4, 6)), rng.uniform(0.5, 2, (4, 6))
    for degree in (0, 1, 2):
        sums = left_over(differences, variances, 10, degree, 1)
        sd = np.sqrt(variances * 1.1 + 0.005**2 / 3)
        for difference, deviation, found in zip(differences, sd, sums, strict=True):
            fitted = np.polyval(np.polyfit(np.arange(6), difference, degree, w=1 / deviation), np.arange(6))
            assert found == pytest.approx(np.square((difference - fitted) / deviation).sum(), rel=1e-9)


def test_an_offset_or_a_tilt_of_the_settings_changes_nothing():
    plain, moved = columns(1, 5), columns(1, 5, misfit=4, tilt=-1)
    assert scatter(plain, 1, 10)[0] == pytest.approx(scatter(moved, 1, 10)[0], rel=1e-6)


def test_left_over_has_its_degrees_of_freedom_where_deviations_are_known():
    # With many seeds the sum is chi-square with 6 - 1 - degree degrees of freedom.
    rng = np.random.default_rng(4)
    sums = left_over(rng.normal(size=(4000, 6)), np.ones((4000, 6)), 10**9, 1, 1)
    assert stats.kstest(sums, stats.chi2(4).cdf).pvalue > 1e-4


def test_a_share_of_a_digit_is_rare_among_means():
    assert sum(MNIST_LABELS) == 10_000 and max(MNIST_LABELS) == 1135 and mean_is_a_share(1) == 1
    pairs = [sum(pair) / 2 for pair in itertools.product(MNIST_LABELS, repeat=2)]
    assert mean_is_a_share(2) == pytest.approx(np.mean([round(mean) in MNIST_LABELS for mean in pairs]))
    draws = np.random.default_rng(0).choice(MNIST_LABELS, (20_000, 10)).mean(axis=1)
    # Monte Carlo: six standard errors are 0.012.
    assert abs(np.isin(np.round(draws), MNIST_LABELS).mean() - mean_is_a_share(10)) < 0.012


def test_the_table_has_a_row_a_column_and_the_sums(as_runs, rows_of_runs):
    linear = rows_of_runs(f"{LINEAR} and dataset != 'cifar10'", range(10))
    rng = np.random.default_rng(0)
    linear["accuracy_pct"] += rng.normal(0, 0.2, len(linear))
    relu = rows_of_runs("table == 2 and model == 'cnn_relu' and epsilon == inf and local_epochs == 20", range(3))
    relu["accuracy_pct"] = [11.35, 11.35, 9.74]
    data = single_runs(as_runs(linear, relu))
    assert len(data) == 6 + 6 + 1 and (data.query("test == 'scatter'")["runs"] == 10).all()
    together = data[data["dataset"] == "all"]
    assert (together["columns"] == 6).all() and list(together["splits"]) == [6] * 3 + [5] * 3
    constant = data.iloc[-1]
    assert (constant["published_accuracy_pct"], constant["constant_runs"], constant["runs"]) == (9.74, 3, 3)
    # Our runs are as printed but for noise of ten seeds: means of many more than one run.
    assert (data.loc[data["test"] == "scatter", "probability_single"] > 0.5).all()


def test_the_largest_step_is_in_standard_errors():
    rng = np.random.default_rng(2)
    ours, printed = 95 + rng.normal(0, 0.2, (10, 6)), np.array([95.0, 95.0, 95.0, 97.0, 97.0, 97.0])
    variance = ours.var(axis=0, ddof=1)
    step = 2.0 - (ours[:, 3] - ours[:, 2]).mean()
    error = math.sqrt(np.diff(ours[:, 2:4])[:, 0].var(ddof=1) / 10 + (variance[2] + variance[3]) / 10)
    assert Column.of(ours, printed, 0).largest_step(10) == pytest.approx(step / error)


def test_few_seeds_stand_ins_and_no_runs_test_nothing(as_runs, rows_of_runs, as_stand_in):
    few = rows_of_runs(f"{LINEAR} and dataset == 'mnist'", range(4))
    for tables in ([few], [as_stand_in(rows_of_runs(f"{LINEAR} and dataset == 'mnist'", range(6)))], []):
        data = single_runs(as_runs(*tables))
        assert set(data["test"]) == {"constant"} and len(data) == 1


def test_one_published_value_on_mnist_is_the_share_of_one_digit():
    shares = {count / 100 for count in MNIST_LABELS}
    printed = published_cells().query("table == 2 and published_accuracy_pct < 12")
    assert printed["published_accuracy_pct"].isin(shares).sum() == 1
