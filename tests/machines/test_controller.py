"""The controller: what it decides, what it refuses, and that its records always fit the image."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.machines import elections
from penstock.machines.cluster import FLUSH, MIN_ISR, BrokerImage, ClusterImage, ImageChange, PartitionImage, difference
from penstock.machines.cluster_records import (
    NO_LEADER,
    BrokerRegistered,
    ConfigChanged,
    ConfigResource,
    PartitionsCreated,
    ReassignedPartition,
    Record,
    TopicCreated,
    encode,
    split,
)
from penstock.machines.config_changes import ConfigChange, ConfigOperation
from penstock.machines.controller import MAX_NEW_PARTITIONS, Controller, CreatedTopic, DeletedTopic, TopicDefaults
from penstock.machines.decisions import ControllerDecision, Refused
from penstock.machines.founding import FIRST_INDEX, imported_snapshot
from penstock.machines.log_ends import LogEnd
from penstock.machines.log_reader import LogReader
from penstock.machines.partition_leader import Proposal
from penstock.machines.registration import Registration
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import ZERO_UUID
from tests.machines.config_rules import SomeConfigs

ID, OTHER_ID = b"i" * 16, b"o" * 16
DEFAULTS = TopicDefaults(partitions=2, replication_factor=1)


def registration(
    broker_id: int, epoch: int, *, rack: str | None = None, folder: str = "", was_clean: bool = True, **more: Any
) -> Registration:
    folder = folder or f"folder of {broker_id}"
    return Registration(broker_id, epoch, {"PLAIN": ("h", 9092)}, rack, folder, was_clean, **more)


def registration_after_a_loss_of_power(broker_id: int, epoch: int, **more: Any) -> Registration:
    return registration(broker_id, epoch, was_clean=False, may_lack_unflushed=True, **more)


class Configs(SomeConfigs):
    """With the number of replicas that acks=all needs, and any way to flush."""

    NUMBERS: ClassVar = SomeConfigs.NUMBERS | {("topic", MIN_ISR), ("cluster", MIN_ISR)}

    def problem(self, resource: ConfigResource, values: Mapping[str, str]) -> str | None:
        return super().problem(resource, {name: value for name, value in values.items() if name != FLUSH})


class Cluster:
    """An image, and a controller whose decisions are applied to it."""

    def __init__(self, brokers: int = 1) -> None:
        self.image = ClusterImage()
        self.controller = Controller(self.image, Configs(), max_replication_factor=3)
        for broker in range(brokers):
            self.do("register_broker", registration(broker, broker + 1, rack=f"rack {broker % 2}"))

    def do(self, command: str, *arguments: Any, **named: Any) -> Any:
        """Decide and apply; the reply."""
        decision: ControllerDecision[object] = getattr(self.controller, command)(*arguments, **named)
        for record in decision.records:
            self.image.apply(record)
        return decision.reply

    def create(self, name: str = "orders", **named: Any) -> CreatedTopic:
        reply = self.do("create_topic", name, **{"topic_id": ID, "defaults": DEFAULTS, **named})
        assert isinstance(reply, CreatedTopic)
        return reply


def assert_refused(code: ErrorCode, reason: str, command: Callable[..., object], *arguments: Any, **named: Any) -> None:
    with pytest.raises(Refused, match=reason) as caught:
        command(*arguments, **named)
    assert caught.value.code is code


class TestTheNumberOfPartitions:
    def test_it_has_a_limit_for_all_topics_together(self) -> None:
        cluster = Cluster()
        cluster.controller = Controller(cluster.image, SomeConfigs(), max_partitions=5)
        cluster.create("a", partitions=3)
        refused = ErrorCode.POLICY_VIOLATION, "there are 3 partitions, and with 3 more"
        create = cluster.controller.create_topic
        assert_refused(*refused, create, "b", topic_id=OTHER_ID, defaults=DEFAULTS, partitions=3)
        by_hand = [(number, [0]) for number in range(3)]
        assert_refused(*refused, create, "b", topic_id=OTHER_ID, defaults=DEFAULTS, assignment=by_hand)
        assert_refused(*refused, cluster.controller.create_partitions, "a", 6)
        cluster.do("create_partitions", "a", 5)
        cluster.do("delete_topic", "a")
        cluster.create("b", topic_id=OTHER_ID, partitions=5)

    def test_partitions_without_a_leader_count(self) -> None:
        cluster = Cluster(brokers=2)
        cluster.controller = Controller(cluster.image, SomeConfigs(), max_partitions=5)
        cluster.create("a", assignment=[(number, [0]) for number in range(4)])
        cluster.do("broker_lost", 0, 1)

        assert_refused(ErrorCode.POLICY_VIOLATION, "there are 4 partitions", cluster.create, "b", topic_id=OTHER_ID)

    def test_the_topic_that_groups_are_kept_in_is_made_in_any_case(self) -> None:
        cluster = Cluster()
        cluster.controller = Controller(cluster.image, SomeConfigs(), max_partitions=1)
        assert cluster.create("__consumer_offsets", partitions=50).partitions == 50


class TestCreatingTopics:
    def test_a_topic_gets_the_defaults(self) -> None:
        cluster = Cluster()

        reply = cluster.create(configs={"retention.ms": "5"})

        assert reply == CreatedTopic("orders", ID, 2, 1, {"retention.ms": "5"})
        topic = cluster.image.topics["orders"]
        assert topic.configs == {"retention.ms": "5"}
        assert [(p.index, p.replicas, p.isr, p.elr, p.leader) for p in topic.partitions] == [
            (0, (0,), (0,), (), 0),
            (1, (0,), (0,), (), 0),
        ]
        assert all(p.leader_epoch == p.partition_epoch == 0 for p in topic.partitions)

    def test_numbers_that_are_given_are_taken(self) -> None:
        cluster = Cluster(brokers=3)

        reply = cluster.create(partitions=6, replication_factor=2)

        assert (reply.partitions, reply.replication_factor) == (6, 2)
        partitions = cluster.image.topics["orders"].partitions
        assert Counter(partition.leader for partition in partitions) == {0: 2, 1: 2, 2: 2}
        assert all(partition.isr == partition.replicas for partition in partitions)

    def test_small_topics_are_spread_over_the_brokers(self) -> None:
        cluster = Cluster(brokers=4)
        for number in range(8):
            cluster.create(f"topic-{number}", topic_id=bytes([number + 1] * 16), partitions=1)

        assert cluster.image.leader_counts == dict.fromkeys(range(4), 2)

    def test_brokers_can_be_assigned_by_hand(self) -> None:
        cluster = Cluster(brokers=3)

        reply = cluster.create(assignment=[(1, [0, 1]), (0, [2, 0])])

        assert (reply.partitions, reply.replication_factor) == (2, 2)
        assert [p.replicas for p in cluster.image.topics["orders"].partitions] == [(2, 0), (0, 1)]
        assert [p.leader for p in cluster.image.topics["orders"].partitions] == [2, 0]

    def test_validation_changes_nothing_and_answers_the_same(self) -> None:
        cluster = Cluster()

        reply = cluster.create(validate_only=True)

        assert reply == CreatedTopic("orders", ID, 2, 1, {})
        assert not cluster.image.topics

    @pytest.mark.parametrize(
        ("name", "named", "code", "reason"),
        [
            ("", {}, ErrorCode.INVALID_TOPIC_EXCEPTION, "empty"),
            ("two words", {}, ErrorCode.INVALID_TOPIC_EXCEPTION, "contains ' '"),
            ("a.b", {}, ErrorCode.TOPIC_ALREADY_EXISTS, "topic 'a.b' already exists"),
            ("a_b", {}, ErrorCode.TOPIC_ALREADY_EXISTS, "'a.b' exists, and 'a_b' differs"),
            ("t", {"partitions": 0}, ErrorCode.INVALID_PARTITIONS, "one partition or more"),
            ("t", {"partitions": -2}, ErrorCode.INVALID_PARTITIONS, "one partition or more"),
            ("t", {"partitions": MAX_NEW_PARTITIONS + 1}, ErrorCode.POLICY_VIOLATION, "too many"),
            ("t", {"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR, "factor 0"),
            ("t", {"replication_factor": -2}, ErrorCode.INVALID_REPLICATION_FACTOR, "factor -2"),
            ("t", {"replication_factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR, "alive, which is 2"),
            ("t", {"assignment": [(1, [0])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "from 0 on"),
            ("t", {"assignment": [(0, [])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "needs a broker"),
            ("t", {"assignment": [(0, [5])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 5"),
            ("t", {"assignment": [(0, [0])], "partitions": 1}, ErrorCode.INVALID_REQUEST, "by hand"),
            ("t", {"assignment": [(0, [0])], "replication_factor": 1}, ErrorCode.INVALID_REQUEST, "by hand"),
            ("t", {"configs": {"retention.ms": "soon"}}, ErrorCode.INVALID_CONFIG, "is a number"),
            ("t", {"configs": {"retention.ms": None}}, ErrorCode.INVALID_CONFIG, "no value"),
            ("t", {"configs": {"what": "1"}}, ErrorCode.INVALID_CONFIG, "no topic config"),
        ],
    )
    def test_what_kafka_refuses_is_refused(
        self, name: str, named: dict[str, Any], code: ErrorCode, reason: str
    ) -> None:
        cluster = Cluster(brokers=2)
        cluster.create("a.b", topic_id=OTHER_ID)

        assert_refused(code, reason, cluster.create, name, **named)
        assert_refused(code, reason, cluster.create, name, validate_only=True, **named)

    def test_without_brokers_there_are_no_topics(self) -> None:
        assert_refused(ErrorCode.INVALID_REPLICATION_FACTOR, "which is 0", Cluster(brokers=0).create)


class TestDeletingTopics:
    def test_a_topic_is_deleted_by_name_or_by_id(self) -> None:
        cluster = Cluster()
        for arguments, named in ((["orders"], {}), ([], {"topic_id": ID})):
            cluster.create()
            assert cluster.do("delete_topic", *arguments, **named) == DeletedTopic("orders", ID)
            assert not cluster.image.topics

    def test_what_does_not_exist_is_refused(self) -> None:
        delete = Cluster().controller.delete_topic

        assert_refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic 'orders'", delete, "orders")
        assert_refused(ErrorCode.UNKNOWN_TOPIC_ID, ID.hex(), delete, topic_id=ID)

    def test_a_topic_must_be_named_in_one_way(self) -> None:
        delete = Cluster().controller.delete_topic

        assert_refused(ErrorCode.INVALID_REQUEST, "give one of them", delete)
        assert_refused(ErrorCode.INVALID_REQUEST, "give one of them", delete, "orders", topic_id=ID)

    def test_the_name_is_free_again(self) -> None:
        cluster = Cluster()
        cluster.create("eu.orders")
        cluster.do("delete_topic", "eu.orders")

        assert cluster.create("eu_orders", topic_id=OTHER_ID).topic_id == OTHER_ID


class TestAddingPartitions:
    def test_new_partitions_follow_the_old_ones(self) -> None:
        cluster = Cluster(brokers=3)
        cluster.create(partitions=1, replication_factor=2)

        cluster.do("create_partitions", "orders", 6)

        partitions = cluster.image.topics["orders"].partitions
        assert [partition.index for partition in partitions] == list(range(6))
        assert Counter(partition.leader for partition in partitions) == {0: 2, 1: 2, 2: 2}
        assert all(len(partition.replicas) == 2 for partition in partitions)

    def test_brokers_can_be_assigned_by_hand(self) -> None:
        cluster = Cluster(brokers=2)
        cluster.create(partitions=1)

        cluster.do("create_partitions", "orders", 3, assignment=[[1], [0]])

        assert [p.replicas for p in cluster.image.topics["orders"].partitions] == [(0,), (1,), (0,)]

    def test_validation_changes_nothing(self) -> None:
        cluster = Cluster()
        cluster.create()

        cluster.do("create_partitions", "orders", 5, validate_only=True)

        assert len(cluster.image.topics["orders"].partitions) == 2

    @pytest.mark.parametrize(
        ("name", "count", "assignment", "code", "reason"),
        [
            ("payments", 5, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic"),
            ("orders", 2, None, ErrorCode.INVALID_PARTITIONS, "has 2 partitions"),
            ("orders", 1, None, ErrorCode.INVALID_PARTITIONS, "has 2 partitions"),
            ("orders", -1, None, ErrorCode.INVALID_PARTITIONS, "has 2 partitions"),
            ("orders", 2**31 - 1, None, ErrorCode.POLICY_VIOLATION, "too many"),
            ("orders", 4, [[0]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "2 new partitions"),
            ("orders", 3, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "1 new partitions"),
            ("orders", 3, [[7]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 2 cannot be on broker 7"),
            ("orders", 3, [[0, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "topic has 1"),
            ("orders", 3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "needs a broker"),
        ],
    )
    def test_what_kafka_refuses_is_refused(
        self, name: str, count: int, assignment: list[list[int]] | None, code: ErrorCode, reason: str
    ) -> None:
        cluster = Cluster(brokers=2)
        cluster.create()

        assert_refused(code, reason, cluster.controller.create_partitions, name, count, assignment=assignment)


class TestConfigs:
    def test_configs_of_topics_brokers_and_the_cluster_change(self) -> None:
        cluster = Cluster()
        cluster.create(configs={"retention.ms": "1"})

        for resource, name, config in (
            ("topic", "orders", "retention.ms"),
            ("broker", "00", "log.retention.ms"),
            ("cluster", "", "log.retention.ms"),
        ):
            cluster.do("change_configs", resource, name, [ConfigChange(config, ConfigOperation.SET, "7")])

        assert cluster.image.topics["orders"].configs == {"retention.ms": "7"}
        assert cluster.image.broker_configs == {0: {"log.retention.ms": "7"}}
        assert cluster.image.cluster_configs == {"log.retention.ms": "7"}

    def test_records_spell_a_broker_in_one_way(self) -> None:
        set_it = [ConfigChange("log.retention.ms", ConfigOperation.SET, "7")]

        decision = Cluster().controller.change_configs("broker", "00", set_it)

        assert decision.records == (ConfigChanged("broker", "0", {"log.retention.ms": "7"}),)

    def test_replacing_takes_away_what_is_not_named(self) -> None:
        cluster = Cluster()
        cluster.create(configs={"retention.ms": "1", "cleanup.policy": "compact"})

        cluster.do("replace_configs", "topic", "orders", [("cleanup.policy", "delete")])

        assert cluster.image.topics["orders"].configs == {"cleanup.policy": "delete"}

    def test_a_change_to_what_is_set_already_needs_no_record(self) -> None:
        cluster = Cluster()
        cluster.create(configs={"retention.ms": "1"})
        same = [ConfigChange("retention.ms", ConfigOperation.SET, "1")]

        assert cluster.controller.change_configs("topic", "orders", same) == ControllerDecision((), None)

    def test_validation_changes_nothing(self) -> None:
        cluster = Cluster()
        cluster.create()
        set_it = [ConfigChange("retention.ms", ConfigOperation.SET, "1")]

        cluster.do("change_configs", "topic", "orders", set_it, validate_only=True)
        cluster.do("replace_configs", "topic", "orders", [("retention.ms", "1")], validate_only=True)

        assert cluster.image.topics["orders"].configs == {}

    @pytest.mark.parametrize(
        ("resource", "name", "code"),
        [
            ("topic", "payments", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("broker", "5", ErrorCode.BROKER_ID_NOT_REGISTERED),
            ("broker", "x", ErrorCode.INVALID_REQUEST),
            ("broker", "", ErrorCode.INVALID_REQUEST),
            ("broker", "-1", ErrorCode.INVALID_REQUEST),
            ("broker", "٣", ErrorCode.INVALID_REQUEST),
            ("broker", "9" * 5000, ErrorCode.INVALID_REQUEST),
            ("cluster", "x", ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_what_does_not_exist_has_no_configs(self, resource: Any, name: str, code: ErrorCode) -> None:
        controller = Cluster().controller

        assert_refused(code, code.name, controller.change_configs, resource, name, [])
        assert_refused(code, code.name, controller.replace_configs, resource, name, [])


class TestBrokers:
    def test_a_restart_is_a_new_registration(self) -> None:
        cluster = Cluster()

        cluster.do("register_broker", Registration(0, 5, {"TLS": ("moved", 1)}, None, "folder of 0", was_clean=True))

        assert cluster.image.brokers == {
            0: BrokerImage(0, 5, {"TLS": ("moved", 1)}, None, "folder of 0", True, "folder of 0")
        }

    def test_an_older_registration_is_refused(self) -> None:
        register = Cluster().controller.register_broker

        assert_refused(ErrorCode.STALE_BROKER_EPOCH, "epoch 1", register, registration(0, 0))

    def test_after_a_clean_stop_a_sole_replica_keeps_its_leader_epoch(self) -> None:
        cluster = Cluster()
        cluster.create()

        before = list(cluster.image.topics["orders"].partitions)
        cluster.do("register_broker", registration(0, 2))

        assert cluster.image.topics["orders"].partitions == before

    def test_after_an_unclean_stop_the_leader_epoch_of_a_sole_replica_grows(self) -> None:
        cluster = Cluster(brokers=2)
        cluster.create(assignment=[(0, [0]), (1, [1])])

        cluster.do("register_broker", registration(0, 5, was_clean=False))
        cluster.do("register_broker", registration(0, 6, was_clean=False))

        restarted, other = cluster.image.topics["orders"].partitions
        assert (restarted.leader, restarted.leader_epoch, restarted.partition_epoch) == (0, 2, 2)
        assert (other.leader, other.leader_epoch, other.partition_epoch) == (1, 0, 0)

    def test_a_sole_replica_leads_again_after_it_was_away(self) -> None:
        cluster = Cluster()
        cluster.create(partitions=1)
        cluster.do("broker_lost", 0, 1)
        partition = cluster.image.topics["orders"].partitions[0]
        assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (NO_LEADER, 1, 1)

        cluster.do("register_broker", registration(0, 2))

        partition = cluster.image.topics["orders"].partitions[0]
        assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (0, 2, 2)

    def test_only_a_broker_without_replicas_is_forgotten(self) -> None:
        cluster = Cluster(brokers=2)
        cluster.create(assignment=[(0, [0])])

        assert_refused(ErrorCode.INVALID_REQUEST, "is alive", cluster.do, "unregister_broker", 1)
        for broker in (0, 1):
            cluster.do("broker_lost", broker, broker + 1)
        assert_refused(ErrorCode.INVALID_REQUEST, "replica of orders-0", cluster.do, "unregister_broker", 0)
        cluster.do("unregister_broker", 1)
        assert list(cluster.image.brokers) == [0]

    def test_a_lost_broker_leads_nothing_and_stays_the_only_one_that_has_its_records(self) -> None:
        cluster = Cluster(brokers=2)
        cluster.create(assignment=[(0, [0]), (1, [1])])

        cluster.do("broker_lost", 0, 1)

        lost, other = cluster.image.topics["orders"].partitions
        assert (lost.leader, lost.isr, lost.leader_epoch, lost.partition_epoch) == (NO_LEADER, (0,), 1, 1)
        assert (other.leader, other.partition_epoch) == (1, 0)
        assert not cluster.image.brokers[0].is_alive
        assert cluster.image.leader_counts == Counter({1: 1})

    def test_a_loss_is_noticed_once_and_for_the_registration_that_was_lost(self) -> None:
        cluster = Cluster()
        lost = cluster.controller.broker_lost
        assert lost(0, 2).records == lost(9, 1).records == ()
        cluster.do("broker_lost", 0, 1)
        assert lost(0, 1).records == ()

    def test_a_broker_that_shuts_down_is_relieved_of_what_it_leads(self) -> None:
        cluster = Cluster(brokers=2)
        cluster.create(assignment=[(0, [0])])

        assert_refused(ErrorCode.STALE_BROKER_EPOCH, "epoch 1", cluster.do, "shut_down_broker", 0, 7)
        assert cluster.controller.shut_down_broker(0, 1) == cluster.controller.broker_lost(0, 1)
        cluster.do("shut_down_broker", 0, 1)
        assert cluster.controller.shut_down_broker(0, 1).records == ()

    def test_a_broker_that_has_shut_down_is_still_a_member_and_gets_nothing_back(self) -> None:
        cluster = Cluster(brokers=2)
        cluster.create(assignment=[(0, [0])])
        cluster.do("shut_down_broker", 0, 1)

        assert cluster.controller.register_broker(registration(0, 1)).records == ()

    def test_what_a_controller_left_undone_of_a_registration_is_done_by_the_next(self) -> None:
        cluster = Cluster()
        cluster.create(partitions=1)
        cluster.do("broker_lost", 0, 1)
        registered, led_again = cluster.controller.register_broker(registration(0, 2)).records
        cluster.image.apply(registered)

        assert cluster.controller.register_broker(registration(0, 2)).records == (led_again,)
        cluster.image.apply(led_again)
        assert cluster.controller.register_broker(registration(0, 2)).records == ()

    def test_what_a_controller_left_undone_of_a_loss_is_done_by_the_next(self) -> None:
        cluster = Cluster()
        cluster.create("a", topic_id=ID)
        cluster.create("b", topic_id=OTHER_ID)
        first, *rest = cluster.controller.broker_lost(0, 1).records
        cluster.image.apply(first)

        assert list(cluster.controller.broker_lost(0, 1).records) == rest

    def test_new_partitions_avoid_brokers_that_are_not_alive(self) -> None:
        cluster = Cluster(brokers=3)
        cluster.do("broker_lost", 1, 2)

        cluster.create(partitions=4)

        assert cluster.image.leader_counts == Counter({0: 2, 2: 2})
        create = partial(cluster.create, "t", topic_id=OTHER_ID)
        assert_refused(ErrorCode.INVALID_REPLICATION_FACTOR, "alive, which is 2", create, replication_factor=3)
        assert_refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "not alive", create, assignment=[(0, [1])])

    @pytest.mark.parametrize(
        "named", [{"replication_factor": 4}, {"assignment": [(0, [0, 1, 2, 3])]}, {"defaults": TopicDefaults(1, 4)}]
    )
    def test_replicas_have_a_limit(self, named: dict[str, Any]) -> None:
        cluster = Cluster(brokers=4)

        assert_refused(ErrorCode.INVALID_REPLICATION_FACTOR, "at most 3", cluster.create, "orders", **named)

    @pytest.mark.parametrize(("command", "more"), [("unregister_broker", ()), ("shut_down_broker", (1,))])
    def test_an_unknown_broker_is_refused(self, command: str, more: tuple[int, ...]) -> None:
        assert_refused(ErrorCode.BROKER_ID_NOT_REGISTERED, "no broker 9", Cluster().do, command, 9, *more)


class TestAnotherFolder:
    """A broker of which the cluster knows replicas comes with a folder in which they are not."""

    def displaced(self, *, lost_before: bool) -> Cluster:
        cluster = Cluster(brokers=2)
        cluster.create(assignment=[(0, [0]), (1, [1])])
        if lost_before:
            cluster.do("broker_lost", 0, 1)
        cluster.do("register_broker", registration(0, 5, folder="empty"))
        return cluster

    def leader(self, cluster: Cluster) -> int:
        return cluster.image.topics["orders"].partitions[0].leader

    @pytest.mark.parametrize("lost_before", [False, True])
    def test_the_partitions_that_only_the_broker_has_stay_without_a_leader(self, lost_before: bool) -> None:
        cluster = self.displaced(lost_before=lost_before)

        assert self.leader(cluster) == NO_LEADER
        assert cluster.image.brokers[0].is_alive
        assert (cluster.image.brokers[0].folder, cluster.image.brokers[0].home_folder) == ("empty", "folder of 0")

    def test_a_restart_in_that_folder_does_not_change_this(self) -> None:
        cluster = self.displaced(lost_before=True)

        for again in (5, 6):
            cluster.do("register_broker", registration(0, again, folder="empty"))
            assert self.leader(cluster) == NO_LEADER

    def test_the_broker_gets_no_new_partitions(self) -> None:
        cluster = self.displaced(lost_before=True)

        cluster.create("more", topic_id=OTHER_ID, partitions=3)

        assert {partition.leader for partition in cluster.image.topics["more"].partitions} == {1}

    def test_with_its_own_folder_the_broker_leads_again(self) -> None:
        cluster = self.displaced(lost_before=True)

        cluster.do("register_broker", registration(0, 6))

        assert self.leader(cluster) == 0

    def test_an_operator_can_give_up_the_lost_folder(self) -> None:
        cluster = self.displaced(lost_before=True)
        epoch = cluster.image.topics["orders"].partitions[0].leader_epoch

        cluster.do("accept_folder", 0)

        assert self.leader(cluster) == 0
        assert cluster.image.topics["orders"].partitions[0].leader_epoch == epoch + 1
        assert cluster.image.brokers[0].is_usable
        assert cluster.controller.accept_folder(0).records == ()

    def test_only_the_folder_of_a_live_broker_can_be_accepted(self) -> None:
        cluster = self.displaced(lost_before=True)
        cluster.do("broker_lost", 0, 5)

        assert_refused(ErrorCode.INVALID_REQUEST, "start it with its new folder first", cluster.do, "accept_folder", 0)
        assert_refused(ErrorCode.BROKER_ID_NOT_REGISTERED, "no broker 9", cluster.do, "accept_folder", 9)

    def test_a_broker_without_replicas_may_come_with_any_folder(self) -> None:
        cluster = Cluster(brokers=2)
        cluster.do("register_broker", registration(0, 5, folder="new"))

        assert cluster.image.brokers[0].is_usable
        assert cluster.image.brokers[0].home_folder == "new"

    def test_a_broker_of_which_no_folder_is_known_is_taken_as_it_comes(self) -> None:
        cluster = Cluster()
        cluster.image.apply(BrokerRegistered(0, 1, {}, None, "", ""))
        cluster.create()

        cluster.do("register_broker", registration(0, 5, folder="its first id"))

        assert self.leader(cluster) == 0
        assert cluster.image.brokers[0].home_folder == "its first id"


def replicated(min_isr: int = 2, brokers: int = 3, flush: str | None = None) -> Cluster:
    """A topic on brokers 0, 1 and 2, registered with the epochs 1, 2 and 3."""
    cluster = Cluster(brokers)
    configs = {MIN_ISR: str(min_isr)} if flush is None else {MIN_ISR: str(min_isr), FLUSH: flush}
    cluster.create(assignment=[(0, [0, 1, 2])], configs=configs)
    return cluster


def only(cluster: Cluster) -> PartitionImage:
    return cluster.image.topics["orders"].partitions[0]


def state(cluster: Cluster) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Who is in sync, who is eligible, who leads."""
    return only(cluster).isr, only(cluster).elr, only(cluster).leader


def proposal(cluster: Cluster, members: dict[int, int], **named: int) -> Proposal:
    before = only(cluster)
    epochs = {"leader_epoch": before.leader_epoch, "partition_epoch": before.partition_epoch, **named}
    return Proposal(isr=tuple(members.items()), **epochs)


def alter(cluster: Cluster, members: dict[int, int], broker: int = 0, broker_epoch: int = 1, **named: int) -> None:
    cluster.do("alter_partition", broker, broker_epoch, ID, 0, proposal(cluster, members, **named))


def set_min_isr(cluster: Cluster, value: str | None, resource: str = "topic") -> None:
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    name = "orders" if resource == "topic" else ""
    cluster.do("change_configs", resource, name, [ConfigChange(MIN_ISR, operation, value)])


class TestReplicas:
    def test_a_lost_leader_is_followed_by_one_that_is_in_sync(self) -> None:
        cluster = replicated()
        cluster.do("broker_lost", 0, 1)
        assert state(cluster) == ((1, 2), (), 1)

    def test_below_the_needed_number_a_lost_broker_is_eligible_and_leads_if_it_comes_first(self) -> None:
        cluster = replicated()
        for broker in (0, 1, 2):
            cluster.do("broker_lost", broker, broker + 1)
        assert state(cluster) == ((), (1, 2), NO_LEADER)
        cluster.do("register_broker", registration(0, 10, was_clean=False))
        assert state(cluster) == ((), (1, 2), NO_LEADER)
        cluster.do("register_broker", registration(1, 11, was_clean=False))
        assert state(cluster) == ((1,), (2,), 1)

    def test_the_sole_replica_in_sync_is_awaited_where_one_is_enough(self) -> None:
        cluster = replicated(min_isr=1)
        for broker in (0, 1, 2):
            cluster.do("broker_lost", broker, broker + 1)
        cluster.do("register_broker", registration(0, 10))
        assert state(cluster) == ((2,), (), NO_LEADER)
        cluster.do("register_broker", registration(2, 11))
        assert state(cluster) == ((2,), (), 2)

    def test_a_restart_within_the_session_takes_the_broker_out_of_sync(self) -> None:
        cluster = replicated()
        cluster.do("register_broker", registration(0, 10))
        assert state(cluster) == ((1, 2), (), 1)
        cluster.do("register_broker", registration(1, 11))
        assert state(cluster) == ((2,), (1,), 2)

    def test_a_broker_that_lost_its_folder_is_not_eligible(self) -> None:
        cluster = replicated()
        cluster.do("broker_lost", 0, 1)
        cluster.do("broker_lost", 1, 2)
        assert state(cluster) == ((2,), (1,), 2)
        cluster.do("register_broker", registration(1, 10, folder="empty"))
        assert state(cluster) == ((2,), (), 2)
        alter(cluster, {1: 10, 2: 3}, broker=2, broker_epoch=3)
        assert state(cluster) == ((1, 2), (), 2)

    def test_without_flushes_a_broker_whose_machine_lost_its_power_is_not_eligible(self) -> None:
        cluster = replicated(flush="os")
        for broker in (0, 1, 2):
            cluster.do("broker_lost", broker, broker + 1)
        assert state(cluster) == ((), (1, 2), NO_LEADER)
        cluster.do("register_broker", registration_after_a_loss_of_power(1, 10))
        assert state(cluster) == ((), (2,), NO_LEADER)
        cluster.do("register_broker", registration(2, 11, was_clean=False))
        assert state(cluster) == ((2,), (), 2)

    def test_without_flushes_a_leader_whose_machine_lost_its_power_is_followed_by_one_that_has_everything(self) -> None:
        cluster = replicated(flush="os")
        for broker in (1, 2):
            cluster.do("broker_lost", broker, broker + 1)
        assert state(cluster) == ((0,), (2,), 0)
        cluster.do("register_broker", registration_after_a_loss_of_power(0, 10))
        assert state(cluster) == ((), (2,), NO_LEADER)
        cluster.do("register_broker", registration(2, 11, was_clean=False))
        assert state(cluster) == ((2,), (), 2)

    def test_without_flushes_the_last_that_is_counted_on_leads_even_after_a_loss_of_power(self) -> None:
        cluster = replicated(flush="os")
        for broker in (0, 1, 2):
            cluster.do("register_broker", registration_after_a_loss_of_power(broker, 10 + broker))
        assert state(cluster) == ((2,), (), 2)
        epoch = only(cluster).leader_epoch
        cluster.do("register_broker", registration_after_a_loss_of_power(2, 20))
        assert state(cluster) == ((2,), (), 2)
        assert only(cluster).leader_epoch == epoch + 1

    def test_with_flushes_a_loss_of_power_changes_nothing(self) -> None:
        cluster = replicated()
        for broker in (0, 1, 2):
            cluster.do("broker_lost", broker, broker + 1)
        cluster.do("register_broker", registration_after_a_loss_of_power(1, 10))
        assert state(cluster) == ((1,), (2,), 1)

    @pytest.mark.parametrize(("of_topic", "of_file", "is_eligible"), [("ack", "os", True), (None, "os", False)])
    def test_how_a_topic_is_flushed_counts_before_the_file_of_a_broker(
        self, of_topic: str | None, of_file: str, is_eligible: bool
    ) -> None:
        cluster = replicated(flush=of_topic)
        for broker in (0, 1, 2):
            cluster.do("broker_lost", broker, broker + 1)
        cluster.do("register_broker", registration_after_a_loss_of_power(1, 10, flush=of_file))
        assert state(cluster) == (((1,), (2,), 1) if is_eligible else ((), (2,), NO_LEADER))

    def test_a_broker_with_another_folder_does_not_lead_when_another_broker_leaves(self) -> None:
        cluster = replicated(min_isr=1)
        for broker in (0, 1, 2):
            cluster.do("broker_lost", broker, broker + 1)
        cluster.do("register_broker", registration(2, 10, folder="empty"))
        cluster.do("register_broker", registration(0, 11))
        cluster.do("broker_lost", 0, 11)
        assert state(cluster) == ((2,), (), NO_LEADER)

    def test_what_a_controller_left_undone_is_not_decided_twice_by_the_next(self) -> None:
        cluster = replicated()
        for broker in (0, 1, 2):
            cluster.do("broker_lost", broker, broker + 1)
        registered, _ = cluster.controller.register_broker(registration(2, 10)).records
        cluster.image.apply(registered)
        cluster.do("register_broker", registration(1, 11))
        assert state(cluster) == ((2,), (1,), 2)


class TestProposals:
    def test_a_leader_says_who_is_in_sync(self) -> None:
        cluster = replicated()
        alter(cluster, {0: 1})
        assert state(cluster) == ((0,), (1, 2), 0)
        alter(cluster, {0: 1, 2: 3})
        assert state(cluster) == ((0, 2), (), 0)
        assert (only(cluster).leader_epoch, only(cluster).partition_epoch) == (0, 2)

    def test_one_in_sync_that_has_not_fetched_yet_stays_without_an_epoch(self) -> None:
        cluster = replicated()
        alter(cluster, {0: 1, 1: -1})
        assert state(cluster) == ((0, 1), (), 0)
        assert_refused(ErrorCode.INELIGIBLE_REPLICA, "broker 2", alter, cluster, {0: 1, 1: -1, 2: -1})

    @pytest.mark.parametrize("damaged", [0, 2])
    def test_a_broker_gives_up_its_damaged_replica(self, damaged: int) -> None:
        cluster = replicated()
        others = [broker for broker in (0, 1, 2) if broker != damaged]
        alter(cluster, dict.fromkeys(others, -1), broker=damaged, broker_epoch=damaged + 1)
        assert state(cluster) == (tuple(others), (), others[0])
        assert only(cluster).leader_epoch == 1

    def test_a_damaged_replica_that_is_needed_is_not_given_up(self) -> None:
        cluster = replicated()
        cluster.do("broker_lost", 1, 2)
        named = {"broker": 2, "broker_epoch": 3}
        assert_refused(ErrorCode.NOT_ENOUGH_REPLICAS, "without broker 2", alter, cluster, {0: -1}, **named)
        assert state(cluster) == ((0, 2), (), 0)

    def test_a_replica_is_given_up_in_the_state_that_its_broker_knew_alone(self) -> None:
        cluster = replicated()
        late = proposal(cluster, {0: -1, 1: -1})
        alter(cluster, {0: 1, 1: -1, 2: -1})
        assert_refused(
            ErrorCode.INVALID_UPDATE_VERSION, "1 times", partial(cluster.do, "alter_partition", 2, 3, ID, 0, late)
        )

    def test_a_proposal_that_changes_nothing_makes_older_ones_void(self) -> None:
        cluster = replicated()
        older = proposal(cluster, {0: 1})
        alter(cluster, {0: 1, 1: -1, 2: -1})
        late = partial(cluster.do, "alter_partition", 0, 1, ID, 0, older)
        assert_refused(ErrorCode.INVALID_UPDATE_VERSION, "1 times, not 0", late)

    @pytest.mark.parametrize(
        ("code", "members", "named"),
        [
            (ErrorCode.STALE_BROKER_EPOCH, {0: 1}, {"broker_epoch": 9}),
            (ErrorCode.BROKER_ID_NOT_REGISTERED, {0: 1}, {"broker": 9}),
            (ErrorCode.FENCED_LEADER_EPOCH, {1: 2}, {"broker": 1, "broker_epoch": 2}),
            (ErrorCode.FENCED_LEADER_EPOCH, {0: 1}, {"leader_epoch": -1}),
            (ErrorCode.NOT_CONTROLLER, {0: 1}, {"leader_epoch": 1}),
            (ErrorCode.NOT_CONTROLLER, {0: 1}, {"partition_epoch": 1}),
            (ErrorCode.INVALID_UPDATE_VERSION, {0: 1}, {"partition_epoch": -1}),
            (ErrorCode.INVALID_REQUEST, {}, {}),
            (ErrorCode.INVALID_REQUEST, {1: 2}, {}),
            (ErrorCode.INVALID_REQUEST, {0: 1, 3: 4}, {}),
            (ErrorCode.INELIGIBLE_REPLICA, {0: 1, 1: 1}, {}),
            (ErrorCode.INELIGIBLE_REPLICA, {0: 1, 1: 3}, {}),
        ],
    )
    def test_what_is_stale_or_makes_no_sense_is_refused(
        self, code: ErrorCode, members: dict[int, int], named: dict[str, int]
    ) -> None:
        cluster = replicated(brokers=4)
        assert_refused(code, " ", alter, cluster, members, **named)
        assert only(cluster).partition_epoch == 0

    def test_a_broker_that_is_not_alive_does_not_join(self) -> None:
        cluster = replicated()
        cluster.do("broker_lost", 1, 2)
        assert_refused(ErrorCode.INELIGIBLE_REPLICA, "broker 1", alter, cluster, {0: 1, 1: 2, 2: 3})

    def test_a_broker_that_waits_for_its_folder_does_not_join(self) -> None:
        cluster = replicated()
        cluster.create("payments", topic_id=OTHER_ID, assignment=[(0, [1])])
        cluster.do("register_broker", registration(1, 10, folder="empty"))
        assert_refused(ErrorCode.INELIGIBLE_REPLICA, "broker 1", alter, cluster, {0: 1, 1: 10, 2: 3})
        cluster.do("accept_folder", 1)
        alter(cluster, {0: 1, 1: 10, 2: 3})

    def test_a_partition_that_does_not_exist_is_refused(self) -> None:
        cluster = replicated()
        wanted = proposal(cluster, {0: 1})
        decide = cluster.controller.alter_partition
        assert_refused(ErrorCode.UNKNOWN_TOPIC_ID, "no topic", decide, 0, 1, OTHER_ID, 0, wanted)
        assert_refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no partition 1", decide, 0, 1, ID, 1, wanted)


class TestAddingReplicas:
    def alone(self) -> Cluster:
        cluster = Cluster(4)
        cluster.create(assignment=[(0, [1])])
        return cluster

    def test_replicas_are_added_after_those_that_there_are(self) -> None:
        cluster = self.alone()
        after = cluster.do("add_replicas", "orders", 0, [1, 0, 2])
        assert after == only(cluster) == ReassignedPartition(0, (1, 0, 2), (1,), (), 1, 0, 1, (0, 2))
        assert cluster.image.replica_counts == {0: 1, 1: 1, 2: 1}

    def test_they_are_replicas_like_others_once_the_leader_says_that_all_are_in_sync(self) -> None:
        cluster = self.alone()
        cluster.do("add_replicas", "orders", 0, [1, 0, 2])
        alter(cluster, {0: 1, 1: 2}, broker=1, broker_epoch=2)
        assert only(cluster).adding == (0, 2)
        alter(cluster, {0: 1, 1: 2, 2: 3}, broker=1, broker_epoch=2)
        assert only(cluster) == PartitionImage(0, (1, 0, 2), (1, 0, 2), (), 1, 0, 3)

    def test_a_proposal_from_before_they_were_added_is_void(self) -> None:
        cluster = self.alone()
        before = proposal(cluster, {1: 2})
        cluster.do("add_replicas", "orders", 0, [1, 0])
        assert_refused(
            ErrorCode.INVALID_UPDATE_VERSION, "has changed", cluster.do, "alter_partition", 1, 2, ID, 0, before
        )

    @pytest.mark.parametrize(
        ("replicas", "reason"),
        [
            pytest.param([1, 0, 0], "twice", id="one is named twice"),
            pytest.param([0, 2], "not removed yet", id="one that there is is left out"),
            pytest.param([], "not removed yet", id="none is named"),
            pytest.param([1, 9], "broker 9, which does not exist", id="one is unknown"),
            pytest.param([1, 3], "broker 3, which is not alive", id="one is away"),
        ],
    )
    def test_what_is_no_addition_is_refused(self, replicas: list[int], reason: str) -> None:
        cluster = self.alone()
        cluster.do("broker_lost", 3, 4)
        assert_refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason, cluster.do, "add_replicas", "orders", 0, replicas)

    def test_a_replica_that_is_away_stays_one(self) -> None:
        cluster = self.alone()
        cluster.do("broker_lost", 1, 2)
        cluster.do("add_replicas", "orders", 0, [1, 0])
        assert (only(cluster).isr, only(cluster).leader) == ((1,), NO_LEADER)

    def test_an_addition_is_cancelled_and_a_new_leader_epoch_begins(self) -> None:
        cluster = self.alone()
        cluster.do("add_replicas", "orders", 0, [1, 0, 2])
        assert cluster.do("cancel_addition", "orders", 0) == only(cluster) == PartitionImage(0, (1,), (1,), (), 1, 1, 2)
        assert cluster.image.replica_counts == Counter([1])
        reason, cancel = "not being copied", cluster.do
        assert_refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, reason, cancel, "cancel_addition", "orders", 0)

    def test_there_is_a_limit(self) -> None:
        add = self.alone().do
        reason = "at most 3"
        assert_refused(ErrorCode.INVALID_REPLICATION_FACTOR, reason, add, "add_replicas", "orders", 0, [1, 0, 2, 3])
        assert_refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no partition 7", add, "add_replicas", "orders", 7, [1])
        assert_refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic", add, "add_replicas", "none", 0, [1])

    def test_a_whole_topic_is_raised_as_far_as_there_are_brokers(self) -> None:
        cluster = Cluster(2)
        cluster.create(partitions=4)
        assert cluster.do("raise_replicas", {"orders": 3}) == 4
        assert {len(each.replicas) for each in cluster.image.topics["orders"].partitions} == {2}
        assert cluster.do("raise_replicas", {"orders": 3}) == 0
        cluster.do("register_broker", registration(2, 9))
        assert cluster.do("raise_replicas", {"orders": 3}) == 4
        assert {len(each.replicas) for each in cluster.image.topics["orders"].partitions} == {3}

    def test_raising_never_takes_replicas_away(self) -> None:
        cluster = replicated()
        assert cluster.do("raise_replicas", {"orders": 1}) == 0
        assert only(cluster).replicas == (0, 1, 2)

    def test_a_topic_that_is_not_there_is_not_raised(self) -> None:
        assert Cluster(3).controller.raise_replicas({"orders": 3}) == ControllerDecision((), 0)


class TestElectionsOnCommand:
    def test_the_preferred_replica_leads_again(self) -> None:
        cluster = replicated()
        elect = partial(cluster.do, "elect_leader", "orders", 0)
        assert_refused(ErrorCode.ELECTION_NOT_NEEDED, "preferred", elect)
        cluster.do("register_broker", registration(0, 10))
        assert_refused(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "broker 0", elect)
        alter(cluster, {0: 10, 1: 2, 2: 3}, broker=1, broker_epoch=2)
        assert elect() == only(cluster)
        assert state(cluster) == ((0, 1, 2), (), 0)

    def test_leaders_are_balanced_where_the_preferred_replica_is_in_sync(self) -> None:
        cluster = Cluster(brokers=3)
        cluster.create(assignment=[(0, [0, 1, 2]), (1, [1, 0, 2]), (2, [0, 2, 1])])
        cluster.do("register_broker", registration(0, 10))
        assert cluster.do("balance_leaders") == 0
        alter(cluster, {0: 10, 1: 2, 2: 3}, broker=1, broker_epoch=2)
        assert cluster.do("balance_leaders") == 1
        assert [one.leader for one in cluster.image.topics["orders"].partitions] == [0, 1, 2]

    def test_only_an_operator_elects_one_that_may_lack_records(self) -> None:
        cluster = replicated(min_isr=1)
        unclean = partial(cluster.do, "elect_leader", "orders", 0, is_unclean=True)
        assert_refused(ErrorCode.ELECTION_NOT_NEEDED, "led by broker 0", unclean)
        for broker in (0, 1, 2):
            cluster.do("broker_lost", broker, broker + 1)
        assert_refused(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "alive", unclean)
        cluster.do("register_broker", registration(1, 10))
        assert state(cluster) == ((2,), (), NO_LEADER)
        unclean()
        assert state(cluster) == ((1,), (), 1)

    def test_a_partition_that_does_not_exist_is_refused(self) -> None:
        elect = partial(replicated().do, "elect_leader")
        assert_refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic", elect, "payments", 0)
        assert_refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no partition 1", elect, "orders", 1)


class TestMinIsr:
    def with_eligible(self, min_isr: int = 2) -> Cluster:
        cluster = replicated(min_isr)
        alter(cluster, {0: 1})
        assert state(cluster) == ((0,), (1, 2), 0)
        return cluster

    def test_with_fewer_needed_the_eligible_ones_are_forgotten_before_the_config_changes(self) -> None:
        cluster = self.with_eligible()
        change = ConfigChange(MIN_ISR, ConfigOperation.SET, "1")
        partitions, config = cluster.controller.change_configs("topic", "orders", [change]).records
        cluster.image.apply(partitions)
        assert state(cluster) == ((0,), (), 0)
        assert config == ConfigChanged("topic", "orders", {MIN_ISR: "1"})

    def test_with_more_needed_nothing_happens_to_partitions(self) -> None:
        cluster = self.with_eligible()
        set_min_isr(cluster, "3")
        assert state(cluster) == ((0,), (1, 2), 0)
        assert only(cluster).partition_epoch == 1

    def test_what_is_set_for_the_topic_is_above_what_is_set_for_the_cluster(self) -> None:
        cluster = self.with_eligible()
        set_min_isr(cluster, "1", resource="cluster")
        assert state(cluster) == ((0,), (1, 2), 0)
        set_min_isr(cluster, None)
        assert state(cluster) == ((0,), (), 0)

    def test_what_is_set_for_the_cluster_counts_for_topics_without_their_own(self) -> None:
        cluster = self.with_eligible()
        set_min_isr(cluster, None)
        assert state(cluster) == ((0,), (1, 2), 0)
        set_min_isr(cluster, "1", resource="cluster")
        assert state(cluster) == ((0,), (), 0)


class TestElections:
    def test_the_broker_that_took_the_lease_is_the_controller(self) -> None:
        cluster = Cluster(brokers=2)
        cluster.do("elected", 1, 4)

        assert (cluster.image.controller_id, cluster.image.controller_epoch) == (1, 4)
        for stale in (3, 4):
            assert_refused(ErrorCode.STALE_CONTROLLER_EPOCH, "broker 1 has .* epoch 4", cluster.do, "elected", 0, stale)


def test_producer_ids_are_given_away_once() -> None:
    cluster = Cluster()

    assert cluster.do("allocate_producer_ids", 1000) == range(1000)
    assert cluster.do("allocate_producer_ids", 10) == range(1000, 1010)


def test_features_only_rise() -> None:
    cluster = Cluster()
    cluster.do("raise_feature", "penstock.version", 2)

    assert cluster.controller.raise_feature("penstock.version", 2) == ControllerDecision((), None)
    assert_refused(ErrorCode.INVALID_UPDATE_VERSION, "level 2", cluster.do, "raise_feature", "penstock.version", 1)
    assert cluster.image.features == {"penstock.version": 2}


NAMES = st.sampled_from(["orders", "eu.orders", "eu_orders", "payments", "two words", ".", ""])
BROKERS = st.integers(-1, 5)
LIFETIMES = st.tuples(BROKERS, st.sampled_from([0, 0, 0, -1, 1]))
COUNTS = st.integers(-2, 7)
CONFIGS = st.sampled_from([MIN_ISR, "retention.ms", "cleanup.policy", "log.retention.ms", "no.such.config"])
VALUES = st.sampled_from(["1", "2", "3", "delete", "compact", "delete,compact", "", None])
RESOURCES = st.one_of(
    st.tuples(st.just("topic"), NAMES),
    st.tuples(st.just("broker"), st.sampled_from(["0", "1", "01", "5", "x", ""])),
    st.tuples(st.just("cluster"), st.sampled_from(["", "x"])),
)
Command = tuple[str, tuple[Any, ...], dict[str, Any]]


def command(
    name: str, *arguments: st.SearchStrategy[Any], **named: st.SearchStrategy[Any]
) -> st.SearchStrategy[Command]:
    return st.tuples(st.just(name), st.tuples(*arguments), st.fixed_dictionaries(named))


def on_resource(name: str, changes: st.SearchStrategy[Any]) -> st.SearchStrategy[Command]:
    """A resource is drawn as a pair, and is two arguments."""
    return st.builds(
        lambda resource, change, only: (name, (*resource, change), {"validate_only": only}),
        RESOURCES,
        changes,
        st.booleans(),
    )


CREATE_TOPIC = command(
    "create_topic",
    NAMES,
    partitions=COUNTS,
    replication_factor=COUNTS,
    configs=st.dictionaries(CONFIGS, VALUES, max_size=1),
    validate_only=st.sampled_from([False, False, True]),
)
COMMANDS = st.one_of(
    CREATE_TOPIC,
    command("create_topic", NAMES, assignment=st.lists(st.tuples(st.integers(0, 2), st.lists(BROKERS, max_size=3)))),
    command("delete_topic", NAMES),
    command("delete_topic", topic_id=st.integers(0, 20).map(lambda number: number.to_bytes(16, "big"))),
    command("create_partitions", NAMES, COUNTS),
    command("create_partitions", NAMES, COUNTS, assignment=st.lists(st.lists(BROKERS, max_size=3), max_size=3)),
    on_resource("change_configs", st.lists(st.builds(ConfigChange, CONFIGS, st.integers(-1, 4), VALUES), max_size=3)),
    on_resource("replace_configs", st.lists(st.tuples(CONFIGS, VALUES), max_size=3)),
    command(
        "register_broker",
        st.builds(
            registration,
            BROKERS.filter(lambda broker: broker >= 0),
            st.integers(1, 1000),
            rack=st.sampled_from([None, "a", "b"]),
            folder=st.sampled_from(["", "another"]),
            was_clean=st.booleans(),
        ),
    ),
    command("unregister_broker", BROKERS),
    command("broker_lost", LIFETIMES),
    command("shut_down_broker", LIFETIMES),
    command("accept_folder", BROKERS),
    command("alter_partition", NAMES, st.sets(st.integers(0, 2))),
    command("add_replicas", NAMES, st.integers(0, 2), st.lists(BROKERS, max_size=4)),
    command("cancel_addition", NAMES, st.integers(0, 2)),
    command("raise_replicas", st.dictionaries(NAMES, COUNTS, max_size=2)),
    command("elect_leader", NAMES, st.integers(0, 2), is_unclean=st.booleans()),
    command("balance_leaders"),
    command("elected", BROKERS, st.integers(1, 30)),
    command("allocate_producer_ids", st.integers(1, 1000)),
    command("raise_feature", st.just("penstock.version"), st.integers(0, 4)),
)


def epochs(image: ClusterImage) -> dict[object, tuple[int, ...]]:
    """Everything that may only grow while it exists."""
    found: dict[object, tuple[int, ...]] = {"producers": (image.next_producer_id,)}
    found |= {("feature", name): (level,) for name, level in image.features.items()}
    found |= {("broker", broker.broker_id): (broker.broker_epoch,) for broker in image.brokers.values()}
    for topic in image.topics.values():
        found[topic.topic_id] = (len(topic.partitions),)
        for partition in topic.partitions:
            found[topic.topic_id, partition.index] = (partition.leader_epoch, partition.partition_epoch)
    return found


@settings(max_examples=300, deadline=None)
@given(st.lists(COMMANDS, max_size=25), st.integers(0, 3), st.integers(0, 25))
def test_whatever_is_commanded_the_records_fit_and_can_be_replayed(
    commands: list[Command], brokers: int, snapshot_after: int
) -> None:
    cluster = Cluster(brokers)
    reader, rebuilt = LogReader(), ClusterImage()
    rebuilt.apply_all(reader.read_snapshot(5, snapshot_of(cluster.image, index=5)))
    unseen, seen = cluster.image.copy(), ImageChange()
    for number, (name, arguments, named) in enumerate(commands):
        if number == snapshot_after:
            reader, rebuilt = LogReader(), ClusterImage()
            rebuilt.apply_all(reader.read_snapshot(40, snapshot_of(cluster.image, index=40)))
        if name == "create_topic":
            named = {"topic_id": (number + 1).to_bytes(16, "big"), "defaults": DEFAULTS} | named  # noqa: PLW2901
        if name in ("broker_lost", "shut_down_broker"):
            [(broker, difference_of_epoch)] = arguments
            known = cluster.image.brokers.get(broker)
            arguments = (broker, (known.broker_epoch if known else 1) + difference_of_epoch)  # noqa: PLW2901
        if name == "alter_partition":
            arguments = likely_proposal(cluster.image, *arguments)  # noqa: PLW2901
        records, before = decide(cluster, name, arguments, named), cluster.image.copy()
        change = ImageChange()
        for record in records:
            change.merge(cluster.image.apply_all([record]))
            check_image(cluster.image)
        assert change == before.copy().apply_all(records) == difference(before, cluster.image)
        check_epochs(before, cluster.image, changed=bool(records))
        if name in ("add_replicas", "raise_replicas"):
            check_added(before, cluster.image)
        seen.merge(change)
        for portion in split(records, 200):
            index = reader.index + 1
            rebuilt.apply_all(reader.read(index, encode(portion, controller_epoch=7, index=index)))
    assert all(topic.partitions for topic in cluster.image.topics.values())
    assert rebuilt == cluster.image
    check_seen(seen, difference(unseen, cluster.image))


def likely_proposal(image: ClusterImage, name: str, isr: set[int]) -> tuple[Any, ...]:
    """What the leader of the first partition of a topic could propose."""
    topic = image.topics.get(name)
    if topic is None:
        return 0, 1, ZERO_UUID, 0, Proposal(0, 0, ())
    first = topic.partitions[0]
    epochs = {broker.broker_id: broker.broker_epoch for broker in image.brokers.values()}
    members = tuple((broker, epochs.get(broker, -1)) for broker in isr | {first.leader})
    proposal = Proposal(first.leader_epoch, first.partition_epoch, members)
    return first.leader, epochs.get(first.leader, -1), topic.topic_id, 0, proposal


def snapshot_of(image: ClusterImage, *, index: int) -> bytes:
    return encode(image.snapshot(), controller_epoch=7, index=index)


def decide(cluster: Cluster, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> list[Record]:
    """What the controller decides. It must not change the image."""
    before = cluster.image.copy()
    try:
        records = list(getattr(cluster.controller, name)(*arguments, **named).records)
    except Refused:
        records = []
    assert cluster.image == before
    if named.get("validate_only"):
        assert not records
    return records


def check_epochs(before: ClusterImage, after: ClusterImage, *, changed: bool) -> None:
    old, new = epochs(before), epochs(after)
    for what in old.keys() & new.keys():
        assert all(later >= earlier for earlier, later in zip(old[what], new[what], strict=True)), what
    assert changed or before == after
    for topic in after.topics.values():
        known = before.topics_by_id.get(topic.topic_id)
        for was, now in zip(known.partitions if known else (), topic.partitions, strict=False):
            assert now.partition_epoch == was.partition_epoch + (now != was)
            assert now.leader == was.leader or now.leader_epoch == was.leader_epoch + 1
            assert {*was.replicas} <= {*now.replicas} or now.leader_epoch == was.leader_epoch + 1


def check_added(before: ClusterImage, after: ClusterImage) -> None:
    """Replicas are added, and nothing else changes: not even how many acks=all needs."""
    for topic in after.topics.values():
        min_isr = after.min_isr(topic)
        for was, now in zip(before.topics[topic.name].partitions, topic.partitions, strict=True):
            assert {*was.replicas} <= {*now.replicas}
            assert {*now.replicas} - {*now.adding} == {*was.replicas} - {*was.adding}
            assert elections.needed_by(was, min_isr) == elections.needed_by(now, min_isr)
            assert (was.isr, was.elr, was.leader, was.leader_epoch) == (now.isr, now.elr, now.leader, now.leader_epoch)


def check_image(image: ClusterImage) -> None:
    """What holds for every image that the controller can bring about, after each record."""
    assert {topic.topic_id: topic for topic in image.topics.values()} == image.topics_by_id
    assert len({name.replace(".", "_") for name in image.topics}) == len(image.topics)
    usable = {broker.broker_id for broker in image.live_brokers() if broker.is_usable}
    partitions = [partition for topic in image.topics.values() for partition in topic.partitions]
    for partition in partitions:
        assert partition.replicas
        assert set(partition.replicas) <= set(image.brokers)
        assert partition.leader == NO_LEADER or partition.leader in usable.intersection(partition.isr)
        assert partition.isr or partition.elr
        assert sorted((*partition.isr, *partition.elr)) == sorted({*partition.isr, *partition.elr})
        assert {*partition.isr, *partition.elr, *partition.adding} <= set(partition.replicas)
        assert isinstance(partition, ReassignedPartition) == bool(partition.adding)
        assert not partition.adding or not {*partition.adding} <= {*partition.isr}
        assert len(partition.adding) < len(partition.replicas)
    assert image.leader_counts == Counter(one.leader for one in partitions if one.leader != NO_LEADER)
    assert image.replica_counts == Counter(replica for one in partitions for replica in one.replicas)
    assert image.partition_count == len(partitions)


def check_seen(seen: ImageChange, different: ImageChange) -> None:
    """Changes of several entries, merged, name what is different, and of what came and went again nothing more than
    that it was touched."""
    assert (seen.partitions, seen.created) == (different.partitions, different.created)
    assert {topic.topic_id for topic in seen.deleted.values()} == {
        topic.topic_id for topic in different.deleted.values()
    }
    assert seen.configured >= different.configured
    assert seen.configs >= different.configs
    assert seen.brokers >= different.brokers
    assert seen.controller == different.controller


class TestImportedPartitions:
    """They wait for the reports of all their replicas."""

    def imported(self) -> Cluster:
        before = Cluster(brokers=3)
        before.image.apply_all([TopicCreated(ID, "orders", {}), PartitionsCreated(ID, 0, ((0, 1, 2), (1,)))])
        cluster = Cluster(brokers=0)
        cluster.image.apply_all(LogReader().read_snapshot(FIRST_INDEX, imported_snapshot(before.image, now_ms=0)))
        self.reports: dict[int, Registration] = {}
        cluster.controller = Controller(cluster.image, Configs(), max_replication_factor=3, reports=self.reports)
        return cluster

    def report(self, cluster: Cluster, broker: int, epoch: int, *ends: LogEnd, folder: str = "") -> None:
        told = registration(broker, epoch, folder=folder)
        told = replace(told, log_ends={(ID, index): end for index, end in enumerate(ends)})
        cluster.do("register_broker", told)
        self.reports[broker] = told

    def leaders(self, cluster: Cluster) -> list[int]:
        return [partition.leader for partition in cluster.image.topics["orders"].partitions]

    def test_the_last_report_lets_the_farthest_log_lead(self) -> None:
        cluster = self.imported()
        self.report(cluster, 0, 1, LogEnd(3, 50, 3))
        self.report(cluster, 2, 2, LogEnd(3, 90, 3))
        assert self.leaders(cluster) == [NO_LEADER, NO_LEADER]
        assert cluster.controller.missing_reports() == ({1}, 2)

        self.report(cluster, 1, 3, LogEnd(3, 70, 4), LogEnd(0, 9, 0))

        assert self.leaders(cluster) == [2, 1]
        [first, _] = cluster.image.topics["orders"].partitions
        assert (first.isr, first.leader_epoch) == ((2,), 4 + elections.LEADER_EPOCH_STEP)
        assert cluster.controller.missing_reports() == (set(), 0)

    def test_a_broker_that_has_gone_again_or_started_anew_has_to_report_again(self) -> None:
        cluster = self.imported()
        end = LogEnd(3, 50, 3)
        self.report(cluster, 0, 1, end)
        cluster.do("broker_lost", 0, 1)
        self.report(cluster, 1, 2, end, end)
        self.report(cluster, 2, 3, end)
        assert self.leaders(cluster) == [NO_LEADER, 1]
        cluster.do("register_broker", registration(0, 4))
        assert self.leaders(cluster) == [NO_LEADER, 1]
        self.report(cluster, 0, 5, end)
        assert self.leaders(cluster) == [0, 1]

    def test_a_new_controller_that_hears_the_reports_again_finishes(self) -> None:
        cluster = self.imported()
        end = LogEnd(3, 50, 3)
        for broker in range(3):
            cluster.do("register_broker", registration(broker, broker + 1))
        assert self.leaders(cluster) == [NO_LEADER, NO_LEADER]
        for broker in range(3):
            self.report(cluster, broker, broker + 1, end, *[end] * (broker == 1))
        assert self.leaders(cluster) == [0, 1]

    def test_a_broker_with_another_folder_has_nothing_to_report_and_keeps_its_home(self) -> None:
        cluster = self.imported()
        end, empty = LogEnd(3, 50, 3), LogEnd(-1, 0, -1)
        self.report(cluster, 0, 1, end)
        self.report(cluster, 2, 2, end)
        self.report(cluster, 1, 3, empty, empty, folder="empty")
        assert self.leaders(cluster) == [NO_LEADER, NO_LEADER]
        assert cluster.image.brokers[1].home_folder == "folder of 1"

        cluster.do("elect_leader", "orders", 0, is_unclean=True)

        assert self.leaders(cluster) == [0, NO_LEADER]

    def test_an_operator_may_give_up_a_lost_disk_and_the_broker_begins_anew(self) -> None:
        cluster = self.imported()
        self.report(cluster, 0, 1, LogEnd(3, 50, 3))
        self.report(cluster, 2, 2, LogEnd(3, 90, 3))
        cluster.do("elect_leader", "orders", 0, is_unclean=True)
        assert self.leaders(cluster) == [2, NO_LEADER]
        refused = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "alive and has an open log"
        assert_refused(*refused, cluster.do, "elect_leader", "orders", 1, is_unclean=True)
