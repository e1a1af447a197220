"""An error that only an event loop's exception handler gets fails a test."""

import asyncio

import pytest

from penstock.client.loop_thread import LoopThread
from tests.loop_errors import failing_on_loop_errors


async def leave_a_failed_task() -> None:
    async def work() -> None:
        fail()

    task = asyncio.create_task(work())
    await asyncio.wait([task])


def fail() -> None:
    raise KeyError("orders")


def fail_in_a_thread() -> None:
    thread = LoopThread("test")
    thread.call(lambda: asyncio.get_running_loop().call_soon(fail))
    thread.call(lambda: None)
    thread.close()


@pytest.mark.filterwarnings("ignore")
def test_an_exception_of_a_task_that_no_code_awaits_fails_a_test() -> None:
    watched = failing_on_loop_errors()
    with pytest.raises(AssertionError, match=r"(?s)Task exception was never retrieved.*KeyError: 'orders'"), watched:
        asyncio.run(leave_a_failed_task())


def test_an_exception_of_a_callback_fails_a_test_also_in_the_thread_of_a_blocking_client() -> None:
    watched = failing_on_loop_errors()
    with pytest.raises(AssertionError, match=r"(?s)Exception in callback.*KeyError: 'orders'"), watched:
        fail_in_a_thread()


def test_a_loop_that_reports_nothing_fails_no_test() -> None:
    with failing_on_loop_errors():
        asyncio.run(asyncio.sleep(0))
