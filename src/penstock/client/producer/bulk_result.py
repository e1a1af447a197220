"""`NewMessage` is what `send_batch` takes, and `BatchResult` what it returns: where each row lies, and which rows
failed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.client.errors import ClientError
from penstock.client.message import Headers


class NewMessage(NamedTuple):
    """A message to be sent, with all that one can have.

    >>> NewMessage("paid", key="order-7", headers=[("trace", b"1")]).partition is None
    True
    """

    value: Any
    key: Any = None
    partition: int | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


class SentRows(NamedTuple):
    """Rows that follow each other in a partition: the n-th of them is at `first_offset` + n. The offset is -1 where the
    broker does not report it: with acks=0."""

    partition: int
    first_offset: int
    rows: Sequence[int]


class FailedRows(NamedTuple):
    """Rows that failed for one reason. If the error's `outcome_unknown` is set they may still be written."""

    error: Exception
    rows: Sequence[int]


@dataclass(slots=True, frozen=True)
class BatchResult:
    """The outcome of every row that `send_batch` was given.

    >>> result = BatchResult("orders", 3, (SentRows(0, 17, [0, 2]),), (FailedRows(ClientError("too large"), [1]),))
    >>> result.sent_count, result.failed_rows
    (2, [1])
    >>> result.raise_for_errors()
    Traceback (most recent call last):
    penstock.client.producer.bulk_result.BatchError: 1 of 3 rows for topic 'orders' were not sent: too large (row 1)
    """

    topic: str
    count: int
    sent: tuple[SentRows, ...]
    failed: tuple[FailedRows, ...] = ()

    @property
    def sent_count(self) -> int:
        return sum(len(each.rows) for each in self.sent)

    @property
    def failed_rows(self) -> list[int]:
        """The numbers of the rows that failed, in order."""
        return sorted(row for each in self.failed for row in each.rows)

    def raise_for_errors(self) -> None:
        """Raise a BatchError, which has this result, unless everything was sent."""
        if self.failed:
            raise BatchError(self)


class BatchError(ClientError):
    """Some rows of a batch were not sent; `result` says which, and why."""

    def __init__(self, result: BatchResult) -> None:
        self.result = result
        count = sum(len(each.rows) for each in result.failed)
        reasons = []
        for error, rows in result.failed[:3]:
            shown = ", ".join(str(int(row)) for row in rows[:5]) + (", …" if len(rows) > 5 else "")
            reasons.append(f"{error} (row{'s' if len(rows) > 1 else ''} {shown})")
        more = f"; {len(result.failed) - 3} more reasons" if len(result.failed) > 3 else ""
        super().__init__(
            f"{count} of {result.count} rows for topic {result.topic!r} were not sent: {'; '.join(reasons)}{more}",
            outcome_unknown=any(getattr(each.error, "outcome_unknown", False) for each in result.failed),
        )
