"""Errors come out of the wire as the store raised them, and frames have a bound."""

import asyncio

import msgspec
import pytest

from penstock.metadata.remote import wire
from penstock.metadata.store import (
    ConflictError,
    EntriesDroppedError,
    FencedError,
    OutcomeUnknownError,
    SessionLostError,
    StoreClosedError,
    StoreError,
    StoreRefusedError,
)
from tests.metadata.scenario import scenario


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (FencedError(3, 5), (3, 1, b"", False)),
        (ConflictError(7, 9), (1, 7, b"", False)),
        (EntriesDroppedError(4), (3,)),
        (OutcomeUnknownError(8), (1, 8, b"", True)),
        (StoreRefusedError("the id is taken"), (1, b"", "")),
        (StoreError("the disk is full"), ()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_comes_back_as_it_was_raised(error: StoreError, arguments: tuple[object, ...]) -> None:
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(wire.failure(error)), type=wire.Failure)

    received = wire.exception(sent, arguments)

    assert type(received) is type(error)
    assert str(received) == str(error)
    assert vars(received) == vars(error)


@pytest.mark.parametrize("error", [SessionLostError(), StoreClosedError()])
def test_the_end_of_the_servers_own_store_is_not_the_end_of_the_clients_session(error: StoreError) -> None:
    received = wire.exception(wire.failure(error), ())

    assert type(received) is StoreError
    assert str(received) == f"the server's own store failed: {error}"


def test_a_bug_stays_one() -> None:
    received = wire.exception(wire.failure(AssertionError("a snapshot of the future")), ())

    assert isinstance(received, AssertionError)
    assert "a snapshot of the future" in str(received)


@scenario
async def test_a_frame_that_is_too_long_is_refused_by_its_length_alone() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data((11).to_bytes(4, "big"))

    with pytest.raises(wire.BrokenFrameError, match="a frame of 11 bytes, and the largest has 10"):
        await wire.read_frame(reader, 10)
