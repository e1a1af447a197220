"""Reads, checks and stamps the header of a record batch (format v2). Records stay bytes here."""

import struct
from typing import NamedTuple

from penstock.protocol.compression import MAX_DECOMPRESSED_BYTES, Codec
from penstock.protocol.crc32c import crc32c
from penstock.protocol.errors import DecodeError
from penstock.protocol.varint import Buffer

HEADER = struct.Struct(">qiibIhiqqqhii")
MAGIC = 2

CODEC_BITS = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

# Where the checksummed part begins; base offset, length, leader epoch and magic lie before it and may be stamped.
CRC_START = 21
# What lies before the magic: base offset, length and leader epoch, of which the first and the last are stamped.
BEFORE_MAGIC = struct.Struct(">qii")
# What the length field does not count: itself and the base offset.
LENGTH_OVERHEAD = 12
# An end that lies after every offset.
NO_END = 1 << 63
# The smallest record has seven fields of one byte each.
MIN_RECORD_BYTES = 7


class BatchHeader(NamedTuple):
    """The 61 bytes before the records."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header and records."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        number = self.attributes & CODEC_BITS
        if number >= len(_CODECS):
            raise _unknown_codec(number)
        return _CODECS[number]

    @property
    def is_log_append_time(self) -> bool:
        """Whether the broker's clock gave the timestamp (the maximum, for every record) and not the producer's."""
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp is the time from which compaction may drop the batch's tombstones (KIP-534)."""
        return self.attributes & DELETE_HORIZON_BIT != 0


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, as it stands: nothing in it is checked."""
    try:
        return _new(BatchHeader, HEADER.unpack_from(buffer, position))
    except struct.error:
        raise _no_header(memoryview(buffer)[position:]) from None


def split(buffer: Buffer, *, max_batch_bytes: int | None = None) -> list[tuple[BatchHeader, memoryview]]:
    """The batches of a records field, which must be whole; each view covers header and records."""
    view = memoryview(buffer)
    end = len(view)
    position = 0
    batches = []
    while position < end:
        try:
            header = _new(BatchHeader, _unpack(view, position))
        except struct.error:
            raise _no_header(view[position:]) from None
        if header.magic != MAGIC:
            raise _unsupported(header.magic & 0xFF)
        size = header.batch_length + LENGTH_OVERHEAD
        if size < _HEADER_SIZE:
            raise DecodeError(f"a record batch of {size} bytes is shorter than its header of {HEADER.size}")
        if size > end - position:
            raise DecodeError(f"a record batch of {size} bytes does not fit the {end - position} that remain")
        if max_batch_bytes is not None and size > max_batch_bytes:
            raise DecodeError(
                f"a record batch of {size} bytes is over the limit of {max_batch_bytes}; send smaller ones"
            )
        # Nearly always there is just one.
        batches.append((header, view if size == end else view[position : position + size]))
        position += size
    return batches


def whole_batches(view: memoryview, offset: int = 0, end: int = NO_END) -> tuple[int, int]:
    """How many bytes of a fetched records field to read, and the offset to fetch from next.

    The bytes are the whole batches that begin before the offset `end`: a broker may cut the last batch off where the
    reply got too long, though never the first (KIP-74). Bytes that cannot be a batch are left for the decoder to
    refuse. The next offset is `offset` if there is no batch.
    """
    position = 0
    next_offset = offset
    while len(view) - position >= HEADER.size:
        header = read_header(view, position)
        if header.size < HEADER.size:
            return len(view), next_offset
        if header.base_offset >= end:
            return position, max(next_offset, header.base_offset)
        if header.size > len(view) - position:
            break
        position += header.size
        # The last batch decides: a damaged one before it may claim to reach further.
        next_offset = max(offset, header.next_offset)
    return position or len(view), next_offset


def verify(header: BatchHeader, view: Buffer) -> None:
    """Raise a DecodeError unless `view` is one batch of the size, shape and checksum that its header says."""
    check_shape(header, view)
    if (crc := crc32c(memoryview(view)[CRC_START:])) != header.crc:
        raise DecodeError(f"the record batch is damaged: its CRC32C is {crc:08x}, its header says {header.crc:08x}")


def check_shape(header: BatchHeader, view: Buffer) -> None:
    """The checks of `verify` that cost no pass over the bytes."""
    if header.magic != MAGIC:
        raise _unsupported(header.magic)
    if len(view) != header.batch_length + LENGTH_OVERHEAD:
        raise DecodeError(f"a record batch of {header.size} bytes was handed over as {len(view)}")
    # After compaction there are fewer records than offsets, down to none.
    if not 0 <= header.record_count <= header.last_offset_delta + 1 or header.last_offset_delta < 0:
        raise DecodeError(
            f"{header.record_count} records with a last offset delta of {header.last_offset_delta} are impossible"
        )
    if header.base_offset > _INT64_MAX - header.last_offset_delta:
        raise DecodeError(f"a record batch at base offset {header.base_offset} runs past the largest offset")


def check_produced(header: BatchHeader) -> None:
    """Raise a DecodeError unless a producer may send a batch with this header.

    Stored batches need not pass: compaction leaves gaps and brokers write control records.
    """
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise DecodeError(
            f"a produced batch counts its records from 0 without gaps: "
            f"{header.record_count} records, last offset delta {header.last_offset_delta}"
        )
    attributes = header.attributes
    codec = attributes & CODEC_BITS
    if attributes & ~_PRODUCER_BITS:
        raise DecodeError(
            f"a producer may set the codec and transactional bits only, not attributes {attributes & 0xFFFF:#06x}"
        )
    if codec >= len(_CODECS):
        raise _unknown_codec(codec)
    size = header.size - HEADER.size
    if header.record_count > _largest_count(size, codec):
        raise DecodeError(
            f"{header.record_count} records do not fit {size} bytes with compression {_CODECS[codec].name.lower()}, "
            f"which has room for {_largest_count(size, codec)} at most"
        )
    # Without a producer id the other two mean nothing, and clients differ: -1 from most, 0 from kafkajs.
    if header.producer_id < 0:
        if header.producer_id != -1 or attributes & TRANSACTIONAL_BIT:
            raise DecodeError(f"producer id {header.producer_id} is invalid; ask for one with InitProducerId")
    elif header.producer_epoch < 0 or header.base_sequence < 0:
        raise DecodeError(
            f"producer {header.producer_id} sent epoch {header.producer_epoch} and base sequence "
            f"{header.base_sequence}; an idempotent producer counts both from 0"
        )


def read_produced(view: memoryview) -> BatchHeader | None:
    """The header of one batch that passes `split`, `verify` and `check_produced` and is no transaction's: what they do
    for nearly every batch, at a stroke. None: call them, they know what is wrong, or that nothing is."""
    try:
        fields = _unpack(view)
    except struct.error:
        return None
    base_offset, length, _, magic, crc, attributes, last_delta, _, _, producer_id, epoch, sequence, count = fields
    if (
        magic != MAGIC
        or length + LENGTH_OVERHEAD != len(view)
        or count < 1
        or last_delta != count - 1
        or not 0 <= attributes < len(_CODECS)
        or count > _MAX_RECORDS
        or count * MIN_RECORD_BYTES > (length - _EMPTY_LENGTH) * _MAX_RATIOS[attributes]
        or (producer_id != -1 and (producer_id < 0 or epoch < 0 or sequence < 0))
        or base_offset > _INT64_MAX - last_delta
        or crc32c(view[CRC_START:]) != crc
    ):
        return None
    return _new(BatchHeader, fields)


def stamp(view: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch in place; both lie outside the checksum."""
    _BASE_OFFSET.pack_into(view, 0, base_offset)
    _LEADER_EPOCH.pack_into(view, 12, leader_epoch)


def stamp_log_append_time(view: bytearray | memoryview, timestamp: int) -> None:
    """Give every record the broker's `timestamp`, in place, and renew the checksum."""
    view[22] |= LOG_APPEND_TIME_BIT
    _MAX_TIMESTAMP.pack_into(view, 35, timestamp)
    stamp_crc(view)


def stamp_crc(view: bytearray | memoryview) -> None:
    """Write the checksum of what follows it, in place."""
    _CRC.pack_into(view, 17, crc32c(memoryview(view)[CRC_START:]))


_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_MAX_TIMESTAMP = struct.Struct(">q")
_CRC = struct.Struct(">I")

_CODECS = tuple(Codec)
# How many bytes a codec can make of one, by its format: a run of 258 bytes in two bits (gzip), a copy of 64 in three
# bytes (snappy), 255 a byte (lz4), a block of 128 KiB in four bytes (zstd). A batch that claims more records than that
# leaves room for is refused unread, or a few bytes would take billions of offsets.
_MAX_RATIOS = (1, 1032, 22, 256, 32 * 1024)
_MAX_RECORDS = MAX_DECOMPRESSED_BYTES // MIN_RECORD_BYTES
_PRODUCER_BITS = CODEC_BITS | TRANSACTIONAL_BIT
_INT64_MAX = 0x7FFF_FFFF_FFFF_FFFF

# NamedTuple's own constructor is a Python function and costs three times as much.
_new = tuple.__new__
_unpack = HEADER.unpack_from
_HEADER_SIZE = HEADER.size
# What the length field says of a batch without records.
_EMPTY_LENGTH = _HEADER_SIZE - LENGTH_OVERHEAD


def _largest_count(size: int, codec: int) -> int:
    """How many records a number of bytes can hold."""
    return (min(size * _MAX_RATIOS[codec], MAX_DECOMPRESSED_BYTES) if codec else size) // MIN_RECORD_BYTES


def _no_header(rest: memoryview) -> DecodeError:
    # A message of format 0 or 1 may be shorter than a header, and has its magic in the same place.
    if len(rest) > 16 and rest[16] != MAGIC:
        return _unsupported(rest[16])
    return DecodeError(f"a record batch needs {HEADER.size} bytes for its header, {len(rest)} remain")


def _unsupported(magic: int) -> DecodeError:
    if magic in (0, 1):
        return DecodeError(f"message format {magic} is not supported; use a client that sends format 2 (Kafka 0.11)")
    return DecodeError(f"message format {magic} is unknown; only format 2 is supported")


def _unknown_codec(number: int) -> DecodeError:
    return DecodeError(f"compression codec {number} is unknown; use none, gzip, snappy, lz4 or zstd")
