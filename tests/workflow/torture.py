"""Kill a run of the workflow again and again, in every way there is, and compare its results with an undisturbed one.

make torture                                                   the demo, a hundred times
make torture KILLS=5 CONFIG=tests/workflow/torture.yaml        a small configuration, as in CI
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

REPOSITORY = Path(__file__).parents[2]
COPIED = ("Snakefile", "config.yaml", "workflow", "environment.yml")
COMPARED = ("runs/**/*.csv.gz", "accounting/*.csv", "tables/*.*", "figures/*.*", "claims/*.*")
MEAN_SECONDS_BEFORE_A_KILL = 8.0
LONGER, SECONDS_OF_LONGER = 0.25, (10.0, 60.0)
SECONDS_TO_END, SECONDS_TO_BE_GONE, PATIENCE_SECONDS = 10.0, 120.0, 900.0


def start(folder: Path, config: Path | None) -> subprocess.Popen:
    """Start a run as make does, in a session of its own; behind a shell's & too it hears Ctrl-C."""
    overlay = ["--config", str(config)] if config else []
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(folder / ".cache"), "OMP_NUM_THREADS": "1"}
    with (folder / "run.log").open("ab") as log:
        command = [sys.executable, "-m", "dpfl", "run", *overlay]
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )


def results(folder: Path) -> dict[str, str]:
    """Return the hash of every result, records (they hold times) apart."""
    files = {file for pattern in COMPARED for file in (folder / "results" / "demo").glob(pattern)}
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(files)
        if not file.name.endswith(".record.json")
    }


def processes(folder: Path) -> list[psutil.Process]:
    """Return every process that works in the folder."""
    return [each for each in psutil.process_iter(["cwd", "status"]) if each.info["cwd"] == str(folder.resolve())]


def kill_group(run: subprocess.Popen, draw: random.Random) -> None:
    """The whole run at once, as a node that fails does."""
    os.killpg(run.pid, signal.SIGKILL)


def kill_controller(run: subprocess.Popen, draw: random.Random) -> None:
    """Snakemake alone, and what started it: its stages are left behind."""
    for process in [*psutil.Process(run.pid).children(), psutil.Process(run.pid)]:
        process.kill()


def kill_stage(run: subprocess.Popen, draw: random.Random) -> None:
    """One process below Snakemake, as the kernel does when memory ends."""
    below = [each for child in psutil.Process(run.pid).children() for each in child.children(recursive=True)]
    if below:
        draw.choice(below).kill()


def terminate(run: subprocess.Popen, draw: random.Random) -> None:
    """SIGTERM to the run, as a scheduler does."""
    run.send_signal(signal.SIGTERM)


def interrupt(run: subprocess.Popen, draw: random.Random) -> None:
    """Ctrl-C in a terminal: SIGINT to everybody."""
    os.killpg(run.pid, signal.SIGINT)


WAYS = (kill_group, kill_controller, kill_stage, terminate, interrupt)


def stage_at_work(folder: Path) -> str:
    """Return the command of a stage that runs in the folder, or what else is going on."""
    for process in processes(folder):
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        for place, word in enumerate(words[:-1]):
            if word.endswith("/dpfl") and words[place + 1] != "run":
                return words[place + 1]
    return "between stages"


def moment(draw: random.Random) -> float:
    """Return after how many seconds a run is killed: mostly soon, now and then so late that long stages come to an end
    and those behind them are reached."""
    if draw.random() < LONGER:
        return draw.uniform(*SECONDS_OF_LONGER)
    return draw.expovariate(1 / MEAN_SECONDS_BEFORE_A_KILL)


def disturb(folder: Path, config: Path | None, draw: random.Random) -> tuple[str, str] | None:
    """Start a run and kill it after a random while; return how and in which stage, or None where it ended before."""
    run = start(folder, config)
    try:
        run.wait(moment(draw))
        if run.returncode:
            raise SystemExit(f"a run failed by itself with status {run.returncode}: see {folder}/run.log")
        return None
    except subprocess.TimeoutExpired:
        stage, way = stage_at_work(folder), draw.choice(WAYS)
    with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):  # it ended in this very moment
        way(run, draw)
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.wait(SECONDS_TO_END)
    if run.poll() is None:  # whoever loses one stage goes on with the others
        terminate(run, draw)
        run.wait(PATIENCE_SECONDS)
    deadline = time.monotonic() + SECONDS_TO_BE_GONE
    while left := processes(folder):
        if time.monotonic() > deadline:
            raise SystemExit(f"after {way.__name__} in {stage}: {[each.cmdline() for each in left]} still run")
        time.sleep(0.1)
    return way.__name__, stage


def main() -> None:
    """Run undisturbed, then under kills until enough of them hit; compare after every completed run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    config = options.config.resolve() if options.config else None
    with tempfile.TemporaryDirectory(prefix="dpfl torture é ") as name:
        folder = Path(name)
        for item in COPIED:
            source = REPOSITORY / item
            (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / item)
        if start(folder, config).wait():
            raise SystemExit((folder / "run.log").read_text()[-3000:])
        undisturbed, hit, completed = results(folder), Counter(), 0
        while hit.total() < options.kills:
            for item in ("results", "data", "checkpoints", ".snakemake"):
                shutil.rmtree(folder / item, ignore_errors=True)
            while hit.total() < options.kills and (kill := disturb(folder, config, draw)):
                hit[kill] += 1
                print(f"{hit.total()} of {options.kills}: {kill[0]} in {kill[1]}", flush=True)
            if start(folder, config).wait():
                raise SystemExit((folder / "run.log").read_text()[-3000:])
            completed += 1
            now = results(folder)
            if now != undisturbed:
                other = sorted(file for file in {*now, *undisturbed} if now.get(file) != undisturbed.get(file))
                raise SystemExit(f"{len(other)} files differ after {hit.total()} kills, as {other[:5]}")
            if rest := [*folder.rglob("*.partial*"), *(folder / "checkpoints").rglob("*.pt")]:
                raise SystemExit(f"left behind after a completed run: {rest[:5]}")
        print(
            f"{hit.total()} kills survived of {hit.total()}; {completed} completed runs of {len(undisturbed)} files, "
            "all byte-identical to an undisturbed run"
        )
        for (way, stage), count in sorted(hit.items()):
            print(f"  {count:3d} {way} in {stage}")


if __name__ == "__main__":
    main()
