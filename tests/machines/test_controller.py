"""The controller: what it decides, what it refuses, and that its records always fit the image."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.machines.cluster import BrokerImage, ClusterImage, partition_record
from penstock.machines.cluster_records import NO_LEADER, ConfigChanged, Record, decode, encode
from penstock.machines.config_changes import ConfigChange, ConfigOperation
from penstock.machines.controller import MAX_NEW_PARTITIONS, Controller, CreatedTopic, DeletedTopic, TopicDefaults
from penstock.machines.decisions import Decision, Refused
from penstock.protocol.error_codes import ErrorCode
from tests.machines.config_rules import SomeConfigs

ID, OTHER_ID = b"i" * 16, b"o" * 16
DEFAULTS = TopicDefaults(partitions=2, replication_factor=1)


class Cluster:
    """An image, and a controller whose decisions are applied to it."""

    def __init__(self, brokers: int = 1) -> None:
        self.image = ClusterImage()
        self.controller = Controller(self.image, SomeConfigs())
        for broker in range(brokers):
            self.do("register_broker", broker, broker_epoch=broker + 1, host="h", port=9092, rack=f"rack {broker % 2}")

    def do(self, command: str, *arguments: Any, **named: Any) -> Any:
        """Decide and apply; the reply."""
        decision: Decision[object] = getattr(self.controller, command)(*arguments, **named)
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
            ("a.b", {}, ErrorCode.TOPIC_ALREADY_EXISTS, "exists already"),
            ("a_b", {}, ErrorCode.TOPIC_ALREADY_EXISTS, "'a.b' exists, and 'a_b' differs"),
            ("t", {"partitions": 0}, ErrorCode.INVALID_PARTITIONS, "one partition or more"),
            ("t", {"partitions": -2}, ErrorCode.INVALID_PARTITIONS, "one partition or more"),
            ("t", {"partitions": MAX_NEW_PARTITIONS + 1}, ErrorCode.POLICY_VIOLATION, "too many"),
            ("t", {"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR, "factor 0"),
            ("t", {"replication_factor": -2}, ErrorCode.INVALID_REPLICATION_FACTOR, "factor -2"),
            ("t", {"replication_factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR, "brokers, which is 2"),
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

        assert cluster.controller.change_configs("topic", "orders", same) == Decision((), None)

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

        cluster.do("register_broker", 0, broker_epoch=5, host="moved", port=1, rack=None)

        assert cluster.image.brokers == {0: BrokerImage(0, 5, "moved", 1, None)}

    @pytest.mark.parametrize("epoch", [0, 1])
    def test_an_older_registration_is_refused(self, epoch: int) -> None:
        register = Cluster().controller.register_broker

        assert_refused(
            ErrorCode.STALE_BROKER_EPOCH, "epoch 1", register, 0, broker_epoch=epoch, host="h", port=1, rack=None
        )

    def test_after_a_clean_stop_a_sole_replica_keeps_its_leader_epoch(self) -> None:
        cluster = Cluster()
        cluster.create()

        assert cluster.controller.broker_restarted(0, clean=True) == Decision((), None)

    def test_after_an_unclean_stop_the_leader_epoch_of_a_sole_replica_grows(self) -> None:
        cluster = Cluster(brokers=2)
        cluster.create(assignment=[(0, [0]), (1, [1])])

        cluster.do("broker_restarted", 0, clean=False)
        cluster.do("broker_restarted", 0, clean=False)

        restarted, other = cluster.image.topics["orders"].partitions
        assert (restarted.leader, restarted.leader_epoch, restarted.partition_epoch) == (0, 2, 2)
        assert (other.leader, other.leader_epoch, other.partition_epoch) == (1, 0, 0)

    def test_a_sole_replica_leads_again_after_it_was_away(self) -> None:
        cluster = Cluster()
        cluster.create(partitions=1)
        away = replace(
            cluster.image.topics["orders"].partitions[0], leader=NO_LEADER, leader_epoch=1, partition_epoch=1
        )
        cluster.image.apply(partition_record(ID, away))

        cluster.do("broker_restarted", 0, clean=True)

        partition = cluster.image.topics["orders"].partitions[0]
        assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (0, 2, 2)

    def test_only_a_broker_without_replicas_is_forgotten(self) -> None:
        cluster = Cluster(brokers=2)
        cluster.create(assignment=[(0, [0])])

        assert_refused(ErrorCode.INVALID_REQUEST, "replica of orders-0", cluster.do, "unregister_broker", 0)
        cluster.do("unregister_broker", 1)
        assert list(cluster.image.brokers) == [0]

    @pytest.mark.parametrize(("command", "named"), [("unregister_broker", {}), ("broker_restarted", {"clean": True})])
    def test_an_unknown_broker_is_refused(self, command: str, named: dict[str, bool]) -> None:
        assert_refused(ErrorCode.BROKER_ID_NOT_REGISTERED, "no broker 9", Cluster().do, command, 9, **named)


def test_producer_ids_are_given_away_once() -> None:
    cluster = Cluster()

    assert cluster.do("allocate_producer_ids", 1000) == range(1000)
    assert cluster.do("allocate_producer_ids", 10) == range(1000, 1010)


def test_features_only_rise() -> None:
    cluster = Cluster()
    cluster.do("raise_feature", "penstock.version", 2)

    assert cluster.controller.raise_feature("penstock.version", 2) == Decision((), None)
    assert_refused(ErrorCode.INVALID_UPDATE_VERSION, "level 2", cluster.do, "raise_feature", "penstock.version", 1)
    assert cluster.image.features == {"penstock.version": 2}


NAMES = st.sampled_from(["orders", "eu.orders", "eu_orders", "payments", "two words", ".", ""])
BROKERS = st.integers(-1, 5)
COUNTS = st.integers(-2, 7)
CONFIGS = st.sampled_from(["retention.ms", "cleanup.policy", "log.retention.ms", "no.such.config"])
VALUES = st.sampled_from(["1", "2", "delete", "compact", "delete,compact", "", None])
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
        BROKERS.filter(lambda broker: broker >= 0),
        broker_epoch=st.integers(1, 1000),
        host=st.just("h"),
        port=st.just(1),
        rack=st.sampled_from([None, "a", "b"]),
    ),
    command("unregister_broker", BROKERS),
    command("broker_restarted", BROKERS, clean=st.booleans()),
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
    rebuilt = Cluster(brokers).image
    log: list[Record] = []
    for number, (name, arguments, named) in enumerate(commands):
        if number == snapshot_after:
            rebuilt, log = ClusterImage(), cluster.image.snapshot()
        if name == "create_topic":
            named = {"topic_id": (number + 1).to_bytes(16, "big"), "defaults": DEFAULTS} | named  # noqa: PLW2901
        records, before = decide(cluster, name, arguments, named), epochs(cluster.image)
        for record in records:
            cluster.image.apply(record)
        log += records
        check_epochs(before, epochs(cluster.image), changed=bool(records))
        check_image(cluster.image)
    for record in log:
        rebuilt.apply(record)
    assert rebuilt == cluster.image


def decide(cluster: Cluster, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> list[Record]:
    """What the controller decides, as it comes out of the log. It must not change the image."""
    before = cluster.image.snapshot()
    try:
        records = list(getattr(cluster.controller, name)(*arguments, **named).records)
    except Refused:
        records = []
    assert cluster.image.snapshot() == before
    if named.get("validate_only"):
        assert not records
    assert decode(encode(records)) == records
    return records


def check_epochs(before: dict[object, tuple[int, ...]], after: dict[object, tuple[int, ...]], *, changed: bool) -> None:
    for what in before.keys() & after.keys():
        assert all(new >= old for old, new in zip(before[what], after[what], strict=True)), what
    assert changed or before == after


def check_image(image: ClusterImage) -> None:
    """What holds for every image that the controller can bring about."""
    assert {topic.topic_id: topic for topic in image.topics.values()} == image.topics_by_id
    assert len({name.replace(".", "_") for name in image.topics}) == len(image.topics)
    for topic in image.topics.values():
        assert topic.partitions
        for partition in topic.partitions:
            assert set(partition.replicas) <= set(image.brokers)
            assert partition.leader in partition.isr
            assert set(partition.isr) <= set(partition.replicas)
    led = Counter(partition.leader for topic in image.topics.values() for partition in topic.partitions)
    assert image.leader_counts == led
