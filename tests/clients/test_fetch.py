"""Every client reads every codec from everywhere; kafkajs in a group of its own, as it cannot without."""

from dataclasses import dataclass, field

import pytest

from penstock.protocol.batch import HEADER, read_header, stamp_crc
from penstock.protocol.compression import Codec
from penstock.protocol.records import NewRecord, Record, build, iterate
from tests.clients.matrix import CLIENTS, CODECS, FETCH, Cell
from tests.clients.stage import Stage, assert_same, numbered, told_by
from tools.clients.client import At, Session, Start
from tools.clients.records import BASE_TIMESTAMP, DAY, canonical_records
from tools.fixtures.capture import BATCHES
from tools.fixtures.capture import CLIENTS as WRITERS

# After all records that were captured.
LATER = BASE_TIMESTAMP + 60 * DAY
STEP_MS = 1000


@dataclass(slots=True)
class Log:
    """A topic with batches of one codec, each by another client, the last ones by us."""

    topic: str
    records: list[Record] = field(default_factory=list)


@pytest.fixture
def logs(stage: Stage) -> dict[str, Log]:
    return stage.once(_all_written)


@pytest.mark.parametrize("cell", [cell for cell in FETCH.cells() if cell.mark != At.END], ids=str)
def test_a_client_reads_from_where_it_wants_to_the_end(stage: Stage, logs: dict[str, Log], cell: Cell) -> None:
    client, log = CLIENTS[cell.client], logs[cell.column]
    # The middle of a batch by another client, and the middle of one of ours.
    start, first = {
        At.BEGINNING: (Start(At.BEGINNING), 0),
        At.OFFSET: (Start(At.OFFSET, 33), 33),
        At.TIMESTAMP: (Start(At.TIMESTAMP, LATER + 7 * STEP_MS - 1), len(log.records) - 40 + 7),
    }[At(cell.mark)]
    expected = told_by(client, log.records[first:])

    async def fetch(session: Session) -> list[Record]:
        return await session.fetch(stage.bootstrap, log.topic, start, len(expected))

    assert_same(stage.run(stage.drive(client, fetch)), expected)


@pytest.mark.parametrize("cell", [cell for cell in FETCH.cells() if cell.mark == At.END], ids=str)
def test_a_client_at_the_end_reads_nothing_but_what_comes(stage: Stage, cell: Cell) -> None:
    client, codec = CLIENTS[cell.client], Codec[cell.column.upper()]
    old, new = canonical_records()[:5], canonical_records()[5:]

    async def scenario() -> list[Record]:
        topic = await stage.new_topic()
        await stage.append(topic, build(old, codec=codec))

        async def ready(offset: int) -> None:
            if ends:
                return
            ends.append(offset)
            await stage.append(topic, build(new, codec=codec))

        async def fetch(session: Session) -> list[Record]:
            return await session.fetch(stage.bootstrap, topic, Start(At.END), len(new), ready)

        return await stage.drive(client, fetch)

    ends: list[int] = []
    assert_same(stage.run(scenario()), told_by(client, numbered(new, len(old))))
    assert ends in ([len(old)], [-1])


async def _all_written(stage: Stage) -> dict[str, Log]:
    return {codec: await _written(stage, codec) for codec in CODECS}


async def _written(stage: Stage, codec: str) -> Log:
    log = Log(await stage.new_topic())
    ours = [NewRecord(b"ours, %d" % number, timestamp=LATER + number * STEP_MS) for number in range(40)]
    captured = [without_producer((BATCHES / f"{writer.name}-{codec}.bin").read_bytes()) for writer in WRITERS]
    built = [build(part, codec=Codec[codec.upper()]) for part in (ours[:20], ours[20:])]
    for batch in [*captured, *built]:
        first = len(log.records)
        log.records += [record._replace(offset=first + number) for number, record in enumerate(iterate(batch))]
        await stage.append(log.topic, batch)
    return log


def without_producer(captured: bytes) -> bytearray:
    """The batch as one that no idempotent producer sent: several of them had the same id, and would be duplicates."""
    header = read_header(captured)._replace(producer_id=-1, producer_epoch=-1, base_sequence=-1)
    batch = bytearray(captured)
    HEADER.pack_into(batch, 0, *header)
    stamp_crc(batch)
    return batch
