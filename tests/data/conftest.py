"""A misbehaving web server, a table of small sources, and a disk that fills up: what fetching has to live with."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dpfl.data import datasets, download


@dataclasses.dataclass
class Page:
    """What the server holds at one path, and how it goes wrong there."""

    body: bytes
    status: int = 200
    ranges: bool = True
    failures: int = 0  # so many answers of status 500 before the first good one
    breaks: int = 0  # so many answers that break off half-way
    stalls: int = 0  # so many answers that stop half-way and keep the line open
    length: bool = True
    headers: dict[str, str] = dataclasses.field(default_factory=dict)


class Server(ThreadingHTTPServer):
    """An HTTP server on this machine that serves `pages` and remembers the (path, Range) of every request."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages: dict[str, Page] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.closing = threading.Event()

    def url(self, path: str = "") -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"

    def publish(self, path: str, body: bytes, **behaviour) -> str:
        self.pages[path] = Page(body, **behaviour)
        return self.url(path)


class Handler(BaseHTTPRequestHandler):
    """Answers as the page says."""

    server: Server

    def log_message(self, *_):
        pass

    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.asked.append((self.path, asked))
        page = self.server.pages.get(self.path, Page(b"no such page", status=404))
        status, body = page.status, page.body
        if page.failures:
            page.failures -= 1
            status, body = 500, b"oops"
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and page.ranges and status == 200 else 0
        if start >= len(body) > 0:
            self.send_error(416)
            return
        self.send_response(206 if start else status)
        for name, value in page.headers.items():
            self.send_header(name, value)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        body = body[start:]
        if page.length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if page.breaks or page.stalls:
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            if page.stalls:
                page.stalls -= 1
                self.server.closing.wait(30)
            else:
                page.breaks -= 1
            return
        self.wfile.write(body)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "_PAUSE_SECONDS", 0.0)
    web = Server()
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield web
    web.closing.set()
    web.shutdown()
    thread.join()
    web.server_close()


@pytest.fixture
def register(tmp_path, monkeypatch):
    """A function that adds a file of dataset "toy" (folder "toys" in a mirror) to an empty table of sources."""
    path = tmp_path / "sources.csv"
    columns = [field.name for field in dataclasses.fields(datasets.Source)]
    path.write_text(",".join(columns) + "\n")
    monkeypatch.setattr(datasets, "TABLE", path)
    datasets._table.cache_clear()

    def add(file: str, content: bytes, urls=(), archive: bytes = b"", **other) -> None:
        row = dict.fromkeys(columns, "") | {"dataset": "toy", "file": file, "mirror_folder": "toys"}
        row |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), "urls": " ".join(urls)}
        if archive:
            row |= {"archive_bytes": len(archive), "archive_sha256": hashlib.sha256(archive).hexdigest()}
        with path.open("a", newline="") as stream:
            csv.DictWriter(stream, columns, lineterminator="\n").writerow(row | other)
        datasets._table.cache_clear()

    yield add
    datasets._table.cache_clear()


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 256 KiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True, text=True)
    if mount.returncode:
        pytest.skip(f"this machine does not let root mount a file system: {mount.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture
def leftovers():
    """A function that lists the files in a folder, but for the lock."""

    def names(folder: Path) -> list[str]:
        found = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
        return sorted(found)

    return names
