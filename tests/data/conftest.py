"""A misbehaving web server, datasets of a few bytes, and a disk that fills up: what fetching has to live with."""

import contextlib
import dataclasses
import hashlib
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from dpfl import catalog
from dpfl.data import datasets, fetch


@dataclasses.dataclass
class Page:
    """What the server has at one path, and how it goes wrong there."""

    body: bytes
    status: int = 200
    failures: int = 0  # so many answers of status 500 before the first good one
    breaks: int = 0  # so many answers that break off half-way
    stalls: bool = False  # stops half-way and keeps the line open
    drips: str = ""  # sends "header" or "body" one byte at a time, 20 a second
    length: bool = True
    headers: dict[str, str] = dataclasses.field(default_factory=dict)


class Server(ThreadingHTTPServer):
    """An HTTP server on this machine that serves `pages` and remembers the path of every request."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages: dict[str, Page] = {}
        self.asked: list[str] = []
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
        self.server.asked.append(self.path)
        page = self.server.pages.get(self.path, Page(b"no such page", status=404))
        if page.drips == "header":
            self.drip(b"HTTP/1.1 200 OK\r\n" + b"X-Slow: 1\r\n" * 1000)
            return
        status, body = page.status, page.body
        if page.failures:
            page.failures -= 1
            status, body = 500, b"oops"
        self.send_response(status)
        for name, value in page.headers.items():
            self.send_header(name, value)
        if page.length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if page.drips:
            self.drip(body)
        elif page.breaks or page.stalls:
            page.breaks -= not page.stalls
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            if page.stalls:
                self.server.closing.wait(30)
        else:
            self.wfile.write(body)

    def drip(self, content: bytes) -> None:
        """Send a byte every 0.05 seconds until the test is over."""
        with contextlib.suppress(OSError):
            for value in content:
                self.wfile.write(bytes([value]))
                self.wfile.flush()
                if self.server.closing.wait(0.05):
                    return


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(fetch, "_PAUSE_SECONDS", 0.0)
    web = Server()
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield web
    web.closing.set()
    web.shutdown()
    thread.join()
    web.server_close()


@pytest.fixture
def entries(tmp_path):
    """A function that writes a file of datasets, entries by name, and puts it in the place of the shipped one."""
    path = tmp_path / "datasets.yaml"

    def write(**named) -> None:
        path.write_text(yaml.safe_dump(named, sort_keys=False))
        catalog.dataset_entries.cache_clear()
        datasets.load.cache_clear()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "DATASETS", path)
        write()
        yield write
    catalog.dataset_entries.cache_clear()  # when the shipped file is back in its place, and not before
    datasets.load.cache_clear()


@pytest.fixture
def register(entries):
    """A function that adds a file to dataset "toy" (folder "toys" in a mirror), the only one."""
    toy = {"title": "Toy", "decoder": "none", "records": {}, "licence": "none", "mirror_folder": "toys", "files": {}}

    def add(file: str, content: bytes, urls=(), archive: bytes = b"", **other) -> None:
        facts = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), **other}
        if archive:
            packed = {"bytes": len(archive), "sha256": hashlib.sha256(archive).hexdigest()}
            facts["archive"] = {"urls": list(urls), **packed}
        else:
            facts["urls"] = list(urls)
        toy["files"][file] = facts
        entries(toy=toy)

    return add


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
