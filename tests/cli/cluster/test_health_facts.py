"""The facts of health, asked of real brokers."""

import pytest

from penstock.cli.cluster import health_facts
from penstock.cli.cluster.findings import HealthFacts, Kind
from penstock.cli.cluster.health import diagnose
from penstock.cli.cluster.health_facts import look_at_health
from penstock.client.admin.reassignments import alter_reassignments
from penstock.client.admin.topics import NewTopic, create_topics
from penstock.client.cluster.cluster import Cluster as Client
from penstock.client.errors import BrokerError, ClientError, TimedOutError, UnsendableError
from penstock.client.metadata import TopicPartition
from penstock.client.producer.producer import Producer
from penstock.protocol.error_codes import ErrorCode
from penstock.testing import Broker, Cluster
from tests.waiting import in_loop

SESSION = "1 s"


async def look(bootstrap: str) -> HealthFacts:
    async with Client(bootstrap) as client:
        return await look_at_health(client)


@in_loop
async def test_a_broker_alone_gives_topics_one_replica_and_is_healthy() -> None:
    async with Broker() as broker:
        broker.create_topic("orders", 2)
        facts = await look(broker.bootstrap)
        assert (facts.controller, facts.alive, facts.new_replicas) == (0, {0}, 1)
        assert len(facts.partitions) == 2
        assert diagnose(facts) == []


@in_loop
async def test_a_killed_broker_is_seen_to_be_away_and_then_to_be_back() -> None:
    settings = {"auto.leader.rebalance.enable": "false"}
    async with Cluster(3, settings, storage="memory") as cluster:
        cluster.create_topic("orders", 3)
        cluster.until_in_sync()
        facts = await look(cluster.bootstrap)
        assert (facts.new_replicas, diagnose(facts)) == (3, [])
        cluster.kill(1)
        cluster.clock.advance(SESSION)
        cluster.until_leaders()
        bootstrap = f"{cluster.brokers[0].bootstrap},{cluster.brokers[2].bootstrap}"
        [away] = diagnose(await look(bootstrap))
        assert (away.kind, away.brokers, len(away.partitions)) == (Kind.BROKER_AWAY, (1,), 3)
        cluster.start(1)
        cluster.until_in_sync()
        assert {each.kind for each in diagnose(await look(cluster.bootstrap))} <= {Kind.OTHER_LEADER}


@in_loop
async def test_with_one_of_three_left_acks_all_is_refused_and_the_others_are_missed_by_name() -> None:
    async with Cluster(3, storage="memory") as cluster:
        cluster.create_topic("orders")
        cluster.until_in_sync()
        for broker in (1, 2):
            cluster.kill(broker)
            cluster.clock.advance(SESSION)
            cluster.until_leaders()
        facts = await look(cluster.brokers[0].bootstrap)
        [partition] = facts.partitions
        assert (partition.leader, partition.isr, partition.needed) == (0, (0,), 2)
        # The second that went had everything that was committed.
        assert partition.eligible == (2,)
        kinds = {each.kind: each for each in diagnose(facts)}
        assert kinds[Kind.BELOW_MIN_ISR].brokers == (1, 2)
        assert "broker 2 may lead" in kinds[Kind.BELOW_MIN_ISR].means


@in_loop
async def test_a_partition_with_one_replica_waits_for_its_broker() -> None:
    async with Cluster(2, storage="memory", default_replication_factor=1) as cluster:
        cluster.create_topic("orders", 2)
        cluster.stop(1)
        cluster.until_leaders()
        findings = diagnose(await look(cluster.brokers[0].bootstrap))
        assert [each.kind for each in findings] == [Kind.NO_LEADER, Kind.BROKER_AWAY]
        assert (findings[0].brokers, findings[0].commands) == ((1,), ())


@in_loop
async def test_a_follower_that_cannot_copy_is_behind_by_what_it_lacks() -> None:
    settings = {"replica.lag.time.max.ms": "1000"}
    async with Cluster(2, settings, storage="memory") as cluster:
        cluster.create_topic("orders")
        cluster.until_in_sync()
        # The controller leads: it can take the follower out of the in-sync replicas though it does not reach it.
        assert cluster.leader_of("orders") == cluster.controller == 0
        cluster.cut(0, 1)
        async with Producer(cluster.brokers[0].bootstrap, acks="1", enable_idempotence=False) as producer:
            await producer.send("orders", b"x" * 1000)
        services = cluster.brokers[0]._production().services
        while services.image.topics["orders"].partitions[0].isr != (0,):
            cluster.clock.advance("1 s")
        facts = await look(cluster.brokers[0].bootstrap)
        assert facts.behind[1] > 1000
        [behind] = diagnose(facts)
        assert (behind.kind, behind.brokers) == (Kind.BROKER_BEHIND, (1,))


@in_loop
async def test_a_cluster_whose_controller_has_lost_its_store_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Cluster(1, storage="memory") as cluster:
        assert (await look(cluster.bootstrap)).controller == 0
        cluster.cut_from_metadata(0)
        services = cluster.brokers[0]._production().services
        while services.controlling.is_controller:
            cluster.clock.advance("1 s")
        monkeypatch.setattr(health_facts, "LOOK_TIMEOUT_MS", 500)
        facts = await look(cluster.bootstrap)
        assert facts.controller is None
        assert Kind.NO_CONTROLLER in {each.kind for each in diagnose(facts)}


@in_loop
async def test_replicas_that_are_being_added_are_told_from_those_that_fell_behind() -> None:
    async with Cluster(2, storage="memory", default_replication_factor=1) as cluster:
        cluster.create_topic("orders", 2)
        # What the controller leads can be changed though the brokers do not reach each other.
        [number] = [index for index in (0, 1) if cluster.leader_of("orders", index) == cluster.controller == 0]
        async with Producer(cluster.bootstrap, acks="1", enable_idempotence=False) as producer:
            await producer.send("orders", b"x" * 1000, partition=number)
        cluster.cut(0, 1)
        key = TopicPartition("orders", number)
        async with Client(cluster.brokers[0].bootstrap) as client:
            assert await alter_reassignments(client, {key: (0, 1)}) == {key: None}
            facts = await look_at_health(client)
        assert facts.partitions[number].adding == (1,)
        assert facts.to_copy > 1000
        assert (facts.offline, facts.behind) == ({}, {})
        [found] = [each for each in diagnose(facts) if each.kind is Kind.REASSIGNING]
        assert (found.brokers, found.partitions) == ((1,), (key,))


@in_loop
async def test_disks_racks_and_what_topics_ask_for_are_known() -> None:
    async with Broker({"broker.rack": "cellar", "penstock.disk.reserve.bytes": "1000"}) as broker:
        broker.create_topic("orders", min_insync_replicas=2)
        facts = await look(broker.bootstrap)
        [disk] = facts.disks[0]
        assert (disk.fault, disk.reserve_bytes) == (None, 1000)
        assert (disk.total_bytes or 0) >= (disk.free_bytes or 0) > 0
        assert facts.racks == {0: "cellar"}
        assert facts.new_offsets_replicas == facts.new_replicas == 1


@in_loop
async def test_a_log_that_a_broker_cannot_serve_is_missed() -> None:
    async with Broker() as broker:
        broker.create_topic("orders", 2)
        broker._production().services.partitions.all()[0].log.fail(OSError("input/output error"))
        facts = await look(broker.bootstrap)
        assert facts.offline == {0: [TopicPartition("orders", 0)]}
        assert [each.kind for each in diagnose(facts)] == [Kind.LOG_OFFLINE]


@in_loop
async def test_fewer_replicas_than_its_own_min_isr_are_a_problem_of_a_topic() -> None:
    async with Cluster(2, storage="memory") as cluster:
        async with Client(cluster.bootstrap) as client:
            orders = NewTopic(name="orders", replication_factor=1, configs={"min.insync.replicas": "2"})
            await create_topics(client, [orders, NewTopic(name="bills", replication_factor=1)])
            facts = await look_at_health(client)
        assert {each.key.topic: each.asked for each in facts.partitions} == {"orders": 2, "bills": 1}
        assert {each.kind for each in diagnose(facts)} == {Kind.FEW_REPLICAS, Kind.FEWER_THAN_DEFAULT}


@pytest.mark.parametrize(
    ("error", "answers"),
    [
        (BrokerError(ErrorCode.NOT_CONTROLLER, "no controller was found in time"), False),
        (TimedOutError("no reply"), False),
        (BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not allowed"), True),
        (UnsendableError("too old"), True),
    ],
)
def test_a_controller_that_refuses_answers(error: ClientError, answers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise error

    @in_loop
    async def run() -> None:
        async with Broker() as broker:
            monkeypatch.setattr(health_facts, "elect_leaders", refuse)
            assert ((await look(broker.bootstrap)).controller is not None) == answers

    run()
