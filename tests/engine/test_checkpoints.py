import logging

import pytest
import torch

from dpfl.engine import checkpoints
from dpfl.files import checked_content, with_checksum

STATE = {"epoch": 3, "weights": torch.arange(6.0).view(2, 3), "accuracy": [[1.5], []], "finished": [{"a": True}]}


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "deep" / "run.checkpoint"
    checkpoints.save(path, STATE, "digest-1")
    return path


def test_what_is_saved_comes_back(saved):
    state = checkpoints.load(saved, "digest-1")
    assert torch.equal(state.pop("weights"), STATE["weights"])
    assert state == {key: value for key, value in STATE.items() if key != "weights"}
    assert [path.name for path in saved.parent.iterdir()] == ["run.checkpoint"]


def test_saving_twice_gives_the_same_bytes(saved):
    before = saved.read_bytes()
    checkpoints.save(saved, STATE, "digest-1")
    assert saved.read_bytes() == before


def test_nothing_there_is_no_checkpoint(tmp_path):
    assert checkpoints.load(tmp_path / "none", "digest-1") is None


def test_other_settings_are_ignored_and_said(saved, caplog):
    with caplog.at_level(logging.WARNING):
        assert checkpoints.load(saved, "digest-2") is None
    assert "other settings" in caplog.text


def test_every_cut_and_every_flipped_byte_is_refused(saved, caplog):
    whole = saved.read_bytes()
    for length in (0, 5, 18, 60, 90, len(whole) // 2, len(whole) - 1):
        saved.write_bytes(whole[:length])
        assert checkpoints.load(saved, "digest-1") is None
    for place in range(0, len(whole), 37):
        saved.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert checkpoints.load(saved, "digest-1") is None
    assert "damaged" in caplog.text


def test_a_pickle_that_runs_code_is_not_run(tmp_path, caplog, capsys):
    class Runs:
        def __reduce__(self):
            return (print, ("run",))

    path = tmp_path / "evil"
    checkpoints.save(path, {"a": Runs()}, "d")
    assert checkpoints.load(path, "d") is None
    assert "other than plain data" in caplog.text and "run\n" not in capsys.readouterr().out


def test_what_somebody_else_has_sealed_is_refused_or_plain(saved, caplog):
    _, _, content = checked_content(saved.read_bytes()).partition(b"\n")
    for place in range(0, len(content), 23):
        forged = content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :]
        saved.write_bytes(with_checksum(b"digest-1\n" + forged))
        assert isinstance(checkpoints.load(saved, "digest-1"), dict | None)
    saved.write_bytes(with_checksum(b"\xff\xfe\n" + content))
    assert checkpoints.load(saved, "digest-1") is None
    assert "other than plain data" in caplog.text and "other settings" in caplog.text
