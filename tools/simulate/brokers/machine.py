"""A machine is one broker of production over all its processes: it has a disk, starts, stops, stands still, and loses
its power or its disk."""

import asyncio
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from penstock.broker.broker import Broker
from penstock.broker.config.typed import BrokerConfig
from penstock.metadata.memory import MemoryStore
from penstock.metadata.store import StoreError
from penstock.storage.files.memory import Damage, MemoryFiles
from tools.simulate.brokers.loop import SimulatedWorker
from tools.simulate.loop import Owner

if TYPE_CHECKING:
    from tools.simulate.brokers.world import World

PORT: Final = 9092
START_MS: Final = 1_700_000_000_000


class State(Enum):
    DOWN = auto()
    STARTING = auto()
    UP = auto()
    STOPPING = auto()


class MachineClock:
    """Both clocks of a machine run with the simulation; the time of day is wrong by a little."""

    def __init__(self, world: "World", error_ms: int) -> None:
        self._world = world
        self._error_ms = error_ms

    def now_ms(self) -> int:
        return START_MS + self._error_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(self._world.loop.time() * 1000)


class Machine:
    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.number = number
        self.name = f"broker-{number}"
        self.clock = MachineClock(world, world.random.choice([0, 0, -300, 2000]))
        self.files = MemoryFiles(seed=number, now_ms=self.clock.now_ms)
        self.state = State.DOWN
        self.is_paused = False
        self.broker: Broker | None = None
        self.store: MemoryStore | None = None
        self.owner = Owner(self.name, 0)
        # What died stays as it was: its end would run code of a process that is no more.
        self._dead: list[object] = []

    @property
    def is_up(self) -> bool:
        return self.state is State.UP and not self.is_paused

    @property
    def controls(self) -> bool:
        return self.is_up and self.broker is not None and self.broker.services.controlling.is_controller

    # Processes

    def start(self) -> None:
        if self.state is not State.DOWN or self.world.is_over:
            return
        world = self.world
        self.state = State.STARTING
        world.loop.network.machine_is_back(self.name)
        self.owner = world.new_owner(self.name, self._check)
        self.store = MemoryStore(world.shared, world.session_seconds)
        world.note(self.name, "starts")
        world.loop.create_task(self._live(self.owner, self.store), context=self.owner.context())

    async def _live(self, owner: Owner, store: MemoryStore) -> None:
        world = self.world
        broker = Broker(
            BrokerConfig.parse(self._configs()),
            clock=self.clock,
            files=self.files,
            store=store,
            make_worker=lambda name: SimulatedWorker(world.loop),
        )
        try:
            await broker.start()
        except StoreError as error:
            world.note(self.name, f"cannot start: {error!r}")
            self._ended(owner)
            return
        except Exception as error:
            world.problem(f"{self.name} did not start: {error!r}")
            return
        self.broker, self.state = broker, State.UP
        world.note(self.name, "serves")
        await broker.failed.wait()
        if not world.is_over:
            world.problem(f"{self.name} failed: {broker.failure}")

    def _configs(self) -> dict[str, str]:
        return {
            "node.id": str(self.number),
            "listeners": f"PLAINTEXT://{self.name}:{PORT}",
            "log.dirs": "/data",
            **self.world.configs,
        }

    async def stop(self) -> None:
        """In order. The caller waits for it; the broker stops as its own process."""
        broker, owner = self.broker, self.owner
        if self.state is State.UP and broker is not None:
            self.state = State.STOPPING
            self.world.note(self.name, "stops")
            done = self.world.loop.create_task(self._stop(broker, owner), context=owner.context())
            while not done.done() and self.owner is owner and self.state is State.STOPPING:
                await asyncio.sleep(0.05)

    async def _stop(self, broker: Broker, owner: Owner) -> None:
        try:
            await broker.stop()
        except Exception as error:
            self.world.problem(f"{self.name} did not stop: {error!r}")
        self._ended(owner)

    def _ended(self, owner: Owner) -> None:
        """A process has come to its end."""
        if self.owner is owner:
            self.world.note(self.name, "has ended")
            self.world.loop.network.process_died(owner, silently=False)
            self.files.kill_process()
            self.broker, self.state = None, State.DOWN
            self.world.machine_ended(self)

    # Faults

    def crash(self, *, loses_power: bool, damage: Damage, loses_disk: bool = False) -> None:
        """The process ends where it is; without power also what was not synced goes."""
        if self.state is State.DOWN:
            return
        world, random = self.world, self.world.random
        self._dead.append((self.owner, self.broker, self.store))
        world.loop.hold(self.owner)
        self.owner.check = None
        files = self.files
        if loses_disk:
            self.files = MemoryFiles(seed=self.number, now_ms=self.clock.now_ms)
        elif loses_power or files._crashed:
            self.files = files.after_crash(damage, random)
        else:
            self.files = files.copy()
        files._crashed = True
        world.loop.network.process_died(self.owner, silently=loses_power)
        if self.store is not None:
            self.store.abandon()
        self.broker, self.store, self.state, self.is_paused = None, None, State.DOWN, False
        world.machine_ended(self)

    def pause(self) -> None:
        self.is_paused = True
        self.world.loop.hold(self.owner)
        self.cut_store()

    def go_on(self) -> None:
        if self.is_paused:
            self.is_paused = False
            self.world.loop.release(self.owner)
            self.mend_store()

    def cut_store(self) -> None:
        if self.store is not None and self.store._is_open:
            self.store.cut()

    def mend_store(self) -> None:
        if self.store is not None and self.store._is_open and not self.is_paused:
            self.store.mend()

    def _check(self) -> None:
        """After each callback of the process: whether its disk lost power in it."""
        if self.files._crashed:
            self.world.disk_stopped(self)
