"""What event loops report to their exception handler: an error that no code has caught fails the test in which it is
reported.

It covers every loop of the process: those of tests, of blocking clients, and of brokers in threads. A test that causes
such an error on purpose gives its loop a handler of its own.
"""

import asyncio
import gc
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

_log = asyncio.BaseEventLoop.default_exception_handler


@contextmanager
def failing_on_loop_errors() -> Iterator[None]:
    """Raise an AssertionError in the end if a loop has reported anything meanwhile."""
    reported: list[str] = []

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        reported.append(_text(context))
        _log(loop, context)  # type: ignore[arg-type]

    with patch.object(asyncio.BaseEventLoop, "default_exception_handler", report):
        yield
        # A task reports its unread exception when it is collected. What is older than the test is left alone: a full
        # collection takes longer than most tests.
        gc.collect(1)
    assert not reported, "event loops have reported errors that no code caught:\n" + "\n".join(reported)


def _text(context: dict[str, Any]) -> str:
    error = context.get("exception")
    facts = [f"{name}: {value!r}" for name, value in context.items() if name not in ("message", "exception")]
    trace = "" if error is None else "".join(traceback.format_exception(error))
    return "\n".join([str(context["message"]), *facts, trace])
