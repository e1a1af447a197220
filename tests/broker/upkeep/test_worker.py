"""The worker of a broker: its order, its thread, and its end."""

import threading

from penstock.broker.upkeep.worker import ThreadWorker


def test_work_is_done_in_order_in_a_thread_of_its_own_before_close_returns() -> None:
    done: list[tuple[int, str]] = []
    worker = ThreadWorker("penstock-test")
    for number in range(100):
        worker.put(lambda number=number: done.append((number, threading.current_thread().name)))  # type: ignore[misc]
    worker.close()
    assert done == [(number, "penstock-test") for number in range(100)]
    assert "penstock-test" not in {thread.name for thread in threading.enumerate()}


def test_a_worker_without_work_has_no_thread() -> None:
    worker = ThreadWorker("penstock-test")
    assert "penstock-test" not in {thread.name for thread in threading.enumerate()}
    worker.close()
