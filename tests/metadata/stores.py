"""The metadata stores that the conformance suite runs against, and how each of them is put out of contact."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import ClassVar, Literal

import pytest

from penstock.metadata.memory import MemoryStore, SharedMetadata
from penstock.metadata.remote import RemoteStore, StoreServer
from penstock.metadata.sqlite import SqliteStore
from penstock.metadata.store import MetadataStore
from penstock.metadata.zookeeper import ZookeeperStore
from tests.metadata.remote.proxy import Proxy
from tests.metadata.zookeeper import proxy as zookeeper_proxy
from tools.fuzz_frames.warp_loop import WarpLoop
from tools.zookeeper.ensemble import Ensemble

Point = Literal["request", "answer"]
"""Where contact is lost in an append: before it arrives, or after it was done and before its answer arrives."""


class Stores:
    """One metadata store, which outlives the sessions that are made with it. Tests select by the flags."""

    name: ClassVar[str]
    several_sessions: ClassVar[bool] = True
    """Two sessions at a time, which can be cut off from the store."""
    can_be_lost: ClassVar[bool] = True
    """Contact is lost after a session without a word; otherwise it is doubtful for as long as that lasts."""
    new_loop: ClassVar[type[asyncio.AbstractEventLoop]] = WarpLoop
    session_seconds: ClassVar[float] = 6.0

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._opened: list[MetadataStore] = []

    async def start(self) -> None:
        """Begin before the first session."""

    async def stop(self) -> None:
        for store in self._opened:
            await store.close()

    def make(self) -> MetadataStore:
        """A store that is not open yet."""
        raise NotImplementedError

    async def session(self) -> MetadataStore:
        """An open store, closed in the end."""
        store = self.make()
        await store.open()
        self._opened.append(store)
        return store

    def cut(self, store: MetadataStore) -> None:
        """The process of the store stands still, or its network is gone."""
        raise NotImplementedError

    def mend(self, store: MetadataStore) -> None:
        raise NotImplementedError

    async def append_and_lose(
        self, store: MetadataStore, points: Sequence[Point], epoch: int, index: int, entry: bytes
    ) -> None:
        """Append an entry, and lose contact at these points, one after the other; it comes back each time."""
        raise NotImplementedError


class MemoryStores(Stores):
    name = "memory"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self.shared = SharedMetadata()

    def make(self) -> MemoryStore:
        return MemoryStore(self.shared, self.session_seconds)

    def cut(self, store: MetadataStore) -> None:
        assert isinstance(store, MemoryStore)
        store.cut()

    def mend(self, store: MetadataStore) -> None:
        assert isinstance(store, MemoryStore)
        store.mend()

    async def append_and_lose(
        self, store: MetadataStore, points: Sequence[Point], epoch: int, index: int, entry: bytes
    ) -> None:
        assert isinstance(store, MemoryStore)
        # The answer comes once: after it was lost there is nothing more to lose.
        store.cut_at_append(arrives=points[0] == "answer")
        asyncio.get_running_loop().call_later(self.session_seconds / 2, store.mend)
        await store.append(epoch, index, entry)


class SqliteStores(Stores):
    name = "sqlite"
    several_sessions = False

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self._path = str(request.getfixturevalue("tmp_path") / "metadata")

    def make(self) -> SqliteStore:
        return SqliteStore(self._path)


class RemoteStores(Stores):
    """The store beneath is in memory, so that no thread takes part and time can leap."""

    name = "remote"
    can_be_lost = False

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self._beneath = MemoryStore()
        self.socket = str(request.getfixturevalue("tmp_path") / "store")
        self.server = StoreServer(self._beneath, self.socket)
        self._proxies: dict[MetadataStore, Proxy] = {}

    async def start(self) -> None:
        await self._beneath.open()
        await self.server.open()

    async def stop(self) -> None:
        await super().stop()
        for proxy in self._proxies.values():
            await proxy.close()
        await self.server.close()
        await self._beneath.close()

    def make(self) -> RemoteStore:
        return RemoteStore(self.socket, self.session_seconds)

    async def session(self) -> RemoteStore:
        proxy = Proxy(f"{self.socket}-{len(self._proxies)}", self.socket)
        await proxy.open()
        store = RemoteStore(proxy.path, self.session_seconds)
        self._proxies[store] = proxy
        await store.open()
        self._opened.append(store)
        return store

    def cut(self, store: MetadataStore) -> None:
        self._proxies[store].stall()

    def mend(self, store: MetadataStore) -> None:
        self._proxies[store].go_on()

    async def append_and_lose(
        self, store: MetadataStore, points: Sequence[Point], epoch: int, index: int, entry: bytes
    ) -> None:
        self._proxies[store].lose_appends(points)
        await store.append(epoch, index, entry)

    def lose_nothing(self, store: MetadataStore) -> None:
        self._proxies[store].lose_appends([])


class ZookeeperStores(Stores):
    """Three nodes and real time. Sessions with proxies are short, because their ends are waited for."""

    name = "zookeeper"
    new_loop = asyncio.SelectorEventLoop
    session_seconds = 1.2

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self._ensemble: Ensemble = request.getfixturevalue("ensemble")
        self._connect: str = request.getfixturevalue("connect")
        self._proxies: dict[MetadataStore, zookeeper_proxy.Proxy] = {}
        self._opened_proxies = AsyncExitStack()

    async def stop(self) -> None:
        for proxy in self._proxies.values():
            proxy.speak()
        await super().stop()
        await self._opened_proxies.aclose()

    def make(self) -> ZookeeperStore:
        return ZookeeperStore(self._connect)

    async def session(self) -> ZookeeperStore:
        _, chroot = self._connect.split("/")
        opening = zookeeper_proxy.Proxy.open(self._ensemble.nodes[0].address)
        proxy = await self._opened_proxies.enter_async_context(opening)
        store = ZookeeperStore(f"{proxy.address}/{chroot}", session_seconds=self.session_seconds)
        await store.open()
        self._opened.append(store)
        self._proxies[store] = proxy
        return store

    def cut(self, store: MetadataStore) -> None:
        self._proxies[store].fall_silent()

    def mend(self, store: MetadataStore) -> None:
        self._proxies[store].speak()

    async def append_and_lose(
        self, store: MetadataStore, points: Sequence[Point], epoch: int, index: int, entry: bytes
    ) -> None:
        proxy = self._proxies[store]
        cuts = {("request" if point == "request" else "reply", number) for number, point in enumerate(points)}
        proxy.count()
        proxy.cut_when = lambda side, number: (side, number) in cuts
        try:
            await store.append(epoch, index, entry)
        finally:
            proxy.cut_when = lambda side, number: False


ALL_STORES: list[type[Stores]] = [MemoryStores, SqliteStores, RemoteStores, ZookeeperStores]
STORES_OF_SEVERAL_SESSIONS = [stores for stores in ALL_STORES if stores.several_sessions]
