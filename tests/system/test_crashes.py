"""A broker that goes down again and again in the midst of its work, and clients that go on: everything acknowledged is
read, once and in order."""

import asyncio
import os
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.protocol.schemas.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.system.clients import create_topic
from tests.system.loads import (
    PARTITIONS,
    LibrdkafkaLoad,
    Load,
    RawLoad,
    check_nothing_is_lost,
    read_in_order,
    wait_for_acknowledgements,
)
from tests.system.processes import BrokerProcess, Patience, kill_while_it_starts, spare_port
from tests.system.producing import connect
from tools.chaos.disks import Ext4Disk, NoDiskError

KILLS: Final = int(os.environ.get("SOAK_KILLS", "5"))
POWER_LOSSES: Final = int(os.environ.get("SOAK_POWER_LOSSES", "3"))
SEED: Final = int(os.environ.get("SOAK_SEED", "1"))
MOST_BETWEEN_CRASHES: Final = 1500
EARLIEST: Final = -2
# Rolls, and with them snapshots and checkpoints, are to be hit, too.
SMALL_SEGMENTS: Final = {"internal.segment.bytes": "50000"}
OURS: Final = "ours"
THEIRS: Final = "theirs"
TRIMMED: Final = "trimmed"
ACKS_1: Final = "acks-1"
UNFLUSHED: Final = "unflushed"


class Ordeal:
    """A broker whose clients go on while it comes and goes. One of its topics gets its history deleted all the time."""

    def __init__(self, data_dir: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.data_dir = data_dir
        self.listen = ("--listen", f"127.0.0.1:{spare_port()}")
        self.options = (*self.listen, "-X", "log.retention.check.interval.ms=100")
        self.broker = BrokerProcess(data_dir, *self.options)
        self.address = self.broker.own_address
        self.loads: list[Load] = []
        self.starts = [0] * PARTITIONS

    def load(self, kind: Any, topic: str, configs: dict[str, str] | None = None, **options: Any) -> None:
        create_topic(self.address, topic, PARTITIONS, SMALL_SEGMENTS | (configs or {}))
        self.loads.append(kind(self.address, topic, **options))

    def load_as_ever(self) -> None:
        """Two clients with acks=all, and a third one whose topic is trimmed."""
        self.load(RawLoad, OURS)
        self.load(LibrdkafkaLoad, THEIRS)
        self.load(RawLoad, TRIMMED, {"retention.bytes": "150000"})

    def run_for_a_while(self) -> None:
        wait_for_acknowledgements(self.loads, self.rng.randint(1, MOST_BETWEEN_CRASHES))
        self.starts = self._ask_for_starts()
        if self.rng.random() < 0.5:
            partition = self.rng.randrange(PARTITIONS)
            self.starts[partition] = self._delete_records(partition)

    def come_back(self) -> None:
        """Start again, after a crash."""
        self.broker = BrokerProcess(self.data_dir, *self.options)
        assert not self.broker.started["was_clean"]
        for before, after in zip(self.starts, self._ask_for_starts(), strict=True):
            assert before <= after, "a log start went back"

    def finish(self, hint: str) -> None:
        """Let the clients finish, and look whether all is there."""
        for load in self.loads:
            load.drain()
        assert self.broker.stop() == 0
        check_no_litter(self.data_dir)
        # Without a look at retention in the midst of reading.
        with BrokerProcess(self.data_dir, *self.listen) as broker:
            assert (broker.started["was_clean"], broker.started["scanned_bytes"]) == (True, 0)
            for load in self.loads:
                starts = self._ask_for_starts() if load.topic == TRIMMED else [0] * PARTITIONS
                check_nothing_is_lost(self.address, load, hint, starts=starts)
            assert broker.problems() == []

    # Talking to the broker

    def _ask_for_starts(self) -> list[int]:
        partitions = [ListOffsetsPartition(partition_index=i, timestamp=EARLIEST) for i in range(PARTITIONS)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TRIMMED, partitions=partitions)])
        answers = self._ask(request).topics[0].partitions
        assert all(answer.error_code == ErrorCode.NONE for answer in answers), answers
        return [answer.offset for answer in sorted(answers, key=lambda answer: int(answer.partition_index))]

    def _delete_records(self, partition: int) -> int:
        acknowledged = next(load for load in self.loads if load.topic == TRIMMED).acknowledged()
        offset = self.rng.choice([place[1] for place in acknowledged[-1000:] if place[0] == partition])
        asked = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TRIMMED, partitions=[asked])], timeout_ms=10_000)
        [answer] = self._ask(request).topics[0].partitions
        assert answer.error_code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE), answer
        return max(self.starts[partition], int(answer.low_watermark))

    def _ask(self, request: Message) -> Any:
        async def ask() -> Any:
            client = await connect(self.address)
            try:
                return await client.ask(request, {ListOffsetsRequest: 7, DeleteRecordsRequest: 2}[type(request)])
            finally:
                client.close()

        return asyncio.run(ask())


@contextmanager
def ordeal(data_dir: Path, seed: int) -> Iterator[Ordeal]:
    going_on = Ordeal(data_dir, seed)
    try:
        yield going_on
    finally:
        going_on.broker.kill()
        for load in going_on.loads:
            load.give_up()


def check_no_litter(data_dir: Path) -> None:
    """Crashes leave files behind, but not more and more of them."""
    for folder in (data_dir / "logs").iterdir():
        if folder.is_dir():
            assert re.fullmatch(r"[a-z0-9-]+-\d", folder.name), folder
            names = [path.name for path in folder.iterdir()]
            suffixes = Counter(path.suffix for path in folder.iterdir())
            assert suffixes[".tmp"] == 0, names
            assert suffixes[".snapshot"] <= 2, names
            assert suffixes[".index"] <= suffixes[".log"], names
            assert suffixes[".timeindex"] <= suffixes[".log"], names


@pytest.mark.timeout(60 + 20 * KILLS)
def test_everything_acknowledged_survives_kills_under_load(tmp_path: Path) -> None:
    print(f"\nseed {SEED}, {KILLS} kills")
    with ordeal(tmp_path / "data", SEED) as going_on:
        going_on.load_as_ever()
        # Nothing that was written is lost when only the process dies, flushed or not.
        going_on.load(RawLoad, ACKS_1, acks=1)
        going_on.load(RawLoad, UNFLUSHED, {"penstock.flush": "os"}, acks=1)
        for number in range(KILLS):
            going_on.run_for_a_while()
            assert going_on.broker.problems() == []
            going_on.broker.kill()
            usual = going_on.broker.seconds_to_start
            while going_on.rng.random() < 0.3:
                seconds = usual * going_on.rng.uniform(0.5, 1.1)
                kill_while_it_starts(going_on.data_dir, *going_on.options, after_seconds=seconds)
            going_on.come_back()
            told = {name: going_on.broker.started[name] for name in ("scanned_bytes", "cut_bytes", "seconds")}
            print(f"kill {number + 1}: acknowledged {[load.count for load in going_on.loads]}, recovery {told}")
        going_on.finish(f"seed {SEED}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Ext4Disk]:
    made = Ext4Disk(tmp_path)
    try:
        made.create()
    except NoDiskError as reason:
        # Where nobody looks at what was skipped, a proof that was not made is a failure.
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no disk to take the power from: {reason}")
    yield made
    made.remove()


def wait_until_it_notices(broker: BrokerProcess) -> None:
    patience = Patience()
    while not re.search('"level": "(error|critical)"', broker.log_path.read_text()):
        assert patience.lasts("the broker to notice that its disk is gone")
        time.sleep(0.001)


@pytest.mark.timeout(60 + 20 * POWER_LOSSES)
def test_everything_acknowledged_survives_power_losses_under_load(disk: Ext4Disk) -> None:
    print(f"\nseed {SEED}, {POWER_LOSSES} power losses")
    with ordeal(disk.path, SEED) as going_on:
        going_on.load_as_ever()
        for number in range(POWER_LOSSES):
            going_on.run_for_a_while()
            disk.shut_down()
            if going_on.rng.random() < 0.5:
                # From then on it may acknowledge nothing.
                wait_until_it_notices(going_on.broker)
            going_on.broker.kill()
            disk.come_back()
            going_on.come_back()
            print(f"power loss {number + 1}: acknowledged {[load.count for load in going_on.loads]}")
        going_on.finish(f"seed {SEED}")


@pytest.mark.parametrize("configs", [{}, {"penstock.flush": "os"}])
def test_a_power_loss_takes_only_the_end_of_what_nobody_waited_for(configs: dict[str, str], disk: Ext4Disk) -> None:
    with ordeal(disk.path, SEED) as going_on:
        going_on.load(RawLoad, ACKS_1, configs, acks=1)
        wait_for_acknowledgements(going_on.loads, going_on.rng.randint(1, MOST_BETWEEN_CRASHES))
        disk.shut_down()
        going_on.broker.kill()
        [load] = going_on.loads
        load.give_up()
        disk.come_back()
        with BrokerProcess(going_on.data_dir, *going_on.options) as broker:
            there = sum(read_in_order(broker.own_address, ACKS_1, f"seed {SEED}"))
            print(f"\nseed {SEED}, {configs}: {load.count} acknowledged, {there} there")
            assert broker.problems() == []
