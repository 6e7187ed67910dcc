"""Which jobs share a job: each once, none that is long, and no more at a time than a node has room for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.grid import configuration, expansion
from dpfl.pipeline import batches
from dpfl.pipeline.cost import SHARED_SPEED, estimate


@pytest.fixture(scope="module")
def jobs():
    return expansion.expand(configuration.resolve({"scale": "paper"}))


def keys(found):
    return sorted((job.paper, job.name) for job in found)


@settings(max_examples=15, deadline=None)
@given(cores=st.integers(2, 16), memory_mb=st.floats(4000, 64000), part=st.integers(1, 7))
def test_every_job_is_trained_once_and_a_batch_fits_a_node(jobs, cores, memory_mb, part):
    some = jobs[::part]
    made, alone = batches.divide(some, cores, memory_mb)
    assert keys([*alone, *(job for batch in made for job in batch.jobs)]) == keys(some)
    for batch in made:
        costs = [estimate(job) for job in batch.jobs]
        assert len({(job.paper, job.dataset) for job in batch.jobs}) == 1 < len(batch.jobs)
        assert 2 <= batch.cores <= cores and batch.limit_mb(1) <= memory_mb + 1
        assert all(cost.is_short for cost in costs)
        assert batch.seconds >= sum(cost.seconds for cost in costs) / SHARED_SPEED / batch.cores - 1e-6
        assert 60 * batch.limit_minutes(1) >= 3 * batch.seconds
    assert len({batch.rule for batch in made}) == len(made)


def test_one_core_makes_no_batch_and_a_gpu_is_never_shared(jobs):
    assert batches.divide(jobs, 1) == ([], jobs)
    cuda = expansion.expand(configuration.resolve({"scale": "paper", "training": {"device": "cuda"}}))
    made, _ = batches.divide(cuda, 4)
    assert made and not any(estimate(job).gpus for batch in made for job in batch.jobs)


def test_what_is_written_for_the_nodes_is_read_there(jobs, tmp_path):
    made, alone = batches.divide(jobs, 4)
    known = {(job.paper, job.name): job for job in jobs}
    cores = {(job.paper, job.name): number for number, job in enumerate(alone, 1)}
    batches.write(made, cores, tmp_path / "batches.json")
    read, read_cores = batches.read(tmp_path / "batches.json", known)
    assert [(b.rule, b.jobs, b.cores) for b in read] == [(b.rule, b.jobs, b.cores) for b in made]
    assert read_cores == {key: count for key, count in cores.items() if count > 1}
    assert batches.read(tmp_path / "none.json", known) == ([], {})
