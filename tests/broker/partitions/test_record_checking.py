"""Batches that are looked into: small ones at once, large ones by a thread or the helper, a few at a time."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from penstock.broker.helper.inline import InlineHelper
from penstock.broker.helper.process import HelperProcess
from penstock.broker.helper.task import Helper, HelperDiedError, HelperError
from penstock.broker.partitions import record_checking
from penstock.broker.partitions.record_checking import (
    BYTES_AT_ONCE,
    JOBS,
    RECORDS_AT_ONCE,
    RECORDS_IN_TURNS,
    THREADS,
    TRIES,
    RecordChecking,
    check_at_once,
)
from penstock.protocol.batch import BatchHeader, read_header
from penstock.protocol.compression import Codec
from penstock.protocol.record_checks import Findings, payload
from penstock.protocol.records import NewRecord, build
from penstock.storage.files.memory import MemoryFiles
from tests.broker.harness import in_loop, turns, until
from tests.hostile.poison import KINDS, zstd_bomb


def keyed(*keys: bytes | None, value: bytes = b"v", codec: Codec = Codec.NONE) -> memoryview:
    return memoryview(build([NewRecord(value, key=key) for key in keys], codec=codec))


def at_once(view: memoryview) -> Findings | None:
    return check_at_once(read_header(view), view)


@pytest.mark.parametrize("codec", Codec)
def test_records_without_a_key_are_named_by_their_places(codec: Codec) -> None:
    assert at_once(keyed(b"a", b"", b"c", codec=codec)) == Findings()
    assert at_once(keyed(b"a", None, b"c", None, codec=codec)) == Findings(keyless=[1, 3], keyless_count=2)


def test_what_takes_longer_than_a_turn_is_left_to_others() -> None:
    many = [b"k"] * (RECORDS_AT_ONCE + 1)
    assert at_once(keyed(*many[1:])) == Findings()
    assert at_once(keyed(*many)) is None
    # A large record is passed over by its length.
    assert at_once(keyed(b"k", value=bytes(BYTES_AT_ONCE * 10))) == Findings()
    # It is small, and becomes large.
    assert at_once(keyed(b"k", value=bytes(BYTES_AT_ONCE), codec=Codec.ZSTD)) is None


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("is_real", [False, True])
def test_the_helper_and_turns_of_the_loop_find_the_same(codec: Codec, is_real: bool) -> None:
    @in_loop
    async def run() -> None:
        helper: Helper = HelperProcess() if is_real else InlineHelper(MemoryFiles())
        checking = RecordChecking(helper)
        try:
            for count in (RECORDS_AT_ONCE + 2, RECORDS_IN_TURNS, RECORDS_IN_TURNS + 2):
                assert await checking.check(keyed(*[b"k"] * count, codec=codec)) == Findings()
                found = await checking.check(keyed(*[b"k", None] * (count // 2), codec=codec))
                assert found == Findings(keyless=list(range(1, 200, 2)), keyless_count=count // 2)
        finally:
            await helper.close()

    run()


@in_loop
async def test_others_get_their_turns_between() -> None:
    rounds = 0

    async def go_round() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    going = asyncio.create_task(go_round())
    await RecordChecking(DyingHelper(0)).check(keyed(*[b"k"] * RECORDS_IN_TURNS))
    assert rounds >= RECORDS_IN_TURNS // RECORDS_AT_ONCE - 1
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)


@in_loop
async def test_every_kind_of_poison_is_found() -> None:
    checking = RecordChecking(InlineHelper(MemoryFiles()))
    for kind, make in KINDS.items():
        view = memoryview(make())
        found = at_once(view)
        if found is None:
            found = await checking.check(view)
        assert found.damage is not None, kind


@in_loop
async def test_bombs_are_decompressed_a_few_at_a_time_and_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, under_way, threads = threading.Event(), 0, set[int]()

    def slow_payload(header: BatchHeader, view: memoryview) -> bytes:
        nonlocal under_way
        under_way += 1
        threads.add(threading.get_ident())
        gate.wait()
        return payload(header, view)

    monkeypatch.setattr(record_checking, "payload", slow_payload)
    checking = RecordChecking(InlineHelper(MemoryFiles()))
    bomb = memoryview(zstd_bomb())
    async with asyncio.TaskGroup() as group:
        checks = [group.create_task(checking.check(bomb)) for _ in range(THREADS + 2)]
        await until(lambda: under_way == THREADS)
        await turns()
        assert under_way == THREADS
        gate.set()
    assert [check.result().damage for check in checks] == [checks[0].result().damage] * (THREADS + 2)
    assert "decompresses to more than" in (checks[0].result().damage or "")
    assert threading.get_ident() not in threads


class DyingHelper:
    """Dies of its first jobs."""

    sleeps_alone = True
    restarts = 0

    def __init__(self, deaths: int) -> None:
        self.deaths = deaths
        self.jobs = 0
        self.at_a_time = 0
        self.most_at_a_time = 0

    async def run(self, task: Any, job: Any) -> AsyncGenerator[Any, None]:
        self.jobs += 1
        self.at_a_time += 1
        self.most_at_a_time = max(self.most_at_a_time, self.at_a_time)
        try:
            await asyncio.sleep(0)
            if self.jobs <= self.deaths:
                raise HelperDiedError("it died")
            for result in task.run(MemoryFiles(), job, should_stop=lambda: False):
                yield result
        finally:
            self.at_a_time -= 1

    async def close(self) -> None: ...


@in_loop
async def test_a_batch_is_tried_again_when_the_helper_died_and_not_for_ever() -> None:
    many = keyed(*[b"k"] * (RECORDS_IN_TURNS + 1))
    assert await RecordChecking(DyingHelper(TRIES - 1)).check(many) == Findings()
    helper = DyingHelper(100)
    with pytest.raises(HelperError, match="it died"):
        await RecordChecking(helper).check(many)
    assert helper.jobs == TRIES


@in_loop
async def test_a_few_jobs_at_a_time_are_given_to_the_helper() -> None:
    helper = DyingHelper(0)
    checking = RecordChecking(helper)
    many = keyed(*[b"k"] * (RECORDS_IN_TURNS + 1))
    await asyncio.gather(*(checking.check(many) for _ in range(4 * JOBS)))
    assert helper.most_at_a_time == JOBS
