"""The controller at work: what it writes, how it takes over, and when it stops."""

import asyncio
import logging
from typing import Any

import pytest

from penstock.broker.cluster import controlling
from penstock.broker.cluster.controlling import NotControllerError
from penstock.machines.cluster_records import BrokerRegistered, ControllerElected, PartitionImage, decode
from penstock.machines.controller import Controller, CreatedTopic
from penstock.machines.decisions import ControllerDecision, Refused
from penstock.machines.groups.sharding import OFFSETS_TOPIC
from penstock.metadata.memory import SharedMetadata
from penstock.metadata.store import Member, OutcomeUnknownError, StoreError
from penstock.protocol.error_codes import ErrorCode
from penstock.testing import Cluster
from tests.broker.cluster.site import GatedStore, Site, create_topic, sites
from tests.broker.harness import Node, create_topics, in_loop, turns, until, without_sendfile
from tests.broker.members import commit, committed, with_groups


def names(*made: Site) -> set[str]:
    """The topics, which all brokers agree on."""
    found = [set(site.cluster.image.topics) for site in made]
    assert all(topics == found[0] for topics in found)
    return found[0]


# Deciding and writing


@in_loop
async def test_a_change_is_in_the_store_before_it_is_in_any_image() -> None:
    async with sites() as [site]:
        site.store.gate.clear()
        creating = asyncio.create_task(site.create("orders"))
        await turns()
        assert "orders" not in site.cluster.image.topics
        assert site.told == []
        site.store.gate.set()
        assert (await creating).name == "orders"
        assert "orders" in site.cluster.image.topics
        assert [told.created for told in site.told] == [{"orders"}]


@in_loop
async def test_what_is_refused_leaves_no_trace() -> None:
    async with sites() as [site]:
        before = site.shared.last
        with pytest.raises(Refused) as refused:
            await site.create("no such/name")
        assert refused.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert site.shared.last == before
        assert site.told == []


@in_loop
async def test_what_is_asked_for_while_an_entry_is_written_shares_the_next_one() -> None:
    async with sites() as [site]:
        before = site.shared.last
        site.store.gate.clear()
        creating = [site.controlling.submit(create_topic(f"t{number}")) for number in range(1)]
        await turns()
        creating += [site.controlling.submit(create_topic(f"t{number}")) for number in range(1, 100)]
        await turns()
        assert site.shared.last == before
        site.store.gate.set()
        await asyncio.gather(*creating)
        assert site.shared.last == before + 2
        assert len(names(site)) == 100


@in_loop
async def test_decisions_see_those_before_them_in_the_same_entry() -> None:
    async with sites() as [site]:
        outcomes = await asyncio.gather(
            *(site.controlling.submit(create_topic("orders")) for _ in range(3)), return_exceptions=True
        )
        assert [type(outcome).__name__ for outcome in outcomes] == ["CreatedTopic", "Refused", "Refused"]


@in_loop
async def test_a_refusal_comes_after_what_it_is_for_can_be_seen() -> None:
    async with sites() as [site]:
        site.may_follow.clear()
        first, second = (site.controlling.submit(create_topic("orders")) for _ in range(2))
        await turns()
        assert not first.done()
        assert not second.done()
        site.may_follow.set()
        await first
        with pytest.raises(Refused, match="already exists"):
            await second


@in_loop
async def test_a_change_is_seen_through_though_its_caller_has_gone() -> None:
    async with sites() as [site]:
        site.store.gate.clear()
        creating = asyncio.create_task(site.create("orders"))
        await turns()
        creating.cancel()
        await turns()
        following = asyncio.create_task(site.create("payments"))
        await turns()
        site.store.gate.set()
        await following
        with pytest.raises(asyncio.CancelledError):
            await creating
        assert names(site) == {"orders", "payments"}


@in_loop
async def test_after_a_change_that_the_store_refused_the_next_one_goes_through() -> None:
    async with sites() as [site]:
        site.store.error = StoreError("disk full")
        with pytest.raises(StoreError, match="disk full"):
            await site.create("orders")
        assert names(site) == set()
        site.store.error = None
        await site.create("orders")
        assert names(site) == {"orders"}
        assert site.controlling.controller_epoch == 1


@in_loop
async def test_a_decision_that_breaks_breaks_nothing_else() -> None:
    def broken(controller: Controller) -> ControllerDecision[CreatedTopic]:
        raise ZeroDivisionError

    async with sites() as [site]:
        first = site.controlling.submit(broken)
        second = site.controlling.submit(create_topic("orders"))
        with pytest.raises(ZeroDivisionError):
            await first
        assert (await second).name == "orders"


@in_loop
async def test_what_is_too_large_for_one_entry_becomes_several_and_no_command_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GatedStore, "max_entry_bytes", 50_000)
    async with sites() as [site]:
        before = site.shared.last
        creating = [site.controlling.submit(create_topic(f"t{number}", 9000)) for number in range(5)]
        await asyncio.gather(*creating)
        written = [decode(entry).records for entry in site.shared.entries[before:]]
        assert [len(records) for records in written] == [4, 4, 2]
        assert all(len(entry) <= site.store.max_entry_bytes for entry in site.shared.entries)
        assert len(names(site)) == 5


@in_loop
async def test_a_decision_that_alone_is_too_large_for_one_entry_becomes_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with sites(2) as (controller, other):
        await controller.create("orders", 2000)
        monkeypatch.setattr(GatedStore, "max_entry_bytes", 8 * 1024)
        before = controller.shared.last
        await other.stop()
        await until(lambda: controller.live == {0})
        assert controller.shared.last > before + 1
        assert max(map(len, controller.shared.entries[before:])) <= 8 * 1024
        leaders = [partition.leader for partition in controller.cluster.image.topics["orders"].partitions]
        assert (leaders.count(0), leaders.count(-1)) == (1000, 1000)


# Snapshots


@in_loop
async def test_a_snapshot_that_cannot_be_saved_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(controlling, "SNAPSHOT_EVERY_ENTRIES", 1)

    async def fail(*args: Any) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(GatedStore, "save_snapshot", fail)
    async with sites() as [site]:
        await site.create("orders")
        await until(lambda: "no metadata snapshot" in caplog.text)
        await site.create("payments")
        assert site.shared.snapshot is None


@in_loop
async def test_a_snapshot_is_saved_after_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controlling, "SNAPSHOT_EVERY_BYTES", 10_000)
    async with sites() as [site]:
        await site.create("orders", 10)
        await turns()
        assert site.shared.snapshot is None
        await site.create("many", 5000)
        await until(lambda: site.shared.snapshot is not None)


@in_loop
async def test_a_snapshot_waits_until_the_broker_has_read_what_it_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controlling, "SNAPSHOT_EVERY_ENTRIES", 1)
    shared = SharedMetadata()
    site = Site(shared)
    site.store.read_gate.clear()
    starting = asyncio.create_task(site.start())
    await until(lambda: shared.last == 1)
    await turns()
    assert shared.snapshot is None
    site.store.read_gate.set()
    await starting
    await until(lambda: shared.snapshot is not None)
    await site.stop()


# Taking over and resigning


@in_loop
async def test_election_and_registration_are_one_entry() -> None:
    async with sites() as [site]:
        [entry] = site.shared.entries
        assert [type(record) for record in decode(entry).records] == [ControllerElected, BrokerRegistered]


@in_loop
async def test_there_is_one_controller_and_the_others_say_so() -> None:
    async with sites(3) as made:
        assert [site.controlling.is_controller for site in made] == [True, False, False]
        with pytest.raises(NotControllerError) as refused:
            await made[1].create("orders")
        assert refused.value.code == ErrorCode.NOT_CONTROLLER
        assert not refused.value.outcome_unknown


@in_loop
async def test_another_takes_over_when_the_session_of_a_dead_controller_has_passed() -> None:
    async with sites(3) as (first, second, third):
        await first.create("orders", 3)
        await first.die()
        await until(lambda: second.controlling.is_controller or third.controlling.is_controller)
        new = second if second.controlling.is_controller else third
        await until(lambda: new.live == {1, 2})
        assert new.controlling.controller_epoch == 2
        assert sorted(partition.leader for partition in new.cluster.image.topics["orders"].partitions) == [-1, 1, 2]
        await new.create("payments")
        await until(lambda: "payments" in names(second) and "payments" in names(third))
        assert {site.cluster.image.controller_id for site in (second, third)} == {new.broker_id}


@in_loop
async def test_a_controller_that_stops_lets_another_take_over_at_once() -> None:
    async with sites(2) as (first, second):
        second.store.cut()
        second.store.mend()
        await first.stop()
        await until(lambda: second.controlling.is_controller)
        await until(lambda: second.live == {1})


@in_loop
async def test_what_a_dead_controller_has_written_counts() -> None:
    async with sites(2) as (first, second):
        second.may_follow.clear()
        for number in range(5):
            await first.create(f"t{number}")
        await first.die()
        first.shared.expire(first.store)
        await turns()
        assert not second.controlling.is_controller, "it has not followed yet"
        second.may_follow.set()
        await until(lambda: second.controlling.is_controller)
        await second.create("more")
        assert names(second) == {"t0", "t1", "t2", "t3", "t4", "more"}
        assert second.controlling.controller_epoch == 2, "it has not tried to write before it had read all"


@in_loop
async def test_a_controller_that_was_paused_for_longer_than_its_session_is_fenced_and_resigns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with sites(2) as (zombie, other):
        zombie.store.is_blind = True
        zombie.shared.expire(zombie.store)
        await until(lambda: other.controlling.is_controller)
        assert zombie.controlling.is_controller, "it has not noticed anything yet"
        await other.create("payments")
        with pytest.raises(NotControllerError):
            await zombie.create("orders")
        assert not zombie.controlling.is_controller
        await until(lambda: "resigned as controller" in caplog.text)
        zombie.store.is_blind = False
        await until(lambda: zombie.live == other.live == {0, 1})
        assert names(zombie, other) == {"payments"}


@in_loop
async def test_a_broker_that_has_lost_the_lease_when_it_hears_of_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sites(2) as (controller, slow):
        first, second = asyncio.Event(), asyncio.Event()
        members = GatedStore.members

        async def late(store: GatedStore) -> dict[int, Member]:
            if store is slow.store and not second.is_set():
                first.set()
                await second.wait()
            return await members(store)

        monkeypatch.setattr(GatedStore, "members", late)
        slow.store.is_blind = True
        controller.shared.expire(controller.store)
        await first.wait()
        controller.shared.expire(slow.store)
        await until(lambda: controller.controlling.is_controller and controller.controlling.controller_epoch == 3)
        await controller.create("orders")
        await until(lambda: "orders" in slow.cluster.image.topics)
        second.set()
        slow.store.is_blind = False
        await until(lambda: slow.live == controller.live == {0, 1})
        assert not any(task.done() for task in slow.tasks)


@in_loop
async def test_a_controller_whose_log_has_another_end_resigns_and_takes_over_anew() -> None:
    async with sites() as [site]:
        site.controlling._index += 1
        with pytest.raises(NotControllerError):
            await site.create("orders")
        await until(lambda: site.controlling.is_controller)
        assert site.controlling.controller_epoch == 2
        await site.create("orders")
        assert names(site) == {"orders"}


@pytest.mark.parametrize("arrives", [True, False])
def test_a_controller_that_does_not_know_whether_it_has_written_resigns_and_reads_on(arrives: bool) -> None:
    @in_loop
    async def run() -> None:
        async with sites() as [site]:
            if arrives:
                site.store.cut_at_append(arrives=True)
            else:
                site.store.error = OutcomeUnknownError(site.shared.last + 1)
            with pytest.raises(NotControllerError) as refused:
                await site.create("orders")
            assert refused.value.outcome_unknown
            assert not site.controlling.is_controller
            site.store.error = None
            site.store.mend()
            await until(lambda: site.controlling.is_controller and site.live == {0})
            await site.create("payments")
            assert names(site) == ({"orders", "payments"} if arrives else {"payments"})

    run()


@in_loop
async def test_while_contact_is_doubtful_there_is_no_controller_and_then_the_same_again() -> None:
    async with sites() as [site]:
        site.store.cut()
        await until(lambda: not site.controlling.is_controller)
        with pytest.raises(NotControllerError):
            await site.create("orders")
        site.store.mend()
        await until(lambda: site.controlling.is_controller)
        assert site.controlling.controller_epoch == 2
        await site.create("orders")


@in_loop
async def test_what_waits_when_a_controller_resigns_is_answered() -> None:
    async with sites() as [site]:
        site.store.gate.clear()
        under_way = site.controlling.submit(create_topic("orders"))
        await turns()
        waiting = site.controlling.submit(create_topic("payments"))
        site.store.cut()
        for future, is_unknown in ((under_way, True), (waiting, False)):
            with pytest.raises(NotControllerError) as refused:
                await future
            assert refused.value.outcome_unknown == is_unknown


@in_loop
async def test_what_is_being_decided_when_a_controller_resigns_is_answered() -> None:
    async with sites() as [site]:
        creating = [site.controlling.submit(create_topic(f"t{number}")) for number in range(100)]
        while len(site.controlling._queue) == 100:
            await turns(1)
        assert site.controlling._queue, "some are decided, and some are not"
        site.shared.expire(site.store)
        outcomes = await asyncio.gather(*creating, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {NotControllerError}


@in_loop
async def test_a_lease_that_the_store_cannot_give_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(controlling, "RETRY_SECONDS", 0.001)
    take, errors = GatedStore.take_controller_lease, [StoreError("disk full")]

    async def fail_once(store: GatedStore, broker_id: int) -> int | None:
        if errors:
            raise errors.pop()
        return await take(store, broker_id)

    monkeypatch.setattr(GatedStore, "take_controller_lease", fail_once)
    async with sites() as [site]:
        assert site.controlling.is_controller
    assert "lease cannot be taken" in caplog.text


@in_loop
async def test_what_waits_when_a_controller_stops_is_answered() -> None:
    async with sites() as [site]:
        site.may_follow.clear()
        creating = site.controlling.submit(create_topic("orders"))
        await turns()
        await site.stop()
        with pytest.raises(NotControllerError) as refused:
            await creating
        assert refused.value.outcome_unknown, "the log has it"


# Members


@in_loop
async def test_what_a_lost_broker_led_has_no_leader_until_it_is_back() -> None:
    shared = SharedMetadata()
    async with sites(2, shared) as (controller, other):
        await controller.create("orders", 4)
        await other.die()
        await until(lambda: controller.live == {0})
        partitions = controller.cluster.image.topics["orders"].partitions
        assert sorted(partition.leader for partition in partitions) == [-1, -1, 0, 0]
        back = Site(shared, 1)
        await back.start(was_clean=False)
        await until(lambda: controller.live == {0, 1})
        partitions = controller.cluster.image.topics["orders"].partitions
        assert all(partition.leader == partition.replicas[0] for partition in partitions)
        assert {partition.leader_epoch for partition in partitions if partition.leader == 1} == {2}
        await back.stop()


@in_loop
async def test_a_broker_that_was_shut_down_stays_so_for_the_next_controller() -> None:
    async with sites(3) as (first, second, third):
        epoch = third.registration.broker_epoch
        await first.controlling.change(lambda controller: controller.shut_down_broker(2, epoch))
        await until(lambda: second.live == {0, 1})
        await first.stop()
        await until(lambda: second.controlling.is_controller or third.controlling.is_controller)
        await until(lambda: second.live == {1})


@in_loop
async def test_two_brokers_with_one_address_are_named(caplog: pytest.LogCaptureFixture) -> None:
    async with sites(2) as (controller, _):
        third = Site(controller.shared, 2)
        third.registration._listeners = lambda: {"OTHER": ("127.0.0.1", 9093)}
        await third.start()
        [line] = [record for record in caplog.records if "same address" in record.message]
        assert (vars(line)["broker_ids"], vars(line)["addresses"]) == ([1, 2], ["127.0.0.1:9093"])
        await third.stop()


@in_loop
async def test_a_broker_whose_registration_cannot_be_read_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    async with sites() as [site]:
        stranger = Site(site.shared, 1)
        await stranger.store.open()
        await stranger.store.register(1, b"what is this", folder="another")
        await until(lambda: "a broker cannot be registered" in caplog.text)
        await site.create("orders")
        assert site.live == {0}
        await stranger.store.close()


@in_loop
async def test_who_became_controller_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "penstock"):
        async with sites():
            pass
    [line] = [record for record in caplog.records if record.message == "became controller"]
    assert vars(line)["controller_epoch"] == 1


# Leaders


@in_loop
async def test_leadership_returns_to_a_broker_that_is_back() -> None:
    async with Cluster(brokers=2, storage="memory", default_replication_factor=2) as cluster:
        cluster.create_topic("orders", 2)
        cluster.restart(1)
        cluster.until_leaders()
        assert [cluster.leader_of("orders", index) for index in range(2)] == [0, 0]
        services = cluster.brokers[0]._production().services
        await until(lambda: all(len(each.isr) == 2 for each in services.image.topics["orders"].partitions))
        cluster.clock.advance("5 min")
        await until(lambda: cluster.leader_of("orders", 1) == 1)


@in_loop
async def test_leadership_stays_where_it_is_if_that_is_switched_off() -> None:
    settings = {"auto.leader.rebalance.enable": "false", "default.replication.factor": "2"}
    async with Cluster(2, settings, storage="memory") as cluster:
        cluster.create_topic("orders", 2)
        cluster.restart(1)
        cluster.until_leaders()
        services = cluster.brokers[0]._production().services
        await until(lambda: all(len(each.isr) == 2 for each in services.image.topics["orders"].partitions))
        cluster.clock.advance("5 min")
        cluster.until_leaders()
        assert cluster.leader_of("orders", 1) == 0
        assert cluster.controller == 0


@in_loop
async def test_a_controller_that_is_refused_new_leaders_stays_controller() -> None:
    async with sites() as [site]:

        def refused(controller: Controller) -> ControllerDecision[int]:
            raise Refused(ErrorCode.POLICY_VIOLATION, "not now")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Controller, "balance_leaders", refused)
            assert await site.controlling.balance_leaders() == 0
        assert site.controlling.is_controller


# Internal topics


async def offsets_on_one_broker(configs: dict[str, str]) -> list[Node]:
    """Three brokers, of which the first runs, alone, with a group's offset in a topic of one replica."""
    shared = SharedMetadata()
    alone = {"default.replication.factor": "1", "offsets.topic.num.partitions": "2"}
    nodes = [
        Node({**alone, **configs, "node.id": str(number)}, shared=shared, session_seconds=0.5) for number in range(3)
    ]
    await nodes[0].start()
    client = await with_groups(nodes[0])
    await client.create_topic("orders")
    assert await commit(client, "g", {("orders", 0): 7}) == {ErrorCode.NONE}
    return nodes


def offsets_replicas(node: Node) -> list[PartitionImage]:
    return node.broker.services.image.topics[OFFSETS_TOPIC].partitions


@in_loop
async def test_groups_made_on_one_broker_get_more_replicas_when_brokers_join_and_outlive_the_first() -> None:
    nodes = await offsets_on_one_broker({})
    with without_sendfile():
        try:
            await nodes[0].stop()
            for node in nodes:
                node.configs["default.replication.factor"] = "3"
                await node.start()
            await until(lambda: all(sorted(each.isr) == [0, 1, 2] for each in offsets_replicas(nodes[0])))
            assert [each.replicas[0] for each in offsets_replicas(nodes[0])] == [0, 0]
            assert not any(each.adding for each in offsets_replicas(nodes[0]))
            await nodes[0].kill()
            await until(lambda: all(each.leader in (1, 2) for each in offsets_replicas(nodes[1])))
            leader = nodes[1].broker.services.groups.leader_of("g")
            assert leader is not None
            await until(lambda: nodes[leader].broker.services.groups.committed_offset("g", "orders", 0) is not None)
            assert await committed(await nodes[leader].connect(), "g") == {("orders", 0): 7}
        finally:
            for node in nodes:
                await node.stop()


@pytest.mark.parametrize(
    "configs", [{}, {"offsets.topic.replication.factor": "1", "default.replication.factor": "3"}], ids=["one", "set"]
)
def test_groups_keep_the_replicas_that_the_operator_chose(configs: dict[str, str]) -> None:
    @in_loop
    async def run() -> None:
        nodes = await offsets_on_one_broker({"offsets.topic.replication.factor": "1"} if configs else {})
        with without_sendfile():
            try:
                await nodes[0].stop()
                for node in nodes:
                    node.configs |= configs
                    await node.start()
                # The topic that is created last shows that all before it is decided.
                client = await nodes[0].connect()
                assert (await client.ask(create_topics("last", 1, replication_factor=1), 7)).topics[0].error_code == 0
                assert len(nodes[0].broker.services.image.live_brokers()) == 3
                assert [each.replicas for each in offsets_replicas(nodes[0])] == [(0,), (0,)]
            finally:
                for node in nodes:
                    await node.stop()

    run()
