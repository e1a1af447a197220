"""Administration that blocks, against a real broker: each call reaches its counterpart."""

from penstock.client.admin.topics import NewTopic
from penstock.client.metadata import TopicPartition
from penstock.client.sync import Admin
from penstock.testing import Broker
from tests.client.threads import client_threads

PARTITION = TopicPartition("orders", 0)


def test_every_call_gives_what_its_asynchronous_counterpart_gives() -> None:
    with Broker() as broker:
        before = client_threads()
        with Admin(broker.bootstrap, client_id="me") as admin:
            assert admin.settings.client_id == "me"
            assert admin.create_topic("orders", 1).partitions == 1
            assert list(admin.create_topics([NewTopic(name="bills", partitions=1)])) == ["bills"]
            admin.delete_topic("bills")
            assert [topic.name for topic in admin.topics()] == ["orders"]
            admin.add_partitions("orders", 2)
            assert len(admin.topic("orders").partitions) == 2
            assert admin.end_offsets("orders")[PARTITION] == admin.beginning_offsets("orders")[PARTITION] == 0
            assert admin.offsets_at("orders", 0)[PARTITION] is None
            assert admin.delete_records({PARTITION: 0}) == {PARTITION: 0}
            admin.alter_replication_factor("orders", 1)
            assert admin.reassignments() == {}
            admin.set_configs("orders", {"retention.ms": "1000"})
            assert admin.configs("orders")["retention.ms"].value == "1000"
            assert list(admin.log_dirs()) == [each.id for each in admin.cluster().brokers]
            assert admin.elect_leaders([PARTITION]) == admin.elect_leaders(unclean=True) == []
            admin.commit("readers", {PARTITION: 0})
            assert admin.committed("readers")[PARTITION].offset == 0
            assert [each.group for each in admin.groups()] == ["readers"]
            assert admin.group("readers").members == ()
            assert admin.lag("readers").messages == 0
            admin.delete_group("readers")
            assert admin.groups() == []
        assert client_threads() == before
