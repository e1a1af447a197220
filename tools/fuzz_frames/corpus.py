"""Gathers what is mutated: requests that real clients sent, and our own for APIs and versions that none of them
sends."""

from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from penstock.broker.handlers import ROUTERS
from penstock.broker.router import route_table
from penstock.protocol.codec import encode
from penstock.protocol.framing import FrameReader
from penstock.protocol.schema import Message
from penstock.protocol.session import Request, read_request
from tests.protocol.messages import fields_of, full_message, random_message

REQUESTS: Final = Path(__file__).parents[2] / "tests" / "fixtures" / "requests"
# Of each API and version that no client sends: one that has everything, and others by chance.
OWN_MESSAGES: Final = 3


class Seed(NamedTuple):
    """A request without what is before its body on the wire."""

    key: int
    version: int
    client_id: str | None
    body: bytes
    is_captured: bool


@cache
def seeds() -> tuple[tuple[Seed, ...], ...]:
    """The requests of each API and version that brokers offer to clients, in the order of the route table."""
    kinds: dict[tuple[int, int], list[Seed]] = {
        (key, version): []
        for key, route in route_table(ROUTERS).items()
        if not route.brokers_only
        for version in range(route.versions.first, route.versions.last + 1)
    }
    for seed in captured():
        if (seed.key, seed.version) in kinds:
            kinds[seed.key, seed.version].append(seed)
    return tuple(tuple(found or _own(*kind)) for kind, found in kinds.items())


def captured() -> list[Seed]:
    found = []
    for path in sorted(REQUESTS.glob("*.bin")):
        for data in FrameReader().feed(memoryview(path.read_bytes())):
            request = read_request(data, Request)
            seed = Seed(request.api.key, request.version, request.client_id, bytes(request.body), is_captured=True)
            found.append(seed)
    return found


@cache
def batches() -> tuple[bytes, ...]:
    """Of each client and codec (`make fixtures`)."""
    return tuple(path.read_bytes() for path in sorted((REQUESTS.parent / "batches").glob("*.bin")))


def _own(key: int, version: int) -> list[Seed]:
    cls = route_table(ROUTERS)[key].api.request
    rng = Random(key << 8 | version)
    messages = [full_message(cls, version, rng), *(random_message(cls, version, rng) for _ in range(OWN_MESSAGES - 1))]
    return [Seed(key, version, "penstock", encode(message, version), is_captured=False) for message in messages]


def shape(message: Message, version: int) -> object:
    """What two requests have in common that differ in names and numbers alone."""
    return tuple(_shape(getattr(message, field.name), version) for field in fields_of(type(message), version))


def _shape(value: Any, version: int) -> object:
    if isinstance(value, Message):
        return shape(value, version)
    if isinstance(value, list | tuple):
        return (min(len(value), 2), *(_shape(element, version) for element in value[:1]))
    if isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return -1 if value < 0 else min(value, 1)
    return None if value is None else len(value) > 0
