import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COPIED = ("Snakefile", "config.yaml", "workflow", "environment.yml")


@pytest.fixture(scope="session")
def checkout(repository):
    """A function that puts the workflow into a folder and returns a runner of commands there."""

    def place(folder: Path):
        folder.mkdir(parents=True)
        for name in COPIED:
            source = repository / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(folder / ".cache"), "OMP_NUM_THREADS": "1"}

        def run(*command, **extra):
            return subprocess.run(
                command, cwd=folder, env={**environment, **extra}, capture_output=True, text=True, timeout=600
            )

        return run

    return place


@pytest.fixture(scope="session")
def tiny_run(checkout, tmp_path_factory):
    """The whole workflow on a tiny configuration, in a folder whose name has a space and letters beyond ASCII."""
    folder = tmp_path_factory.mktemp("tiny") / "a run é"
    run = checkout(folder)
    (folder / "tiny.yaml").write_text(
        "papers: [lowy2021, bhaskar2025]\n"
        "seeds: [0, 1]\n"
        "only: {model: [scatter_linear], dataset: [digits, diabetes], epsilon: [2.93, 5], local_epochs: [10],\n"
        "       clients: [3, 10], study: [none]}\n"
    )
    command = ("snakemake", "--cores", "2", "--configfile", "tiny.yaml")
    done = run(*command)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder, run, command
