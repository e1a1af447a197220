"""Checks whether all records of a batch can be read and have keys, without making records of them.

The reference is `protocol.records.iterate`: it reads to its end what passes here. The verdict depends on the bytes of
the batch alone.
"""

from collections.abc import Generator
from dataclasses import dataclass, field

from penstock.protocol.batch import HEADER, BatchHeader
from penstock.protocol.compression import MAX_DECOMPRESSED_BYTES, Codec, decompress
from penstock.protocol.errors import DecodeError
from penstock.protocol.records import read_headers
from penstock.protocol.varint import Buffer, read_uvarint, read_varlong

MAX_NAMED = 100
"""The number of records without a key that are named one by one."""


@dataclass(slots=True)
class Findings:
    """What is wrong with the records of a batch; as it is made, nothing."""

    damage: str | None = None
    """Why they cannot be read, if they cannot."""
    damaged_index: int = -1
    """The first record that cannot be read, counted from 0; -1 if the damage is not in one of them."""
    keyless: list[int] = field(default_factory=list)
    """The first records without a key."""
    keyless_count: int = 0


def payload(header: BatchHeader, view: Buffer, *, limit: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """The records of a batch, decompressed; DecodeError if that fails or gives more than `limit` bytes."""
    records = memoryview(view)[HEADER.size :]
    return bytes(records) if header.codec is Codec.NONE else decompress(header.codec, records, limit=limit)


def check_records(header: BatchHeader, data: bytes) -> Findings:
    """Walk the records of a batch that a producer has sent (`data` is its `payload`): their lengths, their fields, and
    that their offsets go up by one."""
    # A header may claim a count below one: then the bytes that are there show that it is wrong.
    steps = walk(header, data, max(1, header.record_count))
    while True:
        try:
            next(steps)
        except StopIteration as end:
            findings: Findings = end.value
            return findings


def walk(header: BatchHeader, data: bytes, at_once: int) -> Generator[None, None, Findings]:
    """`check_records` in steps of `at_once` records, between which the caller may give others their turns."""
    findings = Findings()
    base_timestamp = header.base_timestamp
    # From a sensible base no delta of one or two bytes leads out of 64 bits.
    is_sensible = -_INT64_MAX // 2 < base_timestamp < _INT64_MAX // 2
    position, end, index, count = 0, len(data), 0, header.record_count
    # Varints of one and two bytes are read in place, as `records.iterate` does. Positions only grow, so a record that
    # ends where its length says has not read beyond it.
    try:
        for begin in range(0, count, at_once):
            if begin:
                yield
            for index in range(begin, min(begin + at_once, count)):
                number = data[position]
                if number < 0x80:
                    position += 1
                elif (byte := data[position + 1]) < 0x80:
                    number += (byte << 7) - 0x80
                    position += 2
                else:
                    number, position = read_uvarint(data, position)
                record_end = position + (number >> 1)
                if number & 1 or record_end > end:
                    raise DecodeError(f"its length does not fit the {end - position} bytes that remain")

                # The timestamp follows the attributes, of which no bit has a meaning yet.
                if is_sensible and data[position + 1] < 0x80:
                    position += 2
                elif is_sensible and data[position + 2] < 0x80:
                    position += 3
                else:
                    number, position = read_varlong(data, position + 1)
                    if not _INT64_MIN <= base_timestamp + number <= _INT64_MAX:
                        raise DecodeError(f"its timestamp {base_timestamp + number} does not fit 64 bits")

                number = data[position]
                if number < 0x80:
                    position += 1
                elif (byte := data[position + 1]) < 0x80:
                    number += (byte << 7) - 0x80
                    position += 2
                else:
                    number, position = read_uvarint(data, position)
                if number != index << 1:
                    raise DecodeError(f"its offset delta is {(number >> 1) ^ -(number & 1)}, not {index}")

                number = data[position]
                if number < 0x80:
                    position += 1
                else:
                    number, position = read_uvarint(data, position)
                if number & 1:
                    if number != 1:
                        raise DecodeError(f"its key has length {~(number >> 1)}; below 0 there is only -1, for null")
                    findings.keyless_count += 1
                    if findings.keyless_count <= MAX_NAMED:
                        findings.keyless.append(index)
                else:
                    position += number >> 1

                number = data[position]
                if number < 0x80:
                    position += 1
                elif (byte := data[position + 1]) < 0x80:
                    number += (byte << 7) - 0x80
                    position += 2
                else:
                    number, position = read_uvarint(data, position)
                if number & 1:
                    if number != 1:
                        raise DecodeError(f"its value has length {~(number >> 1)}; below 0 there is only -1, for null")
                else:
                    position += number >> 1

                if data[position] == 0:
                    position += 1
                else:
                    position = read_headers(data, position, record_end)[1]
                if position != record_end:
                    raise DecodeError("its fields are not as long as its length says")
    except IndexError:
        return Findings("it runs past the end of the batch", index)
    except DecodeError as error:
        return Findings(str(error), index)
    if position != end:
        return Findings(f"{end - position} bytes follow the last of its {count} records")
    return findings


_INT64_MIN = -0x8000_0000_0000_0000
_INT64_MAX = 0x7FFF_FFFF_FFFF_FFFF
