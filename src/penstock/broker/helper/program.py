"""The helper's program takes orders on standard input, carries them out, and answers on standard output.

    python -m penstock.broker.helper.program MODULE NICENESS

The module has a table `TASKS`; by its niceness the process gives way to others. The process ends when its input does,
in the midst of a job if need be: a broker that was killed leaves no process behind.
"""

import faulthandler
import gc
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any, Final

import msgspec

from penstock.broker.helper import frames
from penstock.broker.helper.frames import Cancel, Done, Failed, FrameError, Order, Result
from penstock.broker.helper.task import Task
from penstock.storage.files import RealFiles

COLLECT_AFTER: Final = 200_000


def main() -> None:
    # Ctrl-C, or the stop of a whole service, is meant for the broker, which ends this process when it is done.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(int(sys.argv[2]))
    # Its work makes many small objects and no cycles: looking for them took a third of its time.
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)
    faulthandler.enable()
    # Printed text goes to the broker's log, and not between the answers.
    answers = os.dup(1)
    os.dup2(2, 1)
    serve(0, answers, importlib.import_module(sys.argv[1]).TASKS)


def serve(orders: int, answers: int, tasks: Mapping[str, Task[Any, Any]]) -> None:
    """Carry out what comes from one descriptor, and answer to the other; never returns."""
    inbox = _Inbox(orders)
    threading.Thread(target=inbox.read_all, name="orders", daemon=True).start()
    while True:
        order = inbox.orders.get()
        try:
            for result in _results(tasks, order, inbox):
                _write(answers, result)
            _write(answers, Done(order.number))
        except Exception as error:
            trace = traceback.format_exc(limit=-20)[-20_000:]
            _write(answers, Failed(order.number, type(error).__name__, str(error)[:4000], trace))


class _Inbox:
    """What the broker has sent."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # The broker has one job under way at a time, so there is never more than one here.
        self.orders: SimpleQueue[Order] = SimpleQueue()
        self.cancelled = -1

    def read_all(self) -> None:
        """Read orders in a thread of its own, which waits for nearly all of its life."""
        try:
            while True:
                size = frames.length(self._read(frames.LENGTH.size), frames.MAX_ORDER_BYTES)
                message = frames.read_order(self._read(size))
                if isinstance(message, Cancel):
                    self.cancelled = message.number
                else:
                    self.orders.put(message)
        except EOFError:
            os._exit(0)
        except FrameError as error:
            os.write(2, f"{error}\n".encode())
            os._exit(1)

    def _read(self, size: int) -> bytes:
        pieces = []
        while size:
            piece = os.read(self._descriptor, size)
            if not piece:
                raise EOFError
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


def _results(tasks: Mapping[str, Task[Any, Any]], order: Order, inbox: _Inbox) -> Any:
    task = tasks[order.task]
    job = msgspec.msgpack.decode(order.job, type=task.job)
    for result in task.run(RealFiles(), job, should_stop=lambda: inbox.cancelled == order.number):
        yield Result(order.number, task.results.index(type(result)), msgspec.Raw(msgspec.msgpack.encode(result)))


def _write(descriptor: int, message: msgspec.Struct) -> None:
    view = memoryview(frames.write(message))
    while view:
        view = view[os.write(descriptor, view) :]


if __name__ == "__main__":
    main()
