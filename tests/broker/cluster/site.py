"""Brokers reduced to what they do for the cluster: a store, the image, the controller at work, and a registration."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from penstock.broker.cluster.controlling import Controlling
from penstock.broker.cluster.registration import BrokerRegistration
from penstock.broker.cluster.state import ClusterState
from penstock.broker.config.rules import TableRules
from penstock.broker.config.typed import BrokerConfig
from penstock.machines.cluster import ImageChange
from penstock.machines.controller import Controller, CreatedTopic, TopicDefaults
from penstock.machines.decisions import ControllerDecision
from penstock.metadata.memory import MemoryStore, SharedMetadata
from penstock.metadata.store import Contact
from tests.waiting import until

SESSION_SECONDS = 0.3
"""Short, so that a test can let one pass."""


class GatedStore(MemoryStore):
    """Its appends wait for a gate, or fail, and its reads wait for another; a paused one does not notice that its
    session has passed."""

    def __init__(self, shared: SharedMetadata, session_seconds: float = SESSION_SECONDS) -> None:
        super().__init__(shared, session_seconds)
        self.gate = asyncio.Event()
        self.gate.set()
        self.read_gate = asyncio.Event()
        self.read_gate.set()
        self.error: Exception | None = None
        self.appends = 0
        self.is_blind = False

    async def append(self, controller_epoch: int, index: int, entry: bytes) -> None:
        self.appends += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        await super().append(controller_epoch, index, entry)

    async def wait_for_entries(self, after: int) -> None:
        await super().wait_for_entries(after)
        await self.read_gate.wait()

    async def wait_for_contact(self, known: Contact, session: int) -> None:
        while True:
            await super().wait_for_contact(known, session)
            if not self.is_blind:
                return
            await asyncio.sleep(0.001)


class Site:
    """One broker. What `changed` was called with is in `told`."""

    def __init__(
        self, shared: SharedMetadata, broker_id: int = 0, *, folder: str | None = None, offline_logs: int = 0
    ) -> None:
        self.shared = shared
        self.broker_id = broker_id
        self.store = GatedStore(shared)
        self.told: list[ImageChange] = []
        self.fencings: list[bool] = []
        self.may_follow = asyncio.Event()
        self.may_follow.set()
        self.cluster = ClusterState(self.store, self._changed)
        self.controlling = Controlling(self.store, self.cluster, TableRules(BrokerConfig({})), node_id=broker_id)
        self.registration = BrokerRegistration(
            self.store,
            self.cluster,
            node_id=broker_id,
            folder=folder or f"folder-{broker_id}",
            rack=None,
            listeners=lambda: {"PLAINTEXT": ("127.0.0.1", 9092 + broker_id)},
            fenced=self.fencings.append,
            offline_logs=lambda: offline_logs,
        )
        self.tasks: list[asyncio.Task[None]] = []

    async def _changed(self, change: ImageChange) -> None:
        await self.may_follow.wait()
        self.told.append(change)

    async def start(self, *, was_clean: bool = True) -> None:
        await self.store.open()
        await self.cluster.load()
        await self.registration.register(was_clean=was_clean)
        work = (self.cluster.follow(), self.controlling.run(), self.registration.keep())
        self.tasks = [asyncio.create_task(part) for part in work]
        await self.registration.served()
        self.told.clear()

    async def stop(self) -> None:
        await self._end_tasks()
        await self.controlling.close()
        await self.store.close()

    async def die(self) -> None:
        """Without a word to the store."""
        await self._end_tasks()
        self.store.abandon()

    async def _end_tasks(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.cluster.close()
        self.tasks.clear()

    async def create(self, name: str, partitions: int = 1) -> CreatedTopic:
        return await self.controlling.change(create_topic(name, partitions))

    @property
    def live(self) -> set[int]:
        return {broker.broker_id for broker in self.cluster.image.live_brokers()}


def create_topic(name: str, partitions: int = 1) -> Callable[[Controller], ControllerDecision[CreatedTopic]]:
    topic_id = secrets.token_bytes(16)
    return lambda controller: controller.create_topic(name, topic_id=topic_id, defaults=TopicDefaults(partitions, 1))


@asynccontextmanager
async def sites(count: int = 1, shared: SharedMetadata | None = None) -> AsyncIterator[list[Site]]:
    """Brokers with the numbers from 0 on. The first is the controller."""
    metadata = shared or SharedMetadata()
    made = [Site(metadata, broker_id) for broker_id in range(count)]
    try:
        for site in made:
            await site.start()
        for site in made:
            await until(lambda site=site: site.live == set(range(count)))  # type: ignore[misc]
            site.told.clear()
        yield made
    finally:
        for site in made:
            await site.stop()
