"""What production takes from outside of itself, and gets from the seed here: every place where it draws chance, reads a
clock that no parameter sets, starts a thread, or needs a real socket."""

import gc
import random
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from unittest.mock import patch

from penstock.broker.network import sender
from penstock.storage.files.real import Files
from penstock.storage.files.sync_threads import SyncThreads


@contextmanager
def determined(seed: int) -> Iterator[None]:
    """From here to the end of the block, chance and time in this process are those of the seed."""
    drawn = Random(f"ids {seed}")
    state = random.getstate()
    with ExitStack() as stack:
        for name, value in (
            # Ids, nonces and numbers of sessions.
            ("secrets.token_bytes", lambda size=32: drawn.randbytes(size)),
            ("secrets.token_hex", lambda size=32: drawn.randbytes(size).hex()),
            ("secrets.randbelow", drawn.randrange),
            ("uuid.uuid4", lambda: uuid.UUID(bytes=drawn.randbytes(16), version=4)),
            # CPU time: how long flushes rest, and how often the lag of the loop is measured, goes by it.
            ("penstock.broker.upkeep.flushing.time.thread_time", lambda: 0.0),
            ("penstock.broker.metrics.loop_lag.process_time", lambda: 0.0),
            # Threads that sync side by side.
            ("penstock.storage.files.sync_threads.SyncThreads.sync", _sync_one_by_one),
            # What is asked of sockets and of files of the operating system.
            ("penstock.broker.network.listener.widen_backlog", lambda server: None),
            ("penstock.broker.network.sender.SENDFILE_FROM_BYTES", 1 << 62),
        ):
            stack.enter_context(patch(name, value))
        assert sender.SENDFILE_FROM_BYTES == 1 << 62
        # Clients draw pauses and orders from the common source.
        random.seed(f"clients {seed}")
        stack.callback(random.setstate, state)
        # Weak references end with a collection, whose moment would be chance.
        was_enabled = gc.isenabled()
        gc.disable()
        gc.freeze()
        stack.callback(gc.unfreeze)
        if was_enabled:
            stack.callback(gc.enable)
        yield


@contextmanager
def clearing_away() -> Iterator[None]:
    """Collect what a simulation leaves. Processes that died in the middle of something have much to say about it."""
    with warnings.catch_warnings(), patch("sys.unraisablehook", lambda unraisable: None):
        warnings.simplefilter("ignore")
        yield
        gc.collect()


def _sync_one_by_one(threads: SyncThreads, fds: Sequence[int]) -> float:
    files: Files = threads._files
    for fd in fds:
        files.sync(fd)
    return 0.0
