"""Copies of messages are known within a window; a consumer drops them and goes on behind them."""

import random

import pytest

from penstock.client.consumer.deduplication import Deduplicator
from penstock.client.message import Message
from penstock.client.producer.producer import Producer
from penstock.protocol.records import NewRecord
from penstock.testing import Broker
from tests.client.consuming import Stage, read, values
from tests.waiting import in_loop


def numbered(
    offset: int, sequence: int, *, partition: int = 0, producer: int = 7, epoch: int = 0
) -> Message[None, None]:
    return Message(
        "orders", partition, offset, 0, None, None, producer_id=producer, sequence=sequence, producer_epoch=epoch
    )


def named(offset: int, name: bytes | None, *, partition: int = 0, topic: str = "orders") -> Message[None, None]:
    return Message(topic, partition, offset, 0, None, None, (("message-id", name),))


def test_the_same_number_of_the_same_producer_is_a_duplicate() -> None:
    dedup = Deduplicator()
    assert not dedup.is_duplicate(numbered(10, 0))
    assert not dedup.is_duplicate(numbered(11, 1))
    assert dedup.is_duplicate(numbered(12, 0))
    assert dedup.dropped == 1


@pytest.mark.parametrize("other", [{"producer": 8}, {"partition": 1}, {"epoch": 1}])
def test_the_same_number_of_another_producer_partition_or_epoch_is_none(other: dict[str, int]) -> None:
    dedup = Deduplicator()
    assert not dedup.is_duplicate(numbered(10, 0))
    assert not dedup.is_duplicate(numbered(12, 0, **other))


def test_a_message_that_nobody_numbered_is_never_a_duplicate() -> None:
    dedup = Deduplicator()
    assert not any(dedup.is_duplicate(numbered(offset, -1, producer=-1)) for offset in range(3))
    assert len(dedup) == 0


def test_the_same_header_is_a_duplicate_in_every_partition_of_its_topic_and_in_no_other() -> None:
    dedup = Deduplicator(header="message-id")
    assert not dedup.is_duplicate(named(10, b"a"))
    assert dedup.is_duplicate(named(11, b"a"))
    assert dedup.is_duplicate(named(3, b"a", partition=1))
    assert not dedup.is_duplicate(named(3, b"a", topic="others"))
    assert not dedup.is_duplicate(named(4, None))
    assert not dedup.is_duplicate(named(5, None))


def test_a_message_that_is_read_again_is_no_duplicate_of_itself() -> None:
    dedup = Deduplicator(header="message-id")
    sequence = [named(10, b"a"), named(11, b"b"), named(12, b"a")]
    assert [m.offset for m in dedup.without_duplicates(sequence)] == [10, 11]
    assert [m.offset for m in dedup.without_duplicates(sequence)] == [10, 11]


def test_what_is_too_old_is_forgotten_in_each_partition_and_in_all() -> None:
    dedup = Deduplicator(per_partition=2, total=3)
    for offset in range(3):
        dedup.is_duplicate(numbered(offset, offset))
    assert len(dedup) == 2
    assert not dedup.is_duplicate(numbered(3, 0)), "the third has driven it out"
    assert dedup.is_duplicate(numbered(4, 2))
    for offset in range(2):
        dedup.is_duplicate(numbered(offset, offset, partition=1))
    assert len(dedup) == 3
    assert not dedup.is_duplicate(numbered(5, 2)), "it was the oldest of all"


def test_the_window_never_grows_beyond_its_bounds_and_loses_nothing_within_them() -> None:
    seed = 41
    chance = random.Random(seed)
    dedup = Deduplicator(per_partition=50, total=120)
    history: list[tuple[int, int]] = []
    for offset in range(5_000):
        partition, number = chance.randrange(4), chance.randrange(200)
        seen = {sequence for where, sequence in history if where == partition}
        dropped = dedup.is_duplicate(numbered(offset, number, partition=partition))
        assert dropped == (number in seen), f"seed {seed}, message {offset}"
        if not dropped:
            history.append((partition, number))
            own = [each for each in history if each[0] == partition]
            if len(own) > 50:
                history.remove(own[0])
            elif len(history) > 120:
                history.pop(0)
        assert len(dedup) == len(history) <= 120


def test_forgetting_begins_anew() -> None:
    dedup = Deduplicator()
    dedup.is_duplicate(numbered(1, 1))
    dedup.forget()
    assert not dedup.is_duplicate(numbered(2, 1))
    with pytest.raises(ValueError, match="per_partition is 0"):
        Deduplicator(per_partition=0)


@in_loop
async def test_a_consumer_drops_what_was_sent_twice_and_goes_on_behind_it(broker: Broker) -> None:
    stage = Stage(broker)
    sends = [b"a", b"b", b"a", b"c", b"c", b"a"]
    await stage.append([NewRecord(name, headers=(("message-id", name),)) for name in sends])
    dedup = Deduplicator(header="message-id")
    async with stage.consumer(dedup=dedup) as consumer:
        assert values(await read(consumer, 3)) == [b"a", b"b", b"c"]
        await stage.append([NewRecord(b"d", headers=(("message-id", b"d"),))])
        assert values([await anext(consumer)]) == [b"d"]
        assert dedup.dropped == 3
    assert await stage.committed() == {0: 7}


@in_loop
async def test_positions_go_on_over_nothing_but_duplicates(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.append([NewRecord(b"%d" % number, headers=(("message-id", b"same"),)) for number in range(2_000)])
    async with stage.consumer(dedup=Deduplicator(header="message-id"), max_poll_records=100) as consumer:
        assert values(await read(consumer, 1)) == [b"0"]
        assert await consumer.poll(timeout_ms=100) == []
        assert await consumer.position(stage.key) == 2_000
        await consumer.commit()
        assert await consumer.committed() == {stage.key: 2_000}


@in_loop
async def test_of_producers_that_number_their_messages_nothing_is_dropped_that_was_sent_once(broker: Broker) -> None:
    stage = Stage(broker)
    for _ in range(2):
        async with Producer(broker.bootstrap) as producer:
            for number in range(3):
                await producer.send(stage.topic, b"%d" % number)
    dedup = Deduplicator()
    async with stage.consumer(dedup=dedup) as consumer:
        assert values(await read(consumer, 6)) == [b"0", b"1", b"2"] * 2
    assert (len(dedup), dedup.dropped) == (6, 0)
