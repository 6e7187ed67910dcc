"""Describe what a stage runs on: packages compared with the lock file, processor, BLAS, threads, container."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion
from threadpoolctl import threadpool_info

from dpfl import __version__, gpu

LOCK = Path(__file__).parents[3] / "requirements.lock"
CONTAINER = "DPFL_CONTAINER"
"""Environment variable that names the container image, with its digest: image@sha256:..."""
DECIDING = (
    "numpy", "scipy", "pandas", "matplotlib", "torch", "opacus", "dp-accounting", "scikit-learn", "snakemake",
)  # fmt: skip
"""Packages whose versions decide numbers, pages or the crate."""
SAME_NUMBERS = {
    "numpy": ">=2,<3", "scipy": ">=1.14,<2", "torch": ">=2.6,<3", "scikit-learn": ">=1.4,<2", "opacus": "==1.6.0",
    "dp-accounting": "==0.6.0",
}  # fmt: skip
"""Versions whose runs count as the same: within them numbers differ by rounding at most. Runs of others train anew."""

_UNLOCKED = {"dpfl", "pip", "setuptools", "wheel"}
"""Packages that an environment has without being named by the lock file."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;#]+)", re.MULTILINE)


def software() -> dict[str, Any]:
    """Return the versions that decide numbers, and how the environment differs from the lock file.

    `lock`: SHA-256 of requirements.lock, None where dpfl runs without it. `not_as_locked`: packages of another version
    than the lock file's, with theirs; empty where the environment is the lock's. `container`: digest of the image.
    """
    named = _DIGEST.search(os.environ.get(CONTAINER, ""))
    return {
        "python": platform.python_version(),
        "dpfl": __version__,
        **{name: metadata.version(name) for name in DECIDING},
        "lock": hashlib.sha256(LOCK.read_bytes()).hexdigest() if LOCK.exists() else None,
        "not_as_locked": _not_as_locked(),
        "container": named[0] if named else None,
    }


def gives_these_numbers(recorded: Mapping[str, Any]) -> bool:
    """Return whether a run with the versions of a record's `software` need not be trained again: each is of
    SAME_NUMBERS, or is installed here."""
    return all(
        _is_within(str(recorded.get(name)), versions) or recorded.get(name) == metadata.version(name)
        for name, versions in SAME_NUMBERS.items()
    )


def _is_within(version: str, versions: str) -> bool:
    """Return whether a version is one of a specification's; a text that is no version is not."""
    try:
        return SpecifierSet(versions).contains(version.partition("+")[0], prereleases=True)
    except InvalidVersion:
        return False


def host(device: str, threads: int) -> dict[str, Any]:
    """Return device and threads of a stage, system, processor, and the threads in force: those of every linear algebra
    library that is loaded (`blas`), of torch where it is loaded, and OMP_NUM_THREADS; of a GPU what decides its bits.
    Neither user nor host name."""
    libraries = [each for each in threadpool_info() if each["user_api"] == "blas"]
    torch = sys.modules.get("torch")
    return {
        "device": device,
        "threads": threads,
        "system": sys.platform,
        "cpu": _processor(),
        "blas": sorted({f"{each['internal_api']} {each['version']} x {each['num_threads']}" for each in libraries}),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "torch_threads": torch.get_num_threads() if torch else None,
        **(gpu.facts() if device == "cuda" else {}),
    }


def locked_versions(lock: str) -> dict[str, str]:
    """Return the version of every package that the text of a lock file pins, by its normalised name."""
    return {_normal(name): version for name, version in _PINNED.findall(lock)}


def is_locked(version: str, pinned: str) -> bool:
    """Return whether an installed version is the pinned one; a build's label (2.13.0+cpu) does not count."""
    return version.partition("+")[0] == pinned.partition("+")[0]


@cache
def _not_as_locked() -> dict[str, str]:
    """Return the packages that differ from the lock file: their version here, or "not installed"."""
    if not LOCK.exists():
        return {}
    pinned = locked_versions(LOCK.read_text(encoding="utf-8"))
    here = {_normal(each.metadata["Name"]): each.version for each in metadata.distributions()}
    other = {
        name: version
        for name, version in here.items()
        if name not in _UNLOCKED and not (name in pinned and is_locked(version, pinned[name]))
    }
    return dict(sorted((other | dict.fromkeys(set(pinned) - set(here), "not installed")).items()))


def _normal(name: str) -> str:
    """Return a package's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _processor() -> str:
    """Return the model of the processor, as far as the system tells it."""
    table = Path("/proc/cpuinfo")
    text = table.read_text(encoding="utf-8", errors="replace") if table.exists() else ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return model[1].strip() if model else platform.processor() or platform.machine()
