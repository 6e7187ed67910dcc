import os

import pytest

from dpfl.errors import InputError
from dpfl.reporting.engine_report import build


def test_nothing_to_report_is_said(tmp_path):
    with pytest.raises(InputError, match="nothing to report"):
        build(tmp_path, tmp_path / "config.yaml")


def test_a_report_newer_than_its_parts_is_kept(tmp_path):
    (tmp_path / "tables").mkdir()
    part, report = tmp_path / "tables" / "a.html", tmp_path / "workflow.html"
    part.write_text("")
    report.write_text("<html>old</html>\n")
    os.utime(part, (1, 1))
    assert build(tmp_path, tmp_path / "config.yaml") == (report, False)
    assert report.read_text() == "<html>old</html>\n"


@pytest.mark.parametrize("text", ["", "<html>cut o"])
def test_a_damaged_report_is_made_anew_however_new_it_is(tmp_path, monkeypatch, text):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "a.html").write_text("")
    report = tmp_path / "workflow.html"
    report.write_text(text)
    os.utime(tmp_path / "tables" / "a.html", (1, 1))
    monkeypatch.chdir(tmp_path)  # without a Snakefile nothing can be made: it says so instead of keeping the damage
    with pytest.raises(InputError, match="could not make the report"):
        build(tmp_path, tmp_path / "config.yaml")
