"""Command lines that cannot be used: status 2, one line or the command's usage, and nothing written."""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from harness import REPOSITORY, Ended, dpfl, files_of, refused_in_one_line

WORDS = [
    "nothing",
    "",
    " ",
    "-",
    "é",
    "a\nb",
    "\x1b[31mred",
    "../../x",
    "/etc/passwd",
    "a" * 5000,
    "0",
    "{x}",
    "*",
    "$(id)",
]
PLACES = [
    "folder",
    "pipe",
    "loop",
    "dead",
    "/dev/zero",
    "/dev/null",
    "/",
    ".",
    "..",
    "binary",
    "nowhere/x",
    "empty",
    "é/x",
    "a" * 300,
    "a/" * 2500,
]
NUMBERS = ["-1", "0", "nan", "inf", "-inf", "1e400", "1e-400", "x", "", "9" * 5000, "0x10", "1,5"]
CONFIGURED = ["calibrate --paper", "tables --paper", "figures --paper", "claims --paper", "features --dataset"]
CONFIGURED += ["data arrays --dataset", "train --job x --paper", "tables --paper bhaskar2025 --name"]
CONFIGURED += ["data fetch --dataset mnist --file", "data fetch --file x --dataset"]
ON_A_PLACE = ["audit", "audit --files-only", "audit --quick --rerun 1", "trace", "trace --json", "crate"]
ON_A_PLACE += ["audit --rebuild", "audit --seal", "release --key nowhere"]
WITH_A_CONFIG = ["plan", "run", "status", "pages", "report", "tables --paper bhaskar2025", "calibrate --paper lowy2021"]
COUNTED = ["audit results/demo --rerun", "audit results/demo --rerun 1 --seed", "plan --at-once", "account --records"]
ACCOUNT = ["account", "--sampler", "poisson", "--delta", "1e-5", "--steps", "10"]
CORES = [
    "-c0",
    "-j0",
    "--cores=+0",
    "--cores 0",
    "--cores 00",
    "--core 0",
    "-c -1",
    "--jobs -5",
    "--cores x",
    "--cores",
]
CORES += ["-kj0", "--local-cores 0", "-n -c 0", "--nonsense", "x --cores 1 y"]
WITHOUT_EFFECT = [
    "--files-only --rerun 3",
    "--files-only --rerun-cell a/b",
    "--signers keys",
    "--seed 1",
    "--where a=b",
]
CLAIMS = ["folder", "pipe", "/dev/zero", "/dev/null", "a" * 300]
OPTIONS = [["plan", "--scale"], ["run", "--scale"], ["plan", "--profile"], ["run", "--profile"]]


def _of_account(draw: random.Random) -> list[str]:
    """A claim with one number that cannot be: rate, noise, steps or delta."""
    numbers = {"--sample-rate": "0.01", "--noise-multiplier": "1", "--steps": "10", "--delta": "1e-5"}
    numbers[draw.choice(list(numbers))] = draw.choice([each for each in NUMBERS if each != "0"])
    return ["account", "--sampler", "poisson", *(word for pair in numbers.items() for word in pair)]


LINES: dict[str, Callable[[random.Random], list[str]]] = {
    "unknown name": lambda draw: [*draw.choice(CONFIGURED).split(), draw.choice(WORDS)],
    "odd place": lambda draw: [*draw.choice(ON_A_PLACE).split(), draw.choice(PLACES)],
    "odd configuration": lambda draw: [*draw.choice(WITH_A_CONFIG).split(), "--config", draw.choice(PLACES)],
    "odd count": lambda draw: [*draw.choice(COUNTED).split(), draw.choice(NUMBERS)],
    "odd number": _of_account,
    "odd sampler": lambda draw: ["account", "--sampler", draw.choice(WORDS), "--noise-multiplier", "1", *ACCOUNT[3:]],
    "odd option": lambda draw: [*draw.choice(OPTIONS), draw.choice([*WORDS, *PLACES])],
    "unknown option": lambda draw: [draw.choice([*WITH_A_CONFIG, *ON_A_PLACE]).split()[0], f"--{draw.choice(WORDS)}"],
    "unknown command": lambda draw: [draw.choice(WORDS[:9])],
    "no cores": lambda draw: ["run", "--", *draw.choice(CORES).split()],
    "no effect": lambda draw: ["audit", "results/x", *draw.choice(WITHOUT_EFFECT).split()],
    "odd claims": lambda draw: ["check", draw.choice(CLAIMS)],
    "odd rows": lambda draw: ["trace", "results/x.csv", "--where", draw.choice([*WORDS, "=", "a=", "=b", "a=b=c,"])],
}


def _furnish(folder: Path) -> None:
    """Put the workflow and odd files into a folder."""
    for name in ("Snakefile", "workflow"):
        (folder / name).symlink_to(REPOSITORY / name)
    shutil.copy(REPOSITORY / "config.yaml", folder)
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    (folder / "dead").symlink_to("nowhere")
    (folder / "binary").write_bytes(bytes(range(256)))


def inject(count: int, seed: int, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield what was injected and what went wrong."""
    draw = random.Random(seed)
    _furnish(folder)
    before = files_of(folder)
    for number in range(count):
        what = draw.choice(list(LINES))
        arguments = LINES[what](draw)
        problem = _judge(dpfl(*arguments, folder=folder))
        after = files_of(folder)
        if after != before:
            problem = problem or f"{sorted(set(after) ^ set(before))[:5]} written"
            before = after
        yield f"{what}: {number}: {' '.join(arguments)[:160]!r}", problem


def _judge(ended: Ended) -> str:
    """Return what is wrong with a refusal; a line that the parser refuses shows the command's usage."""
    is_usage = ended.status == 2 and "Usage: " in ended.err and not ended.has_traceback
    return "" if is_usage else refused_in_one_line(ended)
