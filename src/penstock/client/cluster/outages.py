"""`Outages` knows which brokers cannot be reached and since when; it reports that to the log, rarely, and to the user's
callback."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.client.metadata import Address

logger = logging.getLogger(__name__)

REPEAT_SECONDS: Final = 60.0
"""How often the log repeats that a broker is still unreachable."""
PAUSE_SECONDS: Final = 10.0
"""The time between two warnings about a broker that comes and goes."""


@dataclass(slots=True, frozen=True, kw_only=True)
class ConnectionEvent:
    """A broker was lost, or is back: what `on_connection` is called with.

    >>> ConnectionEvent(address="localhost:9092", is_connected=True, outage_seconds=1.5).is_connected
    True
    """

    address: str
    """The broker, as host:port."""
    is_connected: bool
    """False: the connection was lost, or could not be opened. True: it is back after that."""
    outage_seconds: float = 0.0
    """How long the outage has lasted; 0 when it begins."""
    error: str | None = None
    """Why the broker cannot be reached; None when it is back."""


ConnectionListener: TypeAlias = Callable[[ConnectionEvent], object]
"""A function that is called when a broker was lost and when it is back, on the client's event loop: it must not
block."""


@dataclass(slots=True)
class _Outage:
    since: float
    warned_at: float | None = None


class Outages:
    """Works with the time that it is given, in seconds."""

    def __init__(self, client_id: str = "penstock", listener: ConnectionListener | None = None) -> None:
        self._client_id = client_id
        self._listener = listener
        self._outages: dict[Address, _Outage] = {}
        self._warned_at: dict[Address, float] = {}

    def lost(self, address: Address, why: object, now: float) -> None:
        """A connection was lost while a request was under way, or could not be opened."""
        outage = self._outages.get(address)
        if outage is None:
            outage = self._outages[address] = _Outage(now)
            self._tell(ConnectionEvent(address=str(address), is_connected=False, error=str(why)))
        if outage.warned_at is None:
            if now - self._warned_at.get(address, -PAUSE_SECONDS) >= PAUSE_SECONDS:
                outage.warned_at = self._warned_at[address] = now
                logger.warning(
                    "client %r has no connection to broker %s and tries again: %s", self._client_id, address, why
                )
        elif now - outage.warned_at >= REPEAT_SECONDS:
            outage.warned_at = self._warned_at[address] = now
            seconds = now - outage.since
            logger.warning(
                "client %r has not reached broker %s for %.0f s and tries again: %s",
                self._client_id,
                address,
                seconds,
                why,
            )

    def back(self, address: Address, now: float) -> None:
        """A connection was opened."""
        outage = self._outages.pop(address, None)
        if outage is None:
            return
        seconds = now - outage.since
        if outage.warned_at is not None:
            logger.info("client %r has reached broker %s again, after %.1f s", self._client_id, address, seconds)
        self._tell(ConnectionEvent(address=str(address), is_connected=True, outage_seconds=seconds))

    def keep(self, addresses: Collection[Address]) -> None:
        """Forget the brokers that the cluster no longer has."""
        for known in (self._outages, self._warned_at):
            for address in [each for each in known if each not in addresses]:
                del known[address]

    def seconds(self, now: float) -> dict[str, float]:
        """How long each broker has been unreachable, by its address."""
        return {str(address): now - outage.since for address, outage in self._outages.items()}

    def _tell(self, event: ConnectionEvent) -> None:
        if self._listener is not None:
            try:
                self._listener(event)
            except Exception:
                logger.exception("on_connection of client %r failed with %s", self._client_id, event)
