"""The experiment of docs/howto/experiment.md, as its reader would run it."""

import math
import re

import numpy as np
import pytest
import yaml
from scipy import stats

from dpfl import convex, experiments
from dpfl.accounting import Neighbouring
from dpfl.catalog import require_valid
from dpfl.data.arrays import build_arrays
from dpfl.data.loading import load_description, load_table
from dpfl.errors import InputError
from dpfl.grid.training_job import Folders, TrainingJob

SEEDS = tuple(range(400))


@pytest.fixture
def experiment(repository, monkeypatch):
    """The example, found as if it stood in the package."""
    monkeypatch.setattr(convex, "__path__", [*convex.__path__, str(repository / "docs" / "examples")])
    for cached in (experiments.names, experiments.homes):
        cached.cache_clear()
    yield experiments.load("noisy_mean")
    for cached in (experiments.names, experiments.homes):
        cached.cache_clear()


@pytest.fixture
def job(repository):
    """The job that the page's entry names, with more seeds."""
    page = (repository / "docs" / "howto" / "experiment.md").read_text()
    grid = yaml.safe_load(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
    require_valid("experiment.md", grid, "grid.yaml")
    [entry] = grid["demo"]
    settings = {**entry["settings"], "dataset": entry["sweep"]["dataset"][0], "study": entry["sweep"]["study"][0]}
    cells = tuple({"epsilon": epsilon} for epsilon in entry["cells"]["epsilon"])
    return TrainingJob("asoodeh2020", entry["experiment"], "mean_seed0", settings, cells, SEEDS)


@pytest.fixture
def folders(tmp_path):
    """The arrays of the stand-in data."""
    made = Folders.of(tmp_path, "diabetes")
    build_arrays("diabetes", made.arrays)
    return made


def test_the_example_keeps_the_contract_and_its_budget(experiment, job, folders):
    experiments.require_known(job)
    noise = experiment.calibrate(job, load_description(folders.arrays))
    experiments.require_calibrated(job, noise)
    assert noise["privacy_epsilon_proven"].tolist() == pytest.approx([math.inf, 1.0, 0.1], rel=1e-3)
    assert set(noise["privacy_neighbouring"]) == {Neighbouring.REPLACE_ONE}
    # Twenty releases of a mean that one record moves by twice the clip norm are mu-GDP with mu = 2 sqrt(20) / sigma.
    for row in noise.iloc[1:].itertuples():
        mu = 2 * math.sqrt(20) / row.noise_multiplier
        delta = stats.norm.cdf(mu / 2 - row.epsilon / mu) - math.exp(row.epsilon) * stats.norm.cdf(
            -mu / 2 - row.epsilon / mu
        )
        assert delta == pytest.approx(1e-5, rel=1e-3)
    runs = experiment.train(job, folders, noise, None, lambda done, total: None)
    experiments.require_trained(job, runs)
    # No target is clipped, so the error is noise alone: sigma C / n over the root of the releases.
    for row, (_, own) in zip(noise.itertuples(), runs.groupby("epsilon", sort=False), strict=True):
        expected = row.noise_multiplier * 350 / len(load_table(folders.arrays).y) / math.sqrt(20)
        # A standard deviation over 400 runs is off by a fifth with a chance of 1e-8.
        assert np.sqrt((own["mean_error"] ** 2).mean()) == pytest.approx(expected, rel=0.2, abs=1e-9)


def test_a_slip_in_its_settings_is_one_line(experiment, job):
    job.settings["realeases"] = job.settings.pop("releases")
    with pytest.raises(InputError, match="noisy_mean reads no setting realeases; releases is a setting"):
        experiments.require_known(job)
    with pytest.raises(InputError, match="releases is missing in the settings"):
        experiment.calibrate(job, {"records": {"all": 442}})


def test_images_are_refused_by_name(experiment, job):
    job.settings["dataset"] = "mnist"
    with pytest.raises(InputError, match=r"^dataset must be a table, as insurance is; mnist holds images$"):
        experiment.calibrate(job, {"records": {"train": 60000, "test": 10000}})
