"""A broker's life: starting, stopping, failing to, dying, and what is there afterwards."""

import asyncio
import errno
import logging
import os
import random
import signal
import socket
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.broker import PARTITIONS_AT_ONCE, Broker
from penstock.broker.config.typed import BrokerConfig
from penstock.broker.partitions.partition import Partition
from penstock.broker.upkeep.flushing import SAVES
from penstock.machines.registration import Registration
from penstock.metadata.store import StoreError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from penstock.storage.data_directory import DataDirectory
from penstock.storage.errors import DirectoryRefusedError
from penstock.storage.files.memory import Damage, MemoryFiles
from tests.broker.harness import (
    CountingFiles,
    GatedFiles,
    Node,
    batch,
    in_loop,
    produce_request,
    produced,
    running,
    until,
)


def scanned_bytes(node: Node) -> int:
    return sum(report.scanned_bytes for report in node.broker.directory.reports.values())


def open_descriptors() -> set[str]:
    return set(os.listdir("/dev/fd"))


# Starting and stopping


@in_loop
async def test_a_broker_starts_serves_and_stops_and_can_start_again(tmp_path: Path) -> None:
    config = BrokerConfig.parse({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)})
    broker = Broker(config)
    cluster_ids: set[str] = set()
    epochs: list[int] = []
    for _ in range(3):
        assert not broker.is_running
        await broker.start()
        assert broker.is_running
        assert broker.address[1] != 0
        cluster_ids.add(broker.cluster_id)
        epochs.append(broker.broker_epoch)
        await broker.stop()
        await broker.stop()
    assert len(cluster_ids) == 1
    assert epochs == sorted(set(epochs)), "every registration has a higher epoch"


def test_many_lives_in_one_process_leave_nothing_behind(tmp_path: Path) -> None:
    threads, descriptors = set(threading.enumerate()), open_descriptors()
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    @in_loop
    async def run() -> None:
        counts = []
        async with running(folder=str(tmp_path)) as node:
            for number in range(6):
                client = await node.connect()
                if number == 0:
                    await client.create_topic("orders", 12)
                for index in range(12):
                    await client.produce("orders", batch(bytes(1000)), partition=index)
                    assert len(await client.values("orders", partition=index)) == number + 1
                await node.stop()
                tasks = asyncio.all_tasks() - {asyncio.current_task()}
                assert not tasks
                counts.append(len(open_descriptors()))
                await node.start()
        assert counts[0] == counts[-1]

    run()
    assert set(threading.enumerate()) <= threads
    assert open_descriptors() == descriptors
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers


@in_loop
async def test_in_memory_too_every_descriptor_is_closed_at_the_end() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 3)
        for index in range(3):
            await client.produce("orders", batch(b"a"), partition=index)
            await client.values("orders", partition=index)
        await node.stop()
        assert node.memory.open_descriptors == 0


@in_loop
async def test_a_broker_that_is_killed_writes_nothing_more_and_answers_nobody() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client, waiting = await node.connect(), await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a"))
        files.gate.clear()
        waiting.send(produce_request("orders", batch(b"b")), 12)
        await until(lambda: files.waiting)
        steps = files.steps
        killing = asyncio.ensure_future(node.broker.kill())
        assert await waiting.closed() == b""
        files.gate.set()
        await killing
        # Only the sync that was under way: no flush, no marker.
        assert files.steps <= steps + 1
        assert files.open_descriptors == 0
        await node.start()
        assert not node.broker.directory.was_clean
        assert await (await node.connect()).values("orders") == [b"a", b"b"]


@in_loop
async def test_a_folder_in_use_is_refused_and_its_owner_undisturbed(tmp_path: Path) -> None:
    async with running(folder=str(tmp_path)) as node:
        client = await node.connect()
        await client.create_topic("orders")
        before = open_descriptors()
        other = Node(folder=str(tmp_path))
        with pytest.raises(StoreError, match="in use"):
            await other.start()
        await until(lambda: open_descriptors() <= before)
        assert (await client.produce("orders", batch(b"a"))).error_code == ErrorCode.NONE


@in_loop
async def test_a_folder_of_another_node_is_refused_with_what_to_do_and_stays_as_it_was(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    async with running({"node.id": "1"}, folder=folder) as node:
        await (await node.connect()).create_topic("orders")
    stranger = Node({"node.id": "2"}, folder=folder)
    with pytest.raises(DirectoryRefusedError, match=r"belongs to node 1, and node\.id is 2: set node\.id=1, or choose"):
        await stranger.start()
    async with running({"node.id": "1"}, folder=folder) as node:
        assert [topic.name for topic in node.broker.services.cluster.image.topics.values()] == ["orders"]
        assert list(node.broker.services.cluster.image.brokers) == [1]


@in_loop
async def test_a_start_that_fails_leaves_nothing_open_and_the_next_one_succeeds() -> None:
    node = Node()
    await node.start()
    client = await node.connect()
    await client.create_topic("orders")
    await client.produce("orders", batch(b"a"))
    await node.stop()
    for call in ("list", "stat", "lock", "make_directory"):
        node.memory.fail(call, 1, OSError(errno.EIO, "broken"))
        try:
            await node.start()
        except OSError:
            assert node.memory.open_descriptors == 0
            assert not node.shared.sessions
        else:
            await node.stop()
    await node.start()
    # A start that failed half-way may have used up the clean marker, but no record.
    assert await (await node.connect()).values("orders") == [b"a"]
    await node.stop()


@in_loop
async def test_a_stop_whose_last_flush_fails_closes_everything_and_leaves_no_clean_marker() -> None:
    files = GatedFiles()
    node = Node(files=files)
    await node.start()
    client = await node.connect()
    await client.create_topic("orders")
    await client.produce("orders", batch(b"a"))
    broker = node.broker
    # Nobody flushes any more but the stop itself.
    await broker.upkeep.flushing.close()
    await client.produce("orders", batch(b"b"), acks=1)
    files.failing = OSError(errno.EIO, "input/output error")
    with pytest.raises(OSError, match="input/output error"):
        await node.stop()
    assert files.open_descriptors == 0
    assert not node.shared.sessions
    files.failing = None
    await node.start()
    assert not node.broker.directory.was_clean
    assert (await (await node.connect()).values("orders"))[0] == b"a"
    await node.stop()


# What is there afterwards


@pytest.mark.parametrize("step", [(DataDirectory, "log"), (Partition, "lead")])
@in_loop
async def test_a_start_with_many_partitions_lets_others_have_their_turns(
    step: tuple[type, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, steps = 0, Counter[int]()
    whole = getattr(*step)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def counted(*args: Any, **options: Any) -> Any:
        steps[turn] += 1
        return whole(*args, **options)

    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 30)
        for number in range(30):
            await client.produce("orders", batch(b"a"), partition=number)
        monkeypatch.setattr(*step, counted)
        async with asyncio.TaskGroup() as group:
            counting = group.create_task(count_turns())
            await node.crash()
            counting.cancel()
        assert steps.total() >= 30
        assert max(steps.values()) <= PARTITIONS_AT_ONCE


@in_loop
async def test_after_a_start_the_epochs_of_many_elections_are_saved_in_many_flushes() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 3 * SAVES)
        for number in range(3 * SAVES):
            await client.produce("orders", batch(b"a"), partition=number)
        await node.crash()
        logs = [partition.log for partition in node.broker.services.partitions.all()]
        assert [log.epochs.latest for log in logs] == [1] * 3 * SAVES
        await until(lambda: all(log.epochs.is_saved for log in logs) and not node.broker.upkeep.flushing.is_busy)
        assert node.broker.upkeep.flushing.rounds >= 3


@in_loop
async def test_a_restart_keeps_everything(tmp_path: Path) -> None:
    async with running(folder=str(tmp_path)) as node:
        client = await node.connect()
        created = await client.create_topic("orders", 3, {"retention.ms": "86400000"})
        await client.create_topic("empty")
        for index in range(3):
            for number in range(4):
                await client.produce("orders", batch(b"%d-%d" % (index, number), timestamp=-1), partition=index)
        config = IncrementalAlterConfigsRequestAlterableConfig(name="max.message.bytes", value="5000")
        resource = IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=2, resource_name="orders", configs=[config]
        )
        await client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        node.partition("orders", 1).delete_before(2)
        cluster_id = node.broker.cluster_id
        await node.restart()
        client = await node.connect()
        topic = node.broker.services.image.topics["orders"]
        assert (node.broker.cluster_id, topic.topic_id) == (cluster_id, created.topic_id)
        assert topic.configs == {"retention.ms": "86400000", "max.message.bytes": "5000"}
        assert set(node.broker.services.image.topics) == {"orders", "empty"}
        assert await client.values("orders", partition=0) == [b"0-0", b"0-1", b"0-2", b"0-3"]
        assert await client.values("orders", 2, partition=1) == [b"1-2", b"1-3"]
        assert (await client.fetch("orders", 0, partition=1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await client.produce("orders", batch(b"next"), partition=2)).base_offset == 4


@in_loop
async def test_a_clean_restart_scans_nothing_and_keeps_leader_epochs() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 2)
        for index in (0, 1):
            await client.produce("orders", batch(bytes(1000)), partition=index)
        for _ in range(3):
            await node.restart()
            assert node.broker.directory.was_clean
            assert scanned_bytes(node) == 0
            assert node.partition("orders", 1).leader.leader_epoch == 0
        client = await node.connect()
        assert (await client.produce("orders", batch(b"a"))).base_offset == 1


@in_loop
async def test_a_start_tells_where_it_listens_and_what_it_had_to_recover(caplog: pytest.LogCaptureFixture) -> None:
    def told() -> dict[str, Any]:
        return vars(next(record for record in reversed(caplog.records) if record.getMessage() == "started"))

    with caplog.at_level(logging.INFO, "penstock"):
        async with running() as node:
            client = await node.connect()
            await client.create_topic("orders", 2)
            records = batch(b"a")
            await client.produce("orders", records)
            assert told()["ports"] == {"PLAINTEXT": node.broker.address[1]}
            await node.restart()
            assert (told()["was_clean"], told()["partitions"], told()["scanned_bytes"]) == (True, 2, 0)
            await node.crash()
            assert (told()["was_clean"], told()["scanned_bytes"], told()["cut_bytes"]) == (False, len(records), 0)


@in_loop
async def test_a_restart_reads_little_of_what_is_there(tmp_path: Path) -> None:
    files = CountingFiles()
    async with running(files=files, folder=str(tmp_path)) as node:
        client = await node.connect()
        await client.create_topic("orders", configs={"max.message.bytes": "4000000"})
        for _ in range(20):
            await client.produce("orders", batch(os.urandom(1_000_000)))
        await node.stop()
        files.reads.clear()
        await node.start()
        assert sum(files.reads) < 4_000_000
        assert node.partition("orders").high_watermark == 20


@in_loop
async def test_after_a_crash_the_leader_epoch_is_higher_and_the_end_of_the_log_is_checked() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 2)
        await client.produce("orders", batch(bytes(1000)))
        for expected in (1, 2):
            await node.crash()
            assert not node.broker.directory.was_clean
            for index in (0, 1):
                assert node.partition("orders", index).leader.leader_epoch == expected
        client = await node.connect()
        await client.produce("orders", batch(b"new"))
        assert node.partition("orders").log.epochs.entries == ((0, 0), (2, 1))


@in_loop
async def test_a_broker_reports_once_that_its_machine_has_lost_its_power() -> None:
    async with running({"penstock.flush": "os"}) as node:
        reports = []
        for damage in (None, Damage.LOSE_UNSYNCED, None):
            await node.crash(damage)
            member = (await node.store.members())[0]
            found = Registration.of_member(0, member.broker_epoch, folder=member.folder, details=member.details)
            reports.append((found.was_clean, found.may_lack_unflushed, found.flush))
        assert reports == [(False, False, "os"), (False, True, "os"), (False, False, "os")]


@in_loop
async def test_a_start_that_fails_after_a_crash_does_not_pass_for_a_clean_stop() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a"))
        await node.broker.kill()
        await node.stop()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            free, node.configs["listeners"] = (
                node.configs["listeners"],
                f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}",
            )
            with pytest.raises(OSError, match="in use"):
                await node.start()
        node.configs["listeners"] = free
        await node.start()
        assert not node.broker.directory.was_clean
        assert node.partition("orders").leader_epoch == 1


@in_loop
async def test_two_crashes_in_a_row_without_a_record_between_them_are_two_elections() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a"))
        await node.crash(Damage.LOSE_UNSYNCED)
        await node.crash(Damage.LOSE_UNSYNCED)
        partition = node.partition("orders")
        assert partition.leader.leader_epoch == 2
        assert partition.log.epochs.latest == 2
        assert await (await node.connect()).values("orders") == [b"a"]


@pytest.mark.parametrize("damage", Damage)
@pytest.mark.parametrize("seed", range(6))
def test_what_was_acknowledged_to_all_survives_any_crash(damage: Damage, seed: int) -> None:
    rng = random.Random(f"{damage} {seed}")

    @in_loop
    async def run() -> None:
        async with running({"num.partitions": "2"}, files=MemoryFiles(seed=seed)) as node:
            client = await node.connect()
            await client.create_topic("orders", 2, {"internal.segment.bytes": "1000"})
            acknowledged: dict[int, list[bytes | None]] = {0: [], 1: []}
            for life in range(3):
                for number in range(rng.randint(1, 8)):
                    index, value = rng.randint(0, 1), b"%d-%d" % (life, number) + bytes(rng.randint(0, 400))
                    acks = rng.choice([1, -1, -1])
                    answer = await client.produce("orders", batch(value), partition=index, acks=acks)
                    assert answer.error_code == ErrorCode.NONE, f"seed {seed}"
                    acknowledged[index].append(value)
                    if acks == -1:
                        continue
                    # What was only written may be lost, but then so is everything behind it.
                    acknowledged[index].pop()
                    answer = await client.produce("orders", batch(value), partition=index)
                    acknowledged[index] += [value] * (answer.base_offset + 1 - len(acknowledged[index]))
                await node.crash(damage)
                client = await node.connect()
                for index, expected in acknowledged.items():
                    found = await client.values("orders", partition=index)
                    assert found == expected, f"seed {seed}, damage {damage}, partition {index}"

    run()


@in_loop
async def test_a_stop_under_load_loses_nothing_acknowledged_and_needs_no_scan() -> None:
    async with running() as node:
        admin = await node.connect()
        await admin.create_topic("orders", 4)
        acknowledged: list[list[bytes]] = [[] for _ in range(4)]

        async def produce(index: int) -> None:
            client = await node.connect()
            sent = 0
            window: list[bytes] = []
            try:
                while True:
                    while len(window) < 5:
                        window.append(b"%d" % sent)
                        client.send(produce_request("orders", batch(window[-1]), partition=index), 12)
                        sent += 1
                    assert produced(await client.reply()).error_code == ErrorCode.NONE
                    acknowledged[index].append(window.pop(0))
            except ConnectionError:
                client.close()

        producers = [asyncio.create_task(produce(index)) for index in range(4)]
        await until(lambda: all(len(values) > 20 for values in acknowledged))
        await node.broker.stop()
        await asyncio.gather(*producers)
        await node.restart()
        assert node.broker.directory.was_clean
        assert scanned_bytes(node) == 0
        client = await node.connect()
        for index in range(4):
            stored = await client.values("orders", partition=index)
            assert stored[: len(acknowledged[index])] == acknowledged[index]
            assert stored == [b"%d" % number for number in range(len(stored))]


def modes_below(folder: Path) -> dict[str, int]:
    modes = {}
    for path in [folder, *folder.rglob("*")]:
        try:
            modes[str(path.relative_to(folder))] = path.stat().st_mode & 0o777
        except FileNotFoundError:
            # A checkpoint in the making has got its name meanwhile.
            pass
    return modes


@in_loop
async def test_all_that_a_broker_writes_is_for_its_owner_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    before = os.umask(0)
    try:
        async with running(folder=str(folder)) as node:
            client = await node.connect()
            await client.create_topic("orders")
            await client.produce("orders", batch(b"a"))
            running_modes = modes_below(folder)
    finally:
        os.umask(before)
    for modes in (running_modes, modes_below(folder)):
        assert "metadata.sqlite" in modes
        assert any(name.endswith(".log") for name in modes)
        wider = {name: oct(mode) for name, mode in modes.items() if mode & 0o077}
        assert wider == {}
    assert "metadata.sqlite-wal" in running_modes


@in_loop
async def test_a_data_folder_that_others_can_enter_is_left_so_and_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o750)
    async with running(folder=str(tmp_path)):
        pass
    [line] = [record for record in caplog.records if "data folder" in record.message]
    assert (line.levelname, vars(line)["mode"], vars(line)["path"]) == ("WARNING", "0750", str(tmp_path))
    assert "chmod 700" in line.message
    assert tmp_path.stat().st_mode & 0o777 == 0o750
    caplog.clear()
    tmp_path.chmod(0o700)
    async with running(folder=str(tmp_path)):
        pass
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
