"""Compression: round trips, framings of other clients, damage, and bombs."""

import gzip
import random
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.compression import Codec, compress, decompress
from penstock.protocol.errors import DecodeError, EncodeError

COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MIB = 1024 * 1024
TEXT = b"a record batch of some length, " * 3000

XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def peak_of(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", Codec)
@settings(deadline=None)
@given(data=st.one_of(st.binary(max_size=500), st.binary(max_size=50).map(lambda piece: piece * 2000)))
def test_what_is_compressed_comes_back(codec: Codec, data: bytes) -> None:
    compressed = compress(codec, memoryview(bytearray(data)))

    assert decompress(codec, compressed, limit=len(data)) == data
    assert decompress(codec, memoryview(bytearray(compressed)), limit=MIB) == data


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("level", [None, 1, 9])
def test_levels_change_the_size_and_not_the_content(codec: Codec, level: int | None) -> None:
    compressed = compress(codec, TEXT, level)

    assert len(compressed) < len(TEXT) / 10
    assert decompress(codec, compressed, limit=MIB) == TEXT


def test_a_level_that_gzip_does_not_have_is_an_encode_error() -> None:
    with pytest.raises(EncodeError, match="gzip, level 77"):
        compress(Codec.GZIP, TEXT, 77)


@pytest.mark.parametrize("codec", Codec)
def test_the_limit_is_exact(codec: Codec) -> None:
    compressed = compress(codec, TEXT)

    assert decompress(codec, compressed, limit=len(TEXT)) == TEXT
    for limit in (len(TEXT) - 1, 1, 0):
        with pytest.raises(DecodeError, match=f"more than {limit} bytes"):
            decompress(codec, compressed, limit=limit)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_no_bytes_at_all_are_damaged_data(codec: Codec) -> None:
    with pytest.raises(DecodeError):
        decompress(codec, b"", limit=MIB)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_data_cut_anywhere_is_a_decode_error(codec: Codec) -> None:
    compressed = compress(codec, bytes(range(256)) * 2)

    for length in range(len(compressed)):
        # Xerial's framing has no end: cut between blocks, here behind its header, it is whole.
        if codec is Codec.SNAPPY and length == len(XERIAL_HEADER):
            continue
        with pytest.raises(DecodeError):
            decompress(codec, compressed[:length], limit=MIB)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("tail", [b"\x00", b"\x00" * 3, b"\x00" * 50, b"garbage"])
def test_bytes_behind_the_data_are_a_decode_error(codec: Codec, tail: bytes) -> None:
    with pytest.raises(DecodeError):
        decompress(codec, compress(codec, TEXT) + tail, limit=MIB)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_several_frames_are_read_as_one(codec: Codec) -> None:
    frames = b"".join(compress(codec, piece) for piece in (TEXT, b"", b"and", b"more"))

    assert decompress(codec, frames, limit=MIB) == TEXT + b"andmore"
    with pytest.raises(DecodeError, match="more than"):
        decompress(codec, frames, limit=len(TEXT) + 6)


def test_a_gzip_stream_of_many_members_is_not_copied_for_each_of_them() -> None:
    members = compress(Codec.GZIP, b"x") * 20_000

    assert decompress(Codec.GZIP, members, limit=20_000) == b"x" * 20_000
    assert peak_of(lambda: decompress(Codec.GZIP, members, limit=20_000)) < len(members)


def test_gzip_written_by_the_gzip_module_is_read_and_the_other_way_round() -> None:
    assert decompress(Codec.GZIP, gzip.compress(TEXT), limit=MIB) == TEXT
    assert gzip.decompress(compress(Codec.GZIP, TEXT)) == TEXT


def test_snappy_is_written_in_xerial_blocks_of_32_kib() -> None:
    data = random.Random(1).randbytes(70_000)
    compressed = compress(Codec.SNAPPY, data)

    assert compressed.startswith(XERIAL_HEADER)
    position = len(XERIAL_HEADER)
    blocks = []
    while position < len(compressed):
        (length,) = struct.unpack_from(">i", compressed, position)
        blocks.append(bytes(cramjam.snappy.decompress_raw(compressed[position + 4 : position + 4 + length])))
        position += 4 + length
    assert b"".join(blocks) == data
    assert [len(block) for block in blocks] == [32768, 32768, 70_000 - 65536]


@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(10626)])
def test_a_raw_snappy_block_is_read_as_librdkafka_sends_it(data: bytes) -> None:
    assert decompress(Codec.SNAPPY, raw_snappy(data), limit=MIB) == data


def test_xerial_version_numbers_in_the_wrong_byte_order_are_forgiven() -> None:
    block = raw_snappy(TEXT)
    framed = b"\x82SNAPPY\x00" + struct.pack("<ii", 1, 1) + struct.pack(">i", len(block)) + block

    assert decompress(Codec.SNAPPY, framed, limit=MIB) == TEXT


@pytest.mark.parametrize("length", [-1, -(2**31), 6, 2**31 - 1])
def test_a_xerial_block_length_beyond_the_data_is_a_decode_error(length: int) -> None:
    with pytest.raises(DecodeError, match="does not fit the 5 that remain"):
        decompress(Codec.SNAPPY, XERIAL_HEADER + struct.pack(">i", length) + bytes(5), limit=MIB)


@pytest.mark.parametrize("framing", [b"", XERIAL_HEADER + struct.pack(">i", 7)])
def test_the_length_that_a_snappy_block_claims_is_not_allocated(framing: bytes) -> None:
    claims_4_gib = framing + b"\xff\xff\xff\xff\x0f\x00a"

    def refused() -> None:
        with pytest.raises(DecodeError, match="claims to hold 4294967295"):
            decompress(Codec.SNAPPY, claims_4_gib, limit=2**40)

    assert peak_of(refused) < 64 * 1024


def test_the_densest_snappy_block_is_within_the_ratio_that_is_believed() -> None:
    data = bytes(4 * MIB)

    assert decompress(Codec.SNAPPY, raw_snappy(data), limit=len(data)) == data


def test_lz4_is_written_in_independent_blocks_as_java_wants() -> None:
    compressed = compress(Codec.LZ4, random.Random(1).randbytes(200_000))

    assert compressed[:4] == b"\x04\x22\x4d\x18"
    assert compressed[4] & 0b1110_0000 == 0b0110_0000, "version 1, blocks independent"
    assert compressed[4] & 0b0000_0101 == 0, "no content checksum, no dictionary"


def test_lz4_of_linked_blocks_is_read_as_aiokafka_sends_it() -> None:
    linked = bytes(cramjam.lz4.compress(TEXT))

    assert linked[4] & 0b0010_0000 == 0
    assert decompress(Codec.LZ4, linked, limit=MIB) == TEXT


def test_a_zstd_frame_that_claims_a_huge_content_size_is_not_believed() -> None:
    # A single-segment frame whose eight-byte content size says 2^62, then one raw block of one byte.
    lying = b"\x28\xb5\x2f\xfd" + bytes((0b1110_0000,)) + struct.pack("<Q", 2**62) + b"\x09\x00\x00a"

    def refused() -> None:
        with pytest.raises(DecodeError):
            decompress(Codec.ZSTD, lying, limit=2**40)

    assert peak_of(refused) < 64 * 1024


def bomb(codec: Codec, size: int) -> bytes:
    """`size` zeros, compressed a piece at a time or, for raw snappy, as hand-made copies."""
    piece = compress(codec, bytes(MIB))
    if codec is Codec.SNAPPY:
        return XERIAL_HEADER + piece[len(XERIAL_HEADER) :] * (size // MIB)
    return piece * (size // MIB)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_stops_at_the_limit_in_bounded_memory(codec: Codec) -> None:
    data = bomb(codec, 64 * MIB)

    def refused() -> None:
        with pytest.raises(DecodeError, match="more than 1048576 bytes"):
            decompress(codec, data, limit=MIB)

    assert peak_of(refused) < 3 * MIB


def test_half_a_gigabyte_of_zeros_in_one_zstd_frame_stops_at_the_limit() -> None:
    # Blocks of four bytes that each repeat one byte 128 Ki times, in a window of 2 MiB.
    repeat = 128 * 1024
    middle = struct.pack("<I", repeat << 3 | 0b010)[:3] + b"\x00"
    last = struct.pack("<I", repeat << 3 | 0b011)[:3] + b"\x00"
    data = b"\x28\xb5\x2f\xfd" + bytes((0, 11 << 3)) + middle * 4095 + last
    assert len(data) < 16_400

    def refused() -> None:
        with pytest.raises(DecodeError, match="more than 1048576 bytes"):
            decompress(Codec.ZSTD, data, limit=MIB)

    assert peak_of(refused) < 3 * MIB


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the high-water mark of /proc")
def test_native_memory_stays_bounded_too() -> None:
    """In a process of its own, whose resident memory has no history."""
    child = subprocess.run(
        [sys.executable, "-c", NATIVE_MEMORY], env={"PYTHONPATH": ":".join(sys.path)}, capture_output=True, check=True
    )
    grown_kib = [int(line) for line in child.stdout.split()]

    assert len(grown_kib) == 3
    assert max(grown_kib) < 16 * 1024, f"resident memory grew by {grown_kib} KiB"


NATIVE_MEMORY = """
import struct
from penstock.protocol.compression import Codec, compress, decompress
from penstock.protocol.errors import DecodeError

def high_water_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

def repeats(window_log):
    block = struct.pack("<I", 131072 << 3 | 2)[:3] + bytes(1)
    return bytes.fromhex("28b52ffd00") + bytes(((window_log - 10) << 3,)) + block * 4096

lz4 = compress(Codec.LZ4, bytes(1 << 20)) * 256
for codec, data in ((Codec.ZSTD, repeats(21)), (Codec.ZSTD, repeats(27)), (Codec.LZ4, lz4)):
    before = high_water_kib()
    try:
        decompress(codec, data, limit=1 << 20)
    except DecodeError:
        print(high_water_kib() - before)
"""


@pytest.mark.parametrize("codec", COMPRESSED)
def test_damage_costs_no_more_memory_than_the_data(codec: Codec) -> None:
    damaged = bytearray(compress(codec, b"ab" * 50))
    damaged[-5:] = b"\xff" * 5

    def refused() -> None:
        with pytest.raises(DecodeError):
            decompress(codec, damaged, limit=2**30)

    assert peak_of(refused) < 64 * len(damaged) + 64 * 1024


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("seed", range(5))
def test_mutated_data_gives_bytes_or_a_decode_error(codec: Codec, seed: int) -> None:
    chance = random.Random(seed)
    originals = [compress(codec, data) for data in (b"", b"x", b"hello world " * 40, chance.randbytes(300))]
    outcomes = {"bytes": 0, "error": 0}
    for _ in range(1000):
        mutated = bytearray(chance.choice(originals))
        for _ in range(chance.randint(1, 3)):
            mutated[chance.randrange(len(mutated))] = chance.randrange(256)
        try:
            assert len(decompress(codec, mutated, limit=10_000)) <= 10_000, f"seed {seed}"
            outcomes["bytes"] += 1
        except DecodeError:
            outcomes["error"] += 1

    assert outcomes["error"] > 100, f"seed {seed}: {outcomes}"
