"""The image of the cluster: changed through the store, and rebuilt from it."""

import asyncio
import secrets
from collections.abc import Callable

import pytest

from penstock.broker import cluster_state
from penstock.broker.cluster_state import ClusterState, NotControllerError
from penstock.broker.config.rules import TableRules
from penstock.broker.config.typed import BrokerConfig
from penstock.machines.config_changes import ConfigChange, ConfigOperation
from penstock.machines.controller import Controller, CreatedTopic, TopicDefaults
from penstock.machines.decisions import Decision, Refused
from penstock.metadata.memory import MemoryStore, SharedMetadata
from penstock.metadata.store import StoreError
from penstock.protocol.error_codes import ErrorCode
from tests.broker.harness import in_loop, turns


class GatedStore(MemoryStore):
    """Its appends wait for a gate, or fail."""

    def __init__(self, shared: SharedMetadata | None = None) -> None:
        super().__init__(shared)
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def append(self, controller_epoch: int, index: int, entry: bytes) -> None:
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        await super().append(controller_epoch, index, entry)


class Setting:
    def __init__(self, shared: SharedMetadata | None = None) -> None:
        self.shared = shared or SharedMetadata()
        self.store = GatedStore(self.shared)
        self.told: list[set[str]] = []
        self.state = ClusterState(self.store, TableRules(BrokerConfig({})), self.told.append)

    async def open(self) -> None:
        await self.store.open()
        epoch = await self.store.register(0, b"")
        await self.state.load(0)
        await self.state.change(
            lambda controller: controller.register_broker(0, broker_epoch=epoch, host="h", port=1, rack=None)
        )
        self.told.clear()

    async def create(self, name: str) -> CreatedTopic:
        return await self.state.change(create_topic(name))


def create_topic(name: str) -> Callable[[Controller], Decision[CreatedTopic]]:
    topic_id = secrets.token_bytes(16)
    return lambda controller: controller.create_topic(name, topic_id=topic_id, defaults=TopicDefaults(1, 1))


@in_loop
async def test_a_change_is_in_the_store_before_it_is_in_the_image() -> None:
    setting = Setting()
    await setting.open()
    setting.store.gate.clear()
    creating = asyncio.create_task(setting.create("orders"))
    await turns()
    assert "orders" not in setting.state.image.topics
    assert setting.told == []
    setting.store.gate.set()
    assert (await creating).name == "orders"
    assert "orders" in setting.state.image.topics
    assert setting.told == [{"orders"}]


@in_loop
async def test_what_is_refused_leaves_no_trace() -> None:
    setting = Setting()
    await setting.open()
    before = setting.shared.last
    with pytest.raises(Refused) as refused:
        await setting.create("no such/name")
    assert refused.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert setting.shared.last == before
    assert setting.told == []


@in_loop
async def test_changes_are_decided_one_after_the_other() -> None:
    setting = Setting()
    await setting.open()
    outcomes = await asyncio.gather(*(setting.create("orders") for _ in range(3)), return_exceptions=True)
    assert [type(outcome).__name__ for outcome in outcomes] == ["CreatedTopic", "Refused", "Refused"]


@in_loop
async def test_a_change_is_seen_through_though_nobody_waits_for_it_any_more() -> None:
    setting = Setting()
    await setting.open()
    setting.store.gate.clear()
    creating = asyncio.create_task(setting.create("orders"))
    await turns()
    creating.cancel()
    await turns()
    following = asyncio.create_task(setting.create("payments"))
    await turns()
    setting.store.gate.set()
    await following
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert set(setting.state.image.topics) == {"orders", "payments"}


@in_loop
async def test_after_a_change_that_the_store_refused_the_next_one_goes_through() -> None:
    setting = Setting()
    await setting.open()
    setting.store.error = StoreError("disk full")
    with pytest.raises(StoreError, match="disk full"):
        await setting.create("orders")
    assert "orders" not in setting.state.image.topics
    setting.store.error = None
    await setting.create("payments")
    assert set(setting.state.image.topics) == {"payments"}


@in_loop
async def test_the_image_is_rebuilt_from_the_log() -> None:
    setting = Setting()
    await setting.open()
    for name in ("orders", "payments"):
        await setting.create(name)
    await setting.state.change(lambda controller: controller.delete_topic("payments"))
    await setting.store.close()
    again = Setting(setting.shared)
    await again.store.open()
    await again.state.load(0)
    assert again.state.image.snapshot() == setting.state.image.snapshot()
    assert set(again.state.image.topics) == {"orders"}


@in_loop
async def test_the_image_is_rebuilt_from_a_snapshot_and_what_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_state, "SNAPSHOT_EVERY_ENTRIES", 4)
    setting = Setting()
    await setting.open()
    for number in range(10):
        await setting.create(f"t{number}")
    assert setting.shared.snapshot is not None
    assert setting.shared.dropped > 0
    await setting.store.close()
    again = Setting(setting.shared)
    await again.store.open()
    await again.state.load(0)
    assert again.state.image.snapshot() == setting.state.image.snapshot()
    await again.create("one-more")
    assert len(again.state.image.topics) == 11


@in_loop
async def test_a_snapshot_that_cannot_be_saved_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_state, "SNAPSHOT_EVERY_ENTRIES", 1)
    setting = Setting()

    async def fail(index: int, data: bytes) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(setting.store, "save_snapshot", fail)
    await setting.open()
    assert (await setting.create("orders")).name == "orders"
    assert setting.shared.snapshot is None


@in_loop
async def test_a_second_broker_is_told_that_another_one_decides() -> None:
    setting = Setting()
    await setting.open()
    other = Setting(setting.shared)
    await other.store.open()
    with pytest.raises(NotControllerError, match="lease"):
        await other.state.load(1)


@in_loop
async def test_every_change_names_the_topics_that_it_is_about() -> None:
    setting = Setting()
    await setting.open()
    state = setting.state
    await setting.create("orders")
    await setting.create("payments")
    await state.change(lambda controller: controller.create_partitions("orders", 3))
    change = ConfigChange("retention.ms", ConfigOperation.SET, "1000")
    await state.change(lambda controller: controller.change_configs("topic", "orders", [change]))
    for_all = ConfigChange("log.retention.ms", ConfigOperation.SET, "1000")
    await state.change(lambda controller: controller.change_configs("cluster", "", [for_all]))
    await state.change(lambda controller: controller.allocate_producer_ids(5))
    await state.change(lambda controller: controller.delete_topic("orders"))
    assert setting.told == [
        {"orders"},
        {"payments"},
        {"orders"},
        {"orders"},
        {"orders", "payments"},
        set(),
        {"orders"},
    ]
