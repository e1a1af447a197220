"""Records what real clients ask a broker for: `python -m tools.fuzz_frames.capture` (JDK, Maven, Node, kcat).

Every client produces, reads, is a member of a group and administers, as far as it can; a frame of each shape is kept in
tests/fixtures/requests/CLIENT.bin, with its length before it, as on the wire.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Any

from rich.console import Console

from penstock.broker.broker import Broker
from penstock.broker.config.typed import BrokerConfig
from penstock.broker.network.call import Call
from penstock.broker.network.listener import Dispatch
from penstock.client.admin import group_offsets, groups
from penstock.client.admin.brokers import describe_cluster
from penstock.client.admin.log_dirs import describe_log_dirs
from penstock.client.admin.offsets import LATEST, delete_records, list_offsets
from penstock.client.admin.topics import (
    NewTopic,
    add_partitions,
    create_topics,
    delete_topics,
    describe_topics,
    list_topics,
)
from penstock.client.cluster.cluster import Cluster
from penstock.client.metadata import TopicPartition
from penstock.client.producer.producer import Producer
from penstock.protocol.codec import decode, encode
from penstock.protocol.framing import frame
from penstock.protocol.schema import Message
from penstock.protocol.schemas.headers import RequestHeader
from tools.clients.client import SECONDS, At, Client, Start
from tools.clients.clients import CLIENTS, GROUP_CLIENTS, JAVA_TOOLS, OWN_GROUP_CLIENT
from tools.clients.console import GROUPS, TOPICS, ConsoleTools
from tools.clients.members import GroupClient, Host, Member, News
from tools.clients.processes import OutsideError
from tools.clients.records import canonical_records
from tools.fuzz_frames.corpus import REQUESTS, shape

LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
# Of one client, API and version.
MAX_SHAPES = 3
MAX_FRAME_BYTES = 5000
SESSION_MS = 10_000


class Recorder:
    """Keeps the requests of the client that runs at the time."""

    def __init__(self) -> None:
        self.client = ""
        self.kept: dict[str, dict[tuple[int, int], dict[object, bytes]]] = {}

    def intercept(self, dispatch: Dispatch) -> Dispatch:
        def record(call: Call) -> None:
            self._keep(call)
            dispatch(call)

        return record

    def _keep(self, call: Call) -> None:
        body = bytes(call.body)
        if not call.is_supported or len(body) > MAX_FRAME_BYTES:
            return
        shapes = self.kept.setdefault(self.client, {}).setdefault((call.api.key, call.version), {})
        message = decode(call.api.request, call.version, body) if _is_readable(call, body) else body
        kind = shape(message, call.version) if isinstance(message, Message) else "unreadable"
        if kind not in shapes and len(shapes) < MAX_SHAPES:
            header = RequestHeader(
                request_api_key=call.api.key,
                request_api_version=call.version,
                correlation_id=1,
                client_id=call.client_id,
            )
            shapes[kind] = encode(header, call.api.request_header_version(call.version)) + body

    def write(self) -> Mapping[str, int]:
        """Replace what was recorded before; returns the bytes of each client."""
        REQUESTS.mkdir(parents=True, exist_ok=True)
        for path in REQUESTS.glob("*.bin"):
            path.unlink()
        sizes = {}
        for client, kinds in self.kept.items():
            frames = [data for key in sorted(kinds) for data in sorted(kinds[key].values(), key=len)]
            stream = b"".join(chunk for data in frames for chunk in frame([data]))
            (REQUESTS / f"{client.replace(' ', '-')}.bin").write_bytes(stream)
            sizes[client] = len(stream)
        return sizes


def _is_readable(call: Call, body: bytes) -> bool:
    """librdkafka's Metadata for all topics is not what the tables say (see protocol/session.py)."""
    try:
        decode(call.api.request, call.version, body)
    except ValueError:
        return False
    return True


async def main() -> int:
    console = Console(highlight=False)
    recorder = Recorder()
    news = News()
    steps: list[tuple[str, Callable[[str], Awaitable[None]]]] = [
        *((client.name, partial(_messages, client)) for client in CLIENTS),
        *((client.name, partial(_members, client, news)) for client in (*GROUP_CLIENTS, OWN_GROUP_CLIENT)),
        (JAVA_TOOLS.name, _console_tools),
        ("confluent-kafka", partial(_in_thread, _administer_by_confluent_kafka)),
        ("kafka-python", partial(_in_thread, _administer_by_kafka_python)),
        ("aiokafka", _administer_by_aiokafka),
        ("penstock", _administer_by_ourselves),
    ]
    async with _serving(recorder) as bootstrap:
        for client, step in steps:
            recorder.client = client
            with console.status(f"Recording {client}"):
                try:
                    await step(bootstrap)
                except Exception as error:
                    # What it asked for until then is recorded all the same.
                    console.print(f"{client}: {type(error).__name__}: {error}", style="yellow", markup=False)
    for client, size in recorder.write().items():
        kinds = recorder.kept[client]
        console.print(f"{client}: {len(kinds)} APIs and versions, {sum(map(len, kinds.values()))} frames, {size} bytes")
    return 0


@asynccontextmanager
async def _serving(recorder: Recorder) -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory(prefix="penstock-capture-") as folder:
        configs = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": folder,
            "group.initial.rebalance.delay.ms": "0",
        }
        broker = Broker(BrokerConfig.parse(configs), intercept=recorder.intercept)
        await broker.start()
        try:
            host, port = broker.address
            yield f"{host}:{port}"
        finally:
            await broker.stop()


async def _messages(client: Client, bootstrap: str) -> None:
    records = client.sends(canonical_records())
    async with client.open() as session:
        for codec, acks in (("none", "all"), ("lz4", "1")):
            topic = f"{client.name.replace(' ', '-')}-{codec}"
            await session.produce(bootstrap, topic, records, codec=codec, acks=acks)
            for start in (Start(At.BEGINNING), Start(At.OFFSET, 0)):
                await session.fetch(bootstrap, topic, start, len(records))
            await session.fetch(bootstrap, topic, Start(At.TIMESTAMP, records[0].timestamp), 1)


async def _members(client: GroupClient, news: News, bootstrap: str) -> None:
    """Two members, a static one if the client can; they share a topic, commit, and leave one after the other."""
    topic = f"group-of-{client.name}"
    async with Cluster(bootstrap) as cluster, Producer(bootstrap) as producer:
        await create_topics(cluster, [NewTopic(name=topic, partitions=2)])
        for partition in range(2):
            await producer.send(topic, b"to be committed", partition=partition)
        async with Host.open(client, news) as host:
            join = partial(
                host.join, bootstrap=bootstrap, group=topic, topic=topic, assignor="range", session_ms=SESSION_MS
            )
            instance = "instance-1" if client.has_static_members else None
            first = await join("member-1", instance=instance)
            await news.until(lambda: len(first.confirmed) == 2, lambda: f"{first}")
            second = await join("member-2")
            await news.until(lambda: len(first.owns) == len(second.owns) == 1, lambda: f"{first} {second}")
            for member in (first, second):
                await member.leave()
                await news.until(partial(_is_gone, member), lambda: f"{first} {second}")


def _is_gone(member: Member) -> bool:
    return member.is_gone


async def _console_tools(bootstrap: str) -> None:
    async with JAVA_TOOLS.open() as session:
        assert isinstance(session, ConsoleTools)
        topic, group = ["--topic", "by-kafka-topics"], ["--group", "group-of-java"]
        tools = [
            (TOPICS, ["--create", *topic, "--partitions", "3", "--config", "cleanup.policy=compact"]),
            (TOPICS, ["--list"]),
            (TOPICS, ["--describe", *topic]),
            (TOPICS, ["--alter", *topic, "--partitions", "5"]),
            (TOPICS, ["--delete", *topic]),
            (GROUPS, ["--list", "--state"]),
            (GROUPS, ["--describe", *group]),
            (GROUPS, ["--describe", "--members", *group]),
            (GROUPS, ["--reset-offsets", *group, "--topic", "group-of-java", "--to-earliest", "--execute"]),
            (GROUPS, ["--delete-offsets", *group, "--topic", "group-of-java"]),
            (GROUPS, ["--delete", *group]),
            (LOG_DIRS, ["--describe"]),
        ]
        for tool, arguments in tools:
            try:
                await session.run(tool, bootstrap, *arguments)
            except OutsideError as error:
                Console(stderr=True).print(f"{tool} {arguments}: {str(error)[:300]}", markup=False)
        for time in ("earliest", "latest", "max-timestamp", "1000"):
            await session.offset(bootstrap, "group-of-kafkajs", time)


async def _in_thread(administer: Callable[[str], None], bootstrap: str) -> None:
    await asyncio.to_thread(administer, bootstrap)


def _administer_by_confluent_kafka(bootstrap: str) -> None:
    # Their hints say nothing about most of what is used here.
    ck: Any = import_module("confluent_kafka")
    ck_admin: Any = import_module("confluent_kafka.admin")

    client = ck_admin.AdminClient({"bootstrap.servers": bootstrap, "client.id": "confluent-kafka"})
    topic, group = "by-confluent-kafka", "group-of-confluent-kafka"
    place = ck.TopicPartition("confluent-kafka-none", 0, 1)
    resource = ck_admin.ConfigResource("topic", topic)
    entry = ck_admin.ConfigEntry("retention.ms", "1000", incremental_operation=ck_admin.AlterConfigOpType.SET)
    incremental = ck_admin.ConfigResource("topic", topic, incremental_configs=[entry])
    offsets = ck.ConsumerGroupTopicPartitions
    asked: list[Callable[[], Any]] = [
        lambda: client.create_topics([ck_admin.NewTopic(topic, 2, 1, config={"retention.ms": "5000"})]),
        lambda: client.create_partitions([ck_admin.NewPartitions(topic, 3)]),
        lambda: client.describe_configs([resource, ck_admin.ConfigResource("broker", "0")]),
        lambda: client.incremental_alter_configs([incremental]),
        lambda: client.alter_configs([ck_admin.ConfigResource("topic", topic, set_config={"retention.ms": "7"})]),
        lambda: {"": client.list_consumer_groups()},
        lambda: client.describe_consumer_groups([group]),
        lambda: {"": client.describe_cluster()},
        lambda: client.describe_topics(ck.TopicCollection([topic])),
        lambda: client.list_offsets({place: ck_admin.OffsetSpec.latest()}),
        lambda: client.delete_records([place]),
        lambda: client.list_consumer_group_offsets([offsets(group)]),
        lambda: client.alter_consumer_group_offsets(
            [offsets(group, [ck.TopicPartition("group-of-confluent-kafka", 0, 1)])]
        ),
        lambda: client.delete_consumer_groups([group]),
        lambda: client.delete_topics([topic]),
    ]
    _try_all(asked, settle=lambda futures: [future.result(SECONDS) for future in futures.values()])


def _administer_by_kafka_python(bootstrap: str) -> None:
    import kafka
    from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic

    client = kafka.KafkaAdminClient(bootstrap_servers=bootstrap, client_id="kafka-python")
    topic, group = "by-kafka-python", "group-of-kafka-python"
    place = kafka.TopicPartition("kafka-python-none", 0)
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "1000"})
    asked: list[Callable[[], Any]] = [
        lambda: client.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "5000"})]),
        lambda: client.create_partitions({topic: NewPartitions(3)}),
        lambda: client.describe_configs([resource]),
        lambda: client.alter_configs([resource]),
        lambda: client.reset_configs([resource]),
        client.list_groups,
        lambda: client.describe_groups([group]),
        client.describe_cluster,
        lambda: client.describe_topics([topic]),
        lambda: client.describe_topic_partitions([topic]),
        client.describe_log_dirs,
        lambda: client.list_partition_offsets({place: -1}),
        lambda: client.delete_records({place: 1}),
        lambda: client.list_group_offsets(group),
        lambda: client.alter_group_offsets(group, {place: kafka.OffsetAndMetadata(1, "", -1)}),
        lambda: client.delete_group_offsets(group, [place]),
        lambda: client.remove_group_members(group, []),
        lambda: client.delete_groups([group]),
        lambda: client.delete_topics([topic]),
    ]
    _try_all(asked)
    client.close()


async def _administer_by_aiokafka(bootstrap: str) -> None:
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap, client_id="aiokafka")
    await client.start()
    topic, group = "by-aiokafka", "group-of-aiokafka"
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "1000"})
    asked: list[Callable[[], Awaitable[Any]]] = [
        lambda: client.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "5000"})]),
        lambda: client.create_partitions({topic: NewPartitions(3)}),
        lambda: client.describe_configs([resource]),
        lambda: client.alter_configs([resource]),
        client.list_consumer_groups,
        lambda: client.describe_consumer_groups([group]),
        client.describe_cluster,
        client.list_topics,
        lambda: client.describe_topics([topic]),
        lambda: client.list_consumer_group_offsets(group),
        lambda: client.find_coordinator(group),
        lambda: client.delete_topics([topic]),
    ]
    await _await_all(asked)
    await client.close()


async def _administer_by_ourselves(bootstrap: str) -> None:
    topic, group = "by-penstock", "group-of-penstock"
    place = TopicPartition("group-of-penstock", 0)
    async with Cluster(bootstrap) as cluster, Producer(bootstrap) as producer:
        await _await_all(
            [
                lambda: create_topics(cluster, [NewTopic(name=topic, partitions=2)]),
                lambda: create_topics(cluster, [NewTopic(name="", assignment=[[0]])], validate_only=True),
                lambda: producer.send(topic, b"value", key=b"key"),
                lambda: list_topics(cluster),
                lambda: describe_topics(cluster, [topic]),
                lambda: add_partitions(cluster, {topic: 3}),
                lambda: list_offsets(cluster, {place: LATEST}),
                lambda: delete_records(cluster, {place: 1}),
                lambda: describe_cluster(cluster),
                lambda: describe_log_dirs(cluster),
                lambda: groups.list_groups(cluster, states=["Empty"]),
                lambda: groups.describe_groups(cluster, [group]),
                lambda: group_offsets.group_offsets(cluster, [group]),
                lambda: group_offsets.delete_offsets(cluster, group, [place]),
                lambda: groups.delete_groups(cluster, [group]),
                lambda: delete_topics(cluster, [topic]),
            ]
        )


def _try_all(asked: list[Callable[[], Any]], settle: Callable[[Any], Any] = lambda outcome: outcome) -> None:
    """What a client cannot do, or a broker refuses, was asked for all the same."""
    for ask in asked:
        try:
            settle(ask())
        except Exception as error:
            Console(stderr=True).print(f"{type(error).__name__}: {str(error)[:200]}", markup=False)


async def _await_all(asked: list[Callable[[], Awaitable[Any]]]) -> None:
    for ask in asked:
        try:
            async with asyncio.timeout(SECONDS):
                await ask()
        except Exception as error:
            Console(stderr=True).print(f"{type(error).__name__}: {str(error)[:200]}", markup=False)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
