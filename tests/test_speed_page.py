"""docs/speed.md: its tables are what `make bench-peers` printed, of every model and every program."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[1]
write_speed = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "write_speed.py")))


def test_the_tables_are_those_of_the_measured_lines():
    lines = write_speed.MEASURED.read_text(encoding="utf-8").splitlines()
    page = write_speed.PAGE.read_text(encoding="utf-8")
    assert write_speed.BLOCK.findall(page) == [write_speed.tables(lines)]


def test_every_model_was_measured_with_every_program():
    _, *measured = map(json.loads, write_speed.MEASURED.read_text(encoding="utf-8").splitlines())
    cases = {f"{model}_{images}" for model in write_speed.MODELS for images in write_speed.IMAGES}
    programs = {each["program"] for each in measured}
    assert {"ours", "opacus", "opacus_ghost", "opacus_fast", "jax", "plain"} <= programs <= set(write_speed.PROGRAMS)
    assert {(each["case"], each["program"]) for each in measured} == {
        (case, program) for case in cases for program in programs
    }
