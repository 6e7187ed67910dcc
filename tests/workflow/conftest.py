import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COPIED = ("Snakefile", "config.yaml", "workflow", "environment.yml")


@pytest.fixture(scope="session")
def runner():
    """A function that returns a runner of commands in a folder, on the folder's own source where it has one."""

    def at(folder: Path):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(folder / ".cache"), "OMP_NUM_THREADS": "1"}

        def run(*command, **extra):
            own = {"PYTHONPATH": str(folder / "src")} if (folder / "src").exists() else {}
            return subprocess.run(
                command, cwd=folder, env={**environment, **own, **extra}, capture_output=True, text=True, timeout=600
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


# A command of dpfl that stops before a file which it has written gets its name: there a signal finds it at work.
WRITING = """
import os, signal, sys, time
from dpfl.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell runs in the background ignores it
left, fsync = int(sys.argv.pop(1)), os.fsync

def hold(descriptor):
    global left
    if left:
        left -= 1
        return fsync(descriptor)
    print("is writing", flush=True)
    time.sleep(300)

os.fsync = hold
main()
"""


@pytest.fixture
def is_writing():
    """A function that starts a command of dpfl and returns its process when it has written a file after `whole` others.

    The file has its temporary name still; the process waits for a signal.
    """
    started = []

    def start(folder: Path, *arguments: str, whole: int = 0) -> subprocess.Popen:
        command = [sys.executable, "-c", WRITING, str(whole), *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        started.append(process := subprocess.Popen(command, cwd=folder, **pipes))
        assert "is writing\n" in process.stdout, "it ended without writing"
        assert process.poll() is None
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


COMMAND = ("snakemake", "--cores", "2", "--configfile", "tiny.yaml")
SIXTH = "smith2026"
TINY = """\
papers: [lowy2021, bhaskar2025]
seeds: [0, 1]
only: {model: [scatter_linear], dataset: [digits, diabetes], epsilon: [2.93, 5], local_epochs: [10],
       clients: [3, 10], study: [none]}
"""


def finish(run, folder, configuration):
    """Run the whole workflow in a folder."""
    (folder / "tiny.yaml").write_text(configuration)
    done = run(*COMMAND)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="session")
def small_run(made_once, repository, checkout, runner):
    """The whole workflow on a sixth paper, as `dpfl new-paper` writes it, for tests that change nothing.

    The folder has a space, an accent and a copy of the source with the paper. Gives folder, runner, command.
    """

    def make(parent):
        folder = parent / "a run é"
        run = checkout(folder)
        shutil.copytree(repository / "src", folder / "src", ignore=shutil.ignore_patterns("*.egg-info"))
        written = run("dpfl", "new-paper", SIXTH)
        assert written.returncode == 0, written.stderr
        finish(run, folder, f"papers: [{SIXTH}]\n")

    folder = made_once("small run", make) / "a run é"
    return folder, runner(folder), COMMAND


@pytest.fixture(scope="session")
def tiny_run(checkout, tmp_path_factory):
    """The whole workflow on a few jobs of two papers, for tests that end with what they began with."""
    folder = tmp_path_factory.mktemp("tiny") / "a run é"
    run = checkout(folder)
    finish(run, folder, TINY)
    return folder, run, COMMAND
