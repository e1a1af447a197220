"""Holds what a broker in a test stands on over all its restarts: a thread, a port, the data, and the faults. Brokers of
one cluster stand on common ground."""

import socket
import sys
from collections.abc import Callable, Mapping
from tempfile import TemporaryDirectory
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.config.typed import BrokerConfig
from penstock.metadata.memory import MemoryStore, SharedMetadata
from penstock.storage.files import RealFiles
from penstock.testing.clock import Clock
from penstock.testing.disk import ScratchDisk
from penstock.testing.hosting import Host
from penstock.testing.interception import Interception

HOST: Final = "127.0.0.1"


class Ground:
    """What the brokers of one cluster share, from construction to `close`: the thread with its loop, the time, and the
    metadata."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.metadata = SharedMetadata()
        self.host = Host(clock)

    def close(self) -> None:
        self.host.close()


class Stage:
    """Lives from construction to `close`, which comes after that of its ground. The coroutines are for its `host`."""

    def __init__(
        self,
        settings: Mapping[str, str],
        ground: Ground,
        *,
        in_memory: bool,
        may_reach: Callable[[int], bool] = lambda broker_id: True,
    ) -> None:
        self._ground = ground
        self.host = ground.host
        self._may_reach = may_reach
        self._folder = None if in_memory else TemporaryDirectory(prefix="penstock-", ignore_cleanup_errors=True)
        self.disk = _disk(ground.clock, in_memory=in_memory)
        self._port, port = _reserve_port()
        self._settings = {
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "log.dirs": self._folder.name if self._folder is not None else "/data",
            **settings,
        }
        self.kept_address = HOST, port
        self.interception = Interception()
        self.is_refusing = False
        self.broker: Broker | None = None
        self.store: MemoryStore | None = None

    def close(self) -> None:
        """The broker must have been stopped."""
        if self._port is not None:
            self._port.close()
        if self._folder is not None:
            self._folder.cleanup()

    async def start(self) -> None:
        if self.broker is not None:
            return
        config = BrokerConfig.parse(self._settings)
        for endpoint in config.listeners:
            if not endpoint.is_loopback:
                raise ValueError(f"a broker for tests listens on this machine alone, not on {endpoint}")
        session_seconds = config.integer("zookeeper.session.timeout.ms") / 1000
        self.store = MemoryStore(self._ground.metadata, session_seconds)
        broker = Broker(
            config,
            clock=self._ground.clock,
            files=self.disk,
            store=self.store,
            intercept=self.interception.through,
            may_reach=self._may_reach,
        )
        await broker.start()
        if self.is_refusing:
            await broker.listener.stop_listening()
        self.broker = broker

    async def stop(self) -> None:
        broker, self.broker = self.broker, None
        if broker is not None:
            self.interception.stop()
            await broker.stop()

    async def kill(self) -> None:
        broker, self.broker = self.broker, None
        if broker is not None:
            await broker.kill()
            # The clients that waited for a delayed reply are gone, and what it holds may go.
            self.interception.stop()

    async def refuse_connections(self, refuse: bool) -> None:
        if refuse == self.is_refusing:
            return
        self.is_refusing = refuse
        if self.broker is not None:
            if refuse:
                await self.broker.listener.stop_listening()
            else:
                await self.broker.listen()

    async def fill_disk(self, free_bytes: int | None) -> None:
        """Without a number there is just little enough that records are refused."""
        if free_bytes is None:
            reserve = self.broker.services.disk.reserve_bytes if self.broker is not None else 0
            free_bytes = max(0, reserve - 1)
        self.disk.room = free_bytes
        self._look_at_disk()

    async def free_disk(self) -> None:
        self.disk.room = None
        self._look_at_disk()

    def _look_at_disk(self) -> None:
        if self.broker is not None:
            self.broker.services.disk.check()


def _disk(clock: Clock, *, in_memory: bool) -> ScratchDisk:
    if in_memory:
        from penstock.storage.files.memory import MemoryFiles

        return ScratchDisk(MemoryFiles(now_ms=clock.now_ms), syncs=True)
    return ScratchDisk(RealFiles(), syncs=False)


def _reserve_port() -> tuple[socket.socket | None, int]:
    """A port of this machine, and what keeps others from being given it while the broker is down."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((HOST, 0))
    port: int = reserved.getsockname()[1]
    if sys.platform == "linux":
        return reserved, port
    # Elsewhere two sockets cannot have the same address, even if only one of them listens.
    reserved.close()
    return None, port
