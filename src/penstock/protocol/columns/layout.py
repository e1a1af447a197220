"""Defines the columns of records: an array for each field, in the memory layout of Arrow, which takes them over as they
are."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MESSAGE_COLUMNS = ("key", "value", "offset", "timestamp", "timestamp_type", "headers")
"""What a reader usually wants."""

ALL_COLUMNS = (*MESSAGE_COLUMNS, "size", "crc", "producer_id", "producer_epoch", "sequence", "leader_epoch")


@dataclass(slots=True, frozen=True, eq=False)
class Binary:
    """Byte strings: the i-th is `data[offsets[i]:offsets[i + 1]]`, or null where bit i of `validity` is 0.

    Offsets need not begin at 0. Bits count from the lowest; without a bitmap nothing is null.
    """

    offsets: "NDArray[np.signedinteger[Any]]"
    data: "NDArray[np.uint8]"
    validity: "NDArray[np.uint8] | None" = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self) -> "NDArray[np.int64]":
        """How long each is, and -1 for null."""
        import numpy as np

        lengths = np.diff(self.offsets).astype(np.int64, copy=False)
        if self.validity is not None:
            lengths[~unpack_bits(self.validity, len(self))] = -1
        return lengths

    def slice(self, first: int, count: int) -> "Binary":
        """A slice of rows, which shares the data."""
        validity = self.validity
        if validity is not None:
            validity = pack_bits(unpack_bits(validity, count, first))
        return Binary(self.offsets[first : first + count + 1], self.data, validity)


@dataclass(slots=True, frozen=True, eq=False)
class Headers:
    """Record i has the headers from `offsets[i]` up to `offsets[i + 1]` of `key` and `value`. Keys are UTF-8."""

    offsets: "NDArray[np.signedinteger[Any]]"
    key: Binary
    value: Binary


@dataclass(slots=True, frozen=True, eq=False)
class Columns:
    """`count` records; a column that was not asked for is None.

    A reader goes on at `next_offset`, which lies after records left out, too.
    """

    count: int
    next_offset: int = 0
    key: Binary | None = None
    value: Binary | None = None
    offset: "NDArray[np.int64] | None" = None
    timestamp: "NDArray[np.int64] | None" = None
    """Milliseconds."""
    timestamp_type: "NDArray[np.int32] | None" = None
    """0: the producer's clock, 1: the broker's."""
    headers: Headers | None = None
    size: "NDArray[np.int32] | None" = None
    """Bytes of key, value and the keys and values of headers."""
    crc: "NDArray[np.uint32] | None" = None
    """The checksum of the record's batch; the next four are the batch's as well, but for `sequence`."""
    producer_id: "NDArray[np.int64] | None" = None
    producer_epoch: "NDArray[np.int16] | None" = None
    sequence: "NDArray[np.int32] | None" = None
    """The record's own, or -1 without an idempotent producer."""
    leader_epoch: "NDArray[np.int32] | None" = None


def pack_bits(flags: "NDArray[np.bool_]") -> "NDArray[np.uint8]":
    """A bitmap as Arrow has it."""
    import numpy as np

    return np.packbits(flags, bitorder="little")


def unpack_bits(bitmap: "NDArray[np.uint8]", count: int, start: int = 0) -> "NDArray[np.bool_]":
    """`count` flags of a bitmap, from bit `start` on."""
    import numpy as np

    whole, rest = divmod(start, 8)
    bits = np.unpackbits(bitmap[whole : (start + count + 7) // 8], count=rest + count, bitorder="little")
    return bits[rest:].view(np.bool_)


def zigzag(values: "NDArray[np.int64]") -> "NDArray[np.uint64]":
    """The unsigned numbers that varints write signed ones as."""
    import numpy as np

    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def varint_sizes(numbers: "NDArray[np.uint64]") -> "NDArray[np.int64]":
    """How many bytes each takes."""
    import numpy as np

    sizes = np.ones(len(numbers), np.int64)
    largest = int(numbers.max(initial=0)) >> 7
    shift = 7
    while largest:
        sizes += numbers >= np.uint64(1 << shift)
        largest >>= 7
        shift += 7
    return sizes
