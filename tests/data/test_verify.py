"""Verified bytes: whatever comes in, only the wanted content is kept."""

import gzip
import hashlib
import io
import lzma
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpfl.data.datasets import Source
from dpfl.data.verify import Refused, decompressed, holds, store


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
