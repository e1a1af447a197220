"""The clients of a simulation, all of them the SDK's: producers, readers of everything, a group, and an operator."""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

from penstock.client import Admin, Consumer, Producer
from penstock.client.cluster.cluster import Route, Terms
from penstock.client.errors import ClientError
from penstock.client.metadata import TopicPartition
from penstock.protocol.schemas.topics import ElectLeadersRequest
from tools.simulate.brokers.ledger import TOPIC, Sent
from tools.simulate.brokers.machine import START_MS

if TYPE_CHECKING:
    from tools.simulate.brokers.world import World

GROUP: Final = "readers"
MAX_UNANSWERED: Final = 12


class ProducerClient:
    """Sends until it is told to end; each message once, as far as the application is concerned."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self._pending: list[asyncio.Task[None]] = []

    async def run(self, messages: int) -> None:
        world, random = self.world, self.world.random
        async with Producer(
            world.bootstrap,
            client_id=self.name,
            request_timeout_ms=random.choice([3_000, 30_000]),
            delivery_timeout_ms=random.choice([20_000, 120_000]),
            linger_ms=random.choice([0, 5]),
        ) as producer:
            for number in range(messages):
                self._send(producer, number)
                if len(self._pending) >= MAX_UNANSWERED or random.random() < 0.3:
                    await self._settle(0 if random.random() < 0.3 else MAX_UNANSWERED // 2)
                await asyncio.sleep(random.choice([0.0, 0.0, 0.0, 0.01, 0.1, 0.5]) * world.pace)
            await self._settle(0)

    def _send(self, producer: "Producer[Any, Any]", number: int) -> None:
        world, random = self.world, self.world.random
        partition = random.randrange(world.partitions)
        size = random.choice([0, 20, 200, 200, 30_000])
        value = f"{self.name}:{number}:".encode() + b"x" * size
        sent = Sent(self.name, partition, number, value)
        world.ledger.send(sent)
        future = producer.send(TOPIC, value, partition=partition, timestamp_ms=START_MS + int(world.loop.time() * 1000))
        self._pending.append(asyncio.ensure_future(self._note(sent, future)))

    async def _note(self, sent: Sent, future: Awaitable[Any]) -> None:
        try:
            where = await future
        except ClientError as error:
            self.world.note(self.name, f"{sent.number} to {sent.partition} failed: {error}")
            self.world.reach("a producer gave a message up")
            return
        self.world.note(self.name, f"{sent.number} is at {sent.partition}@{where.offset}")
        self.world.ledger.was_acknowledged(sent, where.offset)

    async def _settle(self, most: int) -> None:
        while len(self._pending) > most:
            await self._pending.pop(0)


class ReaderClient:
    """Reads every partition from its beginning, without a group. `positions` is what comes next. Now and then it is
    away, and what comes next may be deleted meanwhile."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.positions: dict[int, int] = {}
        self.found: list[dict[int, bytes]] = [{} for _ in range(world.partitions)]

    async def run(self) -> None:
        while True:
            try:
                async with Consumer(
                    {"bootstrap.servers": self.world.bootstrap},
                    client_id=self.name,
                    auto_offset_reset="earliest",
                    request_timeout_ms=5_000,
                    allow_auto_create_topics=False,
                ) as consumer:
                    await consumer.assign([TopicPartition(TOPIC, index) for index in range(self.world.partitions)])
                    for index, offset in self.positions.items():
                        await consumer.seek(TopicPartition(TOPIC, index), offset)
                    while self.world.is_calm or self.world.random.random() > 0.05:
                        for message in await consumer.poll():
                            self._note(message.partition, message.offset, message.value or b"")
                await asyncio.sleep(self.world.random.choice([0.1, 3.0, 9.0]))
            except ClientError as error:
                self.world.note(self.name, f"begins again: {error}")
                await asyncio.sleep(0.5)

    def _note(self, partition: int, offset: int, value: bytes) -> None:
        world = self.world
        world.ledger.was_read(partition, offset, value)
        expected = self.positions.get(partition)
        if offset != (0 if expected is None else expected):
            world.ledger.passed_over(self.name, partition, expected or 0, offset)
        self.positions[partition] = offset + 1
        self.found[partition][offset] = value


class GroupClient:
    """A member of the group: commits what it has read."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name

    async def run(self) -> None:
        world = self.world
        while True:
            try:
                async with Consumer(
                    {"bootstrap.servers": world.bootstrap},
                    TOPIC,
                    client_id=self.name,
                    group_id=GROUP,
                    auto_offset_reset="earliest",
                    enable_auto_commit=False,
                    session_timeout_ms=10_000,
                    heartbeat_interval_ms=2_000,
                    request_timeout_ms=5_000,
                ) as consumer:
                    while True:
                        await self._read(consumer)
            except ClientError as error:
                world.note(self.name, f"begins again: {error}")
                await asyncio.sleep(0.5)

    async def _read(self, consumer: "Consumer[Any, Any, Any]") -> None:
        world = self.world
        messages = await consumer.poll()
        ends: dict[TopicPartition, int] = {}
        for message in messages:
            world.ledger.was_read(message.partition, message.offset, message.value)
            ends[TopicPartition(TOPIC, message.partition)] = message.offset + 1
        if ends:
            await consumer.commit(ends)
            world.reach("a group committed")
            for key, offset in ends.items():
                world.note(self.name, f"committed {key.partition}@{offset}")
                world.ledger.was_committed(key.partition, offset)


class Operator:
    """Changes what operators change, and looks at what the group has committed."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.admin = Admin(
            world.bootstrap, client_id="operator", request_timeout_ms=5_000, default_api_timeout_ms=15_000
        )

    async def run(self) -> None:
        random = self.world.random
        while True:
            await asyncio.sleep(random.choice([0.5, 2.0, 4.0]))
            try:
                await self._act(random.choice(["committed", "committed", "delete", "number", "elect"]))
            except ClientError as error:
                self.world.note("operator", f"was told {error}")

    async def _act(self, what: str) -> None:
        world = self.world
        match what:
            case "committed":
                await self.look_at_committed()
            case "delete":
                await self._delete_records()
            case "number":
                number = world.random.choice(world.numbers_in_sync)
                world.note("operator", f"sets min.insync.replicas to {number}")
                await self.admin.set_configs(TOPIC, {"min.insync.replicas": str(number)})
                world.reach("min.insync.replicas was changed")
            case _:
                world.note("operator", "elects the preferred leaders")
                await self.admin._cluster.request(
                    ElectLeadersRequest(topic_partitions=None, timeout_ms=5_000),
                    to=Route.CONTROLLER,
                    terms=Terms(timeout_ms=10_000),
                )
                world.reach("preferred leaders were elected")

    async def _delete_records(self) -> None:
        world = self.world
        index = world.random.randrange(world.partitions)
        ledger = world.ledger.partitions[index]
        known = max(ledger.acknowledged, default=0)
        offset = world.random.randint(0, known)
        if offset > ledger.deleted_to:
            ledger.deleted_to = offset
            world.note("operator", f"deletes {index} up to {offset}")
            await self.admin.delete_records({TopicPartition(TOPIC, index): offset})
            ledger.gone_to = max(ledger.gone_to, offset)
            world.reach("records were deleted")

    async def look_at_committed(self) -> dict[int, int]:
        ledger = self.world.ledger
        before = [partition.committed for partition in ledger.partitions]
        committed = await self.admin.committed(GROUP)
        found = dict.fromkeys(range(len(before)), -1)
        for key, told in committed.items():
            found[key.partition] = told.offset
        for index, offset in found.items():
            if before[index]:
                ledger.committed_is(index, offset, before[index])
        return found
