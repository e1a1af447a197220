"""Makes frame number N of a seed, which always has the same bytes. A request of the corpus is made at home on the
stage, so that it reaches its handler, and then harmed: in its fields, its record batches, its bytes or its header."""

import struct
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from penstock.protocol.apis import api
from penstock.protocol.batch import HEADER, stamp_crc
from penstock.protocol.codec import decode, encode
from penstock.protocol.errors import DecodeError, EncodeError
from penstock.protocol.schema import Message
from penstock.protocol.schemas.headers import RequestHeader
from tools.fuzz_frames import at_home
from tools.fuzz_frames.corpus import Seed, batches, seeds
from tools.fuzz_frames.harming import INTEGERS, MANY, MAX_BYTES, harm, overwrite, renamed

# This part of all requests gets names that the stage has.
AT_HOME: Final = 0.9
# This part of all batches that are harmed are those of other clients, in all codecs.
OF_OTHERS: Final = 0.5
_PREFIX: Final = struct.Struct(">i")


class Frame(NamedTuple):
    """What is sent, with the length before it, and how it came about."""

    key: int
    version: int
    how: str
    data: bytes
    requests: int = 1


def make_frame(seed: int, number: int) -> Frame:
    rng = Random(seed << 40 | number)
    found = _choose(rng)
    how = rng.choices(_WAYS, _WEIGHTS)[0]
    if how is _glued:
        return _glue(found, rng)
    return Frame(found.key, found.version, how.__name__.strip("_"), how(found, rng))


def whole_frame(seed: Seed) -> bytes:
    """A request of the corpus as it is."""
    return _framed(seed, seed.body)


def _choose(rng: Random) -> Seed:
    """Every API and version as often as any other, however many requests there are of it."""
    return rng.choice(rng.choice(seeds()))


# Ways to harm a request


def _as_it_is(seed: Seed, rng: Random) -> bytes:
    return _framed(seed, _at_home(seed, rng)[1])


def _in_its_fields(seed: Seed, rng: Random) -> bytes:
    message, body = _at_home(seed, rng)
    if message is None:
        return _framed(seed, body)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if places := at_home.places(message, seed.version):
            harm(*rng.choice(places), rng)
    return _framed(seed, _encoded(message, seed.version, body))


def _in_its_numbers(seed: Seed, rng: Random) -> bytes:
    """Fields that hold a number or a flag, all others left alone: nothing but a handler can refuse this."""
    message, body = _at_home(seed, rng)
    places = [] if message is None else at_home.places(message, seed.version)
    places = [place for place in places if place[1].row.element in INTEGERS or place[1].row.element == "bool"]
    if message is None or not places:
        return _framed(seed, body)
    for _ in range(rng.choice((1, 1, 2))):
        harm(*rng.choice(places), rng)
    return _framed(seed, _encoded(message, seed.version, body))


def _by_repetition(seed: Seed, rng: Random) -> bytes:
    """The elements of an array again and again, or many that differ in their names."""
    message, body = _at_home(seed, rng)
    places = [] if message is None else at_home.places(message, seed.version)
    arrays = [(owner, field) for owner, field in places if field.row.is_array and getattr(owner, field.name)]
    if message is None or not arrays:
        return _framed(seed, body)
    owner, field = rng.choice(arrays)
    elements = list(getattr(owner, field.name))
    count = rng.choice((2, 10, 100, MANY))
    if rng.random() < 0.3:
        elements = [renamed(element, number, seed.version) for element in elements[:1] for number in range(count)]
    else:
        elements *= count
    most = max(1, MAX_BYTES * len(elements) // max(1, len(body) * count))
    setattr(owner, field.name, elements[:most])
    return _framed(seed, _encoded(message, seed.version, body))


def _in_its_batches(seed: Seed, rng: Random) -> bytes:
    """Fields of a record batch, or its records; most often with a checksum that is right."""
    message, body = _at_home(seed, rng)
    places = [] if message is None else at_home.places(message, seed.version)
    places = [place for place in places if place[1].row.element == "records" and getattr(place[0], place[1].name)]
    if message is None or not places:
        return _in_its_fields(seed, rng)
    owner, field = rng.choice(places)
    batch = bytearray(rng.choice(batches()) if rng.random() < OF_OTHERS else getattr(owner, field.name))
    if len(batch) >= HEADER.size:
        for _ in range(rng.choice((1, 1, 2, 3))):
            position = rng.randrange(HEADER.size if rng.random() < 0.6 else len(batch))
            overwrite(batch, position, rng)
        if rng.random() < 0.9:
            stamp_crc(memoryview(batch))
    if rng.random() < 0.1:
        batch *= rng.choice((2, 20))
    setattr(owner, field.name, bytes(batch))
    return _framed(seed, _encoded(message, seed.version, body))


def _in_its_bytes(seed: Seed, rng: Random) -> bytes:
    """Anywhere after the header: bits, numbers, and pieces that are lost, doubled or moved."""
    body = bytearray(_at_home(seed, rng)[1])
    for _ in range(rng.choice((1, 1, 2, 4))):
        if not body:
            break
        position = rng.randrange(len(body))
        match rng.randrange(5):
            case 0:
                body[position] ^= 1 << rng.randrange(8)
            case 1 | 2:
                overwrite(body, position, rng)
            case 3:
                del body[position : position + rng.randrange(1, 9)]
            case _:
                body[position:position] = body[position : position + rng.randrange(1, 65)] * rng.choice((1, 1, 50))
    return _framed(seed, bytes(body))


def _by_its_end(seed: Seed, rng: Random) -> bytes:
    """Cut off, with a length that says so or one that does not, or with more bytes after it."""
    body = _at_home(seed, rng)[1]
    if rng.random() < 0.3:
        return _framed(seed, body + rng.randbytes(rng.choice((1, 4, 100))))
    data = _framed(seed, body)
    kept = data[: rng.randrange(4, len(data))]
    return kept if rng.random() < 0.3 else _PREFIX.pack(len(kept) - 4) + kept[4:]


def _in_its_header(seed: Seed, rng: Random) -> bytes:
    body = _at_home(seed, rng)[1]
    match rng.randrange(5):
        case 0:
            other = _choose(rng)
            seed = seed._replace(key=other.key, version=other.version)
        case 1:
            seed = seed._replace(version=rng.choice((-1, 0, seed.version - 1, seed.version + 1, 32767)))
        case 2:
            seed = seed._replace(client_id=rng.choice((None, "", "x" * 32767, "line\nbreak\x1b[2J", "\0", "é" * 300)))
        case 3:
            seed = seed._replace(key=rng.choice((-1, 4, 5, 6, 7, 17, 24, 36, 68, 1000, 32767)))
        case _:
            data = _framed(seed, body)
            return _PREFIX.pack(rng.choice((-1, 0, 1, 9, len(data) - 3, 1 << 30, -(1 << 31)))) + data[4:]
    return _framed(seed, body)


def _glued(seed: Seed, rng: Random) -> bytes:
    """Several requests in one piece."""
    return _glue(seed, rng).data


def _glue(seed: Seed, rng: Random) -> Frame:
    others = [_choose(rng) for _ in range(rng.choice((1, 2, 8)))]
    data = b"".join(_in_its_numbers(each, rng) for each in (seed, *others))
    return Frame(seed.key, seed.version, "glued", data, 1 + len(others))


_WAYS: Final[tuple[Callable[[Seed, Random], bytes], ...]] = (
    _as_it_is,
    _in_its_fields,
    _in_its_numbers,
    _by_repetition,
    _in_its_batches,
    _in_its_bytes,
    _by_its_end,
    _in_its_header,
    _glued,
)
_WEIGHTS: Final = (5, 30, 18, 8, 8, 18, 5, 4, 4)


def _at_home(seed: Seed, rng: Random) -> tuple[Message | None, bytes]:
    """The request with names that the stage has, and its bytes; no message if it is no request by the tables."""
    try:
        message = decode(api(seed.key).request, seed.version, seed.body)
    except DecodeError:
        return None, seed.body
    if rng.random() < AT_HOME:
        at_home.settle(message, seed.version, rng)
    return message, _encoded(message, seed.version, seed.body)


def _encoded(message: Message, version: int, otherwise: bytes) -> bytes:
    """Its bytes, or others if it has a value that no bytes can say, such as a string beyond its length."""
    try:
        body = encode(message, version)
    except (EncodeError, struct.error, ValueError, OverflowError):
        return otherwise
    return body[:MAX_BYTES]


def _framed(seed: Seed, body: bytes) -> bytes:
    header = RequestHeader(
        request_api_key=seed.key, request_api_version=seed.version, correlation_id=7, client_id=seed.client_id
    )
    try:
        version = api(seed.key).request_header_version(seed.version)
    except KeyError:
        version = 1
    data = encode(header, version) + body
    return _PREFIX.pack(len(data)) + data
