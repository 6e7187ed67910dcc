"""A stranger's own records: what is read, and what is refused in one line."""

import hashlib
import os
import pickle
import re
import zipfile

import numpy as np
import pytest
from PIL import Image

from dpfl.data.own_arrays import read
from dpfl.errors import InputError

X, Y = np.arange(60, dtype=np.float64).reshape(10, 2, 3) / 7, np.arange(10) % 3


def saved(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_a_file_of_x_and_y_is_split_and_its_records_stay_together(tmp_path):
    path = saved(tmp_path / "my.npz", x=X, y=Y)
    data = read(path)
    assert (data.name, data.classes, len(data.train_y), len(data.test_y)) == ("my.npz", 3, 8, 2) and data.held_back
    assert data.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    x, y = np.concatenate([data.train_x, data.test_x]), np.concatenate([data.train_y, data.test_y])
    order = np.argsort(x[:, 0, 0])
    assert x.dtype == np.float32 and y.dtype == np.int64
    assert np.array_equal(x[order], X.astype(np.float32)) and np.array_equal(y[order], Y)
    assert np.array_equal(read(path).test_x, data.test_x)


def test_given_parts_stay_as_they_are_and_bytes_become_fractions(tmp_path):
    bytes_ = np.array([[0, 51], [255, 102]], dtype=np.uint8)
    data = read(saved(tmp_path / "a.npz", train_x=bytes_, train_y=Y[:2], test_x=bytes_[:1], test_y=Y[2:3]))
    np.testing.assert_allclose(data.train_x, [[0, 0.2], [1, 0.4]], rtol=1e-6)
    assert data.train_y.tolist() == [0, 1] and data.test_y.tolist() == [2] and data.classes == 3
    whole = read(saved(tmp_path / "b.npz", x=bytes_.astype(np.int16), y=Y[:2]))
    assert max(whole.train_x.max(), whole.test_x.max()) == 255


NAN = np.where(np.arange(60).reshape(10, 2, 3) == 20, np.nan, X)


@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        ({"x": X}, "holds x; it must hold x, y or train_x, train_y, test_x, test_y"),
        ({"x": X, "y": Y, "w": Y}, "holds w, x, y; it must hold"),
        ({"x": X, "y": Y.astype(float)}, "y is float64 (10,); labels must be whole numbers, one a record"),
        ({"x": X, "y": np.eye(10, dtype=int)}, "y is int64 (10, 10); labels must be whole numbers, one a record"),
        ({"x": X, "y": Y - 1}, "y has the label -1; labels must be from 0"),
        ({"x": X, "y": Y + 2**40}, "y has the label 1099511627778; labels must be from 0"),
        ({"x": X, "y": Y[:9]}, "x has 10 records of shape (2, 3), y 9 labels"),
        ({"x": X[:, 0, 0], "y": Y}, "x is float64 (10,); it must be numbers, (records, ...)"),
        ({"x": X.astype(str), "y": Y}, "it must be numbers, (records, ...)"),
        ({"x": X[:0], "y": Y[:0]}, "x has 0 records"),
        ({"x": X[:1], "y": Y[:1]}, "has one record: two or more are needed"),
        ({"x": NAN, "y": Y}, "record 3 of x has a value that is not a finite number"),
        ({"x": np.where(np.isnan(NAN), 1e300, X), "y": Y}, "record 3 of x has a value that is not a finite number"),
        ({"train_x": X, "train_y": Y, "test_x": X[:, :1], "test_y": Y}, "shape (2, 3), test records (1, 3)"),
        ({"x": np.array([None, {}]), "y": Y[:2]}, "is no .npz file of plain arrays (numpy.savez): Object arrays"),
    ],
)
def test_what_cannot_be_trained_on_is_one_line(tmp_path, arrays, named):
    path = saved(tmp_path / "my.npz", **arrays)
    with pytest.raises(InputError, match=re.escape(named)) as refused:
        read(path)
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)


class Trap:
    """An object that leaves a file behind where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_nothing_is_unpickled_and_other_files_are_one_line(tmp_path):
    trap = str(tmp_path / "sprung")
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps(Trap(trap)))
    np.savez(tmp_path / "object.npz", x=np.array([Trap(trap)]), y=Y[:1])
    np.save(tmp_path / "single.npy", X)
    (tmp_path / "text.npz").write_text("x,y\n1,2\n")
    saved(tmp_path / "cut.npz", x=np.random.default_rng(0).random((99, 9)), y=np.arange(99))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:3000])
    with zipfile.ZipFile(tmp_path / "zip.npz", "w") as archive:
        archive.writestr("x.npy", b"no array")
        archive.writestr("y.npy", b"none")
    with pytest.raises(InputError, match=r"is not there: name an \.npz file"):
        read(tmp_path / "missing.npz")
    for name in ("pickle.npz", "object.npz", "single.npy", "text.npz", "cut.npz", "zip.npz"):
        with pytest.raises(InputError, match=r"is no \.npz file of plain arrays") as refused:
            read(tmp_path / name)
        assert "\n" not in str(refused.value)
    assert not (tmp_path / "sprung").exists()


def images(folder, classes, mode="L", count=5, shape=(4, 6)):
    """Write a folder of images; return their pixels by class and file."""
    draw, pixels = np.random.default_rng(len(str(folder))), {}
    for name in classes:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            own = draw.integers(0, 256, (*shape, *([3] if mode == "RGB" else [])), dtype=np.uint8)
            Image.fromarray(own).save(folder / name / f"{number}.png")
            pixels[name, number] = own
    return pixels


def test_a_folder_of_images_is_read_by_class(tmp_path):
    pixels = images(tmp_path / "all", ["cat", "dog"], mode="RGB")
    (tmp_path / "all" / ".hidden").write_text("x")
    for name in ("Thumbs.db", "desktop.ini", ".DS_Store"):  # of Windows and macOS
        (tmp_path / "all" / "cat" / name).write_bytes(b"no image")
    data = read(tmp_path / "all")
    assert data.name == "all" and data.train_x.shape == (8, 3, 4, 6) and data.classes == 2
    records = zip([*data.train_x, *data.test_x], [*data.train_y, *data.test_y], strict=True)
    seen = {tuple(np.rint(image.flatten() * 255).astype(int)): label for image, label in records}
    assert seen == {
        tuple(own.transpose(2, 0, 1).flatten().tolist()): ["cat", "dog"].index(name)
        for (name, _), own in pixels.items()
    }
    before = data.sha256
    (tmp_path / "all" / "cat").rename(tmp_path / "all" / "dot")
    assert read(tmp_path / "all").sha256 != before


def test_another_kind_of_file_is_told_how_to_become_one(tmp_path):
    (tmp_path / "d.csv").write_text("x,y\n1,0\n")
    np.save(tmp_path / "x.npy", X)
    for name in ("d.csv", "x.npy"):
        with pytest.raises(InputError) as refused:
            read(tmp_path / name)
        assert str(refused.value).endswith(
            f"{name} is no .npz file of plain arrays; numpy.savez('my.npz', x=x, y=y) writes one"
        )


def test_names_that_are_no_utf_8_are_read_and_shown(tmp_path):
    folder = tmp_path / os.fsdecode(b"m\xe9")
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        for number in range(2):
            Image.new("L", (3, 2), number).save(folder / label / os.fsdecode(b"%d\xe9.png" % number), "png")
    data = read(folder)
    assert data.name == "m\\udce9" and len(data.train_y) + len(data.test_y) == 4 and len(data.sha256) == 64


def test_train_and_test_folders_are_the_parts(tmp_path):
    pixels = images(tmp_path / "d" / "train", ["a", "b", "c"], count=3)
    images(tmp_path / "d" / "test", ["b"], count=2)
    data = read(tmp_path / "d")
    assert data.train_x.shape == (9, 1, 4, 6) and data.test_y.tolist() == [1, 1] and data.classes == 3
    assert not data.held_back
    np.testing.assert_allclose(data.train_x[4, 0] * 255, pixels["b", 1], atol=1e-4)


def test_a_folder_that_is_none_of_images_is_one_line(tmp_path):
    def refused(match):
        with pytest.raises(InputError, match=match) as found:
            read(tmp_path / "d")
        assert "\n" not in str(found.value)

    images(tmp_path / "d", ["a"])
    refused("has 1 classes: it needs two subfolders or more")
    images(tmp_path / "d", ["b"][:0])
    (tmp_path / "d" / "b").mkdir()
    other = tmp_path / "d" / "b" / "0.png"
    Image.fromarray(np.zeros((4, 5), np.uint8)).save(other)
    refused(r"0\.png has channels, height and width \(1, 4, 5\), others \(1, 4, 6\)")
    Image.fromarray(np.zeros((4, 6, 4), np.uint8)).save(other)
    refused(r"0\.png is an image of mode RGBA; convert it to L or RGB")
    other.write_bytes(b"\x89PNG\r\n\x1a\n cut")
    refused(r"0\.png is not an image that can be read")
    other.write_text("x")
    refused(r"d/b/0\.png is not an image that can be read: take it out of the folder of its class$")
    other.unlink()
    (tmp_path / "d" / "note.txt").write_text("x")
    refused(r"note\.txt is not a folder of a class")
