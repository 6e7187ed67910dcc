"""The mirror: a folder or an address that is tried before the datasets' own servers."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from dpfl.errors import InputError


def configured(setting: str | None) -> Path | str | None:
    """Return the mirror that `setting` (data.mirror), or else the environment's DPFL_MIRROR, names; None without one.

    A folder comes back as a path, an http(s) address as text without a slash at its end.
    Raises InputError where it is neither, or where the folder does not exist.
    """
    named = setting or os.environ.get("DPFL_MIRROR")
    if not named:
        return None
    parts = urlsplit(named)
    if parts.scheme in ("http", "https"):
        return named.rstrip("/")
    if "://" in named and parts.scheme != "file":
        raise InputError(f"the mirror {named} must be a folder or an address with file://, http:// or https://")
    folder = Path(url2pathname(parts.path) if parts.scheme == "file" else named).expanduser()
    if not folder.is_dir():
        raise InputError(f"the mirror {named} is not a folder; mend data.mirror in config.yaml, or DPFL_MIRROR")
    return folder
