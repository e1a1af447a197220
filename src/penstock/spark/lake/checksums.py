"""`Checksum` sums rows of Arrow by their content, however they lie in memory and are divided into pieces."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.protocol.crc32c import crc32c, extend_crc32c

if TYPE_CHECKING:
    import pyarrow as pa


class Checksum:
    """Add record batches of one schema, and ask for the `value`."""

    def __init__(self) -> None:
        # One checksum for each part of each column (lengths, data, …), as the parts of a column run side by side.
        self._checksums: list[int] = []

    def add(self, batch: "pa.RecordBatch") -> None:
        parts = [part for column in batch.columns for part in _parts(column)]
        before = self._checksums or [0] * len(parts)
        self._checksums = [extend_crc32c(*each) for each in zip(before, parts, strict=True)]

    @property
    def value(self) -> int:
        return crc32c(b"".join(each.to_bytes(4, "big") for each in self._checksums))


def _parts(array: Any) -> Iterator[bytes | memoryview]:
    """The bytes of an array that count, in a fixed number of parts for each type: lengths and data, or nulls and
    numbers."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_list(kind):
        yield _bytes(pc.fill_null(pc.list_value_length(array), -1))
        for child in array.flatten().flatten():
            yield from _parts(child)
    elif pa.types.is_binary(kind) or pa.types.is_string(kind):
        yield _bytes(pc.fill_null(pc.binary_length(array), -1))
        # The bytes in place of a null mean nothing.
        array = array.drop_null() if array.null_count else array
        _, offsets, data = array.buffers()
        if not len(array) or data is None:
            yield b""
            return
        edges = np.frombuffer(offsets, np.int32)
        yield memoryview(data)[edges[array.offset] : edges[array.offset + len(array)]]
    else:
        yield _bytes(pc.is_null(array).cast(pa.uint8()))
        yield _bytes(pc.fill_null(array.cast(pa.int64()), 0))


def _bytes(numbers: Any) -> memoryview:
    return memoryview(numbers.to_numpy()).cast("B")
