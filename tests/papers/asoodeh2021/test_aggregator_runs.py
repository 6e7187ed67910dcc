import numpy as np
import pandas as pd
import pytest

from dpfl.papers.asoodeh2021 import figures
from dpfl.reporting.results import Results, read_csv, write_csv

KEY = "asoodeh2021"


def made_up(tmp_path, power_users=-1.0, power_sigma=2.0, seeds=6) -> Results:
    """Run tables whose excess risk is a known power law, with a factor a seed that no exponent sees."""
    rows = []
    for seed in range(seeds):
        for users in (1000, 2000, 4000):
            for sigma in (0.0, 0.1, 0.2, 0.4):
                share = (1 + seed / 10) * sigma**power_sigma * (users / 1000) ** power_users
                task = {"dataset": "mnist", "stand_in_for": "", "batch_size": 10, "study": "price", "seed": seed}
                theory = {"regularisation": 0.1, "dimension": 50, "idle_excess_risk": 0.5, "excess_bound": 9.0}
                rows.append({**task, **theory, "users": users, "noise_std": sigma, "excess_risk": 0.01 + share})
    path = tmp_path / "runs.csv"
    with path.open("w") as stream:
        write_csv(pd.DataFrame(rows), stream)
    return Results(tmp_path, {KEY: (path,)})


@pytest.mark.parametrize(("users", "sigma"), [(-1.0, 2.0), (-0.5, 1.0)])
def test_slopes_are_the_exponents_of_the_noise_alone(tmp_path, users, sigma):
    table = figures.slopes(made_up(tmp_path, users, sigma))
    fitted = table.groupby("against")["slope"].agg(["min", "max"])
    np.testing.assert_allclose(fitted.loc["users"], users, atol=1e-9)
    np.testing.assert_allclose(fitted.loc["sigma^2"], sigma / 2, atol=1e-9)
    assert (table["interval"] < 1e-9).all() and (table["runs"] == 6).all() and (table["points"] == 3).all()


def test_points_that_the_ball_holds_are_not_fitted(tmp_path):
    results = made_up(tmp_path)
    table = read_csv(results.run_tables[KEY][0])
    with results.run_tables[KEY][0].open("w") as stream:
        write_csv(table.assign(idle_excess_risk=0.07), stream)
    kept = figures.slopes(results)
    assert len(kept) == 3
    assert set(kept[kept["against"] == "users"]["fixed"]) == {"sigma = 0.1", "sigma = 0.2"}


@pytest.mark.parametrize(("study", "power"), [("example", -0.5), ("convex", -0.5), ("convex", -1.0)])
def test_rates_are_the_exponents_of_the_whole_risk_and_the_examples_is_over_the_logarithm(tmp_path, study, power):
    rows = []
    for seed in range(4):
        for users in (1000, 4000, 16000):
            risk = (1 + seed) * users**power * (np.log(users) if study == "example" else 1)
            noise = {"noise_std": users**0.25 if study == "example" else 0.5, "rounds": users, "excess_risk": risk}
            task = {"dataset": "synthetic", "stand_in_for": "", "batch_size": 1, "study": study, "seed": seed}
            rows.append({**task, **noise, "users": users})
    path = tmp_path / "runs.csv"
    with path.open("w") as stream:
        write_csv(pd.DataFrame(rows), stream)
    [row] = figures.slopes(Results(tmp_path, {KEY: (path,)})).to_dict("records")
    assert row["slope"] == pytest.approx(power, abs=1e-9) and (row["study"], row["expected"]) == (study, -0.5)
    assert (row["points"], row["runs"]) == (3, 4) and ("ln T" in row["fixed"]) == (study == "example")


def test_tables_of_nothing_have_their_columns(without_runs):
    for maker in (
        figures.mean_risks,
        figures.slopes,
        figures.replacement,
        figures.frontier,
    ):
        table = maker(without_runs)
        assert table.empty and len(table.columns) > 5


def test_replacement_is_paired(results):
    table = figures.replacement(results)
    every = results.runs(KEY).query("study == 'sampling' and release == 'last' and noise_std == 0.5")
    wide = every.pivot(index="seed", columns="draw", values="excess_risk")
    row = table.query("release == 'last' and noise_std == 0.5").iloc[0]
    assert row["difference"] == pytest.approx((wide["one_pass"] - wide["with_replacement"]).mean(), rel=1e-12)
    assert row["runs"] == 3 and len(table) == 10


def test_the_frontier_takes_the_best_point_of_each_way(results):
    table = figures.frontier(results)
    every = results.runs(KEY).query("study == 'frontier'")
    assert set(table["way"]) == {"hidden", "shown", "composed"}
    for row in table.itertuples():
        pair = next(pair for pair, way in figures.WAYS.items() if way == row.way)
        own = every[(every["draw"] == pair[0]) & (every["release"] == pair[1]) & (every["epsilon"] == row.epsilon)]
        assert row.excess_risk == pytest.approx(own.groupby("step")["excess_risk"].mean().min(), rel=1e-12)


def test_every_run_carries_a_complete_statement(run_table):
    table = read_csv(run_table)
    privacy = [name for name in table if name.startswith("privacy_")]
    assert {"privacy_released", "privacy_epsilon_contraction", "privacy_epsilon_proven", "privacy_note"} <= set(privacy)
    assert not table[privacy].isna().any(axis=None)
