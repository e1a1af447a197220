"""Chooses values that a field may have and that no client means: extremes, lies, repetitions."""

from random import Random
from typing import Any, Final

from penstock.protocol.schema import ZERO_UUID, Message
from tests.protocol.messages import Field, fields_of
from tools.fuzz_frames import names

# A mutated request is about this long at most.
MAX_BYTES: Final = 256 * 1024
MANY: Final = 1000

INTEGERS: Final = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
_WORDS: Final = (
    "",
    "a",
    ".",
    "..",
    "a/b",
    "x" * 249,
    "x" * 250,
    "x" * 32767,
    "x" * 40_000,
    "ü" * 16_000,
    "line\nbreak",
    "\0",
    "\u202e\U0010ffff",
    "__consumer_offsets",
    "0",
    "-1",
    "9223372036854775807",
    "-9223372036854775808",
    "1e400",
    "compact",
    "compact,delete",
    "cleanup.policy",
    "retention.ms",
    "segment.bytes",
    "max.message.bytes",
    "consumer",
    "range",
    *names.TOPICS[:2],
    *names.GROUPS[:2],
    names.MEMBER,
)


def harm(owner: Message, field: Field, rng: Random) -> None:
    row = field.row
    if field.is_nullable and rng.random() < 0.15:
        setattr(owner, field.name, None)
        return
    value = getattr(owner, field.name)
    if not row.is_array:
        harmed = _harmed(row.element, value, rng)
    elif not value or rng.random() < 0.2:
        harmed = []
    else:
        elements = list(value)
        position = rng.randrange(len(elements))
        match rng.randrange(4):
            case 0:
                elements += elements
            case 1:
                elements = [elements[position]] * rng.choice((2, 3, 100, MANY))
            case 2:
                del elements[position]
            case _:
                elements[position] = _harmed(row.element, elements[position], rng)
        harmed = elements
    setattr(owner, field.name, harmed)


def _harmed(element: "str | type[Message]", value: Any, rng: Random) -> Any:
    match element:
        case "bool":
            return not value
        case "string":
            word = rng.choice(_WORDS)
            return (value or "") + word if rng.random() < 0.2 else word
        case "uuid":
            return rng.choice((ZERO_UUID, rng.randbytes(16), b"\xff" * 16, rng.choice(names.TOPIC_IDS)))
        case "bytes" | "records":
            return _harmed_bytes(bytes(value or b""), rng)
        case "float64":
            return rng.choice((0.0, -1.0, float("inf"), float("nan"), 1e308))
        case str():
            return _number(value, INTEGERS[element], rng, signed=not element.startswith("u"))
    # An array or a struct of structs: its own fields have their turn.
    return value


def _number(value: int, bits: int, rng: Random, *, signed: bool) -> int:
    lowest, highest = (-1 << bits - 1, (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    near = (value - 1, value + 1, value * 2, -value)
    common = (0, 1, -1, -2, -3, -4, 2, 3, 100, 1000, 100_000, lowest, lowest + 1, highest, highest - 1, highest // 2)
    chosen = rng.choice(rng.choice((near, common))) if rng.random() < 0.9 else lowest + rng.getrandbits(bits)
    return min(max(chosen, lowest), highest)


def _harmed_bytes(value: bytes, rng: Random) -> bytes:
    match rng.randrange(5):
        case 0:
            return b""
        case 1:
            return rng.randbytes(rng.choice((1, 8, 61, 300)))
        case 2:
            return value * rng.choice((2, 10, 100)) if len(value) < MAX_BYTES // 100 else value
        case 3:
            return value[: rng.randrange(len(value) + 1)]
        case _:
            changed = bytearray(value)
            if changed:
                overwrite(changed, rng.randrange(len(changed)), rng)
            return bytes(changed)


def overwrite(data: bytearray, position: int, rng: Random) -> None:
    """Put a number of one to eight bytes there."""
    size = rng.choice((1, 1, 2, 4, 4, 8))
    number = rng.choice(
        (0, 1, -1, 127, 255, 256, 1000, 1 << 8 * size - 1, (1 << 8 * size - 1) - 1, rng.getrandbits(64))
    )
    data[position : position + size] = (number & (1 << 8 * size) - 1).to_bytes(size, "big")[: len(data) - position]


def renamed(element: Any, number: int, version: int) -> Any:
    """A copy of the element with other names and numbers in it."""
    if isinstance(element, str):
        return f"{element[:100]}-{number}"
    if isinstance(element, int) and not isinstance(element, bool):
        return number
    if not isinstance(element, Message):
        return element
    changed = {}
    for inner in fields_of(type(element), version):
        value = getattr(element, inner.name)
        is_name = inner.row.element == "string" and not inner.row.is_array and value
        is_place = inner.name in ("partition", "partition_index", "index")
        changed[inner.name] = f"{value[:100]}-{number}" if is_name else number if is_place else value
    return type(element)(**changed)
