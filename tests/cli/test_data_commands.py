"""`dpfl data` and `dpfl features`: what their records name, hashed by hashlib, and inputs that were tampered with."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from dpfl.cli import app
from dpfl.data import arrays, datasets, fetch
from dpfl.errors import InputError
from dpfl.features import scattering
from dpfl.files import record_path
from dpfl.provenance.record import StageRecorder

ARRAYS = Path("data/arrays/digits")

pytestmark = pytest.mark.usefixtures("empty_project")


def call(*arguments: str):
    done = CliRunner().invoke(app, list(arguments))
    if done.exception:
        raise done.exception
    return done


def hashes(record: dict, kind: str) -> dict[str, str]:
    """The files that a record names, with their hashes."""
    return {each["path"]: each["sha256"] for each in record[kind]}


def hashed(*paths: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def read(path: Path) -> dict:
    return json.loads(record_path(path).read_text())


def store(path: Path, text: str) -> Path:
    """Write a file with a record of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    StageRecorder("made", ("dpfl.files",), {}).write(record_path(path), [path])
    return path


def test_a_stand_in_is_made_and_every_array_is_in_its_record():
    call("data", "arrays", "--dataset", "digits")
    files = [path for path in ARRAYS.iterdir() if not path.name.endswith(".record.json")]
    assert {path.name for path in files} >= {
        "description.json",
        "train_x.npy",
        "train_y.npy",
        "test_x.npy",
        "test_y.npy",
    }
    record = read(ARRAYS / "description.json")
    assert hashes(record, "outputs") == hashed(*files) and record["inputs"] == []
    assert record["settings"]["dataset"] == "digits"


@pytest.fixture
def fetched(monkeypatch) -> list[Path]:
    """Two files as fetched, the second as a variant under a name of its own; unpacking writes one array."""
    folder = Path("data/raw/mnist")
    files = [store(folder / "a.gz", "a"), folder / "b_variant.gz"]
    files[1].write_text("b")
    StageRecorder("data fetch", ("dpfl.files",), {}).write(record_path(folder / "b.gz"), [files[1]])
    monkeypatch.setattr(datasets, "load", lambda name: SimpleNamespace(official_files=["a.gz", "b.gz"], decoder="idx"))
    monkeypatch.setattr(datasets, "digest", lambda name: "of the entry")
    monkeypatch.setattr(
        arrays,
        "build_arrays",
        lambda name, out, raw: out.mkdir(parents=True) or (out / "description.json").write_text("{}"),
    )
    return files


def test_arrays_are_made_of_the_files_that_were_fetched_under_whatever_name(fetched):
    call("data", "arrays", "--dataset", "mnist")
    record = read(Path("data/arrays/mnist/description.json"))
    assert hashes(record, "inputs") == hashed(*fetched)
    assert record["settings"] == {"dataset": "mnist", "entry": "of the entry"}


@pytest.mark.parametrize("place", [0, 1])
def test_a_fetched_file_that_changed_makes_no_arrays(fetched, place):
    fetched[place].write_text("tampered")
    with pytest.raises(InputError, match=fetched[place].name):
        call("data", "arrays", "--dataset", "mnist")
    assert not Path("data/arrays/mnist").exists()


def test_a_fetched_variant_is_recorded_where_the_official_file_is_looked_for(monkeypatch):
    def fetched(dataset, file, folder, mirror, seconds, progress):
        folder.mkdir(parents=True)
        (folder / "labels_variant.gz").write_text("labels")
        return folder / "labels_variant.gz"

    official, variant = (
        SimpleNamespace(file=name, note=f"note of {name}") for name in ("labels.gz", "labels_variant.gz")
    )
    entry = SimpleNamespace(licence="free", accepted=lambda file: [official, variant])
    monkeypatch.setattr(fetch, "fetch", fetched)
    monkeypatch.setattr(datasets, "load", lambda name: entry)
    call("data", "fetch", "--dataset", "mnist", "--file", "labels.gz")
    record = read(Path("data/raw/mnist/labels.gz"))
    assert hashes(record, "outputs") == hashed(Path("data/raw/mnist/labels_variant.gz"))
    expected = {"dataset": "mnist", "file": "labels.gz", "licence": "free", "note": "note of labels_variant.gz"}
    assert record["settings"] == expected


@pytest.fixture
def images(monkeypatch) -> list[Path]:
    """Arrays of a few bytes, each with a record, and features that are copies of them."""

    def build(source: Path, out: Path, progress) -> None:
        out.mkdir(parents=True)
        for name in ("description.json", "train_x.npy", "test_x.npy"):
            (out / name).write_text("features of " + (source / name).read_text())

    monkeypatch.setattr(scattering, "build_features", build)
    return [store(ARRAYS / name, name) for name in ("description.json", "train_x.npy", "test_x.npy", "train_y.npy")]


def test_features_are_made_of_images_and_no_labels(images):
    call("features", "--dataset", "digits")
    [folder] = {path.parent for path in Path("data").rglob("*.npy")} - {ARRAYS}
    record = read(folder / "description.json")
    assert hashes(record, "inputs") == hashed(*images[:3])
    assert hashes(record, "outputs") == hashed(*(folder / path.name for path in images[:3]))


def test_images_that_changed_make_no_features(images):
    images[3].write_text("labels do not matter")
    images[2].write_text("tampered")
    with pytest.raises(InputError, match=r"test_x\.npy"):
        call("features", "--dataset", "digits")
    assert not [path for path in Path("data").rglob("*.npy") if path.parent != ARRAYS]


def test_features_are_the_same_bytes_however_many_threads_torch_has():
    draw = np.random.default_rng(0)
    shapes = {"train_x": (64, 1, 28, 28), "test_x": (2, 1, 28, 28)}
    made = {name: draw.integers(0, 256, shape, dtype=np.uint8) for name, shape in shapes.items()}
    made |= {f"{name[:-1]}y": np.arange(len(images)) % 10 for name, images in made.items()}
    records = {"train": 64, "test": 2}
    described = {"name": "digits", "title": "", "stand_in_for": "mnist", "note": "", "licence": "none"}
    arrays.write_dataset(ARRAYS, made, {**described, "records": records})
    StageRecorder("data arrays", ("dpfl.data.arrays",)).write(
        record_path(ARRAYS / "description.json"), [*ARRAYS.iterdir()]
    )
    features = Path("data/features/digits/train_x.npy")
    written = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            call("features", "--dataset", "digits")
            written.append(features.read_bytes())
    finally:
        torch.set_num_threads(before)
    assert written[0] == written[1] == written[2]
