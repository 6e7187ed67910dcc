"""Odd and damaged files in finished results, under every command that reads them: a report or one line, in time.

The project is the one of files.py. The results are put back after each command: some write.
"""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import files
from harness import REPOSITORY, Ended, dpfl

CONFIG = ["--config", "results/demo/config.yaml"]
TABLE = "results/demo/tables/bhaskar2025_table_2.csv"
COMMANDS = [
    ["plan", *CONFIG],
    ["status", *CONFIG],
    ["audit", "--files-only", "results/demo"],
    ["audit", "--quick", "results/demo"],
    ["trace", TABLE],
    ["trace", TABLE, "--where", "epsilon=2.93"],
    ["crate", "results/demo"],
    ["pages", *CONFIG],
    ["tables", "--paper", "bhaskar2025", "--name", "table_2", *CONFIG],
    ["claims", "--paper", "bhaskar2025", *CONFIG],
]
SECONDS = 900.0  # dpfl pages takes 50 s of processor time, which was 7 minutes beside much other work


def inject(count: int, seed: int, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield what was injected and what went wrong."""
    draw, kept = random.Random(seed), folder.parent / "kept"
    files._make(folder)
    (folder / "workflow").symlink_to(REPOSITORY / "workflow")
    results = folder / files.RESULTS
    shutil.copytree(results, kept)
    targets = sorted(path for path in results.rglob("*") if path.is_file())
    for number in range(count):
        path, command = draw.choice(targets), draw.choice(COMMANDS)
        kind = draw.choices(list(files.KINDS), list(files.KINDS.values()))[0]
        files._damage(path, kind, draw, targets)
        ended = dpfl(*command, folder=folder, seconds=SECONDS)
        yield f"{command[0]}: {number}, {kind} {path.relative_to(results)}", _judge(ended)
        shutil.rmtree(results)
        shutil.copytree(kept, results)


def _judge(ended: Ended) -> str:
    """Return what is wrong with the end of a command."""
    if ended.status is None:
        return "hung"
    refused = ended.status == 2 and len(ended.err.splitlines()) != 1
    if ended.has_traceback or refused or ended.status not in (0, 1, 2):
        return f"status {ended.status}: {(ended.out + ended.err)[-600:]!r}"
    return ""
