"""Runs kcat, as a process for each thing it does."""

import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import groupby

from penstock.protocol.records import NewRecord, Record
from tools.clients.client import MAX_REQUEST_BYTES, PARTITION, SECONDS, At, Ready, RefusedError, Session, Start
from tools.clients.packages import install_commands
from tools.clients.processes import OutsideError, run

END_OF_MESSAGE = "<<end>>"
END_OF_KEY = "<<key>>"
# The sizes of key and value come first, as both can hold anything.
FORMAT = f"%o %T %K %S %k%s%h{END_OF_MESSAGE}"
NULL_HEADER = b"NULL"


class Kcat:
    def __init__(self, version: str) -> None:
        self.version = version

    async def produce(
        self, bootstrap: str, topic: str, records: Sequence[NewRecord], *, codec: str, acks: str | None = None
    ) -> None:
        settings = ["-z", codec, "-X", f"message.max.bytes={MAX_REQUEST_BYTES}", "-X", f"acks={acks or 'all'}"]
        # Headers, and whether an empty value means none, are said once for all messages of a process.
        for (headers, are_tombstones), group in groupby(records, lambda each: (each.headers, each.value is None)):
            options = [option for name, value in headers for option in ("-H", _header(name, value))]
            if are_tombstones:
                options.append("-Z")
            with tempfile.NamedTemporaryFile() as messages:
                messages.write(b"".join(_line(record) for record in group))
                messages.flush()
                delimiters = ["-D", END_OF_MESSAGE, "-K", END_OF_KEY]
                command = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-p", str(PARTITION), *settings, *options]
                try:
                    await run([*command, *delimiters, "-l", messages.name], seconds=SECONDS)
                except OutsideError as error:
                    raise RefusedError(str(error)) from error

    async def fetch(
        self, bootstrap: str, topic: str, start: Start, count: int, ready: Ready | None = None
    ) -> list[Record]:
        async def heard(line: str) -> None:
            # It says: % Reached end of topic T [0] at offset 20
            if ready is not None and "Reached end of topic" in line:
                await ready(int(line.split(" at offset ")[1]))

        match start.at:
            case At.OFFSET:
                where = str(start.value)
            case At.TIMESTAMP:
                where = f"s@{start.value}"
            case _:
                where = start.at
        command = ["kcat", "-C", "-b", bootstrap, "-t", topic, "-p", str(PARTITION), "-o", where, "-c", str(count)]
        told = await run([*command, "-f", FORMAT], seconds=SECONDS, heard=heard)
        return list(read_messages(told))


async def install_kcat() -> None:
    await install_commands("kcat")


@asynccontextmanager
async def start_kcat() -> AsyncIterator[Session]:
    told = await run(["kcat", "-V"], seconds=SECONDS)
    # It says: Version 1.7.1 (JSON, Transactions, IncrementalAssign, librdkafka 2.0.2 builtin.features=…)
    words = told.decode().split()
    yield Kcat(f"{words[words.index('Version') + 1]}, librdkafka {words[words.index('librdkafka') + 1]}")


def what_kcat_sends(records: Sequence[NewRecord]) -> list[NewRecord]:
    """A header comes as an argument, which ends at a zero byte, and has a name."""
    return [
        record._replace(headers=tuple((name, value) for name, value in record.headers if name))
        for record in what_kcat_reads(records)
    ]


def what_kcat_reads(records: Sequence[NewRecord]) -> list[NewRecord]:
    """It prints the values of headers up to a zero byte."""
    return [
        record._replace(headers=tuple((name, value and value.split(b"\0")[0]) for name, value in record.headers))
        for record in records
    ]


def read_messages(told: bytes) -> Iterator[Record]:
    position = 0
    while position < len(told):
        *numbers, _ = told[position:].split(b" ", 4)
        offset, timestamp, key_size, value_size = map(int, numbers)
        position += sum(len(number) + 1 for number in numbers)
        key_end = position + max(key_size, 0)
        value_end = key_end + max(value_size, 0)
        end = told.index(END_OF_MESSAGE.encode(), value_end)
        key = told[position:key_end] if key_size >= 0 else None
        value = told[key_end:value_end] if value_size >= 0 else None
        yield Record(offset, timestamp, key, value, tuple(_headers(told[value_end:end])))
        position = end + len(END_OF_MESSAGE)


def _headers(told: bytes) -> Iterator[tuple[str, bytes | None]]:
    for header in told.split(b",") if told else ():
        name, _, value = header.partition(b"=")
        yield name.decode(), None if value == NULL_HEADER else value


def _header(name: str, value: bytes | None) -> str:
    return name if value is None else f"{name}={value.decode()}"


def _line(record: NewRecord) -> bytes:
    key = b"" if record.key is None else record.key + END_OF_KEY.encode()
    return key + (record.value or b"") + END_OF_MESSAGE.encode()
