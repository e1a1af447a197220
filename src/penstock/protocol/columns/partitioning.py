"""Divides columns over partitions: it finds the partition of each key, the rows of each partition, and their
records."""

from typing import TYPE_CHECKING, Any

from penstock.protocol.columns.kernels import Impl, Kernels, load
from penstock.protocol.columns.layout import ALL_COLUMNS, Binary, Columns, Headers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def partition_by(keys: Binary, partitions: int, *, impl: Impl = "auto") -> "NDArray[np.int32]":
    """The partition of each key by murmur2, as Java's client chooses it, and -1 for null."""
    import numpy as np

    hashed = load(impl).murmur2(keys) & np.uint32(0x7FFFFFFF)
    chosen = (hashed % np.uint32(partitions)).astype(np.int32)
    if keys.validity is not None:
        chosen[keys.lengths() < 0] = -1
    return chosen


def group_rows(partitions: "NDArray[np.int32]") -> "list[tuple[int, NDArray[np.int64]]]":
    """The rows of each partition, in their order: (partition, rows), by ascending partition."""
    import numpy as np

    if not len(partitions):
        return []
    # Numbers of 16 bits are sorted by their digits, ten times as fast.
    narrow = partitions.max() < 1 << 15
    rows = np.argsort(partitions.astype(np.int16) if narrow else partitions, kind="stable")
    ordered = partitions[rows]
    first = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
    return [(int(ordered[at]), each) for at, each in zip(first, np.split(rows, first[1:]), strict=True)]


def take(columns: Columns, rows: "NDArray[np.int64]", *, impl: Impl = "auto") -> Columns:
    """The records of some rows, in the order of `rows`."""
    kernels = load(impl)
    taken: dict[str, Any] = {}
    for name in ALL_COLUMNS:
        match getattr(columns, name):
            case None:
                pass
            case Binary() as column:
                taken[name] = kernels.take(column, rows)
            case Headers() as headers:
                taken[name] = _take_headers(kernels, headers, rows)
            case numbers:
                taken[name] = numbers[rows]
    return Columns(count=len(rows), next_offset=columns.next_offset, **taken)


def _take_headers(kernels: Kernels, headers: Headers, rows: "NDArray[np.int64]") -> Headers:
    import numpy as np

    counts = np.diff(headers.offsets).astype(np.int64)[rows]
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    children = np.arange(offsets[-1]) + np.repeat(headers.offsets[:-1][rows] - offsets[:-1], counts)
    return Headers(offsets, kernels.take(headers.key, children), kernels.take(headers.value, children))
