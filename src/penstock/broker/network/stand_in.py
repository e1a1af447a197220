"""A stand-in is the connection of a call that came by none of this broker's: enclosed by another broker, or from this
broker itself."""

from typing import TYPE_CHECKING, cast

from penstock.broker.network.call import Call
from penstock.machines.broker_proof import Identity
from penstock.protocol.apis import Api

if TYPE_CHECKING:
    from penstock.broker.network.connection import Connection

NOTHING = memoryview(b"")


class StandIn:
    """What handlers read of a connection. They return the reply to such a call, and never send it themselves."""

    __slots__ = ("broker", "listener_name", "peer")

    is_open = True

    def __init__(self, *, listener_name: str, peer: str, broker: Identity | None) -> None:
        self.listener_name = listener_name
        self.peer = peer
        # The broker that asks for itself. A client's request stays a client's, whichever broker brings it.
        self.broker = broker

    def take(self, call: Call, now: float) -> Call:
        """Let the call have come by this."""
        call.connection = cast("Connection", self)
        call.received_at = now
        return call


def call_of_broker(api: Api, version: int, broker: Identity, *, listener_name: str, now: float) -> Call:
    """A call that a broker makes for itself, whose request is not bytes."""
    stand_in = StandIn(listener_name=listener_name, peer="", broker=broker)
    return stand_in.take(Call(api, version, 0, f"penstock-broker-{broker.node_id}", NOTHING), now)
