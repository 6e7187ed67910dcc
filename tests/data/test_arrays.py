"""Arrays: small raw files become arrays of the promised shapes, all or none; the real ones match published counts."""

import json
import os
import struct

import numpy as np
import pytest

from dpfl.data import datasets
from dpfl.data.arrays import build_arrays, write_dataset
from dpfl.data.fetch import configured, fetch
from dpfl.data.loading import load_description, load_images, load_table
from dpfl.errors import InputError

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
