"""`read_message` fetches one message by its id, without a subscription or a position."""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

from penstock.client.admin.offsets import EARLIEST, LATEST, list_offsets
from penstock.client.cluster.cluster import Cluster
from penstock.client.consumer.fetched import HEAVY_BYTES, FetchedBatches, Rules
from penstock.client.consumer.message_reader import RawMessage
from penstock.client.errors import BrokerError, MissingMessageError, unwrap
from penstock.client.message import MessageId
from penstock.client.plain.fetch import Fetched, fetch_many
from penstock.client.settings import ConsumerSettings
from penstock.protocol.batch import BatchHeader
from penstock.protocol.error_codes import ErrorCode

LIGHT_RECORDS: Final = 200
"""Records of a batch up to which it is read without a thread."""

InThread: TypeAlias = Callable[[Callable[[], RawMessage | None]], Awaitable[RawMessage | None]]


class Found(NamedTuple):
    """The batch that a message lies in, or did: compaction may have taken it out."""

    header: BatchHeader
    view: memoryview


async def read_message(
    cluster: Cluster, id: MessageId, *, settings: ConsumerSettings, in_thread: InThread
) -> RawMessage:
    """Read the message as a consumer with these settings does. Errors are those of `find_batch`, and CorruptBatchError
    if the message lies in a batch that cannot be read, also with on_corrupt="skip"."""
    found = await find_batch(cluster, id, read_committed=settings.isolation_level == "read_committed")

    def read() -> RawMessage | None:
        rules = Rules(settings.check_crcs, settings.max_decompressed_bytes)
        batches = FetchedBatches(id.topic_partition, id.offset, found.view, rules)
        return next(iter(batches.take(1)), None)

    # All that comes before it in its batch is read, too.
    is_light = found.header.record_count <= LIGHT_RECORDS and len(found.view) <= HEAVY_BYTES
    message = read() if is_light else await in_thread(read)
    if message is None or message.offset != id.offset:
        raise compacted_away(id)
    return message


async def find_batch(cluster: Cluster, id: MessageId, *, read_committed: bool = False) -> Found:
    """The batch that has the message; MissingMessageError if there is none. An unknown topic is reported as
    everywhere."""
    key = id.topic_partition
    try:
        # The first batch comes whole, however few bytes are asked for.
        fetched = unwrap(
            await fetch_many(
                cluster,
                {key: id.offset},
                max_bytes=1,
                partition_max_bytes=1,
                max_wait_ms=0,
                read_committed=read_committed,
            )
        )[key]
    except BrokerError as error:
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        raise await _not_there(cluster, id) from error
    if not fetched.batches:
        if read_committed and id.offset < fetched.high_watermark:
            raise MissingMessageError(
                f"the message at offset {id.offset} is behind a transaction that is still open", is_gone=False
            )
        raise await _not_there(cluster, id)
    header, view = fetched.batches[0]
    if header.base_offset > id.offset:
        raise compacted_away(id)
    if header.is_control:
        raise MissingMessageError(f"offset {id.offset} is no message but the end of a transaction", is_gone=True)
    if _was_aborted(fetched, header):
        raise MissingMessageError(
            f"the message at offset {id.offset} was taken back with its transaction", is_gone=True
        )
    return Found(header, view)


def compacted_away(id: MessageId) -> MissingMessageError:
    return MissingMessageError(
        f"there is no message at offset {id.offset} any more: it was compacted away", is_gone=True
    )


def _was_aborted(fetched: Fetched, header: BatchHeader) -> bool:
    """A producer has one transaction at a time, so one that began before the batch and is not over holds it."""
    return header.is_transactional and any(
        each.producer_id == header.producer_id and each.first_offset <= header.base_offset for each in fetched.aborted
    )


async def _not_there(cluster: Cluster, id: MessageId) -> MissingMessageError:
    key = id.topic_partition
    first = unwrap(await list_offsets(cluster, {key: EARLIEST}))[key].offset
    end = unwrap(await list_offsets(cluster, {key: LATEST}))[key].offset
    has = f"has offsets {first} to {end - 1}" if end > first else f"is empty, and goes on at {end}"
    return MissingMessageError(f"there is no message at offset {id.offset}: {key} {has}", is_gone=id.offset < end)
