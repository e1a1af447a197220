"""Frames cut out of a stream, however it comes."""

import tracemalloc
from collections.abc import Iterator
from itertools import repeat
from random import Random

import pytest

from penstock.protocol.errors import DecodeError
from penstock.protocol.framing import (
    DEFAULT_LIMIT,
    LARGE_BYTES,
    LARGEST_IN_PLACE,
    LARGEST_SPARE,
    SPARES,
    FrameReader,
    frame,
)

BODIES = [b"", b"a", b"bcdef", b"", b"g" * 300]
STREAM = b"".join(len(body).to_bytes(4, "big") + body for body in BODIES)


def feed(reader: FrameReader, *pieces: bytes) -> list[bytes]:
    return [bytes(body) for piece in pieces for body in reader.feed(memoryview(piece))]


def test_several_frames_come_out_of_one_read() -> None:
    assert feed(FrameReader(), STREAM) == BODIES


def test_frames_survive_a_cut_at_every_byte() -> None:
    for cut in range(len(STREAM) + 1):
        reader = FrameReader()
        assert feed(reader, STREAM[:cut], STREAM[cut:]) == BODIES, f"cut at {cut}"
        assert reader.waiting_bytes == 0, f"cut at {cut}"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64])
def test_frames_survive_any_size_of_pieces(size: int) -> None:
    pieces = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
    assert feed(FrameReader(), *pieces) == BODIES


@pytest.mark.parametrize("seed", range(50))
def test_frames_survive_random_cuts(seed: int) -> None:
    rng = Random(seed)
    bodies = [rng.randbytes(rng.choice((0, 1, 3, 4, 5, 100, 1000))) for _ in range(20)]
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    cuts = sorted(rng.randrange(len(stream) + 1) for _ in range(rng.randrange(40)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert feed(FrameReader(), *pieces) == bodies


def test_a_frame_that_came_whole_is_a_view_of_what_came() -> None:
    data = bytearray(STREAM + b"\0\0\0\5par")
    frames = FrameReader().feed(memoryview(data))
    assert all(body.obj is data for body in frames)
    assert len(frames) == len(BODIES)


def test_a_frame_that_came_in_pieces_does_not_change_when_more_comes() -> None:
    reader = FrameReader()
    assert feed(reader, b"\0\0\0\5hel") == []
    received = bytearray(b"lo\0\0\0\5world\0\0\0\3b")
    hello, world = reader.feed(memoryview(received))
    assert hello.obj is not received
    assert world.obj is received
    received[:] = bytes(len(received))
    assert feed(reader, b"ye") == [b"bye"]
    assert bytes(hello) == b"hello"


@pytest.mark.parametrize("at_most", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("cut", [0, 3, 7])
def test_frames_beyond_those_asked_for_are_kept_for_later(at_most: int, cut: int) -> None:
    reader = FrameReader()
    stream = memoryview(STREAM + STREAM[:cut])
    found = [bytes(body) for body in reader.feed(stream, at_most)]
    assert len(found) <= at_most
    while more := reader.more(at_most):
        assert len(more) <= at_most
        found += map(bytes, more)
    found += feed(reader, STREAM[cut:])
    assert found == BODIES * 2
    assert reader.waiting_bytes == 0


def test_nothing_in_gives_nothing_out() -> None:
    reader = FrameReader()
    assert feed(reader, b"", b"\0\0", b"", b"\0\1", b"", b"x") == [b"x"]


def test_a_frame_as_long_as_the_limit_passes_and_a_longer_one_does_not() -> None:
    assert feed(FrameReader(limit=5), b"\0\0\0\5hello") == [b"hello"]
    with pytest.raises(DecodeError, match="a frame of 6 bytes is over the limit of 5"):
        feed(FrameReader(limit=5), b"\0\0\0\6")
    with pytest.raises(DecodeError, match="over the limit"):
        feed(FrameReader(limit=5), b"\0\0", b"\0\6")


def test_the_limit_may_be_raised_between_frames() -> None:
    reader = FrameReader(limit=5)
    assert feed(reader, b"\0\0\0\5hello") == [b"hello"]
    reader.limit = 10
    assert feed(reader, b"\0\0\0\6longer") == [b"longer"]


def test_the_default_limit_is_100_mebibytes() -> None:
    assert FrameReader().limit == DEFAULT_LIMIT == 100 * 1024 * 1024
    assert feed(FrameReader(), (100 * 1024 * 1024).to_bytes(4, "big")) == []
    with pytest.raises(DecodeError, match="a frame of 104857601 bytes is over the limit"):
        feed(FrameReader(), (100 * 1024 * 1024 + 1).to_bytes(4, "big"))


@pytest.mark.parametrize("pieces", [[b"\xff\xff\xff\xff"], [b"\xff", b"\xff\xff\xff"]])
def test_a_negative_length_is_refused(pieces: list[bytes]) -> None:
    with pytest.raises(DecodeError, match=r"a frame of negative length \(-1\)"):
        feed(FrameReader(), *pieces)


@pytest.mark.parametrize("pieces", [[b"\x16\x03\x01\x02\x00\x01"], [b"\x16", b"\x03\x01\x02"]])
def test_a_tls_hello_is_told_from_a_length(pieces: list[bytes]) -> None:
    with pytest.raises(DecodeError, match="a TLS handshake on a plaintext port: the client must use the TLS listener"):
        feed(FrameReader(), *pieces)


def test_a_claim_of_100_mebibytes_allocates_nothing() -> None:
    reader = FrameReader()
    data = memoryview(DEFAULT_LIMIT.to_bytes(4, "big") + b"ten bytes.")
    tracemalloc.start()
    frames = reader.feed(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert frames == []
    assert reader.waiting_bytes == 14
    assert peak < 4096


def test_an_unfinished_frame_takes_the_memory_of_the_bytes_that_came() -> None:
    reader = FrameReader()
    piece = memoryview(bytes(1000))
    tracemalloc.start()
    reader.feed(memoryview(DEFAULT_LIMIT.to_bytes(4, "big")))
    for number in range(1, 1001):
        reader.feed(piece)
        assert reader.waiting_bytes == 4 + 1000 * number
        held, _ = tracemalloc.get_traced_memory()
        assert held < 1.25 * 1000 * number + 4096
    tracemalloc.stop()


def test_a_frame_to_send_has_the_length_of_its_chunks_in_front() -> None:
    class FileRange:
        def __len__(self) -> int:
            return 1000

    records = FileRange()
    chunks = frame([b"header", memoryview(b"body"), records])
    assert chunks[0] == (1010).to_bytes(4, "big")
    assert chunks[3] is records
    assert frame([]) == [bytes(4)]


def receive(reader: FrameReader, stream: bytes, sizes: Iterator[int]) -> Iterator[memoryview]:
    """As one does who receives large frames in place."""
    position = 0
    while position < len(stream):
        room = reader.room()
        if room is None:
            piece = stream[position : position + next(sizes)]
            position += len(piece)
            yield from reader.feed(memoryview(piece))
        else:
            count = min(len(room), next(sizes), len(stream) - position)
            room[:count] = stream[position : position + count]
            position += count
            if (frame := reader.fill(count)) is not None:
                yield frame


@pytest.mark.parametrize("seed", range(10))
def test_large_frames_may_be_received_in_place_among_others(seed: int) -> None:
    rng = Random(seed)
    sizes = (0, 3, 1000, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1, 3 * LARGE_BYTES + 5)
    bodies = [rng.randbytes(rng.choice(sizes)) for _ in range(12)]
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    reader = FrameReader()
    pieces = iter(lambda: rng.choice((1, 4, 5, 1000, 70_000, 300_000)), None)
    received = []
    for each in receive(reader, stream, pieces):
        # Some are looked at for longer than others.
        received.append(each if rng.random() < 0.5 else bytes(each))
    assert received == bodies, f"seed {seed}"
    assert reader.waiting_bytes == 0


def test_the_memory_of_a_frame_is_used_again_when_nobody_looks_at_it_any_more() -> None:
    reader = FrameReader()
    body = bytes(2 * LARGE_BYTES)
    stream = len(body).to_bytes(4, "big") + body

    def place() -> memoryview:
        [frame] = receive(reader, stream, repeat(50_000))
        return frame

    first = place()
    part = first[100:200]
    second = place()
    assert second.obj is not first.obj
    memory = id(first.obj)
    del first
    assert id(place().obj) != memory, "a part of it is still looked at"
    del part, second
    assert memory in {id(place().obj) for _ in range(2)}


def test_no_more_memory_is_kept_than_for_a_few_frames_and_none_for_very_large_ones() -> None:
    reader = FrameReader()
    seen = []
    for _ in range(SPARES + 3):
        assert reader.feed(memoryview(LARGE_BYTES.to_bytes(4, "big"))) == []
        assert reader.room() is not None
        seen.append(reader.fill(LARGE_BYTES))
    assert len(reader._spares) == SPARES
    reader.feed(memoryview((LARGEST_SPARE + 1).to_bytes(4, "big")))
    reader.room()
    assert all(len(each) == LARGE_BYTES for each in reader._spares)
    very_large = FrameReader()
    very_large.feed(memoryview((LARGEST_IN_PLACE + 1).to_bytes(4, "big")))
    assert very_large.room() is None


def test_bytes_that_are_just_one_frame_are_told_from_all_others() -> None:
    whole = memoryview(b"\0\0\0\3abc")
    reader = FrameReader(limit=10)
    assert reader.is_whole(whole)
    assert reader.is_whole(memoryview(bytes(4)))
    for cut in range(len(whole)):
        assert not reader.is_whole(whole[:cut])
    assert not reader.is_whole(memoryview(bytes(whole) + b"\0"))
    assert not reader.is_whole(memoryview(b"\0\0\0\x0b" + bytes(11))), "it is over the limit"
    reader.feed(memoryview(b"\0"))
    assert not reader.is_whole(whole), "another frame has begun"
