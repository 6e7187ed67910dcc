"""Reading: what the folder says, or one line; never an array that is not what it seems."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpfl.data.arrays import write_dataset
from dpfl.data.loading import load_images, load_table
from dpfl.errors import InputError

DESCRIPTION = {"name": "d", "title": "D", "stand_in_for": None, "note": "", "licence": "free"}


def image_arrays():
    x = np.arange(6 * 1 * 2 * 2, dtype=np.uint8).reshape(6, 1, 2, 2)
    y = np.arange(6)
    return {"train_x": x[:4], "train_y": y[:4], "test_x": x[4:], "test_y": y[4:]}


@pytest.fixture
def images(tmp_path):
    arrays = image_arrays()
    write_dataset(tmp_path / "i", arrays, DESCRIPTION | {"records": {"train": 4, "test": 2}})
    return tmp_path / "i"


@pytest.fixture
def table(tmp_path):
    arrays = {"x": np.arange(6.0).reshape(3, 2), "y": np.arange(3.0)}
    write_dataset(tmp_path / "t", arrays, DESCRIPTION | {"records": {"all": 3}, "columns": ["a", "b"]})
    return tmp_path / "t"


def test_images_come_back_memory_mapped_and_read_only(images):
    data = load_images(images)
    for name, array in image_arrays().items():
        assert np.array_equal(getattr(data, name), array)
    assert isinstance(data.train_x, np.memmap) and isinstance(data.test_x, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        data.train_x[0] = 0


def test_a_table_comes_back_with_its_columns(table):
    data = load_table(table)
    assert data.columns == ("a", "b") and data.x.tolist() == [[0, 1], [2, 3], [4, 5]] and data.y.tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["description.json", "train_x.npy", "test_y.npy"])
def test_a_missing_file_is_named(images, name):
    (images / name).unlink()
    with pytest.raises(InputError, match=f"{name}: no such file; build its arrays first"):
        load_images(images)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere/description.json: no such file"):
        load_images(tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"name": 1}', "[" * 100_000, "\ud800"])
def test_a_malformed_description_is_named(images, text):
    (images / "description.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(InputError, match=r"description\.json") as error:
        load_images(images)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("train_x", np.zeros((4, 1, 2, 2))),
        ("train_x", np.zeros((4, 2, 2), np.uint8)),
        ("train_x", np.zeros((3, 1, 2, 2), np.uint8)),
        ("test_x", np.zeros((2, 1, 2, 3), np.uint8)),
        ("train_y", np.zeros(4, np.int32)),
        ("train_y", np.array([0, 1, -1, 2])),
        ("test_y", np.zeros(3, np.int64)),
    ],
)
def test_arrays_that_are_not_as_promised_are_refused(images, name, array):
    np.save(images / f"{name}.npy", array)
    with pytest.raises(InputError, match="build the arrays"):
        load_images(images)


def test_pickles_are_refused_unopened(images):
    np.save(images / "train_y.npy", np.array([{"a": 1}] * 4), allow_pickle=True)
    with pytest.raises(InputError, match=r"train_y\.npy is not a complete array"):
        load_images(images)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_table_with_a_value_that_is_not_finite_is_refused(table, value):
    np.save(table / "y.npy", np.array([0.0, value, 2.0]))
    with pytest.raises(InputError, match="not finite"):
        load_table(table)


def test_columns_must_be_named(table):
    description = json.loads((table / "description.json").read_text())
    (table / "description.json").write_text(json.dumps(description | {"columns": ["a"]}))
    with pytest.raises(InputError, match=r"x.npy has 2 columns, description.json names 1"):
        load_table(table)
    (table / "description.json").write_text(json.dumps({**description, "columns": None}))
    with pytest.raises(InputError, match="must name the table's columns"):
        load_table(table)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_array_is_refused_or_of_the_promised_kind(images, data):
    """A flipped byte, a cut, noise, or an archive in an array's place: InputError, or an array as described."""
    arrays = image_arrays()
    path = images / "train_x.npy"
    with path.open("wb") as stream:
        np.save(stream, arrays["train_x"])
    good = path.read_bytes()
    raw = bytearray(good[: data.draw(st.integers(0, len(good)))] if data.draw(st.booleans()) else good)
    if raw:
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(data.draw(st.sampled_from([bytes(raw), b"PK\3\4" + bytes(raw), b"\x93NUMPY" + bytes(raw)])))
    try:
        read = load_images(images).train_x
    except InputError as error:
        assert "train_x.npy" in str(error) or "differ in shape" in str(error)
    else:
        assert read.dtype == np.uint8 and read.shape == (4, 1, 2, 2)
