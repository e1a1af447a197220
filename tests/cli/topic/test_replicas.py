"""`penstock topic alter --replication-factor` on a cluster of real brokers."""

import asyncio
import json

from click.testing import CliRunner, Result

from penstock.cli.main import penstock
from penstock.cli.topic.replicas import until_in_sync
from penstock.client.cluster.cluster import Cluster as Client
from penstock.client.metadata import TopicPartition
from penstock.testing import Cluster
from tests.waiting import in_loop


def call(cluster: Cluster, *args: str, exit_code: int = 0) -> Result:
    result = CliRunner(env={"PENSTOCK_BOOTSTRAP": cluster.bootstrap}).invoke(penstock, args)
    assert result.exit_code == exit_code, (result.stdout, result.stderr, result.exception)
    return result


def test_a_topic_gets_more_replicas_and_the_command_waits_until_they_are_in_sync() -> None:
    with Cluster(brokers=3, storage="memory") as cluster:
        call(cluster, "topic", "create", "orders", "-p", "2", "-r", "1")
        told = call(cluster, "topic", "alter", "orders", "--replication-factor", "3", "--set", "retention.ms=7").stdout
        assert told.splitlines() == [
            "changed 1 config of topic orders",
            "2 partitions of topic orders will have 3 replicas",
            "all 3 replicas of 2 partitions are in sync",
        ]
        shown = json.loads(call(cluster, "topic", "describe", "orders", "-O", "json").stdout)
        assert [sorted(each["isr"]) for each in shown["partitions"]] == [[0, 1, 2], [0, 1, 2]]
        again = call(cluster, "topic", "alter", "orders", "-r", "3").stdout
        assert again == "all partitions of topic orders have 3 replicas already\n"


def test_the_command_need_not_wait_and_says_how_to_look() -> None:
    with Cluster(brokers=2, storage="memory") as cluster:
        call(cluster, "topic", "create", "orders", "-p", "1", "-r", "1")
        told = call(cluster, "topic", "alter", "orders", "-r", "2", "--no-wait").stdout
        assert told.splitlines()[-1] == "see who is in sync with: penstock topic describe orders"
        cluster.until_in_sync()


def test_what_cannot_be_is_told_in_a_sentence() -> None:
    with Cluster(brokers=2, storage="memory") as cluster:
        call(cluster, "topic", "create", "orders", "-p", "1", "-r", "2")
        assert "2 are alive" in call(cluster, "topic", "alter", "orders", "-r", "3", exit_code=1).stderr
        assert "not removed yet" in call(cluster, "topic", "alter", "orders", "-r", "1", exit_code=1).stderr
        assert "orders" in call(cluster, "topic", "alter", "order", "-r", "1", exit_code=1).stderr


@in_loop
async def test_the_wait_lasts_while_a_replica_is_not_in_sync() -> None:
    async with Cluster(brokers=2, storage="memory") as cluster, Client(cluster.bootstrap) as client:
        await asyncio.to_thread(call, cluster, "topic", "create", "orders", "-p", "1", "-r", "1")
        first = cluster.leader_of("orders")
        assert first is not None
        targets = {TopicPartition("orders", 0): (first, 1 - first)}
        waiting = asyncio.create_task(until_in_sync(client, "orders", targets))
        done, _ = await asyncio.wait([waiting], timeout=0.01)
        assert not done
        await asyncio.to_thread(call, cluster, "topic", "alter", "orders", "-r", "2")
        await waiting
