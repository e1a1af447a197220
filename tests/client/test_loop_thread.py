"""Coroutines run for threads that block."""

import asyncio
import threading

import pytest

from penstock.client.loop_thread import LoopThread


def test_a_result_and_an_error_come_back_to_the_thread_that_asked() -> None:
    thread = LoopThread("test")

    async def divide(by: int) -> float:
        await asyncio.sleep(0)
        return 6 / by

    assert thread.run(divide(2)) == 3
    with pytest.raises(ZeroDivisionError):
        thread.run(divide(0))
    assert thread.call(lambda: threading.current_thread().name) == "test"
    thread.close()


def test_after_close_no_thread_is_left_and_what_ran_is_cancelled() -> None:
    thread = LoopThread("test-closing")
    started, ended = threading.Event(), threading.Event()

    async def wait_for_ever() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    failures: list[BaseException] = []

    def waiting() -> None:
        try:
            thread.run(wait_for_ever())
        except BaseException as error:
            failures.append(error)

    waiter = threading.Thread(target=waiting)
    waiter.start()
    started.wait()
    thread.close()
    waiter.join()
    assert ended.is_set()
    assert [str(failure) for failure in failures] == ["closed by another thread while this call was waiting"]
    assert "test-closing" not in [each.name for each in threading.enumerate()]
    thread.close()  # Once more does no harm.


def test_a_closed_one_and_one_used_in_its_own_callback_say_what_is_wrong() -> None:
    thread = LoopThread("test")

    async def nothing() -> None:
        pass

    def inside() -> str:
        try:
            thread.run(nothing())
        except RuntimeError as error:
            return str(error)
        return ""

    assert "own callbacks" in thread.call(inside)
    thread.close()
    with pytest.raises(RuntimeError, match="closed"):
        thread.run(nothing())


def test_a_function_can_be_called_without_waiting_for_it() -> None:
    thread = LoopThread("test")
    called = threading.Event()
    thread.call_soon(called.set)
    assert called.wait(10)
    thread.close()


def test_a_coroutine_can_be_kept_running_without_anybody_waiting_for_it() -> None:
    thread = LoopThread("test")
    ran = threading.Event()

    async def run() -> None:
        await asyncio.sleep(0)
        ran.set()

    thread.call(lambda: thread.keep(run()))
    assert ran.wait(10)
    thread.close()
