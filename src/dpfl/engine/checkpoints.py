"""Save and load checkpoints of training: complete or absent, and read back only by the run that wrote them."""

from __future__ import annotations

import io
import logging
import pickle
from pathlib import Path
from typing import Any

import torch

from dpfl.files import checked_content, replacing, with_checksum

_log = logging.getLogger(__name__)

# Errors of torch for a file with a valid checksum that another program wrote.
_NOT_PLAIN = (RuntimeError, pickle.UnpicklingError, ValueError, LookupError, EOFError, AttributeError, TypeError)


def save(path: Path, state: dict[str, Any], digest: str) -> None:
    """Write `state` (tensors, numbers, texts, lists and dicts of them) so that `path` is never half-written.

    `digest` is a text without line breaks that names everything that decides the run's numbers.
    Raises InputError where the file cannot be written.
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = digest.encode() + b"\n" + buffer.getvalue()
    with replacing(path) as temporary:
        temporary.write_bytes(with_checksum(content))


def load(path: Path, digest: str) -> dict[str, Any] | None:
    """Return the state saved at `path`, tensors on the CPU, or None if no state may be used.

    Not used, and a warning says why: a file that is damaged (its SHA-256 does not match), one that carries another
    digest, and one that contains other than plain data, of which nothing is unpickled.
    """
    if not path.exists():
        return None
    content = checked_content(path.read_bytes())
    if content is None:
        _log.warning("%s: the checkpoint is damaged and is not used; training starts afresh", path)
        return None
    written, _, payload = content.partition(b"\n")
    if written != digest.encode():
        _log.warning("%s: the checkpoint belongs to other settings and is not used; training starts afresh", path)
        return None
    try:
        return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except _NOT_PLAIN as error:
        reason = str(error).partition("\n")[0]
        _log.warning("%s: the checkpoint holds other than plain data and is not used: %s", path, reason)
        return None
