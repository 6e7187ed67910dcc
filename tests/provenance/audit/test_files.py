"""What was added, deleted or exchanged below results/<scale> is found, with and without its record."""

import json
import os
import shutil

import pytest
import yaml

from dpfl.catalog import load
from dpfl.files import record_path
from dpfl.provenance import manifest
from dpfl.provenance.audit.files import audit
from dpfl.provenance.record import StageRecorder

PAPER = "bhaskar2025"


@pytest.fixture(scope="module")
def first_ended(first_chain, pipeline, tmp_path_factory):
    """A run that has ended: every page of a paper is there, and the manifest; not to be changed."""
    root = shutil.copytree(first_chain, tmp_path_factory.mktemp("ended") / "project")
    results, facts = root / "results" / "demo", load(PAPER)
    pages = [f"{kind}/{PAPER}_{name}" for kind in ("tables", "figures") for name in getattr(facts, kind)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        pipeline.forget()
        for page in (*pages, f"claims/{PAPER}"):
            csv, png = results / f"{page}.csv", results / f"{page}.png"
            csv.parent.mkdir(exist_ok=True)
            csv.write_text("made\n")
            png.write_text("drawn\n")
            StageRecorder(page.split("/")[0], ("dpfl.grid.expansion",)).write(record_path(csv), [csv, png])
        manifest.write(results)
        (results / "audit.txt").write_text("0 findings\n")
        assert problems(results) == {}
    return root


@pytest.fixture
def ended(first_ended, chain):
    """A copy of the results of the run that has ended, in the working folder."""
    shutil.copytree(first_ended / "results" / "demo", chain, dirs_exist_ok=True)
    return chain


JOBS = [f"{PAPER}/digits_scatter_linear_k10_seed{seed}" for seed in (0, 1, 2)]


@pytest.fixture
def partial(ended):
    """The run that has ended, of a grid of three jobs, of which the first was run; sealed."""
    only = {"dataset": ["digits"], "model": ["scatter_linear"], "clients": [10], "study": ["none"]}
    config = {"scale": "demo", "papers": [PAPER], "seeds": [0, 1, 2], "only": only}
    (ended / "config.yaml").write_text(yaml.safe_dump(config))
    trained(ended, JOBS[0])
    listed_anew(ended)
    return ended


def trained(folder, job):
    """Put a run table there with its record; return its path in the folder."""
    table = folder / "runs" / f"{job}.csv.gz"
    table.parent.mkdir(parents=True, exist_ok=True)
    table.write_bytes(b"runs")
    StageRecorder("train", ("dpfl.grid.expansion",)).write(record_path(table), [table])
    return table.relative_to(folder).as_posix()


def restated(folder, not_run):
    """Write other jobs into the manifest as not run, as a forger can."""
    path = folder / manifest.MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | {"not_run": not_run}, indent=1) + "\n")


def problems(folder):
    """What an audit of files finds, by path in the folder."""
    found = {}
    for finding in audit(folder).findings:
        found.setdefault(os.path.relpath(finding.path, f"results/{folder.name}"), []).append(finding.problem)
    return found


def listed_anew(folder):
    """Write the manifest again, as a forger can."""
    manifest.write(folder)


TABLE = f"tables/{PAPER}_table_2.csv"


@pytest.mark.parametrize("forge_manifest", [False, True])
def test_a_table_whose_record_was_deleted_and_whose_data_changed_is_found(ended, forge_manifest):
    record_path(ended / TABLE).unlink()
    (ended / TABLE).write_text("better\n")
    if forge_manifest:
        listed_anew(ended)
    found = problems(ended)
    assert "has no record: no stage of the pipeline wrote it" in found[TABLE]
    assert any("its paper lists it" in each for each in found[TABLE])
    assert (f"{TABLE}.record.json" in found) is not forge_manifest


def test_another_picture_in_the_place_of_a_removed_record_is_found(ended):
    picture = (ended / TABLE).with_suffix(".png")
    record = json.loads(record_path(ended / TABLE).read_text())
    record["outputs"] = record["outputs"][:1]
    record_path(ended / TABLE).write_text(json.dumps(record))
    picture.write_text("another picture")
    listed_anew(ended)
    assert problems(ended) == {os.path.relpath(picture, ended): ["has no record: no stage of the pipeline wrote it"]}


@pytest.mark.parametrize("name", ["tables/bhaskar2025_table_9.csv", "notes.html", "sources/x.npy", "runs/p/x.csv.gz"])
def test_a_page_that_was_added_is_found(ended, name):
    (ended / name).parent.mkdir(parents=True, exist_ok=True)
    (ended / name).write_text("added")
    assert problems(ended) == {name: ["has no record: no stage of the pipeline wrote it"]}


def test_a_page_that_was_added_with_record_and_manifest_is_found(ended):
    page = ended / "tables" / f"{PAPER}_table_9.csv"
    page.write_text("added")
    StageRecorder("tables", ("dpfl.grid.expansion",)).write(record_path(page), [page])
    assert list(problems(ended)) == [f"tables/{page.name}.record.json", f"tables/{page.name}"]
    listed_anew(ended)
    assert problems(ended) == {f"tables/{page.name}": ["is a page that no paper lists: delete it and its record"]}


def test_a_run_table_that_was_deleted_with_its_record_is_found(ended):
    record_path(ended / "table.csv").unlink()
    (ended / "table.csv").unlink()
    assert problems(ended) == {"table.csv.record.json": ["is gone, though manifest.json lists it"]}


def test_a_record_that_was_written_again_is_found(ended):
    place = record_path(ended / TABLE)
    place.write_text(place.read_text().replace('"seconds": ', '"seconds": 1'))
    assert problems(ended) == {
        f"{TABLE}.record.json": [
            "is not the record that manifest.json lists: it was changed, or its stage has run since"
        ]
    }


def test_an_honest_record_under_another_name_does_not_hide_one_that_was_changed(ended):
    """The last record of a file was the one that was read: a copy of the true one stood for it."""
    true, shadow = record_path(ended / TABLE), ended / "tables" / "0.record.json"
    shutil.copy(true, shadow)
    true.write_text(true.read_text().replace('"seeds": []', '"seeds": [99]'))
    listed_anew(ended)
    words = "is the record of other files, or of files that have another record"
    assert problems(ended)["tables/0.record.json"] == [words]
    other, aside = json.loads(shadow.read_text()), ended / "tables" / "aside.csv"
    other["outputs"].insert(0, {**other["outputs"][0], "path": f"results/demo/tables/{aside.name}"})
    shadow.unlink()
    record_path(aside).write_text(json.dumps(other))
    listed_anew(ended)
    assert words in problems(ended)[f"tables/{aside.name}.record.json"]


@pytest.mark.parametrize("damage", ["deleted", "folder", "pipe", "cut", "of another scale"])
def test_a_manifest_that_is_gone_or_damaged_is_found(ended, damage):
    path = ended / manifest.MANIFEST
    text = path.read_text()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage == "pipe":
        os.mkfifo(path)
    elif damage == "cut":
        path.write_text(text[:-20])
    elif damage == "of another scale":
        path.write_text(text.replace('"demo"', '"paper"'))
    assert "manifest.json" in problems(ended)


def test_without_a_manifest_an_unfinished_run_is_a_note(chain):
    seen = audit(chain)
    assert seen.findings == [] and any("no results/demo/manifest.json" in note for note in seen.notes)


@pytest.mark.parametrize("odd", ["pipe", "dead link", "link", "linked folder"])
def test_odd_files_are_findings(ended, odd):
    path = ended / "tables" / "odd"
    if odd == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to({"dead link": "/no/such", "link": ended / "raw.csv", "linked folder": ended / "runs"}[odd])
    assert problems(ended) == {"tables/odd": ["is no regular file"]}


def test_a_damaged_configuration_hides_nothing_that_was_not_run(partial):
    (partial / "config.yaml").write_text("scale: [")
    [problem] = problems(partial)["config.yaml"]
    assert "what was not run is not known" in problem


@pytest.mark.parametrize("odd", ["folder", "pipe", "dead link"])
@pytest.mark.parametrize("name", [TABLE, f"{TABLE}.record.json", "audit.txt", "config.yaml"])
def test_odd_files_in_the_place_of_others_never_stop_an_audit(ended, odd, name):
    path = ended / name
    path.unlink(missing_ok=True)
    if odd == "folder":
        path.mkdir()
    elif odd == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/no/such")
    assert (name in problems(ended)) or (odd == "folder" and name in ("audit.txt", "config.yaml"))


def test_logs_benchmarks_and_what_killed_writers_left_are_expected(ended):
    for name in ("logs/train.log", "benchmarks/train.tsv", "tables/.x.csv.123.partial", "report.html"):
        (ended / name).parent.mkdir(exist_ok=True)
        (ended / name).write_text("x")
    assert problems(ended) == {}


def test_what_was_not_run_is_a_line_and_no_finding(partial):
    seen = audit(partial)
    assert seen.findings == []
    assert seen.notes == [f"2 of 3 jobs are not run: {PAPER} 2 of 3"]


def test_a_complete_grid_has_no_line(partial):
    for job in JOBS[1:]:
        trained(partial, job)
    listed_anew(partial)
    seen = audit(partial)
    assert (seen.findings, seen.notes) == ([], [])


def test_a_deleted_run_table_is_found_though_the_grid_is_partial(partial):
    for path in (partial / "runs" / PAPER).iterdir():
        path.unlink()
    table = f"runs/{JOBS[0]}.csv.gz"
    assert problems(partial) == {
        f"{table}.record.json": ["is gone, though manifest.json lists it"],
        table: ["is gone, though manifest.json lists its record"],
    }


def test_a_deleted_run_table_is_found_where_its_record_left_the_manifest_too(partial):
    for path in (partial / "runs" / PAPER).iterdir():
        path.unlink()
    listed_anew(partial)
    restated(partial, JOBS[1:])
    table = f"runs/{JOBS[0]}.csv.gz"
    assert problems(partial) == {table: ["is not there, and manifest.json does not state that it was not run"]}


def test_a_run_table_that_is_stated_as_not_run_is_found(partial):
    table = trained(partial, JOBS[1])
    assert problems(partial)[table] == ["is there, though manifest.json states that it was not run"]
    listed_anew(partial)
    restated(partial, JOBS[1:])
    assert problems(partial) == {table: ["is there, though manifest.json states that it was not run"]}


@pytest.mark.parametrize("stated", [[], JOBS[1:2], [*JOBS[1:], f"{PAPER}/another"], [1], "all"])
def test_a_forged_list_of_what_was_not_run_is_found(partial, stated):
    restated(partial, stated)
    words = {0: "does not state that it was not run", 1: "does not state that it was not run", 3: "is no job of the"}
    damaged = not (isinstance(stated, list) and all(isinstance(each, str) for each in stated))
    found = problems(partial)
    assert found == {"manifest.json": ["is damaged"]} if damaged else words[len(stated)] in str(found)


def test_a_manifest_that_is_about_to_be_written_is_not_compared(partial):
    restated(partial, [])
    seen = audit(partial, sealed=False)
    assert seen.findings == [] and seen.notes == [f"2 of 3 jobs are not run: {PAPER} 2 of 3"]
