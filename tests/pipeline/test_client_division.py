"""Clients divided among processes: the same bytes, however many; and what happens when a process ends."""

import json
import math
import os
import re
import signal

import numpy as np
import pytest
import torch

from dpfl.errors import InputError
from dpfl.grid.training_job import Folders, TrainingJob
from dpfl.images import fedavg_images
from dpfl.images.fedavg import FederatedAveraging
from dpfl.pipeline import client_division
from dpfl.pipeline.client_division import clients_on, divided, shared

SETTINGS = {"dataset": "digits", "client_share": 0.2, "batch_size": 16, "delta": 1e-5, "clip_norm": 1.0}
SETTINGS |= {"learning_rate": 0.3, "momentum": 0.5, "sampling": "poisson"}
CELLS = (
    {"epsilon": 3.0, "local_epochs": 1, "rounds": 3, "clip": True},
    {"epsilon": math.inf, "local_epochs": 1, "rounds": 3, "clip": True},
    {"epsilon": 3.0, "local_epochs": 3, "rounds": 1, "clip": True},
)
MACHINE = {"device": "cpu", "threads": 1, "memory_gb": 0.5}


def job_of(model="cnn_tanh", clients=5, seeds=(0, 1), precision="float32"):
    settings = {**SETTINGS, "model": model, "clients": clients, "measure": "distances", "precision": precision}
    return TrainingJob("bhaskar2025", "fedavg_images", "k5", settings, CELLS, seeds, MACHINE)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Random images: what they show does not matter here."""
    root = tmp_path_factory.mktemp("data")
    draw = np.random.default_rng(0)
    for part, count in (("train", 100), ("test", 20)):
        np.save(root / f"{part}_x.npy", draw.integers(0, 255, (count, 1, 28, 28), dtype=np.uint8))
        np.save(root / f"{part}_y.npy", np.arange(count, dtype=np.int64) % 10)
    description = {"name": "digits", "title": "Noise", "stand_in_for": "mnist", "note": "Not MNIST.", "licence": "none"}
    (root / "description.json").write_text(json.dumps({**description, "records": {"train": 100, "test": 20}}))
    return Folders(root, root)


@pytest.fixture(scope="module")
def noise(folders):
    return fedavg_images.calibrate(job_of(), json.loads((folders.arrays / "description.json").read_text()))


def trained(folders, noise, cores, checkpoint=None, progress=lambda done, total: None, **of):
    """The run table as text: its distances between parameters have all their digits."""
    with clients_on(cores):
        return fedavg_images.train(job_of(**of), folders, noise, checkpoint, progress).to_csv()


@pytest.fixture(scope="module")
def undivided(folders, noise):
    return trained(folders, noise, 1)


@pytest.mark.parametrize("cores", [3, *(pytest.param(cores, marks=pytest.mark.slow) for cores in (2, 8))])
def test_the_number_of_processes_changes_no_byte(folders, noise, undivided, cores):
    assert trained(folders, noise, cores) == undivided
    assert re.search(r"\d[.]\d{14}", undivided), "nothing precise was compared"


def test_the_number_of_processes_changes_no_byte_in_bfloat16(folders, noise):
    alone, divided_among_3 = (trained(folders, noise, cores, seeds=(0,), precision="bfloat16") for cores in (1, 3))
    assert alone == divided_among_3 != trained(folders, noise, 1, seeds=(0,))


@pytest.mark.slow
def test_a_checkpoint_goes_on_with_another_number_of_processes(folders, noise, undivided, tmp_path):
    def stop(done, total):
        if done == 4:
            raise KeyboardInterrupt

    checkpoint = tmp_path / "state.pt"
    with pytest.raises(KeyboardInterrupt):
        trained(folders, noise, 3, checkpoint, stop)
    assert checkpoint.exists()
    assert trained(folders, noise, 1, checkpoint) == undivided
    checkpoint.unlink()
    with pytest.raises(KeyboardInterrupt):
        trained(folders, noise, 1, checkpoint, stop)
    assert trained(folders, noise, 2, checkpoint) == undivided


@pytest.fixture
def epochs(monkeypatch, tmp_path):
    """Have each epoch of a client write its process and client into a file, and then do what a function says."""
    original, seen = FederatedAveraging._epoch, tmp_path / "epochs.txt"

    def watch(then):
        def epoch(self, state, clients, chosen):
            with seen.open("a") as stream:
                stream.write(f"{os.getpid()} {clients[0]}\n")
            then(clients[0])
            original(self, state, clients, chosen)

        monkeypatch.setattr(FederatedAveraging, "_epoch", epoch)
        return lambda: [line.split() for line in seen.read_text().splitlines()]

    return watch


def test_every_client_is_trained_once_an_epoch_in_as_many_processes_as_asked(folders, noise, epochs):
    seen = epochs(lambda client: None)
    trained(folders, noise, 2, seeds=(0,))
    assert sorted(client for _, client in seen()) == sorted("01234" * 3)
    assert len({process for process, _ in seen()}) == 2 * 3 and str(os.getpid()) not in {each for each, _ in seen()}


def test_an_input_error_of_a_process_is_that_of_the_training(folders, noise, epochs):
    def refuse(client):
        if client == 3:
            raise InputError("memory: one record does not fit")

    epochs(refuse)
    with pytest.raises(InputError, match="memory: one record does not fit"):
        trained(folders, noise, 2)


def test_a_killed_process_ends_the_training(folders, noise, epochs):
    epochs(lambda client: os.kill(os.getpid(), signal.SIGKILL) if client == 4 else None)
    with pytest.raises(RuntimeError, match="ended with -9"):
        trained(folders, noise, 3)


def test_afterwards_federations_are_undivided_again():
    from dpfl.images import fedavg_images

    with pytest.raises(ZeroDivisionError), clients_on(4):
        assert fedavg_images.FederatedAveraging.keywords == {"cores": 4}
        raise ZeroDivisionError
    assert fedavg_images.FederatedAveraging is FederatedAveraging


def test_clients_are_divided_evenly_and_all_of_them():
    for clients, cores in ((100, 16), (10, 16), (1, 4), (7, 7)):
        parts = divided(list(range(clients)), cores)
        assert sorted(client for part in parts for client in part) == list(range(clients))
        assert max(map(len, parts)) == math.ceil(clients / cores) and min(map(len, parts)) >= 1


def test_shared_memory_is_that_of_both_processes():
    numbers = shared(torch.zeros(3, 2))
    child = os.fork()
    if not child:
        numbers[1] = 7.0
        os._exit(0)
    os.waitpid(child, 0)
    assert numbers.tolist() == [[0, 0], [7, 7], [0, 0]]
    assert client_division.shared(numbers).data_ptr() != numbers.data_ptr()
