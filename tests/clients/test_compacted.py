"""Every client reads compacted topics: over gaps in the offsets, at the beginning, in the midst and at the end."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from penstock.client.admin.configs import ConfigChange, Resource, ResourceType, alter_configs
from penstock.client.admin.log_dirs import describe_log_dirs
from penstock.client.errors import unwrap
from penstock.client.metadata import TopicPartition
from penstock.client.plain.fetch import fetch
from penstock.protocol.batch import BatchHeader
from penstock.protocol.compression import Codec
from penstock.protocol.records import NewRecord, Record, build, iterate
from tests.clients.matrix import CLIENTS, COMPACTED, Cell
from tests.clients.stage import Stage, assert_same, told_by
from tools.clients.client import PARTITION, SECONDS, At, RefusedError, Session, Start
from tools.clients.records import BASE_TIMESTAMP

FROM_BEGINNING, FROM_A_GAP, TO_THE_END, AT_THE_END, NO_KEY = COMPACTED.columns
# Nearly every batch has a segment of its own, and an idle one is closed at once, so that all of it is compacted. Nobody
# has to hear of keys that are gone.
CONFIGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "400",
    "segment.ms": "100",
    # Any dirt is enough: the last batch may begin a segment of its own that the round before it finds active, and takes
    # less than a hundredth of all that is clean by then.
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
    # Nothing is old enough until this is set back, when all is written: so a few rounds do.
    "min.compaction.lag.ms": str(10**15),
}
LAST = NewRecord(b"behind everything", key=b"last", timestamp=BASE_TIMESTAMP)


@dataclass(slots=True)
class Log:
    """A topic of which only the latest values are left."""

    topic: str
    records: list[Record]
    headers: list[BatchHeader]

    @property
    def end(self) -> int:
        return self.headers[-1].next_offset


@pytest.fixture
def logs(stage: Stage) -> dict[tuple[str, str], Log]:
    """One for all clients that only read, and one of its own for each that waits at its end."""
    return stage.once(_all_compacted)


def test_the_topic_has_gaps_everywhere_and_ends_with_one(logs: dict[tuple[str, str], Log]) -> None:
    log = next(iter(logs.values()))
    gaps = [header.is_control for header in log.headers]
    assert gaps[0]
    assert gaps[-1]
    assert any(gaps[1:-1])
    assert log.records[-1].offset < log.end - 1
    assert any(header.record_count <= header.last_offset_delta for header in log.headers if not header.is_control)


@pytest.mark.parametrize("cell", [cell for cell in COMPACTED.cells() if cell.column != NO_KEY], ids=str)
def test_a_client_reads_the_latest_values_and_gets_to_the_end(
    stage: Stage, logs: dict[tuple[str, str], Log], cell: Cell
) -> None:
    client, log = CLIENTS[cell.client], logs[cell.client, cell.column]
    gap = _gap_in_the_midst(log)
    start, expected = {
        FROM_BEGINNING: (Start(At.BEGINNING), log.records),
        FROM_A_GAP: (Start(At.OFFSET, gap), [record for record in log.records if record.offset >= gap]),
        TO_THE_END: (Start(At.BEGINNING), log.records),
        AT_THE_END: (Start(At.OFFSET, log.end - 1), []),
    }[cell.column]
    if waits := cell.column in (TO_THE_END, AT_THE_END):
        expected = [*expected, Record(log.end, LAST.timestamp, LAST.key, LAST.value)]
    expected = told_by(client, expected)

    async def read(session: Session) -> list[Record]:
        return await session.fetch(stage.bootstrap, log.topic, start, len(expected))

    async def add_when_all_is_read() -> None:
        """When what lies behind the start was handed to the client, which then waits for more. Of the topic, that is
        at most what it takes now: gaps may still be joined."""
        async with asyncio.timeout(SECONDS):
            while await stage.fetched_bytes(log.topic) - before < (await size() if start.at is At.BEGINNING else 1):
                await asyncio.sleep(0.01)
        await stage.append(log.topic, build([LAST]))

    async def size() -> int:
        key = TopicPartition(log.topic, PARTITION)
        brokers = unwrap(await describe_log_dirs(stage.cluster, partitions=[key]))
        return sum(folder.sizes.get(key, 0) for folders in brokers.values() for folder in folders)

    async def scenario() -> list[Record]:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(stage.drive(client, read))
            if waits:
                group.create_task(add_when_all_is_read())
        return reading.result()

    before = stage.run(stage.fetched_bytes(log.topic))
    assert_same(stage.run(scenario()), expected)


@pytest.mark.parametrize("cell", [cell for cell in COMPACTED.cells() if cell.column == NO_KEY], ids=str)
def test_a_client_says_so_when_a_record_without_a_key_is_refused(stage: Stage, cell: Cell) -> None:
    client = CLIENTS[cell.client]
    record = NewRecord(b"a value", timestamp=BASE_TIMESTAMP)

    async def scenario() -> None:
        topic = await stage.new_topic(configs={"cleanup.policy": "compact"})

        async def produce(session: Session) -> None:
            await session.produce(stage.bootstrap, topic, [record], codec="none")

        with pytest.raises(RefusedError, match=r"\S"):
            await stage.drive(client, produce)
        assert (await fetch(stage.cluster, topic, PARTITION, 0)).high_watermark == 0

    stage.run(scenario())


def _gap_in_the_midst(log: Log) -> int:
    """An offset whose record is gone, between others that are not."""
    offsets = {record.offset for record in log.records}
    return next(offset for offset in range(min(offsets) + 1, max(offsets)) if offset not in offsets)


async def _all_compacted(stage: Stage) -> dict[tuple[str, str], Log]:
    waiting = [(client, column) for client in CLIENTS for column in (TO_THE_END, AT_THE_END)]
    async with asyncio.TaskGroup() as group:
        tasks = {key: group.create_task(_compacted(stage)) for key in [("", ""), *waiting]}
    made = {key: task.result() for key, task in tasks.items()}
    shared = {(client, column): made["", ""] for client in CLIENTS for column in (FROM_BEGINNING, FROM_A_GAP)}
    return made | shared


async def _compacted(stage: Stage) -> Log:
    topic = await stage.new_topic(configs=CONFIGS)
    latest: dict[bytes, Record] = {}
    offset = 0
    for number, (keys, values, sequence) in enumerate(_batches()):
        records = [
            NewRecord(value, key=key, timestamp=BASE_TIMESTAMP + number)
            for key, value in zip(keys, values, strict=True)
        ]
        codec = tuple(Codec)[number % len(Codec)]
        made = (
            build(records, codec=codec)
            if sequence is None
            else build(records, codec=codec, producer_id=4711, producer_epoch=0, base_sequence=sequence)
        )
        await stage.append(topic, made)
        for record in records:
            assert record.key is not None
            latest[record.key] = Record(offset, record.timestamp, record.key, record.value)
            offset += 1
    change = ConfigChange("min.compaction.lag.ms", "0")
    unwrap(await alter_configs(stage.cluster, {Resource(ResourceType.TOPIC, topic): [change]}))
    live = sorted(record for record in latest.values() if record.value is not None)
    return await _when_compacted(stage, topic, live, offset)


def _batches() -> list[tuple[Sequence[bytes], Sequence[bytes | None], int | None]]:
    """Keys and values of each batch, and the sequence number of those by an idempotent producer."""
    doomed = [b"doomed-%d" % number for number in range(3)]
    sequence = 0
    batches: list[tuple[Sequence[bytes], Sequence[bytes | None], int | None]] = []

    def add(keys: Sequence[bytes], values: Sequence[bytes | None], *, idempotent: bool = False) -> None:
        nonlocal sequence
        batches.append((keys, values, sequence if idempotent else None))
        sequence += len(keys) if idempotent else 0

    # Of the beginning nothing stays, and not in the midst, either; of others every second record does.
    for _ in range(6):
        add(doomed, [b"head"] * 3)
    for number in range(5):
        keys = [b"live-%d" % number, doomed[0], b"live-%d" % (number + 5), doomed[1]]
        add(keys, [_large(number)] * 4, idempotent=True)
    for _ in range(12):
        add(doomed, [b"midst"] * 3, idempotent=True)
    for number in range(10, 15):
        add([doomed[2], b"live-%d" % number], [b"x", _large(number)])
    for number in range(6):
        add(doomed, [None if number == 5 else b"end"] * 3)
    return batches


def _large(number: int) -> bytes:
    """A value that is larger than a segment, compressed or not: it is not put together with what lies beside it."""
    return b"".join(hashlib.sha256(b"%d %d" % (number, part)).hexdigest().encode() for part in range(20))


async def _when_compacted(stage: Stage, topic: str, live: list[Record], end: int) -> Log:
    """As soon as there is nothing left in it that could go. Topics are compacted one after the other."""
    log = Log(topic, [], [])
    try:
        async with asyncio.timeout(3 * SECONDS):
            while not (log.headers and log.records == live and log.headers[-1].is_control):
                await asyncio.sleep(0.05)
                log = await _read(stage, topic, end)
    except TimeoutError:
        raise AssertionError(_why_not_compacted(log, live, stage.logged(topic))) from None
    return log


async def _read(stage: Stage, topic: str, end: int) -> Log:
    log, offset = Log(topic, [], []), 0
    while offset < end:
        fetched = await fetch(stage.cluster, topic, PARTITION, offset)
        for header, view in fetched.batches:
            log.headers.append(header)
            if not header.is_control:
                log.records += iterate(view)
        offset = fetched.next_offset
    return log


def _why_not_compacted(log: Log, live: list[Record], logged: Sequence[str]) -> str:
    """What was last seen of a topic, and what the broker said about it."""
    others = [(record.offset, record.key) for record in log.records if record not in live]
    return "\n".join(
        [
            f"{log.topic} is not compacted to its end",
            f"records expected at: {[record.offset for record in live]}",
            f"records left at: {[record.offset for record in log.records]}",
            f"records that are not as expected: {others}",
            "batches, from their first offsets to their last:",
            *(
                f"  {header.base_offset} to {header.last_offset}: "
                f"{'a gap' if header.is_control else f'{header.record_count} records'} in {header.size} bytes"
                for header in log.headers
            ),
            "the broker's log:",
            *(f"  {line}" for line in logged),
        ]
    )
