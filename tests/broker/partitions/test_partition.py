"""A partition on a disk in memory: staged, written, flushed, and who is told when."""

import errno
import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from penstock.broker.config.typed import BrokerConfig, TopicConfig
from penstock.broker.engine.plain import GATHER_BELOW_BYTES
from penstock.broker.log_rates import BURST
from penstock.broker.partitions import partition as partition_module
from penstock.broker.partitions.disk_space import DiskSpace
from penstock.broker.partitions.partition import Partition
from penstock.broker.partitions.topic_settings import TopicSettings
from penstock.machines.flush_urgency import Urgency
from penstock.machines.groups.sharding import OFFSETS_TOPIC
from penstock.protocol.batch import split
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import iterate
from penstock.storage.data_directory import DataDirectory
from penstock.storage.errors import LogOfflineError, OffsetOutOfRangeError
from penstock.storage.files import Buffer
from penstock.storage.files.memory import Damage, MemoryFiles
from tests.broker.engine.stage import manual_turn
from tests.broker.harness import NOW_MS, batch
from tests.broker.partitions.images import sole_replica
from tests.storage.store import claiming

TOPIC_ID = b"0123456789abcdef"


class CountedFiles(MemoryFiles):
    """Knows the sizes of the writes to segments."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[int] = []

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        self.writes.append(sum(map(len, buffers)))
        return super().pwritev(fd, buffers, position)


class Waiter:
    """Remembers how an append ended."""

    def __init__(self) -> None:
        self.outcomes: list[int | ErrorCode] = []
        self.message = ""

    @property
    def deadline(self) -> float:
        return math.inf

    def appended(self, base_offset: int, log_start: int) -> None:
        self.outcomes.append(base_offset)

    def refused(self, code: ErrorCode, message: str, base_offset: int = -1) -> None:
        self.outcomes.append(code)
        self.message = message


class Reader:
    def __init__(self) -> None:
        self.told = 0

    def more_to_read(self, place: int) -> None:
        self.told += 1


class Bench:
    """A partition whose turns and flushes a test drives by hand."""

    def __init__(self, files: MemoryFiles | None = None, configs: dict[str, str] | None = None) -> None:
        self.files = files or MemoryFiles()
        self.turn, _ = manual_turn(lambda: NOW_MS)
        self.configs = configs or {}
        self.open()

    def open(self) -> None:
        self.directory = DataDirectory("/data", self.files)
        self.log = self.directory.log("orders", 0, self.settings().log, identity=TOPIC_ID)
        self.partition = Partition(
            "orders",
            TOPIC_ID,
            0,
            self.log,
            self.settings(),
            turn=self.turn,
            now_ms=NOW_MS,
        )
        self.partition.lead(sole_replica(0), broker_epoch=1, min_isr=None, now_ms=0)

    def close(self) -> None:
        self.partition.save_producers()
        self.directory.close()

    def settings(self) -> TopicSettings:
        return TopicConfig(self.configs, BrokerConfig({})).settings()

    def append(self, data: bytearray, *, wait_for_all: bool = False) -> Waiter:
        [(header, view)] = split(data)
        waiter = Waiter()
        self.partition.append(header, view, wait_for_all=wait_for_all, waiter=waiter, now_ms=NOW_MS)
        return waiter

    def write(self) -> None:
        self.turn.settle()

    def flush(self) -> None:
        self.directory.flusher.flush()
        self.partition.flushed()

    def values(self) -> list[bytes | None]:
        found = self.log.read(self.log.start_offset, max_bytes=1 << 30)
        if found is None:
            return []
        with found:
            return [record.value for _, view in split(found.read()) for record in iterate(view)]


# Order and gathering


def test_small_appends_of_a_turn_are_one_write_in_their_order() -> None:
    files = CountedFiles()
    bench = Bench(files)
    batches = [batch(b"a"), batch(b"b", b"c"), batch(b"d")]
    waiters = [bench.append(data) for data in batches]
    assert bench.turn._staged == [bench.partition]
    assert all(not waiter.outcomes for waiter in waiters)
    files.writes.clear()
    bench.write()
    assert files.writes.count(sum(map(len, batches))) == 1
    assert [waiter.outcomes for waiter in waiters] == [[0], [1], [3]]
    assert bench.values() == [b"a", b"b", b"c", b"d"]


def test_a_small_batch_is_copied_before_its_buffer_is_used_again() -> None:
    bench = Bench()
    data = batch(b"mine")
    bench.append(data)
    data[:] = bytes(len(data))
    bench.write()
    assert bench.values() == [b"mine"]


def test_a_large_batch_is_written_at_once_behind_those_staged_before_it() -> None:
    bench = Bench()
    first = bench.append(batch(b"small"))
    large = bench.append(batch(bytes(GATHER_BELOW_BYTES)))
    last = bench.append(batch(b"after"))
    assert (first.outcomes, large.outcomes, last.outcomes) == ([0], [1], [])
    bench.write()
    assert last.outcomes == [2]
    assert bench.values() == [b"small", bytes(GATHER_BELOW_BYTES), b"after"]


def test_a_large_batch_too_asks_for_the_end_of_the_turn_where_the_flusher_is_told() -> None:
    bench = Bench()
    bench.append(batch(bytes(GATHER_BELOW_BYTES)), wait_for_all=True)
    assert bench.turn._staged


def test_nothing_staged_writes_nothing() -> None:
    files = CountedFiles()
    bench = Bench(files)
    files.writes.clear()
    bench.write()
    assert not files.writes
    assert bench.values() == []


# Acknowledgement and visibility


def test_acks_1_is_answered_when_written_and_acks_all_when_flushed() -> None:
    bench = Bench()
    one, everyone = bench.append(batch(b"a")), bench.append(batch(b"b"), wait_for_all=True)
    bench.write()
    assert (one.outcomes, everyone.outcomes) == ([0], [])
    assert bench.partition.high_watermark == 0
    bench.flush()
    assert everyone.outcomes == [1]
    assert bench.partition.high_watermark == 2


def test_a_topic_that_flushes_in_its_own_time_commits_when_written() -> None:
    bench = Bench(configs={"penstock.flush": "os"})
    waiter = bench.append(batch(b"a"), wait_for_all=True)
    bench.write()
    assert waiter.outcomes == [0]
    assert bench.partition.high_watermark == 1


def test_readers_are_woken_once_by_the_commit_and_not_by_the_write() -> None:
    bench = Bench()
    reader = Reader()
    bench.partition.fetch_waiters[reader] = 0
    bench.append(batch(b"a"))
    bench.append(batch(b"b"))
    bench.write()
    assert reader.told == 0
    bench.flush()
    assert reader.told == 1
    assert not bench.partition.fetch_waiters


def test_a_flush_is_urgent_for_a_reader_that_waits_and_more_so_for_who_waits_for_all() -> None:
    bench = Bench()
    bench.append(batch(b"a"))
    bench.write()
    found = [bench.partition.urgency]
    bench.partition.fetch_waiters[Reader()] = 0
    found.append(bench.partition.urgency)
    bench.append(batch(b"b"), wait_for_all=True)
    bench.write()
    found.append(bench.partition.urgency)
    bench.flush()
    bench.partition.fetch_waiters[Reader()] = 0
    found.append(bench.partition.urgency)
    assert found == [Urgency.NONE, Urgency.READER, Urgency.PRODUCER, Urgency.NONE]


def test_no_flush_is_urgent_in_a_topic_that_leaves_it_to_the_system() -> None:
    bench = Bench(configs={"penstock.flush": "os"})
    bench.partition.fetch_waiters[Reader()] = 0
    bench.append(batch(b"a"), wait_for_all=True)
    bench.write()
    bench.partition.fetch_waiters[Reader()] = 0
    assert bench.partition.urgency is Urgency.NONE


def test_only_committed_records_are_found() -> None:
    bench = Bench()
    bench.append(batch(b"a"))
    bench.write()
    assert bench.partition.locate(0, 1000, at_least_one=True) is None
    bench.flush()
    found = bench.partition.locate(0, 1000, at_least_one=True)
    assert found is not None
    with found:
        assert [record.value for record in iterate(found.read())] == [b"a"]
    with pytest.raises(OffsetOutOfRangeError):
        bench.partition.locate(2, 1000, at_least_one=True)


def test_who_waits_for_all_is_answered_by_the_next_flush_even_if_the_topic_stops_waiting_for_flushes() -> None:
    bench = Bench()
    waiter = bench.append(batch(b"a"), wait_for_all=True)
    bench.write()
    bench.partition.configure(replace(bench.settings(), flush_before_commit=False))
    bench.flush()
    assert waiter.outcomes == [0]


# Idempotent producers


def test_a_duplicate_gets_the_offset_of_the_original() -> None:
    bench = Bench()
    bench.append(batch(b"x"))
    bench.append(batch(b"a", b"b", producer=(7, 0, 0)))
    bench.write()
    bench.flush()
    assert bench.append(batch(b"a", b"b", producer=(7, 0, 0)), wait_for_all=True).outcomes == [1]
    assert bench.values() == [b"x", b"a", b"b"]


def test_a_duplicate_of_an_unflushed_batch_is_acknowledged_with_it() -> None:
    bench = Bench()
    first = bench.append(batch(b"a", producer=(7, 0, 0)), wait_for_all=True)
    bench.write()
    again = bench.append(batch(b"a", producer=(7, 0, 0)), wait_for_all=True)
    bench.write()
    assert (first.outcomes, again.outcomes) == ([], [])
    bench.flush()
    assert (first.outcomes, again.outcomes) == ([0], [0])
    assert bench.values() == [b"a"]


def test_a_duplicate_of_a_batch_of_the_same_turn_is_written_once_and_answered_after_the_write() -> None:
    bench = Bench()
    first = bench.append(batch(b"a", producer=(7, 0, 0)))
    again = bench.append(batch(b"a", producer=(7, 0, 0)))
    bench.write()
    assert (first.outcomes, again.outcomes) == ([0], [0])
    assert bench.values() == [b"a"]


def test_a_duplicate_of_a_batch_whose_write_fails_is_no_duplicate() -> None:
    bench = Bench()
    bench.append(batch(b"first"))
    bench.write()
    original = bench.append(batch(b"a", producer=(7, 0, 0)))
    bench.files.fail("pwritev", 1, OSError(errno.ENOSPC, "disk full"))
    again = bench.append(batch(b"a", producer=(7, 0, 0)), wait_for_all=True)
    bench.write()
    bench.flush()
    assert original.outcomes == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert again.outcomes == [1]
    assert bench.values() == [b"first", b"a"]


def test_writes_that_fail_over_and_over_write_a_few_lines_of_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_module.rated_log, "_clock", lambda: 0.0)
    bench = Bench()
    for _ in range(3 * BURST):
        bench.files.fail("pwritev", 1, OSError(errno.ENOSPC, "disk full"))
        waiter = bench.append(batch(b"a"))
        bench.write()
        assert waiter.outcomes == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert len([record for record in caplog.records if record.message == "append failed"]) == BURST


def test_a_gap_in_the_sequence_and_an_old_epoch_are_refused_without_a_trace() -> None:
    bench = Bench()
    bench.append(batch(b"a", producer=(7, 1, 0)))
    assert bench.append(batch(b"c", producer=(7, 1, 2))).outcomes == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert bench.append(batch(b"z", producer=(7, 0, 1))).outcomes == [ErrorCode.INVALID_PRODUCER_EPOCH]
    bench.write()
    assert bench.values() == [b"a"]


def test_producers_are_remembered_over_a_clean_stop() -> None:
    bench = Bench()
    bench.append(batch(b"a", producer=(7, 0, 0)))
    bench.write()
    bench.close()
    bench.open()
    assert bench.append(batch(b"a", producer=(7, 0, 0))).outcomes == [0]
    assert bench.append(batch(b"c", producer=(7, 0, 9))).outcomes == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


def test_producers_are_learned_from_the_log_where_there_is_no_snapshot() -> None:
    bench = Bench()
    bench.append(batch(b"a", producer=(7, 0, 0)))
    bench.append(batch(b"b", producer=(7, 0, 1)))
    bench.write()
    bench.flush()
    bench.files.kill_process()
    bench.open()
    assert bench.append(batch(b"b", producer=(7, 0, 1))).outcomes == [1]


def test_a_stop_saves_producers_only_where_the_next_start_would_read_much(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.append(batch(b"a", producer=(7, 0, 0)))
    bench.write()
    bench.partition.prepare_stop()
    assert bench.log.latest_snapshot(version=1) is None
    monkeypatch.setattr(partition_module, "SNAPSHOT_BYTES", 10)
    bench.partition.prepare_stop()
    snapshot = bench.log.latest_snapshot(version=1)
    assert snapshot is not None
    assert snapshot[0] == 1


def test_what_a_start_had_to_read_counts_for_the_next_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_module, "SNAPSHOT_BYTES", 150)
    bench = Bench()
    for sequence in range(3):
        bench.append(batch(b"a", producer=(7, 0, sequence)))
        bench.write()
        bench.partition.prepare_stop()
        bench.directory.close()
        bench.open()
    snapshot = bench.log.latest_snapshot(version=1)
    assert snapshot is not None, "three lives, each too short for a snapshot, add up"


def test_a_stop_leaves_a_log_alone_that_is_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_module, "SNAPSHOT_BYTES", 10)
    bench = Bench()
    bench.append(batch(b"a", producer=(7, 0, 0)))
    bench.write()
    bench.log.fail(OSError("broken"))
    bench.partition.prepare_stop()
    assert bench.log.latest_snapshot(version=1) is None


def test_a_roll_saves_what_is_known_about_producers() -> None:
    bench = Bench(configs={"internal.segment.bytes": "200"})
    for sequence in range(4):
        bench.append(batch(bytes(60), producer=(7, 0, sequence)))
        bench.write()
    assert len(bench.log.segments) > 1
    assert any(name.endswith(".snapshot") for name in bench.files.list("/data/orders-0"))


def test_a_roll_is_noticed_though_retention_has_deleted_as_many_segments_as_there_are_new_ones() -> None:
    bench = Bench(configs={"internal.segment.bytes": "200", "retention.bytes": "0"})
    for sequence in range(4):
        bench.append(batch(bytes(60), producer=(7, 0, sequence)))
        bench.write()
        bench.flush()
        bench.partition.apply_retention(NOW_MS)
        bench.flush()
    snapshot = bench.log.latest_snapshot(version=1)
    assert snapshot is not None
    assert snapshot[0] >= bench.log.start_offset


@pytest.mark.parametrize("is_saved_before", [False, True])
@pytest.mark.parametrize("how", ["DeleteRecords", "retention"])
def test_a_producer_goes_on_after_its_batches_were_deleted_and_the_process_killed(
    how: str, is_saved_before: bool
) -> None:
    bench = Bench(configs={"retention.ms": "1000"})
    for sequence in range(4):
        bench.append(batch(b"a", producer=(7, 0, sequence)), wait_for_all=True)
        bench.write()
        bench.flush()
        if sequence == 1 and is_saved_before:
            bench.partition.save_producers()
    if how == "retention":
        assert bench.partition.apply_retention(NOW_MS + 1500) == 1
    else:
        bench.partition.delete_before(4)
    assert bench.log.start_offset == 4
    bench.files.kill_process()
    bench.open()
    assert bench.append(batch(b"a", producer=(7, 0, 3))).outcomes == [3], "what is sent again is known again"
    following = bench.append(batch(b"a", producer=(7, 0, 4)))
    bench.write()
    assert following.outcomes == [4]


def test_a_snapshot_from_before_the_start_of_the_log_is_not_believed() -> None:
    bench = Bench()
    for sequence in range(4):
        bench.append(batch(b"a", producer=(7, 0, sequence)))
        bench.write()
        bench.flush()
        if sequence == 1:
            bench.partition.save_producers()
    bench.log.advance_start(4)
    bench.files.kill_process()
    bench.open()
    following = bench.append(batch(b"a", producer=(7, 0, 4)))
    bench.write()
    assert following.outcomes == [4]


def test_a_snapshot_outlives_a_power_loss_that_takes_what_was_not_flushed() -> None:
    bench = Bench()
    for sequence in range(3):
        bench.append(batch(b"a", producer=(7, 0, sequence)))
        bench.write()
        if sequence == 1:
            bench.flush()
    bench.partition.delete_before(2)
    bench.files = bench.files.after_crash(Damage.LOSE_UNSYNCED, random.Random(1))
    bench.open()
    assert bench.log.end_offset == 2
    assert bench.append(batch(b"a", producer=(7, 0, 1))).outcomes == [1]
    again = bench.append(batch(b"a", producer=(7, 0, 2)))
    bench.write()
    assert again.outcomes == [2]


def test_a_snapshot_that_cannot_be_written_costs_nothing_but_itself() -> None:
    bench = Bench(configs={"internal.segment.bytes": "200"})
    bench.append(batch(bytes(60), producer=(7, 0, 0)))
    bench.write()
    waiter = bench.append(batch(bytes(60), producer=(7, 0, 1)))
    bench.files.fail("rename", 1, OSError(errno.EIO, "broken"))
    bench.write()
    bench.flush()
    assert waiter.outcomes == [1]
    assert len(bench.log.segments) == 2
    assert bench.log.failure is None


# Failures


def test_what_is_sent_again_after_the_disk_is_gone_is_refused_and_no_duplicate() -> None:
    bench = Bench()
    bench.append(batch(b"a", producer=(7, 0, 0)))
    bench.write()
    for call in ("pwritev", "truncate", "pread"):
        bench.files.fail(call, 1, OSError(errno.EIO, "gone"))
    for _ in range(2):
        waiter = bench.append(batch(b"b", producer=(7, 0, 1)), wait_for_all=True)
        bench.write()
        assert waiter.outcomes == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert bench.log.failure is not None


def test_a_write_that_fails_is_refused_and_the_next_one_takes_its_offset() -> None:
    bench = Bench()
    bench.append(batch(b"first"))
    bench.write()
    waiters = [bench.append(batch(b"a")), bench.append(batch(b"b"), wait_for_all=True)]
    bench.files.fail("pwritev", 1, OSError(errno.ENOSPC, "disk full"), after_bytes=30)
    bench.write()
    assert [waiter.outcomes for waiter in waiters] == [[ErrorCode.KAFKA_STORAGE_ERROR]] * 2
    assert "disk full" in waiters[0].message
    again = bench.append(batch(b"c"))
    bench.write()
    bench.flush()
    assert again.outcomes == [1]
    assert bench.values() == [b"first", b"c"]


def test_any_error_of_an_append_refuses_who_waits_and_takes_the_log_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    before = bench.append(batch(b"before"), wait_for_all=True)
    bench.write()
    waiters = [bench.append(batch(b"a", producer=(7, 0, 0))), bench.append(batch(b"b"), wait_for_all=True)]

    def overflow(*args: object, **options: object) -> int:
        raise OverflowError("int too big to convert")

    with monkeypatch.context() as broken:
        broken.setattr(bench.log, "append", overflow)
        bench.write()
    for waiter in (before, *waiters):
        assert waiter.outcomes == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert "int too big" in waiter.message
    assert isinstance(bench.log.failure, OverflowError)
    later = bench.append(batch(b"c"))
    bench.write()
    assert later.outcomes == [ErrorCode.KAFKA_STORAGE_ERROR]


class BadWaiter(Waiter):
    """Whose reply cannot be written."""

    @property
    def deadline(self) -> float:
        return math.inf

    def appended(self, base_offset: int, log_start: int) -> None:
        raise ValueError("a fault of ours")

    def refused(self, code: ErrorCode, message: str, base_offset: int = -1) -> None:
        super().refused(code, message)
        raise ValueError("another one")


@pytest.mark.parametrize("wait_for_all", [False, True])
def test_an_answer_that_fails_leaves_no_other_waiter_without_one(wait_for_all: bool) -> None:
    bench = Bench()
    first = bench.append(batch(b"a"), wait_for_all=wait_for_all)
    [(header, view)] = split(batch(b"b"))
    bench.partition.append(header, view, wait_for_all=wait_for_all, waiter=BadWaiter(), now_ms=NOW_MS)
    last = bench.append(batch(b"c"), wait_for_all=wait_for_all)
    bench.write()
    bench.flush()
    assert first.outcomes == [0]
    assert last.outcomes == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert isinstance(bench.log.failure, ValueError)


def test_a_fault_refuses_what_is_staged_whatever_the_waiters_do() -> None:
    bench = Bench()
    [(header, view)] = split(batch(b"a"))
    bench.partition.append(header, view, wait_for_all=False, waiter=BadWaiter(), now_ms=NOW_MS)
    last = bench.append(batch(b"b"))
    bench.partition.broke(RuntimeError("a fault of ours"))
    assert last.outcomes == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert bench.partition.may_append() is not None


def test_of_a_turn_that_takes_two_segments_only_what_was_not_written_is_refused() -> None:
    bench = Bench()
    bench.append(batch(b"a"))
    bench.write()
    waiters = [bench.append(claiming(batch(b"x" * 10_000), 2**31 - 1), wait_for_all=True) for _ in range(2)]
    bench.files.capacity = (1 << 40) - bench.files.free_bytes("/data") + 15_000
    bench.write()
    bench.files.capacity = None
    bench.flush()
    assert [waiter.outcomes for waiter in waiters] == [[1], [ErrorCode.KAFKA_STORAGE_ERROR]]
    # What was written counts, and nothing else.
    assert bench.partition.appended_bytes == len(batch(b"a")) + len(batch(b"x" * 10_000))
    again = bench.append(batch(b"c"))
    bench.write()
    assert again.outcomes == [2**31]


def test_a_producer_may_send_again_what_could_not_be_written() -> None:
    bench = Bench()
    bench.append(batch(b"a", producer=(7, 0, 0)))
    bench.write()
    bench.append(batch(b"b", producer=(7, 0, 1)))
    bench.files.fail("pwritev", 1, OSError(errno.ENOSPC, "disk full"))
    bench.write()
    assert bench.append(batch(b"c", producer=(7, 0, 2))).outcomes == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    again = bench.append(batch(b"b", producer=(7, 0, 1)))
    bench.write()
    assert again.outcomes == [1]
    assert bench.values() == [b"a", b"b"]


def test_a_write_to_a_log_that_cannot_even_be_read_is_refused_too() -> None:
    bench = Bench()
    bench.append(batch(b"a", producer=(7, 0, 0)))
    bench.write()
    waiter = bench.append(batch(b"b", producer=(7, 0, 1)))
    bench.directory.delete("orders", 0)
    bench.write()
    assert waiter.outcomes == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_flush_that_fails_refuses_who_waited_and_whoever_comes_later() -> None:
    bench = Bench()
    one, everyone = bench.append(batch(b"a")), bench.append(batch(b"b"), wait_for_all=True)
    bench.write()
    bench.files.fail("sync", 1, OSError(errno.EIO, "input/output error"))
    with pytest.raises(OSError, match="input/output error"):
        bench.flush()
    bench.partition.went_offline("the disk failed")
    assert one.outcomes == [0]
    assert everyone.outcomes == [ErrorCode.KAFKA_STORAGE_ERROR]
    later = bench.append(batch(b"c"), wait_for_all=True)
    bench.write()
    assert later.outcomes == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert bench.partition.high_watermark == 0


def test_nothing_is_read_of_a_partition_whose_disk_has_failed_and_readers_are_woken_to_hear_it() -> None:
    bench = Bench()
    bench.append(batch(b"a"))
    bench.write()
    bench.flush()
    reader = Reader()
    bench.partition.fetch_waiters[reader] = 0
    bench.partition.went_offline("the disk failed")
    assert reader.told == 1
    with pytest.raises(LogOfflineError, match="the disk failed"):
        bench.partition.locate(0, 1000, at_least_one=True)


def test_a_log_that_cannot_be_cut_back_refuses_who_waits_for_a_flush_that_will_not_come() -> None:
    bench = Bench()
    waiting = bench.append(batch(b"a", producer=(7, 0, 0)), wait_for_all=True)
    bench.write()
    torn = bench.append(batch(b"b", producer=(7, 0, 1)), wait_for_all=True)
    bench.files.fail("pwritev", 1, OSError(errno.EIO, "broken"), after_bytes=3)
    bench.files.fail("truncate", 1, OSError(errno.EIO, "broken"))
    bench.write()
    assert torn.outcomes == waiting.outcomes == [ErrorCode.KAFKA_STORAGE_ERROR]
    duplicate = bench.append(batch(b"a", producer=(7, 0, 0)), wait_for_all=True)
    assert duplicate.outcomes == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert bench.partition.may_append() is not None


class FullDisk(DiskSpace):
    def __init__(self, files: MemoryFiles) -> None:
        super().__init__(files, "/data", reserve_bytes=lambda: 0, became_low=lambda: None)
        self.is_low = True


def test_on_a_full_disk_only_what_is_there_already_and_what_is_internal_is_acknowledged() -> None:
    bench = Bench()
    bench.append(batch(b"a", producer=(7, 0, 0)))
    bench.write()
    assert bench.partition.may_append() is None
    bench.partition._disk = FullDisk(bench.files)
    bench.partition.disk_changed()
    assert bench.partition.may_append() == bench.partition._disk.refusal
    assert bench.append(batch(b"b", producer=(7, 0, 1))).outcomes == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert bench.append(batch(b"a", producer=(7, 0, 0))).outcomes == [0], "it takes no room"
    bench.partition.topic = OFFSETS_TOPIC
    bench.partition.disk_changed()
    assert bench.partition.may_append() is None
    internal = bench.append(batch(b"c"))
    bench.write()
    assert internal.outcomes == [1]


def test_whoever_waits_at_a_deleted_topic_is_told_so() -> None:
    bench = Bench()
    written = bench.append(batch(b"a"), wait_for_all=True)
    bench.write()
    staged, reader = bench.append(batch(b"b")), Reader()
    bench.partition.fetch_waiters[reader] = 0
    bench.partition.close()
    bench.write()
    unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (written.outcomes, staged.outcomes, reader.told) == (unknown, unknown, 1)
    assert bench.values() == [b"a"]


# History


def test_records_before_an_offset_can_be_deleted() -> None:
    bench = Bench()
    for value in (b"a", b"b", b"c"):
        bench.append(batch(value))
    bench.write()
    bench.flush()
    bench.partition.delete_before(2)
    assert bench.log.start_offset == 2
    assert bench.values() == [b"c"]


def test_retention_deletes_closed_segments_that_are_old_enough() -> None:
    bench = Bench(configs={"internal.segment.bytes": "200", "retention.ms": "1000"})
    for _ in range(4):
        bench.append(batch(bytes(60)))
        bench.write()
    bench.flush()
    assert bench.partition.apply_retention(NOW_MS + 500) == 0
    assert bench.partition.apply_retention(NOW_MS + 1500) == 4
    assert bench.log.start_offset == 4


def test_a_topic_that_is_only_compacted_keeps_its_old_segments() -> None:
    bench = Bench(configs={"internal.segment.bytes": "200", "retention.ms": "1000", "cleanup.policy": "compact"})
    for _ in range(4):
        bench.append(batch(bytes(60)))
        bench.write()
    bench.flush()
    assert bench.partition.apply_retention(NOW_MS + 10_000) == 0
    assert bench.log.start_offset == 0


def test_retention_deletes_nothing_that_somebody_still_needs() -> None:
    bench = Bench(configs={"internal.segment.bytes": "200", "retention.ms": "1000"})
    for _ in range(5):
        bench.append(batch(bytes(60)))
        bench.write()
    bench.flush()
    assert bench.partition.apply_retention(NOW_MS + 1500, held_from=0) == 0
    assert bench.partition.apply_retention(NOW_MS + 1500, held_from=2) == 2
    assert bench.partition.log.start_offset == 2


def test_retention_leaves_a_log_alone_that_is_offline() -> None:
    bench = Bench(configs={"retention.ms": "1000"})
    bench.append(batch(b"a"))
    bench.write()
    bench.log.fail(OSError("broken"))
    assert bench.partition.apply_retention(NOW_MS + 10_000) == 0
