"""Fetch a file from the first source that has it: verified and complete, or not there at all.

Downloads go by pooch, with limits that pooch lacks: on size, on the rate and on the time of a transfer. Bytes are
decompressed as they stream, counted and hashed, and kept only if they are the wanted ones.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import lzma
import os
import re
import stat
import tarfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pooch
import requests
from filelock import FileLock

from dpfl.data import datasets
from dpfl.errors import InputError
from dpfl.files import file_sha256, replacing

if TYPE_CHECKING:
    from dpfl.data.datasets import Archive, Dataset, Source
    from dpfl.progress import ProgressCallback

_CHUNK_BYTES = 1 << 20
_GZIP_MAGIC, _XZ_MAGIC = b"\x1f\x8b", b"\xfd7zXZ\x00"


class Refused(Exception):
    """A source that cannot be used; the message is the reason in a few words."""


def holds(path: Path, size: int, sha256: str) -> bool:
    """Return whether `path` is a file of `size` bytes with that SHA-256. Raises OSError where it cannot be read."""
    return path.is_file() and path.stat().st_size == size and file_sha256(path) == sha256


def decompressed(stream: BinaryIO) -> BinaryIO:
    """Return a seekable `stream` as its content: gzip and xz are known by their first bytes, not by name."""
    head = stream.read(len(_XZ_MAGIC))
    stream.seek(0)
    if head.startswith(_GZIP_MAGIC):
        return cast("BinaryIO", gzip.GzipFile(fileobj=stream))
    if head == _XZ_MAGIC:
        return cast("BinaryIO", lzma.LZMAFile(stream))
    return stream


def store(content: BinaryIO, wanted: Source, target: Path, progress: ProgressCallback) -> None:
    """Write `content` to `target`, complete and verified, or leave `target` as it was.

    Reading stops at the first byte beyond `wanted.bytes`, whatever a compressed stream would still unfold to.
    Raises Refused where the content is damaged or not the wanted one, InputError where it cannot be written.
    """
    digest, size = hashlib.sha256(), 0
    with replacing(target) as temporary, temporary.open("wb") as out:
        for chunk in chunks(content):
            size += len(chunk)
            if size > wanted.bytes:
                raise Refused(f"longer than the expected {wanted.bytes} bytes of sha256 {wanted.sha256}")
            digest.update(chunk)
            out.write(chunk)
            progress(size, wanted.bytes)
        if digest.hexdigest() != wanted.sha256:
            raise Refused(
                f"found sha256 {digest.hexdigest()} ({size} bytes), expected {wanted.sha256} ({wanted.bytes} bytes)"
            )


def chunks(content: BinaryIO) -> Iterator[bytes]:
    """Yield `content` piece by piece. Raises Refused where it is truncated, damaged or cannot be read."""
    while True:
        try:
            chunk = content.read(_CHUNK_BYTES)
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, tarfile.TarError) as error:
            raise Refused(f"damaged or truncated: {error}") from None
        except OSError as error:
            raise Refused(f"cannot be read: {error.strerror or error}") from None
        if not chunk:
            return
        yield chunk


LEAST_BYTES_A_SECOND = 50_000
"""Mean rate below which a transfer is given up: the largest archive, 170 MB, has an hour."""
_ATTEMPTS = 3
_PAUSE_SECONDS = 0.25
_CONNECT_SECONDS = 10.0
_DOWNLOADED_BYTES = 1 << 14
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
    is_abandoned: bool = False
    answers: list[requests.Response] = field(default_factory=list)

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

    def take_answer(self, response: requests.Response, **_: Any) -> None:
        """Keep an answer, and note the length that its header names."""
        self.answers.append(response)
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
            chunk_size=_DOWNLOADED_BYTES,
            headers={"Accept-Encoding": "identity"},
            timeout=(min(timeout_seconds, _CONNECT_SECONDS), timeout_seconds),
            hooks={"response": sink.take_answer},
        )

        def transfer() -> None:
            try:
                downloader(url, sink, None)
            except (OSError, ValueError, Refused) as error:  # the errors of requests are OSErrors
                errors.append(error)
            finally:  # pooch leaves the connection of a transfer that breaks off open
                for answer in sink.answers:
                    answer.close()

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
            if not sink.answers:
                raise Unreachable(f"the server cannot be reached (no answer for {timeout_seconds:g} seconds)")
            if sink.received == received:
                raise Refused(f"too slow: fewer than {_DOWNLOADED_BYTES} bytes in {timeout_seconds:g} seconds")
            raise Refused(f"too slow: {sink.received} bytes at fewer than {LEAST_BYTES_A_SECOND} a second")
        received = sink.received


def _reason(error: Exception, timeout_seconds: float) -> Exception:
    """Return what an attempt's error means: another attempt, another source, or an error of the disk as it is."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
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


_LOG = logging.getLogger(__name__)
_SUFFIXES = ("", ".gz", ".xz")


@dataclass(frozen=True)
class _Candidate:
    """One place that may hold a wanted file: a path, a URL of the file, or a URL of an archive that contains it."""

    wanted: Source
    place: Path | str
    archive: Archive | None = None


@dataclass(frozen=True)
class _Job:
    """Settings that every attempt of one fetch shares."""

    raw_folder: Path
    timeout_seconds: float
    progress: ProgressCallback

    @property
    def downloads(self) -> Path:
        return self.raw_folder / "downloads"


def _silent(done: int, total: int) -> None:
    """Report no progress."""


def fetch(
    dataset: str,
    file: str,
    raw_folder: Path,
    mirror: Path | str | None = None,
    timeout_seconds: float = 60.0,
    progress: ProgressCallback = _silent,
) -> Path:
    """Return the path of `file`, verified and decompressed, in the dataset's own `raw_folder`; fetch it if it is not.

    Tried in this order: what is already there; `mirror` (as dpfl.data.fetch.configured gives it) at
    <mirror>/<dataset's folder>/<file>, plain, .gz or .xz; there again an accepted variant of the file, under its own
    name; then the table's addresses. The name of the path that is returned tells which one it was.
    `timeout_seconds` bounds how long a server may send next to nothing (dpfl.data.fetch); `progress(done, total)`
    counts bytes of the step in hand.

    Raises InputError, one line, where the names are wrong, where nothing can be written, or where
    every source failed: then with each source and its reason.
    """
    entry = datasets.load(dataset)
    wanted = entry.accepted(file)
    raw_folder = Path(raw_folder)
    try:
        present = _present(wanted, raw_folder)
        if present:
            return present
        candidates = [*_mirrored(entry, wanted, mirror), *_published(wanted)]
        raw_folder.mkdir(parents=True, exist_ok=True)
        with FileLock(raw_folder / ".lock"):  # one fetch of a dataset at a time: its files may share an archive
            return _present(wanted, raw_folder) or _first(candidates, _Job(raw_folder, timeout_seconds, progress))
    except Refused as error:
        raise InputError(
            f"cannot fetch {file} of {dataset}: {error}. Set data.mirror in the configuration, or "
            f"DPFL_MIRROR, to a folder or URL that holds {entry.mirror_folder}/{file} (plain, .gz or .xz)"
        ) from None
    except OSError as error:
        raise InputError(f"cannot write {file} of {dataset} in {raw_folder}: {error.strerror or error}") from None


def _present(wanted: tuple[Source, ...], raw_folder: Path) -> Path | None:
    """Return the path of the first accepted file that is already there and verified, if any."""
    found = (raw_folder / row.file for row in wanted if holds(raw_folder / row.file, row.bytes, row.sha256))
    return next(found, None)


def _first(candidates: list[_Candidate], job: _Job) -> Path:
    """Return the path of the first candidate that gives the wanted bytes. Raises Refused with every reason."""
    reasons, silent_hosts = [], set()
    for candidate in candidates:
        host = "" if isinstance(candidate.place, Path) else urlsplit(candidate.place).netloc
        if host in silent_hosts:
            continue
        try:
            return _obtain(candidate, job)
        except Refused as reason:
            _LOG.info("%s: %s", candidate.place, reason)
            reasons.append(f"{candidate.place}: {reason}")
            if isinstance(reason, Unreachable):
                silent_hosts.add(host)
    raise Refused("; ".join(reasons) or "no source is known")


def _mirrored(entry: Dataset, wanted: tuple[Source, ...], mirror: Path | str | None) -> Iterator[_Candidate]:
    """Yield the mirror's candidates."""
    for row in wanted if mirror is not None else ():
        if isinstance(mirror, Path):
            places = [mirror / entry.mirror_folder / f"{row.file}{suffix}" for suffix in _SUFFIXES]
            yield from (_Candidate(row, place) for place in [p for p in places if os.path.lexists(p)] or places[:1])
        else:
            names = (f"{row.file}{suffix}" for suffix in _SUFFIXES)
            yield from (_Candidate(row, f"{mirror}/{entry.mirror_folder}/{name}") for name in names)


def _published(wanted: tuple[Source, ...]) -> Iterator[_Candidate]:
    """Yield the candidates that the dataset's entry names."""
    for row in wanted:
        yield from (_Candidate(row, url, row.archive) for url in row.urls)


def _obtain(candidate: _Candidate, job: _Job) -> Path:
    """Store the candidate's file and return its path. Raises Refused, leaving nothing that looks finished."""
    wanted, place = candidate.wanted, candidate.place
    target = job.raw_folder / wanted.file

    def keep(path: Path) -> None:
        with _opened(path) as content:
            store(content, wanted, target, job.progress)

    if isinstance(place, Path):
        keep(place)
    elif candidate.archive:
        with _member(_archive(place, candidate.archive, job), wanted.member) as content:
            store(content, wanted, target, job.progress)
    else:
        # Compression may lengthen what it cannot shorten, though by far less than this.
        _download(place, wanted.bytes + wanted.bytes // 50 + 4096, keep, job)
    return target


def _download(url: str, limit: int, keep: Callable[[Path], None], job: _Job) -> None:
    """Download `url` to a partial file, hand it to `keep` and delete it, whatever comes of it."""
    partial = job.downloads / f"{Path(urlsplit(url).path).name}.partial"
    partial.parent.mkdir(exist_ok=True)
    try:
        download(url, partial, limit, job.timeout_seconds, job.progress)
        keep(partial)
    finally:
        partial.unlink(missing_ok=True)


def _archive(url: str, wanted: Archive, job: _Job) -> Path:
    """Return the path of the verified archive at `url`; it is downloaded once for all of its members."""
    archive = job.downloads / Path(urlsplit(url).path).name

    def keep(partial: Path) -> None:
        if not holds(partial, wanted.bytes, wanted.sha256):
            raise Refused(f"found sha256 {file_sha256(partial)} for the archive, expected {wanted.sha256}")
        os.replace(partial, archive)

    if not holds(archive, wanted.bytes, wanted.sha256):
        _download(url, wanted.bytes, keep, job)
    return archive


@contextmanager
def _member(archive: Path, name: str) -> Iterator[BinaryIO]:
    """Yield the content of the one member of that exact name; nothing else is unpacked, no other path is written.

    Raises Refused where the archive has no such member, or is none that can be read.
    """
    with ExitStack() as opened:
        try:
            tar = opened.enter_context(tarfile.open(archive, "r|*"))
            content = next((tar.extractfile(entry) for entry in tar if entry.name == name and entry.isreg()), None)
        except (tarfile.TarError, EOFError, OSError, ValueError, TypeError, zlib.error, lzma.LZMAError) as error:
            raise Refused(f"the archive is damaged: {error}") from None
        if content is None:
            raise Refused(f"the archive holds no {name}")
        yield cast("BinaryIO", content)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Yield the decompressed content of the file at `path`. Raises Refused where it is none that can be read."""
    with ExitStack() as opened:
        try:
            # A FIFO without a writer would make a plain open wait for one.
            stream = opened.enter_context(
                open(path, "rb", opener=lambda name, mode: os.open(name, mode | os.O_NONBLOCK))
            )
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise Refused("not a regular file")
            content = decompressed(stream)
        except FileNotFoundError:
            raise Refused("not there (nor with .gz or .xz)") from None
        except OSError as error:
            raise Refused(f"cannot be read: {error.strerror or error}") from None
        yield content


def configured(setting: str | None) -> Path | str | None:
    """Return the mirror that `setting` (data.mirror), or else the environment's DPFL_MIRROR, names; None without one.

    A folder comes back as a path, an http(s) address as text without a slash at its end.
    Raises InputError where it is neither, or where the folder does not exist.
    """
    named = setting or os.environ.get("DPFL_MIRROR")
    if not named:
        return None
    try:
        parts = urlsplit(named)
        _ = parts.port  # raises for what is no port
    except ValueError as error:
        raise InputError(f"the mirror {named} is not an address: {error}") from None
    if parts.scheme in ("http", "https") and parts.hostname:
        return named.rstrip("/")
    if "://" in named and parts.scheme != "file":
        raise InputError(f"the mirror {named} must be a folder or an address with file://, http:// or https://")
    folder = Path(url2pathname(parts.path) if parts.scheme == "file" else named).expanduser()
    if not folder.is_dir():
        raise InputError(f"the mirror {named} is not a folder; fix data.mirror in the configuration, or DPFL_MIRROR")
    return folder
