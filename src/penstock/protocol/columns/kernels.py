"""Chooses between the two implementations of the loops over records: NumPy with pyarrow, or code compiled by Numba.

The reference of both is `protocol.records.iterate`.
"""

from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, cast

from penstock.protocol.columns.layout import Binary

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes: TypeAlias = NDArray[np.uint8]
    Ints: TypeAlias = NDArray[np.int64]
    Positions: TypeAlias = NDArray[np.int32]

Impl: TypeAlias = Literal["auto", "numba", "numpy"]


class Regions(NamedTuple):
    """Where in a buffer the records of each batch are, and what its header says of them."""

    start: "Ints"
    end: "Ints"
    record_count: "Ints"
    base_offset: "Ints"
    last_delta: "Ints"
    base_timestamp: "Ints"
    append_timestamp: "Ints"
    has_append_timestamp: "NDArray[np.bool_]"


class Scan(NamedTuple):
    """Where in the buffer the fields of each record are. A length of -1 is null; headers begin after their count."""

    offset: "Ints"
    timestamp: "Ints"
    key_start: "Positions"
    key_length: "Positions"
    value_start: "Positions"
    value_length: "Positions"
    header_start: "Positions"
    header_count: "Positions"
    end: "Positions"


class HeaderScan(NamedTuple):
    """Where in the buffer the key and the value of each header are, of all records in turn."""

    key_start: "Positions"
    key_length: "Positions"
    value_start: "Positions"
    value_length: "Positions"


class Layout(NamedTuple):
    """Records to be written: where each begins and what its varints say. A key or value length of -1 is null.

    `body` is a record's length after the varint that holds it, `header` the headers of each as they are written after
    their count.
    """

    position: "Ints"
    body: "Ints"
    timestamp_delta: "Ints"
    offset_delta: "Ints"
    key_length: "Ints"
    key: Binary
    value_length: "Ints"
    value: Binary
    header_count: "Ints"
    header: Binary


class Kernels(Protocol):
    """What an implementation does. Readers raise a DecodeError for anything that `records.iterate` refuses."""

    def scan(self, buffer: "Bytes", regions: Regions) -> Scan: ...

    def scan_headers(self, buffer: "Bytes", start: "Positions", count: "Positions", end: "Positions") -> HeaderScan:
        """Records without headers must have been left out."""
        ...

    def gather(
        self, buffer: "Bytes", start: "Positions", length: "Positions"
    ) -> "tuple[NDArray[np.signedinteger[Any]], Bytes]":
        """Offsets, from 0, and the bytes one after the other. Starts ascend and nothing overlaps."""
        ...

    def take(self, column: Binary, rows: "Ints") -> Binary:
        """The byte strings of some rows, in the order of `rows`, which must be those of the column."""
        ...

    def write(self, layout: Layout, size: int) -> "Bytes":
        """A buffer of `size` bytes with the records in it; what lies between them is undefined."""
        ...

    def write_headers(self, key_length: "Ints", key: Binary, value_length: "Ints", value: Binary) -> "Bytes":
        """The headers one after the other."""
        ...

    def murmur2(self, column: Binary) -> "NDArray[np.uint32]":
        """The hash of each; that of a null is undefined."""
        ...


def prepare(impl: Impl = "auto") -> Impl:
    """Import, and for Numba compile or load from its cache, what the first call would; returns which it is.

    That may take seconds, so it belongs in a thread.
    """
    chosen = _choose(impl)
    load(chosen)
    return chosen


def load(impl: Impl) -> Kernels:
    """The implementation of that name; `auto` is Numba if it is installed."""
    if _choose(impl) == "numba":
        from penstock.protocol.columns import kernels_numba

        return cast(Kernels, kernels_numba)
    from penstock.protocol.columns import kernels_numpy

    return cast(Kernels, kernels_numpy)


@cache
def _choose(impl: Impl) -> Impl:
    if impl != "auto":
        return impl
    try:
        from penstock.protocol.columns import kernels_numba  # noqa: F401 - to see whether it can be
    except ImportError:
        return "numpy"
    return "numba"
