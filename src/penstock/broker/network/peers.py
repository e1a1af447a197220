"""Peers are the connections to the other brokers of the cluster: opened when they are needed, for each purpose its own,
and opened again with growing pauses when they fail."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.broker.log_rates import RatedLog
from penstock.broker.network.peer import Address, Peer, PeerError
from penstock.machines.broker_proof import NONCE_BYTES, ConnectingSide, Identity, ListeningSide

log = RatedLog(logging.getLogger(__name__))

CONNECT_SECONDS: Final = 10.0
# Pauses between attempts to connect: they double, from the first to the last of these.
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
# A connection without a request for this long is closed, well before the other side would do so.
IDLE_SECONDS: Final = 60.0
_SWEEP_SECONDS: Final = 10.0


class Peers:
    """`find` says where a broker listens for others, `own` who this broker is, as it is registered now. A test cuts the
    network between two brokers by `may_reach`."""

    def __init__(
        self,
        *,
        secret: bytes,
        own: Callable[[], Identity],
        find: Callable[[int], Address | None],
        may_reach: Callable[[int], bool] = lambda broker_id: True,
    ) -> None:
        self.own = own
        self._may_reach = may_reach
        self._secret = secret
        self._find = find
        self._loop = asyncio.get_running_loop()
        self._links: dict[tuple[int, str], _Link] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def request(self, broker_id: int, message: Any, *, timeout: float, purpose: str = "control") -> Any:
        """The reply of another broker. PeerError if it cannot be reached now, which is found out by one attempt, or
        does not answer within the timeout. Requests of one purpose share a connection, whose replies come in order."""
        deadline = self._loop.time() + timeout
        try:
            async with asyncio.timeout_at(deadline):
                self._check_reach(broker_id)
                peer = await self._connected(broker_id, purpose)
                self._check_reach(broker_id)
        except TimeoutError:
            raise PeerError(f"there was no connection to broker {broker_id} in time") from None
        return await peer.request(message, deadline)

    def listening_side(self) -> ListeningSide:
        """What a broker that connects has to prove itself to."""
        return ListeningSide(self._secret, self.own(), secrets.token_bytes(NONCE_BYTES))

    async def close(self) -> None:
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        opening = [link.opening for link in self._links.values() if link.opening is not None]
        for task in opening:
            task.cancel()
        if opening:
            await asyncio.wait(opening)
        for link in self._links.values():
            if link.peer is not None:
                link.peer.close("this broker stops")
        self._links.clear()

    def _check_reach(self, broker_id: int) -> None:
        if not self._may_reach(broker_id):
            raise PeerError(f"broker {broker_id} is cut off from this one")

    async def _connected(self, broker_id: int, purpose: str) -> Peer:
        if self._is_closed:
            raise PeerError("this broker stops")
        address = self._find(broker_id)
        if address is None:
            raise PeerError(f"broker {broker_id} is not there, or has no listener for brokers")
        ends = address, self.own()
        link = self._links.setdefault((broker_id, purpose), _Link())
        if link.ends != ends:
            # One of the two has registered anew: what the connection has proved is no longer true.
            link.drop()
            link = self._links[broker_id, purpose] = _Link(ends)
        if link.peer is not None and link.peer.is_open:
            return link.peer
        if link.opening is None:
            link.opening = self._loop.create_task(self._open(link, broker_id, address))
            link.opening.add_done_callback(_look_at)
        return await asyncio.shield(link.opening)

    async def _open(self, link: "_Link", broker_id: int, address: Address) -> Peer:
        """Open the connection of a link, after the pause that failed attempts before it have earned."""
        try:
            if (pause := link.retry_at - self._loop.time()) > 0:
                await asyncio.sleep(pause)
            proof = ConnectingSide(self._secret, self.own(), secrets.token_bytes(NONCE_BYTES))
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    link.peer = await Peer.open(broker_id, address, proof)
            except TimeoutError:
                raise PeerError(f"broker {broker_id} at {address} gave no answer") from None
        except PeerError as error:
            link.pause = min(max(2 * link.pause, FIRST_PAUSE), LONGEST_PAUSE)
            link.retry_at = self._loop.time() + link.pause
            facts = {"broker": broker_id, "error": str(error)}
            log.warning("no connection to another broker", owner=self, extra=facts)
            # It may have been read and closed by the other side: nothing has been asked yet.
            raise PeerError(str(error)) from error
        finally:
            link.opening = None
        link.pause = link.retry_at = 0.0
        if link.is_dropped:
            link.peer.retire()
        if self._sweep is None:
            self._sweep = self._loop.call_later(_SWEEP_SECONDS, self._close_idle)
        return link.peer

    def _close_idle(self) -> None:
        idle_since = self._loop.time() - IDLE_SECONDS
        for key, link in list(self._links.items()):
            peer = link.peer
            if link.opening is None and (peer is None or (peer.used_at < idle_since and not peer.outstanding)):
                link.drop()
                del self._links[key]
        self._sweep = self._loop.call_later(_SWEEP_SECONDS, self._close_idle) if self._links else None


@dataclass(slots=True, eq=False)
class _Link:
    """The connection for one purpose. `ends` are the two brokers as they were registered when it was made."""

    ends: tuple[Address, Identity] | None = None
    peer: Peer | None = None
    opening: asyncio.Task[Peer] | None = None
    pause: float = 0.0
    retry_at: float = 0.0
    is_dropped: bool = False

    def drop(self) -> None:
        self.is_dropped = True
        if self.peer is not None:
            self.peer.retire()


def _look_at(opening: asyncio.Task[Peer]) -> None:
    """The requests that waited for a connection may all have given up, and none of them looks at how it failed."""
    if not opening.cancelled():
        opening.exception()
