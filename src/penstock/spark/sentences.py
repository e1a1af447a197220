"""`sentence_first` has Spark report an error of ours by its message, in one sentence, and the details after it."""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

HIDES_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
"""While this is set, a Python worker reports an error without its traceback, but with its notes."""


@contextmanager
def sentence_first() -> Iterator[None]:
    """Wrap what Spark calls in a Python worker. An error of ours that leaves the block says what was wrong and what to
    do, and 30 lines of traceback before it would hide that: they become a note, which Spark prints after the message.
    Any other error is a bug, or the user's own, and is reported as Spark does it."""
    try:
        yield
    except Exception as error:
        if is_ours(error) and _is_worker():
            error.add_note("".join(traceback.format_exception(error)).rstrip())
            # The worker ends with this error, so no other task sees the variable.
            os.environ[HIDES_TRACEBACK] = "1"
        raise


def is_ours(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] == "penstock"


def _is_worker() -> bool:
    return any(name.startswith("PYTHON_WORKER_FACTORY_") for name in os.environ)
