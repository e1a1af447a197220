"""The helper process from the loop's side: lazy, one job at a time, started again, and gone in the end."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from penstock.broker.helper import process as process_module
from penstock.broker.helper.frames import MAX_ORDER_BYTES
from penstock.broker.helper.process import HelperProcess
from penstock.broker.helper.task import HelperDiedError, HelperError, JobFailedError
from tests.broker.harness import in_loop, until
from tests.broker.helper.sample_tasks import COUNT, Count, Number, Total


@asynccontextmanager
async def helping() -> AsyncIterator[HelperProcess]:
    helper = HelperProcess("tests.broker.helper.sample_tasks")
    try:
        yield helper
    finally:
        await helper.close()


@pytest.fixture(autouse=True)
def _short_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "FIRST_REST_SECONDS", 0.01)


async def all_of(helper: HelperProcess, job: Count) -> list[Number | Total]:
    return [result async for result in helper.run(COUNT, job)]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@in_loop
async def test_it_is_started_by_the_first_job_and_serves_the_next_ones() -> None:
    async with helping() as helper:
        assert helper.pid is None
        first, second = await all_of(helper, Count(3)), await all_of(helper, Count(3))
        assert [result.value for result in first] == [0, 1, 2, 3]
        assert {result.pid for result in first + second if isinstance(result, Number)} == {helper.pid}
        assert helper.pid != os.getpid()
        assert helper.restarts == 0
        pid = helper.pid
    assert pid is not None
    assert not is_alive(pid)


@in_loop
async def test_an_error_of_a_job_is_raised_where_its_results_are_awaited() -> None:
    async with helping() as helper:
        with pytest.raises(JobFailedError, match="count: ValueError: 2 is too much"):
            await all_of(helper, Count(3, fails_at=2))
        assert (await all_of(helper, Count(1)))[-1] == Total(1, False)
        assert helper.restarts == 0


@in_loop
async def test_a_helper_that_dies_takes_its_job_with_it_and_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    async with helping() as helper:
        with caplog.at_level(logging.WARNING, "penstock"), pytest.raises(HelperDiedError, match="by signal 9"):
            await all_of(helper, Count(3, dies_at=2))
        assert "the helper died" in caplog.text
        assert (await all_of(helper, Count(1)))[-1] == Total(1, False)
        assert helper.restarts == 1


@in_loop
async def test_a_helper_that_was_killed_while_idle_is_started_again() -> None:
    async with helping() as helper:
        await all_of(helper, Count(1))
        assert helper.pid is not None
        os.kill(helper.pid, signal.SIGKILL)
        process = helper._process
        assert process is not None
        await until(lambda: process.returncode is not None)
        assert (await all_of(helper, Count(1)))[-1] == Total(1, False)
        assert helper.restarts == 1


@in_loop
async def test_the_rest_after_a_death_doubles_until_a_job_comes_to_its_end() -> None:
    async with helping() as helper:
        rests = []
        for _ in range(3):
            with pytest.raises(HelperDiedError):
                await all_of(helper, Count(3, dies_at=0))
            rests.append(helper._rest_seconds)
        assert rests == [0.01, 0.02, 0.04]
        await all_of(helper, Count(1))
        assert helper._rest_seconds == 0


@in_loop
async def test_jobs_wait_for_each_other_up_to_a_bound() -> None:
    async with helping() as helper:
        async with aclosing(helper.run(COUNT, Count(-1))) as numbers:
            await anext(numbers)
            waiting = [asyncio.create_task(all_of(helper, Count(1))) for _ in range(process_module.MAX_WAITING)]
            await until(lambda: helper._waiting == process_module.MAX_WAITING)
            with pytest.raises(HelperError, match="try again later"):
                await all_of(helper, Count(1))
            assert not any(task.done() for task in waiting)
        assert [found[-1] for found in await asyncio.gather(*waiting)] == [Total(1, False)] * len(waiting)
        assert helper.restarts == 0


@in_loop
async def test_a_job_that_nobody_listens_to_any_more_is_stopped() -> None:
    async with helping() as helper:
        async with aclosing(helper.run(COUNT, Count(-1))) as numbers:
            first = await anext(numbers)
            assert isinstance(first, Number)
        again = await all_of(helper, Count(1))
        assert isinstance(again[0], Number)
        assert again[0].pid == first.pid


@in_loop
async def test_a_task_that_is_cancelled_stops_its_job() -> None:
    async with helping() as helper:
        listening = asyncio.create_task(all_of(helper, Count(-1)))
        await until(lambda: helper.pid)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        assert (await all_of(helper, Count(1)))[-1] == Total(1, False)


@in_loop
async def test_a_helper_that_does_not_stop_when_it_is_told_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "STOP_SECONDS", 0.05)
    async with helping() as helper:
        async with aclosing(helper.run(COUNT, Count(-1, ignores_stop=True))) as numbers:
            first = await anext(numbers)
            assert isinstance(first, Number)
        assert not is_alive(first.pid)
        assert (await all_of(helper, Count(1)))[-1] == Total(1, False)


@in_loop
async def test_closing_ends_the_process_in_the_midst_of_a_job() -> None:
    async with helping() as helper:
        numbers = helper.run(COUNT, Count(-1, ignores_stop=True))
        first = await anext(numbers)
        assert isinstance(first, Number)
        await helper.close()
        assert not is_alive(first.pid)
        with pytest.raises(HelperDiedError, match="was stopped"):
            await anext(numbers)
        with pytest.raises(HelperError, match="stopping"):
            await all_of(helper, Count(1))
        assert helper.restarts == 0


@in_loop
async def test_more_results_than_the_pipe_holds_wait_until_somebody_reads_them() -> None:
    async with helping() as helper:
        async with aclosing(helper.run(COUNT, Count(100, padding=200_000))) as numbers:
            async for result in numbers:
                if result.value == 50:
                    break
        found = await all_of(helper, Count(20, padding=200_000))
        assert [result.value for result in found] == [*range(20), 20]


@in_loop
async def test_a_result_that_is_too_large_fails_its_job_alone() -> None:
    async with helping() as helper:
        with pytest.raises(JobFailedError, match="over the limit"):
            await all_of(helper, Count(2, padding=20_000_000))
        assert (await all_of(helper, Count(1)))[-1] == Total(1, False)


@in_loop
async def test_a_job_that_is_too_large_is_not_sent() -> None:
    async with helping() as helper:
        with pytest.raises(HelperError, match="make the job smaller"):
            await all_of(helper, Count(2, says="x" * MAX_ORDER_BYTES))
        assert (await all_of(helper, Count(1)))[-1] == Total(1, False)


@in_loop
async def test_what_it_prints_goes_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with helping() as helper:
        with caplog.at_level(logging.WARNING, "penstock"):
            await all_of(helper, Count(says="something is odd"))
            await helper.close()
        assert [vars(record)["line"] for record in caplog.records] == ["something is odd"]


@in_loop
async def test_a_program_that_cannot_be_started_is_an_error_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    async with helping() as helper:
        with monkeypatch.context() as patch:
            patch.setattr("sys.executable", "/nowhere/python")
            with pytest.raises(HelperError, match="cannot be started"):
                await all_of(helper, Count(1))
        assert (await all_of(helper, Count(1)))[-1] == Total(1, False)


@in_loop
async def test_two_helpers_of_one_process_do_not_know_each_other() -> None:
    async with helping() as one, helping() as other:
        found = await asyncio.gather(all_of(one, Count(1)), all_of(other, Count(1)))
        assert one.pid != other.pid
        assert [results[-1] for results in found] == [Total(1, False)] * 2


def test_it_serves_a_loop_in_a_thread_that_is_not_the_main_one() -> None:
    found: list[Number | Total] = []

    async def work() -> None:
        async with helping() as helper:
            found.extend(await all_of(helper, Count(1)))

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    thread.join()
    assert found[-1] == Total(1, False)
