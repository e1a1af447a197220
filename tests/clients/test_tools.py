"""What Kafka's console tools and kcat can do besides: topics, offsets, metadata."""

import json

from penstock.protocol.records import NewRecord, build
from tests.clients.stage import Stage
from tools.clients.client import SECONDS, Session
from tools.clients.clients import JAVA_TOOLS, KCAT
from tools.clients.console import TOPICS, ConsoleTools
from tools.clients.processes import run


def test_kafka_topics_creates_shows_changes_and_deletes_a_topic(stage: Stage) -> None:
    async def topics(session: Session, *arguments: str) -> str:
        assert isinstance(session, ConsoleTools)
        output, complaints = await session.run(TOPICS, stage.bootstrap, *arguments)
        assert complaints == ""
        return output.decode()

    async def scenario(session: Session) -> None:
        name = ["--topic", "by-kafka-topics"]
        created = await topics(session, "--create", *name, "--partitions", "3", "--config", "cleanup.policy=compact")
        assert "Created topic by-kafka-topics." in created
        assert "by-kafka-topics" in (await topics(session, "--list")).split()

        await topics(session, "--alter", *name, "--partitions", "5")
        described = await topics(session, "--describe", *name)
        assert "PartitionCount: 5" in described
        assert "ReplicationFactor: 1" in described
        assert "cleanup.policy=compact" in described
        assert described.count("Leader: 0\tReplicas: 0\tIsr: 0") == 5

        await topics(session, "--delete", *name)
        assert "by-kafka-topics" not in (await topics(session, "--list")).split()

    stage.run(stage.drive(JAVA_TOOLS, scenario))


def test_kafka_get_offsets_tells_both_ends_and_the_youngest(stage: Stage) -> None:
    async def scenario(session: Session) -> dict[str, int]:
        assert isinstance(session, ConsoleTools)
        topic = await stage.new_topic()
        await stage.append(topic, build([NewRecord(b"", timestamp=time) for time in (1000, 3000, 2000)]))
        times = ("earliest", "latest", "max-timestamp", "1000", "1001")
        return {time: await session.offset(stage.bootstrap, topic, time) for time in times}

    offsets = stage.run(stage.drive(JAVA_TOOLS, scenario))

    assert offsets == {"earliest": 0, "latest": 3, "max-timestamp": 1, "1000": 0, "1001": 1}


def test_kcat_lists_brokers_and_partitions(stage: Stage) -> None:
    async def scenario(_: Session) -> tuple[str, bytes]:
        topic = await stage.new_topic()
        return topic, await run(["kcat", "-L", "-J", "-b", stage.bootstrap, "-t", topic], seconds=SECONDS)

    topic, told = stage.run(stage.drive(KCAT, scenario))
    listed = json.loads(told)

    assert listed["brokers"] == [{"id": 0, "name": stage.bootstrap}]
    [partition] = listed["topics"][0]["partitions"]
    assert listed["topics"][0]["topic"] == topic
    assert partition == {"partition": 0, "leader": 0, "replicas": [{"id": 0}], "isrs": [{"id": 0}]}
