"""What the report holds of each paper: its findings, data, settings and claims."""

from dataclasses import replace

import pandas as pd
import pytest

from dpfl.errors import InputError
from dpfl.files import file_sha256
from dpfl.grid import configuration, expansion
from dpfl.reporting.report_page.contents import contents
from dpfl.reporting.report_page.render import html, markdown


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
    assert first.errata_counts == "2 wrong, 1 inconsistent, 2 loose, 1 unclear" and second.errata_counts == ""
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


def test_refuted_claims_come_first_and_questions_of_ours_are_not_among_them(page):
    view = page.papers[0]
    [refuted] = view.refuted
    assert refuted.verdict.word == "refuted" and view.refuted_first[0] == refuted
    rest = [claim for claim in view.claims if claim != refuted]
    assert view.refuted_first[1:] == rest
    ours = replace(view, claims=tuple(replace(claim, our_question=True) for claim in view.claims))
    assert ours.refuted == [] and ours.refuted_first == list(ours.claims)
