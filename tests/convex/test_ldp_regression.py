"""The regression jobs against plain loops, their baselines, and what a table may look like."""

import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest

from dpfl.convex import ldp_regression
from dpfl.convex.federated_rounds import Participation, Protocol
from dpfl.convex.problems import Square
from dpfl.data import partition
from dpfl.data.loading import TableData, load_table
from dpfl.errors import InputError
from dpfl.grid.training_job import Folders, TrainingJob
from dpfl.randomness import generator

SETTINGS = {
    "dataset": "toy",
    "clients": 3,
    "participating": 3,
    "rounds": 6,
    "delta": "1/n^2",
    "noise": "advanced_composition",
    "sampling": "with_replacement",
    "clipping": "record",
    "batch_size": "published",
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
    description = {"name": "toy", "title": "Toy", "stand_in_for": "insurance", "note": "a toy", "licence": "none"}
    description |= {"records": {"all": 62}, "columns": ["age", "sex", "region"]}
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    (tmp_path / "description.json").write_text(json.dumps(description))
    return Folders(arrays=tmp_path, features=tmp_path / "features")


def training_job(cells=CELLS, seeds=(0, 1, 5), **changes) -> TrainingJob:
    """The toy job with some settings changed."""
    return TrainingJob("lowy2021", "ldp_regression", "toy", {**SETTINGS, **changes}, tuple(cells), tuple(seeds))


def trained(folders: Folders, job: TrainingJob, progress=lambda done, total: None) -> pd.DataFrame:
    """Calibrate and train."""
    calibration = ldp_regression.calibrate(job, load_table(folders.arrays).description)
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


def plain_row(
    table: TableData, job: TrainingJob, cell: dict, noise_multiplier: float, batch_size: int, seed: int
) -> dict:
    """Return the metrics of one row of the run table, every run of the grid on its own."""
    train, test = plain_split(table, 3, seed)
    pooled = [[np.concatenate([part[side] for part in group]) for side in (0, 1)] for group in (train, test)]
    protocol = Protocol(Square(), 6, Participation((3,)), batch_size, 2, 3)
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
    job, table = training_job(), load_table(folders.arrays)
    calibration = ldp_regression.calibrate(job, table.description)
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


def test_baselines_against_scikit_learn(folders):
    from sklearn.dummy import DummyRegressor
    from sklearn.linear_model import LinearRegression

    table = load_table(folders.arrays)
    trial = partition.split(table, 3, ["age"], seed=3)
    columns = ldp_regression.Regression(None, table, ["age"]).references(trial)
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
    rows = trained(folders, training_job())
    first = rows.iloc[0]
    assert (first["paper"], first["job"], first["dataset"]) == ("lowy2021", "toy", "toy")
    assert (first["stand_in_for"], first["data_note"]) == ("insurance", "a toy")
    assert json.loads(first["step_exponents"]) == SETTINGS["step_exponents"]
    private = rows[np.isfinite(rows["epsilon"])]
    assert (private["privacy_clip_norm"] == private["clip_norm"]).all()
    assert np.isinf(rows.loc[np.isinf(rows["epsilon"]), "privacy_epsilon_proven"]).all()


def test_the_published_insurance_calibration():
    """K = 37 at N = 3 and 12 at N = 10; sigma by hand; one noise for all clip norms."""
    cells = [{"algorithm": name, "epsilon": e} for name in ("minibatch", "local") for e in (10.0, math.inf)]
    shape = {"rounds": 35, "last_iterates": 8, "largest_epsilon": 10}
    many = ldp_regression.calibrate(training_job(cells, clients=10, **shape), {"records": {"all": 1338}})
    few = ldp_regression.calibrate(training_job(cells, **shape), {"records": {"all": 1338}})
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
    rows = trained(folders, training_job(cells, clip_norms=[1e-9, math.inf]))
    assert list(rows["clip_norm"]) == [1e-9] * 3 + [math.inf] * 3


def test_a_constant_target_is_refused(folders):
    np.save(folders.arrays / "y.npy", np.full(62, 2.0))
    with pytest.raises(InputError, match="constant"):
        trained(folders, training_job())
