"""Run tables do not depend on how many sweeps are trained at once."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest
import yaml

from dpfl import experiments
from dpfl.data.arrays import build_arrays
from dpfl.data.loading import load_description
from dpfl.engine.memory_budget import on_cpu
from dpfl.features.scattering import build_features
from dpfl.grid import configuration, expansion
from dpfl.grid.sweep import Folders
from dpfl.pipeline import cost
from dpfl.reporting.results import write_table

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

CONFIG = configuration.resolve({"scale": "demo", "seeds": [0]})


@pytest.fixture(scope="module")
def sweeps():
    """The shortest sweep of the demo of each experiment and of each paper that trains it, with one seed."""
    shortest = {}
    for sweep in expansion.expand(CONFIG):
        known = shortest.setdefault((sweep.experiment, sweep.paper), sweep)
        shortest[sweep.experiment, sweep.paper] = min(known, sweep, key=lambda each: cost.estimate(each).seconds)
    assert {experiment for experiment, _ in shortest} == set(experiments.names())
    return list(shortest.values())


@pytest.fixture(scope="module")
def project(sweeps, tmp_path_factory):
    """A folder with the data, the features and the noise that these sweeps read."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "resolved.yaml").write_text(yaml.safe_dump(CONFIG))
    noise = {}
    for sweep in sweeps:
        folders = Folders.of(folder / CONFIG["data"]["folder"], sweep.dataset)
        if not folders.arrays.exists():
            build_arrays(sweep.dataset, folders.arrays)
        if sweep.needs_features and not folders.features.exists():
            build_features(folders.arrays, folders.features, lambda done, total: None)
        rows = experiments.load(sweep.experiment).calibrate(on_cpu(sweep), load_description(folders.arrays))
        noise.setdefault(sweep.paper, []).append(rows.assign(family=sweep.family))
    for paper, tables in noise.items():
        write_table(pd.concat(tables), folder / "results/demo/accounting" / f"{paper}.csv")
    return folder


def trained(project, sweeps, workers: int) -> dict[str, bytes]:
    """Return the run tables that `dpfl train` writes, `workers` of its processes at a time."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def train(sweep) -> tuple[str, bytes]:
        table = expansion.run_table(project / "results/demo", sweep.paper, sweep.name)
        table.unlink(missing_ok=True)
        command = [sys.executable, "-m", "dpfl", "train", "--paper", sweep.paper, "--sweep", sweep.name]
        command += ["--config", "resolved.yaml"]
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-4000:]
        return table.name, table.read_bytes()

    with ThreadPoolExecutor(workers) as pool:
        return dict(pool.map(train, sweeps))


def test_a_sweep_alone_and_beside_another_writes_the_same_bytes(project, sweeps):
    """With one worker every sweep is alone; with two, in the opposite order, it has others beside it."""
    alone, beside = trained(project, sweeps, 1), trained(project, sweeps[::-1], 2)
    assert len(alone) == len(sweeps)
    assert [name for name in alone if alone[name] != beside[name]] == []
