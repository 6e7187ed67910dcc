"""Files against their records, the manifest and the papers; damaged pages, and the pages for readers."""

import json
import os
import shutil
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from dpfl.catalog import load
from dpfl.errors import InputError
from dpfl.files import record_path, with_checksum
from dpfl.grid.configuration import read
from dpfl.provenance import manifest
from dpfl.provenance.audit.files import audit, check_report_pages, remove_damaged_pages
from dpfl.provenance.audit.findings import Audit
from dpfl.provenance.record import METADATA, StageRecorder
from dpfl.reporting.report_page.contents import contents
from dpfl.reporting.report_page.render import write


def hash_problems(folder):
    """What an audit says, as (path, problem)."""
    return [(finding.path, finding.problem) for finding in audit(folder).findings]


def test_an_untouched_folder_has_no_findings(chain):
    seen = audit(chain)
    assert len(seen.hashes) == 3 and seen.findings == [] and seen.absent == []


def test_a_missing_file_is_found(chain):
    (chain / "raw.csv").unlink()
    assert [problem for _, problem in hash_problems(chain)] == ["is missing"]


def test_a_derived_page_may_be_absent_but_is_checked_where_it_is_there(chain):
    table, page = chain / "table.csv", chain / "table.html"
    page.write_text("<table>")
    stage = StageRecorder("tables", ("dpfl.grid.expansion",))
    stage.write(record_path(table), [table, page])
    assert hash_problems(chain) == [] and len(audit(chain).hashes) == 4
    page.write_text("<p>")
    assert [problem for _, problem in hash_problems(chain)] == ["changed since stage tables wrote it"]
    page.unlink()
    seen = audit(chain)
    assert seen.findings == [] and len(seen.hashes) == 3
    assert [path.rpartition("/")[2] for path in seen.not_made] == ["table.html"]


def test_a_table_made_from_another_run_is_found(chain):
    run = chain / "runs" / "run.csv"
    run.write_text("another\n")
    StageRecorder("runs/run.csv", ("dpfl.grid.expansion",)).write(record_path(run), [run])
    [(path, problem)] = hash_problems(chain)
    assert "another" in problem and "table.csv" in path


@pytest.mark.parametrize(
    ("name", "cpu", "change", "is_note"),
    [
        ("features/digits/train_x.npy", "another", {}, True),
        ("features/digits/train_x.npy", None, {}, False),
        *(
            pytest.param(*case, False, marks=pytest.mark.slow)
            for case in (
                ("features/digits/train_x.npy", "another", {"bytes": 1}),
                ("features/digits/description.json", "another", {}),
                ("arrays/digits/train_x.npy", "another", {}),
            )
        ),
    ],
)
def test_a_run_may_have_read_features_that_another_machine_rounded_otherwise(project, name, cpu, change, is_note):
    place = record_path(project.runs[0])
    record = json.loads(place.read_text())
    [read] = [each for each in record["inputs"] if each["path"] == f"data/{name}"]
    read |= {"sha256": "0" * 64, **change}
    record["host"]["cpu"] = cpu or record["host"]["cpu"]
    place.write_text(json.dumps(record))
    seen = audit(project.results)
    run = os.path.relpath(place, project.root)
    other = [
        each.path
        for each in seen.findings
        if each.problem == f"was made from another data/{name} than the one there now"
    ]
    assert other == ([] if is_note else [run])
    note = f"read features of other bytes, which another machine computed: 1 stages, as {run}"
    assert (note in seen.notes) is is_note


def test_data_outside_the_folder_are_checked_where_they_are_there(chain):
    data, table = chain.parents[1] / "data", chain / "table.csv"
    data.mkdir()
    source = data / "x.npy"
    source.write_text("1")
    StageRecorder("data arrays", ("dpfl.grid.expansion",)).write(record_path(source), [source])
    stage = StageRecorder("tables", ("dpfl.grid.expansion",))
    stage.reads([source])
    stage.write(record_path(table), [table])
    assert hash_problems(chain) == []
    source.write_text("2")
    assert [path for path, _ in hash_problems(chain)] == ["data/x.npy"]
    shutil.rmtree(data)
    assert hash_problems(chain) == [] and audit(chain).absent == ["data/x.npy"]


def test_a_folder_that_was_moved_with_its_project_is_still_intact(chain, tmp_path, monkeypatch):
    moved = tmp_path / "elsewhere" / "results" / "demo"
    shutil.copytree(chain, moved)
    shutil.rmtree(chain)
    monkeypatch.chdir("/")
    assert hash_problems(moved) == []


def test_a_damaged_checkpoint_and_a_damaged_record_are_found(chain):
    kept = chain.parents[1] / "checkpoints" / "demo" / f"job-{'0a' * 16}.pt"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(with_checksum(b"state"))
    assert hash_problems(chain) == []
    kept.write_bytes(with_checksum(b"state")[:-1] + b"x")
    record_path(chain / "raw.csv").write_text("{")
    kept.with_name("mine.pt").write_text("a file that no training wrote")
    found = hash_problems(chain)
    assert [path for path, _ in found if path.endswith(".pt")] == [str(kept)]
    assert any("raw.csv.record.json" in path for path, _ in found)


@pytest.mark.parametrize(
    ("level", "behind", "found"),
    [(6, b"", False), (6, b"\n", True), (1, b"", False)],  # as dpfl writes it, a byte more, as another zlib may
)
def test_bytes_around_a_crate_s_members_are_found_and_another_compressor_s_are_not(chain, level, behind, found):
    about = {"@graph": [{"@id": "notes.txt", "sha256": sha256(b"notes " * 50).hexdigest()}]}
    with zipfile.ZipFile(chain.with_name("demo.crate.zip"), "w") as archive:
        for name, content in ((METADATA, json.dumps(about)), ("notes.txt", b"notes " * 50)):
            member = zipfile.ZipInfo(name)
            member.external_attr = 0o644 << 16
            archive.writestr(member, content, zipfile.ZIP_DEFLATED, level)
    path = chain.with_name("demo.crate.zip")
    path.write_bytes(path.read_bytes() + behind)
    damaged = ("results/demo.crate.zip", "is not a crate, or is damaged")
    assert hash_problems(chain) == ([damaged] if found else [])


@pytest.mark.parametrize("part", ["bytes", "sha256", "path"])
def test_a_record_that_describes_another_file_is_found(chain, part):
    place = record_path(chain / "table.csv")
    record = json.loads(place.read_text())
    record["outputs"][0][part] = {"bytes": 7, "sha256": "0" * 64, "path": "results/demo/tabel.csv"}[part]
    place.write_text(json.dumps(record))
    assert {Path(path).stem for path, _ in hash_problems(chain)} <= {
        "table",
        "tabel",
        "table.csv.record",
    } and hash_problems(chain)


def test_what_to_delete_is_the_damaged_stage_s_outputs_and_record(chain):
    (chain / "runs" / "run.csv").write_text("x")
    [finding] = audit(chain).findings
    assert {path.name for path in finding.remove} == {"run.csv", "run.csv.record.json"}


def test_a_folder_without_records_is_refused(tmp_path):
    with pytest.raises(InputError, match="no record below"):
        audit(tmp_path / "results" / "demo")


def test_noise_that_was_calibrated_anew_for_other_jobs_is_no_finding(chain):
    noise, run = chain / "accounting" / "paper.csv", chain / "runs" / "run.csv"
    noise.parent.mkdir()

    def calibrate(text):
        noise.write_text(text)
        StageRecorder("account", ("dpfl.grid.expansion",)).write(record_path(noise), [noise])

    calibrate("a")
    stage = StageRecorder("train", ("dpfl.grid.expansion",))
    stage.reads([noise])
    stage.write(record_path(run), [run])
    assert hash_problems(chain) == []
    calibrate("b")
    assert hash_problems(chain) == []
    noise.write_text("c")
    assert [path for path, _ in hash_problems(chain)] == ["results/demo/accounting/paper.csv"]


# What was added, deleted or exchanged below results/<scale> is found, with and without its record.


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
    assert problems(ended) == {
        f"tables/{page.name}": [
            f"is a page that no paper lists: delete all its files, results/demo/tables/{page.stem}.*"
        ]
    }


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
    assert problems(ended) == {"tables/odd": ["is not a regular file"]}


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
    is_nothing = odd == "folder" and name in ("audit.txt", "config.yaml")  # the run has neither, a folder is no file
    assert (name in problems(ended)) is not is_nothing


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


# Damaged pages are removed with all that their stage wrote; nothing else is.


@pytest.fixture
def two_tables(chain):
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


def test_intact_pages_stay(two_tables):
    assert remove_damaged_pages(two_tables[0][0].parents[1]) == []


def test_pages_without_what_git_does_not_hold_stay(two_tables):
    (csv, page, derived), _ = two_tables
    derived.unlink()
    assert remove_damaged_pages(csv.parents[1]) == []
    derived.write_text("another")
    assert remove_damaged_pages(csv.parents[1]) == [csv, page, derived, record_path(csv)]


@pytest.mark.parametrize("damage", ["edited", "deleted", "pipe", "record"])
def test_a_damaged_page_goes_with_what_its_stage_wrote(two_tables, damage):
    (csv, page, _), others = two_tables
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


def test_pages_of_an_earlier_version_stay(two_tables):
    place = record_path(two_tables[1][0])
    place.write_text(json.dumps(json.loads(place.read_text()) | {"format": "dpfl-record/1"}))
    two_tables[1][1].write_text("another")
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
def test_what_is_no_file_in_the_place_of_a_page_goes_and_what_a_link_points_at_stays(chain, two_tables, place, kind):
    victim = chain.parents[2] / "thesis.md"
    victim.write_text("years")
    in_place_of(chain / place, kind, victim)
    assert chain / place in remove_damaged_pages(chain)
    assert not os.path.lexists(chain / place) and not record_path(two_tables[0][0]).exists()
    assert victim.read_text() == "years" and all(path.exists() for path in two_tables[1])


ENDS = ("README.md", "report.html", "audit.txt", "manifest.json", "workflow.html", "logs/x/y.log", "benchmarks/a.tsv")


@pytest.mark.parametrize("kind", ["link", "dead link", "pipe"])
@pytest.mark.parametrize("place", ENDS)
def test_what_is_no_file_where_a_run_writes_goes_and_files_stay(chain, two_tables, place, kind):
    victim = chain.parents[2] / "thesis.md"
    victim.write_text("years")
    for name in ENDS:
        (chain / name).parent.mkdir(parents=True, exist_ok=True)
        (chain / name).write_text("mine")
    in_place_of(chain / place, kind, victim)
    assert remove_damaged_pages(chain) == [chain / place] and not os.path.lexists(chain / place)
    assert victim.read_text() == "years"
    assert all((chain / name).read_text() == "mine" for name in ENDS if name != place)


def test_nothing_goes_that_no_run_writes_or_that_is_elsewhere(chain, two_tables, tmp_path):
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


def test_results_behind_a_link_are_mended_as_others_are(chain, two_tables):
    home = chain.parents[2] / "large disk"
    chain.rename(home)
    chain.symlink_to(home)
    two_tables[0][1].write_text("another")
    (chain / "README.md").symlink_to("nowhere")
    assert len(remove_damaged_pages(chain)) == 5 and not (home / "tables" / "a.md").exists()


# report.html and README.md have no record: the audit writes them again from the results.


@pytest.fixture
def pages(project):
    """The pages of the tiny project, and a function that returns what the audit says of them."""
    folder = project.results
    config = read(folder / "config.yaml")

    def check():
        report = Audit()
        check_report_pages(report, folder, config)
        return [f"{found.path} {found.problem}" for found in report.findings], report

    assert check() == ([], Audit())  # a run writes them after its audit
    page, short = write(folder, contents(folder, config))
    return page, short, check


def test_pages_of_these_results_are_compared_and_found_right(pages):
    found, report = pages[2]()
    assert found == [] and report.checked == {"pages for readers": 2} and not report.notes


def test_a_forged_verdict_and_a_forged_number_are_found_where_they_stand(pages):
    page, short, check = pages
    lines = short.read_text().splitlines(keepends=True)
    row = next(number for number, line in enumerate(lines) if "| none yet |" in line)
    lines[row] = lines[row].replace("none yet", "7 as stated")
    short.write_text("".join(lines))
    page.write_text(page.read_text() + "<!-- -->")
    found, report = check()
    assert len(found) == 2
    assert found[0].startswith(f"results/demo/README.md is not what the results give, first in line {row + 1}: edited")
    assert found[1].startswith("results/demo/report.html is not what the results give, first in line")
    assert {path for finding in report.findings for path in finding.remove} == {page, short}


def test_a_clone_has_the_short_page_alone_and_it_is_compared(pages, project):
    page, short, check = pages
    for path in project.results.rglob("*.svg"):
        path.unlink()
    found, report = check()
    assert found == [] and report.checked == {"pages for readers": 1}
    assert report.notes == [
        "results/demo/report.html was not compared: pictures that it shows are not here (make pages)"
    ]
    page.unlink()
    short.write_text("")
    assert len(check()[0]) == 1


def test_odd_or_damaged_results_end_no_audit(pages, project):
    os.mkfifo(project.results / "tables" / "pipe")
    found, report = pages[2]()
    assert found == [] and len(report.notes) == 1
    (project.results / "tables" / "pipe").unlink()
    (project.results / "logs").mkdir(exist_ok=True)
    (project.results / "logs" / "x.log").symlink_to("nowhere")
    assert pages[2]()[1].notes == []  # pages show no log
    project.table.write_bytes(b"\xff\xfe\x00")
    assert all("cannot be made again from the results" in each for each in pages[2]()[0])


def test_a_paper_whose_runs_no_commit_accounts_for_says_so_on_both_pages(pages, project):
    page, short, check = pages
    clean = {"commit": "0" * 40, "dirty": False}
    for sources, count in (
        (({}, {}), ""),
        (({"dirty": True}, {}), "1 of 2"),
        (({"commit": None}, {"dirty": True}), "2 of 2"),
    ):
        for table, other in zip(project.runs, sources, strict=True):
            place = record_path(table)
            record = json.loads(place.read_text())
            record["source"] |= clean | other
            place.write_text(json.dumps(record))
        write(project.results, contents(project.results, read(project.results / "config.yaml")))
        words = f"{count} run tables were made from a changed source tree or name no commit."
        for path in (page, short):
            assert (words in path.read_text()) == bool(count)
            assert ("name no commit" in path.read_text()) == bool(count)
    record_path(project.runs[0]).write_text("[1]")
    write(project.results, contents(project.results, read(project.results / "config.yaml")))
    assert "2 of 2 run tables" in short.read_text() and check()[0] == []
