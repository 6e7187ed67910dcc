"""Read the words that a user passes on to Snakemake, with Snakemake's own parser, before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from dpfl.errors import InputError

_CORES = ("cores", "jobs", "local_cores")
OURS = ("config", "configfile", "profile", "snakefile", "directory")
"""Options that `dpfl run` gives to Snakemake or that say what it works on: a second one would do so for the engine
alone."""


@dataclass(frozen=True)
class EngineOptions:
    """Options of a run of Snakemake: `targets` that it is to make, whether it only shows what it would do, and the
    options among `OURS` that are given."""

    targets: frozenset[str]
    is_dry_run: bool
    ours: tuple[str, ...]


def engine_options(words: Sequence[str]) -> EngineOptions:
    """Return what `words` say, in every spelling that Snakemake takes: attached (-c0), joined (-np), cut (--core).

    Raises InputError, one line, for an option that Snakemake does not have, a value that it cannot read, and fewer
    cores or jobs than one, for which it would wait for ever.
    """
    from snakemake.cli import get_argument_parser
    from snakemake.exceptions import CliException

    parser = get_argument_parser()
    parser.error = _refuse  # it would print the usage of 150 options, and end the process
    try:
        known = parser.parse_args(list(words))
    except InputError:
        raise
    except (CliException, ValueError) as error:
        _refuse(str(error))
    for name in _CORES:
        number = getattr(known, name)
        if number is not None and number < 1:
            raise InputError(f"--{name.replace('_', '-')} must be at least 1, not {number}")
    usual = parser.parse_args([])  # what the environment says (SNAKEMAKE_PROFILE) was not said in words
    ours = tuple(f"--{name}" for name in OURS if getattr(known, name) != getattr(usual, name))
    return EngineOptions(frozenset(known.targets), known.dryrun or known.executor == "dryrun", ours)


def _refuse(reason: str) -> NoReturn:
    """Raise InputError with what Snakemake says about its options."""
    raise InputError(f"options for Snakemake cannot be used: {' '.join(reason.split())}") from None
