"""Compare records and run tables with git, the lock file, the grid, the calibrated noise and other accountants."""

from __future__ import annotations

import hashlib
import io
import json
import runpy
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from dpfl import experiments
from dpfl.catalog import recipe_code
from dpfl.commands import git
from dpfl.data import datasets
from dpfl.errors import InputError
from dpfl.files import has_bytes, is_regular, parse_json, record_path
from dpfl.grid.expansion import noise_table_path, run_table_path
from dpfl.provenance.audit.findings import OTHER_FEATURES, Audit, Finding, is_derived, one_line
from dpfl.provenance.audit.numbers import PRIVACY, StatedPrivacy, control_problem, interval
from dpfl.provenance.record import (
    COMMIT_HASH,
    DECIDING,
    LOCK,
    is_before,
    is_locked,
    locked_versions,
    machine,
    read_record,
    started,
)
from dpfl.provenance.run_identity import training_code
from dpfl.provenance.source_digest import source_digest
from dpfl.provenance.trace import NOISE, Row, number_in, read_rows, run_key, same, same_noise, value_of

if TYPE_CHECKING:
    from dpfl.grid.training_job import TrainingJob

# Compare the commit, source digest and lock file of every record with the git repository of this source tree.

_REPOSITORY = Path(__file__).parents[4]
_LOCK = "requirements.lock"
_DECIMALS = 16
_PACKAGE = "src/dpfl"


def check_commits(report: Audit, records: Iterable[dict[str, Any]], repository: Path = _REPOSITORY) -> None:
    """Add records whose commit git does not have, whose code is not the commit's, or whose versions not the lock's.

    Where the source tree is no git checkout, or a shallow one that lacks a commit, that is a note. Run tables that were
    trained from a changed tree or without a commit are noted with their number: nothing ties their code to a commit.
    """
    known = list({record["outputs"][0]["path"]: record for record in records}.values())
    _note_unclean(report, [record for record in known if record["stage"] == "train"])
    if git(repository, "rev-parse", "--verify", "HEAD") is None:
        report.notes.append("commits were not checked: the source tree here is no git checkout")
    by_commit: dict[str | None, list[dict[str, Any]]] = {}
    for record in known:
        by_commit.setdefault(record["source"]["commit"], []).append(record)
    for commit, own in by_commit.items():
        with tempfile.TemporaryDirectory() as scratch:
            tree = _extracted(repository, commit, Path(scratch)) if commit else None
            if commit and tree is None and (words := _absence(repository, commit)):
                report.findings += [Finding(record["outputs"][0]["path"], words) for record in own]
            digest_of = _digest_of(repository, commit, tree)
            for record in own:
                for problem in (*_against_tree(record, tree, digest_of), *_against_lock(record, tree)):
                    report.findings.append(Finding(record["outputs"][0]["path"], problem))
            if tree:
                report.count("records compared with their commit", len(own))


def _note_unclean(report: Audit, runs: list[dict[str, Any]]) -> None:
    """Note how many run tables no commit accounts for, and how many state other versions than their lock file's."""
    commitless = [run for run in runs if run["source"]["commit"] is None or run["source"].get("dirty")]
    unlocked = [run for run in runs if run["software"]["not_as_locked"] or run["software"]["lock"] is None]
    for words, found in (
        ("trained from a changed tree or without a commit", commitless),
        (f"trained in an environment that is not that of {_LOCK}", unlocked),
    ):
        if found:
            report.notes.append(f"{words}: {len(found)} of {len(runs)} run tables")


def _absence(repository: Path, commit: str) -> str:
    """Return the finding for a commit that git does not have; empty where git cannot know."""
    if not COMMIT_HASH.fullmatch(commit):
        return f"has a record of a commit that cannot be one: {commit!r}"
    full = git(repository, "rev-parse", "--is-shallow-repository") == b"false\n"
    return f"has a record of commit {commit}, which the repository does not have" if full else ""


def _digest_of(repository: Path, commit: str | None, tree: Path | None) -> Callable[..., str]:
    """Return the function that counts a commit's code: the commit's own, which is not always today's.

    It is run only if the commit led to the one that is checked out: for another branch, today's function is taken.
    """
    own = tree / _PACKAGE / "provenance" / "source_digest.py" if tree else None
    if own is None or not own.is_file() or git(repository, "merge-base", "--is-ancestor", str(commit), "HEAD") is None:
        return source_digest
    return runpy.run_path(str(own), run_name="dpfl_of_a_commit")["source_digest"]


def _against_tree(record: dict[str, Any], tree: Path | None, digest_of: Callable[..., str]) -> Iterator[str]:
    """Yield that a record's source digest is not that of its commit; a changed tree has another one."""
    source = record["source"]
    if tree is None or source.get("dirty"):
        return
    try:
        digest = digest_of(*source["modules"], root=tree / _PACKAGE)
    except (ModuleNotFoundError, SyntaxError, TypeError, AttributeError) as error:
        yield f"has a record of modules that commit {source['commit'][:10]} does not have: {error}"
        return
    if digest != source["digest"]:
        yield f"has a record of source digest {source['digest']}; commit {source['commit'][:10]} has {digest}"


def _against_lock(record: dict[str, Any], tree: Path | None) -> Iterator[str]:
    """Yield the versions that contradict the lock file that the record names."""
    software = record["software"]
    lock = (tree / _LOCK) if tree else LOCK
    if software["lock"] is None and tree and lock.is_file() and not record["source"].get("dirty"):
        yield f"has a record that names no {_LOCK}, which its commit has"
    if software["lock"] is None or not lock.is_file():
        return
    content = lock.read_bytes()
    if hashlib.sha256(content).hexdigest() != software["lock"]:
        if tree and not record["source"].get("dirty"):
            yield f"has a record of another {_LOCK} than that of its commit"
        return
    pinned = locked_versions(content.decode("utf-8"))
    for name in DECIDING:
        wanted = software["not_as_locked"].get(name, pinned.get(name, ""))
        if not is_locked(str(software.get(name)), str(wanted)):
            yield f"has a record of {name} {software.get(name)}, where its environment has {wanted}"


def _extracted(repository: Path, commit: str, scratch: Path) -> Path | None:
    """Return a folder with source and lock file of a commit, or None where git does not have it."""
    if not COMMIT_HASH.fullmatch(commit):
        return None
    names = [name for name in (_PACKAGE, _LOCK) if git(repository, "cat-file", "-e", f"{commit}:{name}") is not None]
    packed = git(repository, "archive", "--format=tar", commit, "--", *names) if names else None
    if packed is None:
        return None
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            path = scratch / member.name
            if member.isfile() and path.resolve().is_relative_to(scratch.resolve()):  # no link, so none leads out
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(cast("IO[bytes]", archive.extractfile(member)).read())
    return scratch


# Compare a record's own words with the grid, the papers, its siblings and the stages before it.

Record = dict[str, Any]
_AHEAD = timedelta(days=1)
_PAGES = ("tables", "figures", "claims")


@dataclass(frozen=True)
class Context:
    """A scale's results: their records by the path of every output, the grid, and the data folder."""

    scale: str
    records: Mapping[str, Record]
    jobs: Mapping[str, TrainingJob]
    data: str

    @classmethod
    def of(cls, scale: str, records: Iterable[Record], jobs: Iterable[TrainingJob], data: str) -> Context:
        """Return the context of a scale; a run table's job is found by the table's path."""
        by_path = {each["path"]: record for record in records for each in record["outputs"]}
        tables = {run_table_path(Path("results", scale), job.paper, job.name).as_posix(): job for job in jobs}
        return cls(scale, by_path, tables, data)


def check_records(report: Audit, context: Context) -> None:
    """Add what the records say of themselves and what grid, papers, siblings or times contradict.

    A page that is older than a run table of its paper is a note, as are stages whose data or noise were made again, to
    the same bytes, after them; and run tables of jobs that the configuration does not ask for.
    """
    stated = _hashes_of_sources(context)
    older, unasked, elsewhere = [], [], []
    unique = {record["outputs"][0]["path"]: record for record in context.records.values()}
    for path, record in unique.items():
        problems = [*_own_words(path, record, context), *_platform(record), *_times(record, context)]
        problems += _raw_file(path, record)
        for name, is_elsewhere in _unlike_siblings(record, stated, f"{context.data}/features/"):
            if is_elsewhere:
                elsewhere.append(path)
            else:
                problems.append(f"read another {name} than its siblings")
        for name, is_older in _unread(path, record, context):
            if is_older:
                older.append(path)
            else:
                problems.append(f"was made without {name}, which was there")
        report.findings += [Finding(path, f"has a record that is not true: {each}") for each in problems]
        report.count("records compared with grid and papers")
        if path.startswith(f"results/{context.scale}/runs/") and path not in context.jobs:
            unasked.append(path)
    if older:
        report.notes.append(f"older than a run table of their paper: {len(set(older))} pages, as {older[0]}")
    if elsewhere:
        report.notes.append(OTHER_FEATURES.format(count=len(set(elsewhere)), name=elsewhere[0]))
    if unasked:
        report.notes.append(
            f"not of the configuration's grid, so not checked: {len(unasked)} run tables, as {unasked[0]}"
        )
    _note_made_again(report, unique, context)


def _own_words(path: str, record: Record, context: Context) -> Iterator[str]:
    """Yield what stage, settings, seeds and modules should be, where they are not."""
    wanted = expected(path, context)
    found = {name: record[name] for name in ("stage", "settings", "seeds")} | {"modules": record["source"]["modules"]}
    for name, value in wanted.items():
        if found[name] != value and not (name == "modules" and path in context.jobs and _is_home(found[name], value)):
            yield f"{name} {_short(found[name], value)}, not {_short(value, found[name])}"
    identity = record.get("identity")
    named = context.jobs.get(path)
    if named and isinstance(identity, dict) and identity.get("job") != named.digest():
        yield f"identity {_short(identity, {})}, of another job than it is named after"


def _is_home(stated: list[str], wanted: list[str]) -> bool:
    """Return whether a run's modules are one module of the wanted name, wherever it stood at the record's commit.

    The digest is compared with that commit, whose code has one module of an experiment's name.
    """
    names = [each.partition(":")[0].rpartition(".")[2] for each in (*stated, *wanted)]
    return len(stated) == 1 and names[0] == names[1] and stated[0].startswith("dpfl.")


def expected(path: str, context: Context) -> dict[str, Any]:
    """Return what the record of a result must say: stage, settings, seeds and modules, as far as its path decides."""
    parts = Path(path).parts
    if parts[:2] != ("results", context.scale) or len(parts) < 4:
        return {}
    kind, name = parts[2], Path(path).name.partition(".")[0]
    if path in context.jobs:
        job = context.jobs[path]
        return {
            "stage": "train", "settings": json.loads(json.dumps(job.settings)), "seeds": list(job.seeds),
            "modules": [training_code(job.experiment)],
        }  # fmt: skip
    if kind == "accounting":
        return {"stage": "account", "settings": {"paper": name, "scale": context.scale}, "seeds": []}
    if kind not in _PAGES:
        return {}
    paper, _, page = name.partition("_")
    settings = {"paper": paper} if kind == "claims" else {"paper": paper, "name": page}
    homes = (f"dpfl.papers.{paper}.claims",) if kind == "claims" else recipe_code(paper, kind)
    modules = [*homes, f"dpfl.reporting.{kind}"]
    return {"stage": kind, "settings": settings, "seeds": [], "modules": modules}


def _platform(record: Record) -> Iterator[str]:
    """Yield what cannot be true of device, threads and time."""
    device, torch = record["host"]["device"], record["software"]["torch"]
    if device not in ("cpu", "cuda") or record["host"]["threads"] < 1:
        yield f"device {device} with {record['host']['threads']} threads"
    if device == "cuda" and torch.endswith("+cpu"):
        yield f"device cuda with torch {torch}, which has no CUDA"
    if started(record) > datetime.now(UTC) + _AHEAD:
        yield f"it began at {record['started']}, which is still to come"


def _times(record: Record, context: Context) -> Iterator[str]:
    """Yield the results that a page read before the stage that wrote them had ended."""
    for entry in record["inputs"]:
        maker = context.records.get(entry["path"])
        if record["stage"] in _PAGES and maker and _states(maker, entry) and is_before(record, maker):
            yield f"it began at {record['started']}, before {entry['path']} was written"


def _raw_file(path: str, record: Record) -> Iterator[str]:
    """Yield that a raw file has another hash than the dataset's entry."""
    place = Path(path)
    if place.parent.parent.name != "raw" or place.parent.name not in datasets.names():
        return
    known = {each.sha256 for each in datasets.load(place.parent.name).files}
    if record["outputs"][0]["sha256"] not in known:
        yield f"sha256 {record['outputs'][0]['sha256']}, which no published file of {place.parent.name} has"


def _unread(path: str, record: Record, context: Context) -> Iterator[tuple[str, bool]]:
    """Yield the files that a stage must have read and did not, and whether the stage ended before they were there."""
    read = {entry["path"] for entry in record["inputs"]}
    for name in sorted(_needed(path, context) - read):
        maker = context.records[name]
        yield name, record["stage"] in _PAGES and is_before(record, maker)


def _needed(path: str, context: Context) -> set[str]:
    """Return the files with a record that a stage reads: data and noise of a run, run tables or pages of a paper."""
    results, wanted = f"results/{context.scale}", expected(path, context)
    if path in context.jobs:
        job = context.jobs[path]
        kinds = ("arrays", "features") if job.needs_features else ("arrays",)
        folders = tuple(f"{context.data}/{kind}/{job.dataset}/" for kind in kinds)
        noise = f"{results}/accounting/{job.paper}.csv"
        return {name for name in context.records if name.startswith(folders) or name == noise}
    paper = wanted.get("settings", {}).get("paper")
    if wanted.get("stage") in ("tables", "figures"):
        return {name for name, job in context.jobs.items() if job.paper == paper and name in context.records}
    if wanted.get("stage") == "claims":
        pages = tuple(f"{results}/{kind}/{paper}_" for kind in ("tables", "figures"))
        return {name for name in context.records if name.startswith(pages) and name.endswith(".csv")}
    return set()


_Readers = dict[tuple[int, str], Counter[tuple[str, ...]]]
"""Size and hash of a file to how many stages read it so, by their machine."""


def _hashes_of_sources(context: Context) -> dict[str, _Readers]:
    """Return which stages read which bytes of every file that no record here describes."""
    stated: dict[str, _Readers] = {}
    for record in context.records.values():
        for entry in record["inputs"]:
            if entry["path"] not in context.records:
                bytes_ = entry["bytes"], entry["sha256"]
                stated.setdefault(entry["path"], {}).setdefault(bytes_, Counter())[machine(record)] += 1
    return stated


def _unlike_siblings(record: Record, stated: Mapping[str, _Readers], features: str) -> Iterator[tuple[str, bool]]:
    """Yield the files that most other stages read in another state, and whether another machine explains it: below
    the folder of `features`, an array of the same size that most stages of this machine read."""
    for entry in record["inputs"]:
        readers, own = stated.get(entry["path"], {}), (entry["bytes"], entry["sha256"])
        if len(readers) < 2 or readers[own].total() == max(each.total() for each in readers.values()):
            continue
        here = machine(record)
        usual = max(readers, key=lambda each: readers[each].total())
        is_usual_here = readers[own][here] == max(each[here] for each in readers.values())
        is_rounded = is_derived(entry["path"], features) and entry["bytes"] == usual[0]
        yield entry["path"], is_rounded and is_usual_here


def _note_made_again(report: Audit, unique: Mapping[str, Record], context: Context) -> None:
    """Note the run tables whose noise was calibrated again since, or whose data are younger than they are."""
    superseded, younger = [], []
    for path in context.jobs.keys() & unique.keys():
        makers = [(context.records.get(entry["path"]), entry) for entry in unique[path]["inputs"]]
        known = [(maker, entry) for maker, entry in makers if maker]
        if any("/accounting/" in entry["path"] and not _states(maker, entry) for maker, entry in known):
            superseded.append(path)
        if any(_states(maker, entry) and is_before(unique[path], maker) for maker, entry in known):
            younger.append(path)
    if superseded:
        count = f"{len(superseded)} run tables"
        report.notes.append(f"noise calibrated anew since, so the bytes that were read are gone: {count}")
    if younger:
        report.notes.append(f"data or noise made again since, to the same bytes: {len(younger)} run tables")


def _states(maker: Record, entry: Mapping[str, Any]) -> bool:
    """Return whether a record lists a file with the hash that a later stage read."""
    return any((each["path"], each["sha256"]) == (entry["path"], entry["sha256"]) for each in maker["outputs"])


def _short(value: Any, other: Any) -> str:
    """Return a value for a message; of two mappings, what differs."""
    if isinstance(value, dict) and isinstance(other, dict):
        value = {name: each for name, each in value.items() if name not in other or other[name] != each}
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


# Compare the noise of runs, and what they state of it, with the calibration of today.

_STATED_NOISE = (*NOISE, f"{PRIVACY}noise_multiplier")
_PROVEN = (f"{PRIVACY}epsilon_proven", f"{PRIVACY}epsilon_contraction")
_REFUTED = f"{PRIVACY}epsilon_refuted"
_HOW = (*(f"{PRIVACY}{name}" for name in ("proven_by", "refuted_by", "note")), _REFUTED)
_ROUNDING = 1e-3
"""Relative difference of two versions' epsilons for one proof."""
_CHOSEN_LATER = f"{PRIVACY}clip_norm"


class NoiseCheck:
    """Compares run tables below results/<scale> with their papers' noise, and counts those from before it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.papers: dict[str, dict[str, list[Row]] | None] = {}
        self.earlier = self.refuting_more = 0

    def problems(self, path: Path, job: TrainingJob, runs: list[Row]) -> list[str]:
        """Return what is wrong with the noise and statements of the runs of a job's table at `path`.

        Nothing where the paper's noise was changed since it was written: that is a finding of its own, and says nothing
        against its runs.
        """
        table = noise_table_path(self.folder, job.paper)
        if job.paper not in self.papers:
            self.papers[job.paper] = None if _differs(table, table, "outputs") else _by_calibration_key(table)
        calibrated = self.papers[job.paper]
        if calibrated is None:
            return []
        noise = calibrated.get(job.calibration_key, [])
        is_earlier = _differs(path, table, "inputs")
        self.earlier += is_earlier
        self.refuting_more += is_earlier and refutes_more(runs, noise)
        return against_noise(runs, noise, earlier=is_earlier)

    def notes(self) -> list[str]:
        """Return how many tables state what an earlier calibration proved, and refuted."""
        proven = "run tables state what was proven when they were trained: their noise was calibrated again since"
        refuted = "of them state an epsilon to be refuted that is above what is refuted now"
        counts = ((self.earlier, proven), (self.refuting_more, refuted))
        return [f"{count} {words}" for count, words in counts if count]


def _by_calibration_key(path: Path) -> dict[str, list[Row]]:
    """Return the rows of a paper's noise calibration by calibration key; none where the file is missing."""
    by_key: dict[str, list[Row]] = {}
    for row in read_rows(path) if is_regular(path) else []:
        by_key.setdefault(row["calibration_key"], []).append(row)
    return by_key


def _differs(table: Path, path: Path, part: str) -> bool:
    """Return whether `path` is another file than the record of `table` states among its `part`: inputs or outputs."""
    try:
        entries = read_record(record_path(table))[part]
    except InputError:
        return False
    name = f"/{path.parent.name}/{path.name}"
    stated = [entry for entry in entries if entry["path"].endswith(name)]
    return bool(stated) and is_regular(path) and not any(has_bytes(path, entry) for entry in stated)


def against_noise(runs: list[Row], noise: list[Row], *, earlier: bool = False) -> list[str]:
    """Return the noise and statements of runs that differ from the calibration's; of runs from before it (`earlier`),
    other noise and what they state to be proven beyond it."""
    problems: dict[str, None] = {}
    for run, row in _with_noise(runs, noise):
        if row is None:
            problems["a run has no row in the noise calibration"] = None
            continue
        for name in set(run) & set(row):
            stated = name.startswith(PRIVACY) or name in NOISE
            agrees = _same_spelled(run[name], row[name]) or (earlier and _follows(name, run[name], row[name]))
            if stated and name != _CHOSEN_LATER and not agrees:
                problems[f"{name} of seed {run.get('seed')} is {run[name]}, calibrated was {row[name]}"] = None
    return list(problems)


def _same_spelled(one: str, other: str) -> bool:
    """Return whether two cells are the same, or the first is the second cut after sixteen decimals: some versions of
    pandas write no more."""
    whole, _, decimals = other.partition(".")
    cut = len(decimals) > _DECIMALS and decimals.isdecimal()
    return same(one, other) or (cut and one.rstrip("0") == f"{whole}.{decimals[:_DECIMALS]}".rstrip("0"))


def refutes_more(runs: list[Row], noise: list[Row]) -> bool:
    """Return whether runs state an epsilon to be refuted that is above what the calibration of today refutes.

    A lower end may fall with a mended accountant. Whether what a run states is wrong, the second accountant says.
    """
    return any(
        float(run[_REFUTED] or "nan") > float(row[_REFUTED] or "nan") * (1 + _ROUNDING)
        for run, row in _with_noise(runs, noise)
        if row is not None and _REFUTED in run and _REFUTED in row
    )


def _with_noise(runs: list[Row], noise: list[Row]) -> list[tuple[Row, Row | None]]:
    """Return every run with its row of the calibration; with None where it has none."""
    by_keys: dict[tuple[str, ...], dict[tuple[object, ...], list[Row]]] = {}
    for row in noise if runs else []:
        keys = tuple(sorted(_keys(runs[0], row)))
        by_keys.setdefault(keys, {}).setdefault(tuple(value_of(row[name]) for name in keys), []).append(row)
    paired = []
    for run in runs:
        named = (rows.get(tuple(value_of(run[name]) for name in keys)) for keys, rows in by_keys.items())
        paired.append((run, _of_the_noise(run, next((each for each in named if each), []))))
    return paired


def _of_the_noise(run: Row, rows: list[Row]) -> Row | None:
    """Return the row that has the run's noise, of a cell's rows; the first if none has; None if there is none."""
    names = [name for name in _STATED_NOISE if name in run]
    having = (row for row in rows if all(same_noise(run[name], row[name]) for name in names if name in row))
    return next(having, rows[0] if rows else None)


def _follows(name: str, earlier: str, now: str) -> bool:
    """Return whether what an earlier calibration states is that of now, or was proven and follows from it.

    What it states to be refuted may be more, and is counted (`refutes_more`).
    """
    if name in _STATED_NOISE:
        return same_noise(earlier, now)
    if name == f"{PRIVACY}mechanism":
        try:
            return _is_same_mechanism(parse_json(earlier), parse_json(now))
        except ValueError:  # no JSON
            return False
    if name in _PROVEN:
        return not float(earlier) < float(now) * (1 - _ROUNDING)
    return name in _HOW


def _is_same_mechanism(one: Any, other: Any) -> bool:
    """Return whether two mechanisms, or parts of them, are the same but for where a search for noise ended."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same_mechanism(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same_mechanism, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return same_noise(str(one), str(other))
    return type(one) is type(other) and one == other


def _keys(run: Row, row: Row) -> set[str]:
    """Return the columns that match a run with its calibration."""
    known = set(run_key(run)) & set(row) - {*_STATED_NOISE, "seed"}
    return distinguishing({name: row[name] for name in known if not name.startswith(PRIVACY)})


def distinguishing(values: Row) -> set[str]:
    """Return the columns that distinguish cells: those with a value, without the target epsilon where noise is
    given."""
    known = {name for name, value in values.items() if value not in ("", "nan")}
    return known - {"epsilon"} if "sigma" in known else known


# Compare run tables with the grid, the calibrated noise, and other accountants.

_BY_ROUND = "_by_round"
_CONTROL = "known_bad"
_UNREADABLE = (LookupError, ValueError, ArithmeticError, TypeError, AttributeError)
"""What a table raises that holds other texts than ours, whose hashes agree: each is a finding of the table."""
_NAMED = 3
"""Jobs or calibration keys that a note names."""


def check_runs(
    report: Audit, root: Path, scale: str, jobs: list[TrainingJob], *, all_seeds: bool = False
) -> dict[StatedPrivacy, Path]:
    """Check every existing run table of the jobs; return their privacy statements, each once, with a table of it.

    Where noise was calibrated again since a run, the run must not state more than what is proven now; notes count these
    tables, and those that state more to be refuted.

    A note counts the controls, whose epsilon is false on purpose. The experiment says which runs are controls, and a
    run table that says otherwise is a finding.

    With `all_seeds` a calibration key whose jobs have begun must have every seed. Without, seeds may be missing after
    the last one, and before it where other calibration keys of the paper have not begun: a note names them, for
    deleting seeds and remaking all pages looks the same.
    """
    folder = root / "results" / scale
    noise = NoiseCheck(folder)
    missing: dict[Path, TrainingJob] = {}
    last: dict[tuple[str, str], int] = {}
    known: dict[StatedPrivacy, Path] = {}
    controls = 0
    for job in jobs:
        path = run_table_path(folder, job.paper, job.name)
        if not is_regular(path):
            missing[path] = job
            continue
        key = job.paper, job.calibration_key
        last[key] = max(last.get(key, 0), *job.seeds)
        problems: list[str] = []
        try:
            runs = read_rows(path)
            report.count("runs", len(runs))
            marks, wrong = _controls(runs, job)
            controls += sum(marks)
            stated, problems = _stated(runs, job, marks)
            problems += wrong
            known |= {each: path for each in stated if each not in known}
            problems += noise.problems(path, job, runs)
            problems = against_grid(runs, job) + against_itself(runs) + problems
        except InputError as error:
            problems.append(f"cannot be read: {error}")
        except _UNREADABLE as error:
            problems.append(f"holds what no run table of ours holds: {one_line(error)}")
        for problem in dict.fromkeys(problems):
            report.findings.append(Finding(str(path.relative_to(root)), problem, (path, record_path(path))))
    report.notes += noise.notes()
    if controls:
        words = "controls of attacks, marked known_bad, whose stated epsilon is false on purpose"
        report.notes.append(f"{words}: {controls} runs")
    _note_missing(report, root, missing, last, all_seeds)
    return known


def _controls(runs: list[Row], job: TrainingJob) -> tuple[list[bool], list[str]]:
    """Return of every run whether it is a control, and what is wrong with the column known_bad.

    The job's experiment says it of a cell. A run that the column alone calls known_bad is no control.
    """
    cells = list(zip(job.cells, experiments.known_bad(job), strict=True))
    marks, problems = [], []
    for run in runs:
        own = [is_bad for cell, is_bad in cells if _is_of(run, cell)] if any(is_bad for _, is_bad in cells) else []
        is_bad, told = bool(own) and all(own), run.get(_CONTROL, "False")
        marks.append(is_bad and told == "True")
        if told != str(is_bad):
            problems.append(f"{_CONTROL} of seed {run.get('seed')} is {told}, by experiment {job.experiment} {is_bad}")
    return marks, problems


def _is_of(run: Row, cell: Mapping[str, Any]) -> bool:
    """Return whether a run has the values of a cell that distinguish it from others."""
    wanted = {name: str(value) for name, value in cell.items() if name in run and _is_plain(value)}
    return all(value_of(run[name]) == value_of(wanted[name]) for name in distinguishing(wanted))


def _stated(runs: list[Row], job: TrainingJob, controls: list[bool]) -> tuple[dict[StatedPrivacy, None], list[str]]:
    """Return the different privacy statements of a table's runs, and what is wrong with those that cannot be read.

    `controls`: of every run, whether it is one.
    """
    stated: dict[StatedPrivacy, None] = {}
    problems = []
    if not all(run.get(f"{PRIVACY}mechanism") for run in runs):
        problems.append("has runs that do not state their privacy")
    for run, is_control in zip(runs, controls, strict=True):
        if f"{PRIVACY}mechanism" not in run:
            continue
        try:
            stated[StatedPrivacy.of(run, job.settings, is_control=is_control)] = None
        except _UNREADABLE as error:
            problems.append(f"has a privacy statement that cannot be read: {one_line(error)}")
    return stated, problems


def _note_missing(
    report: Audit, root: Path, missing: dict[Path, TrainingJob], last: dict[tuple[str, str], int], all_seeds: bool
) -> None:
    """Find run tables that are gone though later seeds of their cells exist; note the calibration keys that lack seeds.

    `last`: the last seed of every calibration key that has begun. Where a paper has keys that have not, its grid is not
    finished: seeds that are missing in between are a note. Those keys are counted by the audit of files.
    """
    begun = {path: job for path, job in missing.items() if (job.paper, job.calibration_key) in last}
    unfinished = {job.paper for path, job in missing.items() if path not in begun}
    between, after = [], {}
    for path, job in begun.items():
        key = job.paper, job.calibration_key
        is_between = min(job.seeds) < last[key]
        if all_seeds or (is_between and job.paper not in unfinished):
            problem = "is missing, but the same cells with other seeds are there"
            report.findings.append(Finding(str(path.relative_to(root)), problem))
        elif is_between:
            between.append(f"{job.paper}/{job.name}")
        else:
            after[key] = f"{job.paper}/{job.calibration_key} after seed {last[key]}"
    if between:
        report.notes.append(f"not run, though later seeds of the same cells are, or deleted: {_some(between)}")
    if after:
        report.notes.append(f"begun here and not finished, or its last seeds deleted: {_some(list(after.values()))}")


def _some(names: list[str]) -> str:
    """Return the first of several names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def against_grid(runs: list[Row], job: TrainingJob) -> list[str]:
    """Return the cells and seeds of its job that the run table lacks."""
    if not runs or "seed" not in runs[0]:
        return ["has no runs"]
    problems = []
    by_seed = {str(seed): [run for run in runs if run["seed"] == str(seed)] for seed in job.seeds}
    if lost := [seed for seed, own in by_seed.items() if not own]:
        problems.append(f"has no run of seed {', '.join(lost)}, which the grid asks for")
    present: dict[tuple[str, ...], set[tuple[object, ...]]] = {}
    for cell in job.cells:
        wanted = {name: str(value) for name, value in cell.items() if name in runs[0] and _is_plain(value)}
        names = tuple(sorted(distinguishing(wanted)))
        if names not in present:
            present[names] = {tuple(value_of(run[name]) for name in names) for run in runs}
        if tuple(value_of(wanted[name]) for name in names) not in present[names]:
            problems.append(f"has no run of {', '.join(f'{name}={wanted[name]}' for name in names)}")
    uneven = [seed for seed, own in by_seed.items() if len(own) != len(job.cells)]
    if uneven and not problems:  # cells that differ in a list, or in what is not set, are known by their number alone
        problems.append(f"has {len(by_seed[uneven[0]])} runs of seed {uneven[0]}, should have {len(job.cells)}")
    return problems


def against_itself(runs: list[Row]) -> list[str]:
    """Return the final metrics that differ from the last round's."""
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
            proven = control_problem(stated) if stated.is_control else ""
        except _UNREADABLE as error:
            problem = f"has a privacy statement that no accountant can follow: {one_line(error)}"
            report.findings.append(Finding(str(path.relative_to(root)), problem, (path, record_path(path))))
            continue
        if proven:
            report.findings.append(Finding(str(path.relative_to(root)), proven, (path, record_path(path))))
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
