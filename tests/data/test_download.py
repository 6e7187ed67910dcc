"""Downloads try again where it helps, have a limit on size, rate and time, and end."""

import threading
import time

import pytest

from dpfl.data import download as module
from dpfl.data.download import Unreachable, download
from dpfl.data.verify import Refused

BODY = bytes(range(256)) * 2000


def quiet(done: int, total: int) -> None:
    pass


@pytest.mark.parametrize("behaviour", [{}, {"breaks": 2}, {"failures": 2}, {"length": False}])
def test_the_bytes_arrive_in_spite_of_broken_transfers_and_server_errors(server, tmp_path, behaviour):
    seen = []
    url = server.publish("/f", BODY, **behaviour)
    download(url, tmp_path / "f", len(BODY), 5, lambda *step: seen.append(step))
    assert (tmp_path / "f").read_bytes() == BODY
    assert len(server.asked) == 1 + behaviour.get("breaks", 0) + behaviour.get("failures", 0)
    assert seen[-1] == (len(BODY), len(BODY))


def test_attempts_end_and_missing_pages_are_asked_for_once(server, tmp_path):
    for behaviour, reason in (({"failures": 99}, "HTTP 500"), ({"breaks": 99}, "the transfer broke off")):
        server.asked.clear()
        with pytest.raises(Refused, match=reason):
            download(server.publish("/f", BODY, **behaviour), tmp_path / "f", len(BODY), 5, quiet)
        assert len(server.asked) == 3
    with pytest.raises(Refused, match="HTTP 404"):
        download(server.url("/nowhere"), tmp_path / "f", len(BODY), 5, quiet)
    assert server.asked.count("/nowhere") == 1


@pytest.mark.parametrize(
    ("behaviour", "reason", "error"),
    [
        ({"stalls": True}, r"no byte for 0\.3 seconds|fewer than 16384 bytes in 0\.3 seconds", Refused),
        ({"drips": "body"}, r"no byte for 0\.3 seconds|fewer than 16384 bytes in 0\.3 seconds", Refused),
        ({"drips": "header"}, r"no answer for 0\.3 seconds", Unreachable),
    ],
)
def test_a_server_that_sends_next_to_nothing_is_given_up(server, tmp_path, behaviour, reason, error):
    """Also where each single byte comes in time: no read ever waits as long as the limit."""
    with pytest.raises(error, match=reason):
        download(server.publish("/f", BODY, **behaviour), tmp_path / "f", len(BODY), 0.3, quiet)
    assert len(server.asked) == 1


def test_a_transfer_below_the_least_mean_rate_is_given_up(server, tmp_path, monkeypatch):
    """Every window brings its bytes, but so slowly that all of it would take for ever."""
    monkeypatch.setattr(module, "_CHUNK_BYTES", 1)
    monkeypatch.setattr(module, "LEAST_BYTES_A_SECOND", 200)
    begun = time.monotonic()
    with pytest.raises(Refused, match=r"too slow: \d+ bytes at fewer than 200 a second"):
        download(server.publish("/f", BODY, drips="body"), tmp_path / "f", 200, 0.2, quiet)
    assert time.monotonic() - begun > 1.1


def test_what_was_given_up_writes_no_more(server, tmp_path):
    threads = threading.active_count()
    with pytest.raises(Refused):
        download(server.publish("/f", BODY, drips="body"), tmp_path / "f", len(BODY), 0.1, quiet)
    (tmp_path / "f").write_bytes(b"another")
    server.closing.set()
    until = time.monotonic() + 5
    while threading.active_count() > threads and time.monotonic() < until:
        time.sleep(0.01)
    assert (tmp_path / "f").read_bytes() == b"another"


@pytest.mark.parametrize("length", [True, False])
def test_more_bytes_than_the_file_can_have_are_not_stored(server, tmp_path, length):
    with pytest.raises(Refused, match="longer than 1000 bytes"):
        download(server.publish("/f", BODY, length=length), tmp_path / "f", 1000, 5, quiet)
    assert (tmp_path / "f").stat().st_size <= 1000


def test_an_unusable_length_is_refused(server, tmp_path):
    url = server.publish("/f", BODY, length=False, headers={"Content-Length": "many"})
    with pytest.raises(Refused, match="unusable answer"):
        download(url, tmp_path / "f", len(BODY), 1, quiet)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/f", "http://no-such-host.invalid/f"])
def test_an_absent_server_is_named_in_few_words(tmp_path, url):
    with pytest.raises(Unreachable, match=r"^the server cannot be reached \([^()]{5,60}\)$"):
        download(url, tmp_path / "f", 10, 1, quiet)
