"""The log formats write a line with its facts as fields: for people on a terminal, as JSON for machines.

Some lines quote what a client has sent. That never makes a line or a field of its own, and is cut where it is long.
"""

import json
import logging
import time
from typing import Any, Final, TextIO

from penstock.protocol.printable import printable, printable_json, shortened

MAX_MESSAGE_CHARS: Final = 4_000
MAX_VALUE_CHARS: Final = 1_000
MAX_TRACEBACK_CHARS: Final = 20_000

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the fields, and the traceback if there is one. Several
    brokers that share a log have their numbers in it."""

    def __init__(self, broker: int | None = None) -> None:
        super().__init__()
        self._fixed: dict[str, Any] = {} if broker is None else {"broker": broker}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._fixed,
            "message": shortened(record.getMessage(), MAX_MESSAGE_CHARS),
            **_fields(record),
        }
        if record.exc_info:
            line["traceback"] = _ends(self.formatException(record.exc_info))
        return printable_json(json.dumps(line, default=_text, ensure_ascii=False))


class TextFormatter(logging.Formatter):
    """Time, level, message, then the fields as name=value; the lines of a traceback are indented. Every line of brokers
    that share a log begins with the broker's number."""

    def __init__(self, broker: int | None = None) -> None:
        super().__init__()
        self._prefix = "" if broker is None else f"broker {broker} | "

    def format(self, record: logging.LogRecord) -> str:
        message = printable(shortened(record.getMessage(), MAX_MESSAGE_CHARS))
        fields = "".join(f" {name}={_value(value)}" for name, value in _fields(record).items())
        line = f"{self._prefix}{_timestamp(record)} {record.levelname.lower():<7} {message}{fields}"
        if record.exc_info:
            # An error's text may have lines: indented, none of them passes for a line of the log.
            traceback = _ends(self.formatException(record.exc_info))
            line += "".join(f"\n{self._prefix}    {printable(each)}" for each in traceback.split("\n"))
        return line


def set_up_logs(stream: TextIO, *, as_json: bool, level: str, broker: int | None = None) -> None:
    """Write the log lines of Penstock, and the complaints of asyncio, to a stream; with the number of a broker that
    shares it with others."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter(broker) if as_json else TextFormatter(broker))
    for name, least in (("penstock", logging.NOTSET), ("asyncio", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(max(least, logging.getLevelNamesMapping()[level.upper()]))


def _timestamp(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z"


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {
        name: shortened(value, MAX_VALUE_CHARS) if isinstance(value, str) else value
        for name, value in record.__dict__.items()
        if name not in _STANDARD
    }


def _text(value: object) -> str:
    return shortened(str(value), MAX_VALUE_CHARS)


def _value(value: object) -> str:
    """Text that could be taken for more than one value stands in quotes."""
    text = _text(value)
    if text.isprintable() and text and not any(char in text for char in ' "='):
        return text
    return printable_json(json.dumps(text, ensure_ascii=False))


def _ends(text: str) -> str:
    """The beginning and the end of a long text: a traceback has its cause at one of them."""
    if len(text) <= MAX_TRACEBACK_CHARS:
        return text
    half = MAX_TRACEBACK_CHARS // 2
    return f"{text[:half]}\n… ({len(text) - 2 * half} more characters)\n{text[-half:]}"
