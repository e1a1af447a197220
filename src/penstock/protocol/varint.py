"""Reads and writes integers of variable length: unsigned for the lengths of messages, zigzag for the fields of records.

Readers take a buffer and a position and return the value and the position after it.
"""

from typing import TypeAlias

from penstock.protocol.errors import DecodeError, EncodeError

Buffer: TypeAlias = bytes | bytearray | memoryview


def uvarint(value: int) -> bytes:
    """`value`, of 0 to 2^32 - 1, in one to five bytes."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if value < 0 or value > 0xFFFF_FFFF:
        raise EncodeError(f"{value} does not fit an unsigned varint of 32 bits")
    return _encode(value)


def varint(value: int) -> bytes:
    """`value`, a signed integer of 32 bits, in one to five bytes."""
    if -64 <= value < 64:
        return _ONE_BYTE[(value << 1) ^ (value >> 31)]
    if value < -0x8000_0000 or value > 0x7FFF_FFFF:
        raise EncodeError(f"{value} does not fit a varint of 32 bits")
    return _encode((value << 1) ^ (value >> 31))


def varlong(value: int) -> bytes:
    """`value`, a signed integer of 64 bits, in one to ten bytes."""
    if -64 <= value < 64:
        return _ONE_BYTE[(value << 1) ^ (value >> 63)]
    if value < -0x8000_0000_0000_0000 or value > 0x7FFF_FFFF_FFFF_FFFF:
        raise EncodeError(f"{value} does not fit a varint of 64 bits")
    return _encode((value << 1) ^ (value >> 63))


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The unsigned varint of at most 32 bits at `position`."""
    try:
        byte = buffer[position]
    except IndexError:
        raise _cut_off(position) from None
    if byte < 0x80:
        return byte, position + 1
    return _decode(buffer, position, 32)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The zigzag varint of at most 32 bits at `position`."""
    value, position = _decode(buffer, position, 32)
    return (value >> 1) ^ -(value & 1), position


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """The zigzag varint of at most 64 bits at `position`."""
    value, position = _decode(buffer, position, 64)
    return (value >> 1) ^ -(value & 1), position


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def _encode(value: int) -> bytes:
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _decode(buffer: Buffer, start: int, bits: int) -> tuple[int, int]:
    position = start
    value = shift = 0
    try:
        while (byte := buffer[position]) > 0x7F:
            value |= (byte & 0x7F) << shift
            shift += 7
            position += 1
            if shift >= bits:
                raise DecodeError(f"the varint at byte {start} is longer than {bits} bits need")
    except IndexError:
        raise _cut_off(start) from None
    value |= byte << shift
    if value >> bits:
        raise DecodeError(f"the varint at byte {start} does not fit {bits} bits")
    return value, position + 1


def _cut_off(position: int) -> DecodeError:
    return DecodeError(f"the varint at byte {position} runs past the end of the data")
