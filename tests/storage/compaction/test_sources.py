"""Reading segments in chunks of whole batches."""

import pytest

from penstock.storage.compaction import sources as source_batches
from penstock.storage.compaction.pace import Pace, StoppedError
from penstock.storage.compaction.sources import SourceChangedError, SourceFolder
from penstock.storage.errors import CorruptLogError
from penstock.storage.files.memory import MemoryFiles
from penstock.storage.log.cleaned import Source
from tests.storage.sources import LOG, batch, folder, put


def some(count: int, size: int = 10) -> list[bytes]:
    return [batch(number, (b"key", b"x" * size)) for number in range(count)]


@pytest.mark.parametrize("at_once", [70, 100, 1000, 10**6])
def test_chunks_hold_every_batch_once_and_whole(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_batches, "AT_ONCE", at_once)
    files, batches = MemoryFiles(), [*some(7), batch(9, (b"key", b"x" * 5000)), batch(12, (b"key", b""))]
    (source,) = put(files, batches)
    with folder(files).open(source) as opened:
        found = []
        for chunk in opened.chunks():
            for start, header in chunk.batches:
                opened.verify(chunk, start, header)
                found.append(chunk.data[start : start + header.size])
        assert found == batches
        positions = [position for some in opened.headers() for position, _ in some]
        assert positions == [sum(map(len, batches[:number])) for number in range(len(batches))]
    assert files.open_descriptors == 0


def test_headers_that_lie_far_apart_are_read_without_what_lies_between() -> None:
    files = MemoryFiles()
    (source,) = put(files, some(30, size=200_000))
    read = 0
    pread = files.pread

    def counted(fd: int, size: int, position: int) -> bytes:
        nonlocal read
        read += size
        return pread(fd, size, position)

    files.pread = counted  # type: ignore[method-assign]
    with folder(files).open(source) as opened:
        assert sum(len(some) for some in opened.headers()) == 30
    assert read < source.size / 3


def test_a_source_that_is_gone_or_was_cut_is_told_from_damage() -> None:
    files = MemoryFiles()
    (source,) = put(files, some(3))
    with (
        pytest.raises(SourceChangedError, match="does not have"),
        folder(files).open(Source(0, source.end_offset, source.size + 1)),
    ):
        pass
    files.unlink(f"{LOG}/{0:020}.log")
    with pytest.raises(SourceChangedError, match="deleted"), folder(files).open(source):
        pass


def test_a_file_that_shrinks_while_it_is_read_was_changed() -> None:
    files = MemoryFiles()
    (source,) = put(files, some(3))
    with folder(files).open(source) as opened:
        fd = files.open(f"{LOG}/{0:020}.log", write=True)
        files.truncate(fd, 100)
        with pytest.raises(SourceChangedError, match="cut"):
            list(opened.chunks())


@pytest.mark.parametrize(
    ("position", "byte"),
    [(16, 1), (8, 0x7F), (11, 1), (23, 0xFF), (0, 0x40), (26, 9)],
    ids=["magic", "too long", "too short", "negative count", "offset", "last offset"],
)
def test_what_is_no_batch_is_corruption(position: int, byte: int) -> None:
    files, batches = MemoryFiles(), some(3)
    damaged = bytearray(batches[1])
    damaged[position] = byte
    (source,) = put(files, [batches[0], damaged, batches[2]])
    for way in ("chunks", "headers"):
        with folder(files).open(source) as opened, pytest.raises(CorruptLogError):
            list(getattr(opened, way)())


def test_a_segment_that_ends_at_another_offset_is_corrupt() -> None:
    files = MemoryFiles()
    (source,) = put(files, some(3))
    with folder(files).open(Source(0, 4, source.size)) as opened, pytest.raises(CorruptLogError, match="ends at"):
        list(opened.chunks())


def test_a_changed_bit_is_found_by_its_checksum() -> None:
    files = MemoryFiles()
    (source,) = put(files, some(3))
    files.flip_bit(f"{LOG}/{0:020}.log", source.size - 2, 0)
    with folder(files).open(source) as opened:
        (chunk,) = opened.chunks()
        opened.verify(chunk, *chunk.batches[0])
        with pytest.raises(CorruptLogError, match="CRC32C"):
            opened.verify(chunk, *chunk.batches[2])


def test_reading_stops_when_asked_to() -> None:
    files = MemoryFiles()
    (source,) = put(files, some(3))
    with (
        SourceFolder(files, LOG, Pace(lambda: True, None)).open(source) as opened,
        pytest.raises(StoppedError),
    ):
        list(opened.chunks())
