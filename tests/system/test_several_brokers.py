"""Several brokers over one store: they find each other, agree on who leads what, and outlive one another."""

import asyncio
import logging

import pytest

from penstock.broker.broker import Broker
from penstock.broker.cluster.controlling import NotControllerError
from penstock.machines.cluster_records import BrokerFenced, decode
from penstock.metadata.store import Contact, StoreError, StoreRefusedError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from penstock.storage.errors import DirectoryRefusedError
from penstock.storage.files.memory import MemoryFiles
from tests.broker.harness import Client, Node, batch, in_loop, running, running_cluster, turns, until

SESSION = 0.5
"""Long enough for a loop that is busy, short enough to wait for."""


def leaders(node: Node, topic: str) -> list[int]:
    return [partition.leader for partition in node.broker.services.image.topics[topic].partitions]


def led_by(node: Node, topic: str, broker_id: int) -> int:
    return leaders(node, topic).index(broker_id)


def controllers(nodes: list[Node]) -> list[int]:
    return [node.broker.node_id for node in nodes if node.broker.services.controlling.is_controller]


def live(node: Node) -> set[int]:
    return {broker.broker_id for broker in node.broker.services.image.live_brokers()}


def follows(node: Node, topic: str) -> bool:
    """Whether it leads what it should of a topic, and nothing else."""
    found = leaders(node, topic)
    led = [index for index in range(len(found)) if (topic, index) in node.broker.services.partitions._led]
    return led == [index for index, leader in enumerate(found) if leader == node.broker.node_id]


@in_loop
async def test_brokers_find_each_other_and_every_one_tells_clients_of_all() -> None:
    async with running_cluster(3) as nodes:
        assert controllers(nodes) == [0]
        for node in nodes:
            told = await (await node.connect()).ask(MetadataRequest(topics=[]), 12)
            assert {broker.node_id: (broker.host, broker.port) for broker in told.brokers} == {
                other.broker.node_id: other.broker.address for other in nodes
            }
            assert told.controller_id == 0


@in_loop
async def test_a_topic_is_spread_over_brokers_and_each_serves_its_part() -> None:
    async with running_cluster(3) as nodes:
        await (await nodes[1].connect()).create_topic("orders", 6)
        await until(lambda: all("orders" in node.broker.services.image.topics for node in nodes))
        assert sorted(leaders(nodes[0], "orders")) == [0, 0, 1, 1, 2, 2]
        await until(lambda: all(follows(node, "orders") for node in nodes))
        for node in nodes:
            client = await node.connect()
            for index, leader in enumerate(leaders(node, "orders")):
                expected = ErrorCode.NONE if leader == node.broker.node_id else ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert (await client.produce("orders", batch(b"a"), partition=index)).error_code == expected


@in_loop
async def test_a_topic_can_be_used_at_once_where_it_was_created_though_another_broker_decided() -> None:
    async with running_cluster(2) as (_, other):
        client = await other.connect()
        for number in range(5):
            await client.create_topic(f"t{number}", 2)
            index = led_by(other, f"t{number}", 1)
            assert (await client.produce(f"t{number}", batch(b"a"), partition=index)).error_code == ErrorCode.NONE


@in_loop
async def test_another_broker_takes_over_from_a_controller_that_died() -> None:
    async with running_cluster(3, session_seconds=SESSION) as nodes:
        await (await nodes[0].connect()).create_topic("orders", 3)
        await nodes[0].kill()
        others = nodes[1:]
        await until(lambda: all(live(node) == {1, 2} for node in others))
        assert len(controllers(others)) == 1
        assert all(sorted(leaders(node, "orders")) == [-1, 1, 2] for node in others)
        await (await others[0].connect()).create_topic("payments", 4)
        await until(lambda: all("payments" in node.broker.services.image.topics for node in others))
        assert sorted(leaders(others[1], "payments")) == [1, 1, 2, 2]


@in_loop
async def test_what_a_broker_led_waits_for_it_and_is_led_by_it_again() -> None:
    async with running_cluster(3, session_seconds=SESSION) as nodes:
        await (await nodes[0].connect()).create_topic("orders", 3)
        lost = nodes[2]
        index = led_by(nodes[0], "orders", 2)
        await until(lambda: all("orders" in node.broker.services.image.topics for node in nodes))
        await until(lambda: follows(lost, "orders"))
        client = await lost.connect()
        assert (await client.produce("orders", batch(b"a"), partition=index)).error_code == ErrorCode.NONE
        await lost.kill()
        await until(lambda: all(leaders(node, "orders")[index] == -1 for node in nodes[:2]))
        told = await (await nodes[0].connect()).ask(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 12)
        assert told.topics[0].partitions[index].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        await lost.start()
        assert leaders(lost, "orders")[index] == 2
        assert lost.partition("orders", index).leader_epoch == 2
        client = await lost.connect()
        assert await client.values("orders", partition=index) == [b"a"]
        assert (await client.produce("orders", batch(b"b"), partition=index)).base_offset == 1
        await until(lambda: all(leaders(node, "orders")[index] == 2 for node in nodes))


@in_loop
async def test_a_broker_that_comes_back_within_its_session_leads_in_a_new_epoch() -> None:
    async with running_cluster(2) as nodes:
        await (await nodes[0].connect()).create_topic("orders", 2)
        await until(lambda: "orders" in nodes[1].broker.services.image.topics)
        index = led_by(nodes[0], "orders", 1)
        await nodes[1].kill()
        await nodes[1].start()
        assert nodes[1].partition("orders", index).leader_epoch == 1
        await until(lambda: live(nodes[0]) == {0, 1} and leaders(nodes[0], "orders")[index] == 1)


@in_loop
async def test_a_controller_that_died_and_came_back_at_once_is_controller_again() -> None:
    async with running_cluster(1) as [node]:
        await (await node.connect()).create_topic("orders")
        await node.kill()
        await node.start()
        assert node.broker.services.controlling.controller_epoch == 2
        assert (await (await node.connect()).produce("orders", batch(b"a"))).error_code == ErrorCode.NONE


@in_loop
async def test_a_broker_in_doubtful_contact_resigns_as_controller_and_goes_on_serving() -> None:
    async with running_cluster(2, session_seconds=SESSION) as nodes:
        await (await nodes[0].connect()).create_topic("orders", 2)
        index = led_by(nodes[0], "orders", 0)
        nodes[0].store.cut()
        registration = nodes[0].broker.services.registration
        await until(lambda: registration.contact is not Contact.GOOD)
        await until(lambda: controllers(nodes[:1]) == [])
        client = await nodes[0].connect()
        assert (await client.produce("orders", batch(b"a"), partition=index)).error_code == ErrorCode.NONE
        nodes[0].store.mend()
        await until(lambda: len(controllers(nodes)) == 1 and live(nodes[0]) == live(nodes[1]) == {0, 1})


@in_loop
async def test_a_broker_that_lost_its_session_takes_acks_all_alone_until_it_is_registered_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_cluster(2, session_seconds=SESSION) as (controller, other):
        await (await controller.connect()).create_topic("orders", 2)
        index = led_by(controller, "orders", 1)
        await until(lambda: "orders" in other.broker.services.image.topics and follows(other, "orders"))
        other.store.cut()
        await until(lambda: other.broker.services.registration.is_fenced)
        assert "acks=all only" in caplog.text
        client = await other.connect()
        refused = await client.produce("orders", batch(b"a"), partition=index, acks=1)
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await client.produce("orders", batch(b"a"), partition=index, acks=-1)).error_code == ErrorCode.NONE
        await until(lambda: leaders(controller, "orders")[index] == -1)
        other.store.mend()
        await until(lambda: not other.broker.services.registration.is_fenced)
        await until(lambda: follows(other, "orders"))
        assert leaders(other, "orders")[index] == 1
        assert (await client.produce("orders", batch(b"b"), partition=index, acks=1)).error_code == ErrorCode.NONE


@in_loop
async def test_a_broker_that_stops_hands_over_before_its_clients_are_sent_away() -> None:
    async with running_cluster(3) as nodes:
        await (await nodes[0].connect()).create_topic("orders", 3)
        await until(
            lambda: all(follows(node, "orders") for node in nodes if "orders" in node.broker.services.image.topics)
        )
        stopping = nodes[2]
        await until(lambda: "orders" in stopping.broker.services.image.topics)
        index = led_by(nodes[0], "orders", 2)
        client = await Client.open(stopping.broker.address)
        closing: list[list[int]] = []
        close = stopping.broker.listener.close

        async def close_later(*args: object, **named: object) -> None:
            closing.append(leaders(nodes[0], "orders"))
            refused = await client.produce("orders", batch(b"a"), partition=index)
            assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            await close(*args, **named)  # type: ignore[arg-type]

        stopping.broker.listener.close = close_later  # type: ignore[method-assign]
        await stopping.stop()
        client.close()
        [leaders_then] = closing
        assert leaders_then[index] == -1
        assert live(nodes[0]) == {0, 1}
        await stopping.start()
        assert stopping.broker.directory.was_clean
        assert leaders(stopping, "orders")[index] == 2


@in_loop
async def test_a_controller_that_stops_is_followed_by_another_before_it_sends_its_clients_away() -> None:
    async with running_cluster(2) as nodes:
        seen: list[list[int]] = []
        close = nodes[0].broker.listener.close

        async def close_later(*args: object, **named: object) -> None:
            await until(lambda: controllers(nodes[1:]) == [1])
            seen.append([])
            await close(*args, **named)  # type: ignore[arg-type]

        nodes[0].broker.listener.close = close_later  # type: ignore[method-assign]
        await nodes[0].stop()
        assert seen
        await (await nodes[1].connect()).create_topic("orders", 2)
        assert leaders(nodes[1], "orders") == [1, 1]


@in_loop
async def test_a_broker_alone_stops_without_a_word_in_the_log() -> None:
    async with running() as node:
        before = node.shared.last
        await node.stop()
        assert node.shared.last == before
        assert not any(isinstance(record, BrokerFenced) for record in decode(node.shared.entries[-1]).records)


@in_loop
async def test_a_broker_serves_only_after_its_own_registration_is_applied() -> None:
    async with running_cluster(2) as nodes:
        await (await nodes[0].connect()).create_topic("orders", 2)
        await until(lambda: "orders" in nodes[1].broker.services.image.topics)
        address = nodes[1].broker.address
        nodes[1].configs["listeners"] = f"PLAINTEXT://127.0.0.1:{address[1]}"
        await nodes[1].stop()
        await until(lambda: live(nodes[0]) == {0})
        store = nodes[0].store
        append, gate = store.append, asyncio.Event()

        async def gated(controller_epoch: int, index: int, entry: bytes) -> None:
            await gate.wait()
            await append(controller_epoch, index, entry)

        store.append = gated  # type: ignore[method-assign]
        starting = asyncio.create_task(nodes[1].start())
        await until(lambda: nodes[0].shared.table.epochs().keys() == {0, 1})
        await turns(100)
        assert not starting.done()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)
        gate.set()
        await starting
        index = led_by(nodes[1], "orders", 1)
        client = await nodes[1].connect()
        assert (await client.produce("orders", batch(b"a"), partition=index)).error_code == ErrorCode.NONE


@in_loop
async def test_a_second_broker_with_one_id_is_refused_and_the_first_undisturbed() -> None:
    async with running_cluster(2, session_seconds=SESSION) as nodes:
        second = Node({"node.id": "1"}, shared=nodes[0].shared, session_seconds=SESSION)
        with pytest.raises(StoreRefusedError, match="broker 1 is in the cluster already, with another data folder"):
            await second.start()
        assert second.memory.open_descriptors == 0
        assert live(nodes[0]) == {0, 1}


@in_loop
async def test_a_folder_of_another_cluster_is_refused_and_keeps_its_clean_marker() -> None:
    async with running() as node:
        await node.stop()
        stranger = Node(files=node.files)
        with pytest.raises(DirectoryRefusedError, match="belongs to cluster"):
            await stranger.start()
        assert not stranger.shared.entries, "it has not been heard of there"
        await node.start()
        assert node.broker.directory.was_clean


@in_loop
async def test_a_folder_of_another_broker_of_the_cluster_is_refused() -> None:
    async with running_cluster(2) as nodes:
        await nodes[1].stop()
        thief = Node({"node.id": "2"}, files=nodes[1].files, shared=nodes[0].shared)
        with pytest.raises(DirectoryRefusedError, match=r"belongs to node 1, and node\.id is 2"):
            await thief.start()
        await nodes[1].start()


@in_loop
async def test_a_broker_with_a_new_folder_says_that_its_partitions_are_elsewhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_cluster(2) as nodes:
        await (await nodes[0].connect()).create_topic("orders", 2)
        index = led_by(nodes[0], "orders", 1)
        await nodes[1].stop()
        old, nodes[1].files = nodes[1].files, MemoryFiles()
        await nodes[1].start()
        [line] = [record for record in caplog.records if "the data folder is another" in record.message]
        assert "is started with that folder again" in vars(line)["error"]
        assert leaders(nodes[1], "orders")[index] == -1
        await nodes[1].stop()
        nodes[1].files = old
        await nodes[1].start()
        assert leaders(nodes[1], "orders")[index] == 1


@in_loop
async def test_a_record_of_a_newer_penstock_stops_the_broker_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as node:
        node.shared.entries.append(b"from the future")
        node.shared.table.changes.wake()
        await node.broker.failed.wait()
        assert "the broker cannot follow its cluster any more" in str(node.broker.failure)
        assert any(record.levelno == logging.CRITICAL for record in caplog.records)
        await node.stop()
        with pytest.raises(StoreError):
            await node.start()


@in_loop
async def test_an_error_of_ours_in_the_work_of_the_cluster_fails_the_broker_and_is_not_silent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as node:

        async def broken(change: object) -> None:
            raise ZeroDivisionError("no")

        monkeypatch.setattr(node.broker.services.cluster, "_changed", broken)
        allocating = node.broker.services.controlling.submit(lambda controller: controller.allocate_producer_ids(1))
        await node.broker.failed.wait()
        assert "an internal error keeps the broker from following its cluster" in str(node.broker.failure)
        assert any(record.exc_info for record in caplog.records)
        await node.stop()
        with pytest.raises(NotControllerError):
            await allocating


@in_loop
async def test_an_error_of_ours_before_the_start_is_over_is_raised_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: object, change: object) -> None:
        raise ZeroDivisionError("no")

    monkeypatch.setattr(Broker, "_image_changed", broken)
    node = Node()
    with pytest.raises(StoreError, match="internal error"):
        await node.start()
    assert node.memory.open_descriptors == 0
