import os

import pytest

from dpfl.errors import InputError
from dpfl.reporting.report import build


def test_nothing_to_report_is_said(tmp_path):
    with pytest.raises(InputError, match="nothing to report"):
        build(tmp_path, tmp_path / "config.yaml")


def test_a_report_newer_than_its_parts_is_kept(tmp_path):
    (tmp_path / "tables").mkdir()
    part, report = tmp_path / "tables" / "a.html", tmp_path / "report.html"
    part.write_text("")
    report.write_text("old")
    os.utime(part, (1, 1))
    assert build(tmp_path, tmp_path / "config.yaml") == (report, False)
    assert report.read_text() == "old"
