"""CRC32C (Castagnoli), the checksum of record batches."""

from fastcrc.crc32 import iscsi

from penstock.protocol.varint import Buffer


def crc32c(data: Buffer) -> int:
    """The checksum of `data`, which may be any contiguous buffer; nothing is copied."""
    return iscsi(data)


def extend_crc32c(checksum: int, data: Buffer) -> int:
    """The checksum of what `checksum` is one of, with `data` behind it."""
    return iscsi(data, checksum)
