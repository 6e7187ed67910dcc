"""One flipped byte in every kind of file: the audit and the next stage that needs it name it; it is made anew.

The tiny project has a stand-in's arrays and features, noise, run tables, a table and figures; a fetched table and a
crate are added.
"""

import copy
import gzip
import hashlib
import os
import random
import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from dpfl import catalog
from dpfl.cli import app
from dpfl.data import datasets
from dpfl.engine import checkpoints
from dpfl.errors import InputError
from dpfl.files import record_path
from dpfl.provenance import manifest
from dpfl.provenance.audit import verify_results
from dpfl.provenance.audit.files import audit
from dpfl.provenance.record import StageRecorder

TABLE = b"age,sex,bmi,children,smoker,region,charges\n19,female,27.9,0,yes,southwest,16884.924\n"
JOB = "digits_scatter_linear_k10_seed0"
SETTINGS = ("--config", "results/demo/config.yaml")
OF_PAPER = ("--paper", "bhaskar2025", *SETTINGS)
RESULTS = Path("results/demo")
# how each stage is asked for
STAGES = {
    "fetch": ("data", "fetch", "--dataset", "insurance", "--file", "insurance.csv", *SETTINGS),
    "arrays": ("data", "arrays", "--dataset", "insurance", *SETTINGS),
    "features": ("features", "--dataset", "digits", *SETTINGS),
    "noise": ("calibrate", *OF_PAPER),
    "train": ("train", "--job", JOB, *OF_PAPER),
    "tables": ("tables", "--name", "table_2", *OF_PAPER),
    "figures": ("figures", "--name", "splits", *OF_PAPER),
    "claims": ("claims", *OF_PAPER),
    "crate": ("crate", str(RESULTS)),
}
MADE = [name for name in STAGES if name != "claims"]  # verdicts need all tables and figures: a file stands for them
# every kind of file, and the stage that needs it next
KINDS = {
    "raw data": ("data/raw/insurance/insurance.csv", "arrays"),
    "images": ("data/arrays/digits/train_x.npy", "features"),
    "labels": ("data/arrays/digits/test_y.npy", "train"),
    "a description": ("data/arrays/digits/description.json", "noise"),
    "features": ("data/features/digits/train_x.npy", "train"),
    "noise": ("results/demo/accounting/bhaskar2025.csv", "train"),
    "run table": (f"results/demo/runs/bhaskar2025/{JOB}.csv.gz", "tables"),
    "runs of a figure": (f"results/demo/runs/bhaskar2025/{JOB}.csv.gz", "figures"),
    "table": ("results/demo/tables/bhaskar2025_table_2.csv", "claims"),
    "figure's data": ("results/demo/figures/bhaskar2025_splits.csv", "claims"),
    "page": ("results/demo/tables/bhaskar2025_table_2.html", "crate"),
    "picture": ("results/demo/figures/bhaskar2025_splits.svg", "crate"),
    "bitmap": ("results/demo/figures/bhaskar2025_splits.png", "crate"),
    "verdicts": ("results/demo/claims/bhaskar2025.csv", "crate"),
}


READ_BY_ALL = {("noise", "another header"), ("run table", "cut")}
"""What the fast tests show of files that an audit cannot read."""


@pytest.fixture
def stage(pipeline):
    """A function that runs one stage as a process of its own would, knowing nothing of earlier ones."""
    return lambda name: pipeline.run(*STAGES[name])


def found() -> list[str]:
    """The paths in which an audit of files finds something."""
    return [finding.path for finding in audit(RESULTS).findings]


def stand_for(name: str, source: Path, result: Path) -> None:
    """Make what a stage makes of a file, with its record, without its work."""
    result.parent.mkdir(parents=True)
    result.write_text("made\n")
    used = StageRecorder(name, ("dpfl.grid.expansion",), {"paper": "bhaskar2025"})
    used.reads([source])
    used.write(record_path(result), [result])


@pytest.fixture(scope="module")
def shipped_datasets_back():
    """Read the shipped list of datasets again afterwards, also where the project cannot be made."""
    yield
    read_datasets_anew()


def read_datasets_anew() -> None:
    """Forget the list of datasets and what was made of its entries."""
    catalog.dataset_entries.cache_clear()
    datasets.load.cache_clear()


@pytest.fixture(scope="module")
def made(tiny_project, pipeline, tmp_path_factory, shipped_datasets_back):
    """The tiny project with a fetched dataset and a crate; not to be changed."""
    root = tmp_path_factory.mktemp("flips") / "project"
    shutil.copytree(tiny_project, root)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for name in ("Snakefile", "README.md"):
            Path(name).write_text(f"{name}\n")
        Path("mirror/insurance").mkdir(parents=True)
        Path("mirror/insurance/insurance.csv").write_bytes(TABLE)
        config = RESULTS / "config.yaml"
        config.write_text(config.read_text() + "data: {mirror: mirror}\n")
        entries = copy.deepcopy(catalog.dataset_entries())
        facts = {"bytes": len(TABLE), "sha256": hashlib.sha256(TABLE).hexdigest()}
        entries["insurance"]["files"] = {"insurance.csv": facts}
        Path("datasets.yaml").write_text(yaml.safe_dump(entries, sort_keys=False))
        patch.setattr(catalog, "DATASETS", root / "datasets.yaml")
        read_datasets_anew()
        stand_for("claims", Path(KINDS["table"][0]), Path(KINDS["verdicts"][0]))
        for name in ("fetch", "arrays", "crate"):
            if name == "crate":
                stand_for("train", Path("data/arrays/insurance/x.npy"), RESULTS / "runs/lowy2021/insurance.csv")
                manifest.write(RESULTS)
            done = pipeline.run(*STAGES[name])
            assert done.exit_code == 0, (name, done.output, done.exception)
        yield root


@pytest.fixture
def project(made, tmp_path, monkeypatch):
    """A copy of the project to damage, as the working folder."""
    shutil.copytree(made, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setattr(verify_results, "available_cpu_count", lambda: 1)
    return tmp_path / "project"


def flip(path: Path, place: int) -> None:
    """Change one bit of a file, as a bad disk or an edit does."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << place % 8
    path.write_bytes(data)


def places(path: Path) -> list[int]:
    """The first, the last and one byte between of a file."""
    size = path.stat().st_size
    return sorted({0, size - 1, random.Random(path.name).randrange(size)})


@pytest.mark.slow
def test_nothing_is_found_where_nothing_was_done(project, stage):
    assert found() == []
    for name in MADE:
        if name == "crate":
            manifest.write(RESULTS)
        assert stage(name).exit_code == 0, name
    assert found() == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_byte_is_named_by_the_audit_and_by_the_next_stage_that_needs_it(project, stage, kind):
    name, needed_by = KINDS[kind]
    path, before = Path(name), os.stat(name)
    whole_bytes = path.read_bytes()
    for place in places(path):
        flip(path, place)
        assert name in found(), place
        if place == places(path)[-1]:
            said = stage(needed_by).exception
            assert isinstance(said, InputError) and name in str(said) and "\n" not in str(said), (place, said)
        path.write_bytes(whole_bytes)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert found() == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["noise", "run table", "table", "figure's data", "page", "picture"])
def test_what_is_damaged_is_made_anew_on_request_to_the_same_bytes(project, stage, kind):
    path, before = Path(KINDS[kind][0]), Path(KINDS[kind][0]).read_bytes()
    flip(path, len(before) // 2)
    done = CliRunner().invoke(app, ["audit", "--quick", "--rebuild", str(RESULTS)])
    assert done.exit_code == 1 and str(path) in done.output, (done.output, done.exception)
    assert not path.exists() and not record_path(path.with_suffix(".csv")).exists()
    assert Path(KINDS["run table"][0]).exists() == (kind != "run table"), "runs outlive damage to their noise"
    for name in ("noise", "train", "tables", "figures"):
        assert stage(name).exit_code == 0, name
    manifest.write(RESULTS)
    assert path.read_bytes() == before and found() == []


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        pytest.param(kind, damage, marks=[] if (kind, damage) in READ_BY_ALL else pytest.mark.slow)
        for kind in ("noise", "run table")
        for damage in ("flipped", "cut", "another header", "empty")
    ],
)
def test_the_whole_audit_names_a_file_that_it_cannot_read(project, kind, damage):
    path = Path(KINDS[kind][0])
    packed = path.suffix == ".gz"
    text = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    changed = {"another header": text.replace(b"epsilon", b"epsilom"), "empty": b""}.get(damage, text)
    path.write_bytes(gzip.compress(changed, mtime=0) if packed else changed)
    if damage == "flipped":
        flip(path, path.stat().st_size // 2)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    done = CliRunner().invoke(app, ["audit", "--quick", str(RESULTS)])
    assert done.exit_code == 1 and f"{path} changed since stage" in done.output, done.exception


@pytest.mark.slow
def test_a_damaged_checkpoint_is_named_and_not_used(project, stage, caplog, monkeypatch):
    load, asked = checkpoints.load, []
    monkeypatch.setattr(checkpoints, "load", lambda path, digest: asked.append(path) or load(path, digest))
    assert stage("train").exit_code == 0
    manifest.write(RESULTS)  # as a run does at its end: the project's settings now name a mirror
    [kept] = asked
    run_table = Path(KINDS["run table"][0])
    before = run_table.read_bytes()
    for place in (0, 50, 200):
        checkpoints.save(kept, {"finished": [], "running": {}}, "of other settings")
        assert found() == []
        flip(kept, place)
        assert [Path(name).name for name in found()] == [kept.name]
    assert stage("train").exit_code == 0
    assert "is damaged and is not used" in caplog.text and not kept.exists()
    assert run_table.read_bytes() == before


def test_a_flipped_byte_of_a_record_never_stops_an_audit(project):
    """Most are found; in a record's free facts, as a version's digits, a flip is another record and is not."""
    place = record_path(Path(KINDS["table"][0]))
    record, outcomes = place.read_bytes(), []
    for position in range(0, len(record), 61):
        flip(place, position)
        outcomes.append(bool(found()))
        place.write_bytes(record)
    assert sum(outcomes) > 0.5 * len(outcomes) and found() == []
