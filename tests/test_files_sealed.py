"""Sealed bytes: back as they were, or not at all."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.files import checked_content, with_checksum


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=200))
def test_content_comes_back(content):
    assert checked_content(with_checksum(content)) == content


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=1, max_size=200), st.data())
def test_any_flipped_bit_and_any_cut_is_seen(content, data):
    sealed = bytearray(with_checksum(content))
    place = data.draw(st.integers(0, len(sealed) - 1))
    assert checked_content(bytes(sealed[:place])) is None
    sealed[place] ^= 1 << data.draw(st.integers(0, 7))
    assert checked_content(bytes(sealed)) is None


def test_foreign_bytes_are_nothing():
    assert checked_content(b"") is None and checked_content(b"\n\n") is None
