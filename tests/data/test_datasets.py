"""Every entry of datasets.yaml is complete, a new one is all that a new dataset needs, and look-ups name mistakes."""

import dataclasses
import re
from urllib.parse import urlsplit

import numpy as np
import pytest

from dpfl import catalog
from dpfl.data import datasets
from dpfl.data.arrays import build_arrays
from dpfl.data.loading import load_table
from dpfl.errors import InputError
from dpfl.grid import configuration
from dpfl.grid.training_job import TrainingJob
from dpfl.pipeline import cost, plan

PUBLISHED = ("mnist", "fashion_mnist", "cifar10", "insurance")


@pytest.mark.parametrize("name", datasets.names())
def test_every_entry_is_complete(name):
    entry = datasets.load(name)
    assert entry.title and entry.licence
    assert bool(entry.shape) == bool(entry.classes) and bool(entry.columns) == bool(entry.target)
    assert bool(entry.shape) + bool(entry.columns) == (entry.decoder != "none")
    assert set(entry.records) == ({"train", "test"} if entry.shape else {"all"} if entry.columns else set())
    assert bool(entry.files) == bool(entry.mirror_folder) and (entry.files or name not in PUBLISHED)
    assert not entry.stand_in_for or (entry.stand_in_for in datasets.names() and entry.note.endswith("."))
    assert urlsplit(entry.licence_url).scheme == "https" or entry.decoder == "none"


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_file_can_be_fetched_and_checked(name):
    files = datasets.load(name).files
    assert len({each.file for each in files}) == len(files)
    for each in files:
        assert re.fullmatch(r"[0-9a-f]{64}", each.sha256) and each.bytes > 0
        assert all(urlsplit(url).scheme in ("http", "https") and urlsplit(url).netloc for url in each.urls)
        assert each.urls or each.variant_of, "an official file has a public address"
        assert not each.variant_of or each.note.endswith("."), "a variant carries a sentence"
        assert bool(each.member) == bool(each.archive) and (not each.archive or len(each.archive.sha256) == 64)


def test_sizes_are_those_of_the_formats():
    sizes = {(name, each.file): each.bytes for name in PUBLISHED for each in datasets.load(name).files}
    for name in ("mnist", "fashion_mnist"):
        records = datasets.load(name).records
        for part, stem in (("train", "train"), ("test", "t10k")):
            assert sizes[name, f"{stem}-images-idx3-ubyte"] == 16 + records[part] * 28 * 28
            assert sizes[name, f"{stem}-labels-idx1-ubyte"] == 8 + records[part]
    assert sizes["cifar10", "data_batch_1.bin"] == sizes["cifar10", "test_batch.bin"] == 10_000 * 3073
    assert sizes["cifar10", "test_batch_9980.bin"] == 9_980 * 3073


def test_official_files_leave_out_variants():
    assert [len(datasets.load(name).official_files) for name in PUBLISHED] == [4, 4, 6, 1]
    found = datasets.load("cifar10").accepted("test_batch.bin")
    assert [each.file for each in found] == ["test_batch.bin", "test_batch_9980.bin"] and "9,980" in found[1].note


TOY = {
    "title": "Toy",
    "decoder": "csv",
    "columns": {"height": [], "kind": ["cat", "dog"]},
    "target": "weight",
    "records": {"all": 3},
    "licence": "none",
    "mirror_folder": "toys",
    "files": {"toy.csv": {"bytes": 54, "sha256": "0" * 64, "urls": ["https://example.org/toy.csv"]}},
}


def test_an_entry_is_all_that_a_new_table_needs(entries, tmp_path):
    entries(toy=TOY)
    (tmp_path / "toy.csv").write_text("height,kind,weight\n1.5,dog,10\n0.5,cat,4\n2,dog,30\n")
    table = load_table(build_arrays("toy", tmp_path / "out", tmp_path))
    assert table.columns == ("height", "kind") and table.y.tolist() == [10, 4, 30]
    assert np.array_equal(table.x, [[1.5, 1], [0.5, 0], [2, 1]])
    assert table.description["title"] == "Toy" and table.description["records"] == {"all": 3}
    only = {"only": {"dataset": ["toy"]}}
    assert configuration.resolve(only)["only"]["dataset"] == ["toy"]
    given = {"batch_size": 1, "epochs": 4}
    job = TrainingJob("p", "async_dpsgd", "s", {"dataset": "toy", **given}, ({},), (0,), {"device": "cpu"})
    assert cost.work_of(job) == cost.WorkCount(12, 12) and cost.estimate(job).seconds > 0


def test_an_entry_is_all_that_new_images_in_a_known_format_need(entries):
    entries(tiny=IMAGES | {"shape": [3, 8, 8]}, grey=IMAGES | {"shape": [1, 8, 8]})
    assert [cost.cost_key(images_job(name)) for name in ("tiny", "grey")] == [
        "fedavg_images/scatter_linear/colour",
        "fedavg_images/scatter_linear/grey",
    ]
    assert cost.work_of(images_job("tiny")).steps == 5
    assert cost.estimate(images_job("tiny")).memory_mb > 1024
    cheap, dear = (plan._features_seconds(name) for name in ("grey", "tiny"))
    assert dear - plan.FEATURES_SECONDS == pytest.approx(3 * (cheap - plan.FEATURES_SECONDS))


IMAGES = {"title": "T", "decoder": "idx", "classes": 2, "records": {"train": 10, "test": 4}, "licence": "none"}


def images_job(dataset):
    """A job of an image model: one client with all records in batches of two, one round."""
    given = {"dataset": dataset, "model": "scatter_linear", "clients": 1, "client_share": 1.0, "batch_size": 2}
    machine = {"device": "cpu", "memory_gb": 1}
    return TrainingJob(
        "p", "fedavg_images", "s", given, ({"epsilon": 1.0, "local_epochs": 1, "rounds": 1},), (0,), machine
    )


def test_unknown_names_get_one_line_with_the_known_ones(tmp_path):
    for ask in (
        datasets.load,
        datasets.digest,
        lambda name: build_arrays(name, tmp_path / "out"),
        lambda name: cost.estimate(images_job(name)),
        plan._features_seconds,
    ):
        with pytest.raises(InputError, match=r"'imagenet'; known: mnist, fashion_mnist, cifar10, insurance, digits"):
            ask("imagenet")
    with pytest.raises(InputError, match=r"only.dataset.0 is 'imagenet'.*'mnist'"):
        configuration.resolve({"only": {"dataset": ["imagenet"]}})
    with pytest.raises(InputError, match=r"'passwd' in dataset 'insurance'.*insurance.csv"):
        datasets.load("insurance").accepted("passwd")
    with pytest.raises(InputError, match="dataset insurance has no images"):
        cost.estimate(images_job("insurance"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"colour": "red"}, r"entry toy: unknown key colour; known here: title"),
        ({"files": {"toy.csv": {"bytes": 1}}}, r"entry toy: files\.toy\.csv lacks sha256"),
        (
            {"files": {"toy.csv": TOY["files"]["toy.csv"] | {"sha": "0"}}},
            r"unknown key files\.toy\.csv\.sha; known here: by",
        ),
        ({"files": {"toy.csv": TOY["files"]["toy.csv"] | {"archive": {"bytes": 1}}}}, r"archive lacks sha256"),
        (
            {"files": {"toy.csv": TOY["files"]["toy.csv"] | {"urls": "https://a"}}},
            r"urls is 'https://a'; it must be a list",
        ),
        (
            {"files": {"toy.csv": TOY["files"]["toy.csv"] | {"bytes": "many"}}},
            r"bytes is 'many'; it must be an integer",
        ),
        ({"columns": {"height": None}}, r"columns\.height is None; it must be a list"),
        ({"columns": {"kind": "cat"}}, r"columns\.kind is 'cat'; it must be a list"),
        ({"records": 3}, r"records is 3; it must be keys and values"),
        ({"decoder": "arff"}, r"toy: no decoder 'arff'; known: idx, cifar_binary, csv"),
    ],
)
def test_a_wrong_entry_gets_one_line(entries, tmp_path, change, reason):
    entries(toy=TOY | change)
    with pytest.raises(InputError, match=reason) as error:
        build_arrays("toy", tmp_path / "out", tmp_path)
    assert "\n" not in str(error.value)


def test_the_digest_is_of_what_decides_numbers_and_of_its_own_entry_only(entries):
    def digest(**change):
        entries(toy=TOY | change)
        return datasets.digest("toy")

    first = digest()
    moved = {"toy.csv": TOY["files"]["toy.csv"] | {"urls": ["https://example.org/elsewhere"]}}
    assert digest(files=moved) == digest(licence_url="https://example.org") == first
    entries(toy=TOY, other=IMAGES)
    assert datasets.digest("toy") == first
    other_bytes = {"toy.csv": TOY["files"]["toy.csv"] | {"sha256": "1" * 64}}
    changed = [{"files": other_bytes}, {"columns": {"height": []}}, {"decoder": "idx"}, {"note": "n"}, {"target": "w"}]
    changed.append({"columns": dict(reversed(TOY["columns"].items()))})
    assert len({first, *(digest(**change) for change in changed)}) == len(changed) + 1


def test_entries_cannot_be_changed_by_a_reader():
    with pytest.raises(dataclasses.FrozenInstanceError):
        datasets.load("mnist").title = "another"
    assert datasets.load("mnist") == datasets.load("mnist") and catalog.DATASETS.suffix == ".yaml"
