"""Configurations that cannot be used, through `dpfl run`: each is refused in one line, and nothing is written.

One in ten can be used, and must be planned; and some are the shipped file with a few bytes changed, each to be planned
or refused.
"""

import os
import random
import shutil
import string
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml
from harness import REPOSITORY, dpfl, files_of, refused_in_one_line

from dpfl.grid import configuration

CHARACTERS = string.ascii_letters + string.digits + "_-é "
ODD_KINDS = ["a text", 3, 2.5, True, None, [], [[1]], {"a": 1}, float("nan"), "", -1, 10**40]
ODD_FOLDERS = [
    "/data",
    "../data",
    "a/../../b",
    "results",
    "results/x",
    ".git/x",
    "a\nb",
    "a\0b",
    "{x}",
    "",
    "x/",
    "./a",
    "~/a",
    "a\u2028b",
    "a\x85b",
    "a\u202eb",
    "Snakefile",
    "config.yaml/x",
    "é" * 200,
]
ODD_MIRRORS = ["http://[", "ftp://host/x", "gopher://x", "/not/there", "file:///not/there", "a\nb", "http://", "\0", ""]
ODD_MIRRORS += ["http://a:99999999/", "http://a:x/", "http://a/\u2028"]
ODD_YAML = [
    "seeds: [", "seeds: {", "\tseeds: [0]", "a: b: c", "seeds: !!python/object/apply:os.system ['true']", "1: 2",
    "? [a, b]\n: 1", "seeds: 2024-13-45", "seeds: 2024-02-30 25:61:00", "- 1\n- 2", "just a text", "seeds: *a",
    "seeds: &a [*a]", "%YAML 9.9", "---\nseeds: [0]\n---\nseeds: [1]", "seeds: 'open", 'seeds: "\\q"', "null: 1",
    "seeds: [0]\nseeds: [1]", "<<: {seeds: [0]}\n<<: {}", "seeds: !!binary 'x'", "seeds: 0x", "seeds: [1e400]",
    "only: {epsilon: [1_0_0.5.5]}", "seeds: [1:30]", "seeds: [010]", "seeds: [0x" + "f" * 6000 + "]",
    "only: {epsilon: [1:30.5]}", "only: {epsilon: [1.0e+400]}", 'data: {folder: "a\\ud800"}', "only: {clients: [1, 1]}",
]  # fmt: skip


def _word(draw: random.Random) -> str:
    """Return a text that is no key, name or value of anything."""
    return "x" + "".join(draw.choices(CHARACTERS, k=draw.randint(1, 30))).strip() + "q"


def _unknown_key(draw: random.Random) -> str:
    section = draw.choice(["", "only", "data", "training"])
    entry = {_word(draw): draw.choice(ODD_KINDS[:5])}
    return yaml.safe_dump({section: entry} if section else entry, allow_unicode=True)


def _wrong_kind(draw: random.Random) -> str:
    """A value of a kind that the schema does not have at a random place."""
    rules = configuration.schema()["properties"]
    section = draw.choice(list(rules))
    while True:
        value = draw.choice(ODD_KINDS)
        inner = rules[section].get("properties")
        config = {section: {draw.choice(list(inner)): value} if inner and draw.random() < 0.8 else value}
        try:
            configuration.resolve(config)
        except ValueError:
            return yaml.safe_dump(config, allow_unicode=True)


def _unknown_value(draw: random.Random) -> str:
    axis = draw.choice(["papers", "dataset", "model", "algorithm", "study"])
    return yaml.safe_dump({"papers": [_word(draw)]} if axis == "papers" else {"only": {axis: [_word(draw)]}})


def _value_of_no_run(draw: random.Random) -> str:
    axis = draw.choice(["epsilon", "clients", "local_epochs"])
    value = draw.uniform(20, 1e6) if axis == "epsilon" else draw.randint(1000, 10**9)
    return yaml.safe_dump({"only": {axis: [value]}})


def _odd_seeds(draw: random.Random) -> str:
    number = draw.randint(1, 10**6)
    odd = [[-number], [2**32 + number], [number + 0.5], [float(number)], [str(number)], [True], [number, number], []]
    odd += [[None], number, [[number]], {"a": number}]
    return draw.choice([yaml.safe_dump({"seeds": draw.choice(odd)}), f"seeds: [{'9' * draw.randint(50, 6000)}]"])


def _odd_folder(draw: random.Random) -> str:
    return yaml.safe_dump({"data": {"folder": draw.choice([*ODD_FOLDERS, "a" * draw.randint(201, 5000)])}})


def _odd_mirror(draw: random.Random) -> str:
    return yaml.safe_dump({"data": {"mirror": draw.choice([*ODD_MIRRORS, "/" + _word(draw)])}})


def _odd_number(draw: random.Random) -> str:
    bounds = {"timeout_seconds": [0, -1, 3601, float("inf")], "threads": [0, -3, 257, 1.5], "memory_gb": [0, -1, 1e9]}
    name = draw.choice(list(bounds))
    section = "data" if name == "timeout_seconds" else "training"
    return yaml.safe_dump({section: {name: draw.choice(bounds[name])}})


def _odd_yaml(draw: random.Random) -> str:
    nested = "seeds: " + "[" * draw.randint(500, 20_000)
    digits = "seeds: [" + "9" * draw.randint(5000, 20_000) + "]"
    return draw.choice([*ODD_YAML, nested, digits, "seeds: [0]\n" + "#" * 1_000_001, "\udcff\udcfe", "seeds: [\x01]"])


TEXTS: dict[str, Callable[[random.Random], str]] = {
    "unknown key": _unknown_key, "wrong kind": _wrong_kind, "unknown value": _unknown_value,
    "value of no run": _value_of_no_run, "odd seeds": _odd_seeds, "odd folder": _odd_folder, "odd mirror": _odd_mirror,
    "odd number": _odd_number, "odd YAML": _odd_yaml,
}  # fmt: skip
PLACES = ["missing", "folder", "pipe", "dead link", "device", "loop"]


def _put(path: Path, place: str) -> None:
    """Put something that is no configuration where one is expected."""
    if place == "folder":
        path.mkdir()
    elif place == "pipe":
        os.mkfifo(path)
    elif place != "missing":
        path.symlink_to({"dead link": "nowhere", "device": "/dev/zero", "loop": path.name}[place])


def _changed(draw: random.Random) -> bytes:
    """The shipped configuration with a few bytes changed."""
    data = bytearray((REPOSITORY / "config.yaml").read_bytes())
    for _ in range(draw.randint(1, 4)):
        data[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(data)


def inject(count: int, seed: int, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield what was injected and what went wrong."""
    draw = random.Random(seed)
    for name in ("Snakefile", "workflow"):
        (folder / name).symlink_to(REPOSITORY / name)
    shutil.copy(REPOSITORY / "config.yaml", folder)
    path = folder / "mine.yaml"
    for number in range(count):
        what = "usable" if number % 10 == 0 else draw.choice([*TEXTS, "no file", "bytes changed"])
        text = ""
        if what == "no file":
            text = draw.choice(PLACES)
            _put(path, text)
        elif what == "bytes changed":
            path.write_bytes(_changed(draw))
        else:
            text = f"seeds: [{draw.randrange(100)}]\n" if what == "usable" else TEXTS[what](draw)
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
        before = files_of(folder)
        problem = _judge(what, folder)
        after = files_of(folder)
        if what not in ("usable", "bytes changed") and after != before:
            problem = problem or f"{sorted(set(after) ^ set(before))[:5]} written"
        yield f"{what}: {number}: {text[:120]!r}", problem
        shutil.rmtree(folder / ".snakemake", ignore_errors=True)
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def _judge(what: str, folder: Path) -> str:
    """Run `dpfl run` with mine.yaml; return what is wrong with how it ended."""
    if what not in ("usable", "bytes changed"):
        return refused_in_one_line(dpfl("run", "--config", "mine.yaml", folder=folder))
    ended = dpfl("plan", "--config", "mine.yaml", folder=folder)
    if what == "bytes changed" and ended.status == 2:
        return refused_in_one_line(ended)
    return "" if ended.status == 0 and not ended.has_traceback else f"status {ended.status}: {ended.err[-600:]!r}"
