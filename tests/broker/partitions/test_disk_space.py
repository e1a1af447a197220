"""How full the disk is: when records are refused, when they are taken again, and how often anybody looks."""

import errno
import logging

import pytest

from penstock.broker.partitions import disk_space as disk_space_module
from penstock.broker.partitions.disk_space import DEFAULT_RESERVE_BYTES, MIB, DiskSpace
from penstock.protocol.error_codes import ErrorCode
from penstock.storage.files.memory import MemoryFiles
from tests.broker.harness import in_loop, turns, until


class Disk(MemoryFiles):
    """As full as a test likes."""

    def __init__(self, free: int = 1 << 40, total: int = 1 << 40) -> None:
        super().__init__()
        self.free, self.total = free, total
        self.looks = 0

    def free_bytes(self, path: str) -> int:
        self.looks += 1
        super().free_bytes(path)
        return self.free

    def total_bytes(self, path: str) -> int:
        return self.total


class Bench:
    def __init__(self, reserve: int = 1000, **disk: int) -> None:
        self.files = Disk(**disk)
        self.reserve = reserve
        self.told = 0
        self.space = DiskSpace(self.files, "/", reserve_bytes=lambda: self.reserve, became_low=self.low)

    def low(self) -> None:
        self.told += 1

    def is_low_with(self, free: int) -> bool:
        self.files.free = free
        self.space.check()
        return self.space.is_low


def test_records_are_refused_below_the_reserve_and_taken_again_some_way_above_it() -> None:
    bench = Bench(1000)
    assert not bench.is_low_with(1000)
    assert bench.is_low_with(999)
    assert bench.is_low_with(1000)
    assert bench.is_low_with(1099)
    assert not bench.is_low_with(1100)
    assert not bench.is_low_with(1000)


def test_who_wants_to_know_is_told_as_long_as_it_is_full() -> None:
    bench = Bench(1000)
    bench.is_low_with(2000)
    assert bench.told == 0
    bench.is_low_with(10)
    bench.is_low_with(10)
    assert bench.told == 2


@pytest.mark.parametrize(
    ("total", "expected"),
    [(1 << 40, DEFAULT_RESERVE_BYTES), (10 * DEFAULT_RESERVE_BYTES, DEFAULT_RESERVE_BYTES), (1000, 100), (0, 0)],
)
def test_unless_told_the_reserve_is_256_mib_or_a_tenth_of_a_small_disk(total: int, expected: int) -> None:
    bench = Bench(-1, total=total)
    bench.space.check()
    assert bench.space.reserve_bytes == expected


def test_a_reserve_of_0_refuses_nothing_before_the_disk_is_full() -> None:
    bench = Bench(0)
    assert not bench.is_low_with(0)


def test_the_refusal_is_retriable_and_says_what_to_do() -> None:
    bench = Bench(1000)
    bench.is_low_with(17)
    code, message = bench.space.refusal
    assert code == ErrorCode.KAFKA_STORAGE_ERROR
    assert code.retriable
    for words in ("17 bytes free", "1000 of them", "penstock.disk.reserve.bytes", "Delete records", "enlarge the disk"):
        assert words in message


def test_it_is_told_once_when_it_begins_and_once_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(1000)
    with caplog.at_level(logging.INFO, "penstock"):
        for free in (2000, 10, 10, 5, 2000, 2000):
            bench.is_low_with(free)
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "records are refused" in caplog.records[0].message
    assert vars(caplog.records[0])["free_bytes"] == 10


def test_a_disk_that_does_not_answer_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(1000)
    bench.is_low_with(10)
    bench.files.fail("free_bytes", 1, OSError(errno.EIO, "broken"))
    assert bench.is_low_with(2000)
    assert "not known" in caplog.text


@in_loop
async def test_a_write_that_finds_no_room_is_believed_until_the_next_look() -> None:
    bench = Bench(1000, free=1 << 30)
    bench.space.start()
    assert not bench.space.is_low
    bench.space.ran_out()
    assert bench.space.is_low
    looks = bench.files.looks
    bench.space.ran_out()
    assert bench.files.looks == looks, "one look for as many writes as fail"
    # The file system says that there is room: the next write may try.
    await until(lambda: not bench.space.is_low)
    bench.space.close()


@in_loop
async def test_it_looks_by_itself_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_space_module, "LONGEST_SECONDS", 0.002)
    monkeypatch.setattr(disk_space_module, "WHILE_LOW_SECONDS", 0.002)
    bench = Bench(1000)
    bench.space.start()
    bench.files.free = 10
    await until(lambda: bench.space.is_low)
    bench.files.free = 2000
    await until(lambda: not bench.space.is_low)
    bench.space.close()
    looks = bench.files.looks
    await turns()
    assert bench.files.looks == looks


@pytest.mark.parametrize(
    ("free", "seconds"),
    [(1 << 40, 1.0), (DEFAULT_RESERVE_BYTES + 1024 * MIB, 0.25), (DEFAULT_RESERVE_BYTES, 0.05), (0, 0.25)],
)
def test_it_looks_once_a_second_and_more_often_only_where_a_fast_disk_could_use_up_the_reserve(
    free: int, seconds: float
) -> None:
    bench = Bench(-1)
    bench.is_low_with(free)
    assert bench.space._pause() == seconds
