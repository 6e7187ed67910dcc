"""The forgeries of docs/threat_model.md, each by someone who rewrites every record and the manifest: what finds it.

Levels, each with the checks of those before: files (dpfl audit --files-only), quick, full, rerun. A signature of the
manifest finds each of them, for the manifest has another hash (tests/provenance/audit/test_release.py).
"""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from dpfl.files import file_sha256, record_path
from dpfl.grid.configuration import read
from dpfl.provenance import manifest
from dpfl.provenance.audit.rerun import Choice
from dpfl.provenance.record import StageRecorder
from dpfl.reporting.report_page.contents import contents
from dpfl.reporting.report_page.render import write

LEVELS = {"files": None, "quick": {"quick": True}, "full": {}, "rerun": {"quick": True, "rerun": Choice(4, 0)}}


def edit(path, change):
    """Change a table; the rest keeps every character."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    change(table)
    table.to_csv(path, index=False, lineterminator="\n")


def rewrite(place, change):
    record = json.loads(place.read_text())
    change(record)
    place.write_text(json.dumps(record))


def a_number_of_a_page(it):
    edit(it.table, lambda table: table.__setitem__("accuracy_pct", "99.9"))


def b_number_of_a_page_and_its_hashes(it):
    a_number_of_a_page(it)
    it.hide(it.table)


def c_deleted_record_and_changed_table(it):
    a_number_of_a_page(it)
    record_path(it.table).unlink()


def d_another_picture(it):
    picture = it.results / "figures" / "bhaskar2025_splits.svg"
    picture.write_bytes(picture.with_name("bhaskar2025_distances.svg").read_bytes())
    it.hide(picture)


def e_added_page(it):
    page = it.table.with_name("bhaskar2025_table_9.csv")
    page.write_text("better\n")
    StageRecorder("tables", ("dpfl.reporting.tables",)).write(record_path(page), [page])


def f_deleted_seed(it):
    it.runs[1].unlink()
    record_path(it.runs[1]).unlink()
    it.make_pages()


def g_less_noise_than_calibrated(it):
    edit(it.runs[0], lambda table: table.loc.__setitem__((1, "noise_multiplier"), "2.5"))
    it.hide(it.runs[0])


def h_less_noise_in_the_calibration_too(it):
    for path in (*it.runs, it.noise):
        for column in ("noise_multiplier", "privacy_noise_multiplier"):
            edit(path, lambda table, column=column: table.loc.__setitem__((1, column), "0.5"))
        it.hide(path)
    it.make_pages()


def i_words_of_a_record(it):
    rewrite(record_path(it.runs[0]), lambda record: record.update(seeds=[17]) or record["settings"].update(delta=1e-9))


def j_run_left_out_of_a_page(it):
    rewrite(record_path(it.table), lambda record: record["inputs"].pop())


def k_other_training_data(it):
    def change(record):
        [entry] = [each for each in record["inputs"] if each["path"].endswith("arrays/digits/train_x.npy")]
        entry["sha256"] = "0" * 64

    rewrite(record_path(it.runs[0]), change)


def l_raised_accuracy(it):
    def change(table):
        rounds = json.loads(table.loc[0, "accuracy_pct_by_round"])
        table.loc[0, "accuracy_pct"], table.loc[0, "accuracy_pct_by_round"] = "99.5", json.dumps([*rounds[:-1], 99.5])

    edit(it.runs[0], change)
    it.hide(it.runs[0])
    it.make_pages()


def m_invented_seed(it):
    """Seed 1 was never trained: its metrics are those of seed 0."""
    own = pd.read_csv(it.runs[0], dtype=str, keep_default_na=False)

    def change(table):
        metrics = [name for name in table.columns if name.startswith(("accuracy", "test_loss", "train_loss"))]
        table[metrics] = own[metrics]

    edit(it.runs[1], change)
    it.hide(it.runs[1])
    it.make_pages()


def n_verdict_on_the_page_for_readers(it):
    short = it.results / "README.md"
    write(it.results, contents(it.results, read(it.results / "config.yaml")))
    before = short.read_text()
    short.write_text(before.replace("| none yet |", "| 7 as stated |"))
    assert short.read_text() != before


FORGERIES = {
    a_number_of_a_page: ("files", r"table_2\.csv changed since stage tables wrote it"),
    b_number_of_a_page_and_its_hashes: ("quick", r"table_2\.csv differs from what its runs give"),
    c_deleted_record_and_changed_table: ("files", r"table_2\.csv has no record"),
    d_another_picture: ("full", r"splits\.svg is not what its data give"),
    e_added_page: ("files", r"table_9\.csv is a page that no paper lists"),
    f_deleted_seed: ("quick", r"seed1\.csv\.gz is missing, but the same cells with other seeds are there"),
    g_less_noise_than_calibrated: ("quick", r"noise_multiplier of seed 0 is 2\.5, calibrated was"),
    h_less_noise_in_the_calibration_too: ("quick", r"states .*epsilon.* for noise multiplier 0\.5"),
    i_words_of_a_record: ("quick", r"has a record that is not true: seeds \[17\], not \[0\]"),
    j_run_left_out_of_a_page: ("quick", r"was made without results/demo/runs/.*, which was there"),
    k_other_training_data: ("files", r"was made from another data/arrays/digits/train_x\.npy"),
    l_raised_accuracy: ("rerun", r"accuracy_pct 99\.5, trained again"),
    m_invented_seed: ("rerun", r"seed 1\).*accuracy_pct .*, trained again"),
    n_verdict_on_the_page_for_readers: ("quick", r"README\.md is not what the results give"),
}


@pytest.fixture
def seen_at(project):
    """A function that returns what a level of the audit finds."""

    def run(level):
        options = LEVELS[level]
        return project.by_hashes() if options is None else project.findings(**options)[0]

    return run


# What trains or draws again.
SLOW = [forgery for forgery, (level, _) in FORGERIES.items() if level in ("full", "rerun")]
SLOW += [f_deleted_seed, h_less_noise_in_the_calibration_too]


@pytest.mark.parametrize(
    "forgery",
    [pytest.param(each, id=each.__name__, marks=[pytest.mark.slow] if each in SLOW else []) for each in FORGERIES],
)
def test_a_forgery_is_found_at_its_level_and_not_before(project, seen_at, forgery):
    manifest.write(project.results)
    signed = file_sha256(project.results / manifest.MANIFEST)
    level, problem = FORGERIES[forgery]
    forgery(project)
    manifest.write(project.results)
    names = list(LEVELS)
    if names.index(level):
        before = seen_at("quick" if level in ("full", "rerun") else "files")
        assert before == [], "a weaker audit finds it: the table of the threat model is out of date"
    assert any(re.search(problem, each) for each in seen_at(level))
    careless = forgery in (a_number_of_a_page, n_verdict_on_the_page_for_readers)  # no record is changed
    assert (file_sha256(project.results / manifest.MANIFEST) == signed) is careless


def test_the_threat_model_names_every_forgery_and_what_finds_it():
    text = (Path(__file__).parents[3] / "docs" / "threat_model.md").read_text()
    rows = dict(re.findall(r"^\| ([a-z]) \|.*\| (\w+) \|$", text, re.MULTILINE))
    assert rows == {forgery.__name__[0]: level for forgery, (level, _) in FORGERIES.items()}
