"""Verify bytes: decompress content as it streams, count and hash it, and keep it only where it is the wanted one."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from dpfl.data.datasets import Source
from dpfl.files import replacing
from dpfl.progress import ProgressCallback

_CHUNK_BYTES = 1 << 20
_GZIP_MAGIC, _XZ_MAGIC = b"\x1f\x8b", b"\xfd7zXZ\x00"


class Refused(Exception):
    """A source that cannot be used; the message is the reason in a few words."""


def holds(path: Path, size: int, sha256: str) -> bool:
    """Return whether `path` is a file of `size` bytes with that SHA-256. Raises OSError where it cannot be read."""
    if not path.is_file() or path.stat().st_size != size:
        return False
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == sha256


def decompressed(stream: BinaryIO) -> BinaryIO:
    """Return a seekable `stream` as its content: gzip and xz are known by their first bytes, not by name."""
    head = stream.read(len(_XZ_MAGIC))
    stream.seek(0)
    if head.startswith(_GZIP_MAGIC):
        return cast(BinaryIO, gzip.GzipFile(fileobj=stream))
    if head == _XZ_MAGIC:
        return cast(BinaryIO, lzma.LZMAFile(stream))
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
