"""The memory that a job gives to gradients."""

import pytest

from dpfl.engine.memory_budget import on_cpu, with_memory
from dpfl.grid.training_job import TrainingJob


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
