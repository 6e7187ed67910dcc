"""Downloads over HTTP that resume: an interrupted transfer continues where its partial file ends."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pooch
import requests

from dpfl.data.verify import Refused
from dpfl.progress import ProgressCallback

_ATTEMPTS = 4
_PAUSE_SECONDS = 0.25
_CONNECT_SECONDS = 10.0
# A small chunk loses little where a transfer breaks off.
_CHUNK_BYTES = 1 << 16
_TRANSIENT_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_RANGE_NOT_SATISFIABLE = 416


class Unfinished(Refused):
    """A transfer that brought nothing wrong, only not everything: the partial file may still be completed."""


class Unreachable(Unfinished):
    """A server that did not answer: nothing else on it is worth trying."""


@dataclass
class _Sink:
    """The partial file as pooch writes to it: bounded in size, reporting progress, restarting where a server must."""

    out: BinaryIO
    limit: int
    progress: ProgressCallback
    expected: int

    def write(self, data: bytes) -> None:
        if self.out.tell() + len(data) > self.limit:
            raise Refused(f"longer than {self.limit} bytes, which the file cannot be")
        self.out.write(data)
        self.progress(self.out.tell(), self.expected)

    def flush(self) -> None:
        self.out.flush()

    def answered(self, response: requests.Response, **_) -> None:
        """Take an answer's header: a server that knows no ranges sends the whole file, so the partial one goes."""
        if response.status_code == requests.codes.partial_content:
            if not response.headers.get("Content-Range", "").startswith(f"bytes {self.out.tell()}-"):
                raise Refused("answers with another range than the one asked for")
        elif response.status_code == requests.codes.ok:
            self.out.seek(0)
            self.out.truncate()
        else:
            return
        length = response.headers.get("Content-Length", "")
        self.expected = self.out.tell() + int(length) if length.isdecimal() else self.limit


def download(url: str, partial: Path, limit: int, timeout_seconds: float, progress: ProgressCallback) -> None:
    """Complete `partial` with the bytes at `url`, asking only for those that it lacks where the server allows.

    Server errors, broken transfers and stalls (no byte for `timeout_seconds`) are tried again a few times; what
    was received stays in `partial` for the next attempt or the next run. Nothing is verified here.
    Raises Unfinished (Unreachable where the server does not answer at all), Refused where what came is of no use,
    and OSError where `partial` cannot be written.
    """
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_SECONDS * 2**attempt)
        try:
            _transfer(url, partial, limit, timeout_seconds, progress)
            return
        except requests.HTTPError as error:
            status = error.response.status_code
            if status == _RANGE_NOT_SATISFIABLE and partial.stat().st_size > 0:
                return  # the partial file is already whole, or wrong: its hash will tell
            failure = Unfinished(f"HTTP {status}")
            if status not in _TRANSIENT_STATUS:
                raise failure from None
        except requests.ConnectTimeout:
            failure = Unreachable("the server cannot be reached (timeout)")
        except requests.Timeout:
            failure = Unfinished(f"no byte for {timeout_seconds:g} seconds")
        except requests.exceptions.ChunkedEncodingError:
            failure = Unfinished("the transfer broke off")
        except requests.ConnectionError as error:
            stalled = "timed out" in str(error)
            failure = Unfinished(f"no byte for {timeout_seconds:g} seconds") if stalled else Unreachable(_cause(error))
        except (requests.RequestException, ValueError) as error:
            raise Refused(f"unusable answer: {_one_line(error)}") from None
    raise failure


def _transfer(url: str, partial: Path, limit: int, timeout_seconds: float, progress: ProgressCallback) -> None:
    """Make one attempt: append to `partial` what it lacks."""
    partial.parent.mkdir(parents=True, exist_ok=True)
    with partial.open("ab") as out:
        offset = out.tell()
        sink = _Sink(out, limit, progress, limit)
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={offset}-"} if offset else {})
        pooch.HTTPDownloader(
            chunk_size=_CHUNK_BYTES,
            headers=headers,
            timeout=(min(timeout_seconds, _CONNECT_SECONDS), timeout_seconds),
            hooks={"response": sink.answered},
        )(url, sink, None)


def _cause(error: requests.ConnectionError) -> str:
    """Return why a server could not be reached, in a few words: the operating system's, where it has some."""
    said = re.search(r"\[Errno -?\d+\] ([^)'\"]+)", str(error))
    return f"the server cannot be reached ({said[1] if said else _one_line(error)})"


def _one_line(error: BaseException) -> str:
    """Return an error's text on one line, cut where it is long."""
    return " ".join(str(error).split())[:160]
