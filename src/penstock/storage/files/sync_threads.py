"""Syncs several files side by side, in plain threads: a queue hands them descriptors, another one brings back errors.

The syncs of one journal share its commits. One after the other would wait for a commit each.
"""

import threading
import time
import weakref
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Final, TypeAlias

from penstock.storage.files.real import Files

# The caller's thread and those beside it.
SIDE_BY_SIDE: Final = 8

_ToDo: TypeAlias = "SimpleQueue[int | None]"
_Done: TypeAlias = "SimpleQueue[tuple[BaseException | None, float]]"


class SyncThreads:
    """Belongs to one thread at a time, which syncs as well. The others are started when they are first needed."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._todo: _ToDo = SimpleQueue()
        self._done: _Done = SimpleQueue()
        self._threads: list[threading.Thread] = []
        # Without a close, too: threads know the queues alone, so that an owner that is dropped ends them.
        self._end = weakref.finalize(self, _end, self._todo, self._threads)

    def sync(self, fds: Sequence[int]) -> float:
        """Sync the files. Returns the CPU seconds that the other threads took; raises the first error once all syncs
        have ended, since one that is still running needs its descriptor."""
        for _ in range(len(self._threads), min(len(fds), SIDE_BY_SIDE) - 1):
            arguments = self._files, self._todo, self._done
            thread = threading.Thread(target=_work, args=arguments, name="penstock-flush", daemon=True)
            thread.start()
            self._threads.append(thread)
        for fd in fds[1:]:
            self._todo.put(fd)
        own = [_sync(self._files, fd) for fd in fds[:1]]
        while (left := self._next()) is not None:
            own.append(_sync(self._files, left))
        others = [self._done.get() for _ in range(len(fds) - len(own))]
        for error, _ in own + others:
            if error is not None:
                raise error
        return sum(seconds for _, seconds in others)

    def _next(self) -> int | None:
        try:
            return self._todo.get_nowait()
        except Empty:
            return None

    def close(self) -> None:
        self._end()
        for thread in self._threads:
            thread.join()


def _sync(files: Files, fd: int) -> tuple[BaseException | None, float]:
    began = time.thread_time()
    try:
        files.sync(fd)
    except BaseException as error:
        return error, 0.0
    return None, time.thread_time() - began


def _work(files: Files, todo: _ToDo, done: _Done) -> None:
    while (fd := todo.get()) is not None:
        done.put(_sync(files, fd))


def _end(todo: _ToDo, threads: Sequence[threading.Thread]) -> None:
    for _ in threads:
        todo.put(None)
