import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = "seeds: [0]\nonly: {dataset: [digits], model: [cnn_relu], clients: [10]}\ntraining: {memory_gb: 0.5}\n"
COPIED = ("Snakefile", "config.yaml", "workflow", "environment.yml")
SITE = (
    "slurm_account: null\nslurm_extra: null\npartitions: {}\nmemory_mb_per_node: 6000\nlongest_minutes: 60\njobs: 20\n"
)
SITE += "status_command: squeue\nseconds_between_status_checks: 3\n"


def _module(path: Path):
    """Load a file beside this one."""
    spec = importlib.util.spec_from_file_location("slurm_cluster", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    """A cluster of three nodes, two GPUs on one that are /dev/null; skips, saying why, where there can be none."""
    module = _module(Path(__file__).with_name("cluster.py"))
    if reason := module.missing():
        pytest.skip(reason)
    with module.cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def place(repository):
    """A function that puts the workflow into a folder, with a tiny grid of some papers; its site is this machine."""

    def copy(folder: Path, *papers: str) -> Path:
        folder.mkdir(parents=True)
        for name in COPIED:
            source = repository / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
        site = folder / "workflow" / "profiles" / "slurm" / "site.yaml"
        site.write_text(f"{SITE}cores_per_node: {os.cpu_count()}\n")
        (folder / "tiny.yaml").write_text(f"papers: [{', '.join(papers)}]\n{CONFIG}")
        return folder

    return copy


@pytest.fixture(scope="session")
def start():
    """A function that starts a command in a folder, in a session of its own, output to run.log there."""

    def popen(folder: Path, *words: str, **environment: str) -> subprocess.Popen:
        path = f"{Path(sys.executable).parent}{os.pathsep}{environment.pop('PATH', os.environ['PATH'])}"
        known = {**os.environ, **environment, "PATH": path, "XDG_CACHE_HOME": str(folder / ".cache")}
        with (folder / "run.log").open("ab") as log:
            return subprocess.Popen(
                words,
                cwd=folder,
                env=known | {"OMP_NUM_THREADS": "1"},
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a shell's & ignores it
            )

    return popen


@pytest.fixture(scope="session")
def hashes():
    """A function that returns the hash of every result in a folder, of one paper; records (they hold times) apart."""

    def of(folder: Path, paper: str, *patterns: str) -> dict[str, str]:
        files = {file for pattern in patterns for file in (folder / "results/demo").glob(pattern)}
        kept = sorted(file for file in files if paper in str(file) and not file.name.endswith(".record.json"))
        return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in kept}

    return of


@pytest.fixture(scope="session")
def undisturbed(place, start, tmp_path_factory):
    """The folder of a local run of what the tests train on the cluster."""
    folder = place(tmp_path_factory.mktemp("local") / "w", "bhaskar2025", "vandijk2023")
    run = start(folder, "dpfl", "run", "--scale", "demo", "--config", "tiny.yaml")
    assert run.wait(1800) == 0, (folder / "run.log").read_text()[-3000:]
    return folder
