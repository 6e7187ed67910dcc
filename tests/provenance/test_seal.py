"""A stage run by hand after the manifest was written is named by the audit, and by sealing anew."""

import shutil
import sys

import pytest

from dpfl.cli import main

RECORD = "tables/bhaskar2025_table_2.csv.record.json"
AUDIT = ("audit", "--files-only", "results/demo")


@pytest.fixture
def sealed(tiny_project, tmp_path, monkeypatch, capsys):
    """A copy of the tiny project with a manifest, and a runner of `dpfl` that gives status, output and errors."""
    shutil.copytree(tiny_project, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["dpfl", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        return (caught.value.code or 0, *capsys.readouterr())

    assert run(*AUDIT, "--seal")[0] == 0
    return run


def test_a_stage_run_by_hand_is_found_until_its_record_is_sealed_by_name(sealed, pipeline):
    assert sealed(*AUDIT)[0] == 0
    pipeline.run("tables", "--paper", "bhaskar2025", "--name", "table_2", *pipeline.settings)
    status, said, _ = sealed(*AUDIT)
    assert status == 1 and f"results/demo/{RECORD} is not the record that manifest.json lists" in said
    status, _, errors = sealed(*AUDIT, "--seal")
    assert status == 0 and errors == f"dpfl: 1 records were added, changed or removed since the last time: {RECORD}\n"
    assert sealed(*AUDIT)[0] == 0 and sealed(*AUDIT, "--seal")[2] == ""


def test_a_damaged_manifest_is_not_replaced_in_silence(sealed, tmp_path):
    (tmp_path / "project/results/demo/manifest.json").write_text("{")
    status, _, errors = sealed(*AUDIT, "--seal")
    assert status == 2 and errors == "dpfl: results/demo/manifest.json is damaged or unreadable\n"
