"""Every version of what producers send is taken quickly, and what is refused is refused as by the ordinary way."""

import errno
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from penstock.protocol.codec import encode
from penstock.protocol.compression import Codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.protocol.schemas.topics import DeleteTopicsRequest, DeleteTopicState
from penstock.storage.files import Buffer
from tests.broker.harness import Client, FakeClock, GatedFiles, Node, batch, in_loop, running, turns, until
from tests.broker.quick.watched import answer, ask, only_the_ordinary_way, only_the_quick_way

VERSIONS = range(3, 14)
# The versions in which something changes in what is read or written.
GENERATIONS = [3, 5, 8, 9, 10, 13]
SHAPES: dict[str, list[tuple[str, int]]] = {
    "one": [("orders", 1)],
    "several": [("orders", 2), ("orders", 0), ("orders", 1)],
    "topics": [("orders", 0), ("orders", 1), ("payments", 2), ("payments", 0)],
}
Batches = dict[tuple[str, int], bytes | bytearray | None]


async def stage(node: Node, **configs: str) -> Client:
    client = await node.connect()
    for topic in ("orders", "payments"):
        await client.create_topic(topic, 3, {key.replace("_", "."): value for key, value in configs.items()})
    return client


def request(node: Node, version: int, batches: Batches, *, acks: int = -1) -> ProduceRequest:
    topics: dict[str, list[PartitionProduceData]] = {}
    for (topic, index), records in batches.items():
        topics.setdefault(topic, []).append(PartitionProduceData(index=index, records=records))
    data = []
    for topic, partitions in topics.items():
        names: dict[str, Any] = {"topic_id": node.partition(topic).topic_id} if version >= 13 else {"name": topic}
        data.append(TopicProduceData(**names, partition_data=partitions))
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=data)


def outcomes(response: ProduceResponse) -> list[tuple[int, int, int]]:
    return [
        (partition.index, partition.error_code, partition.base_offset)
        for topic in response.responses
        for partition in topic.partition_responses
    ]


# What is taken


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_version_of_every_shape_is_taken_quickly(version: int, shape: str) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await stage(node)
            with only_the_quick_way():
                for number, acks in enumerate([-1, 1, -1, 1]):
                    batches: Batches = {place: batch(b"%d" % number) for place in SHAPES[shape]}
                    response = await ask(client, request(node, version, batches, acks=acks), version)
                    assert outcomes(response) == [(index, 0, number) for _, index in SHAPES[shape]]
                client.send(request(node, version, {place: batch(b"4") for place in SHAPES[shape]}, acks=0), version)
                await until(lambda: all(node.partition(*place).high_watermark == 5 for place in SHAPES[shape]))
            for topic, index in SHAPES[shape]:
                assert await client.values(topic, partition=index) == [b"0", b"1", b"2", b"3", b"4"]

    run()


@pytest.mark.parametrize("version", [7, 9])
@in_loop
async def test_idempotent_and_compressed_batches_are_taken_quickly(version: int) -> None:
    async with running() as node:
        client = await stage(node)
        with only_the_quick_way():
            for codec in Codec:
                values: Batches = {
                    ("orders", 0): batch(b"a", producer=(9, 0, codec), codec=codec),
                    ("orders", 1): batch(b"a", producer=(9, 0, codec), codec=codec),
                }
                # The second time both are duplicates.
                for _ in range(2):
                    response = await ask(client, request(node, version, values), version)
                    assert outcomes(response) == [(0, 0, codec), (1, 0, codec)]
        assert node.partition("orders").log.end_offset == len(Codec)


@in_loop
async def test_a_reply_for_several_partitions_leaves_when_the_last_one_is_done() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client = await stage(node)
        files.gate.clear()
        with only_the_quick_way():
            client.send(request(node, 8, {("orders", 0): batch(b"a"), ("payments", 1): batch(b"b")}), 8)
            await until(lambda: files.waiting)
            await turns(3)
            assert not client._reader._buffer  # type: ignore[attr-defined]
            files.gate.set()
            assert outcomes(await answer(client)) == [(0, 0, 0), (1, 0, 0)]


@in_loop
async def test_a_call_without_acknowledgement_has_its_place_in_the_order() -> None:
    async with running() as node:
        client = await stage(node)
        with only_the_quick_way():
            sent = []
            for number in range(6):
                batches: Batches = {("orders", 0): batch(b"%d" % number)}
                if number % 3 == 2:
                    batches["payments", 1] = batch(b"%d" % number)
                sent.append((request(node, 7, batches, acks=0 if number % 2 else -1), 7))
            client.send_together(*sent)
            for number in (0, 2, 4):
                assert outcomes(await answer(client))[0] == (0, 0, number)
        assert await client.values("orders") == [b"%d" % number for number in range(6)]


@in_loop
async def test_what_is_kept_of_a_call_is_not_its_bytes() -> None:
    # The receive buffer is used again while the first call waits for its flush.
    files = GatedFiles()
    async with running(files=files) as node:
        client, other = await stage(node), await node.connect()
        files.gate.clear()
        with only_the_quick_way():
            client.send(request(node, 7, {("orders", 0): batch(b"a" * 100), ("payments", 1): batch(b"b")}), 7)
            await until(lambda: files.waiting)
            other.send(request(node, 7, {("orders", 2): batch(b"?" * 5000)}), 7)
            await until(lambda: node.partition("orders", 2).log.end_offset)
            files.gate.set()
            assert outcomes(await answer(client)) == [(0, 0, 0), (1, 0, 0)]
        assert await client.values("orders") == [b"a" * 100]


# What is not


Scene = Callable[[Node, Client, int], Awaitable[ProduceResponse]]


def same_both_ways(version: int, scene: Scene, **options: Any) -> ProduceResponse:
    """Play a scene twice, with the quick way and without it: what the client gets and what is stored are the same."""
    found: list[tuple[bytes, list[int]]] = []
    responses: list[ProduceResponse] = []

    @in_loop
    async def run() -> None:
        for way in (nullcontext(), only_the_ordinary_way()):
            files = options.get("files", GatedFiles)()
            async with running(files=files, clock=FakeClock()) as node:
                client = await stage(node, **options.get("configs", {}))
                with way:
                    response = await scene(node, client, version)
                ids = [node.partition(topic).topic_id for topic in ("orders", "payments") if version >= 13]
                written = encode(response, version)
                for number, topic_id in enumerate(ids):
                    written = written.replace(topic_id, bytes([number]) * 16)
                ends = [node.partition("orders", index).log.end_offset for index in range(3)]
                found.append((written, ends))
                responses.append(response)

    run()
    assert found[0] == found[1]
    return responses[0]


def damaged() -> bytes:
    records = batch(b"a")
    records[-1] ^= 1
    return bytes(records)


REFUSED: dict[str, tuple[Batches, int]] = {
    "unknown partition": ({("orders", 9): batch(b"a")}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "damaged": ({("orders", 1): damaged()}, ErrorCode.CORRUPT_MESSAGE),
    "two batches": ({("orders", 1): batch(b"a") + batch(b"b")}, ErrorCode.INVALID_RECORD),
    "no batch": ({("orders", 1): None}, ErrorCode.INVALID_RECORD),
    "too large": ({("orders", 1): batch(bytes(2_000_000))}, ErrorCode.MESSAGE_TOO_LARGE),
    "from the future": ({("orders", 1): batch(b"a", timestamp=1 << 60)}, ErrorCode.INVALID_TIMESTAMP),
    "a gap": ({("orders", 1): batch(b"a", producer=(9, 0, 5))}, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
}


@pytest.mark.parametrize("version", GENERATIONS)
@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("alone", [True, False])
def test_a_batch_that_is_refused_is_refused_as_by_the_ordinary_way(version: int, kind: str, alone: bool) -> None:
    refused, code = REFUSED[kind]

    async def scene(node: Node, client: Client, version: int) -> ProduceResponse:
        await client.produce("orders", batch(b"before", producer=(9, 0, 0)), partition=1)
        beside: Batches = {} if alone else {("orders", 0): batch(b"x"), **refused, ("orders", 2): batch(b"y")}
        response: ProduceResponse = await ask(client, request(node, version, beside or refused), version)
        return response

    response = same_both_ways(version, scene)
    [(_, index)] = refused
    assert (index, code, -1) in outcomes(response)
    if not alone:
        # The good ones are stored, once.
        assert (0, 0, 0) in outcomes(response)


def test_zstd_is_left_to_the_ordinary_way_in_versions_that_do_not_have_it() -> None:
    for version in VERSIONS:

        async def scene(node: Node, client: Client, version: int) -> ProduceResponse:
            batches: Batches = {("orders", 0): batch(b"a", codec=Codec.ZSTD), ("orders", 1): batch(b"b")}
            response: ProduceResponse = await ask(client, request(node, version, batches), version)
            return response

        code = ErrorCode.NONE if version >= 7 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert outcomes(same_both_ways(version, scene))[0][:2] == (0, code)


@pytest.mark.parametrize("version", [7, 13])
@pytest.mark.parametrize(
    "configs", [{"cleanup_policy": "compact"}, {"message_timestamp_type": "LogAppendTime"}], ids=["compact", "time"]
)
def test_what_a_topic_asks_for_is_done_in_both_ways(version: int, configs: dict[str, str]) -> None:
    async def scene(node: Node, client: Client, version: int) -> ProduceResponse:
        response: ProduceResponse = await ask(
            client, request(node, version, {("orders", 0): batch(b"a"), ("orders", 1): batch(b"b")}), version
        )
        return response

    same_both_ways(version, scene, configs=configs)


# What goes wrong after a batch was taken


class FailingWrites(GatedFiles):
    """A disk on which writes of batches with this text fail."""

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        if fd in self.segments and b"doomed" in b"".join(buffers):
            raise OSError(errno.EIO, "input/output error")
        return super().pwritev(fd, buffers, position)


@pytest.mark.parametrize("version", GENERATIONS)
@pytest.mark.parametrize("acks", [1, -1])
def test_a_write_that_fails_is_reported_for_its_partition_alone(version: int, acks: int) -> None:
    async def scene(node: Node, client: Client, version: int) -> ProduceResponse:
        batches: Batches = {("orders", 0): batch(b"a"), ("orders", 1): batch(b"doomed"), ("payments", 0): batch(b"b")}
        response: ProduceResponse = await ask(client, request(node, version, batches, acks=acks), version)
        return response

    response = same_both_ways(version, scene, files=FailingWrites)
    assert outcomes(response) == [(0, 0, 0), (1, ErrorCode.KAFKA_STORAGE_ERROR, -1), (0, 0, 0)]


@pytest.mark.parametrize("version", [7, 12])
def test_a_topic_that_is_deleted_before_the_flush_is_reported(version: int) -> None:
    async def scene(node: Node, client: Client, version: int) -> ProduceResponse:
        files, other = node.files, await node.connect()
        assert isinstance(files, GatedFiles)
        files.gate.clear()
        client.send(request(node, version, {("payments", 0): batch(b"a"), ("orders", 1): batch(b"b")}), version)
        await until(lambda: node.partition("payments").log.end_offset and files.waiting)
        other.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="payments")]), 6)
        await until(
            lambda: not isinstance(node.broker.services.partitions.get("payments", 0), type(node.partition("orders")))
        )
        await turns(3)
        files.gate.set()
        response: ProduceResponse = await answer(client)
        return response

    response = same_both_ways(version, scene)
    assert [code for _, code, _ in outcomes(response)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


@pytest.mark.parametrize("several", [False, True])
@in_loop
async def test_without_acknowledgement_an_error_closes_the_connection(several: bool) -> None:
    async with running(files=FailingWrites()) as node:
        client = await stage(node)
        batches: Batches = {("orders", 1): batch(b"doomed")}
        if several:
            batches["payments", 0] = batch(b"b")
        with only_the_quick_way():
            client.send(request(node, 7, batches, acks=0), 7)
            assert await client.closed() == b""
