"""A call is a request on its way: it knows where it came from, and takes its reply back."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.protocol.schema import Message
from penstock.protocol.session import Request

if TYPE_CHECKING:
    from penstock.broker.network.connection import Connection


@dataclass(slots=True, eq=False)
class Call(Request):
    # The connection sets both before any other component sees the call.
    connection: "Connection" = field(init=False)
    received_at: float = field(init=False)
    # Is called if the connection goes away before the reply.
    forget: "Callable[[Call], None] | None" = field(init=False, default=None)

    # The size of the body, if the body was let go of.
    let_go_bytes: int = field(init=False, default=0)

    @property
    def size(self) -> int:
        return len(self.body) + self.let_go_bytes

    def reply(self, response: Message | None, version: int | None = None) -> None:
        """Reply, once for each call; None if the client wants no reply. A reply goes out when all earlier ones have."""
        self.connection.reply(self, response, version)

    async def reply_from_thread(self, response: Message) -> None:
        """Reply with a message that is too large to be written on the loop."""
        await self.connection.reply_from_thread(self, response)

    @property
    def client_host(self) -> str:
        """The client's address as Kafka shows it: `/127.0.0.1`."""
        return "/" + self.connection.peer.rpartition(":")[0]

    def when_gone(self, forget: "Callable[[Call], None]") -> None:
        """The call has been read, and waits for what the client asked for. `forget` is called if the connection goes
        away before the reply."""
        self.forget = forget
        self.connection.let_go(self)

    def waited(self, seconds: float) -> None:
        """Note a wait that the client asked for: it is no part of the time that serving the call took."""
        self.received_at += seconds
        self.connection.waited(self, seconds)

    def give_up(self, reason: str) -> None:
        """Close the connection, since there is no honest answer."""
        self.connection.abort(reason)
