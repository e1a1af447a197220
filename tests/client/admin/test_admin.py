"""`Admin` against a real broker."""

from datetime import UTC, datetime

import pytest

from penstock.client.admin.admin import Admin
from penstock.client.admin.topics import NewTopic
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import BrokerError, UnknownGroupError, UnknownTopicError
from penstock.client.metadata import TopicPartition
from penstock.protocol.records import NewRecord
from penstock.testing import Broker
from tests.broker.harness import in_loop
from tests.client.one_batch import produce


@in_loop
async def test_topics_are_made_looked_at_grown_and_deleted() -> None:
    async with Broker() as broker, Admin(broker.bootstrap) as admin:
        made = await admin.create_topic("orders", 2, configs={"retention.ms": "1000"})
        assert (made.name, made.partitions) == ("orders", 2)
        assert [topic.name for topic in await admin.topics()] == ["orders"]
        await admin.add_partitions("orders", 3)
        assert len((await admin.topic("orders")).partitions) == 3
        await admin.delete_topic("orders")
        with pytest.raises(UnknownTopicError):
            await admin.topic("orders")


@in_loop
async def test_what_is_there_already_or_not_at_all_is_an_error_unless_that_is_fine() -> None:
    async with Broker() as broker, Admin(broker.bootstrap) as admin:
        await admin.create_topic("orders", 2)
        with pytest.raises(BrokerError, match="orders"):
            await admin.create_topic("orders", 3)
        assert (await admin.create_topic("orders", 3, exist_ok=True)).partitions == 2
        with pytest.raises(UnknownTopicError, match="did you mean 'orders'"):
            await admin.delete_topic("order")
        await admin.delete_topic("order", missing_ok=True)
        outcomes = await admin.create_topics([NewTopic(name="orders"), NewTopic(name="bills", partitions=1)])
        assert isinstance(outcomes["orders"], BrokerError)
        assert not isinstance(outcomes["bills"], Exception)


@in_loop
async def test_offsets_are_told_by_place_and_time_and_records_are_deleted() -> None:
    async with Broker() as broker, Admin(broker.bootstrap) as admin:
        await admin.create_topic("orders", 1)
        key = TopicPartition("orders", 0)
        async with Cluster(broker.bootstrap) as cluster:
            records = [NewRecord(b"v", timestamp=1_700_000_000_000 + 1000 * each) for each in range(5)]
            await produce(cluster, "orders", 0, records)
        assert await admin.end_offsets("orders") == {key: 5}
        at = datetime.fromtimestamp(1_700_000_002, UTC)
        assert await admin.offsets_at("orders", at) == {key: 2}
        assert await admin.offsets_at("orders", 1_800_000_000_000) == {key: None}
        assert await admin.delete_records({key: 3}) == {key: 3}
        assert await admin.beginning_offsets("orders") == {key: 3}


@in_loop
async def test_configs_are_set_and_go_back_to_their_defaults() -> None:
    async with Broker() as broker, Admin(broker.bootstrap) as admin:
        await admin.create_topic("orders", 1)
        await admin.set_configs("orders", {"retention.ms": "1000"})
        assert (await admin.configs("orders"))["retention.ms"].value == "1000"
        await admin.set_configs("orders", {"retention.ms": None})
        assert (await admin.configs("orders"))["retention.ms"].value != "1000"
        with pytest.raises(BrokerError, match="retention"):
            await admin.set_configs("orders", {"retention.ms": "soon"})


@in_loop
async def test_groups_are_moved_looked_at_and_deleted() -> None:
    async with Broker() as broker, Admin(broker.bootstrap) as admin:
        await admin.create_topic("orders", 1)
        key = TopicPartition("orders", 0)
        await admin.commit("readers", {key: 0})
        assert [each.group for each in await admin.groups()] == ["readers"]
        assert (await admin.committed("readers"))[key].offset == 0
        assert (await admin.group("readers")).members == ()
        assert (await admin.lag("readers")).messages == 0
        await admin.delete_group("readers")
        with pytest.raises(UnknownGroupError):
            await admin.group("readers")


@in_loop
async def test_the_cluster_tells_its_brokers_and_their_folders() -> None:
    async with Broker() as broker, Admin({"bootstrap.servers": broker.bootstrap, "client.id": "me"}) as admin:
        described = await admin.cluster()
        assert [(each.host, each.port) for each in described.brokers] == [broker.address]
        assert list(await admin.log_dirs()) == [described.brokers[0].id]
