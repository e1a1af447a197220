"""`BatchWriter` and `StreamWriter` send rows of Spark to topics: `df.write` and `df.writeStream`.

Every row is sent at least once: a task or a micro-batch that Spark repeats sends its rows again, from the first one on.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.client.errors import ClientError, unwrap
from penstock.client.producer.bulk_result import NewMessage
from penstock.client.producer.producer import Producer
from penstock.spark.link import SparkLink, connect
from penstock.spark.options import OptionsError
from penstock.spark.sentences import sentence_first
from penstock.spark.sink.options import SinkOptions, check_columns
from penstock.spark.sink.rows import Piece, RowError, divide
from penstock.spark.workers import pass_over_imports

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log: Final = logging.getLogger(__name__)

ROWS_FOR_COLUMNS: Final = 50_000
"""The number of rows from which on it pays for a process to load the encoder of whole columns."""

Messages: TypeAlias = "list[WriterCommitMessage | None]"


class SinkError(Exception):
    """Rows could not be sent; the message says which."""


@dataclass
class Written(WriterCommitMessage):
    """What a task reports to the driver when the brokers have acknowledged all of its rows."""

    task: int
    rows: Mapping[str, int] = field(default_factory=dict)
    """How many, by topic."""


class _Task:
    """The half of a writer that runs in tasks. Spark makes a writer on the driver before every write and every
    micro-batch, and another one for its commit, so this class checks what can be checked and keeps nothing."""

    def __init__(self, options: SinkOptions, schema: "StructType") -> None:
        self._options = options
        self._columns = check_columns(schema, options)

    @sentence_first()
    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        return write_rows(iterator, self._options, self._columns)


class BatchWriter(_Task, DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, schema: "StructType", *, overwrite: bool) -> None:
        if overwrite:
            raise OptionsError("a topic cannot be overwritten: write with mode append, or delete its records first")
        super().__init__(options, schema)
        if options.topic is not None:
            link = connect(options.settings)
            unwrap(link.run(link.cluster.topics([options.topic])))

    def commit(self, messages: Messages) -> None:
        log.info("wrote %s", _sum_up(messages))

    def abort(self, messages: Messages) -> None:
        log.warning("a write failed after %s: those stay, and come again when it is repeated", _sum_up(messages))


class StreamWriter(_Task, DataSourceStreamArrowWriter):
    """Writes a stream. In the output mode complete, every micro-batch sends the whole result, as in Spark's Kafka
    sink."""

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        log.info("batch %d: wrote %s", batchId, _sum_up(messages))

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        log.warning("batch %d failed after %s: those stay, and come again with the batch", batchId, _sum_up(messages))


def write_rows(batches: Iterator["pa.RecordBatch"], options: SinkOptions, columns: Sequence[str]) -> Written:
    """The work of a task: send all rows, and wait until they are acknowledged. Spark makes the next record batch while
    one is being sent; two are never under way at once, so the rows of a partition keep their order."""
    task = _name_task()
    link = connect(options.settings)
    producer = _open(link, options)
    counts: Counter[str] = Counter()
    first, coming = 0, None
    try:
        for batch in batches:
            try:
                pieces = divide(batch, columns, options.topic)
            except RowError as error:
                raise SinkError(f"row {first + error.row} of {task} {error}") from error
            if coming is not None:
                counts.update(coming.result())
            coming = link.submit(_send(producer, _encodable(pieces, batch.num_rows), first, task))
            first += batch.num_rows
        if coming is not None:
            counts.update(coming.result())
    except BaseException:
        _discard(link, options)
        raise
    pass_over_imports()
    return Written(_task_number(), dict(counts))


def _encodable(pieces: Sequence[Piece], count: int) -> "list[tuple[Piece, pa.RecordBatch | list[NewMessage]]]":
    """Each piece with its messages in the form that is quickest to send."""
    _process.rows += count
    is_much = _process.rows >= ROWS_FOR_COLUMNS
    return [(piece, piece.messages if is_much else piece.one_by_one()) for piece in pieces]


async def _send(
    producer: Producer[bytes, bytes],
    pieces: "Sequence[tuple[Piece, pa.RecordBatch | list[NewMessage]]]",
    first: int,
    task: str,
) -> dict[str, int]:
    """Send the pieces and return the number of rows of each topic; `first` is the number of the first row."""
    sent: dict[str, int] = {}
    for piece, messages in pieces:
        about = f"of {task} for topic {piece.topic!r}"
        try:
            result = await producer.send_batch(piece.topic, messages)
        except ClientError as error:
            told = _list_rows([first + piece.place(row) for row in (0, len(piece.messages) - 1)], is_range=True)
            raise SinkError(f"{told} {about} were not sent: {error}") from error
        if result.failed:
            reason, rows = result.failed[0].error, result.failed_rows
            told = _list_rows([first + piece.place(row) for row in rows])
            raise SinkError(f"{told} {about} were not sent, {len(rows)} of {result.count}: {reason}") from reason
        sent[piece.topic] = result.sent_count
    return sent


@dataclass(slots=True)
class _Process:
    """What a process keeps from task to task."""

    producers: dict[tuple[tuple[str, str], ...], Producer[bytes, bytes]] = field(default_factory=dict)
    """Producers by settings. Brokers remember each producer for a day, so there should be few."""
    rows: int = 0
    """How many rows this process has sent."""


_process: Final = _Process()


def _open(link: SparkLink, options: SinkOptions) -> Producer[bytes, bytes]:
    """The process's producer for these settings. A process of Spark's runs one task at a time."""

    async def open_producer() -> Producer[bytes, bytes]:
        return Producer(dict(options.settings))

    key = _key(options)
    if key not in _process.producers:
        _process.producers[key] = link.run(open_producer())
    return _process.producers[key]


def _discard(link: SparkLink, options: SinkOptions) -> None:
    """Drop the producer after a failure, so that rows which are not sent yet are never sent."""
    producer = _process.producers.pop(_key(options), None)
    if producer is not None:
        link.run(producer.close(timeout_ms=0))


def _key(options: SinkOptions) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(options.settings.items()))


def _name_task() -> str:
    """The task's name as it appears in Spark's own messages."""
    context: Any = _task_context()
    if context is None:
        return "the task"
    batch = context.getLocalProperty("streaming.sql.batchId")
    of_batch = "" if batch is None else f" of batch {batch}"
    return f"task {context.partitionId()}{of_batch} (attempt {context.attemptNumber()})"


def _task_number() -> int:
    context: Any = _task_context()
    return 0 if context is None else int(context.partitionId())


def _task_context() -> Any:
    from pyspark import TaskContext

    return TaskContext.get()


def _list_rows(rows: Sequence[int], *, is_range: bool = False) -> str:
    if is_range:
        return f"rows {rows[0]} to {rows[-1]}"
    return f"rows {', '.join(map(str, rows[:5]))}{', …' if len(rows) > 5 else ''}"


def _sum_up(messages: Messages) -> str:
    """Sum up what tasks have reported; tasks that failed have reported nothing."""
    told = [each for each in messages if isinstance(each, Written)]
    counts: Counter[str] = Counter()
    for each in told:
        counts.update(each.rows)
    listed = ", ".join(f"{count} to topic {topic!r}" for topic, count in sorted(counts.items()))
    return f"{counts.total()} rows by {len(told)} of {len(messages)} tasks{f' ({listed})' if listed else ''}"
