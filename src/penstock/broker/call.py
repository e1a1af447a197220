"""A request in the making: where it came from, and the way back."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.protocol.schema import Message
from penstock.protocol.session import Request

if TYPE_CHECKING:
    from penstock.broker.connection import Connection


@dataclass(slots=True, eq=False)
class Call:
    connection: "Connection"
    request: Request
    received_at: float
    size: int

    @property
    def version(self) -> int:
        return self.request.version

    @property
    def client_id(self) -> str | None:
        return self.request.client_id

    def reply(self, response: Message | None, version: int | None = None) -> None:
        """Once for each call; None if the client wants no reply. Goes out when all earlier ones have."""
        self.connection.reply(self, response, version)

    def give_up(self, reason: str) -> None:
        """There is no honest answer: close the connection."""
        self.connection.abort(reason)
