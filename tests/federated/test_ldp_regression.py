"""The regression sweeps: splits, choice from the grid, run table, privacy statement, bad input."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest

from dpfl.data import heterogeneous
from dpfl.data.read import TableData, load_table
from dpfl.engine.randomness import generator
from dpfl.errors import InputError
from dpfl.federated import ldp_regression
from dpfl.federated.minibatch import Points, Protocol
from dpfl.grid import Folders, Sweep
from dpfl.models import linear_regression

SETTINGS = {
    "dataset": "toy",
    "clients": 3,
    "participating": 3,
    "rounds": 6,
    "delta": "1/n^2",
    "noise": "advanced_composition",
    "largest_epsilon": 6,
    "repetitions": 2,
    "step_exponents": {"minibatch": [-3, 1, 4], "local": [-4, 0, 3]},
    "clip_norms": [1.0, 10.0, 1e32],
    "last_iterates": 3,
    "standardise": ["age"],
    "divergence_loss": 1e4,
}
CELLS = tuple({"algorithm": name, "epsilon": e} for name in ("minibatch", "local") for e in (2.0, 6.0, math.inf))


@pytest.fixture
def folders(tmp_path) -> Folders:
    """A table of 62 records and three columns: blocks of 21, 21 and 20."""
    rng = np.random.default_rng(8)
    x = np.column_stack([rng.normal(40, 12, 62), rng.integers(0, 2, 62), rng.integers(0, 4, 62)]).astype(float)
    y = x @ np.array([0.1, 5.0, 1.0]) + rng.normal(size=62)
    about = {"name": "toy", "title": "Toy", "stand_in_for": "insurance", "note": "a toy", "licence": "none"}
    about |= {"records": {"all": 62}, "columns": ["age", "sex", "region"]}
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    (tmp_path / "about.json").write_text(json.dumps(about))
    return Folders(arrays=tmp_path, features=tmp_path / "features")


def sweep(cells=CELLS, seeds=(0, 1, 5), **changes) -> Sweep:
    """The toy sweep with some settings changed."""
    return Sweep("lowy2021", "ldp_regression", "toy", {**SETTINGS, **changes}, tuple(cells), tuple(seeds))


def trained(folders: Folders, job: Sweep, progress=lambda done, total: None) -> pd.DataFrame:
    """Calibrate and train."""
    calibration = ldp_regression.calibrate(job, load_table(folders.arrays).about)
    return ldp_regression.train(job, folders, calibration, None, progress)


def plain_split(table: TableData, clients: int, seed: int) -> tuple[list, list]:
    """Return (x, y) of every client's training and test records, column age standardised; one record at a time."""
    order = sorted(range(len(table.y)), key=lambda record: table.y[record])
    size = -(-len(order) // clients)
    train, test = [], []
    for client in range(clients):
        block = order[client * size : (client + 1) * size]
        places = [block[place] for place in generator(seed, "split", client).permutation(len(block))]
        cut = -(-len(block) // 5)
        ages = [table.x[place, 0] for place in places[cut:]]
        mean, spread = np.mean(ages), np.std(ages)
        for part, own in ((test, places[:cut]), (train, places[cut:])):
            x = [[1.0, (table.x[place, 0] - mean) / spread, *table.x[place, 1:]] for place in own]
            part.append((np.array(x), np.array([table.y[place] for place in own])))
    return train, test


def plain_outputs(train, algorithm, seed, step_size, clip_norm, noise_multiplier, protocol) -> list[np.ndarray]:
    """Return the output of every repetition of one point of the grid; loops only."""
    clients, features, steps = len(train), train[0][0].shape[1], protocol.batch_size
    shape = (protocol.repetitions, steps)
    offsets = np.cumsum([0, *(len(y) for _, y in train)])

    def clipped(client, record, weights):
        x, y = train[client]
        gradient = (x[record] @ weights - y[record]) * x[record]
        return gradient * min(1.0, clip_norm / max(np.linalg.norm(gradient), 1e-300))

    outputs = []
    for repetition in range(protocol.repetitions):
        server, iterates = np.zeros(features), []
        for round in range(protocol.rounds):
            total, results = np.zeros(features), []
            for client in range(clients):
                start, stop = offsets[client], offsets[client + 1]
                batch = generator(seed, "batches", client, round).integers(start, stop, size=shape)[repetition] - start
                noise = generator(seed, "noise", client, round)
                if algorithm == "minibatch":
                    std = noise_multiplier * clip_norm / steps if noise_multiplier else 0.0
                    normal = noise.standard_normal((protocol.repetitions, features))[repetition]
                    total = total + np.mean([clipped(client, each, server) for each in batch], axis=0) + std * normal
                else:
                    std = noise_multiplier * clip_norm if noise_multiplier else 0.0
                    normals, weights = noise.standard_normal((*shape, features))[repetition], server
                    for each, normal in zip(batch, normals, strict=True):
                        weights = weights - step_size * (clipped(client, each, weights) + std * normal)
                    results.append(weights)
            server = server - step_size * total if algorithm == "minibatch" else np.mean(results, axis=0)
            iterates.append(server)
        outputs.append(np.mean(iterates[-protocol.last_iterates :], axis=0))
    return outputs


def plain_row(table: TableData, job: Sweep, cell: dict, noise_multiplier: float, batch_size: int, seed: int) -> dict:
    """Return the metrics of one row of the run table, every run of the grid on its own."""
    train, test = plain_split(table, 3, seed)
    pooled = [[np.concatenate([part[side] for part in group]) for side in (0, 1)] for group in (train, test)]
    protocol = Protocol(6, 3, batch_size, 2, 3)
    best, runs, diverged = None, 0, 0
    for exponent in np.linspace(*job.settings["step_exponents"][cell["algorithm"]]):
        for clip in job.settings["clip_norms"]:
            args = (cell["algorithm"], seed, math.exp(exponent), clip, noise_multiplier, protocol)
            outputs = plain_outputs(train, *args)
            loss = [[np.mean((x @ w - y) ** 2) / 2 for w in outputs] for x, y in pooled]
            bad = [not value <= 1e4 for value in loss[0]]
            runs, diverged = runs + len(bad), diverged + sum(bad)
            if not any(bad) and (best is None or np.mean(loss[0]) < best["train_loss"]):
                best = {"train_loss": np.mean(loss[0]), "test_loss": np.mean(loss[1])}
                best |= {"step_size": math.exp(exponent), "clip_norm": clip}
    return {**best, "diverged_share": diverged / runs}


def test_the_run_table_is_that_of_plain_loops(folders):
    job, table = sweep(), load_table(folders.arrays)
    calibration = ldp_regression.calibrate(job, table.about)
    rows = ldp_regression.train(job, folders, calibration, None, lambda done, total: None)
    assert len(rows) == len(job.cells) * len(job.seeds) and set(rows["status"]) == {"finished"}
    for place, cell in enumerate(job.cells):
        noise, batch_size = calibration.loc[place, ["noise_multiplier", "batch_size"]]
        own = rows[(rows["algorithm"] == cell["algorithm"]) & (rows["epsilon"] == cell["epsilon"])].set_index("seed")
        for seed in job.seeds:
            expected = plain_row(table, job, cell, noise, int(batch_size), seed)
            for name, value in expected.items():
                assert own.loc[seed, name] == pytest.approx(value, rel=1e-12), (cell, seed, name)
    assert rows["diverged_share"].between(0, 1, inclusive="neither").any()


def test_a_subset_of_cells_or_seeds_gives_the_same_rows(folders):
    whole = trained(folders, sweep())
    for cells, seeds in ((CELLS[1:2], (0, 1, 5)), (CELLS[3:], (5,)), (CELLS[::-1], (1, 0))):
        part = trained(folders, sweep(cells, seeds))
        keys = ["algorithm", "epsilon", "seed"]
        same = part[keys].merge(whole, on=keys, how="left")[list(part.columns)]
        pd.testing.assert_frame_equal(part, same, check_exact=True)


def test_small_stacks_give_the_same_rows(folders, monkeypatch):
    told: list[tuple[int, int]] = []
    whole = trained(folders, sweep())
    monkeypatch.setattr(ldp_regression, "STACK_BYTES", 1)
    parts = trained(folders, sweep(), progress=lambda done, total: told.append((done, total)))
    pd.testing.assert_frame_equal(whole, parts, check_exact=True)
    assert told == [(done, 36) for done in range(1, 37)]  # 2 algorithms, 3 trials, 6 rounds


def test_a_calibration_read_back_from_its_file_gives_the_same_rows(folders):
    job = sweep()
    calibration = ldp_regression.calibrate(job, load_table(folders.arrays).about)
    text = calibration.to_csv(index=False)
    read = pd.read_csv(io.StringIO(text), keep_default_na=False, na_values=["nan", ""])
    first, second = (
        ldp_regression.train(job, folders, each, None, lambda done, total: None).to_csv(index=False)
        for each in (calibration, read)
    )
    assert first == second


def test_a_point_with_a_diverged_repetition_is_recorded_and_never_chosen(folders):
    """Of three points the first has the least mean but for one repetition that is no number."""
    trial = heterogeneous.split(load_table(folders.arrays), 3, ["age"], seed=0)
    best = linear_regression.least_squares(trial.train_x, trial.train_y)
    weights = np.stack([np.tile(best[:, None] + shift, (1, 3)) for shift in (0.0, 0.0)])
    weights[:, :, 1] += 0.1
    weights[:, :, 2] += 1e6
    points = Points(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, np.inf]), np.zeros(3))
    assert ldp_regression.choose(trial, points, weights, 1e4)["step_size"] == 1.0
    for poison in (np.nan, np.inf, 1e5):
        weights[1, 0, 0] = poison
        chosen = ldp_regression.choose(trial, points, weights, 1e4)
        assert (chosen["status"], chosen["step_size"], chosen["clip_norm"]) == ("finished", 2.0, 5.0)
        assert chosen["diverged_share"] == 0.5
    lost = ldp_regression.choose(trial, points, weights[:, :, 2:].repeat(2, axis=2), 1e4)
    assert lost["status"] == "diverged" and lost["diverged_share"] == 1.0
    assert all(math.isnan(lost[name]) for name in ("train_loss", "test_loss", "step_size", "clip_norm"))


def test_only_training_records_decide(folders):
    trial = heterogeneous.split(load_table(folders.arrays), 3, ["age"], seed=0)
    rng = np.random.default_rng(0)
    weights, points = rng.normal(size=(2, 4, 6)), Points(np.arange(1.0, 7.0), np.ones(6), np.ones(6))
    other = dataclasses.replace(trial, test_y=trial.test_y * -7.0)
    one, two = (ldp_regression.choose(each, points, weights, 1e9) for each in (trial, other))
    assert one["step_size"] == two["step_size"] and one["test_loss"] != two["test_loss"]


def test_baselines_against_scikit_learn(folders):
    from sklearn.dummy import DummyRegressor
    from sklearn.linear_model import LinearRegression

    trial = heterogeneous.split(load_table(folders.arrays), 3, ["age"], seed=3)
    columns = ldp_regression.trial_columns(trial)
    fitted = [each.fit(trial.train_x[:, 1:], trial.train_y) for each in (DummyRegressor(), LinearRegression())]
    for name, regressor in zip(("mean_predictor_test_loss", "least_squares_test_loss"), fitted, strict=True):
        half = np.mean((regressor.predict(trial.test_x[:, 1:]) - trial.test_y) ** 2) / 2
        assert columns[name] == pytest.approx(half, rel=1e-10)
    weights, pulls = np.array([fitted[1].intercept_, *fitted[1].coef_]), []
    for start, stop in itertools.pairwise(trial.starts):
        x, y = trial.train_x[start:stop], trial.train_y[start:stop]
        pulls.append(sum(np.outer(x.T @ (x @ weights - y) / len(y), 1).ravel() ** 2))
    assert columns["v_star_squared"] == pytest.approx(np.mean(pulls), rel=1e-9)


def test_run_table_names_data_settings_and_privacy(folders):
    rows = trained(folders, sweep())
    first = rows.iloc[0]
    assert (first["paper"], first["sweep"], first["dataset"]) == ("lowy2021", "toy", "toy")
    assert (first["stand_in_for"], first["data_note"]) == ("insurance", "a toy")
    assert json.loads(first["step_exponents"]) == SETTINGS["step_exponents"]
    private = rows[np.isfinite(rows["epsilon"])]
    assert (private["privacy_clip_norm"] == private["clip_norm"]).all()
    assert np.isinf(rows.loc[np.isinf(rows["epsilon"]), "privacy_epsilon_pld"]).all()


def test_the_published_insurance_calibration():
    """K = 37 at N = 3 and 12 at N = 10; sigma by hand; one noise for all clip norms."""
    cells = [{"algorithm": name, "epsilon": e} for name in ("minibatch", "local") for e in (10.0, math.inf)]
    shape = {"rounds": 35, "last_iterates": 8, "largest_epsilon": 10}
    many = ldp_regression.calibrate(sweep(cells, clients=10, **shape), {"records": {"all": 1338}})
    few = ldp_regression.calibrate(sweep(cells, **shape), {"records": {"all": 1338}})
    assert set(many["batch_size"]) == {12} and set(few["batch_size"]) == {37}
    n, delta = 356, 1 / 356**2
    variance = 256 * 35 * math.log(2.5 * 35 * 37 / (delta * n)) * math.log(2 / delta) / (n**2 * 100)
    assert few.loc[0, "noise_multiplier"] == pytest.approx(37 * math.sqrt(variance), rel=1e-12)
    variance = 256 * 1295 * math.log(2.5 * 1295 * 37 / (delta * n)) * math.log(2 / delta) / (n**2 * 100)
    assert few.loc[2, "noise_multiplier"] == pytest.approx(math.sqrt(variance), rel=1e-12)
    assert list(few["noise_multiplier"].iloc[[1, 3]]) == [0.0, 0.0]
    assert (few["privacy_delta"] == delta).all() and (few["privacy_records"] == n).all()
    assert list(few["privacy_steps"]) == [35, 35, 1295, 1295]


def test_without_privacy_an_infinite_clip_norm_is_part_of_the_grid(folders):
    cells = [{"algorithm": "minibatch", "epsilon": epsilon} for epsilon in (6.0, math.inf)]
    rows = trained(folders, sweep(cells, clip_norms=[1e-9, math.inf]))
    assert list(rows["clip_norm"]) == [1e-9] * 3 + [math.inf] * 3


@pytest.mark.parametrize(
    ("changes", "cell", "named"),
    [
        ({"clients": 40}, {}, "client 31"),
        ({"clients": 0}, {}, "clients"),
        ({"participating": 4}, {}, "participating"),
        ({"rounds": 2.5}, {}, "rounds"),
        ({"last_iterates": 7}, {}, "last_iterates"),
        ({"repetitions": 0}, {}, "repetitions"),
        ({"largest_epsilon": 0.01}, {"epsilon": 0.001}, "largest_epsilon"),
        ({"delta": 1e-5}, {}, "delta"),
        ({"noise": "moments"}, {}, "noise"),
        ({"clip_norms": [1.0, 0.0]}, {}, "clip_norms"),
        ({"clip_norms": [math.inf]}, {}, "clip_norms"),
        ({"divergence_loss": math.nan}, {}, "divergence_loss"),
        ({}, {"epsilon": 0.0}, "epsilon"),
        ({}, {"epsilon": -1.0}, "epsilon"),
        ({}, {"epsilon": math.nan}, "epsilon"),
        ({}, {"epsilon": 11.0}, "largest_epsilon"),
        ({"largest_epsilon": 10}, {"epsilon": 8.0}, "16 training records"),
        ({}, {"algorithm": "newton"}, "algorithm"),
    ],
)
def test_settings_that_cannot_be_used_are_named(folders, changes, cell, named):
    job = sweep([{"algorithm": "local", "epsilon": 1.0, **cell}], **changes)
    with pytest.raises(InputError, match=named) as raised:
        ldp_regression.calibrate(job, load_table(folders.arrays).about)
    assert "\n" not in str(raised.value)


def test_a_constant_target_is_refused(folders):
    np.save(folders.arrays / "y.npy", np.full(62, 2.0))
    with pytest.raises(InputError, match="constant"):
        trained(folders, sweep())


def test_a_calibration_of_another_sweep_is_refused(folders):
    job = sweep()
    calibration = ldp_regression.calibrate(job, load_table(folders.arrays).about).iloc[1:]
    with pytest.raises(InputError, match="calibration has 0 rows"):
        ldp_regression.train(job, folders, calibration, None, lambda done, total: None)
