"""Runs Kafka's console tools (kafka-console-producer, kafka-console-consumer, kafka-get-offsets and others), all in one
JVM.

Which tool with which arguments is decided here; `console/Tools.java` runs it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count as numbers

from penstock.protocol.records import NewRecord, Record
from tools.clients.client import MAX_REQUEST_BYTES, PARTITION, SECONDS, At, Ready, RefusedError, Session, Start
from tools.clients.packages import HERE, ROOT, class_path, install_commands, install_jars
from tools.clients.processes import Conversation, OutsideError

PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
TOPICS = "org.apache.kafka.tools.TopicCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"

NULL = "<null>"
END_OF_FIELD = "<field>"
END_OF_MESSAGE = "<message>"
NO_HEADERS = "NO_HEADERS"


class ConsoleTools:
    def __init__(self, conversation: Conversation) -> None:
        self.version: str = conversation.greeting["version"]
        self._conversation = conversation
        self._client_ids = (f"console-{number}" for number in numbers())

    async def run(
        self,
        tool: str,
        bootstrap: str,
        *arguments: str,
        typed: bytes = b"",
        consumer: str | None = None,
        ready: Ready | None = None,
    ) -> tuple[bytes, str]:
        """What a tool prints when that is typed, and what it complains about; `ready` when the consumer of that client
        id has found its position."""
        words = {"tool": tool, "arguments": ["--bootstrap-server", bootstrap, *arguments], "consumer": consumer}
        async with asyncio.timeout(SECONDS):
            await self._conversation.say({**words, "input": typed.decode("latin-1")})
            answer = await self._conversation.hear()
            if "ready" in answer:
                assert ready is not None
                await ready(answer["ready"])
                answer = await self._conversation.hear()
        if answer["status"]:
            raise OutsideError(f"{tool} {' '.join(arguments)} failed:\n{answer['output']}\n{answer['complaints']}")
        return answer["output"].encode("latin-1"), answer["complaints"]

    async def produce(
        self, bootstrap: str, topic: str, records: Sequence[NewRecord], *, codec: str, acks: str | None = None
    ) -> None:
        reading = {
            "parse.key": "true",
            "parse.headers": "true",
            "key.separator": END_OF_FIELD,
            "headers.delimiter": END_OF_FIELD,
            "null.marker": NULL,
        }
        arguments = ["--topic", topic, "--compression-codec", codec, "--request-required-acks", acks or "all"]
        arguments += _properties("--reader-property", reading)
        arguments += _properties("--command-property", {"max.request.size": str(MAX_REQUEST_BYTES)})
        typed = b"".join(_line(record) for record in records)
        # It ends well even if a message is refused.
        _, complaints = await self.run(PRODUCER, bootstrap, *arguments, typed=typed)
        if complaints:
            raise RefusedError(complaints)

    async def fetch(
        self, bootstrap: str, topic: str, start: Start, count: int, ready: Ready | None = None
    ) -> list[Record]:
        match start.at:
            case At.BEGINNING:
                where = "earliest"
            case At.END:
                where = "latest"
            case At.OFFSET:
                where = str(start.value)
            case _:
                where = str(await self.offset(bootstrap, topic, str(start.value)))
        printing = {f"print.{part}": "true" for part in ("timestamp", "offset", "headers", "key")}
        printing |= {"key.separator": END_OF_FIELD, "line.separator": END_OF_MESSAGE, "null.literal": NULL}
        client_id = next(self._client_ids)
        arguments = ["--topic", topic, "--partition", str(PARTITION), "--offset", where, "--max-messages", str(count)]
        arguments += ["--timeout-ms", str(SECONDS * 1000), *_properties("--formatter-property", printing)]
        arguments += _properties("--command-property", {"client.id": client_id, "fetch.max.wait.ms": "100"})
        consumer = client_id if ready is not None else None
        output, _ = await self.run(CONSUMER, bootstrap, *arguments, consumer=consumer, ready=ready)
        return list(read_messages(output))

    async def offset(self, bootstrap: str, topic: str, time: str) -> int:
        """What kafka-get-offsets prints: `time` is earliest, latest, max-timestamp or a number of milliseconds."""
        output, _ = await self.run(GET_OFFSETS, bootstrap, "--topic", topic, "--time", time)
        # Topic, partition and offset, with colons between.
        return int(output.decode().strip().rsplit(":", 1)[1])


async def install_console_tools() -> None:
    await install_commands("java", "mvn")
    await install_jars(HERE / "console")


@asynccontextmanager
async def start_console_tools() -> AsyncIterator[Session]:
    # Compiling further than the first stage takes longer than the tests do.
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command = ["java", *options, "-cp", class_path("console"), str(HERE / "console" / "Tools.java")]
    async with Conversation.open(command, seconds=SECONDS, folder=ROOT, environment={}) as conversation:
        yield ConsoleTools(conversation)


def what_the_producer_sends(records: Sequence[NewRecord]) -> list[NewRecord]:
    """It is text that is typed: lines in UTF-8."""
    return [
        record._replace(headers=tuple((name, value) for name, value in record.headers if name and _is_text(value)))
        for record in records
        if _is_text(record.key) and _is_text(record.value)
    ]


def read_messages(output: bytes) -> Iterator[Record]:
    for message in output.split(END_OF_MESSAGE.encode())[:-1]:
        timestamp, offset, headers, key, value = message.split(END_OF_FIELD.encode())
        yield Record(
            # Printed as "CreateTime:1700000000000" and "Offset:7".
            int(offset.split(b":")[1]),
            int(timestamp.split(b":")[1]),
            _or_null(key),
            _or_null(value),
            tuple(_headers(headers.decode("latin-1"))),
        )


def _headers(told: str) -> Iterator[tuple[str, bytes | None]]:
    for header in told.split(",") if told != NO_HEADERS else ():
        name, _, value = header.encode("latin-1").partition(b":")
        yield name.decode(), _or_null(value)


def _or_null(told: bytes) -> bytes | None:
    return None if told == NULL.encode() else told


def _is_text(data: bytes | None) -> bool:
    try:
        return data is None or (b"\n" not in data and data.decode().isprintable())
    except UnicodeDecodeError:
        return False


def _line(record: NewRecord) -> bytes:
    headers = b",".join(name.encode() + b":" + _typed(value) for name, value in record.headers)
    fields = [headers or NULL.encode(), _typed(record.key), _typed(record.value)]
    return END_OF_FIELD.encode().join(fields) + b"\n"


def _typed(data: bytes | None) -> bytes:
    return NULL.encode() if data is None else data


def _properties(option: str, values: dict[str, str]) -> list[str]:
    return [argument for name, value in values.items() for argument in (option, f"{name}={value}")]
