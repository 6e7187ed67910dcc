import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COPIED = ("Snakefile", "config.yaml", "workflow", "environment.yml")


@pytest.fixture(scope="session")
def runner():
    """A function that returns a runner of commands in a folder."""

    def at(folder: Path):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(folder / ".cache"), "OMP_NUM_THREADS": "1"}

        def run(*command, **extra):
            return subprocess.run(
                command, cwd=folder, env={**environment, **extra}, capture_output=True, text=True, timeout=600
            )

        return run

    return at


@pytest.fixture(scope="session")
def checkout(repository, runner):
    """A function that puts the workflow into a folder and returns a runner of commands there."""

    def place(folder: Path):
        folder.mkdir(parents=True)
        for name in COPIED:
            source = repository / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
        return runner(folder)

    return place


COMMAND = ("snakemake", "--cores", "2", "--configfile", "tiny.yaml")
SMALL = """\
papers: [bhaskar2025]
seeds: [0]
only: {model: [scatter_linear], dataset: [digits], epsilon: [2.93], local_epochs: [10], clients: [10], study: [none]}
"""
TINY = """\
papers: [lowy2021, bhaskar2025]
seeds: [0, 1]
only: {model: [scatter_linear], dataset: [digits, diabetes], epsilon: [2.93, 5], local_epochs: [10],
       clients: [3, 10], study: [none]}
"""


@pytest.fixture(scope="session")
def finished(checkout):
    """A function (folder, configuration) that runs the whole workflow there, in a folder with a space and an accent."""

    def finish(parent, configuration):
        folder = parent / "a run é"
        run = checkout(folder)
        (folder / "tiny.yaml").write_text(configuration)
        done = run(*COMMAND)
        assert done.returncode == 0, done.stderr[-4000:]
        return folder, run

    return finish


@pytest.fixture(scope="session")
def small_run(made_once, finished, runner):
    """The whole workflow on one sweep of one paper, for tests that change nothing; folder, runner, command."""
    folder = made_once("small run", lambda parent: finished(parent, SMALL)) / "a run é"
    return folder, runner(folder), COMMAND


@pytest.fixture(scope="session")
def tiny_run(finished, tmp_path_factory):
    """The whole workflow on a few sweeps of two papers, for tests that end with what they began with."""
    return *finished(tmp_path_factory.mktemp("tiny"), TINY), COMMAND
