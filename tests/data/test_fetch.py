"""Verified bytes: whatever comes in, only the wanted content is kept."""

import gc
import gzip
import hashlib
import io
import lzma
import os
import random
import subprocess
import tarfile
import threading
import time
import warnings
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpfl.data import fetch as module
from dpfl.data.datasets import Source
from dpfl.data.fetch import Refused, Unreachable, configured, decompressed, download, fetch, holds, store
from dpfl.errors import InputError


def source(content: bytes) -> Source:
    return Source("f", len(content), hashlib.sha256(content).hexdigest())


def quiet(done: int, total: int) -> None:
    pass


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
@pytest.mark.parametrize("content", [b"", b"a", b"0123456789" * 300_000])
def test_content_is_kept_whatever_its_packing(tmp_path, pack, content):
    seen = []
    store(decompressed(io.BytesIO(pack(content))), source(content), tmp_path / "f", lambda *step: seen.append(step))
    assert (tmp_path / "f").read_bytes() == content
    assert holds(tmp_path / "f", len(content), hashlib.sha256(content).hexdigest())
    assert not content or seen[-1] == (len(content), len(content))


def test_another_content_is_refused_with_both_hashes(tmp_path):
    with pytest.raises(Refused) as refused:
        store(io.BytesIO(b"wrong"), source(b"right"), tmp_path / "f", quiet)
    assert hashlib.sha256(b"wrong").hexdigest() in str(refused.value)
    assert hashlib.sha256(b"right").hexdigest() in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_a_bomb_stops_at_the_expected_size(tmp_path):
    """What is unfolded of 64 mebibytes of zeros stays within a few buffers of the ten bytes that were expected."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(squeeze.compress(bytes(1 << 20)) for _ in range(64)) + squeeze.flush()
    content = decompressed(io.BytesIO(bomb))
    with pytest.raises(Refused, match="longer than the expected 10 bytes"):
        store(content, source(bytes(10)), tmp_path / "f", quiet)
    assert content.tell() <= 2 << 20
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_truncated_packing_is_refused(tmp_path, pack):
    content = bytes(range(256)) * 100
    with pytest.raises(Refused, match="damaged or truncated"):
        store(decompressed(io.BytesIO(pack(content)[:-9])), source(content), tmp_path / "f", quiet)
    assert not list(tmp_path.iterdir())


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage_is_refused_or_harmless(tmp_path, data):
    """One flipped byte anywhere in a packed file: refused, or (in a header's free fields) the same content."""
    content = b"the content that was asked for" * 20
    packed = bytearray(data.draw(st.sampled_from([gzip.compress, lzma.compress, bytes]))(content))
    place = data.draw(st.integers(0, len(packed) - 1))
    packed[place] ^= data.draw(st.integers(1, 255))
    target = tmp_path / "f"
    target.unlink(missing_ok=True)
    try:
        store(decompressed(io.BytesIO(bytes(packed))), source(content), target, quiet)
    except Refused:
        assert not list(tmp_path.iterdir())
    else:
        assert target.read_bytes() == content


BODY = bytes(range(256)) * 2000


@pytest.mark.parametrize("behaviour", [{}, {"breaks": 2}, {"failures": 2}, {"length": False}])
def test_the_bytes_arrive_in_spite_of_broken_transfers_and_server_errors(server, tmp_path, behaviour):
    seen = []
    url = server.publish("/f", BODY, **behaviour)
    download(url, tmp_path / "f", len(BODY), 5, lambda *step: seen.append(step))
    assert (tmp_path / "f").read_bytes() == BODY
    assert len(server.asked) == 1 + behaviour.get("breaks", 0) + behaviour.get("failures", 0)
    assert seen[-1] == (len(BODY), len(BODY))


@pytest.mark.parametrize("status", [400, 403, 404, 408, 410, 429, 500, 501, 502, 503, 504])
def test_what_may_pass_is_tried_again_and_nothing_else(server, tmp_path, status):
    """RFC 9110, 6585: a timeout, too many requests, and a server or gateway that fails may pass; the rest stays."""
    with pytest.raises(Refused, match=f"HTTP {status}"):
        download(server.publish("/f", BODY, status=status), tmp_path / "f", len(BODY), 5, quiet)
    assert len(server.asked) == (3 if status in {408, 429, 500, 502, 503, 504} else 1)


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
    monkeypatch.setattr(module, "_DOWNLOADED_BYTES", 1)
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


def test_a_transfer_that_was_given_up_while_its_file_is_open_writes_no_more():
    out, counted = io.BytesIO(), []
    sink = module._Sink(out, 100, lambda *step: counted.append(step), 100)
    sink.write(b"one")
    sink.is_abandoned = True
    with pytest.raises(Refused, match="given up"):
        sink.write(b"two")
    assert out.getvalue() == b"one" and sink.received == 3 and counted == [(3, 100)]


@pytest.mark.parametrize("length", [True, False])
def test_more_bytes_than_the_file_can_have_are_not_stored(server, tmp_path, length):
    with pytest.raises(Refused, match="longer than 1000 bytes"):
        download(server.publish("/f", BODY, length=length), tmp_path / "f", 1000, 5, quiet)
    assert (tmp_path / "f").stat().st_size <= 1000


def test_a_transfer_that_is_broken_off_leaves_no_connection_open(server, tmp_path):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(Refused, match="longer than 10 bytes"):
            download(server.publish("/f", BODY, length=False), tmp_path / "f", 10, 5, quiet)
        gc.collect()
    assert [each for each in said if issubclass(each.category, ResourceWarning)] == []


def test_an_unusable_length_is_refused(server, tmp_path):
    url = server.publish("/f", BODY, length=False, headers={"Content-Length": "many"})
    with pytest.raises(Refused, match="unusable answer"):
        download(url, tmp_path / "f", len(BODY), 1, quiet)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/f", "http://no-such-host.invalid/f"])
def test_an_absent_server_is_named_in_few_words(tmp_path, url):
    with pytest.raises(Unreachable, match=r"^the server cannot be reached \([^()]{5,60}\)$"):
        download(url, tmp_path / "f", 10, 1, quiet)


CONTENT = b"label,pixels\n" * 20_000
PACKINGS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


@pytest.fixture(autouse=True)
def without_environment(monkeypatch):
    monkeypatch.delenv("DPFL_MIRROR", raising=False)


def toy(file, raw_folder, mirror=None, **keywords):
    """Fetch a file of the toy dataset, the mirror named as a user names it."""
    return fetch("toy", file, raw_folder, configured(mirror) if mirror else None, **{"timeout_seconds": 2} | keywords)


def archive(**members: bytes) -> bytes:
    """Return a .tar.gz with the members, names with _ for /, and entries that want to be unpacked elsewhere."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        evil = tarfile.TarInfo("../../escaped")
        evil.size = 4
        tar.addfile(evil, io.BytesIO(b"evil"))
        link = tarfile.TarInfo("box/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        for name, content in members.items():
            info = tarfile.TarInfo(f"box/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def failure(*arguments, **keywords) -> str:
    """Return the one line that a fetch fails with."""
    with pytest.raises(InputError) as error:
        toy(*arguments, **keywords)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("suffix", PACKINGS)
@pytest.mark.parametrize("kind", ["folder", "file", "http"])
def test_a_mirror_serves_plain_and_packed_files(server, register, tmp_path, leftovers, suffix, kind):
    register("f", CONTENT, [server.url("/never")])
    packed = PACKINGS[suffix](CONTENT)
    (tmp_path / "mirror" / "toys").mkdir(parents=True)
    (tmp_path / "mirror" / "toys" / f"f{suffix}").write_bytes(packed)
    server.publish(f"/m/toys/f{suffix}", packed)
    mirrors = {"folder": str(tmp_path / "mirror"), "file": (tmp_path / "mirror").as_uri(), "http": server.url("/m/")}
    path = toy("f", tmp_path / "raw", mirrors[kind])
    assert path == tmp_path / "raw" / "f" and path.read_bytes() == CONTENT
    assert leftovers(tmp_path / "raw") == ["f"]
    assert "/never" not in server.asked


def test_what_is_there_and_verified_is_not_fetched_again(server, register, tmp_path):
    register("f", CONTENT, [server.publish("/f", CONTENT)])
    before = toy("f", tmp_path / "raw").stat()
    server.asked.clear()
    assert toy("f", tmp_path / "raw").stat().st_ino == before.st_ino
    assert server.asked == []


def test_what_is_there_and_wrong_is_replaced(server, register, tmp_path):
    register("f", CONTENT, [server.publish("/f", gzip.compress(CONTENT))])
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "f").write_bytes(CONTENT[:-1] + b"x")
    assert toy("f", tmp_path / "raw").read_bytes() == CONTENT


def test_the_sources_are_tried_in_order(server, register, tmp_path, leftovers):
    bad = [
        server.url("/missing.gz"),
        server.publish("/wrong.gz", gzip.compress(b"another file")),
        server.publish("/torn.gz", gzip.compress(CONTENT)[:-20]),
        server.publish("/dead.gz", b"", failures=99),
    ]
    register("f", CONTENT, [*bad, server.publish("/good.gz", gzip.compress(CONTENT)), server.url("/never.gz")])
    (tmp_path / "mirror").mkdir()
    assert toy("f", tmp_path / "raw", str(tmp_path / "mirror")).read_bytes() == CONTENT
    tried = list(dict.fromkeys(server.asked))
    assert tried == ["/missing.gz", "/wrong.gz", "/torn.gz", "/dead.gz", "/good.gz"]
    assert leftovers(tmp_path / "raw") == ["f"]


def test_a_redirection_is_followed_and_a_transparent_packing_undone(server, register, tmp_path):
    packed = gzip.compress(CONTENT)
    server.publish("/there.gz", packed, headers={"Content-Encoding": "gzip"})
    moved = server.publish("/here.gz", b"over there", status=302, headers={"Location": "/there.gz"})
    register("f", CONTENT, [moved])
    assert toy("f", tmp_path / "raw").read_bytes() == CONTENT
    assert server.asked == ["/here.gz", "/there.gz"]


def test_one_line_names_every_source_its_reason_and_the_way_out(server, register, tmp_path, leftovers):
    wrong = gzip.compress(CONTENT[:-1] + b"x")
    register("f", CONTENT, [server.url("/missing"), server.publish("/wrong", wrong), "http://127.0.0.1:9/off"])
    (tmp_path / "mirror" / "toys").mkdir(parents=True)
    (tmp_path / "mirror" / "toys" / "f.xz").write_bytes(b"no xz")
    line = failure("f", tmp_path / "raw", str(tmp_path / "mirror"))
    assert line.startswith("cannot fetch f of toy: ")
    assert f"{tmp_path}/mirror/toys/f.xz: found sha256 {hashlib.sha256(b'no xz').hexdigest()}" in line
    assert "/missing: HTTP 404" in line
    assert f"found sha256 {hashlib.sha256(CONTENT[:-1] + b'x').hexdigest()}" in line
    assert line.count(f"expected {hashlib.sha256(CONTENT).hexdigest()}") == 2
    assert "http://127.0.0.1:9/off: the server cannot be reached" in line
    assert "data.mirror" in line and "DPFL_MIRROR" in line and "toys/f" in line
    assert leftovers(tmp_path / "raw") == []


def test_an_unreachable_mirror_is_asked_once(server, register, tmp_path):
    register("f", CONTENT, [server.publish("/f", CONTENT)])
    register("g", CONTENT + b"x")
    assert toy("f", tmp_path / "raw", "http://127.0.0.1:9").read_bytes() == CONTENT
    assert failure("g", tmp_path / "raw", "http://127.0.0.1:9").count("127.0.0.1:9") == 1


def test_a_variant_comes_under_its_own_name_and_after_the_file_itself(server, register, tmp_path):
    register("f", CONTENT, [server.publish("/f", CONTENT)])
    register("f_short", CONTENT[:-13], variant_of="f", note="One record is missing.")
    folder = tmp_path / "mirror" / "toys"
    folder.mkdir(parents=True)
    (folder / "f_short.xz").write_bytes(lzma.compress(CONTENT[:-13]))
    path = toy("f", tmp_path / "raw", str(tmp_path / "mirror"))
    assert path.name == "f_short" and path.read_bytes() == CONTENT[:-13]
    assert toy("f", tmp_path / "raw").name == "f_short", "it is there and verified"
    assert toy("f", tmp_path / "raw2").name == "f", "without a mirror: the file itself"
    (folder / "f").write_bytes(CONTENT)
    assert toy("f", tmp_path / "raw3", str(tmp_path / "mirror")).name == "f"
    assert failure("nothing", tmp_path / "raw").startswith("no file 'nothing' in dataset 'toy'")


def test_a_variant_passed_off_as_the_file_is_refused(register, tmp_path):
    register("f", CONTENT)
    register("f_short", CONTENT[:-13], variant_of="f", note="One record is missing.")
    (tmp_path / "mirror" / "toys").mkdir(parents=True)
    (tmp_path / "mirror" / "toys" / "f").write_bytes(CONTENT[:-13])
    assert "found sha256" in failure("f", tmp_path / "raw", str(tmp_path / "mirror"))


def test_one_member_is_taken_out_of_an_archive_and_nothing_else(server, register, tmp_path, leftovers):
    box = archive(a=CONTENT, b=b"b" * 999)
    url = server.publish("/box.tar.gz", box)
    for name, content in (("a", CONTENT), ("b", b"b" * 999)):
        register(name, content, [url], archive=box, member=f"box/{name}")
    assert toy("a", tmp_path / "x" / "raw").read_bytes() == CONTENT
    assert leftovers(tmp_path / "x") == ["raw/a", "raw/downloads/box.tar.gz"]
    assert toy("b", tmp_path / "x" / "raw").read_bytes() == b"b" * 999
    assert server.asked == ["/box.tar.gz"]
    assert not (tmp_path / "escaped").exists() and not (tmp_path / "x" / "escaped").exists()


def test_members_asked_for_at_the_same_time_share_one_download(server, register, tmp_path):
    members = {name: random.Random(name).randbytes(50_000) for name in "abcd"}
    box = archive(**members)
    url = server.publish("/box.tar.gz", box, breaks=1)
    for name, content in members.items():
        register(name, content, [url], archive=box, member=f"box/{name}")
    threads = [threading.Thread(target=toy, args=(name, tmp_path / "raw")) for name in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: (tmp_path / "raw" / name).read_bytes() for name in members} == members
    assert server.asked == ["/box.tar.gz"] * 2, "one download, broken off once"


def test_wrong_archives_and_members_are_refused(server, register, tmp_path, leftovers):
    box = archive(a=CONTENT)
    other = server.publish("/other.tar.gz", archive(a=b"other"))
    good = server.publish("/box.tar.gz", box)
    register("a", CONTENT, [other], archive=box, member="box/a")
    register("link", b"root", [good], archive=box, member="box/link")
    register("none", CONTENT, [good], archive=box, member="a")
    assert "for the archive, expected" in failure("a", tmp_path / "raw")
    assert leftovers(tmp_path / "raw") == []
    assert "holds no box/link" in failure("link", tmp_path / "raw")
    assert "holds no a" in failure("none", tmp_path / "raw")


@pytest.mark.parametrize(
    "box",
    [b"no archive", b"\x1f\x8b\x08", gzip.compress(b"x" * 600), archive(a=CONTENT)[:-40]],
    ids=["text", "start", "no tar", "cut"],  # gzip writes the time: names made of these bytes would differ by worker
)
def test_an_archive_that_is_none_is_refused(server, register, tmp_path, box):
    register("a", CONTENT, [server.publish("/box.tar.gz", box)], archive=box, member="box/a")
    assert "cannot fetch a of toy" in failure("a", tmp_path / "raw")


def test_a_killed_fetch_leaves_nothing_that_looks_finished(server, register, tmp_path, leftovers):
    register("f", CONTENT, [server.publish("/f", CONTENT, stalls=True)])
    pid = os.fork()
    if pid == 0:
        toy("f", tmp_path / "raw", timeout_seconds=60)
        os._exit(0)
    partial = tmp_path / "raw" / "downloads" / "f.partial"
    until = time.monotonic() + 120
    while time.monotonic() < until and not (partial.exists() and partial.stat().st_size):
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    assert leftovers(tmp_path / "raw") == ["downloads/f.partial"]
    register("f", CONTENT, [server.publish("/f", CONTENT)])
    assert toy("f", tmp_path / "raw").read_bytes() == CONTENT
    assert leftovers(tmp_path / "raw") == ["f"]


def test_a_full_disk_is_one_line_and_nothing_is_left(register, server, tmp_path, small_disk, leftovers):
    content = random.Random(1).randbytes(400_000)
    register("f", content, [server.publish("/f", content)])
    (tmp_path / "mirror" / "toys").mkdir(parents=True)
    (tmp_path / "mirror" / "toys" / "f").write_bytes(content)
    assert "No space left on device" in failure("f", small_disk / "raw", str(tmp_path / "mirror"))
    assert leftovers(small_disk) == []
    line = failure("f", small_disk / "raw")
    assert "No space left on device" in line and str(small_disk) in line
    assert leftovers(small_disk) == []


def test_a_read_only_disk_is_one_line(register, server, small_disk):
    register("f", CONTENT, [server.publish("/f", CONTENT)])
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    line = failure("f", small_disk / "raw")
    assert "Read-only file system" in line and str(small_disk / "raw") in line


def test_a_folder_that_is_a_file_is_one_line(register, server, tmp_path):
    register("f", CONTENT, [server.publish("/f", CONTENT)])
    (tmp_path / "raw").write_bytes(b"")
    assert f"cannot write f of toy in {tmp_path / 'raw'}" in failure("f", tmp_path / "raw")


@pytest.mark.parametrize("kind", ["fifo", "folder", "device", "dead link", "unreadable"])
def test_only_regular_files_of_a_mirror_are_read_and_the_next_source_is_tried(register, server, tmp_path, kind):
    """A FIFO that nobody writes to would wait for ever, a device never end."""
    path = tmp_path / "mirror" / "toys" / "f"
    path.parent.mkdir(parents=True)
    make = {
        "fifo": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "device": lambda: path.symlink_to("/dev/zero"),
        "dead link": lambda: path.symlink_to("nowhere"),
        "unreadable": lambda: path.symlink_to("/proc/self/mem"),  # opens, and fails at the first read
    }
    make[kind]()
    register("f", CONTENT, [])
    line = failure("f", tmp_path / "raw", str(tmp_path / "mirror"))
    reason = {"dead link": "not there", "unreadable": "cannot be read: Input/output error", "folder": "Is a directory"}
    assert f"{path}: " in line and reason.get(kind, "not a regular file") in line
    register("f", CONTENT, [server.publish("/f", CONTENT)])
    assert toy("f", tmp_path / "raw", str(tmp_path / "mirror")).read_bytes() == CONTENT


def test_a_dripping_mirror_gives_way_to_the_next_source(register, server, tmp_path):
    server.publish("/m/toys/f", CONTENT, drips="body")
    register("f", CONTENT, [server.publish("/f", CONTENT)])
    assert toy("f", tmp_path / "raw", server.url("/m"), timeout_seconds=0.3).read_bytes() == CONTENT


@pytest.mark.parametrize("mirror", ["/no/such/folder", "file:///no/such/folder", "ftp://host/data"])
def test_a_mirror_that_cannot_be_one_is_refused_at_once(mirror):
    with pytest.raises(InputError, match=mirror):
        configured(mirror)


def test_a_mirror_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "m").write_bytes(b"")
    with pytest.raises(InputError, match="is not a folder"):
        configured(str(tmp_path / "m"))


def test_the_setting_comes_before_the_environment(tmp_path, monkeypatch):
    assert configured(None) is None
    monkeypatch.setenv("DPFL_MIRROR", "http://host/m/")
    assert configured(None) == "http://host/m"
    assert configured(str(tmp_path)) == tmp_path
    assert configured(tmp_path.as_uri()) == tmp_path
