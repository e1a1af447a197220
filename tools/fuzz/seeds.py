"""Gives the fuzzer its first inputs: valid messages and batches of our own, what real clients sent, and what was found
before."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from penstock.protocol.codec import encode
from penstock.protocol.compression import Codec, compress
from penstock.protocol.control import ControlType, build_end_marker
from penstock.protocol.framing import frame
from penstock.protocol.records import NewRecord, build
from penstock.protocol.schemas.headers import ResponseHeader
from penstock.protocol.schemas.versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.session import ClientSession, Request, read_request
from tests.protocol.messages import all_versions, random_message
from tools.fuzz.targets import choice

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures"
REGRESSIONS = FIXTURES / "fuzz"


def seeds(target: str, rng: Random, kinds: int) -> Iterator[bytes]:
    """Inputs of a target. Messages are of `kinds` classes and versions, chosen by chance: to compile and instrument
    them all takes longer than a short run has."""
    yield from (path.read_bytes() for path in sorted((REGRESSIONS / target).glob("*")))
    match target:
        case "codec":
            yield from _messages(rng, kinds)
        case "batch":
            yield from _batches()
        case "compression":
            yield from (
                bytes([codec]) + compress(codec, data) for codec in Codec for data in (b"", b"abc", b"ab" * 999)
            )
            yield bytes([Codec.SNAPPY]) + b"\x03\x08abc"
        case "framing" | "session":
            yield from (bytes([size]) + stream for size in (0, 1, 7) for stream in _streams())


def _messages(rng: Random, kinds: int) -> Iterator[bytes]:
    every = list(all_versions())
    for cls, version in rng.sample(every, min(kinds, len(every))):
        for _ in range(2):
            yield choice(cls, version) + encode(random_message(cls, version, rng), version)
    for path in _fixtures("frames"):
        request = read_request(memoryview(path.read_bytes()), Request)
        yield choice(request.api.request, request.version) + bytes(request.body)


def _batches() -> Iterator[bytes]:
    yield from (path.read_bytes() for path in _fixtures("batches"))
    records = [NewRecord(b"value", b"key", (("name", b"1"), ("none", None)), 1000), NewRecord(None, None, (), 2000)]
    for codec in Codec:
        yield bytes(build(records, base_offset=7, codec=codec))
    yield bytes(build(records) + build(records, log_append_time=5))
    marker = build_end_marker(ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=3, timestamp=4)
    yield bytes(marker)


def _streams() -> Iterator[bytes]:
    requests = b"".join(frame([path.read_bytes()])[0] + path.read_bytes() for path in _fixtures("frames")[:4])
    _, chunks = ClientSession("seed").send(ApiVersionsRequest(client_software_name="seed"), 3)
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)])
    reply = frame([encode(ResponseHeader(), 0), encode(response, 3)])
    yield from (requests, b"".join(chunks), b"".join(reply), b"\x16\x03\x01\x02\x00", b"\xff\xff\xff\xff")


def _fixtures(folder: str) -> list[Path]:
    return sorted((FIXTURES / folder).glob("*.bin"))
