"""Computes CRC32C (Castagnoli), the checksum of record batches."""

from collections.abc import Callable
from typing import Final

from fastcrc.crc32 import iscsi

from penstock.protocol.varint import Buffer

crc32c: Final[Callable[[Buffer], int]] = iscsi
"""The checksum of any contiguous buffer; nothing is copied. The library's own function, since it is called for every
batch."""


def extend_crc32c(checksum: int, data: Buffer) -> int:
    """The checksum of the bytes that `checksum` is of, with `data` after them."""
    return iscsi(data, checksum)
