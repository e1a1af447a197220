"""Small requests that ask for much: the same thing over and over, or everything there is."""

import asyncio
import struct

from penstock.broker.handlers.metadata import MAX_CREATED_TOPICS
from penstock.protocol.batch import HEADER, LENGTH_OVERHEAD, stamp_crc
from penstock.protocol.compression import Codec, compress
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.protocol.schemas.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.protocol.schemas.groups import DescribeGroupsRequest
from penstock.protocol.schemas.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from penstock.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.schemas.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.protocol.schemas.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
)
from penstock.protocol.varint import varint
from tests.broker.harness import NOW_MS, Client, batch, in_loop
from tests.broker.members import AT_ONCE, Member, commit_request, with_groups
from tests.hostile.stage import HONEST_TOPIC, beside_an_honest_client, scale, skim

MIB = 1 << 20
# An answer to the honest client takes about a thousand calls, a slice of long work a few thousand.
TURN_CALLS = 8_000


def ready(client: Client, *requests: tuple[Message, int]) -> bytes:
    """The bytes of requests: what it costs the attacker to write them is not to be counted."""
    return b"".join(
        bytes(chunk) for message, version in requests for chunk in client._session.send(message, version)[1]
    )


@in_loop
async def test_metadata_of_one_wide_topic_thousands_of_times() -> None:
    async with beside_an_honest_client() as stage:
        attacker = await stage.attacker()
        await attacker.create_topic("wide", scale(500, soak=10_000))
        topics = [MetadataRequestTopic(name="wide")] * scale(2000, soak=20_000)
        request = ready(attacker, (MetadataRequest(topics=topics), 12))
        async with stage.measured(memory=True) as cost:
            attacker.send_bytes(request)
            size = await skim(attacker)
        assert size < scale(500, soak=10_000) * 60
        assert cost.longest_turn_calls < TURN_CALLS
        assert cost.peak_bytes < 64 * len(request) + 10 * size + MIB


@in_loop
async def test_all_topics_for_many_clients_at_once() -> None:
    async with beside_an_honest_client() as stage:
        partitions, clients = scale(500, soak=5000), scale(15, soak=50)
        attackers = [await stage.attacker() for _ in range(clients)]
        await attackers[0].create_topic("wide", partitions)
        requests = [(attacker, ready(attacker, (MetadataRequest(topics=None), 12))) for attacker in attackers]
        async with stage.measured() as cost:
            for attacker, request in requests:
                attacker.send_bytes(request)
            sizes = await asyncio.gather(*map(skim, attackers))
        assert min(sizes) > partitions * 20
        # They come in one turn, and each has its beginning there; not one slice each in the turns after it.
        assert cost.longest_turn_calls < TURN_CALLS + 400 * clients
        assert cost.turns > 20


@in_loop
async def test_metadata_that_would_create_thousands_of_topics() -> None:
    async with beside_an_honest_client() as stage:
        attacker = await stage.attacker()
        names = [MetadataRequestTopic(name=f"t{number}") for number in range(scale(1000, soak=30_000))]
        async with stage.measured() as cost:
            response = await attacker.ask(MetadataRequest(topics=names), 12)
        created = [topic for topic in response.topics if topic.error_code == ErrorCode.NONE]
        assert len(created) == MAX_CREATED_TOPICS
        assert len(stage.node.broker.services.image.topics) == MAX_CREATED_TOPICS + 1
        assert cost.turns > 20


@in_loop
async def test_a_topic_of_absurdly_many_partitions() -> None:
    async with beside_an_honest_client() as stage:
        attacker = await stage.attacker()
        topics = [CreatableTopic(name="absurd", num_partitions=(1 << 31) - 1, replication_factor=1)]
        async with stage.measured(memory=True) as cost:
            [refused] = (await attacker.ask(CreateTopicsRequest(topics=topics), 7)).topics
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert cost.peak_bytes < MIB
        assert cost.longest_turn_calls < TURN_CALLS


@in_loop
async def test_a_topic_of_as_many_partitions_as_there_may_be_comes_and_goes_in_slices() -> None:
    async with beside_an_honest_client() as stage:
        attacker = await stage.attacker()
        partitions = scale(400, soak=10_000)
        topics = [CreatableTopic(name="wide", num_partitions=partitions, replication_factor=1)]
        async with stage.measured() as cost:
            [created] = (await attacker.ask(CreateTopicsRequest(topics=topics), 7)).topics
            [deleted] = (await attacker.ask(DeleteTopicsRequest(topic_names=["wide"], timeout_ms=1000), 5)).responses
        assert (created.error_code, deleted.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
        # A step or two are done for all of them at once, but nothing that touches the disk.
        assert cost.longest_turn_calls < TURN_CALLS + 10 * partitions
        assert cost.turns > 20


@in_loop
async def test_one_large_group_described_hundreds_of_times() -> None:
    async with beside_an_honest_client(AT_ONCE) as stage:
        member = Member(await with_groups(stage.node))
        await member.join()
        await member.sync({member.member_id: bytes(500_000)})
        attacker = await stage.attacker()
        async with stage.measured(memory=True) as cost:
            attacker.send(DescribeGroupsRequest(groups=["g"] * 400), 6)
            size = await skim(attacker)
        assert 500_000 < size < 501_000
        assert cost.peak_bytes < 4 * MIB


@in_loop
async def test_all_offsets_of_a_group_hundreds_of_times() -> None:
    async with beside_an_honest_client() as stage:
        attacker = await with_groups(stage.node)
        await attacker.create_topic("t", 500)
        await attacker.ask(commit_request("g", {("t", number): 1 for number in range(500)}, metadata="x" * 1000), 9)
        groups = [OffsetFetchRequestGroup(group_id="g", topics=None)] * 100
        request = ready(attacker, (OffsetFetchRequest(groups=groups), 9))
        async with stage.measured(memory=True) as cost:
            attacker.send_bytes(request)
            size = await skim(attacker)
        assert 500_000 < size < 600_000
        assert cost.peak_bytes < 4 * MIB
        assert cost.longest_turn_calls < TURN_CALLS


@in_loop
async def test_offsets_of_one_partition_a_hundred_thousand_times() -> None:
    async with beside_an_honest_client() as stage:
        attacker = await with_groups(stage.node)
        indexes = [7] * 100_000
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=indexes)] * 3
        groups = [OffsetFetchRequestGroup(group_id="g", topics=topics)]
        request = ready(attacker, (OffsetFetchRequest(groups=groups), 9))
        async with stage.measured() as cost:
            attacker.send_bytes(request)
            assert await skim(attacker) < 200
        assert cost.longest_turn_calls < TURN_CALLS


@in_loop
async def test_offsets_of_thousands_of_partitions_that_do_not_exist() -> None:
    count = scale(8000, soak=300_000)
    async with beside_an_honest_client() as stage:
        attacker = await with_groups(stage.node)
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=range(count))]
        groups = [OffsetFetchRequestGroup(group_id="g", topics=topics)]
        request = ready(attacker, (OffsetFetchRequest(groups=groups), 9))
        async with stage.measured() as cost:
            attacker.send_bytes(request)
            assert await skim(attacker) > 15 * count
        assert cost.longest_turn_calls < TURN_CALLS


@in_loop
async def test_configs_of_one_topic_thousands_of_times() -> None:
    async with beside_an_honest_client() as stage:
        attacker = await stage.attacker()
        resource = DescribeConfigsResource(
            resource_type=2, resource_name=HONEST_TOPIC, configuration_keys=["retention.ms"] * 50
        )
        broker = DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=None)
        resources = [resource, broker] * 500
        message = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
        request = ready(attacker, (message, 4))
        async with stage.measured() as cost:
            attacker.send_bytes(request)
            assert await skim(attacker) < 200_000
        assert cost.longest_turn_calls < TURN_CALLS


def bomb(records: int) -> bytearray:
    """A small batch of very many records, of which only the last is as late as `NOW_MS + 1`."""
    parts = []
    for number in range(records):
        # Attributes, timestamp, offset, no key, an empty value, no headers.
        body = b"\0" + varint(int(number == records - 1)) + varint(number) + b"\x01\x00\x00"
        parts.append(varint(len(body)) + body)
    data = batch(b"")[: HEADER.size] + compress(Codec.ZSTD, b"".join(parts))
    struct.pack_into(">i", data, 8, len(data) - LENGTH_OVERHEAD)
    # Attributes, last offset, first and last timestamp, producer, number of records.
    struct.pack_into(">hiqqqhii", data, 21, Codec.ZSTD, records - 1, NOW_MS, NOW_MS + 1, -1, -1, -1, records)
    stamp_crc(data)
    return data


async def list_offsets(client: Client, topic: str, times: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Partition, error and offset, for partitions and times."""
    partitions = [ListOffsetsPartition(partition_index=partition, timestamp=time) for partition, time in times]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=partitions)])
    [found] = (await client.ask(request, 11)).topics
    return [(item.partition_index, item.error_code, item.offset) for item in found.partitions]


@in_loop
async def test_times_in_batches_that_decompress_to_very_much() -> None:
    records = scale(20_000, soak=1_000_000)
    async with beside_an_honest_client() as stage:
        attacker = await stage.attacker()
        await attacker.create_topic("bombs", 3)
        for partition in range(3):
            produced = await attacker.produce("bombs", bomb(records), partition=partition)
            assert produced.error_code == ErrorCode.NONE
        async with stage.measured() as cost:
            twice = await list_offsets(attacker, "bombs", [(0, NOW_MS + 1)] * 200)
            assert twice == [(0, ErrorCode.INVALID_REQUEST, -1)]
            once = await list_offsets(attacker, "bombs", [(partition, NOW_MS + 1) for partition in range(3)])
            assert once == [(partition, ErrorCode.NONE, records - 1) for partition in range(3)]
        # The records are walked through elsewhere: on the loop each would be several calls.
        assert cost.longest_turn_calls < TURN_CALLS
        assert cost.turns > 5


@in_loop
async def test_a_long_request_of_tiny_things() -> None:
    count = scale(15_000, soak=300_000)
    async with beside_an_honest_client() as stage:
        attacker = await stage.attacker()
        log_dirs = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="", partitions=[])] * count)
        metadata = MetadataRequest(topics=[MetadataRequestTopic(name="/")] * count)
        request = ready(attacker, (log_dirs, 4), (metadata, 12))
        async with stage.measured() as cost:
            attacker.send_bytes(request)
            assert await skim(attacker) < 200
            assert await skim(attacker) < 200
        assert cost.longest_turn_calls < TURN_CALLS
        assert cost.turns > 5


@in_loop
async def test_records_of_one_partition_deleted_thousands_of_times() -> None:
    async with beside_an_honest_client() as stage:
        attacker = await stage.attacker()
        await attacker.create_topic("t")
        await attacker.produce("t", batch(*[b"x"] * 100))
        partitions = [DeleteRecordsPartition(partition_index=0, offset=number % 100) for number in range(5000)]
        topics = [DeleteRecordsTopic(name="t", partitions=partitions)]
        request = ready(attacker, (DeleteRecordsRequest(topics=topics), 2))
        async with stage.measured() as cost:
            attacker.send_bytes(request)
            assert await skim(attacker) < 100
        assert stage.node.partition("t").log.start_offset == 99
        assert cost.longest_turn_calls < TURN_CALLS
