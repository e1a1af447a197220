"""Every client produces with every codec and every acks."""

import time
from collections.abc import Callable

import pytest

from penstock.protocol.compression import Codec
from tests.clients.matrix import CLIENTS, PRODUCE, Cell
from tests.clients.stage import Stage, assert_same, numbered
from tools.clients.client import Session
from tools.clients.clients import KCAT
from tools.clients.records import canonical_records


@pytest.mark.parametrize("cell", PRODUCE.cells(), ids=str)
def test_what_a_client_sends_is_stored_as_it_was_sent(
    stage: Stage, cell: Cell, record_property: Callable[[str, object], None]
) -> None:
    client, codec, acks = CLIENTS[cell.client], cell.column, cell.mark
    wanted = Codec[codec.upper()]
    expected = numbered(client.sends(canonical_records()))

    async def scenario() -> None:
        topic = await stage.new_topic()

        async def produce(session: Session) -> None:
            records = client.sends(canonical_records())
            await session.produce(stage.bootstrap, topic, records, codec=codec, acks=acks)

        before_ms = _now_ms()
        await stage.drive(client, produce)
        batches = await stage.stored(topic, len(expected))
        stored = [record for batch in batches for record in batch.records]

        if not client.sets_timestamps:
            assert all(before_ms <= record.timestamp <= _now_ms() for record in stored)
            stored = [
                record._replace(timestamp=other.timestamp) for record, other in zip(stored, expected, strict=True)
            ]
        assert_same(stored, expected)
        # librdkafka sends what does not get smaller as it is, and kcat makes several batches of these records.
        codecs = {batch.header.codec for batch in batches}
        assert codecs == {wanted} or (client is KCAT and codecs == {wanted, Codec.NONE})

    stage.run(scenario())
    record_property("version", [client.name, stage.version(client)])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
