"""Produce over the wire: what is taken, what is refused and with which code, and what is stored."""

import asyncio
import errno
import struct
from collections.abc import Sequence

import pytest

from penstock.broker.partitions.produce_reply import NO_KEY
from penstock.machines.producers import Duplicate
from penstock.protocol.batch import LOG_APPEND_TIME_BIT, read_header, split, stamp_crc
from penstock.protocol.compression import Codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.record_checks import MAX_NAMED, Findings
from penstock.protocol.records import NewRecord, build
from penstock.protocol.schemas.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.protocol.schemas.topics import DeleteTopicsRequest
from penstock.protocol.schemas.versions import ApiVersionsRequest
from penstock.storage.files import Buffer
from tests.broker.copies import TOPIC, Copies, copying
from tests.broker.harness import (
    FOLDER,
    NOW_MS,
    Client,
    FakeClock,
    GatedFiles,
    Node,
    batch,
    in_loop,
    produce_request,
    produced,
    records_of,
    running,
    until,
    values_of,
)

HOUR_MS = 3_600_000
NO_PRODUCER = (-1, -1, -1)


async def with_topic(node: Node, name: str = "orders", **configs: str) -> Client:
    client = await node.connect()
    await client.create_topic(name, configs={key.replace("_", "."): value for key, value in configs.items()})
    return client


def reattributed(data: bytearray, attributes: int) -> bytearray:
    struct.pack_into(">h", data, 21, attributes)
    stamp_crc(data)
    return data


# What is taken


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_version_stores_a_batch_and_answers_as_asked(version: int, acks: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await with_topic(node)
            request = produce_request(
                "orders", batch(b"a", b"b"), acks=acks, topic_id=node.partition("orders").topic_id
            )
            client.send(request, version)
            if acks:
                answer = produced(await client.reply())
                assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
                assert answer.log_start_offset == (0 if version >= 5 else -1)
                assert answer.log_append_time_ms == -1
            await until(lambda: node.partition("orders").high_watermark == 2)
            assert await client.values("orders") == [b"a", b"b"]

    run()


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_is_stored_as_it_came_but_for_its_place(codec: Codec) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await with_topic(node)
            sent = batch(b"a" * 100, b"b" * 100, codec=codec)
            await client.produce("orders", batch(b"first"))
            await client.produce("orders", bytes(sent))
            data = await client.fetch("orders", 1)
            assert isinstance(data.records, memoryview)
            [(header, view)] = split(data.records)
            assert (header.base_offset, header.leader_epoch) == (1, 0)
            assert bytes(view[17:]) == bytes(sent[17:])

    run()


@in_loop
async def test_one_request_may_carry_many_topics_and_partitions_and_each_has_its_own_answer() -> None:
    async with running() as node:
        client = await with_topic(node)
        await client.create_topic("payments", 2)
        request = ProduceRequest(
            acks=-1,
            topic_data=[
                TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=batch(b"o"))]),
                TopicProduceData(
                    name="payments",
                    partition_data=[
                        PartitionProduceData(index=1, records=batch(b"p")),
                        PartitionProduceData(index=5, records=batch(b"?")),
                        PartitionProduceData(index=0, records=b"nonsense" * 20),
                    ],
                ),
            ],
        )
        response = await client.ask(request, 12)
        told = [
            (topic.name, partition.index, partition.error_code, partition.base_offset)
            for topic in response.responses
            for partition in topic.partition_responses
        ]
        assert told == [
            ("orders", 0, ErrorCode.NONE, 0),
            ("payments", 1, ErrorCode.NONE, 0),
            ("payments", 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            ("payments", 0, ErrorCode.CORRUPT_MESSAGE, -1),
        ]


@in_loop
async def test_a_request_without_topics_is_answered() -> None:
    async with running() as node:
        client = await node.connect()
        assert await client.ask(ProduceRequest(acks=-1), 12) == ProduceResponse()


# What is refused


@in_loop
async def test_unknown_topics_partitions_and_ids_are_told_apart() -> None:
    async with running() as node:
        client = await with_topic(node)
        assert (await client.produce("orderz", batch(b"a"))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await client.produce("orders", batch(b"a"), partition=1)).error_code == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        answer = await client.ask(produce_request("orders", batch(b"a"), topic_id=b"?" * 16), 13)
        assert answer.responses[0].topic_id == b"?" * 16
        assert produced(answer).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        # Producing creates no topic: asking for its metadata does.
        assert set(node.broker.services.image.topics) == {"orders"}


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acknowledgements_are_from_all_or_one_or_nobody(acks: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await with_topic(node)
            answer = await client.produce("orders", batch(b"a"), acks=acks)
            assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
            assert (answer.error_message, answer.base_offset) == ("acks must be -1 (all), 0 or 1", -1)
            assert await client.values("orders") == []

    run()


@pytest.mark.parametrize("records", [None, b""])
def test_no_records_are_invalid(records: bytes | None) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await with_topic(node)
            answer = await client.produce("orders", records)
            assert answer.error_code == ErrorCode.INVALID_RECORD
            assert answer.error_message == "there is no record batch"

    run()


@in_loop
async def test_two_batches_for_one_partition_are_invalid() -> None:
    async with running() as node:
        client = await with_topic(node)
        answer = await client.produce("orders", batch(b"a") + batch(b"b"))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert answer.error_message is not None
        assert "one batch" in answer.error_message
        assert await client.values("orders") == []


@in_loop
async def test_damaged_batches_are_refused() -> None:
    async with running() as node:
        client = await with_topic(node)
        flipped = batch(b"a" * 50)
        flipped[80] ^= 1
        short = batch(b"a" * 50)[:-1]
        long = batch(b"a" * 50) + b"x"
        old_format = batch(b"a")
        old_format[16] = 1
        for damaged in (flipped, short, long, old_format, b"x", b"\0" * 61, b"\xff" * 100):
            answer = await client.produce("orders", bytes(damaged))
            assert answer.error_code == ErrorCode.CORRUPT_MESSAGE, bytes(damaged[:20])
            assert answer.error_message
        assert await client.values("orders") == []


@in_loop
async def test_a_batch_over_the_limit_is_told_the_limit() -> None:
    async with running() as node:
        client = await with_topic(node, max_message_bytes="1000")
        fits = batch(bytes(1000 - len(batch(bytes(500))) + 500))
        assert len(fits) == 1000
        assert (await client.produce("orders", fits)).error_code == ErrorCode.NONE
        answer = await client.produce("orders", batch(bytes(1000 - len(batch(bytes(500))) + 501)))
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert answer.error_message == "a batch of 1001 bytes is over max.message.bytes (1000)"


@in_loop
async def test_what_only_brokers_write_is_refused_from_producers() -> None:
    async with running() as node:
        client = await with_topic(node)
        for attributes in (0x20, 0x08, 0x40, 0x80, 5):
            answer = await client.produce("orders", reattributed(batch(b"a"), attributes))
            assert answer.error_code == ErrorCode.INVALID_RECORD, attributes
        gap = batch(b"a")
        struct.pack_into(">i", gap, 23, 4)
        stamp_crc(gap)
        assert (await client.produce("orders", gap)).error_code == ErrorCode.INVALID_RECORD
        assert await client.values("orders") == []


@in_loop
async def test_transactions_are_refused_for_good() -> None:
    async with running() as node:
        client = await with_topic(node)
        data = batch(b"a", producer=(5, 0, 0), transactional=True)
        answer = produced(await client.ask(produce_request("orders", data, transactional_id="tx"), 12))
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert not ErrorCode(answer.error_code).retriable
        answer = await client.produce("orders", data)
        assert answer.error_code == ErrorCode.INVALID_TXN_STATE
        assert not ErrorCode(answer.error_code).retriable
        assert await client.values("orders") == []


@in_loop
async def test_zstd_needs_a_client_that_knows_it() -> None:
    async with running() as node:
        client = await with_topic(node)
        data = bytes(batch(b"a" * 100, codec=Codec.ZSTD))
        assert (await client.produce("orders", data, version=6)).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert (await client.produce("orders", data, version=7)).error_code == ErrorCode.NONE


@in_loop
async def test_without_acknowledgement_an_error_closes_the_connection() -> None:
    async with running() as node:
        client, other = await with_topic(node), await node.connect()
        client.send(produce_request("orderz", batch(b"a"), acks=0), 12)
        assert await client.closed() == b""
        assert node.broker.listener.aborted["an append with acks=0 failed"] == 1
        assert (await other.produce("orders", batch(b"b"))).error_code == ErrorCode.NONE


@in_loop
async def test_without_acknowledgement_nothing_is_sent_back() -> None:
    async with running() as node:
        client = await with_topic(node)
        for number in range(10):
            client.send(produce_request("orders", batch(b"%d" % number), acks=0), 12)
        # The next reply is to the next request that wants one: the session would notice anything else.
        await client.ask(ApiVersionsRequest(), 0)
        await until(lambda: node.partition("orders").high_watermark == 10)
        assert await client.values("orders") == [b"%d" % number for number in range(10)]


# Time


@in_loop
async def test_timestamps_too_far_ahead_or_behind_are_refused() -> None:
    async with running(clock=FakeClock()) as node:
        client = await with_topic(node, message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="2000")
        for timestamp, expected in [
            (NOW_MS, ErrorCode.NONE),
            (NOW_MS + 2000, ErrorCode.NONE),
            (NOW_MS + 2001, ErrorCode.INVALID_TIMESTAMP),
            (NOW_MS - 1000, ErrorCode.NONE),
            (NOW_MS - 1001, ErrorCode.INVALID_TIMESTAMP),
            (-1, ErrorCode.NONE),
        ]:
            answer = await client.produce("orders", batch(b"a", timestamp=timestamp))
            assert answer.error_code == expected, timestamp - NOW_MS
        far = await client.produce("orders", batch(b"a", b"b", timestamps=[NOW_MS, NOW_MS + 2001]))
        assert far.error_code == ErrorCode.INVALID_TIMESTAMP
        assert far.error_message == f"timestamp {NOW_MS + 2001} is over 2000 ms in the future"


@in_loop
async def test_by_default_an_hour_ahead_is_too_far_and_the_past_is_welcome() -> None:
    async with running(clock=FakeClock()) as node:
        client = await with_topic(node)
        for timestamp, expected in [
            (NOW_MS + HOUR_MS, ErrorCode.NONE),
            (NOW_MS + HOUR_MS + 1, ErrorCode.INVALID_TIMESTAMP),
            (0, ErrorCode.NONE),
        ]:
            assert (await client.produce("orders", batch(b"a", timestamp=timestamp))).error_code == expected


@in_loop
async def test_a_topic_may_give_records_the_time_of_their_append() -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        client = await with_topic(node, message_timestamp_type="LogAppendTime")
        clock.advance(5_000)
        answer = await client.produce("orders", batch(b"a", b"b", timestamp=NOW_MS + 10 * HOUR_MS))
        assert (answer.error_code, answer.log_append_time_ms) == (ErrorCode.NONE, NOW_MS + 5_000)
        data = await client.fetch("orders")
        assert [record.timestamp for record in records_of(data)] == [NOW_MS + 5_000] * 2
        assert isinstance(data.records, memoryview)
        assert read_header(data.records).attributes & LOG_APPEND_TIME_BIT
        # The checksum is right, or the next start would not serve it.
        await node.restart()
        assert await (await node.connect()).values("orders") == [b"a", b"b"]


# Idempotence


@in_loop
async def test_a_retry_gets_the_offset_of_the_original_and_is_not_stored_again() -> None:
    async with running() as node:
        client, again = await with_topic(node), await node.connect()
        for sequence in range(5):
            answer = await client.produce("orders", batch(b"%d" % sequence, producer=(9, 0, sequence)))
            assert answer.base_offset == sequence
        for sequence in (0, 4, 2):
            answer = await again.produce("orders", batch(b"%d" % sequence, producer=(9, 0, sequence)))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, sequence)
        assert await client.values("orders") == [b"0", b"1", b"2", b"3", b"4"]


@in_loop
async def test_pipelined_batches_and_their_retries_of_one_turn_are_stored_once_in_order() -> None:
    async with running() as node:
        client = await with_topic(node)
        sequences = [0, 1, 2, 1, 2, 3, 4, 0]
        client.send_together(
            *[
                (produce_request("orders", batch(b"%d" % sequence, producer=(9, 0, sequence))), 12)
                for sequence in sequences
            ]
        )
        answers = [produced(await client.reply()) for _ in sequences]
        assert [answer.base_offset for answer in answers] == sequences
        assert await client.values("orders") == [b"0", b"1", b"2", b"3", b"4"]


@in_loop
async def test_a_gap_in_the_sequence_is_refused_with_both_numbers() -> None:
    async with running() as node:
        client = await with_topic(node)
        await client.produce("orders", batch(b"a", producer=(9, 0, 0)))
        answer = await client.produce("orders", batch(b"c", producer=(9, 0, 2)))
        assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert answer.error_message == "producer 9 sent sequence 2 where 1 comes next"


@in_loop
async def test_idempotence_survives_restarts_and_crashes() -> None:
    async with running() as node:
        client = await with_topic(node)
        await client.produce("orders", batch(b"a", producer=(9, 0, 0)))
        await node.restart()
        client = await node.connect()
        assert (await client.produce("orders", batch(b"a", producer=(9, 0, 0)))).base_offset == 0
        assert (await client.produce("orders", batch(b"b", producer=(9, 0, 1)))).base_offset == 1
        await node.crash()
        client = await node.connect()
        assert (await client.produce("orders", batch(b"b", producer=(9, 0, 1)))).base_offset == 1
        assert await client.values("orders") == [b"a", b"b"]


# The disk


@in_loop
async def test_a_full_disk_refuses_with_a_retriable_error_and_everything_goes_on_when_there_is_room() -> None:
    async with running() as node:
        client = await with_topic(node)
        await client.create_topic("payments")
        await client.produce("orders", batch(b"a", producer=(9, 0, 0)))
        free = node.memory.free_bytes(FOLDER)
        node.memory.capacity = 0
        for topic in ("orders", "payments"):
            answer = await client.produce(topic, batch(bytes(500)))
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert ErrorCode(answer.error_code).retriable
            assert answer.error_message is not None
            assert "No space left" in answer.error_message
        refused = await client.produce("orders", batch(b"b", producer=(9, 0, 1)))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        # What is there can be read all the time.
        assert await client.values("orders") == [b"a"]
        node.memory.capacity = free
        await until(lambda: not node.broker.services.disk.is_low)
        again = await client.produce("orders", batch(b"b", producer=(9, 0, 1)))
        assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 1)
        assert (await client.produce("payments", batch(b"p"))).base_offset == 0
        await node.restart()
        client = await node.connect()
        assert await client.values("orders") == [b"a", b"b"]
        assert await client.values("payments") == [b"p"]


class TornWrites(GatedFiles):
    """A disk that writes a part of the next batch and then fails."""

    is_torn = False

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        if self.is_torn and fd in self.segments:
            self.is_torn = False
            super().pwritev(fd, [b"".join(buffers)[:40]], position)
            raise OSError(errno.EIO, "input/output error")
        return super().pwritev(fd, buffers, position)


@in_loop
async def test_a_write_that_was_torn_by_an_error_leaves_nothing_behind() -> None:
    files = TornWrites()
    async with running(files=files) as node:
        client = await with_topic(node)
        await client.produce("orders", batch(b"a"))
        files.is_torn = True
        assert (await client.produce("orders", batch(b"b"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.produce("orders", batch(b"c"))).base_offset == 1
        assert values_of(records_of(await client.fetch("orders"))) == [b"a", b"c"]


# Keys, which compacted topics ask for


def keyed_batch(*keys: bytes | None, codec: Codec = Codec.NONE, producer: tuple[int, int, int] = NO_PRODUCER) -> bytes:
    records = [NewRecord(b"%d" % number, key=key, timestamp=NOW_MS) for number, key in enumerate(keys)]
    return bytes(
        build(records, codec=codec, producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2])
    )


@pytest.mark.parametrize("version", [7, 8, 12])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("count", [3, 1000])
def test_a_compacted_topic_takes_no_batch_with_a_record_without_a_key(version: int, codec: Codec, count: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await with_topic(node, cleanup_policy="compact")
            keys: list[bytes | None] = [b"k"] * count
            keys[1] = None
            answer = await client.produce("orders", keyed_batch(*keys, codec=codec), version=version)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
            if version >= 8:
                assert [(error.batch_index, error.batch_index_error_message) for error in answer.record_errors] == [
                    (1, NO_KEY)
                ]
                assert answer.error_message is not None
                assert "the topic is compacted" in answer.error_message
                assert "give every record a key, or set cleanup.policy=delete" in answer.error_message
            assert node.partition("orders").log.end_offset == 0
            answer = await client.produce("orders", keyed_batch(*[b"k"] * count, codec=codec), version=version)
            assert (answer.error_code, answer.base_offset, answer.record_errors) == (ErrorCode.NONE, 0, ())

    run()


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_of_many_records_without_a_key_the_first_are_named(policy: str) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await with_topic(node, cleanup_policy=policy)
            answer = await client.produce("orders", keyed_batch(*[None] * 5000))
            assert [error.batch_index for error in answer.record_errors] == list(range(MAX_NAMED))
            assert answer.error_message is not None
            assert "5000 have none" in answer.error_message

    run()


@in_loop
async def test_topics_that_are_not_compacted_take_records_without_keys_and_so_does_one_that_is_no_longer() -> None:
    async with running() as node:
        client = await with_topic(node, cleanup_policy="compact")
        await client.create_topic("logs")
        assert (await client.produce("logs", keyed_batch(None))).error_code == ErrorCode.NONE
        node.partition("orders").settings = node.partition("logs").settings
        assert (await client.produce("orders", keyed_batch(None))).error_code == ErrorCode.NONE


@in_loop
async def test_records_that_nobody_could_read_are_not_taken_by_a_compacted_topic() -> None:
    async with running() as node:
        client = await with_topic(node, cleanup_policy="compact")
        data = bytearray(keyed_batch(b"a", b"b"))
        struct.pack_into(">B", data, 61, 0x7F)
        stamp_crc(data)
        answer = await client.produce("orders", bytes(data))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert answer.error_message is not None
        assert answer.error_message.startswith("the records of the batch cannot be read")
        # What is damaged on the way is told as such, and tried again.
        data[-1] ^= 1
        assert (await client.produce("orders", bytes(data))).error_code == ErrorCode.CORRUPT_MESSAGE


@in_loop
async def test_a_request_with_good_and_bad_batches_has_an_answer_for_each() -> None:
    async with running() as node:
        client = await with_topic(node, cleanup_policy="compact")
        await client.create_topic("logs")
        large = [b"k"] * 999
        data = {"orders": keyed_batch(*large, None), "logs": keyed_batch(None)}
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)])
                for name, records in data.items()
            ],
        )
        response = await client.ask(request, 12)
        orders, logs = (topic.partition_responses[0] for topic in response.responses)
        assert (orders.error_code, [error.batch_index for error in orders.record_errors]) == (
            ErrorCode.INVALID_RECORD,
            [999],
        )
        assert (logs.error_code, logs.base_offset) == (ErrorCode.NONE, 0)


@in_loop
async def test_without_acknowledgement_a_record_without_a_key_closes_the_connection() -> None:
    async with running() as node:
        client = await with_topic(node, cleanup_policy="compact")
        client.send(produce_request("orders", keyed_batch(*[None] * 1000), acks=0), 12)
        assert await client.closed() == b""


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_pipelined_batches_large_and_small_keep_their_order_and_their_retries_are_known(codec: Codec) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await with_topic(node, cleanup_policy="compact")
            sizes = [3000, 1, 700, 1, 1, 2000, 1]
            sequences = [sum(sizes[:number]) for number in range(len(sizes))]
            sent = [
                keyed_batch(*[b"%d" % size] * size, codec=codec, producer=(7, 0, sequence))
                for size, sequence in zip(sizes, sequences, strict=True)
            ]
            requests = [(produce_request("orders", data), 12) for data in [*sent, sent[-2], sent[-1]]]
            # In the midst of the rest another request, whose bytes take the place of theirs in the buffer.
            client.send_together(*requests[:4], (ApiVersionsRequest(), 3), *requests[4:])
            offsets = []
            for _ in range(len(requests) + 1):
                reply = await client.reply()
                if isinstance(reply, ProduceResponse):
                    answer = produced(reply)
                    assert answer.error_code == ErrorCode.NONE, answer
                    offsets.append(answer.base_offset)
            assert offsets == [*sequences, *sequences[-2:]]
            log = node.partition("orders").log
            assert log.end_offset == sum(sizes)
            assert [header.last_offset_delta + 1 for header in log.headers(0)] == sizes

    run()


@in_loop
async def test_what_others_send_while_a_large_batch_is_looked_at_does_not_get_into_it() -> None:
    async with running() as node:
        first, second = await with_topic(node, cleanup_policy="compact"), await node.connect()
        for _ in range(10):
            first.send(produce_request("orders", keyed_batch(*[b"first"] * 1000)), 12)
            second.send(produce_request("orders", keyed_batch(*[b"second"] * 900)), 12)
            for client in (first, second):
                assert produced(await client.reply()).error_code == ErrorCode.NONE
        assert node.partition("orders").log.end_offset == 19_000


@in_loop
async def test_a_large_batch_does_not_hold_back_what_follows_it_until_it_is_flushed() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client = await with_topic(node, cleanup_policy="compact")
        files.gate.clear()
        client.send(produce_request("orders", keyed_batch(*[b"k"] * 1000)), 12)
        client.send(produce_request("orders", keyed_batch(b"k")), 12)
        await until(lambda: node.partition("orders").log.end_offset == 1001)
        assert node.partition("orders").high_watermark == 0
        files.gate.set()
        assert [produced(await client.reply()).base_offset for _ in range(2)] == [0, 1000]


@in_loop
async def test_a_topic_that_is_deleted_while_its_batch_is_looked_at_takes_it_no_more() -> None:
    async with running() as node:
        client, other = await with_topic(node, cleanup_policy="compact"), await node.connect()
        checking, begun, go_on = node.broker.services.record_checking, asyncio.Event(), asyncio.Event()
        check = checking.check

        async def check_late(view: memoryview) -> Findings:
            begun.set()
            await go_on.wait()
            return await check(view)

        with pytest.MonkeyPatch.context() as late:
            late.setattr(checking, "check", check_late)
            client.send(produce_request("orders", keyed_batch(*[b"k"] * 5_000)), 12)
            await begun.wait()
            await other.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 5)
            go_on.set()
            assert produced(await client.reply()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# With replicas


WAYS: list[dict[str, str]] = [{}, {"message.timestamp.type": "LogAppendTime"}]
"""A batch of the first is taken quickly, one of the second by the ordinary way."""

LAG = {"replica.lag.time.max.ms": "600"}


async def send(
    client: Client, data: bytearray, *, timeout_ms: int = 10_000, indexes: Sequence[int] = (0,)
) -> list[tuple[int, int]]:
    """With acks=all, the same batch for each partition. Returns error codes and offsets."""
    request = produce_request(TOPIC, data)
    request.timeout_ms = timeout_ms
    request.topic_data[0].partition_data = [PartitionProduceData(index=index, records=data) for index in indexes]
    [topic] = (await client.ask(request, 12)).responses
    return [(each.error_code, each.base_offset) for each in topic.partition_responses]


def gated(copies: Copies, number: int) -> GatedFiles:
    files = copies.nodes[number].files
    assert isinstance(files, GatedFiles)
    return files


@pytest.mark.parametrize("configs", WAYS)
@pytest.mark.parametrize("partitions", [1, 2])
def test_a_producer_waits_for_slow_replicas_no_longer_than_it_says_and_a_retry_is_known(
    configs: dict[str, str], partitions: int
) -> None:
    @in_loop
    async def run() -> None:
        async with copying(2) as copies:
            await copies.create(4, configs=configs, copies=2)
            # Two partitions that one broker leads.
            leader = copies.leader(0)
            client = await copies.client(leader)
            indexes = [index for index in range(4) if copies.leader(index) == leader][:partitions]
            gated(copies, 1 - leader).gate.clear()
            data = batch(b"a", producer=(5, 0, 0))
            timed_out = await send(client, data, timeout_ms=50, indexes=indexes)
            assert timed_out == [(ErrorCode.REQUEST_TIMED_OUT, -1)] * partitions
            assert {copies.led(index).high_watermark for index in indexes} == {0}
            gated(copies, 1 - leader).gate.set()
            assert await send(client, data, indexes=indexes) == [(ErrorCode.NONE, 0)] * partitions
            for index in indexes:
                assert await client.values(TOPIC, partition=index) == [b"a"]

    run()


@pytest.mark.parametrize("configs", WAYS)
def test_what_was_written_while_replicas_left_is_not_written_again_by_a_retry(configs: dict[str, str]) -> None:
    @in_loop
    async def run() -> None:
        async with copying(configs=LAG) as copies:
            await copies.create(configs={"min.insync.replicas": "3", **configs})
            client = await copies.client()
            copies.cut(copies.leader(), copies.followers()[:1])
            data = batch(b"a", producer=(5, 0, 0))
            assert await send(client, data) == [(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 0)]
            # While there are too few, neither the retry nor what follows it waits; the first one is still in the log.
            assert await send(client, data) == [(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 0)]
            next_one = batch(b"b", producer=(5, 0, 1))
            assert await send(client, next_one) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
            assert copies.led().log.end_offset == 1
            copies.mend()
            await copies.until_equal()
            assert await send(client, data) == [(ErrorCode.NONE, 0)]
            assert await send(client, next_one) == [(ErrorCode.NONE, 1)]
            assert await client.values(TOPIC) == [b"a", b"b"]

    run()


@pytest.mark.parametrize("configs", WAYS)
def test_a_retry_after_a_timeout_is_known_to_the_next_leader(configs: dict[str, str]) -> None:
    @in_loop
    async def run() -> None:
        async with copying(session_seconds=0.5) as copies:
            await copies.create(configs=configs)
            client = await copies.client()
            slow, quick = copies.followers()
            gated(copies, slow).gate.clear()
            data = batch(b"a", producer=(5, 0, 0))
            assert await send(client, data, timeout_ms=50) == [(ErrorCode.REQUEST_TIMED_OUT, -1)]
            await until(lambda: copies.replica(quick).log.flushed_offset == 1)
            await until(lambda: copies.replica(slow).log.end_offset == 1)
            gated(copies, slow).gate.set()
            await copies.nodes[copies.leader()].kill()
            await copies.elect_another()
            client = await copies.client()
            assert await send(client, data) == [(ErrorCode.NONE, 0)]
            assert await send(client, batch(b"b", producer=(5, 0, 1))) == [(ErrorCode.NONE, 1)]
            assert await client.values(TOPIC) == [b"a", b"b"]

    run()


@in_loop
async def test_what_a_former_leader_took_alone_is_forgotten_with_its_producers_and_taken_again() -> None:
    async with copying(session_seconds=0.5) as copies:
        await copies.create()
        old = copies.leader()
        client = await copies.client()
        assert await send(client, batch(b"0", producer=(5, 0, 0))) == [(ErrorCode.NONE, 0)]
        copies.cut(old, copies.followers())
        # No other replica gets it, and it is in no window but the former leader's.
        cut_off = batch(b"1", producer=(5, 0, 1))
        waiting = asyncio.create_task(send(client, cut_off, timeout_ms=60_000))
        await until(lambda: copies.replica(old).log.end_offset == 2)
        copies.nodes[old].store.cut()
        await copies.elect_another()
        new = await copies.client()
        other = batch(b"between", producer=(6, 0, 0))
        assert await send(new, other) == [(ErrorCode.NONE, 1)]
        copies.nodes[old].store.mend()
        copies.mend()
        assert await waiting == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)]
        await copies.until_equal()
        new = await copies.client()
        assert await send(new, cut_off) == [(ErrorCode.NONE, 2)]
        await copies.until_equal()
        # Every replica knows the batch where it is now, and none where it was.
        for replica in copies.replicas():
            for sent, offset in ((cut_off, 2), (other, 1)):
                seen = replica.producers.check(read_header(memoryview(sent)))
                assert isinstance(seen, Duplicate)
                assert seen.base_offset == offset
        assert await new.values(TOPIC) == [b"0", b"between", b"1"]
