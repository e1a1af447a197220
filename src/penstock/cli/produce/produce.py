"""`penstock produce` sends lines of standard input or of files, each as a message, with the SDK's producer."""

import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import islice
from typing import IO, TYPE_CHECKING

import click

from penstock.cli.formatting import unescape
from penstock.cli.help import examples
from penstock.cli.options import ClientConfig, NameValue, client_options, topic_argument
from penstock.cli.output import Size, counted, show_json
from penstock.cli.produce.line_account import STANDARD_INPUT, LineAccount

if TYPE_CHECKING:
    from penstock.cli.produce.lines import JsonFormat, LineFormat
    from penstock.cli.produce.reading import ChunkReader
    from penstock.cli.progress import Progress
    from penstock.client.cluster.cluster import Cluster
    from penstock.client.errors import ClientError
    from penstock.client.metadata import Topic
    from penstock.client.producer.deliveries import SendFuture
    from penstock.client.producer.producer import Producer

ACKS = ("0", "1", "all")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# How long a batch that is not full waits for more lines.
LINGER_MS = 5
# How often the command looks whether messages have failed, while no lines come.
IDLE_SECONDS = 0.5
# Bytes from which on a batch is sent without waiting for more: half of what a topic takes by default.
BATCH_BYTES = 512 * 1024
# Bytes of messages that wait for their broker, unless the largest message needs more.
BUFFER_BYTES = 16 * 1024 * 1024
# What a frame may take besides its batch: brokers limit the frame.
FRAME_ROOM_BYTES = 64 * 1024


# Limits the partitions that the report names.
PARTITIONS_SHOWN = 8

_EXAMPLES = examples(
    "echo 'hello' | penstock produce orders --create",
    "echo '{\"total\": 12}' | penstock produce orders --key order-7",
    "penstock produce orders --key-separator : lines.txt",
    "penstock produce orders lines.txt --from-line 1001",
    "penstock consume orders -O json | penstock produce copy --input json",
)


@click.command(epilog=_EXAMPLES)
@topic_argument
@click.argument("files", type=click.Path(exists=True, dir_okay=False, allow_dash=True), nargs=-1, metavar="[FILE]...")
@click.option(
    "--input",
    "-I",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What a line is: a value, or a message as consume --output json writes it.",
)
@click.option("--key", "-k", metavar="KEY", help="The key of every message that has none of its own.")
@click.option(
    "--key-separator", "-K", metavar="SEP", help=r"What divides a line into key and value, such as ':' or '\t'."
)
@click.option("--header", "-H", "headers", type=NameValue(), multiple=True, help="A header of every message.")
@click.option(
    "--partition", "-p", type=click.IntRange(min=0), metavar="N", help="Where all go, instead of by key or in turns."
)
@click.option("--acks", type=click.Choice(ACKS), help="Who has to have it.  [default: all]")
@click.option("--codec", "-z", type=click.Choice(CODECS), help="Compression.  [default: none]")
@click.option("--null", metavar="TEXT", help="A key or value of just this is sent as null: a tombstone.")
@click.option("--create", is_flag=True, help="Make the topic, with the broker's defaults, if there is none.")
@click.option(
    "--from-line",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Begin with this line of the first FILE, as a run that broke off advises.",
)
@click.option(
    "--output",
    "-O",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How the report at the end is written: for people on standard error, or as JSON on standard output.",
)
@client_options
def produce(
    *,
    topic: str,
    files: Sequence[str],
    form: str,
    key: str | None,
    key_separator: str | None,
    headers: Sequence[tuple[str, str]],
    partition: int | None,
    acks: str | None,
    codec: str | None,
    null: str | None,
    create: bool,
    from_line: int,
    output: str,
    client: ClientConfig,
) -> None:
    """Send lines as messages.

    Without FILE, or with '-', standard input is read. Messages with equal keys go to one partition, the same that
    Java's client would choose; those without a key go to one partition after the other. A message whose answer was lost
    is sent again and stored once, unless --acks says 0 or 1. At the end it is reported where the messages are.
    """
    import os

    from penstock.cli.produce.reading import unbuffered
    from penstock.cli.running import run

    lines = read_form(form, key=key, key_separator=key_separator, null=null, headers=headers)
    names = files or [STANDARD_INPUT]
    settings = {name: value for name, value in (("acks", acks), ("compression.type", codec)) if value is not None}
    with ExitStack() as opened:
        streams = [
            unbuffered(sys.stdin.buffer)
            if name == STANDARD_INPUT
            else opened.enter_context(open(name, "rb", buffering=0))
            for name in names
        ]
        total = sum(map(os.path.getsize, names)) if STANDARD_INPUT not in names else None
        production = Production(
            topic,
            streams,
            lines,
            client={**client, **settings},
            account=LineAccount(names, from_line),
            partition=partition,
            create=create,
            total=total,
        )
        try:
            run(client, production.run)
        except OSError as error:
            raise click.ClickException(f"cannot read the input: {error}") from error
        finally:
            production.tell(output)


def read_form(
    form: str, *, key: str | None, key_separator: str | None, null: str | None, headers: Sequence[tuple[str, str]]
) -> "LineFormat | JsonFormat":
    """How lines are read, by the options. UsageError if they contradict each other."""
    from penstock.cli.produce.lines import JsonFormat, LineFormat

    def raw(text: str | None) -> bytes | None:
        return None if text is None else text.encode(errors="surrogateescape")

    common = tuple((name, raw(value)) for name, value in headers)
    if form == "json":
        for option, value in (("--key", key), ("--key-separator", key_separator), ("--null", null)):
            if value is not None:
                raise click.UsageError(
                    f"{option} is for lines of text: in JSON every message has its own key and value"
                )
        return JsonFormat(headers=common)
    if key_separator == "":
        raise click.BadParameter("it may not be empty", param_hint="--key-separator")
    separator = None if key_separator is None else unescape(key_separator)
    return LineFormat(key=raw(key), key_separator=separator, null=raw(null), headers=common)


class Production:
    """One run of the command. After a failure it reads no more lines, and sends those that it has read."""

    def __init__(
        self,
        topic: str,
        streams: Sequence[IO[bytes]],
        form: "LineFormat | JsonFormat",
        *,
        client: ClientConfig,
        account: LineAccount,
        partition: int | None = None,
        create: bool = False,
        total: int | None = None,
    ) -> None:
        self._topic = topic
        self._streams = streams
        self._form = form
        self._client = client
        self._account = account
        self._partition = partition
        self._creates = create
        self._total = total
        self._pending: deque[tuple[SendFuture, int, int]] = deque()
        """Messages whose outcome is not known yet, with their bytes and their numbers as lines, in that order."""
        self._is_started = False
        self._is_cancelled = False
        self._started = 0.0
        self._sent = 0
        self._sent_bytes = 0
        self._offsets: dict[int, list[int]] = {}
        """The first and the last offset in each partition."""
        self._lost = 0
        self._failure: ClientError | None = None

    async def run(self, cluster: "Cluster") -> None:
        import asyncio

        from penstock.cli.produce.reading import ChunkReader
        from penstock.cli.progress import Progress
        from penstock.client.errors import ClientError

        topic = await self._find_topic(cluster)
        if self._partition is not None:
            topic.partition(self._partition)
        producer = await self._open_producer(cluster)
        self._is_started, self._started = True, time.monotonic()
        is_interactive = any(stream.isatty() for stream in self._streams)
        refused: ClientError | None = None
        with Progress(f"sending to {self._topic}", total=self._total, wanted=not is_interactive) as progress:
            try:
                await self._pump(ChunkReader(self._streams), producer, progress)
            except ClientError as error:
                refused = error
            except asyncio.CancelledError:
                self._is_cancelled = True
                await producer.close(timeout_ms=0)
                raise
            finally:
                await producer.close()
                self._count()
        if refused is not None:
            self._lost += 1
            self._account.fail(self._account.read - 1)
        if (failure := self._failure or refused) is not None:
            if self._lost > 1:
                failure.add_note(f"{counted(self._lost - 1, 'more message')} failed")
            if (advice := self._account.advice()) is not None:
                failure.add_note(advice)
            raise failure

    def tell(self, output: str = "text") -> None:
        """Report what was sent and where it is, also when the command was interrupted."""
        if not self._is_started:
            return
        seconds = time.monotonic() - self._started
        if output == "json":
            show_json(
                {
                    "topic": self._topic,
                    "messages": self._sent,
                    "bytes": self._sent_bytes,
                    "seconds": round(seconds, 3),
                    "partitions": [
                        {"partition": number, "first_offset": first, "last_offset": last}
                        for number, (first, last) in sorted(self._offsets.items())
                    ],
                }
            )
        else:
            done = f"{counted(self._sent, 'message')} ({Size(self._sent_bytes)})"
            click.echo(f"sent {done} to {self._topic} in {seconds:.1f} s{self._places()}", err=True)
        if self._is_cancelled and (advice := self._account.advice()) is not None:
            click.echo(advice, err=True)

    def _places(self) -> str:
        """Where the messages are, as `penstock message get` takes it."""
        places = [
            f"{self._topic}-{number}@{first}" + (f" to {last}" if last > first else "")
            for number, (first, last) in sorted(self._offsets.items())
        ]
        more = len(places) - PARTITIONS_SHOWN
        named = ", ".join(places[:PARTITIONS_SHOWN])
        return (f": {named}" if places else "") + (f" and in {counted(more, 'more partition')}" if more > 0 else "")

    async def _find_topic(self, cluster: "Cluster") -> "Topic":
        from penstock.client.admin.topics import NewTopic, create_topics
        from penstock.client.errors import BrokerError, UnknownTopicError, unwrap
        from penstock.protocol.error_codes import ErrorCode

        try:
            return await cluster.topic(self._topic)
        except UnknownTopicError as error:
            if not self._creates:
                error.add_note(f"--create makes it, or: penstock topic create {self._topic}")
                raise
        try:
            unwrap(await create_topics(cluster, [NewTopic(name=self._topic, partitions=-1, replication_factor=-1)]))
        except BrokerError as error:
            # Another producer has made it meanwhile.
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        else:
            click.echo(f"made topic {self._topic}", err=True)
        return await cluster.topic(self._topic, fresh=True)

    async def _open_producer(self, cluster: "Cluster") -> "Producer[bytes, bytes]":
        from penstock.client.producer.producer import Producer

        is_idempotent = self._client.get("acks", "all") in ("all", "-1")
        largest = await largest_request(cluster, self._topic)
        defaults = {
            "enable.idempotence": is_idempotent,
            # Without sequence numbers, a second batch in flight could overtake one that is sent again.
            "max.in.flight.requests.per.connection": 5 if is_idempotent else 1,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "max.request.size": largest,
            "buffer.memory": max(BUFFER_BYTES, 2 * largest),
            "delivery.timeout.ms": cluster.timeout_ms,
            # A message that cannot be delivered says why; that is of more use than to hear that the buffer is full.
            "max.block.ms": 2 * cluster.timeout_ms,
        }
        return Producer({**defaults, **self._client})

    async def _pump(self, reader: "ChunkReader", producer: "Producer[bytes, bytes]", progress: "Progress") -> None:
        from penstock.cli.produce.lines import LineSplitter
        from penstock.client.errors import ClientError

        splitter, account = LineSplitter(), self._account
        skipped = account.skipped
        common = self._form.headers
        header_bytes = _header_bytes(common)
        while self._failure is None:
            try:
                chunk = await reader.next(within=IDLE_SECONDS)
            except TimeoutError:
                self._count()
                continue
            if chunk is None:
                return
            lines = splitter.feed(chunk) if chunk else splitter.finish()
            now_ms = time.time_ns() // 1_000_000
            for line in islice(lines, min(skipped, len(lines)), None):
                number = account.read
                account.read += 1
                try:
                    value, key, headers, timestamp = self._form.record(line, now_ms)
                except ValueError as error:
                    raise ClientError(f"line {account.line(number).number} is no message: {error}") from None
                await producer.ready()
                future = producer.send(
                    self._topic, value, key, partition=self._partition, headers=headers, timestamp_ms=timestamp
                )
                own = header_bytes if headers is common else _header_bytes(headers)
                self._pending.append((future, len(value or b"") + len(key or b"") + own, number))
            skipped -= min(skipped, len(lines))
            if not chunk:
                account.end_file()
                skipped = 0
            progress.advance(len(chunk), len(lines))
            self._count()

    def _count(self) -> None:
        """Take the messages whose outcome is known off the front of those that are pending."""
        pending = self._pending
        while pending and pending[0][0].done():
            future, size, number = pending.popleft()
            if (error := future.exception()) is None:
                self._sent += 1
                self._sent_bytes += size
                _, partition, offset, _ = future.result()
                if offset >= 0:
                    self._offsets.setdefault(partition, [offset, offset])[1] = offset
            else:
                self._lost += 1
                self._account.fail(number)
                self._failure = self._failure or error


def _header_bytes(headers: "Sequence[tuple[str, bytes | None]]") -> int:
    return sum(len(name) + len(value or b"") for name, value in headers)


async def largest_request(cluster: "Cluster", topic: str) -> int:
    """Bytes of the largest request to send: by default those of the SDK, more if the topic takes larger messages."""
    from penstock.client.admin.configs import Resource, ResourceType, describe_configs
    from penstock.client.errors import ClientError
    from penstock.client.producer.sender import REQUEST_BYTES
    from penstock.client.settings import ProducerSettings
    from penstock.protocol.framing import DEFAULT_LIMIT

    default = ProducerSettings().max_request_size
    resource = Resource(ResourceType.TOPIC, topic)
    described = (await describe_configs(cluster, [resource], names=["max.message.bytes"]))[resource]
    if isinstance(described, ClientError) or "max.message.bytes" not in described:
        # A user may be allowed to write to a topic but not to see its configs.
        return default
    # A batch that grows while its broker is busy may become as large as the topic takes, and no larger.
    wanted = int(described["max.message.bytes"].value or 0) + REQUEST_BYTES
    return max(default, min(wanted, DEFAULT_LIMIT - FRAME_ROOM_BYTES))
