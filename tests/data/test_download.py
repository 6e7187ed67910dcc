"""Downloads resume, try again where it helps, and end."""

from __future__ import annotations

import time

import pytest

from dpfl.data.download import Unfinished, Unreachable, download
from dpfl.data.verify import Refused

BODY = bytes(range(256)) * 2000


def quiet(done: int, total: int) -> None:
    pass


def test_a_broken_transfer_resumes_where_it_ended(server, tmp_path):
    url = server.publish("/f", BODY, breaks=2)
    seen = []
    download(url, tmp_path / "f.partial", len(BODY), 5, lambda *step: seen.append(step))
    assert (tmp_path / "f.partial").read_bytes() == BODY
    ranges = [asked for _, asked in server.asked]
    assert ranges[0] is None and len(ranges) == 3
    starts = [int(asked.removeprefix("bytes=").removesuffix("-")) for asked in ranges[1:]]
    assert 0 < starts[0] < starts[1] < len(BODY)
    assert seen[-1] == (len(BODY), len(BODY)) and {total for _, total in seen} == {len(BODY)}


def test_an_earlier_run_is_continued(server, tmp_path):
    url = server.publish("/f", BODY)
    (tmp_path / "f.partial").write_bytes(BODY[:1000])
    download(url, tmp_path / "f.partial", len(BODY), 5, quiet)
    assert (tmp_path / "f.partial").read_bytes() == BODY
    assert server.asked == [("/f", "bytes=1000-")]


def test_a_server_without_ranges_starts_again(server, tmp_path):
    url = server.publish("/f", BODY, ranges=False, breaks=1)
    (tmp_path / "f.partial").write_bytes(b"x" * 1000)
    download(url, tmp_path / "f.partial", len(BODY), 5, quiet)
    assert (tmp_path / "f.partial").read_bytes() == BODY
    assert [bool(asked) for _, asked in server.asked] == [True, True]


def test_server_errors_are_tried_again_and_missing_pages_are_not(server, tmp_path):
    download(server.publish("/flaky", BODY, failures=3), tmp_path / "a", len(BODY), 5, quiet)
    assert (tmp_path / "a").read_bytes() == BODY and len(server.asked) == 4
    with pytest.raises(Unfinished, match="HTTP 404"):
        download(server.url("/nowhere"), tmp_path / "b", len(BODY), 5, quiet)
    assert len(server.asked) == 5
    with pytest.raises(Unfinished, match="HTTP 500"):
        download(server.publish("/dead", BODY, failures=99), tmp_path / "c", len(BODY), 5, quiet)


def test_an_error_page_does_not_reach_the_partial_file(server, tmp_path):
    (tmp_path / "f").write_bytes(BODY[:1000])
    with pytest.raises(Unfinished):
        download(server.publish("/f", BODY, failures=99), tmp_path / "f", len(BODY), 5, quiet)
    assert (tmp_path / "f").read_bytes() == BODY[:1000]


def test_a_stall_ends_and_is_resumed(server, tmp_path):
    url = server.publish("/f", BODY, stalls=1)
    begun = time.monotonic()
    download(url, tmp_path / "f", len(BODY), 0.3, quiet)
    assert time.monotonic() - begun < 5
    assert (tmp_path / "f").read_bytes() == BODY
    assert int(server.asked[1][1].removeprefix("bytes=").removesuffix("-")) > 0


def test_a_server_that_only_stalls_is_given_up(server, tmp_path):
    begun = time.monotonic()
    with pytest.raises(Unfinished, match=r"no byte for 0\.2 seconds"):
        download(server.publish("/f", BODY, stalls=99), tmp_path / "f", len(BODY), 0.2, quiet)
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("length", [True, False])
def test_more_bytes_than_the_file_can_have_are_not_stored(server, tmp_path, length):
    with pytest.raises(Refused, match="longer than 1000 bytes"):
        download(server.publish("/f", BODY, length=length), tmp_path / "f", 1000, 5, quiet)
    assert (tmp_path / "f").stat().st_size <= 1000


def test_a_whole_partial_file_is_left_to_its_hash(server, tmp_path):
    (tmp_path / "f").write_bytes(BODY)
    download(server.publish("/f", BODY), tmp_path / "f", len(BODY), 5, quiet)
    assert (tmp_path / "f").read_bytes() == BODY


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/f", "http://no-such-host.invalid/f"])
def test_an_absent_server_is_told_in_few_words(server, tmp_path, url):
    with pytest.raises(Unreachable, match=r"^the server cannot be reached \([^()]{5,60}\)$"):
        download(url, tmp_path / "f", 10, 1, quiet)
