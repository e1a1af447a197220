"""Brokers in this process that copy a topic from each other, with a network that can be cut."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from penstock.broker.clock import Clock
from penstock.broker.partitions.partition import Partition
from penstock.machines.cluster import PartitionImage
from penstock.metadata.memory import SharedMetadata
from penstock.protocol.batch import split
from penstock.protocol.error_codes import ErrorCode
from tests.broker.harness import Client, GatedFiles, Node, create_topics, without_sendfile
from tests.waiting import until

TOPIC = "orders"


class Copies:
    """`nodes` have the numbers from 0 on. The first is the controller."""

    def __init__(
        self, count: int, configs: dict[str, str], session_seconds: float, clock: Clock | None, topic: str
    ) -> None:
        self.topic = topic
        shared = SharedMetadata()
        self.nodes = [
            Node(
                {"node.id": str(number), **configs},
                files=GatedFiles(),
                clock=clock,
                shared=shared,
                session_seconds=session_seconds,
            )
            for number in range(count)
        ]
        self._cuts: set[frozenset[int]] = set()

    async def create(self, partitions: int = 1, configs: dict[str, str] | None = None, copies: int = 3) -> None:
        """The topic, once all its replicas are in sync."""
        client = await self.nodes[0].connect()
        request = create_topics(self.topic, partitions, configs, replication_factor=copies)
        [result] = (await client.ask(request, 7)).topics
        assert result.error_code == ErrorCode.NONE, result
        for index in range(partitions):
            await self.until_led(index)
            await until(lambda index=index: self.follow(index))  # type: ignore[misc]

    # What there is

    def image(self, index: int = 0) -> PartitionImage:
        """The partition, as the running broker says that knows most."""
        known = max((node.broker.services.cluster for node in self.running), key=lambda cluster: cluster.index)
        return known.image.topics[self.topic].partitions[index]

    @property
    def running(self) -> list[Node]:
        return [node for node in self.nodes if node._broker is not None]

    def replica(self, number: int, index: int = 0) -> Partition:
        found = self.nodes[number].broker.services.partitions.replica(self.topic, index)
        assert found is not None
        return found

    def replicas(self, index: int = 0) -> list[Partition]:
        return [self.replica(node.broker.node_id, index) for node in self.running]

    def leader(self, index: int = 0) -> int:
        return self.image(index).leader

    def followers(self, index: int = 0) -> list[int]:
        image = self.image(index)
        return [number for number in image.replicas if number != image.leader]

    def led(self, index: int = 0) -> Partition:
        return self.replica(self.leader(index), index)

    def is_led(self, index: int = 0) -> bool:
        """Whether a broker leads, and knows it."""
        leader = self.leader(index)
        if leader < 0 or self.nodes[leader] not in self.running:
            return False
        found = self.nodes[leader].broker.services.partitions.get(self.topic, index)
        return isinstance(found, Partition) and found.leader_epoch == self.image(index).leader_epoch

    def follow(self, index: int = 0) -> bool:
        """Whether all others have fetched from the leader in its epoch."""
        leader = self.led(index).leader
        return all(progress.end_offset >= 0 for progress in leader.followers.values())

    async def until_led(self, index: int = 0) -> None:
        await until(lambda: all(self.topic in node.broker.services.image.topics for node in self.running))
        await until(lambda: self.is_led(index))

    async def until_equal(self, index: int = 0) -> None:
        """Until all brokers that run have what the leader has, and are in sync."""
        await until(lambda: self.is_led(index) and len(self.image(index).isr) == len(self.running))
        await until(lambda: len({contents(replica) for replica in self.replicas(index)}) == 1)

    async def client(self, number: int | None = None) -> Client:
        return await self.nodes[self.leader() if number is None else number].connect()

    # The network

    def cut(self, one: int, others: Iterable[int]) -> None:
        """Between a broker and others, until `mend`."""
        for other in others:
            self._cuts.add(frozenset((one, other)))
            for number, peer in ((one, other), (other, one)):
                broker = self.nodes[number].broker
                for connection in list(broker.listener.connections):
                    if connection.broker is not None and connection.broker.node_id == peer:
                        connection.abort("the test cut the network between two brokers")

    def mend(self) -> None:
        self._cuts.clear()

    async def start(self, number: int) -> None:
        node = self.nodes[number]
        await node.start()
        peers = node.broker.services.peers
        peers._may_reach = lambda other: frozenset((number, other)) not in self._cuts

    async def elect_another(self, index: int = 0) -> int:
        """Wait until the others of a leader that was killed or cut off have another. Returns who led before."""
        before = self.leader(index)
        await until(lambda: self.leader(index) not in (before, -1) and self.is_led(index))
        return before


def contents(replica: Partition) -> bytes:
    """All that is in a log, byte for byte."""
    log, found = replica.log, b""
    offset = log.start_offset
    while offset < log.end_offset:
        located = log.locate(offset, max_bytes=1 << 30, at_least_one=True)
        assert located is not None
        with located:
            data = located.read()
        found += data
        offset = split(memoryview(data))[-1][0].next_offset
    return found


def batches(replica: Partition) -> list[tuple[int, int]]:
    """The first offset and the leader epoch of each batch."""
    return [(header.base_offset, header.leader_epoch) for header, _ in split(memoryview(contents(replica)))]


@asynccontextmanager
async def copying(
    count: int = 3,
    configs: dict[str, str] | None = None,
    *,
    session_seconds: float = 6.0,
    clock: Clock | None = None,
    topic: str = TOPIC,
) -> AsyncIterator[Copies]:
    made = Copies(count, configs or {}, session_seconds, clock, topic)
    with without_sendfile():
        try:
            for number in range(count):
                await made.start(number)
            await until(lambda: all(len(node.broker.services.image.live_brokers()) == count for node in made.nodes))
            yield made
        finally:
            for node in made.nodes:
                assert isinstance(node.files, GatedFiles)
                node.files.gate.set()
            made.mend()
            for node in made.running:
                await node.stop()
