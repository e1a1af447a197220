"""The image of the cluster: it follows the log, is rebuilt from it, and what changed is told once."""

import asyncio
import secrets

import pytest

from penstock.broker.cluster import controlling
from penstock.machines.cluster import ImageChange
from penstock.machines.cluster_records import ProducerIdsAllocated, encode
from penstock.machines.config_changes import ConfigChange, ConfigOperation
from penstock.metadata.memory import SharedMetadata
from penstock.metadata.store import StoreRefusedError
from tests.broker.cluster.site import Site, sites
from tests.broker.harness import in_loop, turns, until


@in_loop
async def test_every_broker_sees_what_the_controller_decided() -> None:
    async with sites(3) as made:
        await made[0].create("orders", 3)
        for site in made:
            await until(lambda site=site: "orders" in site.cluster.image.topics)  # type: ignore[misc]
        assert len({str(site.cluster.image.snapshot()) for site in made}) == 1
        leaders = [partition.leader for partition in made[2].cluster.image.topics["orders"].partitions]
        assert sorted(leaders) == [0, 1, 2], "a topic is spread over the brokers"


@in_loop
async def test_an_index_is_reached_when_the_broker_has_followed_it_and_not_before() -> None:
    async with sites(2) as (controller, other):
        other.may_follow.clear()
        await controller.create("orders")
        index = controller.cluster.index
        reached = other.cluster.reached(index)
        await until(lambda: "orders" in other.cluster.image.topics)
        await turns()
        assert not reached.done()
        other.may_follow.set()
        await reached
        assert other.cluster.reached(index).done()


@in_loop
async def test_the_image_is_rebuilt_from_the_log() -> None:
    shared = SharedMetadata()
    async with sites(shared=shared) as [site]:
        for name in ("orders", "payments"):
            await site.create(name)
        await site.controlling.change(lambda controller: controller.delete_topic("payments"))
        before = site.cluster.image.snapshot()
    again = Site(shared)
    await again.store.open()
    await again.cluster.load()
    assert again.cluster.image.snapshot() == before
    assert set(again.cluster.image.topics) == {"orders"}
    await again.store.close()


@in_loop
async def test_the_image_is_rebuilt_from_a_snapshot_and_what_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controlling, "SNAPSHOT_EVERY_ENTRIES", 4)
    shared = SharedMetadata()
    async with sites(shared=shared) as [site]:
        for number in range(10):
            await site.create(f"t{number}")
        await until(lambda: shared.snapshot is not None and shared.dropped > 0)
        before = site.cluster.image.snapshot()
    again = Site(shared)
    await again.store.open()
    await again.cluster.load()
    assert again.cluster.image.snapshot() == before
    assert again.cluster.snapshot_index > 0
    await again.store.close()


@in_loop
async def test_a_broker_that_was_too_slow_loads_the_snapshot_and_tells_what_it_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controlling, "SNAPSHOT_EVERY_ENTRIES", 2)
    shared = SharedMetadata()
    async with sites(2, shared) as (controller, slow):
        await controller.create("kept", 2)
        await controller.create("gone")
        await until(lambda: "gone" in slow.cluster.image.topics)
        image = slow.cluster.image
        slow.may_follow.clear()
        await controller.create("first")
        await until(lambda: "first" in image.topics)
        slow.told.clear()
        await controller.controlling.change(lambda it: it.delete_topic("gone"))
        created: set[str] = set()
        while shared.dropped <= slow.cluster.index:
            await controller.create(f"t{len(created)}")
            created.add(f"t{len(created)}")
        slow.may_follow.set()
        await until(lambda: created <= image.topics.keys())
        assert slow.cluster.image is image, "components that read the image keep it"
        await slow.cluster.reached(controller.cluster.index)
        assert image.snapshot() == controller.cluster.image.snapshot()
        told = ImageChange()
        for change in slow.told:
            told.merge(change)
        assert set(told.deleted) == {"gone"}
        assert created <= told.created
        assert "kept" not in told.created


@in_loop
async def test_a_snapshot_that_is_saved_while_the_image_is_loaded_is_loaded_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controlling, "SNAPSHOT_EVERY_ENTRIES", 2)
    async with sites() as [site]:
        again = Site(site.shared, 1)
        await again.store.open()
        entries = again.store.entries

        async def late(after: int) -> list[tuple[int, bytes]]:
            number = 0
            while site.shared.dropped <= after and again.cluster.snapshot_index == 0:
                await site.create(f"t{number}")
                number += 1
            return await entries(after)

        again.store.entries = late  # type: ignore[method-assign]
        await again.cluster.load()
        assert again.cluster.snapshot_index > 0
        assert again.cluster.image.snapshot() == site.cluster.image.snapshot()
        await again.store.close()


@in_loop
async def test_every_change_says_what_it_is_about() -> None:
    async with sites() as [site]:
        change = site.controlling.change
        await site.create("orders")
        await change(lambda controller: controller.create_partitions("orders", 3))
        topic_id = site.cluster.image.topics["orders"].topic_id
        retention = ConfigChange("retention.ms", ConfigOperation.SET, "1000")
        await change(lambda controller: controller.change_configs("topic", "orders", [retention]))
        for_all = ConfigChange("log.retention.ms", ConfigOperation.SET, "1000")
        await change(lambda controller: controller.change_configs("cluster", "", [for_all]))
        await change(lambda controller: controller.allocate_producer_ids(5))
        await change(lambda controller: controller.delete_topic("orders"))
        assert [told.created for told in site.told] == [{"orders"}, set(), set(), set(), set(), set()]
        assert [told.partitions.get(topic_id) for told in site.told] == [{0}, {1, 2}, None, None, None, None]
        assert [told.configured for told in site.told] == [set(), set(), {"orders"}, set(), set(), set()]
        assert [told.configs for told in site.told] == [False, False, False, True, False, False]
        assert [set(told.deleted) for told in site.told] == [set(), set(), set(), set(), set(), {"orders"}]


@in_loop
async def test_a_record_of_a_newer_penstock_ends_the_following_with_what_to_do() -> None:
    async with sites() as [site]:
        site.shared.entries.append(b"nothing that was ever written")
        site.shared.table.changes.wake()
        with pytest.raises(StoreRefusedError, match="metadata"):
            await site.tasks[0]
    again = Site(site.shared)
    await again.store.open()
    with pytest.raises(StoreRefusedError, match="metadata"):
        await again.cluster.load()
    await again.store.close()


@in_loop
async def test_an_entry_in_the_wrong_place_is_not_taken_in() -> None:
    async with sites() as [site]:
        site.shared.entries.append(site.shared.entries[-1])
        site.shared.table.changes.wake()
        with pytest.raises(StoreRefusedError, match=r"where entry 2 .* is expected .* written as entry 1"):
            await site.tasks[0]


@in_loop
async def test_an_entry_of_a_former_controller_after_its_successors_is_not_taken_in() -> None:
    async with sites() as [site]:
        before = site.cluster.index
        late = encode([ProducerIdsAllocated(1000)], controller_epoch=0, index=site.shared.last + 1)
        site.shared.entries.append(late)
        site.shared.table.changes.wake()
        with pytest.raises(StoreRefusedError, match="of controller epoch 0, after entries of controller epoch 1"):
            await site.tasks[0]
        assert (site.cluster.index, site.cluster.image.next_producer_id) == (before, 0)


@in_loop
async def test_a_broker_alone_goes_on_with_the_metadata_of_an_earlier_folder() -> None:
    shared = SharedMetadata(broker_epoch=7, controller_epoch=3)
    shared.entries += [
        (
            b'{"penstock":"0.1.0","records":[{"type":"broker","broker_id":0,"broker_epoch":7,"host":"h","port":9092,'
            b'"rack":null,"version":1}]}'
        ),
        (
            b'{"penstock":"0.1.0","records":[{"type":"topic","topic_id":"AAECAwQFBgcICQoLDA0ODw==","name":"orders",'
            b'"configs":{},"version":1},{"type":"partition","topic_id":"AAECAwQFBgcICQoLDA0ODw==","partition":0,'
            b'"replicas":[0],"isr":[0],"elr":[],"leader":0,"leader_epoch":2,"partition_epoch":3,"version":1}]}'
        ),
    ]
    async with sites(shared=shared) as [site]:
        [partition] = site.cluster.image.topics["orders"].partitions
        assert (partition.leader, partition.leader_epoch) == (0, 2)
        assert site.cluster.image.controller_epoch == 4
        await site.create("payments")
    async with sites(shared=shared) as [again]:
        assert set(again.cluster.image.topics) == {"orders", "payments"}


@in_loop
async def test_following_goes_on_after_contact_was_lost() -> None:
    async with sites(2) as (controller, other):
        other.store.cut()
        await until(lambda: other.fencings == [True])
        await controller.create("orders")
        other.store.mend()
        await until(lambda: "orders" in other.cluster.image.topics)


@in_loop
async def test_what_waits_for_the_log_ends_with_the_broker() -> None:
    async with sites() as [site]:
        reached = site.cluster.reached(1000)
        await site.stop()
        with pytest.raises(asyncio.CancelledError):
            await reached


@in_loop
async def test_topic_ids_are_drawn_that_no_topic_has(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sites() as [site]:
        taken = (await site.create("orders")).topic_id
        drawn = iter([taken, bytes(15) + b"1", b"f" * 16])
        monkeypatch.setattr(secrets, "token_bytes", lambda size: next(drawn))
        assert site.cluster.draw_topic_id() == b"f" * 16
