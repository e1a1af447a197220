"""CRC32C against the published check values."""

import tracemalloc

import pytest

from penstock.protocol.crc32c import crc32c, extend_crc32c


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_the_check_values_of_rfc_3720_come_out(data: bytes, checksum: int) -> None:
    assert crc32c(data) == checksum


def test_every_kind_of_buffer_gives_the_same_checksum() -> None:
    data = bytes(range(256)) * 8
    padded = bytearray(b"xyz" + data + b"xyz")

    assert {crc32c(data), crc32c(bytearray(data)), crc32c(memoryview(padded)[3:-3])} == {crc32c(data)}


def test_a_view_is_not_copied() -> None:
    view = memoryview(bytearray(1024 * 1024))[21:]
    tracemalloc.start()
    try:
        crc32c(view)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 10_000


def test_a_checksum_of_pieces_is_that_of_the_whole() -> None:
    data = bytes(range(256)) * 3
    for place in (0, 1, 100, len(data)):
        assert extend_crc32c(crc32c(data[:place]), data[place:]) == crc32c(data)
