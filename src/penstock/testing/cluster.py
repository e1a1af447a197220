"""A cluster of production brokers runs as an object: in one thread of this process, on real sockets, with brokers that
die and come back and a network that can be cut."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

from penstock.broker.broker import Broker as ProductionBroker
from penstock.testing.agreement import missing_controller, missing_leaders, missing_replicas
from penstock.testing.clock import Clock
from penstock.testing.durations import Duration, milliseconds
from penstock.testing.leaping import leap
from penstock.testing.node import Node
from penstock.testing.settings import DEFAULTS, by_name
from penstock.testing.stage import Ground, Stage

R = TypeVar("R")

SESSION_MS: Final = 1000
"""After this time by the cluster's clock a broker that was killed counts as dead, unless the test sets another."""

# Each broker has its own.
_OWN_SETTINGS: Final = (
    "listeners",
    "advertised.listeners",
    "node.id",
    "broker.id",
    "log.dir",
    "log.dirs",
    "zookeeper.connect",
    "penstock.metadata.socket",
    "penstock.metrics.listen",
)
_LOOK_SECONDS: Final = 0.001


class Cluster:
    """`with Cluster() as cluster:` or `async with Cluster() as cluster:`, and any Kafka client connects to
    `cluster.bootstrap`.

    Settings are those of `penstock serve`, the same for all brokers, by their dotted names in a dict or as keywords:
    `Cluster({"num.partitions": 3})`, `Cluster(num_partitions=3)`. Brokers are named by their ids, from 0. Methods
    block until they are done. All brokers have one clock: the others see that one was killed after a second by it, or
    after `cluster.clock.advance("1 s")`. Partitions have three replicas, or as many as there are brokers, unless
    `default_replication_factor` says otherwise.

    Example:
        from penstock.client import Producer

        async with Cluster(brokers=3) as cluster:
            cluster.create_topic("orders", partitions=3)
            cluster.kill(0)
            cluster.clock.advance("1 s")
            cluster.until_leaders()
            print(cluster.controller, cluster.leader_of("orders", 0))
            cluster.start(0)
    """

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        storage: Literal["folder", "memory"] = "folder",
        **configs: object,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster has one broker or more, not {brokers}")
        if storage not in ("folder", "memory"):
            raise ValueError(f'storage is "folder" or "memory", not {storage!r}')
        given = {**by_name(settings or {}), **by_name(configs)}
        for name in given:
            if name in _OWN_SETTINGS:
                raise ValueError(f"each broker of a cluster has a {name} of its own: leave it out")
        defaults = {
            **DEFAULTS,
            # Groups are coordinated by all brokers.
            "offsets.topic.num.partitions": str(brokers),
            "zookeeper.session.timeout.ms": str(SESSION_MS),
        }
        self._settings = {**defaults, **given}
        self._in_memory = storage == "memory"
        self.clock = Clock(self._leap)
        self.brokers = [Node() for _ in range(brokers)]
        self._stages: list[Stage] = []
        self._ground: Ground | None = None
        # Pairs of brokers without a network between them, and brokers without contact to the metadata.
        self._cuts: set[frozenset[int]] = set()
        self._out_of_contact: set[int] = set()

    # Life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._set_up()
        try:
            await asyncio.wrap_future(self._open_ground().host.start(self._start_first()))
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._ground is not None:
                await asyncio.wrap_future(self._ground.host.start(self._stop_all()))
        finally:
            self._tear_down()

    def start(self, broker: int | None = None) -> None:
        """Let a broker serve, or all of them. After `stop` or `kill`: with its data, at its port."""
        if broker is not None:
            self._run(self._start(self._numbered(broker)))
        elif self._ground is not None:
            self._run(self._start_all())
        else:
            self._set_up()
            try:
                self._run(self._start_first())
            except BaseException:
                self.close()
                raise

    def stop(self, broker: int | None = None) -> None:
        """Stop a broker in order, or all of them: it hands over what it leads, what is under way is answered, and
        everything is kept for the next `start`."""
        self._run(self._stop_all() if broker is None else self._stages[self._numbered(broker)].stop())

    def kill(self, broker: int | None = None) -> None:
        """Let a broker die as a process does by kill -9, or all of them. The others see it once its session has passed:
        after a second by the cluster's clock, unless `zookeeper.session.timeout.ms` is another."""
        self._run(self._kill_all() if broker is None else self._stages[self._numbered(broker)].kill())

    def restart(self, broker: int | None = None) -> None:
        """Stop in order, and start again: a broker, or all of them."""
        self.stop(broker)
        self.start(broker)

    def reset(self) -> None:
        """Undo what a test did to it: faults are cleared, the network is mended, and unless all brokers run, in the
        present, they are started anew. The data stays."""
        self._open_ground()
        for node in self.brokers:
            node.faults.clear()
        self.mend()
        if self.clock.lead_ms or any(not node.is_running or node.failure is not None for node in self.brokers):
            self.stop()
            self.clock.set_lead(0)
            self.start()

    def close(self) -> None:
        """Stop, and leave nothing: no thread, no socket, no file."""
        try:
            if self._ground is not None:
                self._run(self._stop_all())
        finally:
            self._tear_down()

    # Where it is, and what is in it

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, running or not, as clients want them. `cluster.brokers[0].bootstrap` is that of
        one."""
        return ",".join(node.bootstrap for node in self.brokers)

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None, **more: object
    ) -> str:
        """Create a topic, with configs by their dotted names in a dict or as keywords (`retention_ms=1000`). Returns
        its name, once all brokers know the topic that can."""
        self._open_ground()
        reachable = self._reachable()
        if not reachable:
            raise RuntimeError("no broker can create a topic: start one, or mend its contact to the metadata")
        self.brokers[min(reachable)].create_topic(name, partitions, configs, **more)
        states = [broker.services.cluster for broker in reachable.values()]

        async def known() -> None:
            for state in states:
                await state.until(lambda image: name in image.topics)

        self._run(known())
        return name

    @property
    def controller(self) -> int | None:
        """The broker that decides for the cluster at the moment, if there is one."""

        def find() -> int | None:
            at_work = [
                (broker.services.controlling.controller_epoch, number)
                for number, broker in self._running().items()
                if broker.services.controlling.is_controller
            ]
            return max(at_work)[1] if at_work else None

        return self._call(find)

    def leader_of(self, topic: str, partition: int = 0) -> int | None:
        """The broker that leads a partition, as the broker says that knows most; None if there is none: the brokers
        that have it are not running."""

        def find() -> int | None:
            known = [broker.services for broker in self._running().values()]
            if not known:
                raise RuntimeError("no broker of the cluster is running: start one")
            image = max(known, key=lambda services: services.cluster.index).image
            found = image.topics.get(topic)
            if found is None or partition not in range(len(found.partitions)):
                raise ValueError(f"there is no partition {partition} of topic {topic!r}")
            leader = found.partitions[partition].leader
            return None if leader < 0 else leader

        return self._call(find)

    # Waiting

    def until_controller(self, timeout: Duration = "30 s") -> int:
        """Wait until a broker is the controller and all know it that are running and in contact with the metadata.
        Returns its id. TimeoutError after that much of real time."""
        self._wait(missing_controller, timeout)
        controller = self.controller
        assert controller is not None
        return controller

    def until_leaders(self, timeout: Duration = "30 s") -> None:
        """Wait until all brokers that are running and in contact with the metadata agree on who is alive and who leads,
        and every partition that has a leader is served. TimeoutError after that much of real time."""
        self._wait(missing_leaders, timeout)

    def until_in_sync(self, timeout: Duration = "30 s") -> None:
        """As `until_leaders`, and until every replica on a broker that is running is in sync with its leader.
        TimeoutError after that much of real time."""
        self._wait(missing_replicas, timeout)

    # The network

    def cut(self, one: int, other: int) -> None:
        """Let no traffic pass between two brokers, until `mend`. Clients reach both, and both reach the metadata."""
        one, other = self._numbered(one), self._numbered(other)
        if one == other:
            raise ValueError(f"a broker cannot be cut off from itself: {one}")

        def cut() -> None:
            self._cuts.add(frozenset((one, other)))
            for number, peer in ((one, other), (other, one)):
                broker = self._stages[number].broker
                for connection in [] if broker is None else list(broker.listener.connections):
                    if connection.broker is not None and connection.broker.node_id == peer:
                        connection.abort("the test cut the network between two brokers")

        self._call(cut)

    def cut_from_metadata(self, broker: int) -> None:
        """Take a broker's contact with the metadata store away, until `mend` or its next `start`."""
        number = self._numbered(broker)

        def cut() -> None:
            store = self._stages[number].store
            if self._stages[number].broker is None or store is None:
                raise RuntimeError(f"broker {number} is not running: start it again")
            self._out_of_contact.add(number)
            store.cut()

        self._call(cut)

    def mend(self) -> None:
        """Undo all cuts."""
        self._call(self._mend)

    # In the thread of the brokers

    def _running(self) -> dict[int, ProductionBroker]:
        return {number: stage.broker for number, stage in enumerate(self._stages) if stage.broker is not None}

    def _reachable(self) -> dict[int, ProductionBroker]:
        """The brokers that take part in what the cluster decides."""
        return {
            number: broker
            for number, broker in self._running().items()
            if number not in self._out_of_contact and broker.failure is None
        }

    async def _start_first(self) -> None:
        """The first of a new cluster is its controller."""
        await self._start(0)
        await self._start_all()

    async def _start_all(self) -> None:
        # Together: one that was killed as the controller takes the lease along when it is back.
        started = await asyncio.gather(*map(self._start, range(len(self._stages))), return_exceptions=True)
        for error in started:
            if error is not None:
                raise error

    async def _start(self, number: int) -> None:
        stage = self._stages[number]
        if stage.broker is None:
            self._out_of_contact.discard(number)
            await stage.start()

    async def _stop_all(self) -> None:
        """The controller last, since each of the others hands over to it. A broker that is out of contact could not."""
        self._mend()
        running = self._running()
        for number in sorted(running, key=lambda each: running[each].services.controlling.is_controller):
            await self._stages[number].stop()

    async def _kill_all(self) -> None:
        for stage in self._stages:
            await stage.kill()

    def _mend(self) -> None:
        self._cuts.clear()
        for number in self._out_of_contact & self._running().keys():
            store = self._stages[number].store
            assert store is not None
            store.mend()
        self._out_of_contact.clear()

    async def _until(self, missing: Callable[[], str | None], seconds: float) -> None:
        # Real time: the loop's may leap meanwhile.
        deadline = time.monotonic() + seconds
        while (what := missing()) is not None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the cluster has not come to rest: {what}")
            await asyncio.sleep(_LOOK_SECONDS)

    # What it stands on

    def _numbered(self, broker: int) -> int:
        self._open_ground()
        if broker not in range(len(self._stages)):
            raise ValueError(f"there is no broker {broker}: the cluster has 0 to {len(self._stages) - 1}")
        return broker

    def _wait(self, missing: Callable[[Mapping[int, ProductionBroker], int], str | None], timeout: Duration) -> None:
        size = len(self.brokers)
        self._run(self._until(lambda: missing(self._reachable(), size), milliseconds(timeout) / 1000))

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            host = self._open_ground().host
        except RuntimeError:
            coroutine.close()
            raise
        host.run(coroutine)

    def _call(self, function: Callable[[], R]) -> R:
        return self._open_ground().host.call(function)

    def _set_up(self) -> None:
        if self._ground is None:
            self._ground = Ground(self.clock)
            for number, node in enumerate(self.brokers):
                node._stage = Stage(
                    {"node.id": str(number), **self._settings},
                    self._ground,
                    in_memory=self._in_memory,
                    may_reach=partial(self._may_reach, number),
                )
                self._stages.append(node._stage)

    def _may_reach(self, one: int, other: int) -> bool:
        return frozenset((one, other)) not in self._cuts

    def _open_ground(self) -> Ground:
        if self._ground is None:
            raise RuntimeError("the cluster is not running: use it within `with Cluster() as cluster:`, or start it")
        return self._ground

    def _tear_down(self) -> None:
        ground, self._ground = self._ground, None
        if ground is not None:
            ground.close()
        stages, self._stages = self._stages, []
        for node in self.brokers:
            node._stage = None
        for stage in stages:
            stage.close()

    def _leap(self, by_ms: int) -> None:
        self._run(leap(list(self._running().values()), self.clock, by_ms))
