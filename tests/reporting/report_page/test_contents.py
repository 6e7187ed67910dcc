import pytest

from dpfl.errors import InputError
from dpfl.files import file_sha256
from dpfl.grid import configuration
from dpfl.reporting.report_page.contents import contents


@pytest.fixture
def page(made):
    return contents(*made)


def test_papers_come_in_the_configurations_order_with_short_names(page):
    assert [view.short for view in page.papers] == ["Asoodeh 2020", "Bhaskar 2025"]


def test_the_data_are_named_with_what_they_stand_in_for(page):
    bhaskar = page.papers[1]
    assert "Digits (stand-in for MNIST)" in bhaskar.data


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
    with pytest.raises(InputError, match=r"nothing to report in .*: run make first"):
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
