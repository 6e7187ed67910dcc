"""What a record says of its environment: against the lock file, without user or host."""

import hashlib
import socket
from importlib import metadata

import pytest

from dpfl.provenance import record


@pytest.fixture
def lock(tmp_path, monkeypatch):
    """A function that writes a lock file and returns how this environment differs from it."""

    def differs(text):
        monkeypatch.setattr(record, "LOCK", tmp_path / "requirements.lock")
        record.LOCK.write_text(text)
        record._not_as_locked.cache_clear()
        return record.software()

    yield differs
    record._not_as_locked.cache_clear()


def test_an_environment_of_the_lock_differs_in_nothing(lock):
    here = {each.metadata["Name"]: each.version for each in metadata.distributions()}
    text = "".join(f"{name.upper()}=={version.partition('+')[0]}\n" for name, version in here.items())
    seen = lock(text)
    assert seen["not_as_locked"] == {} and seen["lock"] == hashlib.sha256(text.encode()).hexdigest()


def test_every_other_version_is_named(lock):
    here = {record._normal(each.metadata["Name"]): each.version for each in metadata.distributions()}
    text = "".join(f"{name}=={version}\n" for name, version in here.items() if name != "rich")
    differs = lock(text.replace(f"numpy=={here['numpy']}\n", "numpy==1.0\n") + "no-such_package==1.0\n")[
        "not_as_locked"
    ]
    assert differs == {"no-such-package": "not installed", "numpy": here["numpy"], "rich": here["rich"]}


@pytest.mark.parametrize(
    ("named", "digest"), [("", None), ("image:latest", None), (f"r.org/u/i@sha256:{'ab' * 32}", f"sha256:{'ab' * 32}")]
)
def test_a_container_is_named_by_its_digest_alone(monkeypatch, named, digest):
    monkeypatch.setenv(record.CONTAINER, named)
    assert record.software()["container"] == digest


def test_the_host_states_processor_blas_and_threads_in_force_and_no_name(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    host = record.host("cpu", 2)
    assert host["cpu"] and host["omp_num_threads"] == "1" and host["threads"] == 2
    assert all(" x " in library for library in host["blas"]) and host["blas"]
    assert socket.gethostname() not in map(str, host.values())


def test_a_gpu_s_host_states_its_model_and_a_cpu_s_says_nothing_of_it(monkeypatch):
    facts = {"gpu": "NVIDIA H100", "cuda": "12.6", "cudnn": 91002}
    monkeypatch.setattr(record.gpu, "facts", lambda: facts)
    there, here = record.host("cuda", 1), record.host("cpu", 1)
    assert there == here | facts | {"device": "cuda"} and not facts.keys() & here.keys()
