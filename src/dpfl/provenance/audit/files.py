"""Compare every file with its record, and every record with the files that must be there."""

from __future__ import annotations

import os
import re
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfl.catalog import keys, load
from dpfl.errors import InputError
from dpfl.files import (
    file_sha256,
    has_bytes,
    is_folder_inside,
    is_inside,
    is_intact_sealed,
    is_regular,
    parse_json,
    read_bytes,
    record_path,
)
from dpfl.grid import expansion
from dpfl.provenance import archive, manifest
from dpfl.provenance.audit.findings import OTHER_FEATURES, Audit, Finding, is_derived
from dpfl.provenance.record import METADATA, EarlierFormatError, machine, read_record
from dpfl.provenance.trace import configuration_of, data_folders, lineage, scale_folder
from dpfl.reporting.engine_report import PAGE
from dpfl.reporting.pages import DERIVED
from dpfl.reporting.report_page.contents import Page, contents
from dpfl.reporting.report_page.render import html, markdown

if TYPE_CHECKING:
    from dpfl.grid.training_job import TrainingJob

# Compare what is below results/<scale> with its records, its manifest, and what papers and grid say must exist.

ENDED = "audit.txt"
"""What the last step of a run writes."""
SHORT, FULL = "README.md", "report.html"
_AT_THE_END = (ENDED, manifest.MANIFEST, FULL, SHORT, PAGE)
"""Files directly below results/<scale> that `make` writes at its end, and that no stage's record lists."""
_OF_THE_ENGINE = ("logs", "benchmarks")
"""Folders directly below results/<scale> that Snakemake fills."""
_RECORD = ".record.json"
_PARTIAL = re.compile(r"\..+\.\d+\.partial")
_PAGES = ("tables", "figures")


def check_completeness(report: Audit, folder: Path, records: Mapping[Path, dict[str, Any]], *, sealed: bool) -> None:
    """Add files without a record, differences from the manifest, and pages that a paper lists and that are not there.

    A note counts the jobs of the grid that were not run; one whose run table is not there without the manifest saying
    so, or is there though it says so, is a finding.

    `records`: every readable record of the lineage of `folder`. Without `sealed` the manifest is left out: it is about
    to be written. A run that has not ended has no manifest, and may lack pages: both are notes then.
    """
    own = {place: record for place, record in records.items() if place.is_relative_to(folder.absolute())}
    written = Counter(each["path"] for record in own.values() for each in record["outputs"])
    for place in (place for place, record in own.items() if not _is_at_home(place, record, folder, written)):
        problem = "is the record of other files, or of files that have another record"
        report.findings.append(Finding(os.path.relpath(place, folder.absolute().parents[1]), problem, (place,)))
    _check_strays(report, folder.absolute(), own)
    ended = is_regular(folder / ENDED)
    if sealed:
        _check_manifest(report, folder.absolute(), ended)
    _check_not_run(report, folder.absolute(), sealed)
    _check_pages(report, folder.absolute(), own, ended)


def _is_at_home(place: Path, record: Mapping[str, Any], folder: Path, written: Counter[str]) -> bool:
    """Return whether a record is named after its first file, its files are of its folder, and no other record has them.

    An honest record, copied under another name, would be read in the place of one that was changed. `written`: how many
    records list each file.
    """
    own = place.parent.relative_to(folder.absolute().parents[1])
    first, *others = (Path(each["path"]) for each in record["outputs"])
    is_alone = all(path.parent == own and written[path.as_posix()] == 1 for path in others)
    return record_path(own / first.name).name == place.name and first.parent == own and is_alone


def _check_strays(report: Audit, folder: Path, own: Mapping[Path, dict[str, Any]]) -> None:
    """Find what no record lists: a page added, a picture in the place of a removed record, links, pipes."""
    root = folder.parents[1]
    listed = {place.with_name(Path(each["path"]).name) for place, record in own.items() for each in record["outputs"]}
    for path in _entries(folder):
        relative = path.relative_to(folder)
        if path in listed or _PARTIAL.fullmatch(path.name):
            continue
        name = os.path.relpath(path, root)
        if not is_regular(path):
            report.findings.append(Finding(name, "is not a regular file"))
        elif not (_is_expected(relative) or path.name.endswith(_RECORD) or _has_unreadable_record(path, own)):
            report.findings.append(Finding(name, "has no record: no stage of the pipeline wrote it"))


def _entries(folder: Path) -> Iterator[Path]:
    """Yield every file, link, pipe and device below a folder; links are not followed."""
    for place, folders, files in os.walk(folder):
        if Path(place) == folder:
            folders[:] = [name for name in folders if name not in _OF_THE_ENGINE or Path(place, name).is_symlink()]
        yield from (Path(place, name) for name in files)
        yield from (Path(place, name) for name in folders if Path(place, name).is_symlink())


def _is_expected(relative: Path) -> bool:
    """Return whether a file is one of those that have no record; its path is relative to results/<scale>."""
    return len(relative.parts) == 1 and relative.name in ("config.yaml", *_AT_THE_END)


def _has_unreadable_record(path: Path, own: Mapping[Path, dict[str, Any]]) -> bool:
    """Return whether there is a record for a file that could not be read: that is a finding of its own."""
    places = record_path(path), record_path(path.with_suffix(".csv"))
    return any(os.path.lexists(place) and place not in own for place in places)


def _check_manifest(report: Audit, folder: Path, ended: bool) -> None:
    """Find records that are gone, changed or added since the manifest was written."""
    root = folder.parents[1]
    name = os.path.relpath(folder / manifest.MANIFEST, root)
    if not os.path.lexists(folder / manifest.MANIFEST):
        if ended:
            report.findings.append(Finding(name, "is missing, though a run has ended here"))
        else:
            report.notes.append(f"no {name}: the run has not ended, so a record that was deleted may not be missed")
        return
    try:
        listed = manifest.read(folder)
    except InputError as error:
        report.findings.append(Finding(name, str(error).removeprefix(f"{folder / manifest.MANIFEST} ")))
        return
    here = manifest.records_below(folder)
    report.hashes[name] = file_sha256(folder / manifest.MANIFEST)
    report.count("records of the manifest", len(listed))
    for each in sorted(set(listed) | set(here)):
        if each not in here:
            problem = f"is gone, though {manifest.MANIFEST} lists it"
        elif each not in listed:
            problem = f"is not listed in {manifest.MANIFEST}: it was added, or a later run has not ended (make ends it)"
        elif here[each] != listed[each]:
            problem = f"is not the record that {manifest.MANIFEST} lists: it was changed, or its stage has run since"
        else:
            continue
        report.findings.append(Finding(os.path.relpath(folder / each, root), problem))


def _check_not_run(report: Audit, folder: Path, sealed: bool) -> None:
    """Note the jobs that were not run; if there is a manifest, compare them with those that it states."""
    if not is_regular(folder / "config.yaml"):
        return
    try:
        config = configuration_of(folder)
    except InputError as error:
        place = os.path.relpath(folder / "config.yaml", folder.parents[1])
        report.findings.append(Finding(place, f"is no configuration, so that what was not run is not known: {error}"))
        return
    try:
        stated = manifest.stated_not_run(folder) if sealed and is_regular(folder / manifest.MANIFEST) else None
        listed = set() if stated is None else set(manifest.read(folder))
        known = {f"{job.paper}/{job.name}": job for job in expansion.expand(config)}
    except InputError:
        return  # _check_manifest says so
    missing = set(manifest.not_run_below(folder))
    if line := not_run_line(known.values(), missing):
        report.notes.append(line)
    for name in sorted(missing ^ set(missing if stated is None else stated)):
        table = f"runs/{name}.csv.gz"
        if name not in known:
            problem = f"is no job of the grid, though {manifest.MANIFEST} states that it was not run"
        elif name not in missing:
            problem = f"is there, though {manifest.MANIFEST} states that it was not run"
        elif f"{table}{_RECORD}" in listed:
            problem = f"is gone, though {manifest.MANIFEST} lists its record"
        else:
            problem = f"is not there, and {manifest.MANIFEST} does not state that it was not run"
        report.findings.append(Finding(os.path.relpath(folder / table, folder.parents[1]), problem))


def not_run_line(jobs: Iterable[TrainingJob], missing: Collection[str]) -> str:
    """Return how many jobs of the grid were not run, by paper; "" where all were. `missing`: paper/job."""
    papers = [job.paper for job in jobs]
    counts = {paper: sum(name.startswith(f"{paper}/") for name in missing) for paper in dict.fromkeys(papers)}
    parts = ", ".join(f"{paper} {count} of {papers.count(paper)}" for paper, count in counts.items() if count)
    return f"{len(missing)} of {len(papers)} jobs are not run: {parts}" if missing else ""


def _check_pages(report: Audit, folder: Path, own: Mapping[Path, dict[str, Any]], ended: bool) -> None:
    """Compare pages with the papers: no page that no paper lists; where a paper was made, all that it lists."""
    root = folder.parents[1]
    there = {place.relative_to(folder).as_posix().removesuffix(_RECORD) for place in own}
    known: set[str] = set()
    missing: list[str] = []
    for key in keys():
        pages = [expansion.page_path(folder, kind, key, name) for kind in _PAGES for name in getattr(load(key), kind)]
        wanted = [page.relative_to(folder).as_posix() for page in (*pages, expansion.verdicts_path(folder, key))]
        known |= set(wanted)
        if there & set(wanted):
            missing += [name for name in wanted if name not in there]
    for name in sorted(there - known):
        if name.split("/")[0] in (*_PAGES, "claims"):
            files = os.path.relpath((folder / name).with_suffix(".*"), root)
            problem = f"is a page that no paper lists: delete all its files, {files}"
            report.findings.append(Finding(os.path.relpath(folder / name, root), problem))
    if ended:
        problem = "is missing: its paper lists it, and other results of the paper are there"
        report.findings += [Finding(os.path.relpath(folder / name, root), problem) for name in missing]
    elif missing:
        report.notes.append(f"not made yet, so not checked: {len(missing)} pages of papers, as {missing[0]}")


# Remove pages that are damaged, and links in the places of files, so that the next run makes them anew.


def remove_damaged_pages(folder: Path) -> list[Path]:
    """Remove the tables, figures and verdicts below results/<scale> that are not what their records say; return them.

    A stage's outputs go together, its record too: Snakemake makes again what is missing. Derived pages (`DERIVED`) may
    be absent, as in a fresh clone: Git does not hold them. Records of an earlier version are left alone.

    What is not a regular file (a link, dead or not, a pipe) is removed too where `make` writes a page, its report,
    README.md, audit, manifest or a log. A link is never followed: what it points at stays. No folder is removed, and
    nothing that is not below `folder`.
    """
    removed = _removed([path for path in _written_at_every_run(folder) if not is_regular(path)], folder)
    records = sorted(path for kind in (*_PAGES, "claims") for path in (folder / kind).glob("*.record.json"))
    for place in (path for path in records if is_folder_inside(path.parent, folder)):
        try:
            record = read_record(place)
        except EarlierFormatError:
            continue
        except InputError:
            removed += _removed([place], folder)
            continue
        files = [place.with_name(Path(each["path"]).name) for each in record["outputs"]]
        if not all(map(_is_intact, files, record["outputs"])):
            removed += _removed([*files, place], folder)
    return removed


def _written_at_every_run(folder: Path) -> list[Path]:
    """Return the paths of files without a record that a run writes without looking at what is there."""
    logs = [path for kind in _OF_THE_ENGINE for path in sorted((folder / kind).rglob("*"))]
    return [*(folder / name for name in _AT_THE_END), *logs]


def _is_intact(path: Path, stated: dict[str, Any]) -> bool:
    """Return whether a file has the bytes that its record states, or is an absent derived page."""
    if path.suffix in DERIVED and not os.path.lexists(path):
        return True
    try:
        return has_bytes(path, stated)
    except OSError:
        return False


def _removed(paths: list[Path], folder: Path) -> list[Path]:
    """Remove the files, links and pipes among paths that are below a folder, and return them; no link is followed."""
    there = [path for path in paths if os.path.lexists(path) and (path.is_symlink() or not path.is_dir())]
    below = [path for path in there if path.parent.resolve().is_relative_to(folder.resolve())]
    for path in below:
        path.unlink()
    return below


# Compare report.html and README.md, which have no record, with what the results of their scale give.

_NEWLY = "make pages writes it anew"
_READ = ("accounting", "claims", "figures", "runs", "tables")
"""Folders of results/<scale> from which the pages are written."""


def check_report_pages(report: Audit, folder: Path, config: Mapping[str, Any]) -> None:
    """Write the pages of results/<scale> again from its tables, figures and verdicts, and compare every byte.

    The page with pictures is compared where they are: git does not hold them. A page that is not there is no finding.
    """
    there = [folder / name for name in (SHORT, FULL) if is_regular(folder / name)]
    if not there:
        return
    root = folder.absolute().parents[1]
    entries = [path for kind in _READ for path in (folder / kind).rglob("*")]
    if not all(is_regular(path) or (path.is_dir() and not path.is_symlink()) for path in entries):
        report.notes.append(f"not compared with the results, among which are irregular files: {SHORT} and {FULL}")
        return
    try:
        page = contents(folder, config)
    except InputError as error:
        problem = f"cannot be made again from the results: {error}"
        report.findings += [Finding(str(path.absolute().relative_to(root)), problem) for path in there]
        return
    for path in there:
        name = str(path.absolute().relative_to(root))
        if path.name == FULL and not _has_pictures(folder, page):
            report.notes.append(f"{name} was not compared: pictures that it shows are not here (make pages)")
            continue
        report.count("pages for readers")
        if line := _first_difference(markdown(page) if path.name == SHORT else html(page), path):
            problem = f"is not what the results give, first in line {line}: edited, or older than they are; {_NEWLY}"
            report.findings.append(Finding(name, problem, (path.absolute(),)))


def _has_pictures(folder: Path, page: Page) -> bool:
    """Return whether the drawing of every figure of the page is there, not its small copy alone."""
    shown = [(view.paper.key, part) for view in page.papers for part in view.sections.figures if not part.not_run]
    return all(is_regular(folder / "figures" / f"{key}_{part.name}.svg") for key, part in shown)


def _first_difference(right: str, path: Path) -> int:
    """Return the number of the first line of a page that is another than the right text's, 0 where all agree."""
    try:
        content = read_bytes(path)
    except InputError:
        return 1
    if content == right.encode():
        return 0
    pairs = zip_longest(right.encode().split(b"\n"), content.split(b"\n"))
    return next(number for number, (one, two) in enumerate(pairs, 1) if one != two)


# Compare every file with its record, from the raw data to the last figure.

_CHECKPOINT = re.compile(r"-[0-9a-f]{32}\.pt$")
"""Of a name that dpfl train gives a checkpoint."""
_LARGEST_METADATA = 1 << 25
_MOST_HASHED = 1 << 36
"""Bytes of all files that the records name, and of all checkpoints; ours have a fifth. A sparse file costs nothing to
send, and minutes to hash."""
_BEHIND_A_LINK = "lies behind a link that leads out of the project, so it was not opened"


def audit(folder: Path, *, sealed: bool = True) -> Audit:
    """Hash again every file recorded below `folder`, which is results/<scale> of some project, and their inputs.

    Data that its configuration needs are hashed as well, though no result may have read them yet.

    Findings: a file that is missing, is not a regular file, differs from its record, or that a later stage read
    in another state; a result that a stage read and that is gone; a record that cannot be read; a damaged checkpoint of
    the scale; a crate that does not match its description; all that completeness finds. Without `sealed` manifest and
    crate are left out: both are about to be written, the crate from the files that the manifest lists. Data that are
    not on this machine at all are no finding: they are listed, and so are absent derived pages (`DERIVED`), which Git
    does not hold. Records are input from strangers: nothing outside the project is opened, and a file of another size
    than its record states is not read. Data behind a link to another place are listed, results there are a finding.
    Raises InputError where `folder` is no results/<scale>, there is no record below it, an earlier version wrote one,
    or the files that records name are larger together than any project's.
    """
    folder = scale_folder(folder)
    report = Audit()
    read: dict[Path, dict[str, Any]] = {}
    known = list(lineage(folder, data=data_folders(folder)))
    _require_own(folder, known)
    root = folder.parents[1]
    _require_a_size(folder, (record for _, record in known if not isinstance(record, InputError)))
    for place, record in known:
        if isinstance(record, EarlierFormatError):
            raise record
        if isinstance(record, InputError):
            report.findings.append(Finding(os.path.relpath(place, root), str(record), (place,)))
        else:
            read[place] = record
            _check_outputs(report, (root, folder), place, record)
    features = tuple(f"{each.as_posix()}/" for each in data_folders(folder) if each.parent.name == "features")
    makers = {each["path"]: (record, each) for record in read.values() for each in record["outputs"]}
    elsewhere = {
        place: {
            each["path"]
            for each in record["inputs"]
            if is_derived(each["path"], *features) and _is_of_another_machine(record, each, makers.get(each["path"]))
        }
        for place, record in read.items()
    }
    for place, record in read.items():
        _check_inputs(report, (root, folder), place, record, elsewhere[place])
    if found := [os.path.relpath(place, root) for place, names in elsewhere.items() if names]:
        report.notes.append(OTHER_FEATURES.format(count=len(found), name=found[0]))
    check_completeness(report, folder, read, sealed=sealed)
    _check_checkpoints(report, root / "checkpoints" / folder.name)
    if sealed:
        _check_crate(report, root, folder.with_name(f"{folder.name}.crate.zip"))
    return report


def _require_own(folder: Path, known: Iterable[tuple[Path, dict[str, Any] | InputError]]) -> None:
    """Raise InputError where all records below `folder` are those of other folders, as where it was renamed."""
    own = [record for place, record in known if place.is_relative_to(folder) and not isinstance(record, InputError)]
    named = {Path(record["outputs"][0]["path"]).parts[:2] for record in own}
    if named and ("results", folder.name) not in named:
        raise InputError(f"{folder} is not the results that its records name: {Path(*sorted(named)[0])}")


def _require_a_size(folder: Path, records: Iterable[dict[str, Any]]) -> None:
    """Raise InputError where the files that records name are larger together than any project's."""
    total = sum(output["bytes"] for record in records for output in record["outputs"])
    if total > _MOST_HASHED:
        raise InputError(
            f"the records of {folder} name files of {total >> 30} GiB, more than any of ours: nothing was hashed"
        )


def _check_outputs(report: Audit, roots: tuple[Path, Path], place: Path, record: dict[str, Any]) -> None:
    """Hash the files that a stage wrote; they are in the folder of its record, wherever that was moved.

    `roots`: the project and results/<scale>, out of which no link is followed.
    """
    paths = [place.with_name(Path(output["path"]).name) for output in record["outputs"]]
    for output, path in zip(record["outputs"], paths, strict=True):
        report.recorded[output["path"]] = output["sha256"]
        if path.suffix in DERIVED and not os.path.lexists(path):
            report.not_made.append(output["path"])
            continue
        if not is_folder_inside(path.parent, *roots):
            report.linked.append(output["path"])  # data on another disk: a copy of their record is here
            continue
        if not (os.path.lexists(path) or os.path.lexists(place)):
            report.absent.append(output["path"])  # data that are not here: a copy of their record is
            continue
        if problem := _difference(report, path, output, record["stage"]):
            report.findings.append(Finding(output["path"], problem, (place, *paths)))


def _difference(report: Audit, path: Path, output: dict[str, Any], stage: str) -> str:
    """Return what is wrong with a file that a record lists, "" for nothing; a file of its size is hashed."""
    if not is_regular(path):
        return "is not a regular file" if os.path.lexists(path) else "is missing"
    if path.stat().st_size != output["bytes"]:
        report.hashes[output["path"]] = ""  # of other bytes than any that a record states
        return f"changed since stage {stage} wrote it"
    try:
        report.hashes[output["path"]] = file_sha256(path)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "" if report.hashes[output["path"]] == output["sha256"] else f"changed since stage {stage} wrote it"


def _is_of_another_machine(
    record: Mapping[str, Any], entry: Mapping[str, Any], made: tuple[Mapping[str, Any], Mapping[str, Any]] | None
) -> bool:
    """Return whether a stage read a file of other bytes, and as many, than the one recorded, which another machine than
    the stage's wrote. `made`: the record of the one there now, and the file in it."""
    if made is None:
        return False
    maker, output = made
    is_other = entry["sha256"] != output["sha256"] and entry["bytes"] == output["bytes"]
    return is_other and machine(record) != machine(maker)


def _check_inputs(
    report: Audit, roots: tuple[Path, Path], place: Path, record: dict[str, Any], elsewhere: Collection[str]
) -> None:
    """Compare what a stage read with what is there now; not the files that it read `elsewhere`.

    A stage that read other bytes than their writer recorded was made from damage, even where the file is repaired. The
    table of noise is excepted: it is calibrated again for other jobs of the paper, while the noise that a run used is
    in its own table, which dpfl.provenance.audit.records compares with that of its family.
    """
    root, scale = roots[0], roots[1].name
    outputs = tuple(place.with_name(Path(output["path"]).name) for output in record["outputs"])
    changed = {finding.path for finding in report.findings}
    for entry in record["inputs"]:
        name = entry["path"]
        other = report.recorded.get(name, entry["sha256"]) != entry["sha256"]
        if other and name not in elsewhere and not name.startswith(f"results/{scale}/accounting/"):
            problem = f"was made from another {name} than the one there now"
            report.findings.append(Finding(os.path.relpath(place, root), problem, (place, *outputs)))
        if name in report.hashes or name in changed:
            continue
        if not is_folder_inside((root / name).parent, *roots):
            if name.startswith(f"results/{scale}/"):
                changed.add(name)
                report.findings.append(Finding(name, _BEHIND_A_LINK, (root / name,)))
            elif name not in report.linked:
                report.linked.append(name)
            continue
        if name in report.absent or os.path.lexists(root / name):
            continue
        if name.startswith(f"results/{scale}/"):
            changed.add(name)
            report.findings.append(Finding(name, f"is gone; stage {record['stage']} read it", (place, *outputs)))
        else:
            report.absent.append(name)


def _check_checkpoints(report: Audit, folder: Path) -> None:
    """Find damaged checkpoints, which training would not use. A file of another name is none, and nobody's business."""
    left = _MOST_HASHED
    for path in (each for each in sorted(folder.rglob("*.pt")) if _CHECKPOINT.search(each.name)):
        if not is_inside(path, folder.parents[1]):
            continue
        left -= path.stat().st_size
        try:
            is_intact = left >= 0 and is_intact_sealed(path)
        except OSError as error:
            report.findings.append(Finding(str(path), f"cannot be read: {error.strerror}"))
            continue
        report.count("checkpoints")
        if not is_intact:
            report.findings.append(Finding(str(path), "is damaged: training would start from the beginning", (path,)))


def _check_crate(report: Audit, root: Path, path: Path) -> None:
    """Compare the crate's members with its description; note where results have changed since.

    Results that were made again are no damage: the crate is written after a run, by `dpfl crate`.
    """
    name = os.path.relpath(path, root)
    if not is_regular(path):
        if os.path.lexists(path):
            report.findings.append(Finding(name, "is not a regular file"))
        return
    try:
        described, members = _crate_hashes(path)
    except archive.UNREADABLE:
        report.findings.append(Finding(name, "is not a crate, or is damaged", (path,)))
        return
    report.hashes[name] = file_sha256(path)
    for member in (each for each in members if described.get(each) != members[each]):
        report.findings.append(Finding(name, f"contains another {member} than it describes", (path,)))
    for member in (each for each in described if each not in members and _is_a_member(each, described[each])):
        report.findings.append(Finding(name, f"lacks {member}, which it describes", (path,)))
    if older := [each for each in members if report.hashes.get(each, members[each]) != members[each]]:
        command = f"dpfl crate {name.removesuffix('.crate.zip')}"
        report.notes.append(
            f"{name} is of an earlier state of {len(older)} files, as {older[0]}: renew it with {command}"
        )


def _crate_hashes(path: Path) -> tuple[dict[str, str | None], dict[str, str]]:
    """Return the hash of every member of a crate, as described and as computed; raises one of `archive.UNREADABLE`."""
    content = archive.members(path)
    if len(content[METADATA]) > _LARGEST_METADATA:
        raise zipfile.BadZipFile("a description that is too large")
    described = {str(each["@id"]): each.get("sha256") for each in parse_json(content[METADATA])["@graph"]}
    archive.require_own_bytes(path, content)
    return described, {name: sha256(each).hexdigest() for name, each in content.items() if name != METADATA}


def _is_a_member(identifier: str, digest: str | None) -> bool:
    """Return whether a crate's description is of a file in the crate: not of one at an address or named by its hash."""
    return digest is not None and not identifier.startswith("#") and "://" not in identifier
