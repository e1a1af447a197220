"""What a durable machine answers to a command: records to append and a reply, or a refusal."""

from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

from penstock.machines.cluster_records import Record
from penstock.protocol.error_codes import ErrorCode

Reply_co = TypeVar("Reply_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Decision(Generic[Reply_co]):
    """The reply is true once the records are in the log; without records it is true already."""

    records: tuple[Record, ...]
    reply: Reply_co


class Refused(Exception):  # noqa: N818 - an answer like any other, not a failure
    """The command cannot be carried out: the code is for the client, the message for the person behind it."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message


def refuse(code: ErrorCode, message: str) -> NoReturn:
    """Raise a refusal."""
    raise Refused(code, message)
