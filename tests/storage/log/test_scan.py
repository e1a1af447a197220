"""Walking through batches: what is found, and what is refused as no batch."""

import random

import pytest

from penstock.protocol.batch import HEADER, stamp, stamp_crc
from penstock.protocol.compression import Codec
from penstock.storage.files import Buffer
from penstock.storage.files.memory import MemoryFiles
from penstock.storage.log.scan import BadBatchError, Batch, scan
from tests.storage.store import new_batch, overwrite

PATH = "/file"
ALL = range(1000)


def chain(*batches: bytearray, first: int = 0) -> bytearray:
    """Batches one behind the other, with the offsets that follow from it."""
    data, offset = bytearray(), first
    for batch in batches:
        stamp(batch, offset, 0)
        offset += int.from_bytes(batch[23:27], "big") + 1
        data += batch
    return data


def walk(
    data: Buffer, *, position: int = 0, end: int | None = None, offsets: range = ALL, at_once: int = 4096
) -> list[Batch]:
    """By headers and with checksums, which have to agree where nothing is damaged."""
    with_checksums = list(_walk(data, position, end, offsets, at_once, checksums=True))
    assert list(_walk(data, position, end, offsets, at_once, checksums=False)) == with_checksums
    return with_checksums


def _walk(
    data: Buffer, position: int, end: int | None, offsets: range, at_once: int, *, checksums: bool
) -> list[Batch]:
    files = MemoryFiles()
    overwrite(files, PATH, data)
    fd = files.open(PATH)
    end = len(data) if end is None else end
    return list(scan(files, fd, position, end, offsets=offsets, bytes_at_once=at_once, checksums=checksums))


def refused(data: Buffer, *, checksums: bool = False, offsets: range = ALL) -> BadBatchError:
    with pytest.raises(BadBatchError) as caught:
        _walk(data, 0, None, offsets, 4096, checksums=checksums)
    return caught.value


def test_batches_are_found_where_they_lie() -> None:
    batches = [new_batch(b"a"), new_batch(b"b", b"c"), new_batch(b"d" * 100, codec=Codec.GZIP)]
    found = walk(chain(*batches))
    assert [batch.header.base_offset for batch in found] == [0, 1, 3]
    assert [batch.position for batch in found] == [0, len(batches[0]), len(batches[0]) + len(batches[1])]


def test_nothing_is_found_in_nothing() -> None:
    assert walk(b"") == []


@pytest.mark.parametrize("at_once", [HEADER.size, 100, 333, 4096, 100_000])
def test_it_does_not_matter_how_much_is_read_at_once(at_once: int) -> None:
    rng = random.Random(3)
    data = chain(*(new_batch(*[rng.randbytes(rng.choice([0, 10, 300, 5000]))] * rng.randint(1, 4)) for _ in range(40)))
    found = walk(data, at_once=at_once)
    assert len(found) == 40
    assert found == walk(data, at_once=len(data))


def test_a_walk_begins_and_ends_where_it_is_told() -> None:
    batches = [new_batch(b"a"), new_batch(b"b"), new_batch(b"c")]
    data = chain(*batches)
    size = len(batches[0])
    assert [batch.header.base_offset for batch in walk(data, position=size)] == [1, 2]
    assert [batch.header.base_offset for batch in walk(data, position=size, end=2 * size)] == [1]


def test_what_is_too_short_for_a_header_is_no_batch() -> None:
    bad = refused(chain(new_batch(b"a")) + bytes(60))
    assert bad.position == len(new_batch(b"a"))
    assert "60 bytes remain" in bad.reason


def test_zeros_are_no_batch() -> None:
    assert refused(bytes(1000)).reason == "there is no batch here"


def test_a_batch_that_goes_beyond_the_end_is_no_batch() -> None:
    data = chain(new_batch(b"a" * 50))
    assert "goes beyond" in refused(data[:-1]).reason


@pytest.mark.parametrize("length", [-13, -1, 0, 48])
def test_a_length_that_has_no_room_for_a_header_is_no_batch(length: int) -> None:
    data = chain(new_batch(b"a"))
    data[8:12] = length.to_bytes(4, "big", signed=True)
    assert refused(data).reason == "there is no batch here"


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_another_magic_is_no_batch(magic: int) -> None:
    data = chain(new_batch(b"a"))
    data[16] = magic
    assert refused(data).reason == "there is no batch here"


def test_a_negative_offset_delta_is_no_batch() -> None:
    data = chain(new_batch(b"a"))
    data[23:27] = b"\xff" * 4
    stamp_crc(data)
    assert refused(data).reason == "there is no batch here"


def test_offsets_have_to_grow() -> None:
    data = chain(new_batch(b"a", b"b")) + chain(new_batch(b"c"), first=1)
    assert refused(data).reason == "offset 1 comes after 1"


def test_offsets_may_have_holes() -> None:
    data = chain(new_batch(b"a")) + chain(new_batch(b"c"), first=100)
    assert [batch.header.base_offset for batch in walk(data)] == [0, 100]


def test_offsets_outside_of_those_that_may_be_are_refused() -> None:
    data = chain(new_batch(b"a"), new_batch(b"b"), first=5)
    assert len(walk(data, offsets=range(5, 7))) == 2
    assert refused(data, offsets=range(6, 100)).reason == "offset 5 comes after 5"
    assert refused(data, offsets=range(5, 6)).reason == "offset 6 where 5 is the last"


def test_a_checksum_is_checked_when_asked_for() -> None:
    data = chain(new_batch(b"a" * 50), new_batch(b"b" * 50))
    data[-1] ^= 1
    assert len(_walk(data, 0, None, ALL, 4096, checksums=False)) == 2
    bad = refused(data, checksums=True)
    assert bad.position == len(data) // 2
    assert "CRC32C" in bad.reason


def test_a_file_that_is_shorter_than_it_should_be_ends_in_no_batch() -> None:
    data = chain(new_batch(b"a"))
    files = MemoryFiles()
    overwrite(files, PATH, data)
    with pytest.raises(BadBatchError, match="0 bytes remain"):
        list(scan(files, files.open(PATH), 0, len(data) + 100, offsets=ALL))


def test_random_bytes_are_refused_or_walked_within_the_file() -> None:
    rng = random.Random(11)
    for case in range(300):
        data = chain(new_batch(b"a" * 20), new_batch(b"b" * 20), new_batch(b"c" * 20))
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.choice([0, 255, rng.randrange(256)])
        try:
            found = _walk(data, 0, None, ALL, 100, checksums=False)
        except BadBatchError as bad:
            reached = bad.position
        else:
            reached = sum(batch.header.size for batch in found)
        assert 0 <= reached <= len(data), f"case {case}"
