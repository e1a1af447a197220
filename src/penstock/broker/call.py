"""A request in the making: where it came from, and the way back."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.protocol.schema import Message
from penstock.protocol.session import Request

if TYPE_CHECKING:
    from penstock.broker.connection import Connection


@dataclass(slots=True, eq=False)
class Call(Request):
    # Both are set by the connection before anybody else sees the call.
    connection: "Connection" = field(init=False)
    received_at: float = field(init=False)
    # Whom to tell if the connection goes away before the reply.
    forget: "Callable[[Call], None] | None" = field(init=False, default=None)

    @property
    def size(self) -> int:
        return len(self.body)

    def reply(self, response: Message | None, version: int | None = None) -> None:
        """Once for each call; None if the client wants no reply. Goes out when all earlier ones have."""
        self.connection.reply(self, response, version)

    @property
    def client_host(self) -> str:
        """As Kafka shows it: `/127.0.0.1`."""
        return "/" + self.connection.peer.rpartition(":")[0]

    def when_gone(self, forget: "Callable[[Call], None]") -> None:
        """Let somebody know if the connection goes away before the reply."""
        self.forget = forget

    def waited(self, seconds: float) -> None:
        """The client asked for this wait: it is no part of the time that serving the call took."""
        self.received_at += seconds
        self.connection.waited(self, seconds)

    def give_up(self, reason: str) -> None:
        """There is no honest answer: close the connection."""
        self.connection.abort(reason)
