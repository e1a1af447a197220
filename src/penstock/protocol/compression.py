"""Compresses by the five codecs of record batches, and decompresses to at most a given number of bytes.

No length that the data claims is believed: memory grows with what really comes out.
"""

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum

import cramjam

from penstock.protocol.errors import DecodeError, EncodeError
from penstock.protocol.varint import Buffer

# What the records of one batch may take decompressed, wherever they are read.
MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024


class Codec(IntEnum):
    """How the records of a batch are compressed: bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`data` as every Kafka client reads it; `level` is the codec's own scale (snappy has none)."""
    try:
        match codec:
            case Codec.NONE:
                return bytes(data)
            case Codec.GZIP:
                return zlib.compress(data, -1 if level is None else level, wbits=_GZIP_WINDOW)
            case Codec.SNAPPY:
                return _compress_xerial(data)
            case Codec.LZ4:
                return _compress_lz4(data, 1 if level is None else level)
            case Codec.ZSTD:
                return bytes(cramjam.zstd.compress(data, 3 if level is None else level))
    except (zlib.error, cramjam.CompressionError, OverflowError) as error:
        raise EncodeError(f"cannot compress with {codec.name.lower()}, level {level}: {error}") from error


def decompress(codec: Codec, data: Buffer, *, limit: int) -> bytes:
    """What `data` holds; a DecodeError if it is damaged or would be more than `limit` bytes."""
    try:
        match codec:
            case Codec.NONE:
                if len(data) > limit:
                    raise _over(limit, codec)
                return bytes(data)
            case Codec.GZIP:
                return _decompress_gzip(memoryview(data), limit)
            case Codec.SNAPPY:
                return _decompress_snappy(memoryview(data), limit)
            case Codec.LZ4:
                return _decompress_growing(codec, cramjam.lz4.decompress_into, data, limit)
            case Codec.ZSTD:
                return _decompress_growing(codec, cramjam.zstd.decompress_into, data, limit)
    except (zlib.error, cramjam.DecompressionError) as error:
        raise DecodeError(f"the {codec.name.lower()} data is damaged: {error}") from None


_GZIP_WINDOW = 31
_GZIP_STEP = 16 * 1024

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_LENGTH = struct.Struct(">i")

# Snappy's densest element is a copy of 64 bytes written in three.
_SNAPPY_MAX_RATIO = 22

# The first guess at the output of lz4 and zstd, which say nothing trustworthy about it.
_FIRST_RATIO = 8
_FIRST_BYTES = 32 * 1024
# What cramjam says, for lz4 and zstd alike, when the output buffer is too small. Any other message means damage.
_OUTPUT_FULL = "failed to write whole buffer"


def _over(limit: int, codec: Codec) -> DecodeError:
    return DecodeError(f"the {codec.name.lower()} data decompresses to more than {limit} bytes; send smaller batches")


def _decompress_gzip(data: memoryview, limit: int) -> bytes:
    output = bytearray()
    position = 0
    while position < len(data) or position == 0:
        member = zlib.decompressobj(_GZIP_WINDOW)
        while not member.eof:
            # In small steps: zlib copies what a step leaves over at the end of each member, of which there may be many.
            step = data[position : position + _GZIP_STEP]
            if not step:
                raise DecodeError("the gzip data is cut off")
            output += member.decompress(step, limit - len(output) + 1)
            if len(output) > limit:
                raise _over(limit, Codec.GZIP)
            position += len(step) - len(member.unused_data)
    return bytes(output)


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        pieces += (_LENGTH.pack(len(block)), block)
    return b"".join(pieces)


def _decompress_snappy(data: memoryview, limit: int) -> bytes:
    """librdkafka sends one raw block, most other clients xerial's framing; no raw block begins with its magic."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return bytes(_decompress_block(data, limit, limit))
    # The version numbers after the magic are skipped: there is one version, and some clients write them little-endian.
    position = len(_XERIAL_HEADER)
    if len(data) < position:
        raise DecodeError("the snappy data is cut off within its header")
    output = bytearray()
    while position < len(data):
        if len(data) - position < _LENGTH.size:
            raise DecodeError("the snappy data is cut off within a block length")
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if not 0 <= length <= len(data) - position:
            raise DecodeError(f"a snappy block of {length} bytes does not fit the {len(data) - position} that remain")
        output += _decompress_block(data[position : position + length], limit - len(output), limit)
        position += length
    return bytes(output)


def _decompress_block(block: memoryview, room: int, limit: int) -> bytearray:
    claimed = cramjam.snappy.decompress_raw_len(block)
    if claimed > len(block) * _SNAPPY_MAX_RATIO:
        raise DecodeError(f"a snappy block of {len(block)} bytes claims to hold {claimed}, more than it can")
    if claimed > room:
        raise _over(limit, Codec.SNAPPY)
    output = bytearray(claimed)
    cramjam.snappy.decompress_raw_into(block, output)
    return output


def _compress_lz4(data: Buffer, level: int) -> bytes:
    # Java's client refuses linked blocks, cramjam's default.
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _decompress_growing(
    codec: Codec, decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, limit: int
) -> bytes:
    size = min(limit, max(_FIRST_BYTES, len(data) * _FIRST_RATIO))
    while True:
        output = bytearray(size)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if str(error) != _OUTPUT_FULL:
                raise
            if size >= limit:
                raise _over(limit, codec) from None
            size = min(limit, size * 2)
        else:
            return bytes(memoryview(output)[:written])
