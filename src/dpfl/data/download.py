"""Download over HTTP by pooch, with limits that pooch lacks: on size, on the rate and on the time of a transfer."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pooch
import requests

from dpfl.data.verify import Refused
from dpfl.progress import ProgressCallback

LEAST_BYTES_A_SECOND = 50_000
"""Mean rate below which a transfer is given up: the largest archive, 170 MB, has an hour."""
_ATTEMPTS = 3
_PAUSE_SECONDS = 0.25
_CONNECT_SECONDS = 10.0
_CHUNK_BYTES = 1 << 14
_TRANSIENT_STATUS = frozenset({408, 429, 500, 502, 503, 504})


class Unreachable(Refused):
    """A server that did not answer: nothing else on it is worth trying."""


class _Transient(Refused):
    """A failure that another attempt may not meet."""


@dataclass
class _Sink:
    """The file as pooch writes to it: bounded in size, reporting progress, closed to a transfer that was given up."""

    out: BinaryIO
    limit: int
    progress: ProgressCallback
    expected: int
    received: int = 0
    has_answer: bool = False
    is_abandoned: bool = False

    def write(self, data: bytes) -> None:
        if self.is_abandoned:
            raise Refused("given up")
        if self.received + len(data) > self.limit:
            raise Refused(f"longer than {self.limit} bytes, which the file cannot be")
        self.out.write(data)
        self.received += len(data)
        self.progress(self.received, self.expected)

    def flush(self) -> None:
        self.out.flush()

    def take_answer(self, response: requests.Response, **_) -> None:
        """Note the length that an answer's header names."""
        self.has_answer = True
        length = response.headers.get("Content-Length", "")
        self.expected = int(length) if length.isdecimal() else self.limit


def download(url: str, target: Path, limit: int, timeout_seconds: float, progress: ProgressCallback) -> None:
    """Write the bytes at `url`, at most `limit`, to `target`. Nothing is verified here.

    Every `timeout_seconds` must bring 16 KiB (or the rest), and the transfer may take `timeout_seconds` and the time of
    `limit` bytes at LEAST_BYTES_A_SECOND. Server errors and broken transfers are tried again a few times.
    Raises Unreachable where the server does not answer, Refused where what came is of no use, and OSError where
    `target` cannot be written; `target` may then have any content.
    """
    for attempt in range(_ATTEMPTS):
        time.sleep(attempt * _PAUSE_SECONDS)
        try:
            _attempt(url, target, limit, timeout_seconds, progress)
            return
        except _Transient:
            if attempt == _ATTEMPTS - 1:
                raise


def _attempt(url: str, target: Path, limit: int, timeout_seconds: float, progress: ProgressCallback) -> None:
    """Make one attempt. It runs in a thread of its own, for a read that waits for a byte looks at no clock."""
    errors: list[Exception] = []
    with target.open("wb") as out:
        sink = _Sink(out, limit, progress, limit)
        downloader = pooch.HTTPDownloader(
            chunk_size=_CHUNK_BYTES,
            headers={"Accept-Encoding": "identity"},
            timeout=(min(timeout_seconds, _CONNECT_SECONDS), timeout_seconds),
            hooks={"response": sink.take_answer},
        )

        def transfer() -> None:
            try:
                downloader(url, sink, None)
            except (OSError, ValueError, Refused) as error:  # the errors of requests are OSErrors
                errors.append(error)

        worker = threading.Thread(target=transfer, daemon=True)
        worker.start()
        _watch(worker, sink, timeout_seconds)
    if errors:
        raise _reason(errors[0], timeout_seconds) from None


def _watch(worker: threading.Thread, sink: _Sink, timeout_seconds: float) -> None:
    """Wait for a transfer to end. Raises Refused, and leaves it to itself, where it takes too long."""
    until = time.monotonic() + timeout_seconds + sink.limit / LEAST_BYTES_A_SECOND
    received = 0
    while True:
        worker.join(max(0.0, min(timeout_seconds, until - time.monotonic())))
        if not worker.is_alive():
            return
        if sink.received == received or time.monotonic() >= until:
            sink.is_abandoned = True
            if not sink.has_answer:
                raise Unreachable(f"the server cannot be reached (no answer for {timeout_seconds:g} seconds)")
            if sink.received == received:
                raise Refused(f"too slow: fewer than {_CHUNK_BYTES} bytes in {timeout_seconds:g} seconds")
            raise Refused(f"too slow: {sink.received} bytes at fewer than {LEAST_BYTES_A_SECOND} a second")
        received = sink.received


def _reason(error: Exception, timeout_seconds: float) -> Exception:
    """Return what an attempt's error means: another attempt, another source, or an error of the disk as it is."""
    if isinstance(error, requests.HTTPError):
        status = error.response.status_code
        return (_Transient if status in _TRANSIENT_STATUS else Refused)(f"HTTP {status}")
    if isinstance(error, requests.ConnectTimeout):
        return Unreachable("the server cannot be reached (timeout)")
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return _Transient("the transfer broke off")
    if isinstance(error, requests.Timeout) or (
        isinstance(error, requests.ConnectionError) and "timed out" in str(error)
    ):
        return Refused(f"no byte for {timeout_seconds:g} seconds")
    if isinstance(error, requests.ConnectionError):
        return Unreachable(_cause(error))
    if isinstance(error, requests.RequestException | ValueError):
        return Refused(f"unusable answer: {_one_line(error)}")
    return error


def _cause(error: requests.ConnectionError) -> str:
    """Return why a server could not be reached, in a few words: the operating system's, where it has some."""
    words = re.search(r"\[Errno -?\d+\] ([^)'\"]+)", str(error))
    return f"the server cannot be reached ({words[1] if words else _one_line(error)})"


def _one_line(error: Exception) -> str:
    """Return an error's text on one line, cut where it is long."""
    return " ".join(str(error).split())[:160]
