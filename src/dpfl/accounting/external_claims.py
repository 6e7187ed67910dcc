"""Judge claims of others: files of claims, events of dp_accounting, logs of runs.

Files of claims, format "dpfl-claims/1": JSON that holds one or many claims, each complete.

{"schema": "dpfl-claims/1", "claims": [
  {"name": "Table 2", "sampler": "shuffled_epochs", "batch_size": 64, "records": 6000, "noise_multiplier": 1.0072,
   "steps": 1880, "delta": 1e-5, "epsilon": 2.93, "neighbouring": "zero_out", "observer": "every_step"},
  {"name": "two phases", "delta": 1e-5, "epsilon": 3, "phases": [
    {"sampler": "poisson", "sample_rate": 0.01, "noise_multiplier": 1.2, "steps": 500},
    {"sampler": "full_batch", "noise_multiplier": 40, "steps": 10}]}]}

`neighbouring` (zero_out) and `observer` (every_step) may be left out; `source` may say where the claim is made. For
the observer last_iterate `convex` may state the problem, with the fields of `ConvexProblem`: {"smoothness": 1,
"learning_rate": 0.5, "lipschitz": 1, "strong_convexity": 0.4}.

Logs of runs: how much noise, which sampling rate, how many steps, as Opacus's accountants record them. A log is one of:

    a CSV file with the columns noise_multiplier, sample_rate and num_steps, the steps of that row;
    a file of JSON lines, each an object with these keys;
    a JSON file of an accountant's `state_dict()`: {"history": [[noise_multiplier, sample_rate, num_steps], ...]}.

Nothing about steps is guessed: a log without num_steps needs `steps_per_row`, one whose num_steps rises or falls from
row to row needs `num_steps` (each row's own, or the sum so far), and any other column or key is refused, as it may
count steps. A log does not say how batches were drawn: Opacus's accountants assume Poisson samples, whatever the loader
does. So the caller names the sampler; a log whose sample_rate is not that sampler's is refused.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import lru_cache
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

from dp_accounting import dp_event as events

from dpfl import accounting
from dpfl.accounting import gaussian_dp
from dpfl.accounting.guarantees import Guarantee, Phase, guarantee_of_phases
from dpfl.accounting.neighbouring import HidesSteps, Neighbouring, Observer
from dpfl.accounting.numerics import integer, member, real
from dpfl.accounting.pure_mechanisms import LaplaceNoise, RandomizedResponse
from dpfl.accounting.samplers import (
    SAMPLERS,
    BallsInBins,
    FixedBatches,
    FullBatch,
    Poisson,
    Sampler,
    Sampling,
    WithReplacement,
)
from dpfl.accounting.zero_concentrated import ZeroConcentrated
from dpfl.errors import InputError, printable
from dpfl.files import unique_keys

# Import of dp_accounting's events: what a mechanism did, as phases that the accountants here know.

KNOWN = (
    "GaussianDpEvent, alone or sampled, also several on one sample (PoissonSampledDpEvent, "
    "SampledWithoutReplacementDpEvent, SampledWithReplacementDpEvent), LaplaceDpEvent, RandomizedResponseDpEvent, "
    "ZCDpEvent, composed (ComposedDpEvent, SelfComposedDpEvent), NoOpDpEvent"
)


def from_dp_event(event: events.DpEvent) -> tuple[Phase, ...]:
    """Return the phases that an event of dp_accounting stands for, equal ones joined, in the order of appearance.

    An event says nothing of the neighbouring relation: name it to `guarantee_of_phases`. Both libraries measure
    noise_multiplier by the norm bound of one record's contribution. The order of phases does not change a guarantee.
    All ZCDpEvents are one phase: xi and rho add up. They hold under the relation in which they were stated.
    Source: the definition of each event in dp_accounting's dp_event.py.
    Raises ValueError naming the event that is not known, a count that is no whole number of at least 0, and the field
    of a sampler that is out of range.

    >>> import dp_accounting
    >>> from dpfl.accounting.external_claims import from_dp_event
    >>> step = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.1))
    >>> from_dp_event(dp_accounting.SelfComposedDpEvent(step, 1000))
    (Phase(sampler=Poisson(sample_rate=0.01), noise_multiplier=1.1, steps=1000),)
    """
    steps: dict[tuple[Sampler, float], int] = {}
    for sampler, noise_multiplier, count in _with_one_zcdp(_flat(event, 1)):
        steps[sampler, noise_multiplier] = steps.get((sampler, noise_multiplier), 0) + count
    return tuple(Phase(sampler, noise_multiplier, count) for (sampler, noise_multiplier), count in steps.items())


def _flat(event: events.DpEvent, count: int) -> Iterator[tuple[Sampler, float, int]]:
    """Yield sampler, noise multiplier and number of the steps in `count` times the event."""
    match event:
        case events.NoOpDpEvent() | (
            events.PoissonSampledDpEvent(event=events.NoOpDpEvent())
            | events.SampledWithoutReplacementDpEvent(event=events.NoOpDpEvent())
            | events.SampledWithReplacementDpEvent(event=events.NoOpDpEvent())
        ):
            return
        case events.SelfComposedDpEvent(event=inner, count=times):
            yield from _flat(inner, count * integer("count", times))
        case events.ComposedDpEvent(events=parts):
            for part in parts:
                yield from _flat(part, count)
        case events.GaussianDpEvent(noise_multiplier=noise):
            yield FullBatch(), noise, count
        case events.PoissonSampledDpEvent(sampling_probability=rate, event=inner) if noise := _joint_noise(inner):
            yield Poisson(rate), noise, count
        case events.SampledWithoutReplacementDpEvent(event=inner) if noise := _joint_noise(inner):
            yield FixedBatches(event.sample_size, event.source_dataset_size), noise, count
        case events.SampledWithReplacementDpEvent(event=inner) if noise := _joint_noise(inner):
            yield WithReplacement(event.sample_size, event.source_dataset_size), noise, count
        case events.LaplaceDpEvent(noise_multiplier=noise):
            yield cast("Sampler", LaplaceNoise()), noise, count
        case events.ZCDpEvent(rho=rho, xi=xi):
            part = ZeroConcentrated(real("xi", xi, at_least=0))
            if real("rho", rho, at_least=0) + part.xi > 0:
                yield cast("Sampler", part), part.noise_multiplier(rho), count
        case events.RandomizedResponseDpEvent(noise_parameter=chance, num_buckets=buckets):
            if real("noise_parameter", chance, at_least=0, at_most=1) < 1 and integer("num_buckets", buckets) > 1:
                reports = RandomizedResponse(buckets)
                yield cast("Sampler", reports), reports.noise_multiplier(chance), count
        case _:
            raise ValueError(f"event {event!r} is not known here; known are {KNOWN}")


def _with_one_zcdp(parts: Iterable[tuple[Sampler, float, int]]) -> Iterator[tuple[Sampler, float, int]]:
    """Yield the parts with all that are zero-concentrated as one, at the place of the first."""
    found = list(parts)
    zcdp = [(part.xi, noise, count) for part, noise, count in found if isinstance(part, ZeroConcentrated)]
    joint = ZeroConcentrated(math.fsum(xi * count for xi, _, count in zcdp))
    for sampler, noise, count in found:
        if not isinstance(sampler, ZeroConcentrated):
            yield sampler, noise, count
        elif zcdp:
            try:
                rho = math.fsum(count / 2 / noise / noise for _, noise, count in zcdp)
            except OverflowError:
                raise ValueError("event: the rho of its zCDP parts is beyond floats") from None
            yield cast("Sampler", joint), joint.noise_multiplier(rho), 1
            zcdp = []


def _joint_noise(event: events.DpEvent) -> float | None:
    """Return the noise multiplier of Gaussian parts that one sample releases; None if there are others."""
    parts = list(_flat(event, 1))
    others = any(sampler != FullBatch() for sampler, _, _ in parts)
    noises = [float(gaussian_dp.joint_noise([noise])) / math.sqrt(count) for _, noise, count in parts if count]
    return None if others or not noises else float(gaussian_dp.joint_noise(noises))


# A claim that somebody makes about a private run, and the verdict on it: proven, refuted, or unproven.


class ClaimVerdict(StrEnum):
    """Verdict on a claimed epsilon."""

    PROVEN = "proven"
    """The claim is at least the proven epsilon: it holds for all data and losses."""
    REFUTED = "refuted"
    """Some data and losses spend more than the claim: no proof of it can exist."""
    UNPROVEN = "unproven"
    """The claim lies between what is proven and what is exceeded."""


@dataclass(frozen=True)
class Claim:
    """A run of noisy steps, phase by phase, and the epsilon at `delta` that somebody claims for it.

    Raises ValueError naming the field: epsilon that is not finite and at least 0, delta outside (0, 1), no phase, and a
    phase whose noise is not above 0. What no accountant here covers, `check` refuses.
    """

    name: str
    phases: tuple[Phase, ...]
    delta: float
    epsilon: float
    neighbouring: Neighbouring | str = Neighbouring.ZERO_OUT
    observer: Observer | str = Observer.EVERY_STEP
    convex: HidesSteps | None = None
    """The problem of the run, where its losses are convex and no gradient is clipped: for the last iterate."""

    def __post_init__(self) -> None:
        real("epsilon", self.epsilon, at_least=0)
        real("delta", self.delta, above=0, below=1)
        member("neighbouring", Neighbouring, self.neighbouring)
        member("observer", Observer, self.observer)
        object.__setattr__(self, "phases", tuple(self.phases))
        if not self.phases:
            raise ValueError("phases must hold at least one phase")
        for phase in self.phases:
            real("noise_multiplier", phase.noise_multiplier, above=0)
            integer("steps", phase.steps)


@dataclass(frozen=True)
class ClaimJudgement:
    """The verdict on a claim, the argument that decides it, and the interval that it rests on."""

    verdict: ClaimVerdict
    why: str
    guarantee: Guarantee


def judge(epsilon: float, guarantee: Guarantee) -> ClaimJudgement:
    """Return the verdict on a claimed `epsilon` >= 0 of a run that has this guarantee.

    Guarantee: proven means (epsilon, delta)-DP as `guarantee.upper` is; refuted means that the worst pair behind
    `guarantee.lower` spends more. Nothing is said about one data set in particular.
    Source: elementary, `Guarantee`. Raises ValueError naming epsilon.
    """
    claimed = real("epsilon", epsilon, at_least=0)
    if claimed < guarantee.lower:
        return ClaimJudgement(ClaimVerdict.REFUTED, guarantee.lower_by, guarantee)
    if claimed >= guarantee.upper:
        return ClaimJudgement(ClaimVerdict.PROVEN, guarantee.upper_by, guarantee)
    why = f"not proven by: {guarantee.upper_by}; not refuted by: {guarantee.lower_by}"
    return ClaimJudgement(ClaimVerdict.UNPROVEN, why, guarantee)


def check(claim: Claim) -> ClaimJudgement:
    """Return the verdict on a claim, by the accountants of this package.

    Guarantee: that of `judge`. Source: `guarantee_of_phases`. Raises ValueError naming the field out of range.

    >>> from dpfl.accounting import Phase, ShuffledEpochs
    >>> from dpfl.accounting.external_claims import Claim, check
    >>> run = Phase(ShuffledEpochs(batch_size=64, records=6000), noise_multiplier=1.0072, steps=1880)
    >>> check(Claim("Table 2", (run,), delta=1e-5, epsilon=2.93)).verdict
    <ClaimVerdict.REFUTED: 'refuted'>
    """
    setting = claim.phases, claim.delta, claim.neighbouring, claim.observer, claim.convex
    return judge(claim.epsilon, _guarantee(*setting))


@lru_cache(maxsize=64)
def _guarantee(
    phases: tuple[Phase, ...], delta: float, neighbouring: str, observer: str, convex: HidesSteps | None
) -> Guarantee:
    """Return the guarantee of a run, once for all claims about it."""
    return guarantee_of_phases(phases, delta=delta, neighbouring=neighbouring, observer=observer, convex=convex)


def sampler_named(name: str, **settings: Any) -> Sampler:
    """Return the sampler of that name, with the settings that it needs and no other.

    Source: elementary. Raises ValueError naming what is missing, too much or out of range.
    """
    kind = SAMPLERS[member("sampler", Sampling, name)]
    needed = [field.name for field in fields(kind)]
    if set(settings) != set(needed):
        raise ValueError(
            f"sampler {name} needs {' and '.join(needed) or 'no setting of its own'}, got {_list(settings)}"
        )
    return kind(**settings)


def _list(settings: Iterable[str]) -> str:
    """Return the names in words."""
    return " and ".join(settings) or "none"


# Logs of runs: how much noise, which sampling rate, how many steps, as Opacus's accountants record them.

_COLUMNS = ("noise_multiplier", "sample_rate", "num_steps")
_SAME_RATE = 1e-3
"""Relative difference up to which a log's rate is that of the sampler: logs round theirs."""
_MECHANISMS = ("rdp", "prv", "gdp", "dpfl_pld")
"""Accountants whose history has one meaning: entries of their own steps, equal neighbours joined."""


class StepCount(StrEnum):
    """Unit of the num_steps of a row."""

    PER_ROW = "per_row"
    """The steps of that row."""
    CUMULATIVE = "cumulative"
    """All steps of the run up to the end of that row."""


class Entry(NamedTuple):
    """Steps that share noise multiplier and sampling rate: an entry of Opacus's `accountant.history`."""

    noise_multiplier: float
    sample_rate: float
    num_steps: int


def read_rows(path: Path, *, steps_per_row: int | None = None, num_steps: StepCount | str | None = None) -> list[Entry]:
    """Return the entries of a log of rows, a CSV file or JSON lines (.jsonl), equal neighbours joined.

    `steps_per_row` >= 1 stands for the column num_steps where the log has none; `num_steps` says what that column
    counts where it rises. Source: the definition of the format, in the module. Raises InputError naming the file and
    the line, or the option that is missing or too much.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()  # with the mark that Excel writes first, or without
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    rows = _json_lines(lines, path) if path.suffix == ".jsonl" else _csv_rows(lines, path)
    _require_known({name: None for _, row in rows for name in row}, _COLUMNS, path)
    counted = any("num_steps" in row for _, row in rows)
    if counted and steps_per_row is not None:
        raise InputError(f"{path} has the column num_steps: leave out --steps-per-row")
    if not counted and num_steps is not None:
        raise InputError(f"{path} has no column num_steps: leave out --num-steps")
    if rows and not counted and steps_per_row is None:
        raise InputError(
            f"{path} does not say how many steps a row is: add the column num_steps, or give --steps-per-row "
            "(1 if each row is one noisy step, more if it is an epoch or a round)"
        )
    entries = [_entry(row, f"{path}, line {number}", steps_per_row) for number, row in rows]
    return _joined(_own_steps(entries, path, num_steps), path)


def history_of(content: Mapping[str, Any], path: Path, *, num_steps: StepCount | str | None = None) -> list[Entry]:
    """Return the entries of an accountant's `state_dict()`, read from JSON, equal neighbours joined.

    `num_steps` as in `read_rows`: it is not needed where the state names its mechanism, one of Opacus's.
    Source: the definition of the format, in the module. Raises InputError naming the file and the entry.
    """
    _require_known(content, ("history", "mechanism"), path)
    mechanism = content.get("mechanism")
    if mechanism is not None and mechanism not in _MECHANISMS:
        raise InputError(f"{path}: mechanism should be one of {', '.join(_MECHANISMS)}, got {mechanism!r}")
    rows = content.get("history")
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 3 for row in rows):
        raise InputError(f"{path}: history should be a list of [{', '.join(_COLUMNS)}]{_keys_in(rows)}")
    entries = [
        _entry(dict(zip(_COLUMNS, row, strict=True)), f"{path}, entry {number} of history", None)
        for number, row in enumerate(rows, 1)
    ]
    if mechanism is not None and num_steps is None and all(one[:2] != two[:2] for one, two in pairwise(entries)):
        num_steps = StepCount.PER_ROW  # as Opacus writes it
    return _joined(_own_steps(entries, path, num_steps), path)


def _keys_in(content: Any) -> str:
    """Return the keys of a JSON object or of a list of them, in words, and that none of them counts steps."""
    rows = content if isinstance(content, list) else [content]
    keys = dict.fromkeys(key for row in rows if isinstance(row, dict) for key in row)
    units = [key for key in keys if key not in _COLUMNS]
    unclear = f"; {_named(units)} may be a count of steps, which nothing says" if units else ""
    return f", num_steps being noisy steps, and not objects with the keys {_named(list(keys))}{unclear}" if keys else ""


def poisson_phases(history: Iterable[tuple[float, float, int]]) -> tuple[Phase, ...]:
    """Return the phases of Opacus's `accountant.history`, as its accountants understand it: Poisson samples.

    Source: the definition of the history, (noise_multiplier, sample_rate, num_steps).
    Raises ValueError naming the entry's field out of range.
    """
    return tuple(Phase(Poisson(rate), noise, steps) for noise, rate, steps in history)


def phases_on(sampler: Sampler, history: Sequence[Entry]) -> tuple[Phase, ...]:
    """Return the phases of a history whose batches `sampler` drew, equal noise joined; its rates must be the sampler's.

    Source: derived here: a phase begins an epoch of its own, so a sampler of epochs may change its noise between
    epochs only. Raises ValueError where it changes within one, and where a sample_rate is that of no such sampler.
    """
    rates = _own_rates(sampler)
    for entry in history:
        if not any(math.isclose(entry.sample_rate, rate, rel_tol=_SAME_RATE) for rate in rates.values()):
            right = " or ".join(f"{rate:.6g} ({formula})" for formula, rate in rates.items())
            raise ValueError(
                f"sample_rate is {entry.sample_rate:.6g} in the log, but for {sampler} it should be {right}: one of "
                "them is not of this run"
            )
    if isinstance(sampler, Poisson):  # where both round, the larger rate spends more
        sampler = Poisson(max([sampler.sample_rate, *(entry.sample_rate for entry in history)]))
    epoch = getattr(sampler, "steps_per_epoch", 1)
    counts = [
        (noise, sum(entry.num_steps for entry in entries))
        for noise, entries in groupby(history, key=lambda entry: entry.noise_multiplier)
    ]
    for _, steps in counts[:-1]:
        if steps % epoch:
            raise ValueError(f"the log changes after {steps} steps, within an epoch of {epoch} steps")
    return tuple(Phase(sampler, noise, steps) for noise, steps in counts)


def _own_rates(sampler: Sampler) -> dict[str, float]:
    """Return the sampling rates that the log of a run with this sampler may state, by their formulas."""
    match sampler:
        case Poisson(sample_rate=rate):
            return {"sample_rate": rate}
        case BallsInBins(steps_per_epoch=steps):
            return {"1 / steps_per_epoch": 1 / steps}
        case FullBatch():
            return {"all records": 1.0}
    batch_size, records = sampler.batch_size, sampler.records
    rates = {"batch_size / records": batch_size / records}
    if records % batch_size:
        rates["1 / batches of an epoch, as Opacus records it"] = 1 / -(-records // batch_size)
    return rates


def _json_lines(lines: Sequence[str], path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the rows of a file of JSON lines with their numbers."""
    return [(number, _parsed(line, path, number)) for number, line in enumerate(lines, 1) if line.strip()]


def _csv_rows(lines: Sequence[str], path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the rows of a CSV file with the numbers of their lines. Raises InputError."""
    reader = csv.DictReader(lines)
    try:
        rows: list[tuple[int, Mapping[str, Any]]] = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num + 1}: {error}") from None
    names = list(reader.fieldnames or ())
    if len(set(names)) < len(names):
        raise InputError(f"{path}: a column stands twice in the header")
    missing = [name for name in _COLUMNS[:2] if name not in names]
    if missing:
        raise InputError(
            f"{path} has no column {' and no column '.join(missing)}: the first line of a log names the columns "
            f"{', '.join(_COLUMNS)}, with commas in between, and this one reads {','.join(names)[:80]!r}"
        )
    _require_known(dict.fromkeys(names), _COLUMNS, path)
    for number, row in rows:
        if None in row or None in row.values():
            raise InputError(f"{path}, line {number}: has {'more' if None in row else 'fewer'} cells than the header")
    return rows


def _parsed(line: str, path: Path, number: int) -> Mapping[str, Any]:
    """Return one JSON line. Raises InputError."""
    try:
        row = json.loads(line, object_pairs_hook=unique_keys)
    except (json.JSONDecodeError, RecursionError):
        row = None
    except ValueError as error:
        raise InputError(f"{path}, line {number}: {error}") from None
    if not isinstance(row, dict):
        raise InputError(f"{path}, line {number}: should be a JSON object")
    return row


def _require_known(names: Iterable[str], known: Sequence[str], path: Path) -> None:
    """Raise InputError for names that are not of the format: they may count steps, as rounds or local_epochs do."""
    present = list(names)
    unknown = [name for name in present if name not in known]
    if unknown:
        stated = "num_steps" in present or "history" in present
        remedy = "leave it out if num_steps has" if stated else "in its place num_steps, or --steps-per-row, should say"
        raise InputError(
            f"{path}: {_named(unknown)} is not of a log, whose names are {', '.join(known)}: {remedy} all steps of "
            "the row, noisy steps and not epochs or rounds"
        )


def _named(names: Sequence[Any]) -> str:
    """Return names for an error, at most eight, on one line."""
    return ", ".join(repr(printable(str(name)[:40])) for name in names[:8]) + ", ..." * (len(names) > 8)


def _own_steps(entries: Sequence[Entry], path: Path, num_steps: StepCount | str | None) -> list[Entry]:
    """Return entries with their own steps. Raises InputError where num_steps rises, or falls at the same noise and rate
    before the last row, which may be shorter, and nobody says what it counts."""
    counts = [entry.num_steps for entry in entries]
    if num_steps is None:
        alike = [(one, two) for one, two in pairwise(entries[:-1]) if one[:2] == two[:2]]
        if any(one < two for one, two in pairwise(counts)):
            raise InputError(
                f"{path}: num_steps rises from row to row, up to {max(counts)}: say whether it has the steps of each "
                f"row ({sum(counts)} together), --num-steps per_row, or all so far, --num-steps cumulative"
            )
        if any(one.num_steps > two.num_steps for one, two in alike):  # as a log of all steps so far, newest first
            raise InputError(
                f"{path}: num_steps falls from row to row: if it has all steps so far, write the oldest row first; "
                f"if it has the steps of each row ({sum(counts)} together), say --num-steps per_row"
            )
        return list(entries)
    try:
        counted = member("num_steps", StepCount, num_steps)
    except ValueError as problem:
        raise InputError(f"--{str(problem).replace('_', '-', 1)}") from None
    if counted is StepCount.PER_ROW:
        return list(entries)
    if any(one > two for one, two in pairwise(counts)):
        raise InputError(f"{path}: num_steps falls, so it is not cumulative: write the steps of each row")
    return [
        entry._replace(num_steps=two - one) for entry, (one, two) in zip(entries, pairwise([0, *counts]), strict=True)
    ]


def _entry(row: Mapping[str, Any], place: str, steps_per_row: int | None) -> Entry:
    """Return one entry, of `steps_per_row` steps where that is given. Raises InputError naming the place."""
    try:
        return Entry(
            real("noise_multiplier", _number(row, "noise_multiplier"), above=0),
            real("sample_rate", _number(row, "sample_rate"), above=0, at_most=1),
            integer("num_steps", _number(row, "num_steps"))
            if steps_per_row is None
            else integer("steps_per_row", steps_per_row, at_least=1),
        )
    except ValueError as problem:
        raise InputError(f"{place}: {problem}") from None


def _number(row: Mapping[str, Any], name: str) -> float:
    """Return a number, or the number that a text holds. Raises ValueError naming the column."""
    value = row.get(name)
    try:
        if value is None or isinstance(value, bool) or (isinstance(value, str) and "_" in value):  # 1_0 is no 10
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a real number, got {value!r}") from None
    except OverflowError:
        raise ValueError(f"{name} must be within the range of float64") from None


def _joined(entries: Sequence[Entry], path: Path) -> list[Entry]:
    """Return the entries with equal neighbours joined. Raises InputError if there is none."""
    joined: list[Entry] = []
    for entry in entries:
        if joined and joined[-1][:2] == entry[:2]:
            entry = entry._replace(num_steps=joined.pop().num_steps + entry.num_steps)
        joined.append(entry)
    if not joined:
        raise InputError(f"{path} holds no step: a log has the columns {', '.join(_COLUMNS)}")
    return joined


# Files of claims.

SCHEMA = "dpfl-claims/1"
_RUN = {"noise_multiplier", "steps"}
_SAMPLER = {"sampler", *(field.name for kind in SAMPLERS.values() for field in fields(kind))}
_CLAIM = {"name", "delta", "epsilon", "neighbouring", "observer", "source", "convex"}


def claims_of(content: Any, path: Path) -> list[Claim]:
    """Return the claims that the content of a claims file holds, in its order.

    Source: the definition of the format, in the module.
    Raises InputError naming the file, the claim and the field.
    """
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise InputError(
            f'{path} is not a file of claims, whose "schema" should be "{SCHEMA}", and no log: as JSON a log is '
            f'{{"history": [[{", ".join(_COLUMNS)}], ...]}}{_keys_in(content)}'
        )
    entries = content.get("claims")
    if set(content) != {"schema", "claims"} or not isinstance(entries, list) or not entries:
        raise InputError(f'{path} should hold "schema" and "claims", a list of one claim or more, and nothing else')
    claims = []
    for number, entry in enumerate(entries, start=1):
        try:
            claims.append(_claim(entry, number))
        except ValueError as problem:
            raise InputError(f"{path}, claim {number}: {problem}") from None
    return claims


def _claim(entry: Any, number: int) -> Claim:
    """Return one claim. Raises ValueError naming the field."""
    if not isinstance(entry, dict):
        raise ValueError("should be an object")
    parts = entry.get("phases", [{key: entry[key] for key in entry if key in _RUN | _SAMPLER}])
    if not isinstance(parts, list):
        raise ValueError("phases should be a list of objects")
    _only(entry, _CLAIM | ({"phases"} if "phases" in entry else _RUN | _SAMPLER))
    _complete(entry, ("delta", "epsilon"))
    relation = {key: entry[key] for key in ("neighbouring", "observer") if key in entry}
    phases = tuple(_phases(parts)) if "phases" in entry else (_phase(parts[0]),)
    name = " ".join(str(entry.get("name", number)).split())
    if "convex" in entry:
        relation["convex"] = _convex(entry["convex"])
    return Claim(name, phases, entry["delta"], entry["epsilon"], **relation)


def _convex(part: Any) -> HidesSteps:
    """Return the problem of a claim. Raises ValueError naming the field."""
    known = [field.name for field in fields(accounting.ConvexProblem)]
    if not isinstance(part, dict):
        raise ValueError("convex should be an object")
    _only(part, set(known))
    _complete(part, tuple(known[:3]))
    return accounting.ConvexProblem(**part)


def _phases(parts: list[Any]) -> Iterator[Phase]:
    """Return the phases of a list. Raises ValueError naming the phase, from 1, and the field."""
    for number, part in enumerate(parts, 1):
        try:
            yield _phase(part)
        except ValueError as problem:
            raise ValueError(f"phase {number}: {problem}") from None


def _phase(part: Any) -> Phase:
    """Return one phase. Raises ValueError naming the field."""
    if not isinstance(part, dict):
        raise ValueError(f"should be an object, got {part!r}")
    _only(part, _RUN | _SAMPLER)
    _complete(part, ("sampler", "noise_multiplier", "steps"))
    settings = {key: part[key] for key in part if key in _SAMPLER - {"sampler"}}
    return Phase(sampler_named(part["sampler"], **settings), part["noise_multiplier"], part["steps"])


def _only(entry: dict[str, Any], known: set[str]) -> None:
    """Raise ValueError where a key is none of the format's."""
    for key in entry:
        if key not in known:
            raise ValueError(f"{key!r} is unknown here; known are {', '.join(sorted(known))}")


def _complete(entry: dict[str, Any], needed: tuple[str, ...]) -> None:
    """Raise ValueError where a key is missing or null."""
    for key in needed:
        if entry.get(key) is None:
            raise ValueError(f"{key} is null, should be a value" if key in entry else f"{key} is missing")
