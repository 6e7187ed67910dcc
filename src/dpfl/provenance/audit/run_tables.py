"""Compare run tables with the grid, the calibrated noise, and other accountants."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dpfl.errors import InputError
from dpfl.files import is_regular, parse_json, record_path
from dpfl.grid.expansion import run_table
from dpfl.grid.sweep import Sweep
from dpfl.provenance.audit.findings import Audit, Finding, one_line
from dpfl.provenance.audit.run_noise import NoiseCheck, distinguishing
from dpfl.provenance.audit.second_accountant import PRIVACY, StatedPrivacy, interval
from dpfl.provenance.cell_trace import Row, number_in, read_rows, same, value_of

_BY_ROUND = "_by_round"
_UNREADABLE = (LookupError, ValueError, ArithmeticError, TypeError, AttributeError)
"""What a table raises that holds other texts than ours, whose hashes agree: each is a finding of the table."""
_NAMED = 3
"""Sweeps or families that a note names."""


def check_runs(
    report: Audit, root: Path, scale: str, sweeps: list[Sweep], *, all_seeds: bool = False
) -> dict[StatedPrivacy, Path]:
    """Check every existing run table of the sweeps; return their privacy statements, each once, with a table of it.

    Where noise was calibrated again since a run, the run must not state more than what is proven now; notes count these
    tables, and those that state more to be refuted.

    With `all_seeds` a family of sweeps that has begun must have every seed. Without, seeds may be missing after the
    last one, and before it where other families of the paper have not begun: a note names them, for deleting seeds and
    remaking all pages looks the same.
    """
    folder = root / "results" / scale
    noise = NoiseCheck(folder)
    missing: dict[Path, Sweep] = {}
    last: dict[tuple[str, str], int] = {}
    known: dict[StatedPrivacy, Path] = {}
    for sweep in sweeps:
        path = run_table(folder, sweep.paper, sweep.name)
        if not is_regular(path):
            missing[path] = sweep
            continue
        family = sweep.paper, sweep.family
        last[family] = max(last.get(family, 0), *sweep.seeds)
        problems: list[str] = []
        try:
            runs = read_rows(path)
            report.count("runs", len(runs))
            stated, problems = _stated(runs, sweep)
            known |= {each: path for each in stated if each not in known}
            problems += noise.problems(path, sweep, runs)
            problems = against_grid(runs, sweep) + against_itself(runs) + problems
        except InputError as error:
            problems.append(f"cannot be read: {error}")
        except _UNREADABLE as error:
            problems.append(f"holds what no run table of ours holds: {one_line(error)}")
        for problem in dict.fromkeys(problems):
            report.findings.append(Finding(str(path.relative_to(root)), problem, (path, record_path(path))))
    report.notes += noise.notes()
    _note_missing(report, root, missing, last, all_seeds)
    return known


def _stated(runs: list[Row], sweep: Sweep) -> tuple[dict[StatedPrivacy, None], list[str]]:
    """Return the different privacy statements of a table's runs, and what is wrong with those that cannot be read."""
    stated: dict[StatedPrivacy, None] = {}
    problems = []
    if not all(run.get(f"{PRIVACY}mechanism") for run in runs):
        problems.append("has runs that do not state their privacy")
    for run in (each for each in runs if f"{PRIVACY}mechanism" in each):
        try:
            stated[StatedPrivacy.of(run, sweep.settings)] = None
        except _UNREADABLE as error:
            problems.append(f"has a privacy statement that cannot be read: {one_line(error)}")
    return stated, problems


def _note_missing(
    report: Audit, root: Path, missing: dict[Path, Sweep], last: dict[tuple[str, str], int], all_seeds: bool
) -> None:
    """Find run tables that are gone though later seeds of their cells exist; note the families that lack seeds.

    `last`: the last seed of every family that has begun. Where a paper has families that have not, its grid is not
    finished: seeds that are missing in between are a note. Those families are counted by completeness.
    """
    begun = {path: sweep for path, sweep in missing.items() if (sweep.paper, sweep.family) in last}
    unfinished = {sweep.paper for path, sweep in missing.items() if path not in begun}
    between, after = [], {}
    for path, sweep in begun.items():
        family = sweep.paper, sweep.family
        is_between = min(sweep.seeds) < last[family]
        if all_seeds or (is_between and sweep.paper not in unfinished):
            problem = "is missing, but the same cells with other seeds are there"
            report.findings.append(Finding(str(path.relative_to(root)), problem))
        elif is_between:
            between.append(f"{sweep.paper}/{sweep.name}")
        else:
            after[family] = f"{sweep.paper}/{sweep.family} after seed {last[family]}"
    if between:
        report.notes.append(f"not run, though later seeds of the same cells are, or deleted: {_some(between)}")
    if after:
        report.notes.append(f"begun here and not finished, or its last seeds deleted: {_some(list(after.values()))}")


def _some(names: list[str]) -> str:
    """Return the first of several names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def against_grid(runs: list[Row], sweep: Sweep) -> list[str]:
    """Return the cells and seeds of its sweep that the run table lacks."""
    if not runs or "seed" not in runs[0]:
        return ["has no runs"]
    problems = []
    by_seed = {str(seed): [run for run in runs if run["seed"] == str(seed)] for seed in sweep.seeds}
    if lost := [seed for seed, own in by_seed.items() if not own]:
        problems.append(f"has no run of seed {', '.join(lost)}, which the grid asks for")
    present: dict[tuple[str, ...], set[tuple[object, ...]]] = {}
    for cell in sweep.cells:
        wanted = {name: str(value) for name, value in cell.items() if name in runs[0] and _is_plain(value)}
        names = tuple(sorted(distinguishing(wanted)))
        if names not in present:
            present[names] = {tuple(value_of(run[name]) for name in names) for run in runs}
        if tuple(value_of(wanted[name]) for name in names) not in present[names]:
            problems.append(f"has no run of {', '.join(f'{name}={wanted[name]}' for name in names)}")
    uneven = [seed for seed, own in by_seed.items() if len(own) != len(sweep.cells)]
    if uneven and not problems:  # cells that differ in a list, or in what is not set, are known by their number alone
        problems.append(f"has {len(by_seed[uneven[0]])} runs of seed {uneven[0]}, should have {len(sweep.cells)}")
    return problems


def against_itself(runs: list[Row]) -> list[str]:
    """Return the final metrics that differ from those of the last round."""
    names = list(runs[0]) if runs else []
    measured = names[names.index("status") :] if "status" in names else []
    problems = []
    for final in (name for name in measured if f"{name}{_BY_ROUND}" in measured):
        for run in (run for run in runs if run["status"] == "finished"):
            last = _last(run[f"{final}{_BY_ROUND}"])
            if last is None:
                problems.append(f"{final}{_BY_ROUND} of seed {run.get('seed')} is no list of numbers")
            elif not same(run[final], str(last)):
                problems.append(f"{final} of seed {run.get('seed')} is {run[final]}, after its last round {last}")
    return problems


def _last(cell: str) -> float | None:
    """Return the last number of a list by round, None for a cell that is no list of numbers."""
    try:
        values = parse_json(cell)
    except ValueError:
        return None
    is_list = isinstance(values, list) and values and all(number_in(str(value)) is not None for value in values)
    return values[-1] if is_list else None


def check_epsilons(root: Path, known: Iterable[tuple[StatedPrivacy, Path]]) -> Audit:
    """Compare every stated epsilon with another accountant's; note the mechanisms that have none, or only bounds."""
    report, unknown, bounded = Audit(), set(), set()
    for stated, path in known:
        try:
            title = stated.title
            between = {which: interval(stated, which) for which in stated.epsilons}
        except _UNREADABLE as error:
            problem = f"has a privacy statement that no accountant can follow: {one_line(error)}"
            report.findings.append(Finding(str(path.relative_to(root)), problem, (path, record_path(path))))
            continue
        for which, limits in between.items():
            if limits is None:
                continue
            report.count("distinct epsilons")
            epsilon = stated.epsilons[which]
            if not limits.holds(epsilon):
                problem = (
                    f"states epsilon_{which} {epsilon:.6g} for noise multiplier {stated.noise_multiplier:.6g}; "
                    f"{limits.accountant} gives {limits.lower:.6g} to {limits.upper:.6g}"
                )
                report.findings.append(Finding(str(path.relative_to(root)), problem, (path, record_path(path))))
            if limits.wide and which != "refuted":
                bounded.add(f"'{title}' by {limits.accountant}")
        if between and not any(between.values()):
            unknown.add(title)
    report.notes += [f"no second accountant here for statements of '{mechanism}'" for mechanism in sorted(unknown)]
    report.notes += [f"epsilon could only be bounded for statements of {each}" for each in sorted(bounded)]
    return report


def _is_plain(value: object) -> bool:
    """Return whether a cell's value is a number or a text, not a list."""
    return isinstance(value, str | int | float)
