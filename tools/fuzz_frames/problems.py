"""Collects what went wrong in a broker where no client sees it."""

import asyncio
import logging
from typing import Any


class Problems(logging.Handler):
    """What is logged as an error, and what ends up with the loop."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        facts = {
            name: getattr(record, name) for name in ("api", "version", "partition", "error") if hasattr(record, name)
        }
        if record.exc_info and record.exc_info[1] is not None:
            text += f" {_told(record.exc_info[1])}"
        self.found.append(f"{text} {facts or ''}".strip())

    def unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.found.append(f"{context.get('message')} {_told(error) if error else ''}".strip())

    def take(self) -> list[str]:
        found, self.found = self.found, []
        return found


def _told(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" at {trace.tb_frame.f_code.co_filename.rpartition('penstock/')[2]}:{trace.tb_lineno}" if trace else ""
    return f"{type(error).__name__}: {str(error)[:300]}{where}"
