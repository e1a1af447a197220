"""The stage is the broker that mutated frames are sent to: in this process, in memory, with ten topics and some groups,
and with an honest client beside them."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.config.typed import BrokerConfig
from penstock.broker.network import sender as sending
from penstock.broker.network.call import Call
from penstock.broker.router import Route
from penstock.broker.services import Services
from penstock.metadata.memory import MemoryStore
from penstock.protocol.compression import Codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import NewRecord, build
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.schemas.groups import (
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from penstock.protocol.schemas.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from penstock.storage.files.memory import MemoryFiles
from tests.broker.harness import NOW_MS, produce_request, produced
from tools.fuzz_frames import names
from tools.fuzz_frames.honest_client import HonestClient, expect
from tools.fuzz_frames.memory_transport import MemoryTransport
from tools.fuzz_frames.problems import Problems
from tools.fuzz_frames.warp_loop import WarpClock, WarpLoop

TURNS_AFTER: Final = 4
CONFIGS: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "log.dirs": "/data",
    "offsets.topic.num.partitions": "4",
    # The larger a file in memory is, the more it takes in advance when it grows.
    "offsets.topic.segment.bytes": "65536",
    "group.initial.rebalance.delay.ms": "0",
    "group.max.session.timeout.ms": "86400000",
    # It would take memory at times that no frame has to do with.
    "log.cleaner.enable": "false",
}
# What the topic of the honest client has must not follow from configs that others may change.
HONEST_CONFIGS: Final = {"max.message.bytes": "100000", "retention.ms": "-1", "retention.bytes": "-1"}
SESSION_MS: Final = 86_400_000

Reached = Callable[[int, int], None]


class Ids:
    """What a broker draws by chance, in an order that is known."""

    def __init__(self) -> None:
        self._count = 0
        self.topics: list[bytes] = []
        self.members: list[str] = []

    def _next(self) -> int:
        self._count += 1
        return self._count

    def topic_id(self) -> bytes:
        return self.topics.pop() if self.topics else b"drawn\0\0\1" + self._next().to_bytes(8, "big")

    def member_id(self) -> str:
        return self.members.pop() if self.members else f"drawn-{self._next()}"

    def session_id(self) -> int:
        return self._next()


class CountingFiles(MemoryFiles):
    """Files in memory that say how many bytes were written to them."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    def pwritev(self, fd: int, buffers: Sequence[Any], position: int) -> int:
        written = super().pwritev(fd, buffers, position)
        self.written += written
        return written


class FuzzedBroker(Broker):
    """A broker that reports which handlers are reached, and draws ids that are the same in every run."""

    def __init__(self, config: BrokerConfig, reached: Reached, ids: Ids, **options: Any) -> None:
        super().__init__(config, **options)
        self._reached = reached
        self._ids = ids

    async def start(self) -> None:
        await super().start()
        services, ids = self.services, self._ids
        services.routes.update({key: _counting(route, self._reached) for key, route in services.routes.items()})
        services.cluster.draw_topic_id = ids.topic_id  # type: ignore[method-assign]
        services.draw_member_id = ids.member_id  # type: ignore[method-assign]
        services.draw_session_id = ids.session_id  # type: ignore[method-assign]


def _counting(route: Route, reached: Reached) -> Route:
    key, handler, quick = route.api.key, route.handler, route.quick

    def counted(services: Services, call: Call, request: Any) -> Any:
        reached(key, call.version)
        return handler(services, call, request)

    def counted_quick(services: Services, call: Call) -> bool:
        assert quick is not None
        took = quick(services, call)
        if took:
            reached(key, call.version)
        return took

    return replace(route, handler=counted, quick=None if quick is None else counted_quick)


class Stage:
    """`await Stage.open(…)` has what `names` lists; `send` it frames, and `close` it."""

    def __init__(
        self, broker: FuzzedBroker, files: CountingFiles, loop: WarpLoop, ids: Ids, problems: Problems
    ) -> None:
        self.broker = broker
        self.files = files
        self.loop = loop
        self.problems = problems
        self.honest = HonestClient(broker)
        self._ids = ids
        self._transport: MemoryTransport | None = None
        self._topics = self._partitions = 0

    @classmethod
    async def open(cls, loop: WarpLoop, reached: Reached, problems: Problems) -> "Stage":
        ids = Ids()
        files = CountingFiles()
        broker = FuzzedBroker(
            BrokerConfig.parse(CONFIGS), reached, ids, clock=WarpClock(loop), files=files, store=MemoryStore()
        )
        # The operating system cannot send from files that it does not know.
        sending.SENDFILE_FROM_BYTES = 1 << 62
        await broker.start()
        loop.is_busy = lambda: broker.upkeep.flushing.is_busy
        # All connections are in memory.
        await broker.listener.stop_listening()
        stage = cls(broker, files, loop, ids, problems)
        await stage._furnish()
        stage._topics, stage._partitions = len(broker.services.image.topics), len(broker.services.partitions)
        return stage

    async def close(self) -> None:
        self.loop.is_busy = lambda: False
        await self.broker.stop()

    async def send(self, data: bytes) -> int:
        """Deliver a frame and let the broker deal with it; returns how many bytes it answered with. The connection is
        kept as long as the broker keeps it and owes nothing on it."""
        transport = self._transport
        if transport is None:
            transport = self._transport = MemoryTransport(self.loop, keeps=False).open(self.broker)
        transport.reply_bytes = 0
        transport.deliver(data)
        is_answered = await transport.settled()
        if transport.is_closing() or not is_answered or transport.connection.unfinished_for(self.loop.time() + 1) > 0:
            transport.abort()
            self._transport = None
        # What it has left to be done is done in its time.
        for _ in range(TURNS_AFTER):
            await asyncio.sleep(0)
        return transport.reply_bytes

    def failures(self) -> list[str]:
        """What does not work any more: the disk, partitions, coordinators."""
        broker = self.broker
        partitions = [
            f"{each.name} is offline: {each.log.failure}"
            for each in broker.services.partitions.all()
            if each.log.failure
        ]
        partitions += [
            f"{topic}-{index} is offline: {why}" for (topic, index), why in broker.services.partitions.failed.items()
        ]
        states = [
            f"a coordinator is {each.state.name}" for each in broker.services.groups.shards() if each.machine is None
        ]
        return [*filter(None, [broker.failure]), *partitions, *states]

    @property
    def is_changed(self) -> bool:
        """Whether frames have made or deleted enough topics to make this another broker."""
        broker = self.broker
        return (
            abs(len(broker.services.image.topics) - self._topics) > 3
            or len(broker.services.partitions) - self._partitions > 30
        )

    async def _furnish(self) -> None:
        ask = self.honest.ask
        self._ids.topics = [*reversed(names.TOPIC_IDS), names.HONEST_TOPIC_ID]
        await self._create(names.HONEST_TOPIC, 1, HONEST_CONFIGS)
        await self._start_threads()
        configs = {
            names.COMPACTED: {"cleanup.policy": "compact"},
            names.STAMPED: {"message.timestamp.type": "LogAppendTime"},
        }
        for name in names.TOPICS:
            await self._create(name, names.PARTITIONS, configs.get(name, {}))
        for number, name in enumerate(names.TOPICS):
            for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
                records = [
                    NewRecord(b"value %d" % each, b"key %d" % (each % 7), (), NOW_MS + each) for each in range(20)
                ]
                request = produce_request(name, build(records, codec=codec), partition=number % names.PARTITIONS)
                expect("the furnishing", produced(await ask(request, 12)).error_code, ErrorCode.NONE)
        # Groups have a topic as soon as the first of them is asked for.
        await ask(FindCoordinatorRequest(key=names.HONEST_GROUP), 3)
        for group in names.GROUPS:
            await self._commit(group)
        for group, member in [
            (names.HONEST_GROUP, names.HONEST_MEMBER),
            *((each, names.MEMBER) for each in names.GROUPS[:-1]),
        ]:
            await self._join(group, member)

    async def _start_threads(self) -> None:
        """Those that the first request would start that needs one: their memory is not that request's."""
        await self.loop.run_in_executor(None, int)
        self._ids.topics.append(b"short-lived\0\0\0\0\1")
        await self._create("short-lived", 1, {})
        await self.honest.ask(DeleteTopicsRequest(topic_names=["short-lived"], timeout_ms=1000), 5)

    async def _create(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        response = await self.honest.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
        expect("the furnishing", response.topics[0].error_code, ErrorCode.NONE)

    async def _commit(self, group: str) -> None:
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in range(names.PARTITIONS)
        ]
        topics = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name in names.TOPICS[:2]]
        response = await self.honest.ask(OffsetCommitRequest(group_id=group, topics=topics), 8)
        expect("the furnishing", response.topics[0].partitions[0].error_code, ErrorCode.NONE)

    async def _join(self, group: str, member: str) -> None:
        self._ids.members = [member.removeprefix("honest-")]
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")
        joining = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            protocol_type="consumer",
            protocols=[protocol],
        )
        joined = await self.honest.ask(joining, 3)
        expect("the furnishing", joined.error_code, ErrorCode.NONE)
        assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"assigned")
        syncing = SyncGroupRequest(
            group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assignment]
        )
        synced = await self.honest.ask(syncing, 3)
        expect("the furnishing", synced.error_code, ErrorCode.NONE)
