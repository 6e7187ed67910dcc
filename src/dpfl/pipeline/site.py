"""Read what differs between clusters: site.yaml of a profile, completed and checked. Profile and plan both ask here."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

from dpfl.commands import output_of
from dpfl.errors import InputError
from dpfl.grid.configuration import load_mapping

DEFAULTS: dict[str, Any] = {
    "slurm_account": None,
    "constraint": None,
    "qos": None,
    "slurm_extra": None,
    "partitions": {},
    "cores_per_node": 16,
    "memory_mb_per_node": 60000,
    "longest_minutes": None,
    "jobs": 100,
    "side_by_side": 4,
    "gpu_model": None,
    "gpu_gres": None,
    "gpu_partition": None,
    "status_command": "squeue",
    "seconds_between_status_checks": 20,
}
"""Keys of site.yaml; it says what each of them means."""

SUBMITTED_WITH = ("slurm_account", "constraint", "qos", "slurm_extra")
"""Keys that every job is submitted with, as resources of this name."""

_COUNTS = ("cores_per_node", "memory_mb_per_node", "jobs", "side_by_side", "seconds_between_status_checks")
_LONGEST_BETWEEN_CHECKS = 180  # what Snakemake's plug-in for SLURM waits at most
_FALLBACK_MINUTES = 1440
_TEXTS = {
    "slurm_account": (".+", "a text"),
    "constraint": (".+", "a text"),
    "qos": (".+", "a text"),
    "slurm_extra": (".+", "options of sbatch as one text"),
    # Patterns of the plug-in, which refuses others when it submits a job.
    "gpu_model": (r"(?=.*[A-Za-z])[A-Za-z0-9_.]+", "of letters, digits, _ and dots: the plug-in takes no others"),
    "gpu_gres": (r"[A-Za-z][A-Za-z0-9_]*(:[A-Za-z0-9_.]+)?(:\d+[TGM]?)?", "as shard:1 or gpu:a100:1"),
    "gpu_partition": (".+", "a text"),
    "status_command": ("squeue|sacct", "squeue or sacct"),
}
"""Of each key that is a text: its pattern, and what is right."""


def read(path: Path) -> dict[str, Any]:
    """Return a site's keys, those that it leaves out as in DEFAULTS, `side_by_side` at most the cores of a node.

    Without `longest_minutes` the longest time of a job is that of the largest of its partitions, else of SLURM's own
    default; 1440 where SLURM sets none or does not answer. `gpu` has the resources that the three keys make. Raises
    InputError for an unknown key, a count below 1, a text that Snakemake's plug-in refuses, and partitions that are not
    {name: {max_runtime: minutes, ...}}.
    """
    given = load_mapping(path)
    if unknown := [key for key in given if key not in DEFAULTS]:
        raise InputError(f"{path}: unknown key {unknown[0]}; the keys are {', '.join(DEFAULTS)}")
    site = {**DEFAULTS, **given}
    for key in (*_COUNTS, *(["longest_minutes"] if site["longest_minutes"] is not None else [])):
        site[key] = count(path, key, site[key])
    if site["seconds_between_status_checks"] > _LONGEST_BETWEEN_CHECKS:
        seconds = site["seconds_between_status_checks"]
        raise InputError(
            f"{path}: seconds_between_status_checks is {seconds}, which is above {_LONGEST_BETWEEN_CHECKS}"
        )
    for key in _TEXTS:
        site[key] = _text(path, key, site[key])
    _require_free_options(path, site["slurm_extra"])
    _require_partitions(path, site["partitions"])
    site["side_by_side"] = min(site["side_by_side"], site["cores_per_node"])
    site["gpu"] = _gpu_resources(path, site)
    if site["longest_minutes"] is None:
        site["longest_minutes"] = _longest_minutes(site["partitions"])
    return site


def count(path: Path, key: str, value: Any) -> int:
    """Return a count of a profile as a number; raises InputError if it is not a number of at least 1."""
    if not str(value).isdecimal() or int(value) < 1:
        raise InputError(f"{path}: {key} is {value!r}, should be a number of at least 1")
    return int(value)


def _text(path: Path, key: str, value: Any) -> str | None:
    """Return a text of site.yaml, None where it is null; raises InputError where it is none of its pattern."""
    if value is None and DEFAULTS[key] is None:
        return None
    pattern, right = _TEXTS[key]
    if type(value) not in (str, int) or not re.fullmatch(pattern, str(value)):
        raise InputError(f"{path}: {key} is {value!r}, should be {right}")
    return str(value)


def _plug_in() -> tuple[dict[str, str], list[str]]:
    """Return the options that Snakemake's plug-in for SLURM sets itself, and the limits of partitions that it knows."""
    try:
        from snakemake_executor_plugin_slurm.partitions import PartitionLimits
        from snakemake_executor_plugin_slurm.validation import get_forbidden_slurm_options
    except ModuleNotFoundError:
        raise InputError(
            "SLURM needs Snakemake's plug-in, which is missing: make env, or pip install '.[cluster]'"
        ) from None
    return get_forbidden_slurm_options(), [field.name for field in dataclasses.fields(PartitionLimits)]


def _require_free_options(path: Path, extra: str | None) -> None:
    """Raise InputError where further options are among those that Snakemake's plug-in sets itself, and so refuses."""
    if extra is None:
        return
    for pattern, name in _plug_in()[0].items():
        if found := re.search(pattern, extra):
            option = found[0].strip(" =")
            raise InputError(
                f"{path}: slurm_extra has {option} ({name}), which Snakemake sets: give it by a key of its own, if any"
            )


def _require_partitions(path: Path, partitions: Any) -> None:
    """Raise InputError where partitions are no mapping of names to limits that the plug-in knows, or a limit is no
    number."""
    if not isinstance(partitions, dict) or not all(isinstance(limits, dict) for limits in partitions.values()):
        raise InputError(f"{path}: partitions is {partitions!r}, should be as {{cpu: {{max_runtime: 1440}}}}")
    for name, limits in partitions.items():
        if not isinstance(name, str):
            raise InputError(f"{path}: partitions.{name} is a number, should be a text: '{name}'")
        for limit, value in limits.items():
            _require_limit(path, f"partitions.{name}.{limit}", limit, value)


def _require_limit(path: Path, key: str, limit: str, value: Any) -> None:
    """Raise InputError where a partition's limit is not known to the plug-in, or of another kind."""
    known = [*_plug_in()[1], "cluster", "clusters", "slurm_cluster"]
    if limit not in known:
        raise InputError(f"{path}: unknown key {key}; the keys are {', '.join(known)}")
    if limit.startswith("max_") and (type(value) is not int or value < (limit != "max_gpu")):
        raise InputError(f"{path}: {key} is {value!r}, should be a number{' of minutes' * (limit == 'max_runtime')}")


def _gpu_resources(path: Path, site: dict[str, Any]) -> dict[str, Any]:
    """Return what a job that needs a GPU asks for besides: a type, or another resource in place of an entire GPU.

    The plug-in takes a job with another resource for one without a GPU: its partition is named.
    """
    found = {"gpu_model": site["gpu_model"]} if site["gpu_model"] else {}
    partition = site["gpu_partition"]
    if site["gpu_gres"]:
        found |= {"gres": site["gpu_gres"], "gpu": 0}
        gpus = {name: limits.get("max_gpu", 0) for name, limits in site["partitions"].items()}
        if site["partitions"] and not partition:
            partition = max(gpus, key=gpus.__getitem__)
            if not gpus[partition]:
                raise InputError(f"{path}: gpu_gres needs gpu_partition, or a partition with max_gpu")
    return found | ({"slurm_partition": partition} if partition else {})


def _longest_minutes(partitions: dict[str, dict[str, Any]]) -> int:
    """Return the longest time of a job: the largest of these partitions, else of the default one, by sinfo."""
    if stated := [limits["max_runtime"] for limits in partitions.values() if "max_runtime" in limits]:
        return max(stated)
    from dpfl.pipeline.process_cleanup import parse_left

    answer = output_of("sinfo", "--noheader", "--format=%P %l") or b""
    rows = (line.split() for line in answer.decode(errors="replace").splitlines())
    limits = [parse_left(row[1]) for row in rows if len(row) == 2 and row[0].endswith("*")]
    return int(limits[0] // 60) or _FALLBACK_MINUTES if limits and limits[0] else _FALLBACK_MINUTES
