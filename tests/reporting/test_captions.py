import pytest

from dpfl.catalog import keys, load
from dpfl.reporting import display_names


def test_a_caption_names_the_page_its_data_and_its_record(tmp_path):
    path = display_names.write("figures", "lowy2021", "figure_2", tmp_path / "lowy2021_figure_2.csv")
    said = load("lowy2021").figures["figure_2"]
    text = path.read_text()
    assert path == tmp_path / "lowy2021_figure_2.rst"
    assert said["title"] in text and said["caption"] in text
    assert "``lowy2021_figure_2.csv``" in text and "``lowy2021_figure_2.csv.record.json``" in text


@pytest.mark.parametrize("paper", keys())
@pytest.mark.parametrize("kind", ["tables", "figures"])
def test_no_caption_holds_what_the_report_would_take_for_a_template(paper, kind):
    for said in getattr(load(paper), kind).values():
        assert not any(mark in said["title"] + said["caption"] for mark in ("{{", "{%", "{#"))
