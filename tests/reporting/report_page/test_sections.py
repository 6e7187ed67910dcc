"""Tables and figures as the page shows them."""

import base64

import pytest

from dpfl.reporting.report_page.sections import picture_uri, sections_of
from dpfl.reporting.results import not_run_table


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
