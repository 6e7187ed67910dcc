"""What the report holds: its sections and pictures, counts of jobs, and runs whose code no commit names."""

import base64
import json
import os
from dataclasses import replace

import pandas as pd
import pytest

from dpfl.errors import InputError
from dpfl.files import file_sha256, record_path
from dpfl.grid import configuration, expansion
from dpfl.reporting.report_page.contents import (
    JobCounts,
    contents,
    job_counts,
    picture_uri,
    sections_of,
    total,
    untraced_runs,
)
from dpfl.reporting.report_page.render import html, markdown
from dpfl.reporting.results import not_run_table


@pytest.fixture
def page(made):
    return contents(*made)


def test_papers_come_in_the_configurations_order_with_short_names(page):
    assert [view.short for view in page.papers] == ["Asoodeh 2020", "Bhaskar 2025"]


def test_the_data_of_finished_runs_are_named_with_what_they_stand_in_for(made, page, changed):
    assert page.papers[1].data == "none yet"
    folder = changed("tables/bhaskar2025_table_2.csv", pd.DataFrame.copy)
    job = expansion.expand(made[1])[-1]
    table = expansion.run_table_path(folder, job.paper, job.name)
    table.parent.mkdir(parents=True)
    table.touch()
    assert "Digits (stand-in for MNIST)" in contents(folder, made[1]).papers[1].data


def test_noise_that_no_job_of_the_configuration_has_states_no_epsilon_on_the_page(made, page, changed):
    def wider(table):
        return table.assign(calibration_key=table["calibration_key"].where(table.index != 1, "of a wider run"))

    folder = changed("accounting/bhaskar2025.csv", wider)
    left = contents(folder, made[1]).papers[1].statements
    assert len(page.papers[1].statements) == 3 and len(left) == 2


def test_errata_are_no_ordinary_table(page):
    first, second = page.papers
    assert first.errata.name == "errata" and not first.sections.tables
    assert first.errata_counts == "3 wrong, 2 loose, 1 unclear" and second.errata_counts == ""
    assert second.errata is None and [part.name for part in second.sections.tables] == ["table_2"]


def test_stated_settings_come_before_inferred_ones_with_their_reason(page):
    settings = page.papers[1].settings
    assert [bool(each.reason) for each in settings] == sorted(bool(each.reason) for each in settings)
    reasons = {each.name: each.reason for each in settings}
    assert reasons["momentum"] == "" and "authors' code" in reasons["batch_size"]


def test_a_reason_for_all_settings_reaches_each(made):
    config = configuration.resolve({"scale": "demo", "papers": ["asoodeh2020", "vandijk2023"]})
    assert all(each.reason for each in contents(made[0], config).papers[1].settings)


def test_the_manifest_and_the_engines_page_are_named_where_they_are(copied):
    folder, config = copied
    assert (contents(folder, config).manifest_sha256, contents(folder, config).engine_page) == ("", "")
    (folder / "manifest.json").write_text("{}")
    (folder / "workflow.html").write_text("<html></html>")
    page = contents(folder, config)
    assert page.manifest_sha256 == file_sha256(folder / "manifest.json") and page.engine_page == "workflow.html"


def test_an_empty_folder_has_nothing_to_report(tmp_path, made):
    with pytest.raises(InputError, match=r"nothing to report in .*: dpfl run"):
        contents(tmp_path / "results" / "demo", made[1])


@pytest.mark.parametrize(
    ("name", "damage", "problem"),
    [
        ("tables/bhaskar2025_table_2", lambda table: table.assign(runs=3).drop(columns="sampling"), "'sampling'"),
        ("tables/bhaskar2025_table_2", lambda table: table.assign(runs=3).drop(columns="least_pct"), "least_pct"),
        ("accounting/bhaskar2025", lambda table: table.drop(columns="privacy_observer"), "privacy_observer"),
        ("claims/bhaskar2025", lambda table: table.drop(columns="our_question"), "our_question"),
        ("claims/bhaskar2025", lambda table: table.assign(verdict="as sated"), "'as sated' is not a valid Verdict"),
        ("claims/bhaskar2025_evidence", lambda table: table.drop(columns="within"), "within"),
    ],
)
def test_a_table_that_was_edited_or_is_of_an_earlier_version_is_one_line(changed, made, name, damage, problem):
    folder = changed(f"{name}.csv", damage)
    with pytest.raises(InputError, match=rf"a table of bhaskar2025 in .* cannot be shown \(.*{problem}.*\): it was"):
        contents(folder, made[1])


CONFIG = configuration.resolve({"scale": "demo", "papers": ["asoodeh2020", "lowy2021"]})


def trained(folder, *jobs):
    """Put run tables of jobs there."""
    for job in jobs:
        path = expansion.run_table_path(folder, job.paper, job.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"runs")


def test_jobs_are_counted_by_their_run_tables(tmp_path):
    jobs = expansion.expand(CONFIG)
    own = [job for job in jobs if job.paper == "lowy2021"]
    trained(tmp_path, *own[:-1])
    counts = job_counts(tmp_path, CONFIG)
    assert (counts["lowy2021"].run, counts["lowy2021"].total, counts["lowy2021"].not_run) == (len(own) - 1, len(own), 1)
    assert [group[2] - group[1] for group in counts["lowy2021"].open_groups] == [1]
    assert sum(group[2] for group in counts["lowy2021"].groups) == len(own)
    both = total(counts.values())
    assert (both.run, both.total) == (len(own) - 1, len(jobs))
    trained(tmp_path, *jobs)
    assert total(job_counts(tmp_path, CONFIG).values()).sentence() == f"All {len(jobs)} jobs were run."


def test_the_sentence_counts_what_was_run():
    assert JobCounts(245, 460).sentence() == "245 of 460 jobs were run."
    assert JobCounts(1, 1).sentence() == "The one job was run."
    assert JobCounts(0, 0).sentence() == ""


def leading(view, *findings):
    """The findings of a paper whose paper.yaml has these."""
    return replace(view, paper=replace(view.paper, findings=list(findings))).findings


def test_a_lead_claim_shows_its_verdict_its_reason_and_its_figure(page):
    entry = {"sentence": "A bound on delta.", "claim": "claim_2", "figure": "figure_2"}
    [found] = leading(page.papers[0], entry)
    assert found.verdict == page.papers[0].claims[2].verdict and found.found == page.papers[0].claims[2].reason
    assert (found.sentence, found.place) == ("A bound on δ.", "claim-asoodeh2020-claim_2")
    assert found.figure.name == "figure_2"


def test_a_lead_table_shows_its_first_note_and_no_verdict(page):
    entry = {"sentence": "A study", "table": "table_2", "figure": "distances"}
    [found] = leading(page.papers[1], entry)
    table = next(part for part in page.papers[1].sections.tables if part.name == "table_2")
    assert (
        found.verdict is None
        and not found.parts
        and found.found == table.notes[0]
        and found.place == "table-bhaskar2025-table_2"
    )
    assert found.figure is None, "distances was not run"


def test_a_lead_claim_names_its_parts_with_another_verdict_and_its_counterexample(page):
    view = page.papers[0]
    whole, same, refuted = (replace(view.claims[number], of="claim_0") for number in (0, 0, 2))
    asked = replace(refuted, key="asked", our_question=True)
    parts = replace(view, claims=(whole, replace(same, key="same"), refuted, asked))
    [found] = leading(parts, {"sentence": "A", "claim": "claim_0", "figure": "figure_2"})
    assert found.parts == (refuted,) and found.counterexample == ""
    [found] = leading(parts, {"sentence": "A", "claim": "claim_2", "figure": "figure_2"})
    assert found.counterexample == refuted.deciding != "" and found.parts == ()


def test_claims_that_qualify_a_finding_stand_beside_it_in_the_order_of_paper_yaml(page):
    view = page.papers[0]
    entry = {"sentence": "A", "claim": "claim_0", "figure": "figure_2", "beside": ["claim_3", "claim_2"]}
    [found] = leading(view, entry)
    assert [claim.key for claim in found.beside] == ["claim_3", "claim_2"]
    assert not set(found.beside) & set(found.parts), "none is shown twice"
    shown = html(replace(page, papers=(replace(view, paper=replace(view.paper, findings=[entry])), *page.papers[1:])))
    card = shown[shown.index('<ul class="findings">') : shown.index("</ul>", shown.index('<ul class="findings">'))]
    links = [card.index(f'href="#claim-asoodeh2020-{name}"') for name in ("claim_0", "claim_3", "claim_2")]
    assert links == sorted(links)


def test_in_the_short_form_claims_beside_a_finding_are_a_list_below_it(page):
    view = page.papers[0]
    entry = {"sentence": "A", "claim": "claim_0", "figure": "figure_2", "beside": ["claim_3", "claim_2"]}
    lines = markdown(replace(page, papers=(replace(view, paper=replace(view.paper, findings=[entry])),))).splitlines()
    own = lines.index(next(line for line in lines if line.startswith("- **A**")))
    words = {claim.key: claim.verdict.word for claim in view.claims}
    for key, line in zip(("claim_3", "claim_2"), lines[own + 1 : own + 3], strict=True):
        assert line.startswith("  - ") and f" {words[key]}: " in line
    assert not lines[own + 3].startswith("  - ")


def test_a_finding_of_which_nothing_is_finished_is_left_out(page):
    entries = [
        {"sentence": "A", "claim": "no_such", "figure": "splits"},
        {"sentence": "B", "table": "overlap", "figure": "splits"},
    ]
    assert leading(page.papers[1], *entries) == []


@pytest.fixture
def parts(made):
    return sections_of(made[0], "bhaskar2025")


def named(parts, name):
    [part] = [each for each in (*parts.tables, *parts.figures) if each.name == name]
    return part


def test_only_finished_tables_and_figures_are_shown(parts):
    assert [each.name for each in parts.tables] == ["table_2"]
    assert [each.name for each in parts.figures] == ["distances"]
    assert len(parts.numbers) == 72


def test_printed_numbers_stand_beside_ours_a_row_each(parts):
    table = named(parts, "table_2")
    first = dict(zip(table.grid.columns, table.grid.rows[2].cells, strict=True))
    assert (first["published"], first["difference, points"], first["agreement"]) == ("96.89", "+5.00", "not reproduced")
    assert table.grid.rows[2].style == "a-not-reproduced" and table.grid.can_sort and table.grid.has_traces
    assert "10 clients" in table.said_once


def test_the_papers_layout_is_kept_beside(parts):
    laid_out = named(parts, "table_2").as_laid_out
    assert "(E, R)" in laid_out.columns and len(laid_out.rows) == 3 * 6
    difference = laid_out.rows[3 * 2 + 2]  # of (4, 5), the number that the test above reads
    assert difference.cells[:2] == ("(4, 5)", "difference")
    assert dict(zip(difference.cells, difference.cell_styles, strict=True))["+5.00*"] == "a-not-reproduced"
    assert not any("".join(row.cell_styles) for row in laid_out.rows if row.cells[1] != "difference")
    assert not laid_out.can_sort and laid_out.keeps_first


def test_headings_are_shown_once_and_forbid_sorting(made):
    grid = named(sections_of(made[0], "asoodeh2020"), "errata").grid
    headings = [row.heading for row in grid.rows if row.heading]
    assert len(headings) == len(set(headings)) > 1 and not grid.can_sort


def test_a_figure_without_runs_gives_its_reason_instead_of_a_picture(parts):
    figure = named(parts, "distances")
    assert figure.not_run and figure.picture == ""


def test_a_table_without_runs_gives_its_reason(changed):
    folder = changed("tables/bhaskar2025_table_2.csv", lambda table: not_run_table(ValueError("no such runs")))
    table = named(sections_of(folder, "bhaskar2025"), "table_2")
    assert table.not_run == "no such runs" and table.grid is None


def test_a_picture_is_the_svg_or_the_png_where_that_is_smaller(tmp_path):
    csv = tmp_path / "a.csv"
    assert picture_uri(csv) == ""
    (csv.parent / "secret.svg").write_text("of the reader")
    csv.with_suffix(".svg").symlink_to(csv.parent / "secret.svg")
    assert picture_uri(csv) == ""  # a stranger's link may lead anywhere
    csv.with_suffix(".svg").unlink()
    csv.with_suffix(".svg").write_bytes(b"<svg/>")
    csv.with_suffix(".png").write_bytes(b"png")
    assert picture_uri(csv) == f"data:image/svg+xml;base64,{base64.b64encode(b'<svg/>').decode()}"
    csv.with_suffix(".svg").write_bytes(b"<svg/>" * 100_000)
    assert picture_uri(csv) == f"data:image/png;base64,{base64.b64encode(b'png').decode()}"
    csv.with_suffix(".png").unlink()
    assert picture_uri(csv).startswith("data:image/svg+xml")


CLEAN = {"commit": "0" * 40, "dirty": False}


def test_a_run_table_counts_where_no_commit_accounts_for_its_code(tmp_path):
    folder = tmp_path / "runs" / "p"
    folder.mkdir(parents=True)
    assert untraced_runs(tmp_path, "p") == ""
    sources = [CLEAN, CLEAN | {"dirty": True}, CLEAN | {"commit": None}, {"commit": "0" * 40}]
    for number, source in enumerate(sources):
        table = folder / f"{number}.csv.gz"
        table.touch()
        record_path(table).write_text(json.dumps({"source": source}))
    assert untraced_runs(tmp_path, "p").startswith("2 of 4 run tables were made from a changed source tree or name")
    for number, text in enumerate(("[]", "{", '{"source": 1}', "[" * 100_000), start=4):
        table = folder / f"{number}.csv.gz"
        table.touch()
        record_path(table).write_text(text)
    assert untraced_runs(tmp_path, "p").startswith("6 of 8 ")
    record_path(folder / "0.csv.gz").unlink()
    os.mkfifo(record_path(folder / "0.csv.gz"))
    record_path(folder / "3.csv.gz").unlink()
    assert untraced_runs(tmp_path, "p").startswith("8 of 8 ")


@pytest.mark.parametrize(
    ("digest", "words"), [("a", "is that of runs from an unchanged tree."), ("b", "cannot be compared.")]
)
def test_an_untraced_run_affects_nothing_where_its_code_is_that_of_traced_ones(tmp_path, digest, words):
    folder = tmp_path / "runs" / "p"
    folder.mkdir(parents=True)
    for number, source in enumerate([CLEAN | {"digest": "a"}, CLEAN | {"dirty": True, "digest": digest}]):
        table = folder / f"{number}.csv.gz"
        table.touch()
        record_path(table).write_text(json.dumps({"source": source}))
    assert untraced_runs(tmp_path, "p").endswith(words)


def test_runs_of_commits_alone_need_no_sentence(tmp_path):
    table = tmp_path / "runs" / "p" / "x.csv.gz"
    table.parent.mkdir(parents=True)
    table.touch()
    record_path(table).write_text(json.dumps({"source": CLEAN}))
    assert untraced_runs(tmp_path, "p") == "" == untraced_runs(tmp_path, "q")


def test_refuted_claims_come_first_and_questions_of_ours_are_not_among_them(page):
    view = page.papers[0]
    [refuted] = view.refuted
    assert refuted.verdict.word == "refuted" and view.refuted_first[0] == refuted
    rest = [claim for claim in view.claims if claim != refuted]
    assert view.refuted_first[1:] == rest
    ours = replace(view, claims=tuple(replace(claim, our_question=True) for claim in view.claims))
    assert ours.refuted == [] and ours.refuted_first == list(ours.claims)
