"""A record is read whole or refused in one line."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dpfl.cli import app
from dpfl.errors import InputError
from dpfl.files import record_path
from dpfl.provenance.record import EarlierFormatError, StageRecorder, read_record


@pytest.fixture
def record(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source, output = tmp_path / "in é.csv", tmp_path / "out.csv"
    source.write_text("1")
    output.write_text("2")
    stage = StageRecorder("train", ("dpfl.grid.expansion",), {"paper": "x"}, (0, 1))
    stage.reads([source])
    stage.write(record_path(output), [output])
    return record_path(output)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format": "other"}', "[" * 100_000, "1" * 5000, '{"format": "dpfl-record/2"}']
)
def test_a_damaged_record_is_named(tmp_path, text):
    path = tmp_path / "x.record.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"x\.record\.json"):
        read_record(path)


@pytest.mark.parametrize("part", ["stage", "started", "settings", "seeds", "inputs", "outputs", "source", "host"])
@pytest.mark.parametrize("value", [None, 7, "x", [7], {"a": 1}])
def test_a_record_without_what_its_readers_need_is_damaged(record, part, value):
    told = json.loads(record.read_text())
    if type(value) is type(told[part]) and part in ("stage", "settings", "seeds"):
        return
    record.write_text(json.dumps({**told, part: value}))
    with pytest.raises(InputError, match="damaged"):
        read_record(record)
    record.write_text(json.dumps({name: each for name, each in told.items() if name != part}))
    with pytest.raises(InputError, match="damaged"):
        read_record(record)


@pytest.mark.parametrize("path", ["", "a/..", "../a", "a/../../b", "/etc/passwd", "a//b", "a\0b", "\ud800", "x" * 300])
def test_a_record_of_an_impossible_file_is_damaged(record, path):
    told = json.loads(record.read_text())
    told["outputs"][0]["path"] = path
    record.write_text(json.dumps(told))
    with pytest.raises(InputError, match="damaged"):
        read_record(record)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_flipped_byte_of_a_record_is_refused_or_leaves_a_record(record, data):
    whole = record.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    record.write_bytes(whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))]) + whole[place + 1 :])
    try:
        assert read_record(record)["outputs"][0]["sha256"]
    except InputError as error:
        assert "\n" not in str(error)
    record.write_bytes(whole)


@pytest.mark.parametrize("value", [1e308, -1.0, float("nan"), 10**400])
def test_a_record_of_an_impossible_duration_is_damaged(record, value):
    record.write_text(json.dumps(json.loads(record.read_text()) | {"seconds": value}))
    with pytest.raises(InputError, match="damaged"):
        read_record(record)


@pytest.mark.parametrize(
    "time",
    [
        "9999-12-31T23:59:59+00:00", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+00:00",
        "0001-01-01T00:00:00+23:59", "1999-12-31T23:59:59+00:00", "2201-01-01T00:00:00+00:00", "2026-11-22T17:15:38",
    ],
)  # fmt: skip
def test_a_record_of_a_time_that_no_run_can_have_is_damaged(record, time):
    record.write_text(json.dumps(json.loads(record.read_text()) | {"started": time}))
    with pytest.raises(InputError, match="damaged"):
        read_record(record)
    done = CliRunner().invoke(app, ["trace", "out.csv"])
    assert isinstance(done.exception, InputError) and "damaged" in str(done.exception)


@pytest.mark.parametrize("time", ["2000-01-01T00:00:00+23:59", "2200-12-31T23:59:59-23:59"])
def test_the_earliest_and_the_latest_time_can_be_compared_after_the_longest_duration(record, time):
    place = record.with_name("next.csv.record.json")
    told = json.loads(record.read_text()) | {"started": time, "seconds": 1e9}
    record.write_text(json.dumps(told))
    told["inputs"], told["outputs"] = told["outputs"], [told["outputs"][0] | {"path": "next.csv"}]
    place.write_text(json.dumps(told))
    record.with_name("next.csv").write_text("2")
    done = CliRunner().invoke(app, ["trace", "next.csv"])
    assert done.exit_code == 0 and "out.csv is younger than next.csv" in done.output, done.exception


@pytest.mark.parametrize("place", ["stage", "settings", "host", "inputs"])
def test_a_record_of_what_is_no_text_is_damaged(record, place):
    """A lone surrogate can neither be printed nor hashed."""
    told = json.loads(record.read_text())
    lone = {"stage": "fig\ud800", "settings": {"\udfff": 1}, "host": told["host"] | {"system": "\ud800"}}
    lone["inputs"] = [told["inputs"][0] | {"path": "in\udcff.csv"}]
    record.write_text(json.dumps(told | {place: lone[place]}))
    with pytest.raises(InputError, match="damaged"):
        read_record(record)


@pytest.mark.parametrize("commit", ["7f" * 20, None, "$(reboot)"])
def test_a_record_of_the_earlier_version_is_refused_with_its_commit(record, commit):
    earlier = json.loads(record.read_text()) | {"format": "dpfl-record/1", "source": {"commit": commit}}
    record.write_text(json.dumps(earlier))
    with pytest.raises(EarlierFormatError, match="written by an earlier version") as refused:
        read_record(record)
    assert ("7f" * 20 in str(refused.value)) == (commit == "7f" * 20) and "reboot" not in str(refused.value)
    folder = record.parent / "results" / "demo"
    folder.mkdir(parents=True)
    record.rename(folder / record.name)
    done = CliRunner().invoke(app, ["audit", str(folder)])
    assert isinstance(done.exception, EarlierFormatError) and "\n" not in str(done.exception)
