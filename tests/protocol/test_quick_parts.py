"""Lengths, texts and topics are read and written as the tables do it, and what is unusual about them is refused."""

import pytest

from penstock.protocol.errors import DecodeError
from penstock.protocol.quick_parts import read_length, read_text, read_topic, skip_no_tags, write_length, write_topic


@pytest.mark.parametrize("is_flexible", [False, True])
@pytest.mark.parametrize("length", [0, 1, 126, 127, 16_382, 16_383, 0x7FFF_FFFF])
def test_a_length_is_read_as_it_is_written(length: int, is_flexible: bool) -> None:
    written = write_length(length, is_flexible=is_flexible)
    assert read_length(memoryview(b"?" + written), 1, is_flexible=is_flexible) == (length, 1 + len(written))


@pytest.mark.parametrize(("written", "is_flexible"), [(b"\xff\xff\xff\xff", False), (b"\0", True)])
def test_an_array_that_is_null_has_the_length_minus_one(written: bytes, is_flexible: bool) -> None:
    assert read_length(memoryview(written), 0, is_flexible=is_flexible)[0] == -1


@pytest.mark.parametrize("written", [b"\x82\0", b"\x80\x80\0", b"\x80\x80\x80\x80\x80\x01"])
def test_a_length_with_bytes_that_mean_nothing_is_refused(written: bytes) -> None:
    with pytest.raises(DecodeError):
        read_length(memoryview(written), 0, is_flexible=True)


@pytest.mark.parametrize("is_flexible", [False, True])
@pytest.mark.parametrize("topic", ["orders", "n" * 249, "é"])
def test_a_topic_is_read_as_it_is_written(topic: str, is_flexible: bool) -> None:
    written = memoryview(write_topic(topic, 3, is_flexible=is_flexible))
    name, position = read_topic(written, 0, is_flexible=is_flexible, by_id=False)
    assert name == topic
    assert read_length(written, position, is_flexible=is_flexible) == (3, len(written))


def test_a_topic_by_id_is_its_sixteen_bytes() -> None:
    topic_id = bytes(range(16))
    written = memoryview(write_topic(topic_id, 3, is_flexible=True))
    assert read_topic(written, 0, is_flexible=True, by_id=True) == (topic_id, 16)


@pytest.mark.parametrize(
    ("written", "is_flexible"),
    [(b"\xff\xff", False), (b"\0\5abcd", False), (b"\0", True), (b"\6abcd", True)],
    ids=["null", "cut", "null, compact", "cut, compact"],
)
def test_a_text_that_is_null_or_cut_is_refused(written: bytes, is_flexible: bool) -> None:
    with pytest.raises(DecodeError):
        read_text(memoryview(written), 0, is_flexible=is_flexible)


def test_only_an_empty_section_of_tagged_fields_is_skipped() -> None:
    assert skip_no_tags(memoryview(b"?\0"), 1) == 2
    with pytest.raises(DecodeError):
        skip_no_tags(memoryview(b"?\1"), 1)
