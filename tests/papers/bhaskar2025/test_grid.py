"""The grid at scale paper against the published cells: which of them are trained, with how many seeds, and when."""

import math
from pathlib import Path

import pandas as pd
import pytest

from dpfl.catalog import load
from dpfl.grid import configuration, expansion
from dpfl.grid.training_job import TrainingJob
from dpfl.papers.bhaskar2025 import central_model
from dpfl.papers.bhaskar2025.cells import CELL, published_cells
from dpfl.papers.bhaskar2025.central_model import COUNTED, READINGS, central_cells, decide, reading_of
from dpfl.papers.bhaskar2025.open_settings import MODELS, Candidate, decide_order, decide_rate, open_cells
from dpfl.papers.bhaskar2025.readings import CODE
from dpfl.reporting.results import Results

KEY = ["dataset", *CELL]
LAST = "dataset == 'cifar10' and model in ['cnn_tanh', 'cnn_relu'] and clients != 10"


def expanded(**keys: object) -> list[TrainingJob]:
    """Return the paper's jobs at scale paper."""
    return expansion.expand(configuration.resolve({"scale": "paper", "papers": ["bhaskar2025"], **keys}))


def seeds_by_cell(jobs: list[TrainingJob]) -> pd.Series:
    """Return the number of seeds of every cell that is trained with the settings of paper.yaml."""
    stated = {name: value for name, value in load("bhaskar2025").settings.items() if name != "measure"}
    rows = [
        ({**job.settings, **cell}, seed)
        for job in jobs
        if all(job.settings[name] == value for name, value in {**stated, **chosen(job)}.items())
        for cell in job.cells
        if not cell.get("clip")
        for seed in job.seeds
    ]
    trained = pd.DataFrame([{**{name: row[name] for name in KEY}, "seed": seed} for row, seed in rows])
    return trained.groupby(KEY)["seed"].nunique()


def chosen(job: TrainingJob) -> dict[str, float]:
    """Return the settings of published cells that rules chose in place of those of paper.yaml."""
    rate = {"learning_rate": 0.2} if job.dataset == "cifar10" and job.settings["model"] in MODELS else {}
    return rate | ({"batch_size": 640} if job.settings["clients"] == 1 else {})


@pytest.fixture(scope="module")
def cells() -> pd.DataFrame:
    """The 276 published cells with the seeds that the grid trains of each, 0 for none."""
    published = published_cells()
    seeds = seeds_by_cell(expanded(only={"study": ["none"]})).rename("seeds").reset_index()
    return published.merge(seeds, on=KEY, how="left").fillna({"seeds": 0})


def test_all_276_published_cells_are_trained_and_268_of_them_without_the_dearest(cells):
    assert len(cells) == 276
    assert (cells["seeds"] >= 1).all()
    assert len(cells.query(f"not ({LAST})")) == 268


@pytest.mark.parametrize(
    ("where", "seeds"),
    [
        ("model == 'scatter_linear'", 10),
        ("dataset != 'cifar10' and model != 'scatter_linear' and local_epochs >= 10", 10),
        ("dataset != 'cifar10' and model != 'scatter_linear' and local_epochs < 10", 3),
        ("dataset == 'cifar10' and model == 'scatter_cnn'", 3),
        ("dataset == 'cifar10' and model in ['cnn_tanh', 'cnn_relu']", 1),
    ],
)
def test_cells_have_the_seeds_that_the_plan_names(cells, where, seeds):
    chosen = cells.query(where)
    assert len(chosen) and set(chosen["seeds"]) == {seeds}


def test_what_the_rate_rules_count_is_trained_with_every_candidate():
    trained = {
        (job.dataset, job.settings["model"], *(job.settings[name] for name in Candidate._fields), cell["epsilon"],
         cell["local_epochs"], seed)
        for job in expanded()
        if job.settings.get("study") == "open_settings"
        for cell in job.cells
        for seed in job.seeds
    }  # fmt: skip
    for row in open_cells(Results(Path("nowhere"))).itertuples():
        # With privacy the order of plain batches changes nothing, and one is run.
        order = row.plain_batches if math.isinf(row.epsilon) else "fixed"
        key = (row.dataset, row.model, row.learning_rate, row.momentum, order, row.epsilon, row.local_epochs)
        assert all((*key, seed) in trained for seed in range(row.seeds)), key


def test_published_pixel_cnns_are_trained_as_the_rules_decide_by_the_shipped_runs(repository):
    cells = Results(repository / "results" / "paper").figure("bhaskar2025", "open_settings")
    order = decide_order(cells).order
    decided = {name: decide_rate(own).shipped._replace(plain_batches=order) for name, own in cells.groupby("dataset")}
    trained = {
        (job.dataset, Candidate(*(job.settings[name] for name in Candidate._fields)))
        for job in expanded(only={"study": ["none"]})
        if job.settings["model"] in MODELS
    }
    assert trained == set(decided.items())


def test_the_central_model_is_tried_three_ways_in_the_cells_that_the_rule_counts():
    found: dict[tuple[str, str], dict[str, set[int]]] = {}
    for job in expanded(only={"clients": [1], "study": ["central_model"]}):
        reading = reading_of({**job.settings, **job.cells[0]})
        cell = found.setdefault((job.dataset, job.settings["model"]), {})
        cell.setdefault(reading, set()).update(job.seeds)
        assert reading != "older" or job.settings["clip_norm"] == 0.1
    for key in COUNTED:
        assert len(set.intersection(*(found[key][reading] for reading in READINGS))) == 3, key


def test_table_5_trains_one_central_client_as_the_rule_decides_by_the_shipped_runs(repository):
    cells = Results(repository / "results" / "paper").table("bhaskar2025", "central_model")
    decision = decide(cells)
    trained = {
        (job.dataset, job.settings["model"]): reading_of({**job.settings, **job.cells[0]})
        for job in expanded(only={"clients": [1], "study": ["none"]})
    }
    assert len(trained) == 12 and set(trained.values()) == {decision.shipped} and decision.chosen


def test_the_central_model_that_is_chosen_hangs_on_the_seeds_as_grid_yaml_says(repository, monkeypatch):
    folder = repository / "results" / "paper"
    tables = tuple(sorted((folder / "runs" / "bhaskar2025").glob("*_k1_*.csv.gz")))
    for seeds, shipped in ((1, "program"), (2, "older"), (3, "rate")):
        results = Results(folder, {"bhaskar2025": tables})
        runs = results.runs("bhaskar2025")
        results._read["bhaskar2025"] = runs[runs["seed"] < seeds]
        monkeypatch.setattr(central_model, "SEEDS", seeds)
        assert decide(central_cells(results)).shipped == shipped


def test_what_decides_comes_before_what_is_published():
    studies = [job.settings.get("study", "none") for job in expanded()]
    deciding = [place for place, study in enumerate(studies) if study in ("open_settings", "central_model")]
    assert deciding and max(deciding) < studies.index("none")


def test_every_run_of_the_texts_reading_has_a_published_partner_with_the_same_optimiser():
    same = ("dataset", "model", "clients", "batch_size", "learning_rate", "momentum")

    def runs(study):
        return {
            (*(job.settings[name] for name in same), cell["epsilon"], cell["local_epochs"], seed)
            for job in expanded(only={"study": [study]})
            for cell in job.cells
            for seed in job.seeds
        }

    assert runs("readings") and runs("readings") <= runs("none")


def test_every_difference_is_switched_alone_and_all_together_beside_published_seeds():
    jobs = [job for job in expanded() if job.settings.get("study") == "readings"]
    ways = set()
    for job in jobs:
        switched = [name for name, code in CODE.items() if job.settings[name] != code]
        ways.add((job.settings["model"], *switched))
        assert set(job.seeds) <= {0, 1, 2} and job.dataset == "mnist"
    assert {way[1:] for way in ways if len(way) == 2} == {(name,) for name in CODE}
    assert {way[0] for way in ways if len(way) == 7} == {"cnn_relu", "cnn_tanh", "scatter_linear", "scatter_cnn"}
    assert {len(way) for way in ways} == {1, 2, 7}
    assert {way[0] for way in ways if len(way) == 1} == {"cnn_relu", "cnn_tanh", "scatter_cnn"}
