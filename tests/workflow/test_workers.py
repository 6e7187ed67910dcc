"""Run tables do not depend on how many jobs are trained at once."""

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
from dpfl.features.scattering import build_features
from dpfl.grid import configuration, expansion
from dpfl.grid.training_job import Folders, on_cpu
from dpfl.pipeline import cost
from dpfl.reporting.results import write_table

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

CONFIG = configuration.resolve({"scale": "demo", "seeds": [0]})


@pytest.fixture(scope="module")
def jobs():
    """The shortest job of the demo of each experiment and of each paper that trains it, with one seed."""
    shortest = {}
    for job in expansion.expand(CONFIG):
        known = shortest.setdefault((job.experiment, job.paper), job)
        shortest[job.experiment, job.paper] = min(known, job, key=lambda each: cost.estimate(each).seconds)
    assert {experiment for experiment, _ in shortest} == set(experiments.names())
    return list(shortest.values())


@pytest.fixture(scope="module")
def project(jobs, tmp_path_factory):
    """A folder with the data, the features and the noise that these jobs read."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "resolved.yaml").write_text(yaml.safe_dump(CONFIG))
    noise = {}
    for job in jobs:
        folders = Folders.of(folder / CONFIG["data"]["folder"], job.dataset)
        if not folders.arrays.exists():
            build_arrays(job.dataset, folders.arrays)
        if job.needs_features and not folders.features.exists():
            build_features(folders.arrays, folders.features, lambda done, total: None)
        rows = experiments.load(job.experiment).calibrate(on_cpu(job), load_description(folders.arrays))
        noise.setdefault(job.paper, []).append(rows.assign(calibration_key=job.calibration_key))
    for paper, tables in noise.items():
        write_table(pd.concat(tables), folder / "results/demo/accounting" / f"{paper}.csv")
    return folder


def trained(project, jobs, workers: int) -> dict[str, bytes]:
    """Return the run tables that `dpfl train` writes, `workers` of its processes at a time."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def train(job) -> tuple[str, bytes]:
        table = expansion.run_table_path(project / "results/demo", job.paper, job.name)
        table.unlink(missing_ok=True)
        command = [sys.executable, "-m", "dpfl", "train", "--paper", job.paper, "--job", job.name]
        command += ["--config", "resolved.yaml"]
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-4000:]
        return table.name, table.read_bytes()

    with ThreadPoolExecutor(workers) as pool:
        return dict(pool.map(train, jobs))


def test_a_job_alone_and_beside_another_writes_the_same_bytes(project, jobs):
    """With one worker every job is alone; with two, in the opposite order, it has others beside it."""
    alone, beside = trained(project, jobs, 1), trained(project, jobs[::-1], 2)
    assert len(alone) == len(jobs)
    assert [name for name in alone if alone[name] != beside[name]] == []
