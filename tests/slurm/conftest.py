import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COPIED = ("Snakefile", "config.yaml", "workflow", "environment.yml")
SITE = (
    "slurm_account: null\nslurm_extra: null\npartitions: {}\nmemory_mb_per_node: 8000\nlongest_minutes: 60\njobs: 20\n"
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
    """A cluster of one node with two GPUs that are /dev/null; skips, saying why, where there can be none."""
    module = _module(Path(__file__).with_name("cluster.py"))
    if reason := module.missing():
        pytest.skip(reason)
    with module.cluster(tmp_path_factory.mktemp("cluster"), gpus=2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def place(repository):
    """A function that puts the workflow into a folder, its SLURM site being this machine."""

    def copy(folder: Path) -> Path:
        folder.mkdir(parents=True)
        for name in COPIED:
            source = repository / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
        site = folder / "workflow" / "profiles" / "slurm" / "site.yaml"
        site.write_text(f"{SITE}cores_per_node: {os.cpu_count()}\n")
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
