"""Servers and folders that misbehave: a file comes verified from a later source, or one line says why not, in time."""

import gzip
import hashlib
import importlib.util
import lzma
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from harness import REPOSITORY

from dpfl import catalog
from dpfl.data import datasets
from dpfl.data.fetch import configured, fetch
from dpfl.errors import InputError

TIMEOUT_SECONDS = 1.0
SECONDS_OF_A_SOURCE = 20.0
"""Longest time that one misbehaving source may take: three attempts with their timeouts."""
BOMB = lzma.compress(bytes(50_000_000))


def _content(draw: random.Random) -> bytes:
    return draw.randbytes(draw.randint(1, 200_000))


def _flipped(content: bytes, draw: random.Random) -> bytes:
    data = bytearray(content)
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


PAGES: dict[str, Callable[[bytes, random.Random], dict[str, Any]]] = {
    "another file": lambda content, draw: {"body": draw.randbytes(len(content))},
    "flipped bit": lambda content, draw: {"body": _flipped(content, draw)},
    "cut": lambda content, draw: {"body": content[: draw.randrange(len(content))]},
    "too long": lambda content, draw: {"body": content + draw.randbytes(draw.randint(1, 10**6))},
    "empty": lambda content, draw: {"body": b""},
    "page of errors": lambda content, draw: {"body": b"<html>not here</html>"},
    "status": lambda content, draw: {"body": b"no", "status": draw.choice([201, 204, 301, 403, 404, 410, 500, 503])},
    "fails and recovers": lambda content, draw: {"body": content, "failures": draw.randint(1, 2)},
    "always fails": lambda content, draw: {"body": content, "failures": 99},
    "breaks off": lambda content, draw: {"body": content + b"x" * 40_000, "breaks": 99},
    "stalls": lambda content, draw: {"body": content + b"x" * 40_000, "stalls": True},
    "drips": lambda content, draw: {"body": content + b"x" * 40_000, "drips": draw.choice(["header", "body"])},
    "no length": lambda content, draw: {"body": _flipped(content, draw), "length": False},
    "broken gzip": lambda content, draw: {"body": _flipped(gzip.compress(content), draw)},
    "bomb": lambda content, draw: {"body": BOMB},
    "circle": lambda content, draw: {"body": b"", "status": 302, "headers": {"Location": "/bad"}},
    "to a file": lambda content, draw: {"body": b"", "status": 302, "headers": {"Location": "file:///etc/passwd"}},
    "odd header": lambda content, draw: {"body": _flipped(content, draw), "headers": {"Content-Encoding": "gzip"}},
}  # fmt: skip
FOLDERS = ["pipe", "folder", "device", "dead link", "loop", "unreadable content"]


def _server() -> ModuleType:
    """The misbehaving server of the tests of fetching."""
    spec = importlib.util.spec_from_file_location("data_conftest", REPOSITORY / "tests" / "data" / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _register(folder: Path, content: bytes, urls: list[str]) -> None:
    """Make a data set "toy" of one file the only one."""
    facts = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), "urls": urls}
    toy = {"title": "Toy", "decoder": "none", "records": {}, "licence": "none", "mirror_folder": "toys"}
    catalog.DATASETS = folder / "datasets.yaml"
    catalog.DATASETS.write_text(yaml.safe_dump({"toy": toy | {"files": {"f": facts}}}))
    catalog.dataset_entries.cache_clear()
    datasets.load.cache_clear()


def _put(path: Path, kind: str) -> None:
    """Put something that is no file of the data set into a mirror folder."""
    path.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "unreadable content":
        path.with_name("f.gz").write_bytes(b"\x1f\x8b" + bytes(100))
    else:
        path.symlink_to({"device": "/dev/zero", "dead link": "nowhere", "loop": path.name}[kind])


def inject(count: int, seed: int, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield what was injected and what went wrong; every second time a good source stands behind the bad one."""
    draw, tests = random.Random(seed), _server()
    server = tests.Server()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    for number in range(count):
        here, content = folder / str(number), _content(draw)
        here.mkdir()
        server.pages.clear()
        # Another host: once a server has given no answer, nothing else is asked of it.
        good = [server.publish("/good", content).replace("127.0.0.1", "localhost")] if number % 2 else []
        kind = draw.choice([*PAGES, *FOLDERS, "nobody there"])
        mirror = None
        if kind in FOLDERS:
            _put(here / "mirror" / "toys" / "f", kind)
            mirror = here / "mirror"
        elif kind in PAGES:
            server.publish("/bad", **PAGES[kind](content, draw))
        bad = {"nobody there": "http://127.0.0.1:9/f"}.get(kind, server.url("/bad"))
        _register(here, content, ([] if mirror else [bad]) + good)
        usable = bool(good) or kind == "fails and recovers"
        yield f"{kind}: {number}, {'with' if good else 'without'} another source", _judge(here, content, mirror, usable)
    server.closing.set()
    server.shutdown()
    server.server_close()


def _judge(here: Path, content: bytes, mirror: Path | None, usable: bool) -> str:
    """Fetch; return what is wrong with what came, with the refusal, or with the time that it took."""
    raw, began = here / "raw", time.monotonic()
    try:
        path = fetch("toy", "f", raw, configured(str(mirror)) if mirror else None, TIMEOUT_SECONDS)
        problem = "" if path.read_bytes() == content else "other bytes were taken"
    except InputError as error:
        problem = "a good source was not used" if usable else ""
        problem = problem or ("" if str(error).isprintable() else f"not one line: {error!s:.300}")
    if (seconds := time.monotonic() - began) > SECONDS_OF_A_SOURCE:
        problem = problem or f"{seconds:.0f} seconds"
    left = [str(each.relative_to(raw)) for each in raw.rglob("*") if each.is_file() and each.name not in (".lock", "f")]
    return problem or (f"left behind: {left}" if left else "")
