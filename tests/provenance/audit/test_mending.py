"""Damaged pages are removed with all that their stage wrote; nothing else is."""

import json
import os

import pytest

from dpfl.files import record_path
from dpfl.provenance.audit.mending import remove_damaged_pages
from dpfl.provenance.record import StageRecorder


@pytest.fixture
def pages(chain):
    """Two tables of a CSV, a page that Git holds and a page that is derived."""
    (chain / "tables").mkdir()
    made = []
    for name in "ab":
        files = [chain / "tables" / f"{name}{ending}" for ending in (".csv", ".md", ".html")]
        for path in files:
            path.write_text(path.name)
        StageRecorder("tables", ("dpfl.grid.expansion",)).write(record_path(files[0]), files)
        made.append(files)
    return made


def test_intact_pages_stay(pages):
    assert remove_damaged_pages(pages[0][0].parents[1]) == []


def test_pages_without_what_git_does_not_hold_stay(pages):
    (csv, page, derived), _ = pages
    derived.unlink()
    assert remove_damaged_pages(csv.parents[1]) == []
    derived.write_text("another")
    assert remove_damaged_pages(csv.parents[1]) == [csv, page, derived, record_path(csv)]


@pytest.mark.parametrize("damage", ["edited", "deleted", "pipe", "record"])
def test_a_damaged_page_goes_with_what_its_stage_wrote(pages, damage):
    (csv, page, _), others = pages
    if damage == "edited":
        page.write_text("")
    elif damage == "record":
        record_path(csv).write_text("{")
    else:
        page.unlink()
    if damage == "pipe":
        os.mkfifo(page)
    removed = remove_damaged_pages(csv.parents[1])
    assert record_path(csv) in removed and not record_path(csv).exists()
    assert csv.exists() is (damage == "record")
    assert all(path.exists() for path in (*others, record_path(others[0])))


def test_neither_links_nor_pages_of_an_earlier_version_are_removed(pages, tmp_path):
    (csv, page, _), _ = pages
    victim = tmp_path / "thesis.md"
    victim.write_text("years")
    page.unlink()
    page.symlink_to(victim)
    remove_damaged_pages(csv.parents[1])
    assert victim.read_text() == "years" and page.is_symlink()
    place = record_path(pages[1][0])
    place.write_text(json.dumps(json.loads(place.read_text()) | {"format": "dpfl-record/1"}))
    pages[1][1].write_text("another")
    assert remove_damaged_pages(csv.parents[1]) == [] and place.exists()
