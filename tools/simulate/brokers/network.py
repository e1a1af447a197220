"""A network in memory between simulated processes: streams of bytes that are late, cut into pieces, held up one way or
both, and reset. What it carries is a matter of the seed alone."""

import asyncio
import hashlib
import itertools
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tools.simulate.loop import Owner

if TYPE_CHECKING:
    from tools.simulate.brokers.loop import BrokersLoop

# What the operating system keeps of a stream before the sender has to wait.
SOCKET_BYTES: Final = (2_000, 64_000, 1_000_000)
DELAYS: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.003)
LONG_DELAYS: Final = (0.02, 0.1, 0.4)
_END: Final = object()
_RESET: Final = object()


class Network:
    """Hosts go by the names of their owners. `cut` holds what goes from one to another until it is mended."""

    def __init__(self, loop: "BrokersLoop", random: Random) -> None:
        self.loop = loop
        self.random = random
        self.digest = hashlib.blake2b(digest_size=16)
        self.sent_bytes = 0
        self.late_share = 0.0
        self._servers: dict[tuple[str, int], MemoryServer] = {}
        self._cuts: dict[tuple[str, str], None] = {}
        self._down: dict[str, None] = {}
        self._ports = itertools.count(40_000)
        # In the order of their making: sets of objects have another order in each run.
        self.transports: dict[MemoryTransport, None] = {}
        # Connections whose process lost its power: the other end is told when the machine is back.
        self._orphans: dict[str, list[MemoryTransport]] = {}

    # Faults

    def cut(self, source: str, target: str) -> None:
        self._cuts[(source, target)] = None

    def mend(self, source: str, target: str) -> None:
        if self._cuts.pop((source, target), self) is None:
            for transport in list(self.transports):
                if (transport.host, transport.peer_host) == (source, target):
                    transport.carry()
                    transport.forget_if_done()

    def mend_all(self) -> None:
        for source, target in list(self._cuts):
            self.mend(source, target)

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def reset_one(self) -> str | None:
        """Reset a connection; returns which."""
        found = [transport for transport in self.transports if not transport.is_closing()]
        if not found:
            return None
        chosen = self.random.choice(found)
        chosen.abort()
        return f"{chosen.host} and {chosen.peer_host}"

    def process_died(self, owner: Owner, *, silently: bool) -> None:
        """The operating system resets the connections of a process that died; a machine without power says nothing
        until it is back."""
        for address, server in list(self._servers.items()):
            if server.owner is owner:
                del self._servers[address]
        for transport in list(self.transports):
            if transport.owner is owner:
                transport.vanish()
                if transport.other is not None:
                    self._orphans.setdefault(owner.name, []).append(transport)
        if silently:
            self._down[owner.name] = None
        else:
            self.machine_is_back(owner.name)

    def machine_is_back(self, host: str) -> None:
        self._down.pop(host, None)
        for transport in self._orphans.pop(host, []):
            if transport.other is not None:
                transport.send_sign(_RESET)

    # Connections

    def delay(self) -> float:
        if self.random.random() < self.late_share:
            return self.random.choice(LONG_DELAYS)
        return self.random.choice(DELAYS)

    def bind(self, owner: Owner, factory: Callable[[], Any], host: str, port: int) -> "MemoryServer":
        if (host, port) in self._servers:
            raise OSError(98, "address already in use")
        return MemoryServer(self, owner, factory, host, port)

    def listen(self, server: "MemoryServer") -> None:
        self._servers[server.address] = server

    def stop_listening(self, server: "MemoryServer") -> None:
        if self._servers.get(server.address) is server:
            del self._servers[server.address]

    async def connect(
        self, owner: Owner, factory: Callable[[], Any], host: str, port: int
    ) -> "tuple[MemoryTransport, Any]":
        await asyncio.sleep(self.delay())
        if self.is_cut(owner.name, host) or self.is_cut(host, owner.name) or host in self._down:
            # No answer ever comes. The caller has a deadline.
            await self.loop.create_future()
        server = self._servers.get((host, port))
        if server is None:
            raise ConnectionRefusedError(111, "connection refused")
        room = self.random.choice(SOCKET_BYTES)
        near = MemoryTransport(self, owner, owner.name, (host, port), room)
        far = MemoryTransport(self, server.owner, host, (owner.name, next(self._ports)), room)
        near.other, far.other = far, near
        self.transports |= {near: None, far: None}
        self.loop.call_soon(far.begin, server.factory, context=server.owner.context())
        try:
            await asyncio.sleep(self.delay())
        except BaseException:
            near.abort()
            raise
        return near, near.begin(factory)


class MemorySocket:
    """What is asked of a socket."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def fileno(self) -> int:
        return -1

    def setsockopt(self, *_: object) -> None: ...


class MemoryServer:
    def __init__(self, network: Network, owner: Owner, factory: Callable[[], Any], host: str, port: int) -> None:
        self.network = network
        self.owner = owner
        self.factory = factory
        self.address = host, port
        self.sockets = [MemorySocket(self.address)]

    async def start_serving(self) -> None:
        self.network.listen(self)

    def close(self) -> None:
        self.network.stop_listening(self)
        self.sockets = []


class MemoryTransport(asyncio.Transport):
    """One end of a connection. What it writes arrives at the other end in order."""

    def __init__(self, network: Network, owner: Owner, host: str, peer: tuple[str, int], room: int) -> None:
        super().__init__()
        self.network = network
        self.loop = network.loop
        self.owner = owner
        self.host = host
        self.peer_host = peer[0]
        self.other: MemoryTransport | None = None
        self._peer = peer
        self._room = room
        self._protocol: Any = None
        self._context = owner.context()
        self._high, self._low = 64 * 1024, 16 * 1024
        self._is_paused = False
        self._is_closing = self._is_lost = self._is_gone = False
        self._reads = True
        # Written and not on its way yet; on its way; arrived and not read.
        self._held: list[Any] = []
        self._under_way = 0
        self._arrived: list[Any] = []
        self._last_arrival = 0.0
        self._error: Exception | None = None

    def begin(self, factory: Callable[[], Any]) -> Any:
        self._protocol = protocol = factory()
        protocol.connection_made(self)
        if self._is_lost:
            self.loop.call_soon(self._tell_lost, self._error, context=self._context)
        self._read()
        return protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"socket": MemorySocket(self._peer), "peername": self._peer}.get(name, default)

    def vanish(self) -> None:
        """The process is dead: nothing that it writes leaves, and it hears nothing."""
        self._is_gone = self._is_closing = self._is_lost = True
        self.network.transports.pop(self, None)

    # Writing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return max(0, self._under_way - self._room)

    def write(self, data: Any) -> None:
        if self._is_closing or not data:
            return
        self._send(bytes(data))
        if self.get_write_buffer_size() > self._high and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_writing()

    def _send(self, data: bytes) -> None:
        network = self.network
        network.sent_bytes += len(data)
        network.digest.update(f"{self.host} {self.peer_host} {len(data)} ".encode() + data)
        self._under_way += len(data)
        self._held.append(data)
        self.carry()

    def send_sign(self, sign: object) -> None:
        """That the stream is at its end, or reset."""
        if sign is _RESET:
            self._held.clear()
        self._held.append(sign)
        self.carry()

    def carry(self) -> None:
        """Let what was written leave, unless the network is cut."""
        if self.network.is_cut(self.host, self.peer_host) or self.other is None:
            return
        held, self._held = self._held, []
        for part in held:
            self._last_arrival = max(self._last_arrival, self.loop.time() + self.network.delay())
            self.loop.call_at(self._last_arrival, self.other.arrive, part, context=self.other._context)

    # Reading

    def is_reading(self) -> bool:
        return self._reads

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        if not self._reads and not self._is_closing:
            self._reads = True
            if self._arrived:
                self.loop.call_soon(self._read, context=self._context)

    def arrive(self, part: Any) -> None:
        if self._is_gone:
            return
        if part is _RESET:
            self._lose(ConnectionResetError(104, "connection reset by peer"))
            return
        if self._is_lost:
            if part is not _END:
                self.send_sign(_RESET)
            return
        self._arrived.append(part)
        self._read()

    def _read(self) -> None:
        while self._arrived and self._reads and self._protocol is not None and not self._is_closing:
            part = self._arrived.pop(0)
            if part is _END:
                if not self._protocol.eof_received():
                    self.close()
                return
            if self.other is not None:
                self.other.was_read(len(part))
            self._deliver(memoryview(part))

    def _deliver(self, data: memoryview) -> None:
        random = self.network.random
        while data and not self._is_closing:
            if not self._reads:
                self._arrived.insert(0, bytes(data))
                if self.other is not None:
                    self.other._under_way += len(data)
                return
            size = len(data) if random.random() < 0.8 else random.randint(1, len(data))
            buffer = self._protocol.get_buffer(size)
            size = min(size, len(buffer))
            buffer[:size] = data[:size]
            data = data[size:]
            self._protocol.buffer_updated(size)

    def was_read(self, size: int) -> None:
        self._under_way -= size
        if self._is_paused and self.get_write_buffer_size() <= self._low:
            self._is_paused = False
            self.loop.call_soon(self._resume_writing, context=self._context)

    def _resume_writing(self) -> None:
        if not self._is_lost and not self._is_paused:
            self._protocol.resume_writing()

    # The end

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """What was written is sent first."""
        if not self._is_closing:
            self._is_closing = True
            self.send_sign(_END)
            self._lose(None)

    def abort(self) -> None:
        if not self._is_lost:
            self.send_sign(_RESET)
            self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._error = error
        self._arrived.clear()
        self.loop.call_soon(self._tell_lost, error, context=self._context)

    def forget_if_done(self) -> None:
        if self._is_lost and not self._held:
            self.network.transports.pop(self, None)

    def _tell_lost(self, error: Exception | None) -> None:
        self.forget_if_done()
        if self._protocol is not None and not self._is_gone:
            self._protocol.connection_lost(error)
            self._protocol = None
