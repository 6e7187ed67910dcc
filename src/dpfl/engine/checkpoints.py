"""Checkpoints of training: whole or absent, and read back only by the run that wrote them."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any

import torch

from dpfl.files import replacing
from dpfl.sealed import seal, unseal

_log = logging.getLogger(__name__)


def save(path: Path, state: dict[str, Any], digest: str) -> None:
    """Write `state` (tensors, numbers, texts, lists and dicts of them) so that `path` is never half-written.

    `digest` is a text without line breaks that names everything that decides the run's numbers.
    Raises InputError where the file cannot be written.
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = digest.encode() + b"\n" + buffer.getvalue()
    with replacing(path) as temporary:
        temporary.write_bytes(seal(content))


def load(path: Path, digest: str) -> dict[str, Any] | None:
    """Return the state saved at `path`, tensors on the CPU, or None where there is none that may be used.

    Not used, and a warning says why: a file that is damaged (its SHA-256 does not match) and one that carries another
    digest. Nothing but plain data is ever unpickled.
    """
    if not path.exists():
        return None
    content = unseal(path.read_bytes())
    if content is None:
        _log.warning("%s: the checkpoint is damaged and is not used; training starts afresh", path)
        return None
    written, _, payload = content.partition(b"\n")
    if written.decode() != digest:
        _log.warning("%s: the checkpoint belongs to other settings and is not used; training starts afresh", path)
        return None
    return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
