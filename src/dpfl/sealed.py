"""Bytes that know whether they are whole: content behind its own SHA-256."""

from __future__ import annotations

import hashlib

_KIND = b"dpfl sealed 1"


def seal(content: bytes) -> bytes:
    """Return `content` behind a line that names the format and one with its SHA-256."""
    return b"\n".join((_KIND, hashlib.sha256(content).hexdigest().encode(), content))


def unseal(sealed: bytes) -> bytes | None:
    """Return the content of what `seal` returned, or None where a byte of it is not as it was."""
    kind, _, rest = sealed.partition(b"\n")
    checksum, _, content = rest.partition(b"\n")
    whole = kind == _KIND and hashlib.sha256(content).hexdigest().encode() == checksum
    return content if whole else None
