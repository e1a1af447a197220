"""Brokers of a cluster over ZooKeeper are killed ten times while the SDK writes and reads, and while a streaming query
keeps a Delta table of everything: `make test-spark` runs this (SOAK_SEED=1 draws the kills)."""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from penstock.client.sync import Admin
from penstock.machines.groups.records import OffsetCommitted, decode
from penstock.machines.groups.sharding import OFFSETS_TOPIC
from penstock.protocol.batch import split
from penstock.protocol.records import iterate
from tests.system.processes import Patience
from tests.system.query_process import QueryProcess
from tests.system.sdk_pair import Reader, Sender
from tests.system.zookeeper_cluster import BROKERS, ZookeeperCluster
from tools.zookeeper.ensemble import Ensemble, install

TOPIC, GROUP, QUERY_GROUP = "orders", "billing", "table"
PARTITIONS: Final = 4
READERS: Final = 3
KILLS: Final = 10
SEED: Final = int(os.environ.get("SOAK_SEED", "1"))
SESSION_MS: Final = 6000
"""The default, which is longer than a broker stands still where JVMs and three brokers share two cores."""
PATIENCE_SECONDS: Final = 600.0

pytestmark = pytest.mark.timeout(2400)


class Role(Enum):
    """What the broker is that is killed."""

    LEADER = auto()
    COORDINATOR = auto()
    CONTROLLER = auto()


class Stage:
    """The cluster, and what is connected to it."""

    def __init__(self, cluster: ZookeeperCluster, folder: Path, stack: ExitStack) -> None:
        self.cluster = cluster
        self.sender = Sender(cluster.bootstrap, TOPIC, PARTITIONS)
        self.readers = [Reader(cluster.bootstrap, TOPIC, GROUP, f"reader-{number}") for number in range(READERS)]
        self.query = QueryProcess(
            folder,
            **{
                "kafka.bootstrap.servers": cluster.bootstrap,
                "subscribe": TOPIC,
                "startingOffsets": "earliest",
                "kafka.group.id": QUERY_GROUP,
            },
        )
        for worker in (self.sender, *self.readers):
            stack.callback(worker.is_over.set)
            worker.start()
        stack.callback(self.query.kill)
        self.query.start()
        self.batches = 0
        self.seen: dict[int, int] = {}

    def victim(self, role: Role, chance: random.Random) -> int:
        match role:
            case Role.LEADER:
                return self._leader(TOPIC, chance.randrange(PARTITIONS))
            case Role.COORDINATOR:
                return self._leader(OFFSETS_TOPIC, 0)
            case Role.CONTROLLER:
                return self.cluster.controller()

    def go_on(self, count: int) -> None:
        """Wait until every partition has taken some messages more, members have read and committed some of them in
        every partition, and the table has another batch."""
        ends = self._ends()
        before = len(self.sender.acknowledged)

        def have_moved() -> bool:
            fresh = self.sender.acknowledged[before:]
            return all(sum(each.partition == index for each in fresh) >= count for index in range(PARTITIONS))

        self.wait_for(have_moved, "messages to be acknowledged in every partition")
        self.wait_for(lambda: all(self._committed(index) > end for index, end in ends.items()), "members to follow")
        # The one that is under way may have begun before.
        enough = self._next_batch() + 2
        self.wait_for(lambda: self._next_batch() >= enough, "the table to follow")

    def look_at_commits(self) -> None:
        """What the group has committed is not before what was there when this was asked last, or was promised since."""
        least = {index: max(self.seen.get(index, 0), self._committed(index)) for index in range(PARTITIONS)}
        with Admin(self.cluster.bootstrap) as admin:
            self.seen = {key.partition: each.offset for key, each in admin.committed(GROUP).items()}
        assert all(self.seen[index] >= offset for index, offset in least.items()), (self.seen, least)

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        patience = Patience(PATIENCE_SECONDS)
        while not condition() and patience.lasts(f"{what}; {self}"):
            for worker in (self.sender, *self.readers):
                worker.check()
            self.query.check()

    def __str__(self) -> str:
        workers = {each.name: f"{each.longest_stop_seconds:.1f} s" for each in (self.sender, *self.readers)}
        commits = sum(each.commits for each in self.readers)
        counts = f"{len(self.sender.acknowledged)} messages, {commits} commits, {self._next_batch()} batches"
        counts += f", query started again: {self.query.starts_again}"
        return f"{counts}, longest stops: {workers}"

    def _leader(self, topic: str, index: int) -> int:
        with Admin(self.cluster.bootstrap) as admin:
            return next(each.leader for each in admin.topic(topic).partitions if each.index == index)

    def _ends(self) -> dict[int, int]:
        return {each.partition: each.offset + 1 for each in list(self.sender.acknowledged)}

    def _committed(self, index: int) -> int:
        return max(each.committed.get(index, 0) for each in self.readers)

    def _next_batch(self) -> int:
        while self.query.has("commits", self.batches):
            self.batches += 1
        return self.batches


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ZookeeperCluster]:
    install()
    configs = ("min.insync.replicas=2", "default.replication.factor=3", "offsets.topic.num.partitions=1")
    with (
        Ensemble(nodes=1) as zookeeper,
        ZookeeperCluster(tmp_path, zookeeper.connect, *configs, session_ms=SESSION_MS) as started,
    ):
        yield started


def test_brokers_are_killed_and_the_table_and_the_group_have_every_message_all_the_same(
    cluster: ZookeeperCluster, tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(TOPIC, PARTITIONS)
    with ExitStack() as stack:
        stage = Stage(cluster, tmp_path, stack)
        stage.go_on(1)
        for number in range(KILLS):
            stage.go_on(chance.randrange(1, 100))
            stage.look_at_commits()
            role = list(Role)[number % len(Role)]
            victim = stage.victim(role, chance)
            cluster.brokers[victim].kill()
            # Two replicas are enough for everything.
            stage.go_on(chance.randrange(1, 100))
            stage.look_at_commits()
            cluster.start(victim)
            cluster.wait_until_in_sync(TOPIC, OFFSETS_TOPIC)
            print(f"{number + 1}: broker {victim}, {role.name}; {stage}", flush=True)
        check_all_is_there(stage)
    assert [broker.stop() for broker in cluster.brokers.values()] == [0] * BROKERS
    for broker in range(BROKERS):
        check_no_commit_goes_back(cluster.data(broker), stage.seen)


def check_all_is_there(stage: Stage) -> None:
    stage.sender.stop(PATIENCE_SECONDS)
    sent = sorted(stage.sender.acknowledged)
    for index in range(PARTITIONS):
        offsets = [each.offset for each in sent if each.partition == index]
        assert offsets == list(range(len(offsets)))
        numbers = [int(each.value) for each in sent if each.partition == index]
        assert numbers == sorted(set(numbers))
    ends = {index: sum(each.partition == index for each in sent) for index in range(PARTITIONS)}
    stage.wait_for(partial(has_read_all, stage, ends), "the group to commit the end")
    stage.wait_for(lambda: len(stage.query.rows()) >= len(sent), "the table to have everything")
    assert stage.query.rows() == sent
    for reader in stage.readers:
        reader.stop(PATIENCE_SECONDS)
        assert reader.lost == []
    # More than once it may come, where a commit did not.
    assert {each for reader in stage.readers for each in reader.read} == set(sent)
    stage.look_at_commits()
    assert stage.seen == ends
    print(stage)


def has_read_all(stage: Stage, ends: dict[int, int]) -> bool:
    return all(max(reader.committed.get(index, 0) for reader in stage.readers) == end for index, end in ends.items())


def check_no_commit_goes_back(data: Path, ends: dict[int, int]) -> None:
    """In what a replica has on its disk, of either group."""
    offsets: dict[tuple[str, int], int] = {}
    for segment in sorted((data / "logs" / f"{OFFSETS_TOPIC}-0").glob("*.log")):
        for header, batch in split(memoryview(segment.read_bytes())):
            for record in () if header.is_control else iterate(batch):
                match decode(record.key, record.value):
                    case OffsetCommitted(group=group, partition=index, offset=offset):
                        assert offset >= offsets.get((group, index), 0), (group, index, offset, offsets)
                        offsets[group, index] = offset
    assert {index: offset for (group, index), offset in offsets.items() if group == GROUP} == ends
    assert {index for group, index in offsets if group == QUERY_GROUP} == set(ends)
