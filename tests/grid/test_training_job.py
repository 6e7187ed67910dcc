"""What a job derives from its fields: names by hand, and a digest that sees what decides numbers and nothing else."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfl.grid.training_job import Folders, TrainingJob, is_private, on_cpu, with_memory

JOB = TrainingJob(
    paper="smith2026",
    experiment="fedavg_images",
    name="mnist_scatter_cnn_k10_seed3",
    settings={"dataset": "mnist", "model": "scatter_cnn", "clip_norm": 1.0, "schedule": [1, 2]},
    cells=({"epsilon": 2.0, "rounds": 4}, {"epsilon": math.inf, "rounds": 4}),
    seeds=(3, 4),
    resources={"device": "cpu", "threads": 2},
)


def test_a_job_in_words():
    assert (JOB.dataset, JOB.calibration_key, JOB.needs_features) == ("mnist", "mnist_scatter_cnn_k10", True)
    assert [is_private(cell) for cell in JOB.cells] == [True, False]


@pytest.mark.parametrize(
    ("name", "key"), [("a_seed0", "a"), ("a_seed12to15", "a"), ("odd_seeds_k2_seed7", "odd_seeds_k2")]
)
def test_the_calibration_key_is_the_name_up_to_its_last_seeds(name, key):
    assert replace(JOB, name=name).calibration_key == key


@pytest.mark.parametrize(
    ("model", "needs"), [({"model": "scatter_linear"}, True), ({"model": "cnn"}, False), ({}, False)]
)
def test_features_are_for_models_that_scatter(model, needs):
    assert replace(JOB, settings={"dataset": "mnist", **model}).needs_features is needs


def test_the_folders_of_a_dataset():
    assert Folders.of(Path("/data"), "mnist") == Folders(Path("/data/arrays/mnist"), Path("/data/features/mnist"))


@pytest.mark.parametrize(
    "change",
    [
        {"paper": "jones2026"},
        {"experiment": "pnsgd"},
        {"seeds": (4, 3)},
        {"cells": JOB.cells[::-1]},
        {"cells": JOB.cells[:1]},
        {"settings": {**JOB.settings, "clip_norm": 1.0000000000000002}},
        {"settings": {**JOB.settings, "schedule": [2, 1]}},
    ],
)
def test_what_decides_numbers_changes_the_digest(change):
    assert replace(JOB, **change).digest() != JOB.digest()


@pytest.mark.parametrize("change", [{"resources": {}}, {"name": "another_seed3"}])
def test_what_does_not_decide_numbers_leaves_the_digest(change):
    assert replace(JOB, **change).digest() == JOB.digest()


def test_the_digest_of_records_made_before_is_the_same():
    """By hand: printf of the JSON text, keys sorted, into sha256sum, its first 16 digits."""
    job = TrainingJob("p", "e", "n", {"b": [1], "a": 0.5}, ({"epsilon": math.inf},), (0,))
    assert job.digest() == "26f9fb8e73bfd49c"


@given(st.permutations(sorted(JOB.settings)))
def test_the_order_of_settings_does_not_matter(order):
    assert replace(JOB, settings={key: JOB.settings[key] for key in order}).digest() == JOB.digest()


@pytest.mark.parametrize("free_gb", [16, 24, 80, 140])
def test_a_job_fills_most_of_what_is_free_on_its_gpu(monkeypatch, free_gb):
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (free_gb * 2**30, 2 * free_gb * 2**30))

    def planned(device, memory_gb, jobs_per_gpu=1):
        machine = {"device": device, "threads": 1, "memory_gb": memory_gb}
        job = TrainingJob("p", "fedavg_images", "s", {}, ({},), (0,), machine)
        return with_memory(job, jobs_per_gpu).resources["memory_gb"]

    assert planned("cuda", None) == planned("cuda", None, 2) == pytest.approx(0.8 * free_gb)
    assert planned("cuda", None, 8) == pytest.approx(0.8 * free_gb / 4)  # an eighth of all of it
    assert planned("cuda", 3) == planned("cpu", 3) == 3
    assert planned("cpu", None) == 1


def test_calibration_needs_no_gpu():
    job = TrainingJob("p", "fedavg_images", "s", {}, ({},), (0,), {"device": "cuda", "threads": 2, "memory_gb": None})
    assert on_cpu(job).resources == {"device": "cpu", "threads": 2, "memory_gb": 1}
