"""Deletions of records wait until every replica that may lead has taken over the new start of the leader's log."""

import asyncio

from penstock.broker.network.call import Call
from penstock.broker.partitions.deadlines import Deadlines
from penstock.broker.partitions.partition import Partition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.topics import DeleteRecordsPartitionResult


class Deletions:
    """Those of one request: `add` each partition once its leader has deleted, then `finish`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[_Deletion, None] = {}
        self._done: asyncio.Future[None] | None = None

    def add(self, partition: Partition, offset: int, result: DeleteRecordsPartitionResult) -> None:
        """The result gets the low watermark: now, if all replicas that may lead begin at the offset or later."""
        result.low_watermark = partition.leader.low_watermark
        if not partition.leader.has_deleted(offset):
            deletion = _Deletion(self, partition, offset, result)
            self._waiting[deletion] = None
            partition.await_deletion(deletion)

    async def finish(self, call: Call, deadlines: Deadlines, timeout_ms: int) -> None:
        """Wait for all of them; after the timeout those that are left have timed out, as in Kafka, and go on."""
        if not self._waiting:
            return
        began, self._done = self._loop.time(), self._loop.create_future()
        call.when_gone(lambda _: self.timed_out())
        bucket = deadlines.add(self, max(timeout_ms, 0) / 1000)
        await self._done
        deadlines.cancel(self, bucket)
        call.waited(self._loop.time() - began)

    def timed_out(self) -> None:
        for deletion in list(self._waiting):
            deletion.partition.forget_deletion(deletion)
            deletion.ended(ErrorCode.REQUEST_TIMED_OUT)

    def ended(self, deletion: "_Deletion") -> None:
        del self._waiting[deletion]
        if not self._waiting and self._done is not None and not self._done.done():
            self._done.set_result(None)


class _Deletion:
    """One partition of the request."""

    __slots__ = ("_deletions", "_result", "offset", "partition")

    def __init__(
        self, deletions: Deletions, partition: Partition, offset: int, result: DeleteRecordsPartitionResult
    ) -> None:
        self._deletions = deletions
        self.partition = partition
        self.offset = offset
        self._result = result

    def ended(self, code: ErrorCode) -> None:
        self._result.error_code = code
        is_known = code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
        self._result.low_watermark = self.partition.leader.low_watermark if is_known else -1
        self._deletions.ended(self)
