"""Defines a client as tests drive it: what it can send and read, and a session in which it does."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from penstock.protocol.records import NewRecord, Record
from tools.clients.processes import OutsideError

PARTITION = 0
"""Of every topic that clients are driven to."""
MAX_REQUEST_BYTES = 4_000_000
"""What clients are allowed to send at once, so that it is the broker that refuses a message that is too large."""
SECONDS = 60
"""How long a client may take for what it is asked; then something hangs."""


class At(StrEnum):
    """Where reading begins."""

    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"


class Start(NamedTuple):
    at: At
    value: int = 0


class RefusedError(OutsideError):
    """The client says, in its own words, that its records were not taken."""


Ready = Callable[[int], Awaitable[None]]
"""Awaited when a client stands at the end, with the offset that it takes for the end (-1 if it does not say)."""


class Session(Protocol):
    version: str

    async def produce(
        self, bootstrap: str, topic: str, records: Sequence[NewRecord], *, codec: str, acks: str | None = None
    ) -> None:
        """Send the records, as one batch if the client can be made to, and wait for what `acks` promises."""

    async def fetch(
        self, bootstrap: str, topic: str, start: Start, count: int, ready: Ready | None = None
    ) -> list[Record]:
        """Read on until there are `count` records. Returns all that came."""


def everything(records: Sequence[NewRecord]) -> list[NewRecord]:
    return list(records)


async def nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    name: str
    start: Callable[[], AbstractAsyncContextManager[Session]]
    install: Callable[[], Awaitable[None]] = nothing
    """Makes sure that everything is there; costs nothing if it is."""
    too_large: str
    """How it calls the broker's answer to a message that is too large."""
    sends: Callable[[Sequence[NewRecord]], list[NewRecord]] = everything
    """What arrives of records, as not every client can send all that a record may be."""
    reads: Callable[[Sequence[NewRecord]], list[NewRecord]] = everything
    """What it reports of records."""
    sets_timestamps: bool = True
    """Whether it sends a record's timestamp or always the present time."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Session]:
        await self.install()
        async with self.start() as session:
            yield session
