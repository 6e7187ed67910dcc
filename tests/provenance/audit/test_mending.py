"""Damaged pages are removed with all that their stage wrote; nothing else is."""

import json
import os

import pytest

from dpfl.files import record_path
from dpfl.provenance.audit.files import remove_damaged_pages
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


def test_pages_of_an_earlier_version_stay(pages):
    place = record_path(pages[1][0])
    place.write_text(json.dumps(json.loads(place.read_text()) | {"format": "dpfl-record/1"}))
    pages[1][1].write_text("another")
    assert remove_damaged_pages(place.parents[1]) == [] and place.exists()


def in_place_of(path, kind, victim):
    """Put what is no file in the place of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(victim if kind == "link" else "nowhere")


@pytest.mark.parametrize("kind", ["link", "dead link", "pipe"])
@pytest.mark.parametrize("place", ["tables/a.csv", "tables/a.md", "tables/a.html", "tables/a.csv.record.json"])
def test_what_is_no_file_in_the_place_of_a_page_goes_and_what_a_link_points_at_stays(chain, pages, place, kind):
    victim = chain.parents[2] / "thesis.md"
    victim.write_text("years")
    in_place_of(chain / place, kind, victim)
    assert chain / place in remove_damaged_pages(chain)
    assert not os.path.lexists(chain / place) and not record_path(pages[0][0]).exists()
    assert victim.read_text() == "years" and all(path.exists() for path in pages[1])


ENDS = ("README.md", "report.html", "audit.txt", "manifest.json", "workflow.html", "logs/x/y.log", "benchmarks/a.tsv")


@pytest.mark.parametrize("kind", ["link", "dead link", "pipe"])
@pytest.mark.parametrize("place", ENDS)
def test_what_is_no_file_where_a_run_writes_goes_and_files_stay(chain, pages, place, kind):
    victim = chain.parents[2] / "thesis.md"
    victim.write_text("years")
    for name in ENDS:
        (chain / name).parent.mkdir(parents=True, exist_ok=True)
        (chain / name).write_text("mine")
    in_place_of(chain / place, kind, victim)
    assert remove_damaged_pages(chain) == [chain / place] and not os.path.lexists(chain / place)
    assert victim.read_text() == "years"
    assert all((chain / name).read_text() == "mine" for name in ENDS if name != place)


def test_nothing_goes_that_no_run_writes_or_that_is_elsewhere(chain, pages, tmp_path):
    """A link of somebody's own; folders; and pages and logs behind a link to another folder."""
    (chain / "notes.md").symlink_to("nowhere")
    (chain / "tables" / "notes.md").symlink_to("nowhere")
    (chain / "README.md").mkdir()
    elsewhere = tmp_path / "elsewhere"
    (chain / "tables").rename(elsewhere)
    (chain / "tables").symlink_to(elsewhere)
    (chain / "logs").symlink_to(elsewhere)
    (elsewhere / "a.md").write_text("another")
    before = sorted(elsewhere.iterdir())
    assert remove_damaged_pages(chain) == []
    assert (
        sorted(elsewhere.iterdir()) == before and (chain / "notes.md").is_symlink() and (chain / "README.md").is_dir()
    )


def test_results_behind_a_link_are_mended_as_others_are(chain, pages):
    home = chain.parents[2] / "large disk"
    chain.rename(home)
    chain.symlink_to(home)
    pages[0][1].write_text("another")
    (chain / "README.md").symlink_to("nowhere")
    assert len(remove_damaged_pages(chain)) == 5 and not (home / "tables" / "a.md").exists()
