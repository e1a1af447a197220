"""`send_batch` makes batches of rows or of whole Arrow columns, sends them, and reports the outcome of every row."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Any, Final

from penstock.client.errors import BufferFullError, ClientError, UnknownPartitionError, UnsendableError
from penstock.client.producer.accumulator import BATCH_COST_BYTES, Batch, Memory, PartitionQueue
from penstock.client.producer.admission import MESSAGES_AT_A_TIME, Admission, Written
from penstock.client.producer.bulk_result import BatchResult, FailedRows, SentRows
from penstock.client.producer.deliveries import Outcome
from penstock.client.producer.record_writer import HEADER_BYTES
from penstock.client.producer.sender import Sender
from penstock.client.producer.topics import Choice, TopicView
from penstock.protocol.errors import EncodeError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penstock.protocol.columns import Columns, EncodedBatch

# Large enough that requests cost little, small enough that one request does not hold up the others.
COLUMN_BATCH_BYTES: Final = 512 * 1024


@dataclass(slots=True)
class Shipment:
    """Rows on their way to one topic."""

    sender: Sender
    memory: Memory
    admission: Admission
    view: TopicView
    open: dict[PartitionQueue, tuple[Batch, list[int]]] = field(default_factory=dict)
    """Batches that take more records, and their rows."""
    sent: list[tuple[Batch, Sequence[int]]] = field(default_factory=list)
    failed: list[FailedRows] = field(default_factory=list)

    def add(self, row: int, message: Written) -> None:
        """Add a row for which there is room."""
        queue = self.admission.queue_for(self.view, message)
        key, value, stamp, headers, size, _ = message
        batch, rows = self.open.get(queue, _NONE)
        if batch is None or batch.size + size > batch.limit:
            if batch is not None:
                self._send(queue, batch, rows)
            batch, rows = self.sender.new_batch(queue), []
            batch.limit = min(self.admission.largest, queue.largest)
            self.open[queue] = batch, rows
        batch.append(key, value, stamp, headers, size)
        self.memory.used += size
        rows.append(row)

    def send(self) -> None:
        """Send all that was gathered."""
        for queue, (batch, rows) in self.open.items():
            self._send(queue, batch, rows)
        self.open = {}

    def fail(self, error: Exception, rows: Sequence[int]) -> None:
        self.failed.append(FailedRows(error, rows))

    async def result(self, count: int) -> BatchResult:
        """The result, once the outcome of every row is known."""
        sent: list[SentRows] = []
        failed: dict[int, FailedRows] = {}
        waiting: list[tuple[Outcome, Sequence[int]]] = [*reversed(self.sent)]
        while waiting:
            outcome, rows = waiting.pop()
            await outcome.wait()
            if outcome.successor is not None:
                waiting += reversed(_by_successor(outcome, rows))
            elif outcome.failure is None:
                sent.append(SentRows(outcome.partition, outcome.base_offset, rows))
            else:
                outcome.is_told = True
                earlier = failed.get(id(outcome.failure))
                failed[id(outcome.failure)] = FailedRows(outcome.failure, [*(earlier.rows if earlier else ()), *rows])
        return BatchResult(self.view.name, count, tuple(sent), (*self.failed, *failed.values()))

    def _send(self, queue: PartitionQueue, batch: Batch, rows: list[int]) -> None:
        batch.close()
        self.sent.append((batch, rows))
        self.sender.enqueue(queue, batch)


async def ship_rows(shipment: Shipment, messages: Sequence[Any], write: Callable[[Any, int], Written]) -> None:
    """Ship one row after the other; `write` makes bytes of a row, with the time at which it is sent."""
    topic, memory, admission = shipment.view.name, shipment.memory, shipment.admission
    now_ms = 0
    try:
        for row, message in enumerate(messages):
            if row % MESSAGES_AT_A_TIME == 0:
                await asyncio.sleep(0)
                now_ms = time_ns() // 1_000_000
            try:
                written = write(message, now_ms)
                admission.check(topic, written)
                if admission.line or memory.used + written.size + 2 * BATCH_COST_BYTES > memory.limit:
                    # Room comes with what is sent.
                    shipment.send()
                    await admission.wait_for_room(written.size)
                shipment.add(row, written)
            except BufferFullError:
                raise
            except (ClientError, ValueError, TypeError) as error:
                shipment.fail(error, [row])
    finally:
        # A caller that is cancelled here has its rows sent that it had handed over.
        shipment.send()


async def ship_columns(
    shipment: Shipment, table: Any, *, partition: int | None, choose: Choice, named: str | None
) -> None:
    """Ship a table of Arrow. `named` is the partitioner's name, if it has one."""
    from penstock.protocol import columns as columnar

    in_thread = shipment.sender.compressor.in_thread
    try:
        await in_thread(columnar.prepare)
        columns = await in_thread(partial(columnar.from_arrow, table, now_ms=time_ns() // 1_000_000))
        chosen = None
        if partition is None and len(shipment.view.partitions) == 1 and "partition" not in table.schema.names:
            # All rows in their order, whether they have a key or not.
            partition = 0
        elif partition is None:
            chosen = _given(table, await _choose(shipment, columns, choose, named))
        groups = [(partition, None)] if chosen is None else await in_thread(columnar.group_rows, chosen)
        for index, rows in groups:
            part = columns if rows is None else await in_thread(columnar.take, columns, rows)
            await _ship(shipment, choose, part, index=None if index == _ANY else index, rows=rows)
    except EncodeError as error:
        raise UnsendableError(f"the table cannot be sent to topic {shipment.view.name!r}: {error}") from error


async def _ship(
    shipment: Shipment, choose: Choice, columns: "Columns", *, index: int | None, rows: "NDArray[np.int64] | None"
) -> None:
    """Rows for one partition, or, without one, each batch for the next."""
    from penstock.protocol import columns as columnar

    view, settings = shipment.view, shipment.sender.settings
    largest = min(COLUMN_BATCH_BYTES, shipment.admission.largest)
    if index is not None:
        if not 0 <= index < len(view.queues):
            unknown = UnknownPartitionError(view.name, index, len(view.queues))
            shipment.fail(unknown, range(columns.count) if rows is None else rows.tolist())
            return
        largest = min(largest, view.queues[index].largest)
    batches = columnar.encode(columns, codec=settings.codec, level=settings.compression_level, max_batch_bytes=largest)
    first = 0
    while (encoded := await shipment.sender.compressor.in_thread(_next, batches)) is not None:
        data, count = encoded
        covered: Sequence[int] = range(first, first + count)
        if rows is not None:
            covered = rows[first : first + count].tolist()
        first += count
        if len(data) > shipment.admission.largest:
            size = len(data) - HEADER_BYTES
            too_large = UnsendableError(f"a message of {size} bytes is over max.request.size: send less at once")
            shipment.fail(too_large, covered)
            continue
        await shipment.admission.wait_for_room(len(data))
        queue = choose(view, None, len(data)) if index is None else view.queues[index]
        batch = shipment.sender.new_batch(queue, data, count)
        batch.codec = settings.codec
        shipment.sent.append((batch, covered))
        shipment.sender.enqueue(queue, batch)


def _next(batches: "Iterator[EncodedBatch]") -> "EncodedBatch | None":
    return next(batches, None)


async def _choose(
    shipment: Shipment, columns: "Columns", choose: Choice, named: str | None
) -> "NDArray[np.int32] | None":
    """The partition of each row; None if any will do for all of them."""
    import numpy as np

    from penstock.protocol import columns as columnar

    view = shipment.view
    if named in ("random", "round_robin"):
        available = np.asarray(view.available, np.int32)
        if named == "round_robin":
            return np.resize(available, columns.count)
        return np.random.default_rng().choice(available, columns.count)
    if named == "sticky" or (columns.key is None and named is not None):
        return None
    if columns.key is not None and named == "murmur2":
        return await shipment.sender.compressor.in_thread(columnar.partition_by, columns.key, len(view.partitions))
    return await _ask_for_each(view, columns, choose, named)


async def _ask_for_each(view: TopicView, columns: "Columns", choose: Choice, named: str | None) -> "NDArray[np.int32]":
    """Ask a partitioner that knows no columns for one row after the other."""
    import numpy as np

    chosen = np.full(columns.count, _ANY, np.int32)
    keys = columns.key
    starts = [] if keys is None else keys.offsets.tolist()
    lengths = [-1] * columns.count if keys is None else keys.lengths().tolist()
    for row, length in enumerate(lengths):
        if row % MESSAGES_AT_A_TIME == 0:
            await asyncio.sleep(0)
        key = None
        if length >= 0:
            assert keys is not None
            key = keys.data[starts[row] : starts[row] + length].tobytes()
        # A named partitioner does not look at messages without a key.
        if key is not None or named is None:
            chosen[row] = choose(view, key, max(length, 0)).partition
    return chosen


def _given(table: Any, chosen: "NDArray[np.int32] | None") -> "NDArray[np.int32] | None":
    """The column `partition`, if there is one, and what was chosen where it is null."""
    import numpy as np
    import pyarrow as pa

    if "partition" not in table.schema.names:
        return chosen
    column = table.column("partition")
    try:
        given = column.cast(pa.int32())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise EncodeError(f"the column 'partition' has type {column.type}: {error}") from None
    numbers = given.fill_null(_ANY).to_numpy()
    is_given = given.is_valid().to_numpy(zero_copy_only=False) if given.null_count else True
    return np.where(is_given, numbers, _ANY if chosen is None else chosen).astype(np.int32)


def _by_successor(outcome: Outcome, rows: Sequence[int]) -> list[tuple[Outcome, Sequence[int]]]:
    """The successors of a batch that was divided, each with its rows."""
    assert outcome.successor is not None
    divided: dict[int, tuple[Outcome, list[int]]] = {}
    for index, row in enumerate(rows):
        successor, _ = outcome.successor(index)
        divided.setdefault(id(successor), (successor, []))[1].append(row)
    return list(divided.values())


# Stands for any partition.
_ANY: Final = -1
_NONE: Final[tuple[None, list[int]]] = (None, [])
