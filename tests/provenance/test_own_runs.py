"""Runs of `dpfl fedavg` as tables: what tells them apart, and what is no such run."""

import math

import pytest

from dpfl.errors import InputError
from dpfl.provenance.own_runs import folders, read
from dpfl.reporting.comparison import settings_of


def test_a_folder_is_a_run_or_has_runs_and_an_unfinished_one_is_none(own_run, tmp_path):
    first, second = (own_run(tmp_path / "a" / name, 1, [50.0]) for name in ("1", "2"))
    (tmp_path / "a" / "3").mkdir()
    (tmp_path / "a" / "3" / "checkpoint").touch()
    assert folders(first) == [first] and folders(tmp_path / "a") == [first, second]
    assert folders(tmp_path) == folders(tmp_path / "none") == []


def test_secret_seeds_are_of_one_run_each_and_named_ones_are_shared(own_run, tmp_path):
    found = [own_run(tmp_path / name, seed, [50.0]) for name, seed in (("a", "secret"), ("b", "secret"), ("c", 7))]
    seeds = [table["seed"][0] for [table] in read([[folder] for folder in found])]
    assert seeds == [f"secret {found[0]}", f"secret {found[1]}", "7"]


def test_noise_is_a_setting_where_it_was_given(own_run, tmp_path):
    given = own_run(tmp_path / "a", 1, [50.0], noise_multiplier=2.0, epsilon=math.nan)
    [[named, calibrated]] = read([[given, own_run(tmp_path / "b", 1, [50.0])]])
    assert "noise_multiplier" in settings_of(named) and named["noise_multiplier"][0] == 2.0
    assert math.isnan(calibrated["noise_multiplier"][0]), "1.5 in the table follows from the epsilon"


def test_other_data_or_code_of_one_name_is_another_setting_and_no_hash_is_shown(own_run, tmp_path):
    own = [
        own_run(tmp_path / "a", 1, [50.0]),
        own_run(tmp_path / "b", 1, [50.0], data_sha256="c" * 64),
        own_run(tmp_path / "c", 1, [50.0], model_source_sha256="d" * 64),
    ]
    tables = [table for source in read([own[:2], own[2:]]) for table in source]
    assert [table["dataset"][0] for table in tables] == ["my.npz", "my.npz (2)", "my.npz"]
    assert [table["model"][0] for table in tables] == ["net:Net", "net:Net", "net:Net (2)"]
    assert not any("cccc" in table.to_csv() for table in tables)


def test_what_is_no_run_is_one_line(own_run, tmp_path):
    record = own_run(tmp_path / "a", 1, [50.0]) / "runs.csv.record.json"
    for content in ("", "[]", '{"settings": {}}', '{"settings": {"noise_multiplier": "x"}}'):
        record.write_text(content)
        with pytest.raises(InputError, match="is not a record of dpfl fedavg"):
            read([[tmp_path / "a"]])
    record.unlink()
    with pytest.raises(InputError, match="is not there"):
        read([[tmp_path / "a"]])
    table = own_run(tmp_path / "b", 1, [50.0]) / "runs.csv"
    table.write_text("a\n1\n")
    with pytest.raises(InputError, match="is not a table of dpfl fedavg: it has no column dataset"):
        read([[tmp_path / "b"]])
