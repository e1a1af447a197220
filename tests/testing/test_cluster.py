"""The cluster object with real clients: brokers that die, come back and are cut off, and what is left in the end."""

import asyncio
import tempfile
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Literal

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.broker.config.values import ConfigError
from penstock.client import Consumer, NewMessage, Producer
from penstock.client.sync import Admin
from penstock.client.sync import Producer as BlockingProducer
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import DescribeGroupsRequest, FindCoordinatorRequest
from penstock.testing import Cluster
from tests.broker.harness import Client, in_loop
from tests.broker.members import Member
from tests.testing.clients import PATIENCE_SECONDS, consume, others, produce

SESSION = "1 s"
"""After this time the others see that a broker was killed."""


def in_partition(cluster: Cluster, topic: str, led_by: int) -> int:
    """The first partition of a topic that a broker leads."""
    return next(number for number in range(100) if cluster.leader_of(topic, number) == led_by)


def send(bootstrap: str, topic: str, partition: int, value: bytes) -> int:
    """Returns the offset that the message got."""
    with BlockingProducer(bootstrap) as producer:
        return producer.send(topic, value, partition=partition).result().offset


def connected(cluster: Cluster, number: int, *, to: int) -> bool:
    """Whether a broker has a connection to another one."""
    connections = list(cluster.brokers[to]._production().listener.connections)
    return any(each.broker is not None and each.broker.node_id == number for each in connections if each.is_open)


def create_by(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """As confluent-kafka does: it sends the request to whichever broker it takes for the controller."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [created] = admin.create_topics([NewTopic(topic, partitions)]).values()
    created.result(PATIENCE_SECONDS)


# Any broker for any client


def test_clients_of_any_broker_reach_the_partitions_of_all() -> None:
    with Cluster(storage="memory") as cluster:
        assert cluster.controller == 0
        cluster.create_topic("orders", partitions=6)
        assert {cluster.leader_of("orders", number) for number in range(6)} == {0, 1, 2}
        values = [b"%d" % number for number in range(60)]
        for number, node in enumerate(cluster.brokers):
            produce(node.bootstrap, "orders", *values[number * 20 : number * 20 + 20])
        for number, node in enumerate(cluster.brokers):
            assert sorted(consume(node.bootstrap, "orders", 60, f"group-{number}")) == sorted(values)


@in_loop
async def test_the_sdk_produces_and_consumes_by_a_broker_that_is_not_the_controller() -> None:
    async with Cluster(storage="memory") as cluster:
        cluster.create_topic("orders", partitions=6)
        bootstrap = cluster.brokers[2].bootstrap
        async with Producer(bootstrap) as producer:
            messages = [NewMessage(b"%d" % number, partition=number % 6) for number in range(60)]
            await producer.send_batch("orders", messages)
        async with Consumer(
            "orders", bootstrap_servers=bootstrap, group_id="readers", auto_offset_reset="earliest"
        ) as consumer:
            found = [await anext(consumer) for _ in range(60)]
        assert {message.value for message in found} == {b"%d" % number for number in range(60)}


def test_a_topic_that_is_created_by_any_broker_is_there_at_once_for_the_client_that_asked() -> None:
    with Cluster(storage="memory") as cluster:
        for number, node in enumerate(cluster.brokers):
            node.create_topic(f"asked-{number}", partitions=3)
            with Admin(node.bootstrap) as admin:
                assert len(admin.end_offsets(f"asked-{number}")) == 3
        create_by(cluster.brokers[1].bootstrap, "by-confluent")
        assert produce(cluster.brokers[2].bootstrap, "by-confluent", b"a") == [0]


def test_a_topic_is_created_when_all_brokers_know_it() -> None:
    with Cluster(storage="memory", zookeeper_session_timeout_ms=3_600_000) as cluster, ThreadPoolExecutor(1) as threads:
        late = cluster._stages[2]
        assert late.store is not None
        late.host.call(late.store.cut)
        creating = threads.submit(cluster.create_topic, "orders")
        # It would be over by then if it did not wait.
        assert not wait([creating], timeout=0.3).done
        assert "orders" in cluster.brokers[1]._production().services.image.topics
        late.host.call(late.store.mend)
        assert creating.result() == "orders"
        assert "orders" in cluster.brokers[2]._production().services.image.topics


def test_a_topic_that_a_producer_asks_about_is_created_by_the_controller() -> None:
    with Cluster(storage="memory", num_partitions=3) as cluster:
        produce(cluster.brokers[2].bootstrap, "made-of-itself", b"a")
        cluster.until_leaders()
        assert {cluster.leader_of("made-of-itself", number) for number in range(3)} == {0, 1, 2}


# Brokers that go and come back


def test_when_the_controller_is_killed_another_takes_over_and_creates_topics() -> None:
    with Cluster(storage="memory") as cluster:
        assert cluster.controller == 0
        cluster.kill(0)
        cluster.clock.advance(SESSION)
        assert cluster.until_controller() in (1, 2)
        create_by(",".join(node.bootstrap for node in cluster.brokers[1:]), "orders", 2)
        cluster.until_leaders()
        assert {cluster.leader_of("orders", number) for number in range(2)} == {1, 2}
        assert sorted(produce(cluster.brokers[1].bootstrap, "orders", b"a")) == [0]


def test_a_controller_that_is_back_before_anybody_noticed_goes_on() -> None:
    with Cluster(storage="memory") as cluster:
        cluster.kill(0)
        cluster.start(0)
        cluster.until_leaders()
        cluster.create_topic("orders", partitions=3)
        cluster.until_leaders()
        assert {cluster.leader_of("orders", number) for number in range(3)} == {0, 1, 2}


@pytest.mark.parametrize("storage", ["folder", "memory"])
def test_partitions_with_one_replica_wait_for_a_killed_broker_while_the_others_are_served(
    storage: Literal["folder", "memory"],
) -> None:
    with Cluster(storage=storage, default_replication_factor=1) as cluster:
        cluster.create_topic("orders", partitions=3)
        lost = in_partition(cluster, "orders", led_by=1)
        with Admin(cluster.bootstrap) as admin:
            for number in range(3):
                send(cluster.bootstrap, "orders", number, b"before")
            cluster.kill(1)
            cluster.clock.advance(SESSION)
            cluster.until_leaders()
            assert cluster.leader_of("orders", lost) is None
            for number in {0, 1, 2} - {lost}:
                assert send(cluster.bootstrap, "orders", number, b"meanwhile") == 1
            cluster.start(1)
            cluster.until_leaders()
            assert cluster.leader_of("orders", lost) == 1
            assert send(cluster.bootstrap, "orders", lost, b"after") == 1
            assert set(admin.end_offsets("orders").values()) == {2}


@pytest.mark.parametrize("storage", ["folder", "memory"])
def test_partitions_have_three_replicas_and_others_lead_those_of_a_killed_broker(
    storage: Literal["folder", "memory"],
) -> None:
    with Cluster(storage=storage) as cluster:
        cluster.create_topic("orders", partitions=3)
        cluster.until_in_sync()
        for number in range(3):
            send(cluster.bootstrap, "orders", number, b"before")
        lost = in_partition(cluster, "orders", led_by=1)
        cluster.kill(1)
        cluster.clock.advance(SESSION)
        cluster.until_leaders()
        assert cluster.leader_of("orders", lost) in (0, 2)
        for number in range(3):
            assert send(cluster.bootstrap, "orders", number, b"meanwhile") == 1
        cluster.start(1)
        cluster.until_in_sync()
        assert sorted(consume(cluster.bootstrap, "orders", 6)) == [b"before"] * 3 + [b"meanwhile"] * 3


def test_a_cluster_of_two_brokers_gives_partitions_two_replicas() -> None:
    with Cluster(brokers=2, storage="memory") as cluster, Admin(cluster.bootstrap) as admin:
        cluster.create_topic("orders")
        assert len(admin.topic("orders").partitions[0].replicas) == 2


def test_a_broker_that_stops_hands_over_before_it_goes() -> None:
    with Cluster(storage="memory", default_replication_factor=1) as cluster:
        cluster.create_topic("orders", partitions=3)
        cluster.stop(0)
        # No session has to pass.
        cluster.until_leaders()
        assert cluster.controller in (1, 2)
        assert [cluster.leader_of("orders", number) for number in range(3)].count(None) == 1
        cluster.start(0)
        cluster.until_leaders()
        assert {cluster.leader_of("orders", number) for number in range(3)} == {0, 1, 2}


def test_a_restart_of_one_or_of_all_keeps_ports_and_records() -> None:
    with Cluster(storage="memory") as cluster:
        cluster.create_topic("orders", partitions=3)
        before = cluster.bootstrap
        for number in range(3):
            send(before, "orders", number, b"a")
        cluster.restart(1)
        cluster.restart()
        cluster.until_leaders()
        assert cluster.bootstrap == before
        assert sorted(consume(before, "orders", 3)) == [b"a"] * 3


def test_when_all_are_killed_nothing_acknowledged_is_lost() -> None:
    with Cluster() as cluster:
        cluster.create_topic("orders", partitions=3)
        for number in range(3):
            send(cluster.bootstrap, "orders", number, b"a")
        cluster.kill()
        assert not any(node.is_running for node in cluster.brokers)
        cluster.start()
        cluster.until_leaders()
        assert sorted(consume(cluster.bootstrap, "orders", 3)) == [b"a"] * 3


def test_a_group_moves_with_its_coordinator_and_keeps_its_offsets() -> None:
    with Cluster(storage="memory", offsets_topic_num_partitions=1) as cluster:
        cluster.create_topic("orders", partitions=3)
        produce(cluster.bootstrap, "orders", *[b"a"] * 30)
        assert consume(cluster.bootstrap, "orders", 30, "readers") == [b"a"] * 30
        coordinator = cluster.leader_of("__consumer_offsets", 0)
        assert coordinator is not None
        cluster.kill(coordinator)
        cluster.clock.advance(SESSION)
        cluster.until_leaders()
        assert cluster.leader_of("__consumer_offsets", 0) not in (None, coordinator)
        produce(cluster.bootstrap, "orders", b"b")
        assert consume(cluster.bootstrap, "orders", 1, "readers") == [b"b"]


def test_groups_are_coordinated_by_all_brokers() -> None:
    with Cluster(storage="memory") as cluster:
        cluster.create_topic("orders", partitions=3)
        produce(cluster.bootstrap, "orders", b"a")
        for number in range(6):
            assert consume(cluster.brokers[number % 3].bootstrap, "orders", 1, f"group-{number}") == [b"a"]
        cluster.until_leaders()
        assert {cluster.leader_of("__consumer_offsets", number) for number in range(3)} == {0, 1, 2}


# Cuts


def test_a_broker_that_is_cut_off_from_the_controller_serves_and_asks_again_when_it_is_mended() -> None:
    with Cluster(storage="memory", default_replication_factor=1) as cluster:
        cluster.create_topic("orders", partitions=3)
        cluster.brokers[2].create_topic("before-the-cut")
        assert connected(cluster, 2, to=0)
        cluster.cut(0, 2)
        assert not connected(cluster, 2, to=0)
        assert send(cluster.brokers[2].bootstrap, "orders", in_partition(cluster, "orders", led_by=2), b"a") == 0
        cluster.brokers[1].create_topic("by-another")
        cluster.until_leaders()
        with ThreadPoolExecutor(1) as threads:
            creating = threads.submit(cluster.brokers[2].create_topic, "refused")
            while not creating.done():
                # It looks for a way to the controller for some seconds, by the cluster's clock.
                cluster.clock.advance("1 s")
            with pytest.raises(ValueError, match="cut off"):
                creating.result()
        cluster.mend()
        cluster.brokers[2].create_topic("mended")
        with pytest.raises(ValueError, match="no partition 0 of topic 'refused'"):
            cluster.leader_of("refused")


def test_a_controller_without_contact_to_the_metadata_resigns_and_is_one_of_many_when_it_is_back() -> None:
    with Cluster(storage="memory", default_replication_factor=1) as cluster:
        cluster.create_topic("orders", partitions=3)
        cluster.cut_from_metadata(0)
        cluster.clock.advance(SESSION)
        assert cluster.until_controller() in (1, 2)
        cluster.until_leaders()
        assert [cluster.leader_of("orders", number) for number in range(3)].count(None) == 1
        cluster.create_topic("meanwhile")
        cluster.mend()
        cluster.until_leaders()
        assert cluster.controller in (1, 2)
        assert {cluster.leader_of("orders", number) for number in range(3)} == {0, 1, 2}


def test_a_cut_is_over_when_the_broker_is_started_again() -> None:
    with Cluster(storage="memory") as cluster:
        cluster.cut_from_metadata(1)
        cluster.kill(1)
        with pytest.raises(RuntimeError, match="broker 1 is not running"):
            cluster.cut_from_metadata(1)
        cluster.start(1)
        cluster.until_leaders()
        cluster.mend()


# Time


def test_all_brokers_have_one_clock() -> None:
    # Brokers look for old records only because of the leap.
    with Cluster(storage="memory", log_retention_check_interval_ms=86_400_000) as cluster:
        cluster.create_topic("orders", partitions=3, retention_ms=3_600_000)
        for number in range(3):
            send(cluster.bootstrap, "orders", number, b"a")
        cluster.clock.advance("2 h")
        with Admin(cluster.bootstrap) as admin:
            assert set(admin.beginning_offsets("orders").values()) == {1}


@in_loop
async def test_groups_on_all_brokers_meet_their_deadlines_in_a_leap() -> None:
    async with Cluster(storage="memory") as cluster:
        groups = {f"group-{number}": await coordinator_of(cluster, f"group-{number}") for number in range(6)}
        assert set(groups.values()) == {0, 1, 2}
        for group, coordinator in groups.items():
            client = await Client.open(cluster.brokers[coordinator].address)
            member = Member(client, group)
            await member.get_id()
            member.take_joined(await client.ask(member.join_request(session_ms=10_000), 9))
            await member.sync({member.member_id: b"all"})
            client.close()
        assert [await state_of(cluster, *each) for each in groups.items()] == [("Stable", 1)] * 6
        cluster.clock.advance("11 s")
        assert [await state_of(cluster, *each) for each in groups.items()] == [("Empty", 0)] * 6


async def coordinator_of(cluster: Cluster, group: str) -> int:
    client = await Client.open(cluster.brokers[0].address)
    try:
        while True:
            response = await client.ask(FindCoordinatorRequest(coordinator_keys=[group]), 6)
            [found] = response.coordinators
            if found.error_code == ErrorCode.NONE:
                return int(found.node_id)
    finally:
        client.close()


async def state_of(cluster: Cluster, group: str, coordinator: int) -> tuple[str, int]:
    client = await Client.open(cluster.brokers[coordinator].address)
    [found] = (await client.ask(DescribeGroupsRequest(groups=[group]), 5)).groups
    client.close()
    return found.group_state, len(found.members)


# What it refuses, and what is left


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ValueError, match="one broker or more, not 0"):
        Cluster(brokers=0)
    with pytest.raises(ValueError, match='"folder" or "memory"'):
        Cluster(storage="tape")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"a node\.id of its own"):
        Cluster(node_id=3)
    with pytest.raises(ConfigError, match=r"did you mean num\.partitions"):
        Cluster(num_partition=3).start()
    cluster = Cluster(brokers=2, storage="memory")
    for call in (cluster.stop, cluster.mend, cluster.reset, cluster.until_leaders, lambda: cluster.kill(0)):
        with pytest.raises(RuntimeError, match="the cluster is not running"):
            call()
    with pytest.raises(RuntimeError, match="not running"):
        cluster.brokers[0].start()
    with cluster:
        with pytest.raises(ValueError, match="there is no broker 2: the cluster has 0 to 1"):
            cluster.kill(2)
        with pytest.raises(ValueError, match="cut off from itself"):
            cluster.cut(1, 1)
        with pytest.raises(ValueError, match="one partition or more"):
            cluster.create_topic("orders", 0)
        cluster.kill()
        with pytest.raises(RuntimeError, match="no broker"):
            cluster.create_topic("orders")
        with pytest.raises(RuntimeError, match="no broker"):
            cluster.leader_of("orders")
        assert cluster.controller is None
        with pytest.raises(TimeoutError, match="there is no controller"):
            cluster.until_controller("1 ms")


def test_waiting_in_vain_says_what_is_missing() -> None:
    with Cluster(storage="memory", zookeeper_session_timeout_ms=3_600_000) as cluster:
        cluster.create_topic("orders", partitions=3)
        cluster.kill(2)
        with pytest.raises(TimeoutError, match="broker 2 counts as alive"):
            cluster.until_leaders("1 ms")


@pytest.mark.parametrize("storage", ["folder", "memory"])
def test_nothing_is_left_after_close(
    storage: Literal["folder", "memory"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    threads = others()
    with Cluster(storage=storage) as cluster:
        assert len(list(tmp_path.iterdir())) == (3 if storage == "folder" else 0)
        cluster.create_topic("orders", 3)
        cluster.cut(0, 1)
        cluster.cut_from_metadata(2)
        cluster.kill(1)
    assert not set(others()) - set(threads)
    assert not list(tmp_path.iterdir())
    cluster.close()


def test_a_cluster_that_cannot_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    threads = others()

    async def enter() -> None:
        async with Cluster(num_partitions=0):
            pass

    attempts: list[Any] = [Cluster(num_partitions=0).start, lambda: asyncio.run(enter())]
    for attempt in attempts:
        with pytest.raises(ConfigError):
            attempt()
    assert not set(others()) - set(threads)
    assert not list(tmp_path.iterdir())


def test_a_cluster_that_was_closed_starts_anew_and_empty() -> None:
    cluster = Cluster(brokers=2, storage="memory")
    for _ in range(2):
        with cluster:
            cluster.create_topic("orders")
            assert produce(cluster.bootstrap, "orders", b"a") == [0]


def test_reset_brings_a_cluster_back_to_the_present_with_its_data() -> None:
    with Cluster(storage="memory") as cluster:
        cluster.create_topic("orders", partitions=3)
        cluster.clock.advance("1 h")
        cluster.brokers[0].faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", count=None)
        cluster.cut(0, 1)
        cluster.kill(2)
        cluster.reset()
        assert cluster.clock.lead_ms == 0
        cluster.until_leaders()
        for number in range(3):
            assert send(cluster.bootstrap, "orders", number, b"a") == 0
