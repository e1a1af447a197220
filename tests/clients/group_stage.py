"""Brokers for groups, programs with members, and what a group has to account for when it is done."""

import asyncio
import itertools
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from penstock.client.admin.group_offsets import group_offsets
from penstock.client.admin.groups import GroupDescription, all_listed, describe_groups, list_groups
from penstock.client.admin.topics import NewTopic, add_partitions, create_topics
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import ClientError, unwrap
from penstock.client.plain.fetch import fetch
from penstock.machines.groups.records import GroupStored, decode
from penstock.machines.groups.sharding import OFFSETS_TOPIC, partition_for
from tests.clients.stage import other_than_controller
from tests.clients.steady_load import SteadyLoad
from tests.system.processes import BrokerProcess, spare_port
from tests.system.supervised import SupervisorProcess, spare_ports
from tools.clients.client import SECONDS
from tools.clients.members import GroupClient, Host, Member, News, Place

T = TypeVar("T")

SESSION_MS: Final = 20_000
"""Long enough for members on a busy machine never to lose it."""
SHORT_SESSION_MS: Final = 2000
"""For those who are to lose it."""
OFFSETS_PARTITIONS: Final = 4
POLL_SECONDS: Final = 0.05
BROKERS: Final = 3
SETTINGS: Final = {
    "group.min.session.timeout.ms": 1000,
    "group.initial.rebalance.delay.ms": 200,
    "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
}
OPTIONS: Final = tuple(text for name, value in SETTINGS.items() for text in ("-X", f"{name}={value}"))


class GroupStage:
    """`with GroupStage() as stage:` has a broker at `stage.bootstrap`, and programs that stay from one test to the
    next. What awaits is run by `stage.run`, in one loop."""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-groups-")
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._hosts: dict[str, list[Host]] = {}
        self._numbers = itertools.count(1)
        self._start_first()
        try:
            self._runner.run(self._open())
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._runner.run(self._stack.aclose())
            self._stop()
        finally:
            self._close()

    def _close(self) -> None:
        self._runner.close()
        self._end()
        self._folder.cleanup()

    async def _open(self) -> None:
        self.news = News()
        self.cluster = await self._stack.enter_async_context(Cluster(self.bootstrap))

    # The broker

    def _start_first(self) -> None:
        self.bootstrap = f"127.0.0.1:{spare_port()}"
        self._start()

    def _start(self) -> None:
        """As it was before, after it went away."""
        self._broker = BrokerProcess(self._data, "--listen", self.bootstrap, *OPTIONS)

    async def restart_coordinator(self, group: str, by: signal.Signals) -> None:
        """Let the broker that coordinates a group end by a signal, and start it again."""
        await asyncio.to_thread(self._restart, by)

    def _restart(self, by: signal.Signals) -> None:
        self._broker.send_signal(by)
        assert self._broker.wait() == (0 if by is signal.SIGTERM else -by)
        assert self._broker.problems() == []
        self._start()

    def _stop(self) -> None:
        assert self._broker.stop() == 0
        assert self._broker.problems() == []

    def _end(self) -> None:
        self._broker.kill()

    @property
    def _data(self) -> Path:
        return Path(self._folder.name) / "data"

    # What is on it

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine)

    def number(self) -> int:
        """Of a group or a member, never the same."""
        return next(self._numbers)

    async def host(self, client: GroupClient, number: int, *, most: int) -> Host:
        """The program for a client's member of that number; of `most` programs, which stay."""
        hosts = [host for host in self._hosts.get(client.name, ()) if not host.is_gone]
        self._hosts[client.name] = hosts
        if number % most >= len(hosts):
            hosts.append(await self._stack.enter_async_context(Host.open(client, self.news)))
        return hosts[number % most]

    @asynccontextmanager
    async def group(self, partitions: int) -> AsyncIterator["Group"]:
        """A group that reads a topic of its own, which is written to all the time."""
        name = f"group-{self.number()}"
        unwrap(await create_topics(self.cluster, [NewTopic(name=name, partitions=partitions)]))
        async with AsyncExitStack() as stack:
            group = Group(self, name, partitions, stack)
            try:
                yield group
            finally:
                await group.disband()


class ClusterGroupStage(GroupStage):
    """Three brokers under one supervisor; `bootstrap` is the address of one that is not the controller."""

    def _start_first(self) -> None:
        self._brokers = SupervisorProcess(self._data, spare_ports(BROKERS), *OPTIONS)
        try:
            self.bootstrap = self._runner.run(other_than_controller(self._brokers.bootstrap.split(",")))
        except BaseException:
            self._close()
            raise

    async def restart_coordinator(self, group: str, by: signal.Signals) -> None:
        listed = all_listed(await list_groups(self.cluster))
        [coordinator] = [each.coordinator for each in listed if each.group == group]
        pid = self._brokers.pids()[coordinator]
        os.kill(pid, by)
        # The supervisor starts another.
        await asyncio.to_thread(self._brokers.wait_for_another, coordinator, pid)

    def _stop(self) -> None:
        assert self._brokers.stop() == 0
        assert self._brokers.errors() == []

    def _end(self) -> None:
        self._brokers.__exit__()


class Group:
    """Its topic has the same name."""

    def __init__(self, stage: GroupStage, name: str, partitions: int, stack: AsyncExitStack) -> None:
        self.name = name
        self.partitions = partitions
        self.members: list[Member] = []
        self.victims: list[Member] = []
        """Those that may have processed what they did not commit."""
        self.load = SteadyLoad(stage.bootstrap, name, partitions)
        self._stage = stage
        self._stack = stack

    # What members do

    async def join(
        self,
        client: GroupClient,
        count: int = 1,
        *,
        apart: bool = False,
        assignor: str = "range",
        session_ms: int = SESSION_MS,
        instances: Sequence[str | None] = (),
        weight: int = 1,
    ) -> list[Member]:
        """Several members of one client, in few programs or each in its own, `apart`."""
        most = count if apart else client.at_once
        joined = []
        for number, instance in zip(range(count), instances or [None] * count, strict=True):
            host = await self._stage.host(client, number, most=most)
            joined.append(await self._join(host, assignor, session_ms, instance, weight))
        return joined

    async def join_victim(
        self, client: GroupClient, *, assignor: str = "range", session_ms: int, instance: str | None = None
    ) -> Member:
        """One whose program is to come to harm."""
        host = await self._stack.enter_async_context(Host.open(client, self._stage.news))
        victim = await self._join(host, assignor, session_ms, instance, weight=1)
        self.victims.append(victim)
        return victim

    async def _join(self, host: Host, assignor: str, session_ms: int, instance: str | None, weight: int) -> Member:
        name = f"{host.client.name}-{self._stage.number()}"
        where = {"bootstrap": self._stage.bootstrap, "group": self.name, "topic": self.name}
        member = await host.join(
            name, **where, assignor=assignor, session_ms=session_ms, instance=instance, weight=weight
        )
        self.members.append(member)
        return member

    async def leave(self, *members: Member) -> None:
        for member in members:
            await member.leave()
        await self.until(lambda: all(member.is_gone for member in members), "they have left")
        for member in members:
            assert member.has_left, self._tell(f"{member.name} should have left")

    async def add_partitions(self, count: int) -> None:
        unwrap(await add_partitions(self._stage.cluster, {self.name: count}))
        self.partitions = self.load.partitions = count

    # What is waited for

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        await self._stage.news.until(condition, lambda: self._tell(f"waited in vain until {what}"))

    async def progress(self, by: int = 100) -> None:
        """Wait until so many more messages are processed."""
        goal = self._processed() + by
        await self.until(lambda: self._processed() >= goal, f"{goal} messages are processed")

    async def balanced(self, among: Sequence[Member] | None = None) -> GroupDescription:
        """Wait until every partition has one owner among those that are there, in their eyes and in the broker's."""
        members = [member for member in self.members if not member.is_gone] if among is None else list(among)
        wanted = list(range(self.partitions))
        deadline = time.monotonic() + SECONDS
        while True:
            await self.until(lambda: sorted(_owned(members)) == wanted, "each partition has one owner")
            described = await self.describe()
            if described is not None and described.state == "Stable":
                told = {each.client_id: [key.partition for key in each.partitions or ()] for each in described.members}
                if told == {member.name: member.owns for member in members}:
                    return described
            assert time.monotonic() < deadline, self._tell(f"the broker sees it otherwise: {described}")
            await asyncio.sleep(POLL_SECONDS)

    async def describe(self) -> GroupDescription | None:
        told = (await describe_groups(self._stage.cluster, [self.name]))[self.name]
        return None if isinstance(told, ClientError) else told

    async def generation(self) -> int:
        """As the broker has stored it last."""
        cluster, offset, generation = self._stage.cluster, 0, -1
        partition = partition_for(self.name, OFFSETS_PARTITIONS)
        while True:
            fetched = await fetch(cluster, OFFSETS_TOPIC, partition, offset)
            for record in fetched.records():
                stored = decode(record.key, record.value)
                if isinstance(stored, GroupStored) and stored.group == self.name:
                    generation = stored.generation
            offset = fetched.next_offset
            if offset >= fetched.high_watermark:
                return generation

    # What it comes to

    async def finish(self) -> int:
        """Let everything be processed, let all leave, and account for it. Tells how many messages were processed by a
        member that could not commit them, and then by another."""
        await asyncio.to_thread(self.load.drain)
        sent = set(self.load.acknowledged)
        ends = Counter(place.partition for place in sent)
        deadline = time.monotonic() + SECONDS
        while (committed := await self._offsets()) != ends:
            assert time.monotonic() < deadline, self._tell(f"committed is {committed}, and the ends are {ends}")
            await asyncio.sleep(POLL_SECONDS)
        staying = [member for member in self.members if not member.is_gone]
        await self.until(lambda: not any(member.uncommitted for member in staying), "all know that they have committed")
        await self.leave(*staying)
        assert await self._offsets() == ends
        processed = Counter(self._all_processed())
        assert set(processed) == sent, self._tell("what was processed is not what was sent")
        self._check_commits()
        return processed.total() - len(processed)

    def _check_commits(self) -> None:
        confirmed = Counter(place for member in self.members for place in member.confirmed)
        twice = [place for place, count in confirmed.items() if count > 1]
        assert not twice, self._tell(f"committed by two: {twice[:10]}")
        for member in self.members:
            if member not in self.victims:
                left = member.uncommitted + member.given_up
                assert not left, self._tell(f"{member.name} did not commit {left[:10]}, and nothing had happened to it")

    async def _offsets(self) -> dict[int, int]:
        told = (await group_offsets(self._stage.cluster, [self.name]))[self.name]
        assert not isinstance(told, ClientError), told
        return {key.partition: each.offset for key, each in told.items()}

    async def disband(self) -> None:
        """Whatever became of it."""
        await asyncio.to_thread(self.load.give_up)
        for member in self.members:
            if not member.is_gone:
                await member.leave()
        staying = [member for member in self.members if member not in self.victims]
        await self.until(lambda: all(member.is_gone for member in staying), "all have left")

    def _processed(self) -> int:
        return sum(len(member.processed) for member in self.members)

    def _all_processed(self) -> list[Place]:
        return [place for member in self.members for place in member.processed]

    def _tell(self, what: str) -> str:
        lines = [f"{what}; {self.name} of {self.partitions} partitions, {len(self.load.acknowledged)} messages sent:"]
        for member in self.members:
            facts = f"owns {member.owns}, processed {len(member.processed)}, committed {len(member.confirmed)}"
            fate = "left" if member.has_left else member.failure or ("gone" if member.host.is_gone else "there")
            lines.append(f"  {member.name} {facts}, refused {member.refusals}, {fate}")
        return "\n".join(lines)


def _owned(members: Sequence[Member]) -> list[int]:
    return [partition for member in members for partition in member.owns]
