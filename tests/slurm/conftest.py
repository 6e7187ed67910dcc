import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

CONFIG = """\
papers: [{papers}]
seeds: [0]
only: {{dataset: [digits], model: [cnn_relu], clients: {clients}, study: [{studies}]}}
training: {{memory_gb: 0.5}}
"""
CLIENTS = {"bhaskar2025": 10, "vandijk2023": 4}
# bhaskar2025 has one job, which is trained alone; vandijk2023 has six short ones, which are one batch.
STUDIES = {
    "bhaskar2025": ("none",),
    "vandijk2023": ("settings_grid", "asynchrony", "batch_scaling", "preparation", "strategies", "samplers"),
}
COPIED = ("Snakefile", "config.yaml", "workflow", "environment.yml")
SITE = (
    "slurm_account: null\nslurm_extra: null\npartitions: {}\nmemory_mb_per_node: 6000\nlongest_minutes: 60\njobs: 20\n"
)
SITE += "status_command: squeue\nseconds_between_status_checks: 2\nside_by_side: 2\n"
# The plug-in waits ten seconds longer after each query that finds no job finished, up to three minutes, which would be
# most of the time of these tests. Here it asks every two seconds.
QUERIES = """
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
RemoteExecutor.next_seconds_between_status_checks = property(lambda executor: 2, lambda executor, seconds: None)
"""


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
        with (folder / "Snakefile").open("a") as snakefile:
            snakefile.write(QUERIES)
        site = folder / "workflow" / "profiles" / "slurm" / "site.yaml"
        site.write_text(f"{SITE}cores_per_node: {os.cpu_count()}\n")
        clients = [CLIENTS[paper] for paper in papers]
        studies = ", ".join(study for paper in papers for study in STUDIES[paper])
        (folder / "tiny.yaml").write_text(CONFIG.format(papers=", ".join(papers), clients=clients, studies=studies))
        return folder

    return copy


@pytest.fixture(scope="session")
def start(slurm):
    """A function that starts a command in a folder, in a session of its own, output to run.log there; what still runs
    in these folders after the last test is killed, before the cluster ends."""
    started, folders = [], set()

    def popen(folder: Path, *words: str, **environment: str) -> subprocess.Popen:
        path = f"{Path(sys.executable).parent}{os.pathsep}{environment.pop('PATH', os.environ['PATH'])}"
        known = {**os.environ, **environment, "PATH": path, "XDG_CACHE_HOME": str(folder / ".cache")}
        with (folder / "run.log").open("ab") as log:
            process = subprocess.Popen(
                words,
                cwd=folder,
                env=known | {"OMP_NUM_THREADS": "1"},
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a shell's & ignores it
            )
        started.append(process)
        folders.add(str(folder.resolve()))
        return process

    yield popen
    # Jobs as well: without cgroups SLURM loses sight of a process whose parent was killed, as where a node failed.
    for process in psutil.process_iter(["cwd"]):
        if process.info["cwd"] in folders:
            with suppress(psutil.NoSuchProcess):
                process.kill()
    for process in started:
        process.wait()


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
    """A function that starts a local run of what a test trains on the cluster, all of it or some files, and returns a
    function that waits for its end and returns its folder."""

    def local(papers: Sequence[str], *targets: str) -> Callable[[], Path]:
        folder = place(tmp_path_factory.mktemp("local") / "w", *papers)
        run = start(folder, "nice", "-n5", "dpfl", "run", "--scale", "demo", "--config", "tiny.yaml", "--", *targets)

        def ended() -> Path:
            assert run.wait(1800) == 0, (folder / "run.log").read_text()[-3000:]
            return folder

        return ended

    return local
