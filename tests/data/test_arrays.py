"""The strict readers: the right answer or InputError, whatever the bytes."""

import io
import json
import math
import os
import struct

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import f_oneway
from sklearn.datasets import load_diabetes, load_digits
from sklearn.preprocessing import LabelEncoder

from dpfl.data import datasets
from dpfl.data.arrays import build_arrays, cifar, coloured, csv_table, idx, idx_labels, upsampled, write_dataset
from dpfl.data.fetch import configured, fetch
from dpfl.data.loading import load_description, load_images, load_table
from dpfl.errors import InputError

INSURANCE = datasets.load("insurance")
HEADER = "age,sex,bmi,children,smoker,region,charges\n"
ROWS = ["19,female,27.9,0,yes,southwest,16884.924\n", "18,male,33.77,1,no,southeast,1725.5523\n"]


def insurance(data: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Read the insurance table as its entry describes it."""
    return csv_table(data, INSURANCE.columns, INSURANCE.target, name)


def idx_bytes(array: np.ndarray) -> bytes:
    """Return the IDX file of an array, written from the format's description."""
    return bytes((0, 0, 8, array.ndim)) + b"".join(struct.pack(">I", n) for n in array.shape) + array.tobytes()


shapes = st.lists(st.integers(1, 6), min_size=1, max_size=3)


@settings(max_examples=50, deadline=None)
@given(shapes, st.randoms(use_true_random=False))
def test_idx_gives_back_what_was_written(shape, random):
    array = np.frombuffer(random.randbytes(math.prod(shape)), np.uint8).reshape(shape)
    assert np.array_equal(idx(idx_bytes(array), len(shape), "f"), array)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_idx_of_any_bytes_is_refused_or_exact(data):
    """What is accepted, written again, gives the same bytes: nothing was dropped, padded or guessed."""
    head = data.draw(st.sampled_from([b"", b"\0\0\x08\1", b"\0\0\x08\3", b"\0\0\x08\1\0\0\0\2", b"\0\0\x0d\1"]))
    raw = head + data.draw(st.binary(max_size=40))
    dimensions = data.draw(st.sampled_from([1, 3]))
    try:
        array = idx(raw, dimensions, "f")
    except InputError:
        return
    assert array.ndim == dimensions and idx_bytes(array) == raw


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "not an IDX file"),
        (b"\0\0\x08\3" + bytes(11), "not an IDX file"),
        (b"\0\0\x0b\1\0\0\0\1\7", "begins with '00 00 0b 01'"),
        (b"\0\0\x08\1\0\0\0\2\7", "9 bytes long.*promises 10"),
        (b"\0\0\x08\1\0\0\0\1\7\7", "10 bytes long.*promises 9"),
        (b"\0\0\x08\1\0\0\0\0", "shape \\(0,\\)"),
        (b"\0\0\x08\1\xff\xff\xff\xff\7", "promises 4294967303"),
        (b"\0\0\x08\1\0\0\0\2\7\x0a", "record 1 has label 10"),
    ],
)
def test_idx_labels_say_what_is_wrong(raw, says):
    with pytest.raises(InputError, match=f"^train-labels.*{says}"):
        idx_labels(raw, 10, "train-labels")


def test_idx_sizes_do_not_overflow():
    with pytest.raises(InputError, match=str(16 + (2**32 - 1) ** 3)):
        idx(b"\0\0\x08\3" + b"\xff" * 12 + bytes(16), 3, "f")


def test_cifar_gives_channels_rows_and_columns():
    """Record: label, then 1,024 red, green and blue values, each row by row (the dataset's own description)."""
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3072), dtype=np.uint8)
    raw = b"".join(bytes([label]) + row.tobytes() for label, row in zip([3, 0, 9, 1, 3], pixels, strict=True))
    images, labels = cifar(raw, 10, "f")
    assert labels.tolist() == [3, 0, 9, 1, 3] and labels.dtype == np.int64
    assert images.shape == (5, 3, 32, 32) and images.dtype == np.uint8
    for record, channel, row, column in [(0, 0, 0, 0), (4, 2, 31, 31), (2, 1, 7, 19)]:
        assert images[record, channel, row, column] == pixels[record, 1024 * channel + 32 * row + column]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 3), st.integers(-2, 2), st.randoms(use_true_random=False))
def test_cifar_of_any_bytes_is_refused_or_exact(records, extra, random):
    raw = random.randbytes(max(0, records * 3073 + extra))
    if records and not extra and random.random() < 0.5:
        raw = b"".join(bytes([random.randrange(10)]) + raw[3073 * i + 1 : 3073 * (i + 1)] for i in range(records))
    right = bool(raw) and len(raw) % 3073 == 0 and all(label < 10 for label in raw[::3073])
    if not right:
        with pytest.raises(InputError, match=r"^f"):
            cifar(raw, 10, "f")
        return
    images, labels = cifar(raw, 10, "f")
    again = b"".join(bytes([label]) + image.tobytes() for label, image in zip(labels.tolist(), images, strict=True))
    assert again == raw


def label_encoded(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y by pandas and scikit-learn, the route that the published experiments took."""
    table = pd.read_csv(io.StringIO(text))
    for column in ("sex", "smoker", "region"):
        table[column] = LabelEncoder().fit_transform(table[column])
    return table[list(INSURANCE.columns)].to_numpy(float), table["charges"].to_numpy(float)


def insurance_rows():
    numbers = st.floats(0, 1e6).map(lambda number: f"{number:.5f}")
    words = [st.sampled_from(kinds) for kinds in (["female", "male"], ["no", "yes"])]
    region = st.sampled_from(["northeast", "northwest", "southeast", "southwest"])
    ages = st.integers(0, 99).map(str)
    return st.tuples(ages, words[0], numbers, ages, words[1], region, numbers).map(",".join)


EVERY_CATEGORY = [
    "1,female,1,1,no,northeast,1",
    "2,male,2,2,yes,northwest,2",
    "3,male,3,3,yes,southeast,3",
    "4,male,4,4,yes,southwest,4",
]


@settings(max_examples=50, deadline=None)
@given(st.lists(insurance_rows(), max_size=6), st.sampled_from(["\n", "\r\n"]))
def test_insurance_agrees_with_pandas_and_scikit_learn(rows, newline):
    text = newline.join([HEADER.strip(), *EVERY_CATEGORY, *rows])
    x, y = insurance(text.encode(), "f")
    expected_x, expected_y = label_encoded(text)
    np.testing.assert_allclose(x, expected_x, rtol=1e-15)
    np.testing.assert_allclose(y, expected_y, rtol=1e-15)
    assert x.dtype == y.dtype == np.float64


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_insurance_of_any_bytes_is_refused_or_exact(data):
    """Noise after the header, or a bite out of a good table: refused, or what a plain split of the text says."""
    good = (HEADER + "".join(ROWS)).encode()
    place = data.draw(st.integers(0, len(good)))
    noise = data.draw(
        st.one_of(st.binary(max_size=6), st.sampled_from([b"1_0", b"nan", b"inf", b"1e999", b'"', b"\0"]))
    )
    raw = good[:place] + noise + good[place + data.draw(st.integers(0, 4)) :]
    try:
        x, y = insurance(raw, "f")
    except InputError as error:
        assert "\n" not in str(error)
        return
    codes = {"female": 0, "male": 1, "no": 0, "yes": 1, "northeast": 0, "northwest": 1, "southeast": 2, "southwest": 3}
    lines = [line for line in raw.decode().replace('"', "").splitlines()[1:]]
    table = np.array([[float(codes.get(cell, cell)) for cell in line.split(",")] for line in lines])
    assert np.array_equal(np.column_stack([x, y]), table) and np.isfinite(table).all()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEADER + ROWS[0] + ROWS[1].replace("33.77", ""), "f, row 2, column bmi: the cell is missing"),
        (HEADER + ROWS[0] + ROWS[1].replace("33.77", "tall"), "f, row 2, column bmi: 'tall' is not a finite number"),
        (HEADER + ROWS[0].replace("27.9", "nan"), "f, row 1, column bmi: 'nan' is not"),
        (HEADER + ROWS[0].replace("27.9", "1_0"), "f, row 1, column bmi: '1_0' is not"),
        (HEADER + ROWS[0].replace("27.9", "1e999"), "f, row 1, column bmi: '1e999' is not"),
        (HEADER + ROWS[0].replace("southwest", "north"), "f, row 1, column region: 'north' is not one of northeast"),
        (HEADER + "19,female,27.9\n", "f, row 1, column children: the cell is missing"),
        (HEADER + ROWS[0].strip() + ",7\n", "f, row 1: 8 cells"),
        (HEADER + ROWS[0] + "\n" + ROWS[1], "f, row 2, column age: the cell is missing"),
        (HEADER, "f holds no records"),
        ("", "f must begin with the header age,sex"),
        (HEADER.replace("bmi", "BMI") + ROWS[0], "found 'age,sex,BMI"),
        (HEADER + '1,"female', "f is not a CSV file"),
    ],
)
def test_insurance_names_the_row_and_the_column(text, says):
    with pytest.raises(InputError) as error:
        insurance(text.encode(), "f")
    assert says in str(error.value) and "\n" not in str(error.value)


def test_insurance_refuses_another_encoding():
    with pytest.raises(InputError, match="not a CSV file in UTF-8"):
        insurance((HEADER + "é").encode("latin-1"), "f")


@pytest.mark.parametrize("size", [28, 32, 8])
def test_the_enlargement_is_torch_s_bilinear_one(size):
    images = load_digits().images[:50]
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(images)[:, None], size=(size, size), mode="bilinear", align_corners=False
    )
    np.testing.assert_allclose(upsampled(images, size), expected[:, 0].numpy(), atol=1e-13)


@pytest.mark.parametrize(
    ("name", "original", "shape"), [("digits", "mnist", (1, 28, 28)), ("digits_rgb", "cifar10", (3, 32, 32))]
)
def test_the_digits_come_in_the_original_s_shape_with_their_name(tmp_path, name, original, shape):
    data = load_images(build_arrays(name, tmp_path / name))
    assert data.description["name"] == name and data.description["stand_in_for"] == original
    assert (
        "stand-in" in data.description["note"].lower()
        and data.description["note"].endswith(".")
        and data.description["licence"]
    )
    assert data.description["records"] == {"train": 1437, "test": 360}
    assert data.train_x.shape == (1437, *shape) and data.test_x.shape == (360, *shape)
    assert data.train_x.dtype == np.uint8 and data.train_y.dtype == np.int64
    labels = np.concatenate([data.train_y, data.test_y])
    assert np.array_equal(np.bincount(labels), np.bincount(load_digits().target))
    assert data.train_x.max() > 200 and np.bincount(data.test_y, minlength=10).min() > 10


def test_the_split_keeps_images_with_their_labels_and_loses_none(tmp_path):
    data = load_images(build_arrays("digits", tmp_path / "digits"))
    found = sorted(
        zip(
            map(bytes, np.concatenate([data.train_x, data.test_x])),
            np.concatenate([data.train_y, data.test_y]),
            strict=True,
        )
    )
    digits = load_digits()
    images = np.rint(upsampled(digits.images, 28) * 255 / 16).astype(np.uint8)
    assert found == sorted(zip(map(bytes, images), digits.target, strict=True))


def test_the_colours_tell_nothing_about_the_label(tmp_path):
    """Analysis of variance over the ten classes of the ground's channels and of the ratios between the contrasts.

    Ratios are free of the digit's shape. Five tests at level 1e-3: a false alarm has probability 5e-3, once and for
    all, the images being fixed. A ground that brightened by 2 of its 96 levels a class is found: second half.
    """
    data = load_images(build_arrays("digits_rgb", tmp_path / "rgb"))
    images, labels = np.concatenate([data.train_x, data.test_x]), np.concatenate([data.train_y, data.test_y])
    ground = images.min(axis=(2, 3)).astype(float)
    contrast = images.max(axis=(2, 3)) - ground
    ratios = np.log(contrast[:, 1:] / contrast[:, :1])

    def p_value(values):
        return f_oneway(*[values[labels == label] for label in range(10)]).pvalue

    assert min(p_value(values) for values in np.column_stack([ground, ratios]).T) > 1e-3
    assert p_value(ground[:, 0] + 2 * labels) < 1e-3


def test_ground_and_ink_are_the_image_s_own_and_apart():
    shapes = np.zeros((500, 2, 2))
    shapes[:, 0, 0] = 1.0
    images = coloured(shapes).astype(int)
    ink, ground = images[:, :, 0, 0], images[:, :, 1, 1]
    assert ground.min() >= 0 and ground.max() <= 95 and ink.min() >= 160 and ink.max() <= 255
    assert len(np.unique(np.column_stack([ink, ground]), axis=0)) == 500
    correlations = np.corrcoef(np.column_stack([ink, ground]).T)[np.triu_indices(6, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(500)  # independent: 15 tests, false alarm 9e-6
    assert np.array_equal(coloured(shapes), images)


def test_the_table_is_scikit_learn_s_standardised(tmp_path):
    data = load_table(build_arrays("diabetes", tmp_path / "diabetes"))
    table = load_diabetes()  # scikit-learn's own scaling: mean 0, sum of squares 1
    assert data.description["stand_in_for"] == "insurance" and "stand-in" in data.description["note"].lower()
    assert data.columns == tuple(table.feature_names) and data.description["records"] == {"all": 442}
    np.testing.assert_allclose(data.x, table.data * np.sqrt(442), atol=1e-10)
    assert np.array_equal(data.y, table.target)


@pytest.mark.parametrize("name", ["digits", "digits_rgb", "diabetes"])
def test_the_same_call_gives_the_same_bytes(tmp_path, name):
    first, second = build_arrays(name, tmp_path / "a"), build_arrays(name, tmp_path / "b")
    build_arrays(name, second)
    assert {p.name: p.read_bytes() for p in first.iterdir()} == {p.name: p.read_bytes() for p in second.iterdir()}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


RANDOM = np.random.default_rng(1)


def write_mnist(folder, train=7, test=3, pixels=(28, 28)):
    """Write four small IDX files and return what they hold."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for part, stem, count in (("train", "train", train), ("test", "t10k", test)):
        written[f"{part}_x"] = RANDOM.integers(0, 256, (count, *pixels), dtype=np.uint8)
        written[f"{part}_y"] = RANDOM.integers(0, 10, count, dtype=np.uint8)
        head = struct.pack(">4B3I", 0, 0, 8, 3, count, *pixels)
        (folder / f"{stem}-images-idx3-ubyte").write_bytes(head + written[f"{part}_x"].tobytes())
        head = struct.pack(">4BI", 0, 0, 8, 1, count)
        (folder / f"{stem}-labels-idx1-ubyte").write_bytes(head + written[f"{part}_y"].tobytes())
    return written


def write_cifar(folder, test_name):
    """Write six small batches and return their records as (n, 3073)."""
    folder.mkdir(parents=True, exist_ok=True)
    batches = []
    for name in [*(f"data_batch_{number}.bin" for number in range(1, 6)), test_name]:
        records = RANDOM.integers(0, 256, (4, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        (folder / name).write_bytes(records.tobytes())
        batches.append(records)
    return batches


@pytest.mark.parametrize("dataset", ["mnist", "fashion_mnist"])
def test_idx_files_become_images_and_labels(tmp_path, dataset):
    written = write_mnist(tmp_path / "raw")
    assert build_arrays(dataset, tmp_path / "out", tmp_path / "raw") == tmp_path / "out"
    data = load_images(tmp_path / "out")
    for part in ("train_x", "test_x"):
        assert np.array_equal(getattr(data, part)[:, 0], written[part])
    assert data.train_x.shape == (7, 1, 28, 28) and data.train_y.tolist() == written["train_y"].tolist()
    assert data.description["records"] == {"train": 7, "test": 3}
    facts = {name: data.description[name] for name in ("name", "title", "stand_in_for", "note", "licence")}
    entry = datasets.load(dataset)
    assert facts == {"name": dataset, "title": entry.title, "stand_in_for": None, "note": "", "licence": entry.licence}


VARIANT_NOTE = (
    "The CIFAR-10 test set used here holds 9,980 of the 10,000 official records (19 ships and 1 horse are missing)."
)


@pytest.mark.parametrize("test_name", ["test_batch.bin", "test_batch_9980.bin"])
def test_cifar_batches_follow_each_other_and_a_variant_is_named(tmp_path, test_name):
    batches = write_cifar(tmp_path / "raw", test_name)
    data = load_images(build_arrays("cifar10", tmp_path / "out", tmp_path / "raw"))
    train = np.concatenate(batches[:5])
    assert np.array_equal(data.train_x.reshape(20, 3072), train[:, 1:]) and np.array_equal(data.train_y, train[:, 0])
    assert np.array_equal(data.test_x.reshape(4, 3072), batches[5][:, 1:])
    assert data.description["note"] == ("" if test_name == "test_batch.bin" else VARIANT_NOTE)


def test_the_official_file_comes_before_its_variant(tmp_path):
    write_cifar(tmp_path / "raw", "test_batch_9980.bin")
    official = write_cifar(tmp_path / "raw", "test_batch.bin")
    data = load_images(build_arrays("cifar10", tmp_path / "out", tmp_path / "raw"))
    assert np.array_equal(data.test_x.reshape(4, 3072), official[5][:, 1:]) and data.description["note"] == ""


def test_the_insurance_table_is_encoded_and_unscaled(tmp_path):
    (tmp_path / "insurance.csv").write_text(
        "age,sex,bmi,children,smoker,region,charges\n19,female,27.9,0,yes,southwest,16884.924\n"
        "33,male,22.705,5,no,northwest,21984.47061\n"
    )
    data = load_table(build_arrays("insurance", tmp_path / "out", tmp_path))
    assert data.columns == ("age", "sex", "bmi", "children", "smoker", "region")
    assert data.x.tolist() == [[19, 0, 27.9, 0, 1, 3], [33, 1, 22.705, 5, 0, 1]]
    assert data.y.tolist() == [16884.924, 21984.47061] and data.description["records"] == {"all": 2}


def test_missing_and_disagreeing_files_are_named(tmp_path):
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte: no such file; fetch mnist first"):
        build_arrays("mnist", tmp_path / "out", tmp_path)
    write_mnist(tmp_path / "raw")
    (tmp_path / "raw" / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, 2) + b"\1\2")
    with pytest.raises(InputError, match=r"t10k-images-idx3-ubyte has 3 images, .*t10k-labels-idx1-ubyte 2 labels"):
        build_arrays("mnist", tmp_path / "out", tmp_path / "raw")
    write_mnist(tmp_path / "raw", pixels=(28, 27))
    with pytest.raises(InputError, match=r"images of \(28, 27\) pixels, expected \(28, 28\)"):
        build_arrays("mnist", tmp_path / "out", tmp_path / "raw")
    assert not (tmp_path / "out").exists()


def test_the_folder_is_replaced_or_stays(tmp_path, leftovers):
    description = {"name": "a"}
    write_dataset(tmp_path / "d", {"x": np.zeros(3), "old": np.zeros(1)}, description)
    with pytest.raises(ValueError):
        write_dataset(tmp_path / "d", {"x": np.array([object()])}, description)
    assert leftovers(tmp_path) == ["d/description.json", "d/old.npy", "d/x.npy"]
    write_dataset(tmp_path / "d", {"x": np.ones(3)}, description)
    assert leftovers(tmp_path) == ["d/description.json", "d/x.npy"] and np.load(tmp_path / "d" / "x.npy").sum() == 3
    (tmp_path / f".d.{os.getpid()}.partial" / "x").mkdir(parents=True)
    write_dataset(tmp_path / "d", {"x": np.ones(3)}, description)
    assert leftovers(tmp_path) == ["d/description.json", "d/x.npy"]
    (tmp_path / "empty").mkdir()
    write_dataset(tmp_path / "empty", {"x": np.ones(3)}, description)
    assert json.loads((tmp_path / "empty" / "description.json").read_text()) == description


def test_the_old_folder_comes_back_where_the_new_one_cannot_take_its_place(tmp_path, monkeypatch, leftovers):
    write_dataset(tmp_path / "d", {"x": np.zeros(3)}, {"name": "a"})
    rename = os.replace

    def refuse_new(source, target):
        if str(source).endswith(".partial") and ".previous." not in str(source):
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "replace", refuse_new)
    with pytest.raises(InputError, match="Input/output error"):
        write_dataset(tmp_path / "d", {"x": np.ones(3)}, {"name": "a"})
    assert leftovers(tmp_path) == ["d/description.json", "d/x.npy"] and np.load(tmp_path / "d" / "x.npy").sum() == 0


def test_a_full_disk_is_one_line_and_leaves_what_was_there(small_disk, leftovers):
    write_dataset(small_disk / "d", {"x": np.zeros(3)}, {"name": "a"})
    with pytest.raises(InputError, match=r"^cannot write .*/d: .*(No space left|requested and \d+ written)") as error:
        write_dataset(small_disk / "d", {"x": np.zeros(10**6)}, {"name": "a"})
    assert "\n" not in str(error.value)
    assert leftovers(small_disk) == ["d/description.json", "d/x.npy"] and len(np.load(small_disk / "d" / "x.npy")) == 3


# Records of each class. MNIST: the dataset's page; Fashion-MNIST and CIFAR-10 are balanced by design.
MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
SHORT_CIFAR_TEST = [1000] * 7 + [999, 981, 1000]


@pytest.mark.mirror
@pytest.mark.parametrize("dataset", ["mnist", "fashion_mnist", "cifar10", "insurance"])
def test_the_real_datasets_from_a_mirror(tmp_path, dataset):
    mirror = configured(None)
    if mirror is None:
        pytest.skip("set DPFL_MIRROR to a mirror of the datasets")
    files = [fetch(dataset, file, tmp_path / "raw", mirror) for file in datasets.load(dataset).official_files]
    folder = build_arrays(dataset, tmp_path / "out", tmp_path / "raw")
    if dataset == "insurance":
        data = load_table(folder)
        assert data.x.shape == (1338, 6)
        np.testing.assert_allclose(data.y.mean(), 13270.42, atol=0.005)
        assert data.x[:, 4].sum() == 274 and np.bincount(data.x[:, 5].astype(int)).tolist() == [324, 325, 364, 325]
        return
    data = load_images(folder)
    train = MNIST_TRAIN if dataset == "mnist" else [5000 if dataset == "cifar10" else 6000] * 10
    assert np.bincount(data.train_y).tolist() == train
    short = files[-1].name == "test_batch_9980.bin"
    assert np.bincount(data.test_y).tolist() == (
        MNIST_TEST if dataset == "mnist" else SHORT_CIFAR_TEST if short else [1000] * 10
    )
    assert bool(data.description["note"]) == short
    assert data.train_x.shape[1:] == ((3, 32, 32) if dataset == "cifar10" else (1, 28, 28))
    means = {"mnist": 0.1307, "fashion_mnist": 0.2860, "cifar10": 0.4734}  # of the training pixels in [0, 1]
    np.testing.assert_allclose(data.train_x.mean(dtype=np.float64) / 255, means[dataset], atol=2e-4)


def test_synthetic_data_have_a_description_without_arrays(tmp_path):
    folder = build_arrays("synthetic", tmp_path / "synthetic")
    assert [path.name for path in folder.iterdir()] == ["description.json"]
    description = load_description(folder)
    assert description["name"] == "synthetic" and description["stand_in_for"] is None and description["records"] == {}
