"""What Kafka's console tools and kcat can do besides: topics, offsets, metadata, groups."""

import asyncio
import json
from pathlib import Path

import pytest

from penstock.client.admin.groups import GroupDescription, describe_groups
from penstock.protocol.records import NewRecord, build
from tests.clients.matrix import CLUSTER
from tests.clients.stage import Stage
from tools.clients.client import SECONDS, Session
from tools.clients.clients import JAVA_TOOLS, KCAT
from tools.clients.console import CONSUMER, GROUPS, REASSIGN, TOPICS, ConsoleTools
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


@pytest.mark.parametrize("where", [CLUSTER])
def test_kafka_reassign_partitions_adds_replicas_and_sees_that_they_are_in_sync(
    stage: Stage, where: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"

    async def reassign(session: Session, *arguments: str) -> str:
        assert isinstance(session, ConsoleTools)
        output, complaints = await session.run(REASSIGN, stage.bootstrap, *arguments)
        assert complaints == ""
        return output.decode()

    async def scenario(session: Session) -> None:
        topic = await stage.new_topic()
        await stage.append(topic, build([NewRecord(b"%d" % number, timestamp=number) for number in range(10)]))
        first = (await stage.cluster.topic(topic, fresh=True)).partition(0).leader
        replicas = [first, *(broker for broker in range(3) if broker != first)]
        target = {"topic": topic, "partition": 0, "replicas": replicas}
        plan.write_text(json.dumps({"version": 1, "partitions": [target]}))

        executed = await reassign(session, "--execute", "--reassignment-json-file", str(plan))
        assert "Successfully started partition reassignment" in executed
        async with asyncio.timeout(SECONDS):
            while "is completed" not in await reassign(session, "--verify", "--reassignment-json-file", str(plan)):
                await asyncio.sleep(0.05)
        assert "No partition reassignments found." in await reassign(session, "--list")
        now = (await stage.cluster.topic(topic, fresh=True)).partition(0)
        assert (list(now.replicas), sorted(now.isr)) == (replicas, [0, 1, 2])

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


def test_kafka_console_consumer_goes_on_in_its_group_and_kafka_consumer_groups_tells_how_far_it_is(
    stage: Stage,
) -> None:
    group = ["--group", "by-the-console"]

    async def scenario(session: Session) -> None:
        assert isinstance(session, ConsoleTools)
        topic = await stage.new_topic()
        await stage.append(topic, build([NewRecord(b"%d" % number, timestamp=number) for number in range(10)]))

        async def consume(count: int) -> list[bytes]:
            arguments = ["--topic", topic, *group, "--from-beginning", "--max-messages", str(count)]
            output, _ = await session.run(CONSUMER, stage.bootstrap, *arguments)
            return output.split()

        async def described() -> list[str]:
            output, _ = await session.run(GROUPS, stage.bootstrap, "--describe", *group)
            [line] = [line for line in output.decode().splitlines() if topic in line]
            return line.split()

        assert await consume(4) == [b"0", b"1", b"2", b"3"]
        # Group, topic, partition, committed offset, end, lag.
        assert (await described())[:6] == ["by-the-console", topic, "0", "4", "10", "6"]
        assert await consume(6) == [b"4", b"5", b"6", b"7", b"8", b"9"]

        output, _ = await session.run(GROUPS, stage.bootstrap, "--list", "--state")
        assert ["by-the-console", "Empty"] in [line.split() for line in output.decode().splitlines()]
        reset = ["--reset-offsets", *group, "--topic", topic, "--to-offset", "2", "--execute"]
        await session.run(GROUPS, stage.bootstrap, *reset)
        assert (await described())[3] == "2"
        await session.run(GROUPS, stage.bootstrap, "--delete", *group)
        output, _ = await session.run(GROUPS, stage.bootstrap, "--list")
        assert b"by-the-console" not in output.split()

    stage.run(stage.drive(JAVA_TOOLS, scenario))


def test_kafka_console_consumer_and_kcat_share_a_topic(stage: Stage) -> None:
    group, each = "console-and-kcat", 10

    async def scenario(session: Session) -> tuple[list[bytes], list[bytes]]:
        assert isinstance(session, ConsoleTools)
        topic = await stage.new_topic(partitions=2)
        java = ["--topic", topic, "--group", group, "--from-beginning", "--max-messages", str(each)]
        kcat = ["-G", group, topic, "-c", str(each), "-X", "auto.offset.reset=earliest"]
        kcat += ["-X", "partition.assignment.strategy=range"]
        async with asyncio.TaskGroup() as tasks:
            by_java = tasks.create_task(session.run(CONSUMER, stage.bootstrap, *java))
            by_kcat = tasks.create_task(run(["kcat", "-b", stage.bootstrap, *kcat], seconds=SECONDS))
            await _shared_by(stage, group, members=2)
            for partition in range(2):
                numbers = range(partition * each, (partition + 1) * each)
                await stage.append(topic, build([NewRecord(b"%d" % number) for number in numbers]), partition)
        return by_java.result()[0].split(), by_kcat.result().split()

    shares = stage.run(stage.drive(JAVA_TOOLS, scenario))

    assert [len(share) for share in shares] == [each, each]
    assert sorted(map(int, shares[0] + shares[1])) == list(range(2 * each))


async def _shared_by(stage: Stage, group: str, *, members: int) -> None:
    """Wait until each of so many members has a partition."""
    async with asyncio.timeout(SECONDS):
        while True:
            told = (await describe_groups(stage.cluster, [group]))[group]
            shares = told.members if isinstance(told, GroupDescription) and told.state == "Stable" else ()
            if len(shares) == members and all(member.partitions for member in shares):
                return
            await asyncio.sleep(0.05)
