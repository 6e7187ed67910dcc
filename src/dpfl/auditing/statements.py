"""Run tables against the grid that asked for them, the noise that was calibrated, and other accountants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dpfl.accounting.relations import Neighbouring, Sampling
from dpfl.auditing import spent
from dpfl.provenance.audit import Audit, Finding
from dpfl.provenance.cells import Row, identity, read_rows, same
from dpfl.provenance.record_file import record_path
from dpfl.sweeps import Sweep

PRIVACY = "privacy_"
_CHOSEN_LATER = f"{PRIVACY}clip_norm"
_SUBSAMPLED = "subsampled Gaussian"
_PER_CLIENT = "subsampled Gaussian, per client"
_GAUSSIANS = ("Gaussian", "Gaussian, per client")
_MOVES = {Neighbouring.ADD_OR_REMOVE: 1.0, Neighbouring.ZERO_OUT: 1.0, Neighbouring.REPLACE_ONE: 2.0}


@dataclass(frozen=True)
class Statement:
    """What of a run's privacy statement decides its epsilon."""

    mechanism: str
    sampling: str
    neighbouring: str
    records: int
    sample_rate: float
    noise_multiplier: float
    steps: int
    delta: float
    epsilon_rdp: float
    epsilon_pld: float
    clipping: str
    batch_size: int

    @classmethod
    def of(cls, run: Row) -> Statement:
        """Return the statement of a row of a run table."""
        rate, records = float(run[f"{PRIVACY}sample_rate"]), int(float(run[f"{PRIVACY}records"]))
        local = run[f"{PRIVACY}mechanism"] == _PER_CLIENT and run.get("algorithm") == "local"
        return cls(
            *(run[f"{PRIVACY}{name}"] for name in ("mechanism", "sampling", "neighbouring")),
            records,
            rate,
            float(run[f"{PRIVACY}noise_multiplier"]),
            int(float(run[f"{PRIVACY}steps"])),
            *(float(run[f"{PRIVACY}{name}"]) for name in ("delta", "epsilon_rdp", "epsilon_pld")),
            run.get("clipping", ""),
            1 if local else int(float(run.get("batch_size") or round(rate * records))),
        )


def check_runs(seen: Audit, root: Path, scale: str, sweeps: list[Sweep]) -> None:
    """Check every run table of the sweeps that is there, and the epsilons of all their statements."""
    missing = []
    known: dict[Statement, Path] = {}
    for sweep in sweeps:
        path = root / "results" / scale / "runs" / sweep.paper / f"{sweep.name}.csv"
        if not path.exists():
            missing.append(f"{sweep.paper}/{sweep.name}")
            continue
        runs = read_rows(path)
        seen.count("runs", len(runs))
        noise = _noise(root / "results" / scale / "accounting" / f"{sweep.paper}.csv", sweep.family)
        for problem in [*against_grid(runs, sweep), *against_noise(runs, noise)]:
            seen.findings.append(Finding(str(path.relative_to(root)), problem, (path, record_path(path))))
        for run in runs:
            if f"{PRIVACY}mechanism" in run:
                known.setdefault(Statement.of(run), path)
    if missing:
        seen.notes.append(f"not trained here, so not checked: {len(missing)} sweeps of the grid, as {missing[0]}")
    _check_epsilons(seen, root, known)


def against_grid(runs: list[Row], sweep: Sweep) -> list[str]:
    """Return what the run table lacks of the cells and seeds that its sweep asks for."""
    if not runs or "seed" not in runs[0]:
        return ["has no runs"]
    problems = []
    by_seed = {str(seed): [run for run in runs if run["seed"] == str(seed)] for seed in sweep.seeds}
    if lost := [seed for seed, own in by_seed.items() if not own]:
        problems.append(f"has no run of seed {', '.join(lost)}, which the grid asks for")
    if len({len(own) for own in by_seed.values() if own}) > 1:
        problems.append("has more runs of one seed than of another")
    for cell in sweep.cells:
        wanted = {name: str(value) for name, value in cell.items() if name in runs[0] and _is_plain(value)}
        if not any(all(same(run[name], value) for name, value in wanted.items()) for run in runs):
            problems.append(f"has no run of {', '.join(f'{name}={value}' for name, value in wanted.items())}")
    return problems


def against_noise(runs: list[Row], noise: list[Row]) -> list[str]:
    """Return where the noise or the statement of a run is not the calibration's."""
    problems = {}
    for run in runs:
        rows = [row for row in noise if all(same(run[name], row[name]) for name in _keys(run, row))]
        if not rows:
            problems["a run has no row in the noise calibration"] = None
        for name in set(run) & set(rows[0]) if rows else ():
            stated = name.startswith(PRIVACY) or name == "noise_multiplier"
            if stated and name != _CHOSEN_LATER and not same(run[name], rows[0][name]):
                problems[f"{name} of seed {run.get('seed')} is {run[name]}, calibrated was {rows[0][name]}"] = None
    return list(problems)


def interval(stated: Statement, which: str) -> spent.Interval | None:
    """Return where another accountant puts `which` epsilon ("rdp" or "pld") of a statement; None where it has no word.

    Statements without noise have to say that epsilon is infinite.
    """
    if stated.noise_multiplier == 0:
        return spent.Interval(math.inf, math.inf, "no noise, no guarantee")
    run = {"noise_multiplier": stated.noise_multiplier, "steps": stated.steps, "delta": stated.delta}
    poisson = stated.sampling in (Sampling.POISSON, Sampling.SHUFFLED)
    if stated.mechanism == _SUBSAMPLED and poisson and stated.neighbouring != Neighbouring.REPLACE_ONE:
        rate = {"sample_rate": stated.sample_rate}
        return spent.poisson_rdp(**run, **rate) if which == "rdp" else spent.poisson_pld(**run, **rate)
    if which == "rdp":
        return None
    if stated.mechanism in _GAUSSIANS and stated.sampling == Sampling.FULL:
        return spent.gaussian(**run, move=_MOVES[Neighbouring(stated.neighbouring)])
    if stated.mechanism == _PER_CLIENT:
        whole = stated.batch_size >= stated.records and stated.sampling == Sampling.FIXED
        if whole or stated.sampling == Sampling.FULL:
            return spent.gaussian(**run, move=2.0)
        turned = stated.clipping == "mean" and stated.batch_size > 1
        how = "clipped_mean" if turned else stated.sampling
        return spent.sampled_replacement(**run, batch_size=stated.batch_size, records=stated.records, replaced=how)
    return None


def _check_epsilons(seen: Audit, root: Path, known: Mapping[Statement, Path]) -> None:
    """Compare every epsilon that is stated with another accountant's; say of which mechanisms there is none."""
    unknown: dict[str, int] = {}
    for stated, path in known.items():
        answered = False
        for which, epsilon in (("rdp", stated.epsilon_rdp), ("pld", stated.epsilon_pld)):
            if math.isnan(epsilon):
                continue
            between = interval(stated, which)
            if between is None:
                continue
            answered = True
            seen.count("epsilons")
            if not between.holds(epsilon):
                problem = (
                    f"states epsilon_{which} {epsilon:.6g} for noise multiplier {stated.noise_multiplier:.6g}; "
                    f"{between.accountant} gives {between.least:.6g} to {between.most:.6g}"
                )
                place = str(path.relative_to(root))
                seen.findings.append(Finding(place, problem, (path, record_path(path))))
        if not answered:
            unknown[stated.mechanism] = unknown.get(stated.mechanism, 0) + 1
    for mechanism, count in unknown.items():
        seen.notes.append(f"no second accountant here for {count} statements of mechanism '{mechanism}'")


def _keys(run: Row, row: Row) -> set[str]:
    """Return the columns by which a run and its calibration know each other."""
    known = set(identity(run)) & set(row) - {"noise_multiplier", "seed"}
    return {name for name in known if row[name] not in ("", "nan") and not name.startswith(PRIVACY)}


@cache
def _noise(path: Path, family: str) -> list[Row]:
    """Return the rows of a family in a paper's noise calibration."""
    return [row for row in read_rows(path) if row["family"] == family] if path.exists() else []


def _is_plain(value: object) -> bool:
    """Return whether a cell's value is a number or a text, not a list."""
    return isinstance(value, str | int | float)
