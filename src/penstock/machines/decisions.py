"""Defines what a durable machine answers to a command: records to append and a reply, or a refusal."""

from dataclasses import dataclass
from typing import Final, Generic, NoReturn, TypeVar

from penstock.machines.cluster_records import Record
from penstock.protocol.error_codes import ErrorCode

Reply_co = TypeVar("Reply_co", covariant=True)

# The number of characters that the message of a refusal may have.
MAX_MESSAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class ControllerDecision(Generic[Reply_co]):
    """The reply is true once the records are in the log; without records it is true already."""

    records: tuple[Record, ...]
    reply: Reply_co


class Refused(Exception):  # noqa: N818 - an answer like any other, not a failure
    """The command cannot be carried out: the code is for the client, the message for the person behind it."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        message = shortened(message)
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message


def refuse(code: ErrorCode, message: str) -> NoReturn:
    """Raise a refusal."""
    raise Refused(code, message)


def shortened(message: str) -> str:
    """What may quote names of a client's, for a reply whose strings end at 32,767 bytes."""
    return message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 1]}…"
