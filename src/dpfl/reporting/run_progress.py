"""Verdicts from a part of the runs: what is decided already, and what the runs that are missing may still change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpfl.errors import InputError
from dpfl.grid import configuration, expansion
from dpfl.grid.sweep import Sweep
from dpfl.reporting.results import Results
from dpfl.reporting.rules import Judgement, Rule, Scope, Verdict

_FINAL = {(Scope.FOR_ALL, Verdict.REFUTED), (Scope.EXISTS, Verdict.AS_STATED)}
"""What one case decides: a counterexample to a claim for all, an example of what is claimed to exist."""


def as_far_as_run(
    judgement: Judgement, rule: Rule, paper: str, claim: Mapping[str, Any], results: Results
) -> Judgement:
    """Return a judgement as it is where all runs that decide the claim (its key `runs`) are there, else what is sure.

    A verdict that more runs cannot change stays; any other is undecided until they are there. The reason says how many
    sweeps are missing. Results without a config.yaml have no grid to compare with.
    """
    needed = [sweep for sweep in _sweeps(results.folder, paper) if decides(sweep, claim.get("runs"))]
    missing = sum(not expansion.run_table(results.folder, paper, sweep.name).is_file() for sweep in needed)
    if not missing:
        return judgement
    reason = f"{missing} of the {len(needed)} sweeps that decide it {'was' if missing == 1 else 'were'} not run."
    if missing == len(needed):
        reason = f"None of the {missing} sweeps that decide it was run." if missing > 1 else "Its sweep was not run."
    if judgement.verdict in (Verdict.NOT_RUN, Verdict.UNDECIDED) or (rule.scope, judgement.verdict) in _FINAL:
        return replace(judgement, reason=f"{judgement.reason} {reason}")
    return replace(
        judgement, verdict=Verdict.UNDECIDED, reason=f"So far {judgement.verdict}. {judgement.reason} {reason}"
    )


def decides(sweep: Sweep, runs: Mapping[str, list[Any]] | None) -> bool:
    """Return whether a sweep is among the `runs` of a claim: one of its cells has one of the values listed, of each.

    A name is that of a setting of the sweep or of its cells; one that there is not is "none". No sweep decides a claim
    without the key.
    """
    known = {**sweep.settings, "experiment": sweep.experiment}
    return runs is not None and any(
        all(_or_none({**known, **cell}.get(name)) in values for name, values in runs.items()) for cell in sweep.cells
    )


def _or_none(value: object) -> object:
    """Return the value of a setting; "none" where there is none."""
    return "none" if value is None else value


def require_sweeps(paper: str, claims: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise InputError where a value of the `runs` of a claim is that of no sweep at any scale: a slip of the pen.

    It would pass for a claim that fewer runs decide, or none, and that needs no more to be there.
    """
    if not any("runs" in claim for claim in claims.values()):
        return
    scales = configuration.schema()["properties"]["scale"]["enum"]
    grids = [configuration.resolve({"scale": scale, "papers": [paper]}) for scale in scales]
    sweeps = [sweep for grid in grids for sweep in expansion.expand(grid)]
    for name, claim in claims.items():
        named = [(key, value) for key, values in claim.get("runs", {}).items() for value in values or [None]]
        for key, value in named:
            if not any(decides(sweep, {**claim["runs"], key: [value]}) for sweep in sweeps):
                raise InputError(
                    f"{paper}/claims.yaml: {name}: runs names {key} {value}, which no sweep of any scale has"
                )


def _sweeps(folder: Path, paper: str) -> list[Sweep]:
    """Return the sweeps of a paper in the configuration of results/<scale>; none where there is no configuration."""
    path = folder / "config.yaml"
    return list(_expanded(path, path.stat().st_mtime_ns, paper)) if path.is_file() else []


@lru_cache(maxsize=8)
def _expanded(path: Path, _time: int, paper: str) -> tuple[Sweep, ...]:
    """Return the sweeps of a paper in a configuration, expanded once."""
    return tuple(sweep for sweep in expansion.expand(configuration.read(path)) if sweep.paper == paper)
