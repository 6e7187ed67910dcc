"""The table of sources is whole, and its look-ups name what is wrong."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest

from dpfl.data.datasets import accepted, is_published, official_files, sources
from dpfl.errors import InputError

DATASETS = ("mnist", "fashion_mnist", "cifar10", "insurance")


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_row_can_be_fetched_and_checked(dataset):
    rows = sources(dataset)
    assert len({row.file for row in rows}) == len(rows)
    for row in rows:
        assert re.fullmatch(r"[0-9a-f]{64}", row.sha256)
        assert row.bytes > 0
        assert row.licence and row.mirror_folder
        assert all(urlsplit(url).scheme in ("http", "https") and urlsplit(url).netloc for url in row.urls)
        assert row.urls or row.variant_of, "an official file has a public address"
        assert not row.variant_of or row.note.endswith("."), "a variant carries a sentence"
        assert bool(row.member) == bool(row.archive_sha256) == bool(row.archive_bytes)


def test_sizes_are_those_of_the_formats():
    sizes = {row.file: row.bytes for dataset in DATASETS[:3] for row in sources(dataset)}
    assert sizes["train-images-idx3-ubyte"] == 16 + 60_000 * 28 * 28
    assert sizes["t10k-labels-idx1-ubyte"] == 8 + 10_000
    assert sizes["data_batch_1.bin"] == sizes["test_batch.bin"] == 10_000 * 3073
    assert sizes["test_batch_9980.bin"] == 9_980 * 3073


def test_official_files_leave_out_variants():
    assert [len(official_files(dataset)) for dataset in DATASETS] == [4, 4, 6, 1]
    assert [row.file for row in accepted("cifar10", "test_batch.bin")] == ["test_batch.bin", "test_batch_9980.bin"]
    assert "9,980" in accepted("cifar10", "test_batch.bin")[1].note


def test_a_stand_in_is_not_published():
    assert [is_published(name) for name in ("mnist", "insurance", "digits")] == [True, True, False]


def test_unknown_names_are_told_with_the_known_ones():
    with pytest.raises(InputError, match=r"'imagenet'.*mnist, fashion_mnist, cifar10, insurance"):
        sources("imagenet")
    with pytest.raises(InputError, match=r"'passwd' in dataset 'insurance'.*insurance.csv"):
        accepted("insurance", "passwd")
