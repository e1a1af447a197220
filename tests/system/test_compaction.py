"""Compaction in real processes: keys that change all the time take the room of their latest values, and no kill of the
helper or of the broker costs one of these."""

import asyncio
import os
import random
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.protocol.schemas.groups import FindCoordinatorRequest
from tests.system.clients import create_topic
from tests.system.processes import BrokerProcess, Patience, spare_port
from tests.system.producing import connect
from tests.system.updates import Reader, Updates

UPDATES: Final = int(os.environ.get("SOAK_UPDATES", "300000"))
KILLS: Final = int(os.environ.get("SOAK_KILLS", "5"))
SEED: Final = int(os.environ.get("SOAK_SEED", "1"))
KEYS: Final = 1000
MIB: Final = 1024 * 1024
TOPIC: Final = "updates"
OFTEN: Final = ("-X", "log.cleaner.backoff.ms=20")
COMPACTED: Final = {"cleanup.policy": "compact", "segment.bytes": str(MIB), "min.cleanable.dirty.ratio": "0.3"}


def data_bytes(data_dir: Path, partition: str = f"{TOPIC}-0") -> int:
    """What the segments of a partition take on the disk now."""
    total = 0
    for path in (data_dir / "logs" / partition).glob("*.log"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            pass
    return total


def leftovers(data_dir: Path) -> list[str]:
    found = (path.name for path in (data_dir / "logs").glob("*/*"))
    return [name for name in found if any(word in name for word in (".cleaned", ".swap", ".deleted", ".tmp"))]


def helper_of(broker: BrokerProcess) -> int | None:
    """The process id of the broker's helper, if it has one now."""
    for task in Path(f"/proc/{broker.pid}/task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except FileNotFoundError:
            continue
        for child in children:
            try:
                if b"penstock.broker.helper" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
            except FileNotFoundError:
                continue
    return None


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(what: str, condition: Callable[[], object]) -> None:
    patience = Patience()
    while not condition():
        assert patience.lasts(what)
        time.sleep(0.002)


@contextmanager
def beside(work: Coroutine[Any, Any, None]) -> Iterator[threading.Thread]:
    """Something asynchronous beside the test, whose errors are the test's."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(work)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield thread
    thread.join()
    if errors:
        raise errors[0]


def metric(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
        for line in page.read().decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
    raise AssertionError(f"there is no {name}")


# While it is written and read


async def write_and_read_along(address: tuple[str, int], count: int, *, seed: int) -> tuple[Updates, Reader]:
    updates, reader = Updates(address, TOPIC, keys=KEYS, seed=seed), Reader(address, TOPIC)

    async def write() -> None:
        await updates.send(count)

    async def read() -> None:
        while updates.count < count:
            await reader.follow(dict(updates.acknowledged))
            await asyncio.sleep(0)
        await reader.follow(updates.acknowledged)

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        group.create_task(read())
    return updates, reader


def longest_turn(data_dir: Path, count: int, *, compacts: bool) -> tuple[float, BrokerProcess, Updates, Reader]:
    """The same traffic with and without compaction beside it; the broker goes on."""
    port = spare_port()
    options = ("-X", f"penstock.metrics.listen=127.0.0.1:{port}", "-X", f"log.cleaner.enable={str(compacts).lower()}")
    broker = BrokerProcess(data_dir, *OFTEN, *options)
    try:
        create_topic(broker.address, TOPIC, configs=COMPACTED)
        updates, reader = asyncio.run(write_and_read_along(broker.address, count, seed=SEED))
        return metric(port, "penstock_event_loop_lag_recent_max_seconds"), broker, updates, reader
    except BaseException:
        broker.kill()
        raise


@pytest.mark.timeout(120 + UPDATES // 5000)
def test_updates_shrink_to_the_live_set_while_they_are_written_and_read(tmp_path: Path) -> None:
    print(f"\nseed {SEED}, {UPDATES} updates of {KEYS} keys")
    without, other, _, _ = longest_turn(tmp_path / "without", min(UPDATES, 300_000), compacts=False)
    assert other.stop() == 0
    data_dir = tmp_path / "data"
    longest, broker, updates, reader = longest_turn(data_dir, UPDATES, compacts=True)
    with broker:
        assert len(updates.acknowledged) == KEYS
        assert reader.latest == updates.acknowledged
        written = UPDATES * 120
        # The active segment stays as it is, and so does what is not dirty enough beside it.
        wait_until("compaction to catch up", lambda: data_bytes(data_dir) < 2.5 * MIB)
        again = Reader(broker.address, TOPIC)
        asyncio.run(again.read_to_end())
        assert again.latest == updates.acknowledged
        rounds = broker.lines("compacted")
        cpu_seconds, cleaned = (sum(line[name] for line in rounds) for name in ("cpu_seconds", "before_bytes"))
        print(
            f"{written / 1e6:.0f} MB written, {data_bytes(data_dir) / 1e6:.1f} MB left, {len(rounds)} rounds over "
            f"{cleaned / 1e6:.0f} MB: {cleaned / 1e6 / cpu_seconds:.0f} MB per CPU second; a reader beside it saw "
            f"{reader.records} records, one behind it {again.records}; longest turn of the loop "
            f"{longest * 1000:.1f} ms, without compaction {without * 1000:.1f} ms"
        )
        assert again.records < 2.5 * MIB / 100
        assert broker.stop() == 0
        assert broker.problems() == []
    assert leftovers(data_dir) == []


# Kills


class Ordeal:
    """A broker that is killed, or its helper is, while keys are given new values all the time."""

    def __init__(self, data_dir: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.hint = f"seed {seed}"
        self.data_dir = data_dir
        self.listen = ("--listen", f"127.0.0.1:{spare_port()}")
        self.broker = BrokerProcess(data_dir, *self.listen, *OFTEN)
        self.address = self.broker.own_address
        # Segments so small that there is always something to do.
        small = {"internal.segment.bytes": "50000", "min.cleanable.dirty.ratio": "0.01"}
        create_topic(self.address, TOPIC, configs=COMPACTED | small)
        self.updates = Updates(self.address, TOPIC, keys=KEYS, seed=seed)
        self.enough = 0
        self.is_over = threading.Event()

    async def write(self) -> None:
        """Never far ahead of what is waited for, or the rest would take long."""
        while not self.is_over.is_set():
            if self.updates.count < self.enough + 10_000:
                await self.updates.send(2_500)
            else:
                await asyncio.sleep(0.001)

    def wait_for_helper(self) -> int:
        found: list[int] = []

        def has_one() -> bool:
            found.extend(filter(None, [helper_of(self.broker)]))
            return bool(found)

        wait_until("a helper", has_one)
        return found[-1]

    def run_for_a_while(self) -> None:
        self.enough = self.updates.count + self.rng.randint(500, 20_000)
        wait_until("updates", lambda: self.updates.count >= self.enough)

    def kill(self, victim: str) -> None:
        helper = self.wait_for_helper()
        if victim == "helper":
            try:
                os.kill(helper, signal.SIGKILL)
            except ProcessLookupError:
                pass
        else:
            self.broker.kill()
            wait_until("the helper to end", lambda: has_ended(helper))

    def come_back(self, *options: str) -> None:
        self.broker = BrokerProcess(self.data_dir, *self.listen, *options)

    def check_latest(self, acknowledged: dict[bytes, int]) -> None:
        """Nothing that was acknowledged by then is lost, unless something newer is there."""
        reader = Reader(self.address, TOPIC)
        asyncio.run(reader.read_to_end())
        lost = [(key, number) for key, number in acknowledged.items() if reader.latest.get(key, -1) < number]
        assert not lost, f"{self.hint}: {len(lost)} keys have lost their latest values, such as {lost[:3]}"


@pytest.mark.timeout(120 + 20 * KILLS)
def test_no_latest_value_is_lost_when_the_helper_or_the_broker_is_killed(tmp_path: Path) -> None:
    print(f"\nseed {SEED}, {KILLS} kills of each")
    ordeal = Ordeal(tmp_path / "data", SEED)
    victims = ["helper", "broker"] * KILLS
    ordeal.rng.shuffle(victims)
    try:
        with beside(ordeal.write()):
            try:
                for number, victim in enumerate(victims, 1):
                    ordeal.run_for_a_while()
                    acknowledged = dict(ordeal.updates.acknowledged)
                    ordeal.kill(victim)
                    rounds = len(ordeal.broker.lines("compacted"))
                    print(f"kill {number}: the {victim}, after {ordeal.updates.count} updates and {rounds} rounds")
                    if victim == "broker":
                        ordeal.come_back(*OFTEN)
                    ordeal.check_latest(acknowledged)
            finally:
                ordeal.is_over.set()
        ordeal.kill("broker")
        # A start that only opens what it finds.
        ordeal.come_back("-X", "log.cleaner.enable=false")
        wait_until("deleted files to go", lambda: leftovers(ordeal.data_dir) == [])
        assert ordeal.broker.stop() == 0
        ordeal.come_back(*OFTEN)
        wait_until("compaction to catch up", lambda: data_bytes(ordeal.data_dir) < 400_000)
        reader = Reader(ordeal.address, TOPIC)
        asyncio.run(reader.read_to_end())
        assert reader.latest == ordeal.updates.acknowledged
        assert ordeal.broker.problems() == []
        assert ordeal.broker.stop() == 0
        assert leftovers(ordeal.data_dir) == []
    finally:
        ordeal.broker.kill()


# Stopping


def test_sigterm_in_the_midst_of_a_round_stops_in_order(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    # So slow that it would take minutes.
    slow = ("-X", "log.cleaner.io.max.bytes.per.second=50000")
    with BrokerProcess(data_dir, *OFTEN, *slow) as broker:
        create_topic(broker.address, TOPIC, configs=COMPACTED)
        updates = Updates(broker.address, TOPIC, keys=KEYS, seed=SEED)
        asyncio.run(updates.send(50_000))
        wait_until("a round", lambda: helper_of(broker))
        helper = helper_of(broker)
        assert helper is not None
        began = time.monotonic()
        assert broker.stop() == 0
        print(f"\nstopped in {time.monotonic() - began:.2f} s")
        assert has_ended(helper)
        assert broker.problems() == []
        assert broker.lines("compacted") == []
    assert leftovers(data_dir) == []
    with BrokerProcess(data_dir, *OFTEN) as again:
        assert again.started["was_clean"]
        wait_until("a round", lambda: again.lines("compacted"))
        reader = Reader(again.address, TOPIC)
        asyncio.run(reader.read_to_end())
        assert reader.latest == updates.acknowledged


def test_ctrl_c_is_for_the_broker_and_ends_the_helper_with_it(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with BrokerProcess(data_dir, *OFTEN) as broker:
        create_topic(broker.address, TOPIC, configs=COMPACTED)
        asyncio.run(Updates(broker.address, TOPIC, keys=KEYS, seed=SEED).send(50_000))
        wait_until("a round", lambda: broker.lines("compacted"))
        helper = helper_of(broker)
        assert helper is not None
        assert os.getsid(helper) != os.getsid(broker.pid)
        os.kill(helper, signal.SIGINT)
        broker.send_signal(signal.SIGINT)
        assert broker.wait() == 0
        assert has_ended(helper)
        assert broker.problems() == []


# Committed offsets

GROUPS: Final = 20
PARTITIONS: Final = 10
COMMITS: Final = 1500


async def commit_many(address: tuple[str, int]) -> None:
    client = await connect(address)
    try:
        while True:
            found = await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["group-0"]), 4)
            if found.coordinators[0].error_code == ErrorCode.NONE:
                break
        number = 0
        while number < COMMITS:
            topics = [
                OffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=index, committed_offset=number)
                        for index in range(PARTITIONS)
                    ],
                )
            ]
            request = OffsetCommitRequest(
                group_id=f"group-{number % GROUPS}", generation_id_or_member_epoch=-1, member_id="", topics=topics
            )
            response = await client.ask(request, 8)
            code = response.topics[0].partitions[0].error_code
            if code == ErrorCode.NONE:
                number += 1
            else:
                # Its shard is being loaded.
                assert code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR), ErrorCode(code)
    finally:
        client.close()


async def committed(address: tuple[str, int]) -> dict[str, set[int]]:
    client = await connect(address)
    try:
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=tuple(range(PARTITIONS)))]
        groups = [OffsetFetchRequestGroup(group_id=f"group-{number}", topics=topics) for number in range(GROUPS)]
        while True:
            response = await client.ask(OffsetFetchRequest(groups=groups), 8)
            if all(group.error_code == ErrorCode.NONE for group in response.groups):
                return {
                    group.group_id: {partition.committed_offset for partition in group.topics[0].partitions}
                    for group in response.groups
                }
    finally:
        client.close()


def test_committed_offsets_take_the_room_of_the_last_ones_and_are_found_after_a_restart(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    options = (
        *OFTEN,
        *("-X", "offsets.topic.num.partitions=1"),
        *("-X", "offsets.topic.segment.bytes=100000"),
        *("-X", "log.cleaner.min.cleanable.ratio=0.1"),
    )
    expected = {f"group-{number % GROUPS}": {number} for number in range(COMMITS - GROUPS, COMMITS)}
    with BrokerProcess(data_dir, *options) as broker:
        create_topic(broker.address, TOPIC, PARTITIONS)
        asyncio.run(commit_many(broker.address))
        wait_until("compaction", lambda: data_bytes(data_dir, "__consumer_offsets-0") < 300_000)
        rounds = broker.lines("compacted")
        before = sum(line["before_bytes"] - line["after_bytes"] for line in rounds)
        print(f"\n{COMMITS} commits of {PARTITIONS} offsets: {before / 1e6:.1f} MB dropped in {len(rounds)} rounds")
        assert asyncio.run(committed(broker.address)) == expected
        broker.kill()
    with BrokerProcess(data_dir, *options) as again:
        assert asyncio.run(committed(again.address)) == expected
        assert again.stop() == 0
    with BrokerProcess(data_dir, *options) as after:
        assert asyncio.run(committed(after.address)) == expected
        assert after.problems() == []
